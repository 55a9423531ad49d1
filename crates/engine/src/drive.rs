//! A member drive: its device, and a count of what went to it.
//!
//! A drive that is gone (not there when the volume was opened, or declared so later) refuses every
//! operation at once.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use io::{Buf, Command, Device, DeviceInfo, ErrorKind, IoError, Lent, Transfer, WaitList};

use crate::address::Tier;
use crate::ahead::{Ahead, Foreseen};
use crate::canary::canary;
use crate::status::DriveUse;

/// The proof of a flush that ended well: what the drive had taken before survives a power cut. Whoever
/// builds on that asks for it, and nobody else can make one.
#[derive(Debug)]
pub(crate) struct Flushed(());

#[cfg(test)]
impl Flushed {
    /// For parts that are tested without drives.
    pub fn told_by_a_test() -> Flushed {
        Flushed(())
    }
}

/// One of the two drives. Clones are the same drive.
#[derive(Clone)]
pub(crate) struct Drive(Rc<DriveInner>);

struct DriveInner {
    /// `None`: not there since the volume was opened.
    device: Option<Device>,
    info: DeviceInfo,
    tier: Tier,
    /// Why the drive is not used any more.
    gone: RefCell<Option<String>>,
    traffic: Cell<DriveUse>,
    /// What was read of it before anybody asked.
    ahead: RefCell<Ahead>,
    /// Operations under way that somebody waits for.
    under_way: Cell<u64>,
    first_error: RefCell<Option<IoError>>,
    suspect: Cell<bool>,
    /// A write or a flush failed.
    failed: Cell<bool>,
    /// The superblock copy that is damaged or older: it is overwritten first, so that a cut
    /// meanwhile leaves the other, also when an earlier cut had torn one.
    stale_copy: usize,
    /// Flushes submitted so far.
    flushes_begun: Cell<u64>,
    /// Those that have not ended, by number.
    flushes_under_way: RefCell<BTreeSet<u64>>,
    flush_ended: WaitList,
    /// The first flush that failed. None succeeds after it: the drive has told of what it lost, and
    /// tells it once.
    failed_flush: RefCell<Option<IoError>>,
}

/// A flush that has not ended.
struct FlushUnderWay {
    drive: Drive,
    number: u64,
}

impl FlushUnderWay {
    fn begin(drive: &Drive) -> FlushUnderWay {
        let number = drive.0.flushes_begun.get();
        drive.0.flushes_begun.set(number + 1);
        drive.0.flushes_under_way.borrow_mut().insert(number);
        FlushUnderWay { drive: drive.clone(), number }
    }
}

impl Drop for FlushUnderWay {
    fn drop(&mut self) {
        self.drive.0.flushes_under_way.borrow_mut().remove(&self.number);
        self.drive.0.flush_ended.wake_all();
    }
}

impl Drive {
    pub fn new(tier: Tier, device: Device, stale_copy: usize) -> Drive {
        let info = device.info().clone();
        Drive::with(tier, Some(device), info, None, stale_copy)
    }

    /// A drive that is not there.
    pub fn absent(tier: Tier, path: String, why: String) -> Drive {
        let info = DeviceInfo {
            path,
            size_bytes: 0,
            sector_bytes: 512,
            atomic_write_bytes: 512,
            rotational: None,
            read_only: true,
        };
        Drive::with(tier, None, info, Some(why), 0)
    }

    fn with(
        tier: Tier,
        device: Option<Device>,
        info: DeviceInfo,
        gone: Option<String>,
        stale_copy: usize,
    ) -> Drive {
        Drive(Rc::new(DriveInner {
            device,
            info,
            tier,
            gone: RefCell::new(gone),
            traffic: Cell::default(),
            ahead: RefCell::default(),
            under_way: Cell::default(),
            first_error: RefCell::default(),
            suspect: Cell::default(),
            failed: Cell::default(),
            stale_copy,
            flushes_begun: Cell::default(),
            flushes_under_way: RefCell::default(),
            flush_ended: WaitList::new(),
            failed_flush: RefCell::default(),
        }))
    }

    pub fn tier(&self) -> Tier {
        self.0.tier
    }

    pub fn info(&self) -> &DeviceInfo {
        &self.0.info
    }

    /// The device, if it is there and in use.
    fn device(&self) -> Option<&Device> {
        self.0.device.as_ref().filter(|_| self.0.gone.borrow().is_none())
    }

    /// Why the drive is not used any more, if it is not.
    pub fn gone(&self) -> Option<String> {
        self.0.gone.borrow().clone()
    }

    /// The drive is not used any more.
    pub fn declare_gone(&self, why: String) {
        self.0.gone.borrow_mut().get_or_insert(why);
        *self.0.ahead.borrow_mut() = Ahead::default();
    }

    pub fn traffic(&self) -> DriveUse {
        self.0.traffic.get()
    }

    /// Whether nothing is under way that somebody waits for.
    pub fn is_idle(&self) -> bool {
        self.0.under_way.get() == 0
    }

    /// Operations submitted so far.
    pub fn operations(&self) -> u64 {
        let traffic = self.traffic();
        traffic.reads + traffic.writes + traffic.flushes
    }

    pub fn first_error(&self) -> Option<IoError> {
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

    /// Why a flush of it has failed, if one has. What was written before may be missing for good, and no
    /// later flush tells of it.
    pub fn failed_flush(&self) -> Option<IoError> {
        self.0.failed_flush.borrow().clone()
    }

    /// Submits a read.
    pub fn read(&self, at: u64, buf: Buf) -> Watched<Transfer> {
        self.count(|traffic| {
            traffic.reads += 1;
            traffic.read_bytes += buf.len() as u64;
        });
        self.transfer(buf, false, |device, buf| device.read(at, buf))
    }

    /// Submits a read into memory that a driver lends. That it fails says nothing of the drive: the memory may
    /// not be what the drive can write to.
    pub fn read_lent(&self, at: u64, memory: Lent) -> Watched<Command> {
        self.count(|traffic| {
            traffic.reads += 1;
            traffic.read_bytes += u64::from(memory.bytes);
        });
        let operation = match self.device() {
            Some(device) => Pending::UnderWay(device.read_lent(at, memory)),
            None => Pending::Refused(None),
        };
        let mut reading = Watched::begin(self, operation, false);
        reading.blames = false;
        reading
    }

    /// Submits a read of what is likely to be asked for soon, unless it is there or there is no room for
    /// more. Nobody may be writing there.
    pub fn read_ahead(&self, at: u64, bytes: usize) {
        let Some(device) = self.device() else { return };
        let io = device.io();
        let mut ahead = self.0.ahead.borrow_mut();
        if ahead.covers(at) || !ahead.has_room(bytes as u64, io.now_ns()) {
            return;
        }
        self.count(|traffic| {
            traffic.reads += 1;
            traffic.read_bytes += bytes as u64;
        });
        let transfer = device.read(at, io.pool().take(bytes));
        ahead.begun(at, bytes as u64, transfer, io.now_ns());
    }

    /// Whether the place has been read ahead, or is on its way.
    pub fn is_read_ahead(&self, at: u64) -> bool {
        self.0.ahead.borrow().covers(at)
    }

    /// What was read ahead of a range; `buf` is filled where it is a part of something larger.
    pub fn foreseen(&self, at: u64, buf: &mut Buf) -> Option<Foreseen<Watched<Transfer>>> {
        self.device()?;
        Some(match self.0.ahead.borrow_mut().take(at, buf)? {
            Foreseen::Coming(transfer) => {
                Foreseen::Coming(Watched::begin(self, Pending::UnderWay(transfer), false))
            }
            Foreseen::Whole(image) => Foreseen::Whole(image),
            Foreseen::Copied => Foreseen::Copied,
        })
    }

    /// Submits a write.
    pub fn write(&self, at: u64, buf: Buf) -> Watched<Transfer> {
        self.0.ahead.borrow_mut().written(at, buf.len() as u64);
        self.count(|traffic| {
            traffic.writes += 1;
            traffic.write_bytes += buf.len() as u64;
        });
        self.transfer(buf, true, |device, buf| device.write(at, buf))
    }

    /// Submits a flush. It ends when all have ended that were under way beside it, and well only
    /// when none has failed: of two flushes at once a drive, or the kernel, tells one of a lost
    /// write and the other nothing. Who waits for flushes of both drives must take the fast one's
    /// first, always: nobody may hold an outcome of one drive back while he waits for the other's.
    pub fn flush(&self) -> impl Future<Output = Result<Flushed, IoError>> + use<> {
        self.count(|traffic| traffic.flushes += 1);
        let under_way = FlushUnderWay::begin(self);
        let operation = match self.device() {
            Some(device) => Pending::UnderWay(device.flush()),
            None => Pending::Refused(None),
        };
        let command: Watched<Command> = Watched::begin(self, operation, true);
        async move {
            let outcome = command.await;
            let drive = under_way.drive.clone();
            let beside_ignored = canary!(FlushBesideIgnored);
            if canary!(FlushFailureForgotten) || beside_ignored && outcome.is_ok() {
                // Nobody is the wiser.
                return outcome.map(Flushed);
            }
            if let Err(error) = outcome {
                drive.0.failed_flush.borrow_mut().get_or_insert(error);
            }
            drop(under_way);
            let begun = drive.0.flushes_begun.get();
            let quiet = || {
                let oldest = drive.0.flushes_under_way.borrow().first().copied();
                oldest.is_none_or(|oldest| oldest >= begun).then_some(())
            };
            drive.0.flush_ended.until(quiet).await;
            let failed = drive.0.failed_flush.borrow().clone();
            failed.map_or(Ok(Flushed(())), Err)
        }
    }

    fn transfer(
        &self,
        buf: Buf,
        writes: bool,
        submit: impl FnOnce(&Device, Buf) -> Transfer,
    ) -> Watched<Transfer> {
        let operation = match self.device() {
            Some(device) => Pending::UnderWay(submit(device, buf)),
            None => Pending::Refused(Some(buf)),
        };
        Watched::begin(self, operation, writes)
    }

    fn refusal(&self) -> IoError {
        let why = self.gone().unwrap_or_default();
        let text = format!("the {} drive {} is gone: {why}", self.0.tier, self.0.info.path);
        IoError::new(ErrorKind::Io, text)
    }

    fn count(&self, change: impl FnOnce(&mut DriveUse)) {
        let mut traffic = self.0.traffic.get();
        change(&mut traffic);
        self.0.traffic.set(traffic);
    }

    /// Whether an operation failed since the drive was last found well.
    pub fn is_suspect(&self) -> bool {
        self.0.suspect.get()
    }

    /// The drive was found well, or is gone.
    pub fn clear_suspicion(&self) {
        self.0.suspect.set(false);
    }

    /// Whether what was written to it may be missing, or it is gone.
    pub fn has_failed(&self) -> bool {
        self.0.failed.get() || self.0.gone.borrow().is_some()
    }

    fn note(&self, error: &IoError, writes: bool) {
        self.0.failed.set(self.0.failed.get() || writes);
        self.0.suspect.set(true);
        self.count(|traffic| traffic.errors += 1);
        self.0.first_error.borrow_mut().get_or_insert_with(|| error.clone());
    }
}

/// An operation whose failure is remembered.
#[must_use = "an operation's outcome must be looked at"]
pub(crate) struct Watched<F> {
    drive: Drive,
    operation: Pending<F>,
    writes: bool,
    /// Its failure is the drive's.
    blames: bool,
}

impl<F> Watched<F> {
    fn begin(drive: &Drive, operation: Pending<F>, writes: bool) -> Watched<F> {
        let under_way = &drive.0.under_way;
        under_way.set(under_way.get() + 1);
        Watched { drive: drive.clone(), operation, writes, blames: true }
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        let under_way = &self.drive.0.under_way;
        under_way.set(under_way.get() - 1);
    }
}

enum Pending<F> {
    UnderWay(F),
    /// The drive is gone; the buffer to give back.
    Refused(Option<Buf>),
}

impl Future for Watched<Transfer> {
    type Output = (Buf, Result<(), IoError>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = match &mut self.operation {
            Pending::UnderWay(operation) => Pin::new(operation).poll(context),
            Pending::Refused(buf) => {
                let buf = buf.take().expect("a refused transfer is awaited once");
                return Poll::Ready((buf, Err(self.drive.refusal())));
            }
        };
        if let Poll::Ready((_, Err(error))) = &polled {
            self.drive.note(error, self.writes);
        }
        polled
    }
}

impl Future for Watched<Command> {
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = match &mut self.operation {
            Pending::UnderWay(operation) => Pin::new(operation).poll(context),
            Pending::Refused(_) => return Poll::Ready(Err(self.drive.refusal())),
        };
        if let Poll::Ready(Err(error)) = &polled
            && self.blames
        {
            self.drive.note(error, self.writes);
        }
        polled
    }
}
