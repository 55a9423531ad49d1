//! Sessions with certificates, by rustls.

use std::io::{ErrorKind as StdKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use io::IoError;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivateSec1KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::ec_key::straighten;
use super::session::{Plaintext, Session};
use super::{ClientCertificates, Sessions, broken, unusable};

/// Plaintext and ciphertext buffered inside a session, in bytes each. Some records of 16 KiB.
const BUFFERED_BYTES_MAX: usize = 128 << 10;

/// Makes sessions from one set of certificates.
pub(super) struct CertificateSessions {
    config: Arc<ServerConfig>,
}

impl CertificateSessions {
    pub(super) fn load(
        directory: &Path,
        clients: ClientCertificates,
    ) -> Result<CertificateSessions, IoError> {
        let (chain_path, chain) = read_certificates(directory, "server-cert.pem")?;
        let key_path = directory.join("server-key.pem");
        let key = read_key(&key_path)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(broken)?;
        let builder = match clients {
            ClientCertificates::NotAsked => builder.with_no_client_auth(),
            ClientCertificates::Required => {
                let (path, authorities) = read_certificates(directory, "ca-cert.pem")?;
                let mut roots = RootCertStore::empty();
                for authority in authorities {
                    roots.add(authority).map_err(|error| unusable(&path, error))?;
                }
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                        .build()
                        .map_err(|error| unusable(&path, error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let config =
            builder.with_single_cert(chain, key).map_err(|error| unusable(&chain_path, error))?;
        Ok(CertificateSessions { config: Arc::new(config) })
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, IoError> {
    let key = PrivateKeyDer::from_pem_file(path).map_err(|error| unusable(path, error))?;
    let straightened = match &key {
        PrivateKeyDer::Sec1(sec1) => straighten(sec1.secret_sec1_der()),
        _ => None,
    };
    Ok(straightened.map_or(key, |der| PrivateSec1KeyDer::from(der).into()))
}

/// All certificates of a file, at least one.
fn read_certificates(
    directory: &Path,
    name: &str,
) -> Result<(PathBuf, Vec<CertificateDer<'static>>), IoError> {
    let path = directory.join(name);
    let certificates = CertificateDer::pem_file_iter(&path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| unusable(&path, error))?;
    if certificates.is_empty() {
        return Err(unusable(&path, "there is no certificate in this file"));
    }
    Ok((path, certificates))
}

impl Sessions for CertificateSessions {
    fn begin(&self) -> Result<Box<dyn Session>, IoError> {
        let mut connection = ServerConnection::new(self.config.clone()).map_err(broken)?;
        connection.set_buffer_limit(Some(BUFFERED_BYTES_MAX));
        Ok(Box::new(CertificateSession(connection)))
    }
}

struct CertificateSession(ServerConnection);

impl Session for CertificateSession {
    fn feed(&mut self, mut ciphertext: &[u8]) -> Result<usize, IoError> {
        let taken = self.0.read_tls(&mut ciphertext).map_err(broken)?;
        self.0.process_new_packets().map_err(broken)?;
        Ok(taken)
    }

    fn handshake(&mut self) -> Result<bool, IoError> {
        Ok(!self.0.is_handshaking())
    }

    fn read(&mut self, plain: &mut [u8]) -> Result<Plaintext, IoError> {
        match self.0.reader().read(plain) {
            Ok(0) => Ok(Plaintext::End),
            Ok(count) => Ok(Plaintext::Bytes(count)),
            Err(error) if error.kind() == StdKind::WouldBlock => Ok(Plaintext::Starved),
            Err(error) => Err(broken(error)),
        }
    }

    fn write(&mut self, plain: &[u8]) -> Result<usize, IoError> {
        self.0.writer().write(plain).map_err(broken)
    }

    fn emit(&mut self, mut out: &mut [u8]) -> usize {
        let mut count = 0;
        // Each call writes what fits in one go; writing into memory does not fail.
        while self.0.wants_write() && !out.is_empty() {
            match self.0.write_tls(&mut out) {
                Ok(0) | Err(_) => break,
                Ok(written) => count += written,
            }
        }
        count
    }

    fn close(&mut self) {
        self.0.send_close_notify();
    }
}
