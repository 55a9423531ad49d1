//! The file a socket is reached by whose clients are its owner's own.
//!
//! * Mode 0600 from the moment it exists: whoever may open it may command the server.
//! * A file that a dead server left behind is replaced; a live server's, or anything that is not
//!   a socket, is refused.

use std::io::ErrorKind as Cause;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use io::{ErrorKind, IoError};
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections the kernel keeps waiting while the server is busy.
const BACKLOG: i32 = 64;

/// Makes the socket file at `path` and listens there. The descriptor is ready to be adopted by a
/// world; the file stays when it is closed, and the next server replaces it.
///
/// # Errors
/// A live server listens there, something else than a socket is in the way, the path is longer
/// than a socket address takes (107 bytes), or the directory does not allow it.
pub fn bind(path: &Path) -> Result<OwnedFd, IoError> {
    bind_as("control socket", path)
}

/// As [`bind`]; `what` is what messages call the socket.
pub(crate) fn bind_as(what: &str, path: &Path) -> Result<OwnedFd, IoError> {
    remove_stale(what, path)?;
    let at = || format!("{what} {}", path.display());
    let failed = |errno: rustix::io::Errno| IoError::from_errno(errno.raw_os_error(), at());
    let address = SocketAddrUnix::new(path).map_err(|_| {
        IoError::new(ErrorKind::Range, format!("{}: the path is longer than 107 bytes", at()))
    })?;
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(failed)?;
    // The file takes its mode from the socket, so there is no moment at which others could open
    // it; changing the file after the bind would leave one.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(failed)?;
    rustix::net::bind(&socket, &address).map_err(failed)?;
    rustix::net::listen(&socket, BACKLOG).map_err(failed)?;
    Ok(socket)
}

fn remove_stale(what: &str, path: &Path) -> Result<(), IoError> {
    let refused = |reason: &str| {
        let message = format!("{what} {}: {reason}", path.display());
        Err(IoError::new(ErrorKind::Io, message))
    };
    match std::fs::symlink_metadata(path) {
        Err(cause) if cause.kind() == Cause::NotFound => return Ok(()),
        Err(cause) => return refused(&cause.to_string()),
        Ok(file) if !file.file_type().is_socket() => {
            return refused("a file that is not a socket is in the way; move it");
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => refused("another server is listening there"),
        Err(cause) if cause.kind() == Cause::ConnectionRefused => {
            std::fs::remove_file(path).or_else(|cause| refused(&cause.to_string()))
        }
        // Gone since we looked.
        Err(cause) if cause.kind() == Cause::NotFound => Ok(()),
        Err(cause) => refused(&cause.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn the_file_is_private_replaced_when_stale_and_refused_when_live() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        let first = bind(&path).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let refusal = bind(&path).unwrap_err();
        assert!(refusal.message.contains("another server"), "{refusal}");
        drop(first);
        let second = bind(&path).unwrap();
        let listener = UnixListener::from(second);
        UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn what_is_not_a_socket_is_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control");
        std::fs::write(&path, "precious").unwrap();
        let refusal = bind(&path).unwrap_err();
        assert!(refusal.message.contains("not a socket"), "{refusal}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        let refusal = bind(&directory.path().join("x".repeat(200))).unwrap_err();
        assert!(refusal.message.contains("longer"), "{refusal}");
    }
}
