//! Byte streams for the doors.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::{Buf, Io, IoError, Op, OpId, SocketId};

/// A connected stream. Clones are the same connection; it is closed when the last clone and the
/// last operation on it are gone.
#[derive(Clone)]
pub struct Socket(Rc<Handle>);

/// A listening socket, closed when dropped.
#[derive(Clone)]
pub struct Listener(Rc<Handle>);

/// A descriptor of the world, released when the last clone and the last operation are gone.
pub(crate) struct Handle {
    pub(crate) io: Io,
    pub(crate) id: SocketId,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.io.close_socket(self.id);
    }
}

impl Socket {
    /// Made by a world from a connected descriptor.
    pub fn new(io: Io, id: SocketId) -> Socket {
        Socket(Rc::new(Handle { io, id }))
    }

    /// Receives at least one byte into the front of `buf`; 0 means the peer has ended its side.
    /// Submitted at once.
    pub fn receive(&self, buf: Buf) -> Transferring {
        self.submit(Op::Receive { socket: self.0.id, buf })
    }

    /// Sends all of `buf`. Submitted at once; one send at a time per socket, or the bytes mix.
    pub fn send(&self, buf: Buf) -> Transferring {
        self.submit(Op::Send { socket: self.0.id, buf })
    }

    /// Ends the connection in both directions.
    pub fn shutdown(&self) {
        self.0.io.shutdown_socket(self.0.id);
    }

    fn submit(&self, op: Op) -> Transferring {
        Transferring { id: self.0.io.submit(op), _open: self.0.clone() }
    }
}

impl Listener {
    /// Made by a world from a listening descriptor.
    pub fn new(io: Io, id: SocketId) -> Listener {
        Listener(Rc::new(Handle { io, id }))
    }

    /// Waits for one connection.
    pub fn accept(&self) -> Accepting {
        let id = self.0.io.submit(Op::Accept { listener: self.0.id });
        Accepting { id, open: self.0.clone() }
    }

    /// Stops listening: a waiting accept ends with an error.
    pub fn shutdown(&self) {
        self.0.io.shutdown_socket(self.0.id);
    }
}

/// Waits for a receive or send; gives the buffer back with the byte count.
#[must_use = "a transfer's outcome must be looked at"]
pub struct Transferring {
    id: OpId,
    /// Keeps the descriptor open while the kernel uses it.
    _open: Rc<Handle>,
}

impl Future for Transferring {
    type Output = (Buf, Result<usize, IoError>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self._open.io.poll_op(self.id, context).map(|done| {
            let buf = done.buf.expect("a world gives a transfer's buffer back");
            (buf, done.result.map(|count| count as usize))
        })
    }
}

impl Drop for Transferring {
    fn drop(&mut self) {
        self._open.io.forget_op(self.id);
    }
}

/// Waits for a connection.
#[must_use = "an accepted connection must be used"]
pub struct Accepting {
    id: OpId,
    open: Rc<Handle>,
}

impl Future for Accepting {
    type Output = Result<Socket, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.open.io.poll_op(self.id, context).map(|done| {
            done.result.map(|id| Socket::new(self.open.io.clone(), SocketId(id as u32)))
        })
    }
}

impl Drop for Accepting {
    fn drop(&mut self) {
        self.open.io.forget_accept(self.id);
    }
}
