//! Sessions with shared keys, by OpenSSL (built from source into the binary).
//!
//! TLS 1.3 with external keys bound to SHA-256, which is what GnuTLS and so the usual NBD clients
//! offer. Every session still has a fresh Diffie-Hellman exchange: a key that leaks later does
//! not open recorded sessions.

use std::io::{self as std_io, Read, Write};
use std::path::Path;
use std::sync::Arc;

use io::IoError;
use openssl::error::ErrorStack;
use openssl::ssl::{
    ErrorCode, Ssl, SslContext, SslContextBuilder, SslMethod, SslOptions, SslStream, SslVersion,
};

use super::psk_keys::PskKeys;
use super::session::{Plaintext, Session};
use super::{Sessions, broken, unusable};

/// Suites whose hash is SHA-256, to which external keys are bound.
const SUITES: &str = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";

/// Ciphertext kept inside a session before the writer must wait, in bytes.
const BUFFERED_BYTES_MAX: usize = 128 << 10;

/// Makes sessions from one file of keys.
pub(super) struct PskSessions {
    context: SslContext,
}

impl PskSessions {
    pub(super) fn load(path: &Path) -> Result<PskSessions, IoError> {
        let text = std::fs::read_to_string(path).map_err(|error| unusable(path, error))?;
        let keys = PskKeys::parse(&text).map_err(|why| unusable(path, why))?;
        let context = build_context(keys).map_err(broken)?;
        Ok(PskSessions { context })
    }
}

fn build_context(keys: PskKeys) -> Result<SslContext, ErrorStack> {
    let mut builder: SslContextBuilder = SslContext::builder(SslMethod::tls_server())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    builder.set_ciphersuites(SUITES)?;
    // Sessions are long; resuming one would only be another way in.
    builder.set_options(SslOptions::NO_TICKET);
    builder.set_num_tickets(0)?;
    let keys = Arc::new(keys);
    builder.set_psk_server_callback(move |_, identity, out| {
        let key = identity.and_then(|identity| keys.of(identity));
        match key {
            Some(key) if key.len() <= out.len() => {
                out[..key.len()].copy_from_slice(key);
                Ok(key.len())
            }
            // No bytes: no such user, and the handshake fails.
            _ => Ok(0),
        }
    });
    Ok(builder.build())
}

impl Sessions for PskSessions {
    fn begin(&self) -> Result<Box<dyn Session>, IoError> {
        let session = Ssl::new(&self.context).map_err(broken)?;
        let stream = SslStream::new(session, Wire::default()).map_err(broken)?;
        Ok(Box::new(PskSession(stream)))
    }
}

/// What the library believes to be a socket: bytes received, and bytes to send.
#[derive(Default)]
struct Wire {
    received: Vec<u8>,
    received_at: usize,
    to_send: Vec<u8>,
    sent_at: usize,
}

impl Read for Wire {
    fn read(&mut self, out: &mut [u8]) -> std_io::Result<usize> {
        let waiting = &self.received[self.received_at..];
        if waiting.is_empty() {
            return Err(std_io::ErrorKind::WouldBlock.into());
        }
        let count = waiting.len().min(out.len());
        out[..count].copy_from_slice(&waiting[..count]);
        self.received_at += count;
        Ok(count)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> std_io::Result<usize> {
        self.to_send.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std_io::Result<()> {
        Ok(())
    }
}

struct PskSession(SslStream<Wire>);

impl Session for PskSession {
    fn feed(&mut self, ciphertext: &[u8]) -> Result<usize, IoError> {
        let wire = self.0.get_mut();
        if wire.received_at == wire.received.len() {
            wire.received.clear();
            wire.received_at = 0;
        }
        wire.received.extend_from_slice(ciphertext);
        Ok(ciphertext.len())
    }

    fn handshake(&mut self) -> Result<bool, IoError> {
        if self.0.ssl().is_init_finished() {
            return Ok(true);
        }
        match self.0.accept() {
            Ok(()) => Ok(true),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(false),
            Err(error) => Err(broken(error)),
        }
    }

    fn read(&mut self, plain: &mut [u8]) -> Result<Plaintext, IoError> {
        match self.0.ssl_read(plain) {
            Ok(count) => Ok(Plaintext::Bytes(count)),
            Err(error) => match error.code() {
                ErrorCode::WANT_READ => Ok(Plaintext::Starved),
                ErrorCode::ZERO_RETURN => Ok(Plaintext::End),
                _ => Err(broken(error)),
            },
        }
    }

    fn write(&mut self, plain: &[u8]) -> Result<usize, IoError> {
        let wire = self.0.get_ref();
        if plain.is_empty() || wire.to_send.len() - wire.sent_at >= BUFFERED_BYTES_MAX {
            return Ok(0);
        }
        self.0.ssl_write(&plain[..plain.len().min(BUFFERED_BYTES_MAX)]).map_err(broken)
    }

    fn emit(&mut self, out: &mut [u8]) -> usize {
        let wire = self.0.get_mut();
        let waiting = &wire.to_send[wire.sent_at..];
        let count = waiting.len().min(out.len());
        out[..count].copy_from_slice(&waiting[..count]);
        wire.sent_at += count;
        if wire.sent_at == wire.to_send.len() {
            wire.to_send.clear();
            wire.sent_at = 0;
        }
        count
    }

    fn close(&mut self) {
        // It only writes into memory; what could fail is the peer's answer, which nobody awaits.
        let _ = self.0.shutdown();
    }
}
