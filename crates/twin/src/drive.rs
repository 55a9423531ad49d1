//! One simulated drive: its facts, its content, its physics, its faults and its counters.

use io::{DeviceInfo, ErrorKind, IoError};

use crate::cache::Cache;
use crate::change::Change;
use crate::medium::BLOCK_BYTES;
use crate::mischief::{Deed, Mischief, Verdict};
use crate::model::{Channels, Finished, Kind, Latencies, Model, Request};
use crate::profile::Profile;
use crate::random::Random;

/// Bytes a volatile cache holds where nothing else is said: what disks and NAND drives of
/// today carry for writes.
const CACHE_BYTES: u64 = 64 << 20;

/// What a flush takes that does nothing: the way there and back.
const LIE_NS: u64 = 20_000;

/// How a drive is made.
#[derive(Debug, Clone)]
pub struct DriveSpec {
    /// Its name in messages.
    pub path: String,
    /// Size in bytes, a multiple of the sector; memory is used only for what is written.
    pub size_bytes: u64,
    /// Offsets and lengths must be multiples of this (512 or 4096).
    pub sector_bytes: u32,
    /// What a power cut does not tear (512 or 4096).
    pub atomic_write_bytes: u32,
    /// It has a spinning disk.
    pub rotational: bool,
    /// Size of the volatile write cache in bytes; 0: none, what completes is durable.
    pub cache_bytes: u64,
    /// How long it takes, where no profile says so.
    pub latencies: Latencies,
    /// The drive it is the twin of: physics instead of plain latencies.
    pub profile: Option<Profile>,
    /// Whether it keeps what is written. Without, reads give zeros and a power cut loses nothing:
    /// for runs in which only time counts, over more bytes than fit in memory.
    pub keeps_content: bool,
    /// Blocks of zeros that are written cost no memory: for runs that write more zeros than fit in
    /// it, over something that must find its own metadata again.
    pub zeros_are_holes: bool,
}

impl DriveSpec {
    /// A NAND drive with 512-byte sectors and a volatile cache.
    pub fn fast(path: impl Into<String>, size_bytes: u64) -> DriveSpec {
        DriveSpec {
            path: path.into(),
            size_bytes,
            sector_bytes: 512,
            atomic_write_bytes: 512,
            rotational: false,
            cache_bytes: CACHE_BYTES,
            latencies: Latencies::flash(),
            profile: None,
            keeps_content: true,
            zeros_are_holes: false,
        }
    }

    /// Every byte that is written is kept, and is part of the trace.
    pub(crate) fn keeps_all(&self) -> bool {
        self.keeps_content && !self.zeros_are_holes
    }

    /// A disk with 512-byte sectors and a volatile cache.
    pub fn slow(path: impl Into<String>, size_bytes: u64) -> DriveSpec {
        DriveSpec {
            rotational: true,
            latencies: Latencies::disk(),
            ..DriveSpec::fast(path, size_bytes)
        }
    }
}

/// What a drive was asked to do since it was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriveCounters {
    /// Reads submitted.
    pub reads: u64,
    /// Bytes they asked for.
    pub read_bytes: u64,
    /// Writes submitted.
    pub writes: u64,
    /// Bytes they carried.
    pub write_bytes: u64,
    /// Flushes submitted.
    pub flushes: u64,
    /// Trims submitted.
    pub trims: u64,
    /// Zeroings submitted.
    pub write_zeroes: u64,
    /// Operations that ended with an error.
    pub errors: u64,
    /// Time with a request under way (ns), up to now: what iostat calls %util.
    pub busy_ns: u64,
}

pub(crate) struct Drive {
    pub(crate) spec: DriveSpec,
    pub(crate) cache: Cache,
    pub(crate) mischief: Mischief,
    /// Its `busy_ns` is that of the times that are over: [`Drive::counters_at`] adds the one that goes on.
    counters: DriveCounters,
    /// Requests under way, and since when there is one.
    under_way: (u64, u64),
    model: Box<dyn Model>,
    /// Decides what trims leave.
    random: Random,
}

impl Clone for Drive {
    fn clone(&self) -> Drive {
        Drive {
            spec: self.spec.clone(),
            cache: self.cache.clone(),
            mischief: self.mischief.clone(),
            counters: self.counters,
            under_way: self.under_way,
            model: self.model.duplicate(),
            random: self.random.clone(),
        }
    }
}

impl Drive {
    pub(crate) fn new(spec: DriveSpec, random: &mut Random) -> Drive {
        assert!(matches!(spec.sector_bytes, 512 | 4096), "sectors have 512 or 4096 bytes");
        assert!(matches!(spec.atomic_write_bytes, 512 | 4096), "atomic units have 512 or 4096");
        assert!(spec.size_bytes <= 1 << 60, "{} is too large for byte arithmetic", spec.path);
        let chance = random.fork();
        let model: Box<dyn Model> = match &spec.profile {
            Some(profile) => profile.model(chance),
            None => Box::new(Channels::new(spec.latencies.clone(), chance)),
        };
        Drive {
            cache: Cache::new(spec.cache_bytes),
            model,
            random: random.fork(),
            mischief: Mischief::new(random.fork()),
            counters: DriveCounters::default(),
            under_way: (0, 0),
            spec,
        }
    }

    pub(crate) fn info(&self) -> DeviceInfo {
        DeviceInfo {
            path: self.spec.path.clone(),
            size_bytes: self.spec.size_bytes,
            sector_bytes: self.spec.sector_bytes,
            atomic_write_bytes: self.spec.atomic_write_bytes,
            rotational: Some(self.spec.rotational),
            read_only: self.mischief.read_only,
        }
    }

    pub(crate) fn set_model(&mut self, model: Box<dyn Model>) {
        self.model = model;
    }

    /// A request arrives: counted, checked and given to physics. Says when it ends, if that is
    /// known already, and how.
    pub(crate) fn accept(
        &mut self,
        now_ns: u64,
        tag: u64,
        request: &Request,
    ) -> (Option<u64>, Verdict) {
        let counters = &mut self.counters;
        match request.kind {
            Kind::Read => {
                counters.reads += 1;
                counters.read_bytes += request.length;
            }
            Kind::Write => {
                counters.writes += 1;
                counters.write_bytes += request.length;
            }
            Kind::Flush => counters.flushes += 1,
            Kind::Trim => counters.trims += 1,
            Kind::WriteZeroes => counters.write_zeroes += 1,
        }
        let verdict = match self.bounds(request) {
            Some(error) => Verdict::refused(error),
            None => {
                let after_bytes = match (request.kind, self.mischief.space_bytes) {
                    (Kind::Write, Some(_)) => self.allocated_bytes_after(request),
                    _ => 0,
                };
                let Drive { spec, mischief, .. } = self;
                let sector_bytes = u64::from(spec.sector_bytes);
                mischief.judge(&spec.path, request, spec.size_bytes, sector_bytes, after_bytes)
            }
        };
        self.counters.errors += u64::from(verdict.error.is_some());
        if request.kind == Kind::Flush && self.mischief.lying_flush {
            // Nothing is done, which takes as long as saying so.
            return (Some(self.ends_at_ns(now_ns + LIE_NS, verdict.late_ns)), verdict);
        }
        let physics_ns = self.model.submit(now_ns, tag, request);
        let done_at_ns = physics_ns.map(|ns| self.ends_at_ns(ns.max(now_ns), verdict.late_ns));
        (done_at_ns, verdict)
    }

    /// What it was asked to do until now. A drive that is never idle is busy all the same, so the time that
    /// goes on counts.
    pub(crate) fn counters_at(&self, now_ns: u64) -> DriveCounters {
        let (requests, since_ns) = self.under_way;
        let goes_on_ns = if requests > 0 { now_ns.saturating_sub(since_ns) } else { 0 };
        DriveCounters { busy_ns: self.counters.busy_ns + goes_on_ns, ..self.counters }
    }

    /// A request is under way from now on.
    pub(crate) fn begins(&mut self, now_ns: u64) {
        let (requests, since_ns) = self.under_way;
        self.under_way = (requests + 1, if requests == 0 { now_ns } else { since_ns });
    }

    /// A request has ended.
    pub(crate) fn ends(&mut self, now_ns: u64) {
        let (requests, since_ns) = self.under_way;
        if requests == 1 {
            self.counters.busy_ns += now_ns.saturating_sub(since_ns);
        }
        self.under_way.0 = requests.saturating_sub(1);
    }

    /// Power fails: nothing is under way any more.
    pub(crate) fn stops(&mut self, now_ns: u64) {
        self.counters = self.counters_at(now_ns);
        self.under_way = (0, 0);
    }

    /// When a request ends that physics has done with at `physics_ns`.
    pub(crate) fn ends_at_ns(&self, physics_ns: u64, late_ns: u64) -> u64 {
        physics_ns.saturating_add(late_ns).max(self.mischief.hung_until_ns)
    }

    /// When its physics goes on by itself.
    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.model.next_ns()
    }

    /// Its physics lives on until now.
    pub(crate) fn advance(&mut self, now_ns: u64, finished: &mut Vec<Finished>) {
        self.model.advance(now_ns, finished);
    }

    /// Physics forgets what is under way: it has been told to have failed.
    pub(crate) fn drop_requests(&mut self) {
        self.model.reset();
    }

    /// What the request changes, of the change it asks for.
    pub(crate) fn changes_of(&mut self, deed: Deed, asked: Change) -> Vec<Change> {
        match deed {
            Deed::Whole => vec![asked],
            Deed::Nothing => Vec::new(),
            Deed::Part => self.mischief.part(&asked, self.spec.atomic_write_bytes as usize),
            Deed::Front(bytes) => asked.front(bytes).into_iter().collect(),
            Deed::At(_) => unreachable!("the caller has made the change for that place"),
        }
    }

    /// What becomes of a change whose end nobody will be told.
    pub(crate) fn fate_of(&mut self, change: &Change) -> Vec<Change> {
        self.mischief.fate(change, self.spec.atomic_write_bytes as usize)
    }

    /// A bit rots on the medium, of those that the request is about to read.
    pub(crate) fn rot(&mut self, request: &Request) {
        let (byte, mask) = self.mischief.rotten_bit(request.length);
        let mut content = [0];
        self.cache.current().read(request.at + byte, &mut content);
        self.cache.poke(request.at + byte, &[content[0] ^ mask]);
    }

    /// Power comes back after a cut, or the drive is copied to another machine.
    pub(crate) fn reset(&mut self) {
        self.under_way = (0, 0);
        self.model.reset();
        self.mischief.power_cycled();
    }

    /// What a trim of these bytes does.
    pub(crate) fn trim(&mut self, at: u64, length: u64) -> Change {
        Change::Trim { range: at..at + length, salt: self.random.bits() }
    }

    fn bounds(&self, request: &Request) -> Option<IoError> {
        let Request { kind, at, length } = *request;
        let sector_bytes = u64::from(self.spec.sector_bytes);
        let inside = at.checked_add(length).is_some_and(|end| end <= self.spec.size_bytes);
        if inside && at.is_multiple_of(sector_bytes) && length.is_multiple_of(sector_bytes) {
            return None;
        }
        Some(IoError::new(
            ErrorKind::Range,
            format!(
                "{kind:?} of {length} bytes at {at} on {}: outside its {} bytes or not in \
                 sectors of {sector_bytes}",
                self.spec.path, self.spec.size_bytes
            ),
        ))
    }

    fn allocated_bytes_after(&self, request: &Request) -> u64 {
        let medium = self.cache.current();
        let first = request.at / BLOCK_BYTES as u64;
        let end = (request.at + request.length).div_ceil(BLOCK_BYTES as u64);
        let new = (first..end).filter(|block| medium.get(*block).is_none()).count() as u64;
        (medium.blocks() + new) * BLOCK_BYTES as u64
    }
}
