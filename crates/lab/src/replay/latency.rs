//! How long requests took.

use serde::Serialize;

use crate::fio::Latencies;

/// A distribution in a few numbers, in microseconds; all 0 when nothing was measured.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Latency {
    /// Of so many requests.
    pub count: u64,
    /// Mean.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// 999 of 1000 took no longer.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl Latency {
    pub(super) fn of(latencies: &Latencies) -> Latency {
        let at = |percent| latencies.percentile(percent) as f64 / 1e3;
        Latency {
            count: latencies.count(),
            mean_us: latencies.mean() / 1e3,
            p50_us: at(50.0),
            p99_us: at(99.0),
            p999_us: at(99.9),
            max_us: latencies.max() as f64 / 1e3,
        }
    }
}
