//! Asking a running server, from another process. Blocking: for command lines, not for the
//! executor.

use std::io::{ErrorKind as Cause, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{ControlReply, ControlRequest};

/// Longest reply in bytes. A reply is a status of one volume, kilobytes; a peer that sends this
/// much is not one of ours.
const REPLY_BYTES_MAX: usize = 64 << 20;

/// Why a call brought no reply.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens at the path.
    #[error("no server is running ({0})")]
    NotServed(String),
    /// A server is there and did not answer in time.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
    /// The conversation broke, or the other end speaks something else.
    #[error("the server's answer was broken off or unintelligible: {0}")]
    Broken(String),
}

/// Sends `request` to the server at `path` and waits at most `patience` for its reply.
///
/// # Errors
/// See [`CallError`]. A refusal by the server is not an error here: it is a reply.
pub fn call(
    path: &Path,
    request: &ControlRequest,
    patience: Duration,
) -> Result<ControlReply, CallError> {
    let deadline = Instant::now() + patience;
    let broken = |cause: std::io::Error| match cause.kind() {
        // A timeout of a socket shows as one or the other.
        Cause::WouldBlock | Cause::TimedOut => CallError::TimedOut(patience),
        _ => CallError::Broken(cause.to_string()),
    };
    let remaining = || {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(CallError::TimedOut(patience)) } else { Ok(left) }
    };
    let mut stream = UnixStream::connect(path)
        .map_err(|cause| CallError::NotServed(format!("{}: {cause}", path.display())))?;

    let mut line =
        serde_json::to_vec(request).map_err(|cause| CallError::Broken(cause.to_string()))?;
    line.push(b'\n');
    stream.set_write_timeout(Some(remaining()?)).map_err(broken)?;
    stream.write_all(&line).map_err(broken)?;

    let mut reply = Vec::new();
    let mut chunk = [0; 16 << 10];
    while !reply.ends_with(b"\n") {
        stream.set_read_timeout(Some(remaining()?)).map_err(broken)?;
        let count = match stream.read(&mut chunk) {
            Err(cause) if cause.kind() == Cause::Interrupted => continue,
            outcome => outcome.map_err(broken)?,
        };
        if count == 0 {
            return Err(CallError::Broken("it closed the connection".into()));
        }
        reply.extend_from_slice(&chunk[..count]);
        if reply.len() > REPLY_BYTES_MAX {
            return Err(CallError::Broken(format!("more than {REPLY_BYTES_MAX} bytes")));
        }
    }
    serde_json::from_slice(&reply).map_err(|cause| CallError::Broken(cause.to_string()))
}
