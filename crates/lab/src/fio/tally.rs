//! What was measured of one direction: counts, bytes, and how long requests took.

use hdrhistogram::Histogram;

/// Latencies are kept up to this (ns), ten minutes, with two digits: fio keeps less.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// A distribution of latencies, in ns.
#[derive(Debug, Clone)]
pub(crate) struct Latencies {
    histogram: Option<Histogram<u64>>,
    sum: u128,
    squares: f64,
    min: u64,
    max: u64,
}

impl Default for Latencies {
    fn default() -> Latencies {
        // Most of a job's are never used: the histogram's memory is taken with the first value.
        Latencies { histogram: None, sum: 0, squares: 0.0, min: u64::MAX, max: 0 }
    }
}

impl Latencies {
    pub fn note(&mut self, ns: u64) {
        self.histogram.get_or_insert_with(empty).saturating_record(ns.max(1));
        self.sum += u128::from(ns);
        self.squares += (ns as f64).powi(2);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    pub fn add(&mut self, other: &Latencies) {
        if let Some(theirs) = &other.histogram {
            let ours = self.histogram.get_or_insert_with(empty);
            ours.add(theirs).expect("both have the same bounds");
        }
        self.sum += other.sum;
        self.squares += other.squares;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Histogram::len)
    }

    pub fn min(&self) -> u64 {
        if self.count() == 0 { 0 } else { self.min }
    }

    pub fn max(&self) -> u64 {
        self.max
    }

    pub fn mean(&self) -> f64 {
        self.sum as f64 / self.count().max(1) as f64
    }

    pub fn deviation(&self) -> f64 {
        let count = self.count();
        if count < 2 {
            return 0.0;
        }
        let mean = self.mean();
        let spread = self.squares - mean * mean * count as f64;
        (spread.max(0.0) / (count - 1) as f64).sqrt()
    }

    /// That of a hundred, such as 99.9.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.histogram
            .as_ref()
            .map_or(0, |histogram| histogram.value_at_quantile(percent / 100.0).min(self.max))
    }

    /// How many are from `low` to below `high`.
    pub fn between(&self, low: u64, high: u64) -> u64 {
        self.histogram.as_ref().map_or(0, |histogram| histogram.count_between(low.max(1), high - 1))
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("constant bounds are valid")
}

/// One direction's requests.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub requests: u64,
    pub bytes: u64,
    pub latencies: Latencies,
}

impl Tally {
    pub fn note(&mut self, bytes: u64, ns: u64) {
        self.requests += 1;
        self.bytes += bytes;
        self.latencies.note(ns);
    }

    pub fn add(&mut self, other: &Tally) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.latencies.add(&other.latencies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact_and_percentiles_near() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|n| latencies.note(n * 1000));
        assert_eq!((latencies.count(), latencies.min(), latencies.max()), (1000, 1000, 1_000_000));
        assert!((latencies.mean() - 500_500.0).abs() < 1.0);
        assert!((latencies.deviation() - 288_819.4).abs() < 1.0, "{}", latencies.deviation());
        let median = latencies.percentile(50.0) as f64;
        assert!((median / 500_000.0 - 1.0).abs() < 0.01, "{median}");
        let mut twice = latencies.clone();
        twice.add(&latencies);
        assert_eq!((twice.count(), twice.max()), (2000, 1_000_000));
        assert_eq!(Latencies::default().percentile(99.0), 0);
    }
}
