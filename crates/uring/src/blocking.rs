//! Calls that block their thread: what the workers do.
//!
//! Each gives what the ring would give: a count, or a negative errno. A short count is fine; the
//! desk asks again for the rest. No state, no decisions but one: how zeros are made where the
//! file system or drive cannot make them itself.

use std::os::fd::{BorrowedFd, RawFd};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::desk::Call;

/// Zeros written per call where nothing better is offered: large enough to stream, small enough
/// to be carried in the binary.
const ZEROS_BYTES: usize = 64 << 10;

/// Most bytes deallocated or zeroed by the kernel in one call, so that a worker comes back to its
/// queue between the parts of a long job.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// Aligned as O_DIRECT wants it on any drive.
#[repr(align(4096))]
struct Zeros([u8; ZEROS_BYTES]);

static ZEROS: Zeros = Zeros([0; ZEROS_BYTES]);

/// Most that one system call moves; the kernel's own bound is a little below 2 GiB.
const COUNT_MAX: usize = 1 << 30;

/// Carries out one call and gives its count or negative errno.
///
/// # Safety
/// The call's descriptor is open and its memory is valid and unshared until this returns.
pub(crate) unsafe fn carry_out(call: &Call) -> i64 {
    let result = match *call {
        Call::Read { file, at, memory, length } => {
            // SAFETY: the caller vouches for the memory.
            unsafe {
                let buf = std::slice::from_raw_parts_mut(memory, length.min(COUNT_MAX));
                rustix::io::pread(borrow(file.fd), buf, at)
            }
        }
        Call::Write { file, at, memory, length } => {
            // SAFETY: the caller vouches for the memory.
            unsafe {
                let buf = std::slice::from_raw_parts(memory, length.min(COUNT_MAX));
                rustix::io::pwrite(borrow(file.fd), buf, at)
            }
        }
        Call::Flush { file } => {
            // SAFETY: the caller vouches for the descriptor.
            rustix::fs::fdatasync(unsafe { borrow(file.fd) }).map(|()| 0)
        }
        Call::Trim { file, at, length } => {
            // SAFETY: the caller vouches for the descriptor.
            unsafe { trim(borrow(file.fd), file.block, at, length) }
        }
        Call::WriteZeroes { file, at, length } => {
            // SAFETY: the caller vouches for the descriptor.
            unsafe { write_zeroes(borrow(file.fd), at, length) }
        }
        // Only the ring has a table of lent memory, so nobody can have been given a number.
        Call::ReadLent { .. } => Err(Errno::OPNOTSUPP),
        Call::Accept { .. }
        | Call::Receive { .. }
        | Call::Send { .. }
        | Call::Wait { .. }
        | Call::Raise { .. }
        | Call::Command { .. } => {
            unreachable!("sockets are waited for with poll, never by a blocked worker")
        }
    };
    match result {
        Ok(count) => count as i64,
        Err(errno) => -i64::from(errno.raw_os_error()),
    }
}

/// # Safety
/// The descriptor stays open while the result is used.
unsafe fn borrow<'fd>(fd: RawFd) -> BorrowedFd<'fd> {
    // SAFETY: the caller's promise.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// A hint, so a refusal is a success; only real failures are reported.
fn trim(fd: BorrowedFd<'_>, block: bool, at: u64, length: u64) -> Result<usize, Errno> {
    let length = length.min(RANGE_BYTES_MAX);
    let outcome = if block {
        discard(fd, at, length)
    } else {
        fallocate(fd, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, length)
    };
    match outcome {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) | Ok(()) => Ok(length as usize),
        Err(errno) => Err(errno),
    }
}

/// Deallocates where that reads as zeros for certain, else lets the kernel write zeros, else
/// writes them.
fn write_zeroes(fd: BorrowedFd<'_>, at: u64, length: u64) -> Result<usize, Errno> {
    let part = length.min(RANGE_BYTES_MAX);
    // For block devices the kernel maps the first to "write zeroes, may unmap, no fallback" and
    // the second to "write zeroes, provisioned", so both read as zeros.
    let modes = [
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
    ];
    for mode in modes {
        match fallocate(fd, mode, at, part) {
            Ok(()) => return Ok(part as usize),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            Err(errno) => return Err(errno),
        }
    }
    let count = length.min(ZEROS_BYTES as u64) as usize;
    rustix::io::pwrite(fd, &ZEROS.0[..count], at)
}

/// `BLKDISCARD`: `_IO(0x12, 119)` with a pair of offset and length in bytes.
fn discard(fd: BorrowedFd<'_>, at: u64, length: u64) -> Result<(), Errno> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    let range = [at, length];
    // SAFETY: BLKDISCARD reads exactly two u64 from its argument and writes nothing there.
    unsafe { rustix::ioctl::ioctl(fd, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new(range)) }
}
