//! Descriptors that others give a door to work with: events, drivers, and what is only watched.
//!
//! They are neither devices nor sockets: an event carries no bytes, a driver answers commands
//! when it has something to say, and what is watched is read by whoever watches it. Clones are the
//! same descriptor; it is closed when the last clone and the last operation on it are gone.

use std::future::Future;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::socket::Handle;
use crate::{Foreign, Io, IoError, Op, OpId};

/// A counter shared with another process, by which one side tells the other to look.
#[derive(Clone)]
pub struct Event(Rc<Handle>);

impl Event {
    /// Takes over an eventfd.
    ///
    /// # Errors
    /// When it is none, or the world has no use for one.
    pub fn adopt(io: &Io, fd: OwnedFd) -> Result<Event, IoError> {
        let id = io.adopt(fd, Foreign::Event)?;
        Ok(Event(Rc::new(Handle { io: io.clone(), id })))
    }

    /// Waits until the event is raised, and takes its count. Submitted at once; one at a time.
    pub fn wait(&self) -> Waiting {
        Waiting(Pending::new(&self.0, Op::Wait { event: self.0.id }))
    }

    /// Raises the event with what else this round submits. Whoever drops the future still raises.
    pub fn raise(&self) -> Raising {
        Raising(Pending::new(&self.0, Op::Raise { event: self.0.id }))
    }

    /// Ends the waits; the event itself belongs to others as well and stays as it is.
    pub fn shutdown(&self) {
        self.0.io.shutdown_socket(self.0.id);
    }
}

/// A driver's file.
#[derive(Clone)]
pub struct Driver(Rc<Handle>);

impl Driver {
    /// Takes over a driver's file.
    ///
    /// # Errors
    /// When the world cannot give commands.
    pub fn adopt(io: &Io, fd: OwnedFd) -> Result<Driver, IoError> {
        let id = io.adopt(fd, Foreign::Driver)?;
        Ok(Driver(Rc::new(Handle { io: io.clone(), id })))
    }

    /// Gives a command and waits for the answer. Submitted at once.
    pub fn command(&self, code: u32, payload: [u8; 16]) -> Commanding {
        Commanding(Pending::new(&self.0, Op::Command { driver: self.0.id, code, payload }))
    }
}

/// A descriptor that others make readable, and whose owner reads it himself.
#[derive(Clone)]
pub struct Watch(Rc<Handle>);

impl Watch {
    /// Takes over the descriptor. What is always readable keeps the world busy.
    ///
    /// # Errors
    /// When the world cannot wait for it.
    pub fn adopt(io: &Io, fd: OwnedFd) -> Result<Watch, IoError> {
        let id = io.adopt(fd, Foreign::Watched)?;
        Ok(Watch(Rc::new(Handle { io: io.clone(), id })))
    }

    /// Waits until there is something to read, or the other side is gone. Takes nothing. Submitted at once.
    pub fn readable(&self) -> Waiting {
        Waiting(Pending::new(&self.0, Op::Wait { event: self.0.id }))
    }
}

/// An operation without a buffer.
struct Pending {
    id: OpId,
    /// Keeps the descriptor open while the kernel uses it.
    open: Rc<Handle>,
}

impl Pending {
    fn new(handle: &Rc<Handle>, op: Op) -> Pending {
        Pending { id: handle.io.submit(op), open: handle.clone() }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<u64, IoError>> {
        self.open.io.poll_op(self.id, context).map(|done| done.result)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.open.io.forget_op(self.id);
    }
}

/// Waits for an event or a descriptor; gives what the event counted.
#[must_use = "an event that ended must not be waited for again"]
pub struct Waiting(Pending);

impl Future for Waiting {
    type Output = Result<u64, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}

/// Waits until an event has been raised.
pub struct Raising(Pending);

impl Future for Raising {
    type Output = Result<(), IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context).map(|outcome| outcome.map(|_| ()))
    }
}

/// Waits for a driver's answer.
#[must_use = "a driver's answer must be looked at"]
pub struct Commanding(Pending);

impl Future for Commanding {
    type Output = Result<u64, IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(context)
    }
}
