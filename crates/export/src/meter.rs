//! A volume that counts what passes through it.
//!
//! * Wraps any [`Volume`] and is one itself, so that a door needs to know nothing of it.
//! * For each kind of request: how many, how many bytes, how many failed, how long they took.
//! * Costs two readings of the clock and one histogram entry per request; no allocation.
//! * Times are from the call to its end, as a client of the volume sees them, without the door's
//!   own work. Values are kept to two significant digits, up to [`LATENCY_MAX_NS`].
//! * A recording ([`Metered::start_recording`]) keeps what is asked until it is fetched.
//! * Hints ([`Volume::cache`]) and [`Volume::places`] and the like are passed on uncounted.

use std::cell::RefCell;
use std::rc::Rc;

use hdrhistogram::Histogram;
use io::units::{MICROSECOND_NS, SECOND_NS};
use io::{Buf, Durability, Io, IoError, Lent, Span, Volume, VolumeInfo, Worth, ZeroMode};
use serde::Serialize;

use crate::recorder::{AskedKind, Batch, Recorder};

/// Longer latencies are counted as this long: ten minutes, by when every client has given up.
pub const LATENCY_MAX_NS: u64 = 600 * SECOND_NS;

/// Shorter latencies are counted as this long. Nothing that waits for a device is faster.
const LATENCY_MIN_NS: u64 = 100;

/// Two digits are what a reader compares; each more costs eight times the memory (18 KiB now).
const LATENCY_DIGITS: u8 = 2;

/// A volume and its meter.
pub struct Metered<V> {
    io: Io,
    volume: Rc<V>,
    read: RefCell<Track>,
    write: RefCell<Track>,
    trim: RefCell<Track>,
    zero: RefCell<Track>,
    flush: RefCell<Track>,
    recorder: Recorder,
}

/// What a [`Metered`] volume has served since it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Meter {
    /// Reads.
    pub read: KindMeter,
    /// Writes, durable ones included.
    pub write: KindMeter,
    /// Trims.
    pub trim: KindMeter,
    /// Requests to write zeros.
    pub zero: KindMeter,
    /// Flushes; they carry no bytes.
    pub flush: KindMeter,
}

/// One kind of request. Times are microseconds, rounded up, so that only "none yet" is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct KindMeter {
    /// Requests that ended, failed ones included.
    pub count: u64,
    /// Bytes of those that succeeded.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Half of them took at most this long.
    pub p50_us: u64,
    /// All but one in a hundred took at most this long.
    pub p99_us: u64,
    /// The longest.
    pub max_us: u64,
}

struct Track {
    latencies_ns: Histogram<u64>,
    bytes: u64,
    errors: u64,
}

impl<V: Volume> Metered<V> {
    /// Counts what passes to `volume` from now on.
    pub fn new(io: Io, volume: Rc<V>) -> Metered<V> {
        Metered {
            recorder: Recorder::new(io.clone()),
            io,
            volume,
            read: RefCell::new(Track::new()),
            write: RefCell::new(Track::new()),
            trim: RefCell::new(Track::new()),
            zero: RefCell::new(Track::new()),
            flush: RefCell::new(Track::new()),
        }
    }

    /// The volume behind the meter.
    pub fn volume(&self) -> &Rc<V> {
        &self.volume
    }

    /// Records what clients ask from now on. False when it is recorded already.
    pub fn start_recording(&self) -> bool {
        self.recorder.start()
    }

    /// What was recorded since the last call; `None` when nothing is being recorded.
    pub fn fetch_recording(&self) -> Option<Batch> {
        self.recorder.fetch()
    }

    /// Ends the recording; what was not fetched is gone.
    pub fn stop_recording(&self) {
        self.recorder.stop();
    }

    /// What was served so far. Walks the histograms: for a status, not for a request.
    pub fn snapshot(&self) -> Meter {
        Meter {
            read: self.read.borrow().summary(),
            write: self.write.borrow().summary(),
            trim: self.trim.borrow().summary(),
            zero: self.zero.borrow().summary(),
            flush: self.flush.borrow().summary(),
        }
    }

    /// A request that must be durable is recorded as itself and a flush.
    fn note_durability(&self, durability: Durability) {
        if durability == Durability::Durable {
            self.recorder.note(AskedKind::Flush, 0, 0);
        }
    }

    fn settle(&self, track: &RefCell<Track>, started_ns: u64, bytes: u64, failed: bool) {
        let latency_ns = self.io.now_ns().saturating_sub(started_ns);
        let mut track = track.borrow_mut();
        track.latencies_ns.saturating_record(latency_ns.max(LATENCY_MIN_NS));
        if failed {
            track.errors += 1;
        } else {
            track.bytes += bytes;
        }
    }
}

impl Track {
    fn new() -> Track {
        let latencies_ns =
            Histogram::new_with_bounds(LATENCY_MIN_NS, LATENCY_MAX_NS, LATENCY_DIGITS)
                .expect("constant bounds are valid");
        Track { latencies_ns, bytes: 0, errors: 0 }
    }

    fn summary(&self) -> KindMeter {
        let count = self.latencies_ns.len();
        // An empty histogram answers with its smallest bucket; nothing has been measured.
        let us = |ns: u64| if count == 0 { 0 } else { ns.div_ceil(MICROSECOND_NS) };
        KindMeter {
            count,
            bytes: self.bytes,
            errors: self.errors,
            p50_us: us(self.latencies_ns.value_at_quantile(0.50)),
            p99_us: us(self.latencies_ns.value_at_quantile(0.99)),
            max_us: us(self.latencies_ns.max()),
        }
    }
}

impl<V: Volume> Volume for Metered<V> {
    fn info(&self) -> VolumeInfo {
        self.volume.info()
    }

    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        let (started_ns, bytes) = (self.io.now_ns(), buf.len() as u64);
        self.recorder.note(AskedKind::Read, at, bytes);
        let (buf, outcome) = self.volume.read(at, buf).await;
        self.settle(&self.read, started_ns, bytes, outcome.is_err());
        (buf, outcome)
    }

    async fn read_lent(&self, at: u64, memory: Lent) -> bool {
        let (started_ns, bytes) = (self.io.now_ns(), u64::from(memory.bytes));
        let served = self.volume.read_lent(at, memory).await;
        // Else it comes again as a read, and is noted then: so this cannot be noted before it ends.
        if served {
            self.recorder.note(AskedKind::Read, at, bytes);
            self.settle(&self.read, started_ns, bytes, false);
        }
        served
    }

    async fn write(&self, at: u64, buf: Buf, durability: Durability) -> (Buf, Result<(), IoError>) {
        let (started_ns, bytes) = (self.io.now_ns(), buf.len() as u64);
        self.recorder.note(AskedKind::Write, at, bytes);
        self.note_durability(durability);
        let (buf, outcome) = self.volume.write(at, buf, durability).await;
        self.settle(&self.write, started_ns, bytes, outcome.is_err());
        (buf, outcome)
    }

    async fn flush(&self) -> Result<(), IoError> {
        let started_ns = self.io.now_ns();
        self.recorder.note(AskedKind::Flush, 0, 0);
        let outcome = self.volume.flush().await;
        self.settle(&self.flush, started_ns, 0, outcome.is_err());
        outcome
    }

    async fn trim(&self, at: u64, length: u64, durability: Durability) -> Result<(), IoError> {
        let started_ns = self.io.now_ns();
        self.recorder.note(AskedKind::Discard, at, length);
        self.note_durability(durability);
        let outcome = self.volume.trim(at, length, durability).await;
        self.settle(&self.trim, started_ns, length, outcome.is_err());
        outcome
    }

    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        mode: ZeroMode,
        durability: Durability,
    ) -> Result<(), IoError> {
        let started_ns = self.io.now_ns();
        let kind = if mode == ZeroMode::Allocate { AskedKind::Write } else { AskedKind::Discard };
        self.recorder.note(kind, at, length);
        self.note_durability(durability);
        let outcome = self.volume.write_zeroes(at, length, mode, durability).await;
        self.settle(&self.zero, started_ns, length, outcome.is_err());
        outcome
    }

    async fn cache(&self, at: u64, length: u64) -> Result<(), IoError> {
        self.volume.cache(at, length).await
    }

    fn places(&self, at: u64, length: u64, spans_max: usize) -> Vec<Span> {
        self.volume.places(at, length, spans_max)
    }

    fn worths(&self, at: u64, length: u64, runs_max: usize) -> Vec<Worth> {
        self.volume.worths(at, length, runs_max)
    }
}
