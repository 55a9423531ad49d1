//! Descriptors from elsewhere that are neither devices nor sockets.
//!
//! * An event is an eventfd, and nothing else: a descriptor that is always readable would keep the
//!   world busy, and one that blocks would stop it.
//! * Whether reads and writes of an event wait is its owner's choice (a flag that all who hold it
//!   share), so nothing here depends on it or changes it.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use io::{ErrorKind, IoError};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// What raises an event by one.
pub(crate) static ONE: [u8; 8] = 1u64.to_ne_bytes();

/// The offset that stands for "where the file is", for files without places.
const NOWHERE: u64 = u64::MAX;

/// Refuses what is not an eventfd.
pub(crate) fn check_event(fd: BorrowedFd<'_>) -> Result<(), IoError> {
    let found = name(fd);
    if found == "anon_inode:[eventfd]" {
        return Ok(());
    }
    let message = format!("the descriptor handed over is {found}; an eventfd was wanted");
    Err(IoError::new(ErrorKind::Unsupported, message))
}

/// What the kernel calls an open file.
pub(crate) fn name(fd: BorrowedFd<'_>) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.map_or_else(|e| format!("unknown ({e})"), |path| path.display().to_string())
}

/// Takes the count of an event without waiting; a failure is an errno.
pub(crate) fn take_count(fd: RawFd) -> Result<u64, i32> {
    // SAFETY: the desk keeps the descriptor open while an operation on it is under way.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let mut count = [0; 8];
    let mut buffers = [std::io::IoSliceMut::new(&mut count)];
    match preadv2(fd, &mut buffers, NOWHERE, ReadWriteFlags::NOWAIT) {
        Ok(8) => Ok(u64::from_ne_bytes(count)),
        Ok(_) => Err(libc::EIO),
        Err(errno) => Err(errno.raw_os_error()),
    }
}

/// `AGAIN` unless the descriptor is ready at this moment.
pub(crate) fn ready(fd: BorrowedFd<'_>, events: PollFlags) -> Result<(), Errno> {
    let mut watched = [PollFd::from_borrowed_fd(fd, events)];
    match poll(&mut watched, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))? {
        0 => Err(Errno::AGAIN),
        _ => Ok(()),
    }
}
