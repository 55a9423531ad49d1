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
use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

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
/// The process is not privileged and its memlock limit is finite: under a limit every later
/// request for memory beyond it would fail, which is worse than what this is to prevent.
pub fn lock_memory() -> Result<(), IoError> {
    let limited = getrlimit(Resource::Memlock).current.is_some();
    let privileged =
        capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    if limited && !privileged {
        return Err(IoError::from_errno(libc::EPERM, LOCK_NEEDS));
    }
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    rustix::mm::mlockall(flags)
        .map_err(|errno| IoError::from_errno(errno.raw_os_error(), LOCK_NEEDS))
}

const LOCK_NEEDS: &str = "lock the server's memory (needs CAP_IPC_LOCK or 'ulimit -l unlimited')";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flusher_mark_is_set_or_its_absence_explained() {
        let allowed = capabilities(None)
            .is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
        match become_io_flusher() {
            Ok(()) => assert_eq!(rustix::process::is_io_flusher(), Ok(true)),
            Err(error) => {
                assert!(!allowed, "{error}");
                assert!(error.message.contains("CAP_SYS_RESOURCE"), "{error}");
            }
        }
    }

    #[test]
    fn memory_is_locked_as_it_is_touched_or_the_refusal_explained() {
        match lock_memory() {
            Ok(()) => {
                let status = std::fs::read_to_string("/proc/self/status").unwrap();
                let locked = status.lines().find_map(|line| line.strip_prefix("VmLck:")).unwrap();
                assert_ne!(locked.trim(), "0 kB");
                rustix::mm::munlockall().unwrap();
            }
            Err(error) => assert!(error.message.contains("CAP_IPC_LOCK"), "{error}"),
        }
    }
}
