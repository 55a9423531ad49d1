//! Makes, adopts and connects sockets, up to the descriptor.
//!
//! * A unix socket's file is removed before binding only when it is a socket on which nobody
//!   listens. A live one, or anything else of that name, is left alone.
//! * What is adopted is checked: a listener must listen, a stream must be one.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use io::{ErrorKind, IoError};
use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::drive::failed;

/// A peer that has vanished without a word is given up after two minutes: 60 seconds of silence,
/// then six questions without an answer.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 6;

/// Binds a unix socket.
pub(crate) fn unix(path: &Path) -> Result<OwnedFd, IoError> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(&e, format_args!("looking at {shown}"))),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            let message = format!("{shown} exists and is not a socket; it was left alone");
            return Err(IoError::new(ErrorKind::Unsupported, message));
        }
        Ok(_) => match UnixStream::connect(path) {
            Err(e) if e.raw_os_error() == Some(libc::ECONNREFUSED) => std::fs::remove_file(path)
                .map_err(|e| failed(&e, format_args!("removing the stale socket {shown}")))?,
            // Full backlogs and refused permissions mean that somebody is there, too.
            _ => {
                let context = format!("another program listens on {shown}");
                return Err(IoError::from_errno(libc::EADDRINUSE, context));
            }
        },
    }
    let listener = UnixListener::bind(path)
        .map_err(|e| failed(&e, format_args!("listening on unix:{shown}")))?;
    Ok(listener.into())
}

/// Binds a TCP port; gives the address as bound, which tells the port when 0 was asked for.
pub(crate) fn tcp(address: SocketAddr) -> Result<(OwnedFd, SocketAddr), IoError> {
    let context = |e: std::io::Error| failed(&e, format_args!("listening on tcp:{address}"));
    let listener = TcpListener::bind(address).map_err(context)?;
    let bound = listener.local_addr().map_err(context)?;
    Ok((listener.into(), bound))
}

/// Connects to a unix socket.
pub(crate) fn connect(path: &Path) -> Result<OwnedFd, IoError> {
    let stream = UnixStream::connect(path)
        .map_err(|e| failed(&e, format_args!("connecting to unix:{}", path.display())))?;
    Ok(stream.into())
}

/// Checks that a descriptor from elsewhere is a listening stream socket.
pub(crate) fn check_listener(fd: &OwnedFd) -> Result<(), IoError> {
    check_stream_type(fd)?;
    if sockopt::socket_acceptconn(fd).unwrap_or(false) {
        return Ok(());
    }
    let message = "the descriptor handed over is a socket that does not listen";
    Err(IoError::new(ErrorKind::Unsupported, message))
}

/// Checks that a descriptor from elsewhere is a connection.
pub(crate) fn check_stream(fd: &OwnedFd) -> Result<(), IoError> {
    check_stream_type(fd)?;
    if sockopt::socket_acceptconn(fd).unwrap_or(false) {
        let message = "the descriptor handed over listens; a connection was wanted";
        return Err(IoError::new(ErrorKind::Unsupported, message));
    }
    prepare_accepted(fd);
    Ok(())
}

fn check_stream_type(fd: &OwnedFd) -> Result<(), IoError> {
    match sockopt::socket_type(fd) {
        Ok(SocketType::STREAM) => Ok(()),
        Ok(_) => {
            let message = "the descriptor handed over is a socket, but not a byte stream";
            Err(IoError::new(ErrorKind::Unsupported, message))
        }
        Err(e) => {
            Err(IoError::from_errno(e.raw_os_error(), "the descriptor handed over is no socket"))
        }
    }
}

/// Makes a TCP connection send at once and notice a peer that has vanished, and gives its peer's
/// address; `None` for others.
pub(crate) fn prepare_accepted(fd: &OwnedFd) -> Option<SocketAddr> {
    let family = sockopt::socket_domain(fd).ok()?;
    if family != AddressFamily::INET && family != AddressFamily::INET6 {
        return None;
    }
    // Replies are whole messages, sent in one piece: waiting for more only delays them. A failure
    // means that the connection is gone, which the next operation on it reports.
    let _ = sockopt::set_tcp_nodelay(fd, true);
    let _ = keep_alive(fd);
    rustix::net::getpeername(fd).ok()??.try_into().ok()
}

fn keep_alive(fd: &OwnedFd) -> rustix::io::Result<()> {
    sockopt::set_tcp_keepidle(fd, KEEPALIVE_IDLE)?;
    sockopt::set_tcp_keepintvl(fd, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES)?;
    sockopt::set_socket_keepalive(fd, true)
}

/// Makes a socket blocking or not; see `ring` and `threads` for who needs what.
pub(crate) fn set_nonblocking(fd: &OwnedFd, nonblocking: bool) -> Result<(), IoError> {
    let change = || {
        let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
        let mut wanted = flags;
        wanted.set(rustix::fs::OFlags::NONBLOCK, nonblocking);
        if wanted != flags { rustix::fs::fcntl_setfl(fd.as_fd(), wanted) } else { Ok(()) }
    };
    change().map_err(|e: rustix::io::Errno| {
        IoError::from_errno(e.raw_os_error(), "changing a socket's blocking mode")
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_tcp_peer_that_vanishes_is_noticed() {
        let (listener, bound) = tcp("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = TcpStream::connect(bound).unwrap();
        let (accepted, _) = TcpListener::from(listener).accept().unwrap();
        let accepted = OwnedFd::from(accepted);
        assert_eq!(prepare_accepted(&accepted), Some(client.local_addr().unwrap()));
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), KEEPALIVE_IDLE);
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), KEEPALIVE_INTERVAL);
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), KEEPALIVE_PROBES);
    }
}
