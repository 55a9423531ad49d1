//! Miss-ratio curves: for each size of a cache that keeps what was used last, which share of the reads
//! it would miss.
//!
//! Exact by stack distances (Mattson and others, 1970), counted with a tree of sums; or from a
//! sample of the places (SHARDS, Waldspurger and others, FAST '15), which needs memory and time only
//! for the sample. A sample of few places is wrong: [`MissRatioCurve::error_from`] says how much.

use std::collections::HashMap;

use policy::{Sums, spread};

use crate::trace::{Deed, Event};

/// Places sampled are those whose hash is below a share of this.
const HASH_SPACE: u64 = 1 << 24;

/// Reads by how many distinct places were used since their own was.
#[derive(Debug, Clone)]
pub struct MissRatioCurve {
    unit_bytes: u64,
    /// At `n`: reads that a cache of `n + 1` units hits and one of `n` does not.
    hits_at: Vec<f64>,
    reads: f64,
    /// Distinct places that were followed.
    pub places: u64,
    /// Distinct places, estimated from those.
    pub touched_bytes: u64,
}

impl MissRatioCurve {
    /// Of all places, in units of so many bytes.
    pub fn exact(events: &[Event], unit_bytes: u64) -> MissRatioCurve {
        MissRatioCurve::sampled(events, unit_bytes, 1.0)
    }

    /// Of a share of the places, above 0 and at most 1.
    pub fn sampled(events: &[Event], unit_bytes: u64, share: f64) -> MissRatioCurve {
        assert!(share > 0.0 && share <= 1.0, "a share of the places");
        let threshold = ((share * HASH_SPACE as f64) as u64).max(1);
        let share = threshold as f64 / HASH_SPACE as f64;
        let accesses: Vec<(u64, bool)> = events
            .iter()
            .filter(|event| matches!(event.deed, Deed::Read | Deed::Write) && event.length > 0)
            .flat_map(|event| {
                let end = event.offset + event.length;
                let is_read = event.deed == Deed::Read;
                (event.offset / unit_bytes..end.div_ceil(unit_bytes)).map(move |at| (at, is_read))
            })
            .filter(|(at, _)| spread(*at) % HASH_SPACE < threshold)
            .collect();
        let mut last_use: HashMap<u64, usize> = HashMap::new();
        let mut marks = Sums::new(accesses.len());
        let mut hits_at: Vec<f64> = Vec::new();
        let mut reads = 0.0;
        for (now, (at, is_read)) in accesses.iter().enumerate() {
            let before = last_use.insert(*at, now);
            if let Some(before) = before {
                let between = marks.up_to(now) - marks.up_to(before + 1);
                marks.add(before, -1);
                if *is_read {
                    let distance = (between as f64 / share) as usize;
                    if hits_at.len() <= distance {
                        hits_at.resize(distance + 1, 0.0);
                    }
                    hits_at[distance] += 1.0;
                }
            }
            marks.add(now, 1);
            reads += f64::from(u8::from(*is_read));
        }
        let places = last_use.len() as u64;
        let touched_bytes = (places as f64 / share) as u64 * unit_bytes;
        MissRatioCurve { unit_bytes, hits_at, reads, places, touched_bytes }
    }

    /// The share of reads that a cache of so many bytes misses; 1 where nothing was read.
    pub fn at(&self, bytes: u64) -> f64 {
        if self.reads == 0.0 {
            return 1.0;
        }
        let units = ((bytes / self.unit_bytes) as usize).min(self.hits_at.len());
        1.0 - self.hits_at[..units].iter().sum::<f64>() / self.reads
    }

    /// Mean and largest difference to another curve, at each hundredth of what is touched.
    pub fn error_from(&self, other: &MissRatioCurve) -> (f64, f64) {
        let step = (self.touched_bytes / 100).max(self.unit_bytes);
        let differences: Vec<f64> =
            (1..=100).map(|n| (self.at(n * step) - other.at(n * step)).abs()).collect();
        let mean = differences.iter().sum::<f64>() / differences.len() as f64;
        (mean, differences.into_iter().fold(0.0, f64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(places: impl IntoIterator<Item = u64>) -> Vec<Event> {
        let event = |n| Event { at_us: 0, deed: Deed::Read, offset: n * 4096, length: 4096 };
        places.into_iter().map(event).collect()
    }

    #[test]
    fn a_loop_hits_only_in_a_cache_that_holds_all_of_it() {
        let curve = MissRatioCurve::exact(&reads((0..10).cycle().take(1000)), 4096);
        assert_eq!(curve.at(9 * 4096), 1.0);
        assert!((curve.at(10 * 4096) - 0.01).abs() < 1e-9);
        assert_eq!((curve.places, curve.touched_bytes), (10, 40960));
    }

    #[test]
    fn distances_are_those_of_a_real_cache() {
        let places = || (0..5_000u64).map(|n| spread(n) % (1 + spread(n * 3) % 200));
        let curve = MissRatioCurve::exact(&reads(places()), 4096);
        for size in [1usize, 10, 50, 150] {
            let mut cache: Vec<u64> = Vec::new();
            let mut misses = 0;
            for place in places() {
                match cache.iter().position(|there| *there == place) {
                    Some(position) => drop(cache.remove(position)),
                    None => {
                        misses += 1;
                        cache.truncate(size - 1);
                    }
                }
                cache.insert(0, place);
            }
            let expected = f64::from(misses) / 5_000.0;
            assert!((curve.at(size as u64 * 4096) - expected).abs() < 1e-9, "{size}");
        }
    }

    #[test]
    fn writes_use_places_and_are_no_misses() {
        let mut events = reads([0, 1]);
        events.insert(0, Event { deed: Deed::Write, ..events[0] });
        let curve = MissRatioCurve::exact(&events, 4096);
        assert_eq!(curve.at(4096), 0.5);
        assert_eq!(MissRatioCurve::exact(&events[..1], 4096).at(1 << 30), 1.0);
    }

    #[test]
    fn a_sample_comes_near() {
        let places = (0..200_000u64).map(|n| spread(n) % (1 + spread(n * 3) % 20_000));
        let events = reads(places);
        let exact = MissRatioCurve::exact(&events, 4096);
        let sampled = MissRatioCurve::sampled(&events, 4096, 0.1);
        let (mean, worst) = exact.error_from(&sampled);
        assert!(mean < 0.02 && worst < 0.05, "{mean} {worst}");
        assert!(sampled.places < exact.places / 5);
    }
}
