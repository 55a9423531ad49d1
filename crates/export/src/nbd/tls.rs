//! TLS under the protocol: who may connect is decided by certificates or by shared keys.
//!
//! * Certificates: a directory as other NBD tools lay it out, with `server-cert.pem` (and the
//!   chain behind it), `server-key.pem` and, to check clients, `ca-cert.pem`. TLS 1.2 and 1.3.
//! * Shared keys: a file of `USER:HEXKEY` lines, as `psktool` writes it. TLS 1.3 only. Needs the
//!   cargo feature `tls-psk`, see `docs/decisions/tls.md`.
//! * Files are read once, when the server is set up; a renewed certificate needs a restart.

mod certificate;
mod ec_key;
#[cfg(feature = "tls-psk")]
mod psk;
mod psk_keys;
mod session;
mod stream;

use std::path::Path;
use std::rc::Rc;

use io::{ErrorKind, IoError};

pub use psk_keys::PskKeys;
use session::Session;
pub(super) use stream::TlsStream;

/// TLS settings of a server, loaded and checked.
#[derive(Clone)]
pub struct Tls {
    sessions: Rc<dyn Sessions>,
    required: bool,
}

/// Whether clients must show a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They stay anonymous.
    NotAsked,
    /// Signed by `ca-cert.pem`, or the connection ends.
    Required,
}

/// Makes the server's end of a TLS session.
trait Sessions {
    fn begin(&self) -> Result<Box<dyn Session>, IoError>;
}

impl Tls {
    /// Loads certificates from a directory. TLS is required of clients unless
    /// [`Tls::offered`] says otherwise.
    ///
    /// # Errors
    /// A file is missing or is not what it should be; the message names it.
    pub fn from_certificates(
        directory: &Path,
        clients: ClientCertificates,
    ) -> Result<Tls, IoError> {
        let sessions = Rc::new(certificate::CertificateSessions::load(directory, clients)?);
        Ok(Tls { sessions, required: true })
    }

    /// Loads shared keys from a file. TLS is required of clients unless [`Tls::offered`] says
    /// otherwise.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it is not `USER:HEXKEY`.
    #[cfg(feature = "tls-psk")]
    pub fn from_psk_file(path: &Path) -> Result<Tls, IoError> {
        let sessions = Rc::new(psk::PskSessions::load(path)?);
        Ok(Tls { sessions, required: true })
    }

    /// The same, but clients may also connect without TLS.
    #[must_use]
    pub fn offered(mut self) -> Tls {
        self.required = false;
        self
    }

    /// Whether clients without TLS are refused.
    pub fn is_required(&self) -> bool {
        self.required
    }

    pub(super) fn begin(&self) -> Result<Box<dyn Session>, IoError> {
        self.sessions.begin()
    }
}

impl std::fmt::Debug for Tls {
    /// Never shows keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").field("required", &self.required).finish_non_exhaustive()
    }
}

/// A file that is not what TLS needs.
fn unusable(path: &Path, why: impl std::fmt::Display) -> IoError {
    IoError::new(ErrorKind::Io, format!("{}: {why}", path.display()))
}

/// A session that cannot go on.
fn broken(why: impl std::fmt::Display) -> IoError {
    IoError::new(ErrorKind::Disconnected, format!("TLS: {why}"))
}
