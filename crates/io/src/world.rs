//! What stands behind [`crate::Io`]: the kernel, or a simulation.

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::{Buf, Completed, ErrorKind, IoError, Lent, Op, OpId, SocketId};

/// How long [`World::poll`] may wait when nothing has completed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Park {
    /// Not at all: other tasks are ready to run.
    Never,
    /// Until an operation completes, an unpark, or this moment on the world's clock (ns).
    Until(u64),
    /// Until an operation completes or an unpark.
    Forever,
}

/// What a descriptor from elsewhere is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// A counter that other processes raise and take (an eventfd).
    Event,
    /// A driver that is given commands.
    Driver,
    /// Whatever becomes readable; reading it is not the world's part.
    Watched,
}

/// Wakes a parked world from another thread.
pub trait Unpark: Send + Sync {
    /// Makes the current or next [`World::poll`] return without waiting further.
    fn unpark(&self);
}

/// Carries out operations and keeps time. Owned by one executor, used from one thread.
///
/// Invariants every world keeps:
/// * each submitted operation completes exactly once, through `poll`;
/// * a flush covers every write that had *completed* when it was submitted;
/// * time never goes backwards.
pub trait World {
    /// Nanoseconds on this world's monotonic clock.
    fn now_ns(&self) -> u64;

    /// Random bits: from the kernel in production, from the seed in a simulation.
    fn random(&mut self) -> u64;

    /// Takes an operation. It need not start before the next `poll`, so that submissions of one
    /// round can be handed to the kernel together.
    fn submit(&mut self, id: OpId, op: Op);

    /// Starts what was submitted, waits as `park` says, and pushes what has completed.
    fn poll(&mut self, park: Park, done: &mut Vec<Completed>);

    /// Whether the world still has power. Once it says no, nothing completes any more and
    /// [`crate::Io::run_until_cut`] ends. Only a simulation ever says no.
    fn powered(&self) -> bool {
        true
    }

    /// Takes over a descriptor that is not a device and not a socket.
    ///
    /// # Errors
    /// When it is not what it is said to be, or this world (a simulation) knows nothing of it.
    fn adopt(&mut self, _fd: OwnedFd, what: Foreign) -> Result<SocketId, IoError> {
        Err(IoError::new(ErrorKind::Unsupported, format!("this world has no {what:?}")))
    }

    /// Numbers under which drivers may lend memory; none where there is no table for it.
    fn lent_slots(&self) -> Range<u16> {
        0..0
    }

    /// Stands in for a driver that lends memory, where there are none (in a simulation). Elsewhere the
    /// memory comes back.
    fn lend(&mut self, memory: Buf) -> Result<Lent, Buf> {
        Err(memory)
    }

    /// Ends such a loan: what the memory holds now.
    fn take_back(&mut self, _memory: Lent) -> Option<Buf> {
        None
    }

    /// Ends a connection in both directions; operations on it complete soon after. Ends the waits
    /// for an event or a watched descriptor, which others may go on using.
    fn shutdown(&mut self, socket: SocketId);

    /// Forgets a socket: shuts it down, and releases the descriptor once the operations still in
    /// flight on it have completed.
    fn close(&mut self, socket: SocketId);

    /// A handle to wake this world from other threads; none in a simulation.
    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        None
    }
}
