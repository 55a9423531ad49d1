//! What a power cut could take: clients' changes that are in the log and not durable yet, with
//! their age and size. Kept while changes must stay in order (deferred mode, and the way into and
//! out of it). Plain numbers; `deferred.rs` waits and flushes.

use std::collections::VecDeque;

use crate::address::Lsn;
use crate::canary::canary;
use crate::flush_mode::{Bound, FlushMode};

/// Changes this close together are kept as one, with the age of the oldest: a part of the bound.
const GRAIN_PER_BOUND: u64 = 64;

/// Changes made at about the same time.
#[derive(Debug, Clone, Copy)]
struct Change {
    /// They are durable when all before this LSN is.
    end: Lsn,
    /// When the first of them was made.
    since_ns: u64,
    bytes: u64,
}

/// What the one who flushes must hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Alarm {
    None,
    /// There is something to flush, or more than could wait.
    Flush,
}

#[derive(Debug, Default)]
pub(crate) struct Exposure {
    /// What clients' flushes promise now.
    mode: FlushMode,
    /// Every change goes through the log: nothing is written in place.
    ordered: bool,
    /// Oldest first.
    changes: VecDeque<Change>,
    bytes: u64,
    /// Somebody waits for a flush.
    wanted: bool,
}

impl Exposure {
    pub fn new(mode: FlushMode) -> Exposure {
        Exposure { mode, ordered: mode != FlushMode::Strict, ..Exposure::default() }
    }

    pub fn mode(&self) -> FlushMode {
        self.mode
    }

    pub fn set_mode(&mut self, mode: FlushMode) {
        self.mode = mode;
    }

    /// Whether homes must not be written in place by clients.
    pub fn ordered(&self) -> bool {
        self.ordered
    }

    /// Begins or ends the keeping of order.
    pub fn keep_order(&mut self, ordered: bool) {
        self.ordered = ordered;
        if !ordered {
            self.changes.clear();
            self.bytes = 0;
        }
    }

    /// A client's change is in the log, the last of it before `end`.
    pub fn note(&mut self, end: Lsn, now_ns: u64, bytes: u64) -> Alarm {
        if !self.ordered {
            return Alarm::None;
        }
        let before = self.bytes;
        self.bytes += bytes;
        let Some(bound) = self.mode.bound() else {
            // On the way into deferred mode: the flush that is coming covers it.
            self.changes.push_back(Change { end, since_ns: now_ns, bytes });
            return Alarm::None;
        };
        let first = self.changes.is_empty();
        let grain_ns = bound.age_ns() / GRAIN_PER_BOUND;
        match self.changes.back_mut() {
            Some(last) if now_ns < last.since_ns + grain_ns => {
                if canary!(ExposureRejuvenated) {
                    last.since_ns = now_ns;
                }
                last.end = end;
                last.bytes += bytes;
            }
            _ => self.changes.push_back(Change { end, since_ns: now_ns, bytes }),
        }
        let half = bound.bytes / 2;
        if first || before < half && self.bytes >= half { Alarm::Flush } else { Alarm::None }
    }

    /// Everything before this is durable.
    pub fn settle(&mut self, durable: Lsn) {
        while let Some(change) = self.changes.front()
            && (change.end <= durable || canary!(ExposureForgotten))
        {
            self.bytes -= change.bytes;
            self.changes.pop_front();
        }
    }

    /// Bytes that a power cut could take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How old the oldest change is that a power cut could take.
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        self.changes.front().map_or(0, |change| now_ns.saturating_sub(change.since_ns))
    }

    /// Whether something old is exposed for as long as the bound allows: nothing may be
    /// acknowledged.
    pub fn is_too_old(&self, now_ns: u64) -> bool {
        let times = if canary!(ToldTooLate) { 2 } else { 1 };
        self.mode.bound().is_some_and(|bound| self.age_ns(now_ns) >= bound.age_ns() * times)
    }

    /// Whether more is exposed than the bound allows, by age or by size: nothing may be acknowledged.
    /// Requests that are ordered only when their data has arrived may exceed the size together.
    pub fn is_beyond_bound(&self, now_ns: u64) -> bool {
        let too_much = self.mode.bound().is_some_and(|bound| self.bytes > bound.bytes);
        self.is_too_old(now_ns) || too_much && !canary!(ToldBeyondBound)
    }

    /// Whether a change of so many bytes must wait for a flush.
    pub fn must_wait(&self, now_ns: u64, bytes: u64) -> bool {
        let Some(bound) = self.mode.bound() else { return false };
        let too_much = self.bytes > 0 && self.bytes + bytes > bound.bytes;
        self.is_too_old(now_ns) || too_much && !canary!(BytesUnbound)
    }

    /// Somebody waits: the next flush comes at once.
    pub fn want_flush(&mut self) {
        self.wanted = true;
    }

    /// When the next flush is due, on the clock; `None` when nothing is exposed.
    ///
    /// At half of the bound, so that a flush of up to the other half keeps it without anybody
    /// having to wait.
    pub fn flush_due_ns(&self, now_ns: u64) -> Option<u64> {
        let bound = self.mode.bound()?;
        let oldest = self.changes.front()?;
        let due = self.wanted || self.bytes >= bound.bytes / 2;
        let share = if canary!(FlushedTooLate) { 1 } else { 2 };
        Some(if due { now_ns } else { oldest.since_ns + bound.age_ns() / share })
    }

    /// A flush begins.
    pub fn flushing(&mut self) {
        self.wanted = false;
    }

    /// The bound, in deferred mode.
    pub fn bound(&self) -> Option<Bound> {
        self.mode.bound()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::units::{MIB, MILLISECOND_NS};

    fn deferred() -> Exposure {
        Exposure::new(FlushMode::Deferred(Bound { age_ms: 100, bytes: 4 * MIB }))
    }

    #[test]
    fn the_oldest_change_decides_the_age_until_it_is_durable() {
        let mut exposure = deferred();
        assert_eq!(exposure.note(Lsn(10), 0, 4096), Alarm::Flush);
        assert_eq!(exposure.note(Lsn(20), 1000, 4096), Alarm::None, "kept with the first");
        exposure.note(Lsn(30), 50 * MILLISECOND_NS, 4096);
        exposure.settle(Lsn(15));
        assert_eq!((exposure.bytes(), exposure.age_ns(5)), (12288, 5), "not all of it is durable");
        exposure.settle(Lsn(20));
        assert_eq!(exposure.bytes(), 4096);
        assert!(!exposure.is_too_old(149 * MILLISECOND_NS));
        assert!(exposure.is_too_old(150 * MILLISECOND_NS));
        exposure.settle(Lsn(30));
        assert_eq!((exposure.bytes(), exposure.flush_due_ns(7)), (0, None));
    }

    #[test]
    fn a_flush_is_due_at_half_of_either_bound() {
        let mut exposure = deferred();
        exposure.note(Lsn(10), 0, 4096);
        assert_eq!(exposure.flush_due_ns(3), Some(50 * MILLISECOND_NS));
        assert_eq!(exposure.note(Lsn(600), 0, 2 * MIB), Alarm::Flush);
        assert_eq!(exposure.flush_due_ns(3), Some(3));
        assert!(!exposure.must_wait(3, MIB));
        assert!(exposure.must_wait(3, 2 * MIB));
        exposure.settle(Lsn(600));
        assert!(!exposure.must_wait(3, 64 * MIB), "alone, anything may go");
    }

    #[test]
    fn strict_mode_keeps_nothing() {
        let mut exposure = Exposure::new(FlushMode::Strict);
        assert_eq!(exposure.note(Lsn(10), 0, 4096), Alarm::None);
        assert_eq!((exposure.bytes(), exposure.age_ns(9), exposure.flush_due_ns(9)), (0, 0, None));
    }
}
