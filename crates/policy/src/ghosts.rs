//! What a fast drive of another size would have been worth: the share of reads that it would have
//! served, had it kept the extents that were used last.
//!
//! Stack distances (Mattson and others, 1970) of a sample of the extents, chosen by their hash (SHARDS,
//! Waldspurger and others, FAST '15). At most [`PLACES_MAX`] extents are followed, whatever the size of
//! the volume: some 200 KiB. Only the sizes that are asked for are counted.

use std::collections::BTreeMap;

use crate::interface::ExtentId;
use crate::sample::{Sums, spread};

/// Extents that are followed. A sample of 4,096 is wrong by about two points of a hundred.
const PLACES_MAX: u64 = 4096;
/// Uses between two tidyings of the order.
const MOMENTS: usize = 2 * PLACES_MAX as usize;
/// When so many reads were counted, all counts are halved: what is told is of lately.
const READS_MAX: u64 = 1 << 22;

/// Sizes of the fast drive that are looked at, in quarters of what it is.
pub const GHOST_QUARTERS: [u64; 5] = [1, 2, 4, 8, 16];

/// See the head of the file.
pub struct Ghosts {
    /// Extents whose hash is a multiple of this are followed.
    one_of: u64,
    /// For each of the sizes: so many followed extents fit there.
    sizes: [f64; GHOST_QUARTERS.len()],
    /// When each followed extent was used last.
    used_at: BTreeMap<u64, usize>,
    /// The moments at which an extent was used last.
    moments: Sums,
    now: usize,
    /// Reads of all extents.
    reads: u64,
    /// Reads of followed extents.
    followed: u64,
    /// For each of the sizes: reads that it would have served.
    hits: [u64; GHOST_QUARTERS.len()],
}

impl Ghosts {
    /// For a volume of so many extents, `fast_slots` of which fit on the fast drive.
    pub fn new(extents: u64, fast_slots: u64) -> Ghosts {
        let one_of = extents.div_ceil(PLACES_MAX).max(1);
        let sizes = GHOST_QUARTERS.map(|n| (fast_slots * n) as f64 / 4.0 / one_of as f64);
        Ghosts {
            one_of,
            sizes,
            used_at: BTreeMap::new(),
            moments: Sums::new(MOMENTS),
            now: 0,
            reads: 0,
            followed: 0,
            hits: [0; GHOST_QUARTERS.len()],
        }
    }

    /// A request that is part of no stream used an extent.
    pub fn used(&mut self, extent: ExtentId, is_read: bool) {
        self.reads += u64::from(is_read);
        if self.reads == READS_MAX {
            self.reads /= 2;
            self.followed /= 2;
            self.hits = self.hits.map(|hits| hits / 2);
        }
        if self.one_of > 1 && !spread(extent.0 + 1).is_multiple_of(self.one_of) {
            return;
        }
        self.followed += u64::from(is_read);
        if self.now == MOMENTS {
            self.tidy();
        }
        let before = self.used_at.insert(extent.0, self.now);
        if let Some(before) = before {
            let between = self.moments.up_to(self.now) - self.moments.up_to(before + 1);
            self.moments.add(before, -1);
            if is_read {
                for (hits, size) in self.hits.iter_mut().zip(self.sizes) {
                    *hits += u64::from((between as f64) < size);
                }
            }
        }
        self.moments.add(self.now, 1);
        self.now += 1;
    }

    /// Numbers the moments anew from 0, in order. More extents than expected may have a hash that is
    /// followed: those that were used longest ago are forgotten.
    fn tidy(&mut self) {
        let mut order: Vec<(usize, u64)> = self.used_at.iter().map(|(x, at)| (*at, *x)).collect();
        order.sort_unstable();
        let kept = order.len().saturating_sub(MOMENTS / 2 + MOMENTS / 4);
        self.moments = Sums::new(MOMENTS);
        self.used_at.clear();
        for (now, (_, extent)) in order[kept..].iter().enumerate() {
            self.used_at.insert(*extent, now);
            self.moments.add(now, 1);
        }
        self.now = self.used_at.len();
    }

    /// For each of [`GHOST_QUARTERS`] the share of the reads that a fast drive of that size would have
    /// served; `None` before there were a few.
    ///
    /// Few extents are used very much, and the sample has more or fewer of these than its share. What it
    /// has too few or too many reads are taken for reads of such, which hit at any size (SHARDS-adj).
    pub fn hit_ratios(&self) -> Option<[f64; GHOST_QUARTERS.len()]> {
        let expected = self.reads as f64 / self.one_of as f64;
        let told = expected >= 100.0;
        let missing = expected - self.followed as f64;
        told.then(|| self.hits.map(|hits| ((hits as f64 + missing) / expected).clamp(0.0, 1.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratios(extents: u64, slots: u64, uses: impl Iterator<Item = u64>) -> Vec<f64> {
        let mut ghosts = Ghosts::new(extents, slots);
        uses.for_each(|extent| ghosts.used(ExtentId(extent), true));
        ghosts.hit_ratios().expect("there were reads").to_vec()
    }

    #[test]
    fn a_loop_is_served_by_what_holds_all_of_it_and_by_nothing_smaller() {
        // 100 extents over and over: half of a drive of 200 slots holds them, a quarter does not.
        let found = ratios(4000, 200, (0..100).cycle().take(20_000));
        assert_eq!(found[0], 0.0);
        assert!(found[1..].iter().all(|ratio| *ratio > 0.99), "{found:?}");
    }

    #[test]
    fn a_sample_of_a_large_volume_comes_near_a_real_cache() {
        let (extents, slots) = (400_000u64, 20_000u64);
        // Places near zero are used more.
        let uses = || {
            (0..400_000u64).map(|n| {
                let drawn = (spread(n) % (1 << 20)) as f64 / f64::from(1 << 20);
                (drawn.powi(3) * extents as f64) as u64
            })
        };
        let found = ratios(extents, slots, uses());
        for (ratio, quarters) in found.iter().zip(GHOST_QUARTERS) {
            let size = (slots * quarters / 4) as usize;
            // What was used last, in a tree by time and one by place.
            let (mut times, mut places) = (BTreeMap::new(), BTreeMap::new());
            let mut hits = 0u64;
            for (now, place) in uses().enumerate() {
                match places.insert(place, now) {
                    Some(before) => {
                        hits += 1;
                        times.remove(&before);
                    }
                    None if times.len() == size => {
                        let (_, oldest) = times.pop_first().expect("it is full");
                        places.remove(&oldest);
                    }
                    None => {}
                }
                times.insert(now, place);
            }
            let real = hits as f64 / 400_000.0;
            assert!(
                (ratio - real).abs() < 0.06,
                "{quarters} quarters: {ratio:.3}, really {real:.3}"
            );
        }
    }

    #[test]
    fn writes_keep_an_extent_warm_and_are_not_counted() {
        let mut ghosts = Ghosts::new(1000, 4);
        for round in 0..400 {
            ghosts.used(ExtentId(7), false);
            (0..3).for_each(|n| ghosts.used(ExtentId(100 + (round * 3 + n) % 800), false));
            ghosts.used(ExtentId(7), true);
        }
        assert_eq!(ghosts.reads, 400);
        assert_eq!(ghosts.hit_ratios().unwrap()[2..], [1.0; 3]);
    }

    #[test]
    fn nothing_is_told_of_nothing() {
        assert_eq!(Ghosts::new(10, 0).hit_ratios(), None);
    }
}
