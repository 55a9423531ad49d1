//! A drive, as the engine sees it.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::{Buf, DeviceId, Io, IoError, Lent, Op, OpId};

/// What is known of a drive when it is opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    /// How the user named it.
    pub path: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Offsets and lengths must be multiples of this (512 or 4096).
    pub sector_bytes: u32,
    /// A power cut leaves an aligned write of this many bytes either done or not done, never in
    /// between. 512 where nothing better is known.
    pub atomic_write_bytes: u32,
    /// It has a spinning disk; `None` when unknown.
    pub rotational: Option<bool>,
    /// It cannot be written.
    pub read_only: bool,
}

/// A handle to one drive of the world. Clones are the same drive.
///
/// Each call submits its operation at once; the future only waits for it, so several can be in
/// flight from one task: submit all, then await each. Dropping the future does not cancel.
#[derive(Clone)]
pub struct Device {
    io: Io,
    id: DeviceId,
    info: Rc<DeviceInfo>,
}

impl Device {
    /// Made by a world when it opens a drive.
    pub fn new(io: Io, id: DeviceId, info: DeviceInfo) -> Device {
        Device { io, id, info: Rc::new(info) }
    }

    /// What is known of the drive.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The executor that drives it.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// Fills all of `buf` from byte `at`.
    pub fn read(&self, at: u64, buf: Buf) -> Transfer {
        self.transfer(Op::Read { device: self.id, at, buf })
    }

    /// Fills lent memory from byte `at`.
    pub fn read_lent(&self, at: u64, memory: Lent) -> Command {
        self.command(Op::ReadLent { device: self.id, at, memory })
    }

    /// Writes all of `buf` at byte `at`; volatile until a flush.
    pub fn write(&self, at: u64, buf: Buf) -> Transfer {
        self.transfer(Op::Write { device: self.id, at, buf })
    }

    /// Makes every write that completed before this call durable.
    pub fn flush(&self) -> Command {
        self.command(Op::Flush { device: self.id })
    }

    /// The range is no longer needed.
    pub fn trim(&self, at: u64, length: u64) -> Command {
        self.command(Op::Trim { device: self.id, at, length })
    }

    /// Makes the range read as zeros, without transferring them where the drive can.
    pub fn write_zeroes(&self, at: u64, length: u64) -> Command {
        self.command(Op::WriteZeroes { device: self.id, at, length })
    }

    fn transfer(&self, op: Op) -> Transfer {
        Transfer { id: self.io.submit(op), io: self.io.clone() }
    }

    fn command(&self, op: Op) -> Command {
        Command { id: self.io.submit(op), io: self.io.clone() }
    }
}

/// Waits for a read or write; gives the buffer back either way.
#[must_use = "a transfer's outcome must be looked at"]
pub struct Transfer {
    io: Io,
    id: OpId,
}

impl Future for Transfer {
    type Output = (Buf, Result<(), IoError>);

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.io.poll_op(self.id, context).map(|done| {
            let buf = done.buf.expect("a world gives a transfer's buffer back");
            (buf, done.result.map(|_| ()))
        })
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.io.forget_op(self.id);
    }
}

/// Waits for what has no buffer of ours: a flush, trim, write-zeroes, or a read into lent memory.
#[must_use = "a command's outcome must be looked at"]
pub struct Command {
    io: Io,
    id: OpId,
}

impl Future for Command {
    type Output = Result<(), IoError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.io.poll_op(self.id, context).map(|done| done.result.map(|_| ()))
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.io.forget_op(self.id);
    }
}
