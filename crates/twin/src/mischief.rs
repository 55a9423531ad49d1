//! What one drive is doing wrong now: by its profile, by hand, and by what went wrong before.
//!
//! * A request meets at most one fault. By hand comes before the profile, the profile before
//!   what is wrong with the place (no space left, sectors that cannot be read).
//! * Every draw comes from the profile's seed, and only faults that are on draw: a drive without
//!   faults behaves, to the bit, as if there were none in the world.

use std::ops::Range;

use io::{ErrorKind, IoError};

use crate::change::Change;
use crate::fault::{ALWAYS_PPM, Fault, FaultCounts, Faults};
use crate::medium::BLOCK_BYTES;
use crate::model::{Kind, Request};
use crate::random::Random;

/// A drive that hangs until this moment hangs for ever.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// What the request does to the drive in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Deed {
    /// What was asked.
    Whole,
    /// Nothing.
    Nothing,
    /// Some of its atomic units.
    Part,
    /// Its first bytes, whole blocks of them.
    Front(u64),
    /// What was asked, elsewhere.
    At(u64),
}

/// What becomes of a request.
pub(crate) struct Verdict {
    pub(crate) error: Option<IoError>,
    pub(crate) deed: Deed,
    /// How much longer than physics would have it.
    pub(crate) late_ns: u64,
    pub(crate) fault: Option<Fault>,
}

impl Verdict {
    fn fine() -> Verdict {
        Verdict { error: None, deed: Deed::Whole, late_ns: 0, fault: None }
    }

    pub(crate) fn refused(error: IoError) -> Verdict {
        Verdict { error: Some(error), deed: Deed::Nothing, late_ns: 0, fault: None }
    }

    fn of(fault: Fault, deed: Deed, error: Option<IoError>) -> Verdict {
        Verdict { error, deed, late_ns: 0, fault: Some(fault) }
    }
}

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Mischief {
    profile: Faults,
    random: Random,
    /// By hand: the next so many requests that can meet the fault do.
    planned: Vec<(Fault, u64)>,
    /// By hand: kind of request, how many of them still fail, and how.
    failing: Vec<(Kind, u64, ErrorKind)>,
    /// Byte ranges that cannot be read until they are written as a whole.
    unreadable: Vec<Range<u64>>,
    /// Storage behind the drive ends after this many bytes (thin or sparse drives).
    pub(crate) space_bytes: Option<u64>,
    pub(crate) read_only: bool,
    pub(crate) dead: bool,
    /// Each flush lies, by hand or since one has failed.
    pub(crate) lying_flush: bool,
    flush_has_failed: bool,
    /// Nothing completes before this moment.
    pub(crate) hung_until_ns: u64,
    pub(crate) counts: FaultCounts,
}

impl Mischief {
    pub(crate) fn new(random: Random) -> Mischief {
        Mischief {
            profile: Faults::none(),
            random,
            planned: Vec::new(),
            failing: Vec::new(),
            unreadable: Vec::new(),
            space_bytes: None,
            read_only: false,
            dead: false,
            lying_flush: false,
            flush_has_failed: false,
            hung_until_ns: 0,
            counts: FaultCounts::default(),
        }
    }

    /// Everything is as it should be from now on. What was counted stays.
    pub(crate) fn clear(&mut self) {
        let counts = self.counts;
        *self = Mischief { counts, ..Mischief::new(self.random.clone()) };
    }

    pub(crate) fn set_profile(&mut self, profile: Faults) {
        self.random = Random::new(profile.seed);
        self.profile = profile;
    }

    pub(crate) fn strike_next(&mut self, fault: Fault, count: u64) {
        self.planned.push((fault, count));
    }

    pub(crate) fn fail_next(&mut self, kind: Kind, count: u64, error: ErrorKind) {
        self.failing.push((kind, count, error));
    }

    pub(crate) fn unreadable(&mut self, range: Range<u64>) {
        self.unreadable.push(range);
    }

    /// Power has been cycled: what hung runs again, and a flush is a flush again.
    pub(crate) fn power_cycled(&mut self) {
        self.hung_until_ns = 0;
        self.flush_has_failed = false;
    }

    /// Another drive stands here: the bad sectors were the old one's.
    pub(crate) fn forget_bad_sectors(&mut self) {
        self.unreadable.clear();
    }

    /// What becomes of a request at a drive of `size_bytes`, sectors of `sector_bytes`.
    /// `allocated_bytes` would be in use after it.
    pub(crate) fn judge(
        &mut self,
        path: &str,
        request: &Request,
        size_bytes: u64,
        sector_bytes: u64,
        allocated_bytes: u64,
    ) -> Verdict {
        let Request { kind, at, length } = *request;
        let failed = |error: ErrorKind, why: &str| {
            let what = format!("{kind:?} of {length} bytes at {at} on {path}: {why}");
            Some(IoError::new(error, what))
        };
        if self.dead {
            let error = failed(ErrorKind::Disconnected, "the drive does not answer");
            return Verdict { error, deed: Deed::Nothing, ..Verdict::fine() };
        }
        let changes = matches!(kind, Kind::Write | Kind::Trim | Kind::WriteZeroes);
        if self.read_only && changes {
            let error = failed(ErrorKind::ReadOnly, "the drive is read-only");
            return Verdict { error, deed: Deed::Nothing, ..Verdict::fine() };
        }
        if let Some(error) = take_next(&mut self.failing, |(next, ..)| *next == kind) {
            let error = failed(error, "made to fail");
            return Verdict { error, deed: Deed::Nothing, ..Verdict::fine() };
        }
        let struck = self.draw(kind);
        let mut verdict = match struck {
            None => self.judge_place(request, allocated_bytes, failed),
            Some(fault) => self.carry_out(fault, request, size_bytes, sector_bytes, failed),
        };
        if kind == Kind::Flush && (self.lying_flush || self.flush_has_failed) {
            verdict.deed = Deed::Nothing;
            if verdict.error.is_none() && self.lying_flush {
                verdict.fault = Some(Fault::LyingFlush);
            }
        }
        if verdict.fault == Some(Fault::FailedFlush) {
            self.flush_has_failed = true;
        }
        if matches!(kind, Kind::Write | Kind::WriteZeroes) && verdict.deed == Deed::Whole {
            // A drive replaces a bad sector when it is written.
            self.unreadable.retain(|bad| !(at <= bad.start && bad.end <= at + length));
        }
        if let Some(fault) = verdict.fault {
            self.counts.count(fault);
        }
        verdict
    }

    /// The fault that this request meets, by hand or by the profile.
    fn draw(&mut self, kind: Kind) -> Option<Fault> {
        let planned = self.planned.iter().position(|(fault, _)| fault.strikes(kind));
        if let Some(index) = planned {
            let (fault, left) = &mut self.planned[index];
            let fault = *fault;
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.planned.remove(index);
            }
            return Some(fault);
        }
        if self.profile.is_none() {
            return None;
        }
        let random = &mut self.random;
        let mut those = self.profile.iter().filter(|(fault, _)| fault.strikes(kind));
        those
            .find(|(_, rate_ppm)| random.below(u64::from(ALWAYS_PPM)) < u64::from(*rate_ppm))
            .map(|(fault, _)| fault)
    }

    fn carry_out(
        &mut self,
        fault: Fault,
        request: &Request,
        size_bytes: u64,
        sector_bytes: u64,
        failed: impl Fn(ErrorKind, &str) -> Option<IoError>,
    ) -> Verdict {
        let late = |late_ns| Verdict { late_ns, ..Verdict::of(fault, Deed::Whole, None) };
        let io = |why: &str| failed(ErrorKind::Io, why);
        let blocks = request.length / BLOCK_BYTES as u64;
        match fault {
            Fault::Spike => late(within(&self.profile.spike_ns, &mut self.random)),
            Fault::Hang => late(within(&self.profile.hang_ns, &mut self.random)),
            Fault::EndlessHang => late(NEVER_NS),
            Fault::ReadError => Verdict::of(fault, Deed::Nothing, io("a read error")),
            Fault::BadSector => {
                let sector = self.random.below(request.length / sector_bytes);
                let start = request.at + sector * sector_bytes;
                self.unreadable.push(start..start + sector_bytes);
                Verdict::of(fault, Deed::Nothing, io("the medium cannot be read"))
            }
            Fault::WriteError => Verdict::of(fault, Deed::Nothing, io("a write error")),
            Fault::PartialWrite => Verdict::of(fault, Deed::Part, io("a write error half-way")),
            Fault::NoSpace => {
                let front_bytes = self.random.below(blocks + 1) * BLOCK_BYTES as u64;
                let error = failed(ErrorKind::NoSpace, "no space left behind the drive");
                Verdict::of(fault, Deed::Front(front_bytes), error)
            }
            Fault::FailedFlush => Verdict::of(fault, Deed::Nothing, io("a flush error")),
            Fault::Death => {
                let error = failed(ErrorKind::Disconnected, "the drive has stopped answering");
                Verdict::of(fault, Deed::Nothing, error)
            }
            Fault::LyingFlush | Fault::LostWrite => Verdict::of(fault, Deed::Nothing, None),
            Fault::MisdirectedWrite => match self.elsewhere(request, size_bytes) {
                Some(at) => Verdict::of(fault, Deed::At(at), None),
                None => Verdict::fine(),
            },
            Fault::BitRot => Verdict::of(fault, Deed::Whole, None),
            Fault::OldDrive => unreachable!("no request meets it"),
        }
    }

    /// What is wrong with the place that the request is for.
    fn judge_place(
        &mut self,
        request: &Request,
        allocated_bytes: u64,
        failed: impl Fn(ErrorKind, &str) -> Option<IoError>,
    ) -> Verdict {
        let Request { kind, at, length } = *request;
        if kind == Kind::Write
            && let Some(limit_bytes) = self.space_bytes
            && allocated_bytes > limit_bytes
        {
            let error = failed(ErrorKind::NoSpace, "no space left behind the drive");
            let blocks = length / BLOCK_BYTES as u64;
            let missing = (allocated_bytes - limit_bytes).div_ceil(BLOCK_BYTES as u64);
            let front = Deed::Front(blocks.saturating_sub(missing) * BLOCK_BYTES as u64);
            return Verdict::of(Fault::NoSpace, front, error);
        }
        let touches = |bad: &Range<u64>| bad.start < at + length && at < bad.end;
        if kind == Kind::Read && self.unreadable.iter().any(touches) {
            let error = failed(ErrorKind::Io, "the medium cannot be read");
            return Verdict::of(Fault::BadSector, Deed::Nothing, error);
        }
        Verdict::fine()
    }

    /// Another place for a request, as far off as one wrong bit of its address leads.
    fn elsewhere(&mut self, request: &Request, size_bytes: u64) -> Option<u64> {
        let fits = |at: &u64| *at != request.at && at + request.length <= size_bytes;
        let bits = size_bytes.ilog2().checked_sub(BLOCK_BYTES.ilog2())?;
        let places: Vec<u64> =
            (0..=bits).map(|bit| request.at ^ ((BLOCK_BYTES as u64) << bit)).filter(fits).collect();
        places.get(self.random.below(places.len() as u64) as usize).copied()
    }

    /// The bit of a read of `length` bytes that has rotten: which byte, and its mask.
    pub(crate) fn rotten_bit(&mut self, length: u64) -> (u64, u8) {
        (self.random.below(length), 1 << self.random.below(8))
    }

    /// What happens of a change that nobody will ever be told the end of.
    pub(crate) fn fate(&mut self, change: &Change, unit_bytes: usize) -> Vec<Change> {
        match self.random.below(3) {
            0 => Vec::new(),
            1 => vec![change.clone()],
            _ => self.part(change, unit_bytes),
        }
    }

    /// Some atomic units of a change.
    pub(crate) fn part(&mut self, change: &Change, unit_bytes: usize) -> Vec<Change> {
        change.torn(unit_bytes, &mut self.random)
    }
}

/// Takes one of the first entry that matches: gives its error.
fn take_next(
    list: &mut Vec<(Kind, u64, ErrorKind)>,
    matches: impl Fn(&(Kind, u64, ErrorKind)) -> bool,
) -> Option<ErrorKind> {
    let index = list.iter().position(matches)?;
    let (_, left, error) = &mut list[index];
    let error = *error;
    *left = left.saturating_sub(1);
    if *left == 0 {
        list.remove(index);
    }
    Some(error)
}

/// A number in the range; its start when it is empty.
fn within(range: &Range<u64>, random: &mut Random) -> u64 {
    range.start + random.below(range.end.saturating_sub(range.start))
}
