//! What a power cut leaves of a volatile cache: the rules, as a pure function over changes.
//!
//! Each rule is something real drives do; docs/simulation.md says why. What a completed flush
//! covered is not even shown to these rules.

use crate::change::Change;
use crate::random::{Random, mix};

/// A rule for the fate of what was not durable when power failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheLoss {
    /// Everything reaches the medium, in order: a cache backed by capacitors.
    KeepAll,
    /// Nothing does.
    LoseAll,
    /// Each change is kept or lost on its own, decided by the seed.
    Subset(u64),
    /// Early changes are lost while later ones are kept: the drive wrote back in its own order.
    Reordered(u64),
    /// Most changes are kept in parts, whole atomic units of them; some are kept or lost.
    Torn(u64),
    /// The drive writes back nearly in order: up to some change all are kept, within the bound
    /// after that each is kept, torn or lost on its own, and what comes later is lost.
    Bounded(u64, ReorderBound),
}

/// How far a drive strays from the order in which it was given its writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReorderBound {
    /// Among so many changes in a row; 0 and 1 keep the order.
    Changes(u64),
    /// Among changes in a row that carry so many bytes together.
    Bytes(u64),
}

impl ReorderBound {
    /// How many of the first `changes` lie within it.
    fn reach(self, changes: &[&Change]) -> usize {
        match self {
            ReorderBound::Changes(count) => changes.len().min(count as usize),
            ReorderBound::Bytes(bytes) => {
                let mut left = bytes;
                let fits = |change: &&&Change| {
                    let fits = change.moved_bytes() <= left;
                    left = left.saturating_sub(change.moved_bytes());
                    fits
                };
                changes.iter().take_while(fits).count()
            }
        }
    }
}

impl CacheLoss {
    /// The same rule with a seed of the drive's own: two drives never lose in step.
    pub(crate) fn for_drive(self, drive: u64) -> CacheLoss {
        let own = |seed: u64| mix(seed ^ mix(drive));
        match self {
            CacheLoss::KeepAll | CacheLoss::LoseAll => self,
            CacheLoss::Subset(seed) => CacheLoss::Subset(own(seed)),
            CacheLoss::Reordered(seed) => CacheLoss::Reordered(own(seed)),
            CacheLoss::Torn(seed) => CacheLoss::Torn(own(seed)),
            CacheLoss::Bounded(seed, bound) => CacheLoss::Bounded(own(seed), bound),
        }
    }

    /// What reaches the medium, in order, of the `completed` changes (oldest first) and of those
    /// `in_flight`. `unit_bytes` is the size a power cut does not tear.
    pub fn survivors(
        self,
        completed: &[Change],
        in_flight: &[Change],
        unit_bytes: usize,
    ) -> Vec<Change> {
        // A change that was in flight may reach the medium after any other: nobody was told its
        // place. Within each seeded rule their order is drawn.
        let all = |random: &mut Random| {
            let mut flying: Vec<&Change> = in_flight.iter().collect();
            for last in (1..flying.len()).rev() {
                flying.swap(last, random.below(last as u64 + 1) as usize);
            }
            completed.iter().chain(flying).collect::<Vec<_>>()
        };
        match self {
            CacheLoss::KeepAll => completed.iter().chain(in_flight).cloned().collect(),
            CacheLoss::LoseAll => Vec::new(),
            CacheLoss::Subset(seed) => {
                let mut random = Random::new(seed);
                let all = all(&mut random);
                all.into_iter().filter(|_| random.chance(50)).cloned().collect()
            }
            CacheLoss::Reordered(seed) => {
                let mut random = Random::new(seed);
                let all = all(&mut random);
                // At least the first is lost, at least the last is kept.
                let lost = 1 + random.below(all.len().saturating_sub(1) as u64) as usize;
                let last = all.len().saturating_sub(1);
                let mut kept = Vec::new();
                for (index, change) in all.into_iter().enumerate() {
                    if index == last || (index >= lost && random.chance(75)) {
                        kept.push(change.clone());
                    }
                }
                kept
            }
            CacheLoss::Torn(seed) => {
                let mut random = Random::new(seed);
                let mut kept = Vec::new();
                for change in all(&mut random) {
                    // Mostly torn: whole and lost ones in all mixtures are what `Subset` is for, and
                    // redundant copies show their worth only when several are torn at once.
                    match random.below(6) {
                        0 => {}
                        1 => kept.push(change.clone()),
                        _ => kept.extend(change.torn(unit_bytes, &mut random)),
                    }
                }
                kept
            }
            CacheLoss::Bounded(seed, bound) => {
                let mut random = Random::new(seed);
                let all = all(&mut random);
                let (front, rest) = all.split_at(random.below(all.len() as u64 + 1) as usize);
                let mut kept: Vec<Change> = front.iter().copied().cloned().collect();
                for change in &rest[..bound.reach(rest)] {
                    match random.below(4) {
                        0 => kept.extend(change.torn(unit_bytes, &mut random)),
                        1 => kept.push((*change).clone()),
                        _ => {}
                    }
                }
                kept
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::Medium;

    /// Which of eight writes to different blocks are left.
    fn left(loss: CacheLoss) -> Vec<bool> {
        let changes: Vec<Change> = (0..8).map(|n| Change::write(n * 4096, &[1; 4096])).collect();
        let mut medium = Medium::default();
        for change in loss.survivors(&changes[..6], &changes[6..], 4096) {
            change.apply(&mut medium);
        }
        (0..8).map(|block| medium.get(block).is_some()).collect()
    }

    #[test]
    fn the_plain_rules_keep_all_or_nothing() {
        assert_eq!(left(CacheLoss::KeepAll), [true; 8]);
        assert_eq!(left(CacheLoss::LoseAll), [false; 8]);
    }

    #[test]
    fn a_subset_depends_on_the_seed_alone() {
        assert_eq!(left(CacheLoss::Subset(1)), left(CacheLoss::Subset(1)));
        let different =
            (0..20).any(|seed| left(CacheLoss::Subset(seed)) != left(CacheLoss::Subset(1)));
        assert!(different);
    }

    #[test]
    fn reordering_loses_an_early_change_and_keeps_a_late_one() {
        for seed in 0..50 {
            let left = left(CacheLoss::Reordered(seed));
            assert!(!left[0], "seed {seed}: the first change must be lost");
            assert!(left[6] || left[7], "seed {seed}: the last one must be kept");
        }
    }

    #[test]
    fn a_bounded_drive_strays_from_the_order_within_its_bound_only() {
        for (bound, reach) in [
            (ReorderBound::Changes(0), 0),
            (ReorderBound::Changes(3), 3),
            (ReorderBound::Bytes(8192), 2),
            (ReorderBound::Bytes(4095), 0),
        ] {
            let mut strayed = 0;
            for seed in 0..200 {
                // Nothing in flight: that has no order.
                let changes: Vec<Change> =
                    (0..8).map(|n| Change::write(n * 4096, &[1; 4096])).collect();
                let mut medium = Medium::default();
                let loss = CacheLoss::Bounded(seed, bound);
                for change in loss.survivors(&changes, &[], 4096) {
                    change.apply(&mut medium);
                }
                let left: Vec<bool> = (0..8).map(|block| medium.get(block).is_some()).collect();
                let first_lost = left.iter().position(|kept| !kept).unwrap_or(8);
                let after = &left[first_lost..];
                let last_kept = after.iter().rposition(|kept| *kept).unwrap_or(0);
                assert!(last_kept < reach.max(1), "seed {seed}, {bound:?}: {left:?}");
                strayed += usize::from(last_kept > 0);
            }
            assert_eq!(strayed > 0, reach > 1, "{bound:?} strayed {strayed} times");
        }
    }

    #[test]
    fn rules_take_an_empty_cache() {
        let bounded = CacheLoss::Bounded(1, ReorderBound::Changes(4));
        for loss in [CacheLoss::Subset(1), CacheLoss::Reordered(1), CacheLoss::Torn(1), bounded] {
            assert!(loss.survivors(&[], &[], 512).is_empty());
        }
    }
}
