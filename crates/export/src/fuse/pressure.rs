//! Keeping the server able to move when memory runs out.
//!
//! A file system on a loop device over our file can wait for us inside the kernel: to free memory
//! the kernel writes its dirty pages, the pages reach the loop device, the loop device waits for
//! our answer. If answering needs memory, and getting that memory means waiting for those same
//! pages, nothing moves any more: not the file system, not the server, and in the end not the
//! machine. Swap on such a device closes the circle even sooner.
//!
//! Two measures, both for the whole process and both before it starts threads:
//!
//! * [`become_io_flusher`]: memory the kernel takes on the server's behalf never waits for I/O,
//!   and the server is not slowed down for the dirty pages of others. Needs `CAP_SYS_RESOURCE`.
//! * [`lock_memory`]: what the server has once touched is never paged out, its program included
//!   (which could lie on the very volume). Needs `CAP_IPC_LOCK` or a memlock limit that suffices.
//!
//! What they do not help against: a fast or slow drive that is a file on a file system on this
//! same volume. Nothing does.

use io::IoError;
use rustix::mm::MlockAllFlags;

/// Marks this process as one that others wait for to have their pages written.
///
/// Threads inherit the mark when they are started: call it first.
///
/// # Errors
/// Not privileged, or a kernel before 5.6; serving works without it.
pub fn become_io_flusher() -> Result<(), IoError> {
    rustix::process::configure_io_flusher_behavior(true).map_err(|errno| {
        IoError::from_errno(
            errno.raw_os_error(),
            "mark the server as an I/O flusher (needs CAP_SYS_RESOURCE and Linux 5.6)",
        )
    })
}

/// Keeps every page this process touches, now and later, in memory.
///
/// Pages are locked as they are touched, so memory that is only reserved costs nothing.
///
/// # Errors
/// The memlock limit is too low and the process is not privileged.
pub fn lock_memory() -> Result<(), IoError> {
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags).map_err(|errno| {
        IoError::from_errno(
            errno.raw_os_error(),
            "lock the server's memory (needs CAP_IPC_LOCK or 'ulimit -l unlimited')",
        )
    })
}
