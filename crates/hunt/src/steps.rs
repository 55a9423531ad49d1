//! What clients ask of a volume: single requests, and a seeded source of them.
//!
//! The temper of a source is drawn first: how much is small or large, in hot spots or streams, how
//! often it flushes, trims and rests, and much of that is switched off altogether. So many short
//! runs with different seeds see more than a long one.

use std::fmt;
use std::ops::Range;

use engine::{CacheMode, FlushMode, Tier};
use io::units::{KIB, MILLISECOND_NS};
use io::{Durability, ZeroMode};
use twin::Random;

use crate::sector::SECTOR_BYTES;
use crate::subject::Prey;
use crate::watched::{Trouble, Watched};

/// Hot spots of a run. Few, so that clients meet there.
const SPOTS: usize = 4;
/// Bytes of a hot spot: half an extent, so that its neighbours stay cold.
const SPOT_BYTES: u64 = 64 << 10;
/// Rests of a client: moments, long enough for a volume to find itself idle, and long enough for
/// whatever it does only then.
const RESTS_NS_MAX: [u64; 3] = [5 * MILLISECOND_NS, 300 * MILLISECOND_NS, 3000 * MILLISECOND_NS];

/// A volume without requests for so long takes itself to be idle.
const IDLE_FROM_NS: u64 = 100 * MILLISECOND_NS;

/// One request, a rest, or a change of what flushes promise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Nothing, for so long.
    Rest {
        /// Virtual nanoseconds.
        ns: u64,
    },
    /// A write of stamped data.
    Write {
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
        /// To be durable on its own.
        forced: bool,
    },
    /// A read, which is checked.
    Read {
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// A trim.
    Trim {
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
        /// To be durable on its own.
        forced: bool,
    },
    /// Zeros.
    Zero {
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
        /// As written zeros, which stay allocated.
        allocate: bool,
        /// To be durable on its own.
        forced: bool,
    },
    /// A flush.
    Flush,
    /// A wish to have the range on the fast drive.
    Warm {
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// A wait until the volume reads from a drive by itself: it has begun to destage (the fast one) or
    /// to move something up (the slow one).
    Lurk {
        /// From which.
        tier: Tier,
        /// No longer than this, in virtual nanoseconds.
        ns_max: u64,
    },
    /// Class cache: writes are on the slow drive at another time from now on.
    Mode {
        /// When.
        mode: CacheMode,
    },
    /// Class span: what goes up keeps its slot below from now on, or does not.
    Include {
        /// It does.
        on: bool,
    },
    /// Flushes promise something else from now on. Only one client may change that.
    Promise {
        /// What.
        mode: FlushMode,
    },
}

impl Step {
    /// Does it.
    ///
    /// # Errors
    /// What went wrong.
    pub async fn perform<V: Prey>(self, watched: &Watched<V>) -> Result<(), Trouble> {
        let how = |forced| if forced { Durability::Durable } else { Durability::Volatile };
        match self {
            Step::Rest { ns } => {
                watched.io().sleep(ns).await;
                Ok(())
            }
            Step::Lurk { tier, ns_max } => {
                lurk(watched, tier, ns_max).await;
                Ok(())
            }
            Step::Write { at, length, forced } => watched.write(at, length, how(forced)).await,
            Step::Read { at, length } => watched.read(at, length).await,
            Step::Trim { at, length, forced } => watched.trim(at, length, how(forced)).await,
            Step::Zero { at, length, allocate, forced } => {
                let mode = if allocate { ZeroMode::Allocate } else { ZeroMode::Deallocate };
                watched.write_zeroes(at, length, mode, how(forced)).await
            }
            Step::Flush => watched.flush().await,
            Step::Promise { mode } => watched.promise(mode).await,
            Step::Mode { mode } => {
                watched.volume().set_cache_mode(mode).await.map_err(Trouble::Refused)
            }
            Step::Include { on } => {
                watched.volume().set_inclusion(on).await.map_err(Trouble::Refused)
            }
            Step::Warm { at, length } => {
                watched.volume().cache(at, length).await.map_err(Trouble::Refused)
            }
        }
    }

    /// Bytes it is about.
    pub fn bytes(self) -> u64 {
        match self {
            Step::Write { length, .. }
            | Step::Read { length, .. }
            | Step::Trim { length, .. }
            | Step::Zero { length, .. }
            | Step::Warm { length, .. } => length,
            Step::Rest { .. } | Step::Lurk { .. } | Step::Flush => 0,
            Step::Promise { .. } | Step::Mode { .. } | Step::Include { .. } => 0,
        }
    }

    /// The same request for about half as many bytes, in sectors; `None` when it has none to spare.
    pub fn shorter(self) -> Option<Step> {
        let unit = if self.bytes() > 4096 { 4096 } else { SECTOR_BYTES as u64 };
        let mut shorter = self;
        match &mut shorter {
            Step::Write { length, .. }
            | Step::Read { length, .. }
            | Step::Trim { length, .. }
            | Step::Zero { length, .. }
            | Step::Warm { length, .. } => *length = (*length / 2).next_multiple_of(unit),
            Step::Rest { .. } | Step::Lurk { .. } | Step::Flush => {}
            Step::Promise { .. } | Step::Mode { .. } | Step::Include { .. } => {}
        }
        (shorter.bytes() < self.bytes()).then_some(shorter)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, at, length, forced) = match *self {
            Step::Rest { ns } => return write!(f, "rest {:.1} ms", ns as f64 / 1e6),
            Step::Lurk { tier, ns_max } => {
                let ms_max = ns_max as f64 / 1e6;
                return write!(
                    f,
                    "lurk until the {tier} drive is read, for {ms_max:.1} ms at most"
                );
            }
            Step::Flush => return write!(f, "flush"),
            Step::Promise { mode } => return write!(f, "promise {mode}"),
            Step::Mode { mode } => return write!(f, "change to {mode}"),
            Step::Include { on: true } => return write!(f, "keep below what goes up"),
            Step::Include { on: false } => return write!(f, "keep nothing below"),
            Step::Write { at, length, forced } => ("write", at, length, forced),
            Step::Read { at, length } => ("read", at, length, false),
            Step::Trim { at, length, forced } => ("trim", at, length, forced),
            Step::Zero { at, length, allocate: true, forced } => {
                ("write zeros", at, length, forced)
            }
            Step::Zero { at, length, forced, .. } => ("zero", at, length, forced),
            Step::Warm { at, length } => ("warm", at, length, false),
        };
        write!(f, "{word} {length} bytes at {at}{}", if forced { ", durable" } else { "" })
    }
}

/// How often a lurking client looks.
const LURK_NS: u64 = MILLISECOND_NS / 4;

async fn lurk<V: Prey>(watched: &Watched<V>, tier: Tier, ns_max: u64) {
    let reads = || watched.volume().drive_reads(tier);
    let (before, until_ns) = (reads(), watched.io().now_ns() + ns_max);
    while reads() == before && watched.io().now_ns() < until_ns {
        watched.io().sleep(LURK_NS).await;
    }
}

/// How a run behaves: shares in percent.
#[derive(Debug, Clone)]
pub struct Temper {
    spots: [u64; SPOTS],
    in_spots: u64,
    in_streams: u64,
    small: u64,
    large: u64,
    whole: u64,
    reads: u64,
    flushes: u64,
    trims: u64,
    zeroes: u64,
    forced: u64,
    rests: u64,
    rest_ns_max: u64,
    warms: u64,
    stalks: u64,
}

impl Temper {
    /// Draws one for clients that use `span`.
    pub fn draw(random: &mut Random, span: &Range<u64>) -> Temper {
        let room = (span.end - span.start).saturating_sub(SPOT_BYTES) / 4096 + 1;
        let mut share = |percent_on, bound| {
            if random.chance(percent_on) { 1 + random.below(bound) } else { 0 }
        };
        Temper {
            in_spots: share(70, 80),
            in_streams: share(40, 60),
            small: share(50, 60),
            large: share(50, 30),
            whole: share(60, 40),
            reads: share(80, 40),
            flushes: share(85, 15),
            trims: share(60, 14),
            zeroes: share(60, 12),
            forced: share(40, 12),
            rests: share(70, 12),
            warms: share(30, 6),
            stalks: share(30, 12),
            rest_ns_max: RESTS_NS_MAX[random.below(3) as usize],
            spots: std::array::from_fn(|_| span.start + random.below(room) * 4096),
        }
    }
}

impl Temper {
    /// The same in a hurry: large writes and no rest.
    #[must_use]
    pub fn pressing(self) -> Temper {
        Temper { large: 90, small: 0, whole: 0, rests: 0, stalks: 0, flushes: 2, trims: 0, ..self }
    }
}

impl Temper {
    /// The same with rests, and changes of what has just begun to move.
    #[must_use]
    pub fn stalking(self) -> Temper {
        let (stalks, rests) = (self.stalks + 20, self.rests.max(5));
        Temper { stalks, rests, flushes: self.flushes.max(12), ..self }
    }
}

impl Temper {
    /// The same with whole extents that are written anew, made durable and read, all the time.
    #[must_use]
    pub fn churning(self) -> Temper {
        Temper { whole: 80, rests: 0, stalks: 0, reads: 25, flushes: 20, trims: 5, ..self }
    }
}

impl Temper {
    /// The same with whole extents one after the other, without a flush or a rest: slots run out.
    #[must_use]
    pub fn cramming(self) -> Temper {
        Temper {
            whole: 85,
            large: 0,
            rests: 0,
            stalks: 0,
            flushes: 0,
            forced: 0,
            trims: 10,
            ..self
        }
    }
}

/// Draws the requests of one client.
#[derive(Debug, Clone)]
pub struct Source {
    /// How it behaves.
    pub temper: Temper,
    /// Bytes of the volume it uses; multiples of 4096.
    pub span: Range<u64>,
    /// Longest request in bytes; a multiple of 4096, at most 1 MiB.
    pub length_bytes_max: u64,
    /// The unit in which the volume places data.
    pub extent_bytes: u64,
    /// Where its stream goes on.
    pub cursor: u64,
    /// Decides.
    pub random: Random,
    /// What it has in mind to do next, last first.
    pub plans: Vec<Step>,
}

impl Source {
    /// The next request.
    pub fn next(&mut self) -> Step {
        if let Some(step) = self.plans.pop() {
            return step;
        }
        if self.random.chance(self.temper.stalks) {
            self.stalk();
        }
        let mut share = self.random.below(100);
        let mut falls = |percent: u64| {
            let hit = share < percent;
            share = share.wrapping_sub(percent);
            hit
        };
        let temper = &self.temper;
        if falls(temper.rests) {
            return Step::Rest { ns: self.random.below(temper.rest_ns_max) };
        }
        if falls(temper.flushes) {
            return Step::Flush;
        }
        let (reads, warms) = (falls(temper.reads), falls(temper.warms));
        let (trims, zeroes) = (falls(temper.trims), falls(temper.zeroes));
        let forced = self.random.chance(temper.forced);
        let Range { start: at, end } = self.place();
        let length = end - at;
        if reads {
            Step::Read { at, length }
        } else if warms {
            Step::Warm { at, length }
        } else if trims {
            Step::Trim { at, length, forced }
        } else if zeroes {
            Step::Zero { at, length, allocate: self.random.chance(30), forced }
        } else {
            Step::Write { at, length, forced }
        }
    }

    /// Has the volume become idle with a reason to move an extent or to empty its log, and changes
    /// that very extent when it is at it.
    fn stalk(&mut self) {
        let (extent, random) = (self.extent_bytes, &mut self.random);
        let first = self.span.start.next_multiple_of(extent);
        if first + extent > self.span.end {
            return;
        }
        let at = first + random.below((self.span.end - first) / extent) * extent;
        let block = at + random.below(extent / 4096) * 4096;
        let whole = extent.min(self.length_bytes_max);
        let after = match random.below(4) {
            0 => Step::Trim { at, length: extent, forced: false },
            1 => Step::Write { at, length: whole, forced: false },
            2 => Step::Write { at: block, length: 4096, forced: false },
            _ => Step::Zero { at: block, length: 4096, allocate: false, forced: false },
        };
        let quick = random.chance(50);
        let ns = random.below(if quick { MILLISECOND_NS / 2 } else { 20 * MILLISECOND_NS });
        let (before, tier) = match random.chance(60) {
            true => (Step::Warm { at, length: extent }, Tier::Slow),
            false => (Step::Write { at: block, length: 4096, forced: true }, Tier::Fast),
        };
        // Before it moves anything the volume empties its log.
        let lurk = Step::Lurk { tier, ns_max: 10 * IDLE_FROM_NS };
        self.plans = vec![Step::Read { at, length: whole }, after, Step::Rest { ns }, lurk, before];
    }

    /// Draws a byte range.
    fn place(&mut self) -> Range<u64> {
        let (temper, random) = (&self.temper, &mut self.random);
        let Range { start, end } = self.span;
        let sector = SECTOR_BYTES as u64;
        let extent = self.extent_bytes;
        if random.chance(temper.whole) && extent <= self.length_bytes_max {
            let count = 1 + if random.chance(30) { random.below(3) } else { 0 };
            let length = (count * extent).min(self.length_bytes_max / extent * extent);
            let first = start.next_multiple_of(extent);
            if first + length <= end {
                let at = first + random.below((end - first - length) / extent + 1) * extent;
                return at..at + length;
            }
        }
        let length = if random.chance(temper.small) {
            (1 + random.below(16)) * sector
        } else if random.chance(temper.large) {
            (1 + random.below(self.length_bytes_max / 4096)) * 4096
        } else if random.chance(50) {
            4096
        } else {
            (1 + random.below(8)) * 4096
        };
        let length = length.min(self.length_bytes_max).min(end - start);
        let unit = if length % 4096 == 0 && !random.chance(10) { 4096 } else { sector };
        let at = if random.chance(temper.in_spots) {
            let spot = temper.spots[random.below(SPOTS as u64) as usize];
            let bytes = if random.chance(30) { 4 * KIB } else { SPOT_BYTES };
            spot + random.below(bytes / unit) * unit
        } else if random.chance(temper.in_streams) {
            self.cursor
        } else {
            start + random.below((end - start) / unit) * unit
        };
        let at = if at + length > end { end - length } else { at };
        self.cursor = if at + length >= end { start } else { at + length };
        at..at + length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_lie_in_their_span_and_every_kind_is_drawn() {
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let span = 64 * KIB..640 * KIB;
            let mut source = Source {
                temper: Temper::draw(&mut random, &span),
                cursor: span.start,
                span: span.clone(),
                length_bytes_max: 256 * KIB,
                extent_bytes: 128 * KIB,
                random,
                plans: Vec::new(),
            };
            for _ in 0..100 {
                let step = source.next();
                kinds.insert(step.to_string().split(' ').next().unwrap().to_owned());
                let (Step::Write { at, length, .. }
                | Step::Read { at, length }
                | Step::Trim { at, length, .. }
                | Step::Zero { at, length, .. }
                | Step::Warm { at, length }) = step
                else {
                    continue;
                };
                assert!(length > 0 && span.start <= at && at + length <= span.end, "{step}");
                assert!(at % 512 == 0 && length % 512 == 0 && length <= 256 * KIB, "{step}");
            }
        }
        assert_eq!(kinds.len(), 8, "{kinds:?}");
    }
}
