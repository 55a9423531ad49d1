//! Wakes a parked world from another thread, through an eventfd.
//!
//! Invariant: whoever changes something for the world to see does so before [`Unpark::unpark`],
//! and the world looks after [`Wakeup::acknowledge`]. So a change is either seen by the look that
//! follows the acknowledgement, or has written to the eventfd after it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use io::{IoError, Unpark};
use rustix::event::{EventfdFlags, eventfd};

/// An eventfd and whether it has been written since the last acknowledgement.
pub(crate) struct Wakeup {
    event: OwnedFd,
    /// Saves the system call for all but the first wake between two looks.
    pending: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new() -> Result<Wakeup, IoError> {
        // Blocking: a ring answers EAGAIN on a non-blocking descriptor instead of waiting.
        let event = eventfd(0, EventfdFlags::CLOEXEC)
            .map_err(|e| IoError::from_errno(e.raw_os_error(), "making an eventfd"))?;
        Ok(Wakeup { event, pending: AtomicBool::new(false) })
    }

    /// The eventfd was read: the next unpark writes again.
    pub(crate) fn acknowledge(&self) {
        // A swap, not a store: it must see what the thread whose flag it takes did before.
        self.pending.swap(false, Ordering::AcqRel);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Unpark for Wakeup {
    fn unpark(&self) {
        if self.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        // The counter cannot overflow: it is written once per read. A signal may interrupt.
        while let Err(rustix::io::Errno::INTR) = rustix::io::write(&self.event, &1u64.to_ne_bytes())
        {
        }
    }
}
