//! How often each extent is touched, with recent touches counting more.
//!
//! One decayed sum per extent, kept as a logarithm: `log2 Σ weight · 2^(t/H)`, where `t` counts
//! touches of the whole volume and `H` is the half-life in touches. So nothing has to be aged:
//! the order of two extents changes only when one is touched, and an idle night cools nothing.
//! 16 bits per extent: 11 integer bits (half-lives) and 5 of fraction. 0: never touched.

use crate::interface::ExtentId;

/// Fraction bits: steps of 2^(1/32), 2 % in the count, far below what a decision needs.
const FRACTION_BITS: u32 = 5;
const ONE: u32 = 1 << FRACTION_BITS;

/// When the clock reaches this many half-lives, all values are lowered (see `rebase`).
const REBASE_AT: u32 = 1900 * ONE;
const REBASE_BY: u32 = 1500 * ONE;

/// How much a touch counts, as a logarithm in steps of 1/32.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Weight(i32);

impl Weight {
    /// The least: its sum with the clock stays above 0.
    const LEAST: f64 = -15.0;

    /// Of a share of what a read that must position counts; none of 0.
    pub fn of(share: f64) -> Option<Weight> {
        let log2 = share.log2().max(Weight::LEAST);
        (share > 0.0).then(|| Weight((log2 * f64::from(ONE)).round() as i32))
    }
}

/// A count as it is remembered beyond a session: its logarithm in steps of an eighth, from 2^-12 to 2^20.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HeatLevel(pub u8);

impl HeatLevel {
    const COUNT: usize = 256;
    /// The level of a count of 1.
    const OF_ONE: i32 = 96;
    /// In steps of the counts' own logarithm.
    const STEP: i32 = ONE as i32 / 8;

    /// Of a count's logarithm, in steps of 1/32; `None`: too small to be worth it.
    fn of_log2(log2: i32) -> Option<HeatLevel> {
        let level = log2.div_euclid(HeatLevel::STEP) + HeatLevel::OF_ONE;
        (level >= 0).then(|| HeatLevel(level.min(HeatLevel::COUNT as i32 - 1) as u8))
    }

    fn log2(self) -> i32 {
        (i32::from(self.0) - HeatLevel::OF_ONE) * HeatLevel::STEP
    }
}

/// Of so many extents one bit says whether any was ever touched: a large volume is mostly untouched.
const CHUNK: usize = 4096;

pub(crate) struct Counts {
    values: Vec<u16>,
    touched_chunks: Vec<u64>,
    /// Touches per half-life.
    half_life: u64,
    touches: u64,
    /// Clock value at `touches` 0, after rebasing.
    base: u32,
    /// `32 · 256 · log2(1 + 2^(-d/32))` for differences `d`: what adding a smaller term does, in
    /// 1/256 steps. They are dithered by the touch count, so that large counts grow too.
    sums: [u16; 512],
}

impl Counts {
    /// For so many extents, of which the fast drive holds `fast_slots`: the half-life is 16 touches
    /// per slot, long enough to tell extents apart and short enough to follow a change.
    pub fn new(extents: u64, fast_slots: u64) -> Counts {
        let mut sums = [0; 512];
        for (difference, sum) in sums.iter_mut().enumerate() {
            let ratio = (-(difference as f64) / f64::from(ONE)).exp2();
            *sum = ((1.0 + ratio).log2() * f64::from(ONE) * 256.0).round() as u16;
        }
        Counts {
            values: vec![0; extents as usize],
            touched_chunks: vec![0; (extents as usize).div_ceil(64 * CHUNK)],
            half_life: (fast_slots * 16).max(1024),
            touches: 0,
            // Above every weight, so that no value is below 1.
            base: 16 * ONE,
            sums,
        }
    }

    /// Counts a touch, or lets only the clock go on. True when all ranks have changed with it.
    pub fn touch(&mut self, extent: ExtentId, weight: Option<Weight>) -> bool {
        self.touches += 1;
        let now = self.clock();
        if let Some(weight) = weight {
            self.add(extent, now, weight);
        }
        let rebased = now >= REBASE_AT;
        if rebased {
            self.rebase();
        }
        rebased
    }

    fn add(&mut self, extent: ExtentId, now: u32, weight: Weight) {
        let term = (now as i32 + weight.0) as u32;
        self.remember_chunk(extent);
        let value = &mut self.values[extent.index()];
        let (large, small) = if u32::from(*value) > term {
            (u32::from(*value), term)
        } else {
            (term, u32::from(*value))
        };
        let dither = (self.touches.wrapping_mul(157) & 0xff) as u32;
        let sum = match self.sums.get((large - small) as usize) {
            // An odd factor visits every remainder: no bias, and the same in every run.
            Some(more) if small > 0 => large + (u32::from(*more) + dither) / 256,
            _ => large,
        };
        *value = sum.min(u32::from(u16::MAX)) as u16;
    }

    fn remember_chunk(&mut self, extent: ExtentId) {
        let chunk = extent.index() / CHUNK;
        self.touched_chunks[chunk / 64] |= 1 << (chunk % 64);
    }

    /// The values of all extents that were ever touched, and of their neighbours.
    fn near_touched(&self) -> impl Iterator<Item = (ExtentId, u16)> {
        let chunks = self.values.chunks(CHUNK).enumerate();
        let touched = |chunk: usize| self.touched_chunks[chunk / 64] >> (chunk % 64) & 1 != 0;
        chunks.filter(move |(chunk, _)| touched(*chunk)).flat_map(|(chunk, values)| {
            let first = chunk * CHUNK;
            let at =
                move |(place, value): (usize, &u16)| (ExtentId((first + place) as u64), *value);
            values.iter().enumerate().map(at)
        })
    }

    /// What the counts of two extents are compared by; it changes only when the extent is touched.
    pub fn rank(&self, extent: ExtentId) -> u16 {
        self.values[extent.index()]
    }

    /// The decayed count of an extent now.
    pub fn count(&self, extent: ExtentId) -> f32 {
        match self.values[extent.index()] {
            0 => 0.0,
            value => ((f32::from(value) - self.clock() as f32) / ONE as f32).exp2(),
        }
    }

    /// The extents with the largest counts, at most so many, in the order of their numbers, each with its
    /// level. Looks at all that were ever touched twice.
    pub fn hottest(&self, most: usize) -> Vec<(ExtentId, HeatLevel)> {
        let clock = self.clock() as i32;
        let level_of = |value: u16| match value {
            0 => None,
            value => HeatLevel::of_log2(i32::from(value) - clock),
        };
        let mut having = [0_usize; HeatLevel::COUNT];
        for level in self.near_touched().filter_map(|(_, value)| level_of(value)) {
            having[usize::from(level.0)] += 1;
        }
        let mut room = most;
        let mut least = HeatLevel::COUNT;
        while least > 0 && having[least - 1] <= room {
            least -= 1;
            room -= having[least];
        }
        // Of the first level that does not fit whole, as many as there is room for.
        let mut chosen = Vec::with_capacity(most - room);
        for (extent, value) in self.near_touched() {
            let Some(level) = level_of(value) else { continue };
            let rank = usize::from(level.0);
            if rank < least {
                if rank + 1 < least || room == 0 {
                    continue;
                }
                room -= 1;
            }
            chosen.push((extent, level));
        }
        chosen
    }

    /// The extent had such a count when it was last known.
    pub fn recall(&mut self, extent: ExtentId, level: HeatLevel) {
        if let Some(value) = self.values.get_mut(extent.index()) {
            let recalled = self.base as i32 + level.log2();
            *value = recalled.clamp(1, i32::from(u16::MAX)) as u16;
            self.remember_chunk(extent);
        }
    }

    pub fn extents(&self) -> u64 {
        self.values.len() as u64
    }

    pub fn memory_bytes(&self) -> u64 {
        self.values.len() as u64 * 2 + self.touched_chunks.len() as u64 * 8
    }

    fn clock(&self) -> u32 {
        self.base + (self.touches * u64::from(ONE) / self.half_life) as u32
    }

    /// Lowers every value alike; what was 1,500 half-lives old is forgotten. Once in about 10^9
    /// touches, one pass over the table.
    fn rebase(&mut self) {
        self.base = self.clock() - REBASE_BY;
        self.touches = 0;
        for value in &mut self.values {
            *value = value.saturating_sub(REBASE_BY as u16);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_share_counts_next_to_nothing_from_the_first_touch_on() {
        let mut counts = Counts::new(2, 1000);
        for share in [1e-300, 1e-9, f64::MIN_POSITIVE] {
            counts.touch(ExtentId(0), Weight::of(share));
        }
        counts.touch(ExtentId(1), Weight::of(1.0));
        assert!(counts.count(ExtentId(0)) < 1e-3 && counts.count(ExtentId(1)) > 0.9);
        assert_eq!(Weight::of(0.0), None);
    }

    const READ: Option<Weight> = Some(Weight(0));

    fn light() -> Option<Weight> {
        Weight::of(0.1)
    }

    #[test]
    fn touches_add_up_and_decay_by_half() {
        let mut counts = Counts::new(10, 64);
        for _ in 0..8 {
            counts.touch(ExtentId(1), READ);
        }
        let before = counts.count(ExtentId(1));
        assert!((7.0..9.0).contains(&before), "{before}");
        for _ in 0..1024 {
            counts.touch(ExtentId(2), light());
        }
        let after = counts.count(ExtentId(1));
        assert!((0.45..0.55).contains(&(after / before)), "{after}");
        assert_eq!(counts.count(ExtentId(3)), 0.0);
    }

    #[test]
    fn a_light_touch_counts_a_tenth() {
        let mut counts = Counts::new(10, 64);
        counts.touch(ExtentId(1), READ);
        counts.touch(ExtentId(2), light());
        let ratio = counts.count(ExtentId(1)) / counts.count(ExtentId(2));
        assert!((9.0..11.0).contains(&ratio), "{ratio}");
    }

    #[test]
    fn what_is_remembered_comes_back_as_it_was() {
        let mut counts = Counts::new(10, 64);
        for (extent, touches) in [(1, 9), (2, 4), (3, 1)] {
            for _ in 0..touches {
                counts.touch(ExtentId(extent), READ);
            }
        }
        counts.touch(ExtentId(7), light());
        let all = counts.hottest(10);
        assert_eq!(all.iter().map(|(extent, _)| extent.0).collect::<Vec<_>>(), [1, 2, 3, 7]);
        let two: Vec<_> = counts.hottest(2).iter().map(|(extent, _)| extent.0).collect();
        assert_eq!(two, [1, 2], "the hottest, in the order of their numbers");
        let mut later = Counts::new(8, 64);
        for (extent, level) in all {
            later.recall(extent, level);
        }
        later.recall(ExtentId(8), HeatLevel(255));
        let found: Vec<_> = later.hottest(10).iter().map(|(extent, _)| extent.0).collect();
        assert_eq!(found, [1, 2, 3, 7], "what is remembered is remembered again");
        for extent in [1, 2, 3, 7].map(ExtentId) {
            let ratio = later.count(extent) / counts.count(extent);
            assert!((0.88..1.02).contains(&ratio), "{extent:?}: {ratio}");
        }
        assert_eq!(later.count(ExtentId(0)), 0.0);
    }

    #[test]
    fn whatever_lies_between_them_the_touched_are_found() {
        let mut counts = Counts::new(5_000_000, 64);
        let touched = [0, 4095, 4096, 262_144 * 9, 4_999_999].map(ExtentId);
        touched.iter().for_each(|extent| _ = counts.touch(*extent, READ));
        let found: Vec<ExtentId> = counts.hottest(10).iter().map(|(extent, _)| *extent).collect();
        assert_eq!(found, touched);
    }

    #[test]
    fn of_those_that_are_equal_as_many_are_remembered_as_there_is_room_for() {
        let mut counts = Counts::new(100, 64);
        for extent in 0..100 {
            counts.touch(ExtentId(extent), READ);
        }
        assert_eq!(counts.hottest(30).len(), 30);
        assert_eq!(counts.hottest(0).len(), 0);
    }

    #[test]
    fn the_order_survives_a_rebase() {
        let mut counts = Counts::new(10, 64);
        for touch in 0..2_500_000 {
            counts.touch(ExtentId(touch % 4), READ);
            if touch % 2 == 0 {
                counts.touch(ExtentId(5), READ);
            }
        }
        assert!(counts.count(ExtentId(5)) > counts.count(ExtentId(1)));
        assert!(counts.count(ExtentId(1)) > 50.0);
        assert_eq!(counts.count(ExtentId(7)), 0.0);
    }
}
