//! A member drive: its device, and a count of what went to it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use io::{Buf, Command, Device, DeviceInfo, IoError, Transfer};

use crate::address::Tier;
use crate::status::DriveUse;

/// One of the two drives. Clones are the same drive.
#[derive(Clone)]
pub(crate) struct Drive(Rc<DriveInner>);

struct DriveInner {
    device: Device,
    tier: Tier,
    traffic: Cell<DriveUse>,
    first_error: RefCell<Option<String>>,
    /// The superblock copy that is damaged or older: it is overwritten first, so that a cut
    /// meanwhile leaves the other, also when an earlier cut had torn one.
    stale_copy: usize,
}

impl Drive {
    pub fn new(tier: Tier, device: Device, stale_copy: usize) -> Drive {
        Drive(Rc::new(DriveInner {
            device,
            tier,
            traffic: Cell::default(),
            first_error: RefCell::default(),
            stale_copy,
        }))
    }

    pub fn tier(&self) -> Tier {
        self.0.tier
    }

    pub fn info(&self) -> &DeviceInfo {
        self.0.device.info()
    }

    pub fn device(&self) -> &Device {
        &self.0.device
    }

    pub fn traffic(&self) -> DriveUse {
        self.0.traffic.get()
    }

    pub fn first_error(&self) -> Option<String> {
        self.0.first_error.borrow().clone()
    }

    /// The superblock copy to write first.
    pub fn stale_copy(&self) -> usize {
        self.0.stale_copy
    }

    /// A torn write of a block is impossible on this drive.
    pub fn writes_blocks_atomically(&self) -> bool {
        self.info().atomic_write_bytes >= crate::BLOCK_BYTES as u32
    }

    /// Submits a read.
    pub fn read(&self, at: u64, buf: Buf) -> Watched<Transfer> {
        self.count(|traffic| {
            traffic.reads += 1;
            traffic.read_bytes += buf.len() as u64;
        });
        self.watch(self.0.device.read(at, buf))
    }

    /// Submits a write.
    pub fn write(&self, at: u64, buf: Buf) -> Watched<Transfer> {
        self.count(|traffic| {
            traffic.writes += 1;
            traffic.write_bytes += buf.len() as u64;
        });
        self.watch(self.0.device.write(at, buf))
    }

    /// Submits a flush.
    pub fn flush(&self) -> Watched<Command> {
        self.count(|traffic| traffic.flushes += 1);
        self.watch(self.0.device.flush())
    }

    fn count(&self, change: impl FnOnce(&mut DriveUse)) {
        let mut traffic = self.0.traffic.get();
        change(&mut traffic);
        self.0.traffic.set(traffic);
    }

    fn watch<F>(&self, operation: F) -> Watched<F> {
        Watched { drive: self.clone(), operation }
    }

    fn note(&self, error: &IoError) {
        self.count(|traffic| traffic.errors += 1);
        self.0.first_error.borrow_mut().get_or_insert_with(|| error.to_string());
    }
}

/// An operation whose failure is remembered.
#[must_use = "an operation's outcome must be looked at"]
pub(crate) struct Watched<F> {
    drive: Drive,
    operation: F,
}

impl Future for Watched<Transfer> {
    type Output = (Buf, Result<(), IoError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.operation).poll(context);
        if let Poll::Ready((_, Err(error))) = &polled {
            self.drive.note(error);
        }
        polled
    }
}

impl Future for Watched<Command> {
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.operation).poll(context);
        if let Poll::Ready(Err(error)) = &polled {
            self.drive.note(error);
        }
        polled
    }
}
