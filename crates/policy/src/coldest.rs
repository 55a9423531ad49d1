//! The coldest extents of the fast drive, without a list of all of them.
//!
//! A hand goes over the extents; the coldest of those it meets are kept in a small pool. The order of
//! two extents changes only when one is touched, so what is in the pool stays right until it is
//! touched, or has left; that is looked at when it is taken out. With a pool of 64 what is taken is
//! hardly ever outside the coldest hundredth.

use crate::counts::Counts;
use crate::interface::{ExtentId, FastDrive};

/// Kept at most.
const POOL_MAX: usize = 64;
/// Residents met each time one is asked for: the hand outruns what is taken many times.
const MET_PER_CALL: u64 = 32;
/// Extents looked at for that, at a cost of some microseconds.
const LOOKED_AT_PER_CALL: u64 = 1024;

#[derive(Default)]
pub(crate) struct Coldest {
    /// Coldest last, each with its rank when it was met.
    pool: Vec<(u16, ExtentId)>,
    hand: u64,
}

impl Coldest {
    /// The coldest extent known that may leave; it is not given again.
    pub fn take(&mut self, counts: &Counts, fast: &dyn FastDrive) -> Option<ExtentId> {
        let coldest = self.look(counts, fast)?;
        self.pool.pop();
        Some(coldest)
    }

    /// The same, and it stays known.
    pub fn look(&mut self, counts: &Counts, fast: &dyn FastDrive) -> Option<ExtentId> {
        self.search(counts, fast);
        while let Some((rank, extent)) = self.pool.last().copied() {
            if counts.rank(extent) == rank && fast.may_leave(extent) {
                return Some(extent);
            }
            self.pool.pop();
        }
        None
    }

    /// The ranks of all extents have been lowered.
    pub fn forget(&mut self) {
        self.pool.clear();
    }

    fn search(&mut self, counts: &Counts, fast: &dyn FastDrive) {
        let extents = counts.extents();
        let (mut met, mut wrapped) = (0, false);
        for _ in 0..LOOKED_AT_PER_CALL.min(extents) {
            let next = Some(ExtentId(self.hand)).filter(|hand| hand.0 < extents);
            let Some(extent) = next.and_then(|hand| fast.next_resident(hand)) else {
                if std::mem::replace(&mut wrapped, true) {
                    break;
                }
                self.hand = 0;
                continue;
            };
            self.hand = extent.0 + 1;
            if !fast.may_leave(extent) {
                continue;
            }
            self.meet(counts.rank(extent), extent);
            met += 1;
            if met == MET_PER_CALL {
                break;
            }
        }
    }

    fn meet(&mut self, rank: u16, extent: ExtentId) {
        // What is known already is known with this rank, or will be dropped.
        let place = self.pool.partition_point(|(known, _)| *known > rank);
        let same = self.pool[place..].iter().take_while(|(known, _)| *known == rank);
        if same.into_iter().any(|(_, known)| *known == extent) {
            return;
        }
        if self.pool.len() < POOL_MAX {
            self.pool.insert(place, (rank, extent));
        } else if place > 0 {
            self.pool.remove(0);
            self.pool.insert(place - 1, (rank, extent));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::Weight;

    struct All;

    impl FastDrive for All {
        fn free(&self) -> u64 {
            0
        }

        fn may_leave(&self, extent: ExtentId) -> bool {
            extent != ExtentId(77)
        }
    }

    #[test]
    fn the_coldest_is_found_and_what_was_touched_since_is_not_taken_for_it() {
        let mut counts = Counts::new(500, 100_000);
        for extent in 0..500u64 {
            // 77 is the coldest of all, and cannot leave; then 300, then 10.
            let touches = match extent {
                77 => 0,
                300 => 1,
                10 => 2,
                _ => 4 + extent % 5,
            };
            for _ in 0..touches {
                counts.touch(ExtentId(extent), Weight::of(1.0));
            }
        }
        let mut coldest = Coldest::default();
        for _ in 0..20 {
            coldest.look(&counts, &All);
        }
        assert_eq!(coldest.take(&counts, &All), Some(ExtentId(300)));
        for _ in 0..9 {
            counts.touch(ExtentId(10), Weight::of(1.0));
        }
        let next = coldest.take(&counts, &All).unwrap();
        assert!(next != ExtentId(10) && next != ExtentId(300), "{next:?}");
    }

    /// A fast drive of which all that it has lies together, far from the front of a large volume.
    struct Far;

    impl FastDrive for Far {
        fn free(&self) -> u64 {
            0
        }

        fn next_resident(&self, from: ExtentId) -> Option<ExtentId> {
            (from.0 < 900_010).then_some(ExtentId(from.0.max(900_000)))
        }

        fn may_leave(&self, extent: ExtentId) -> bool {
            (900_000..900_010).contains(&extent.0)
        }
    }

    #[test]
    fn who_is_far_off_is_found_at_once() {
        let mut counts = Counts::new(1_000_000, 100_000);
        for extent in 900_001..900_010 {
            counts.touch(ExtentId(extent), Weight::of(1.0));
        }
        assert_eq!(Coldest::default().take(&counts, &Far), Some(ExtentId(900_000)));
    }
}
