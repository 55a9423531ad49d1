//! What a flush costs on a drive, and whether that can be true.
//!
//! One thread, one request at a time: a block is written over and over, with and without a flush
//! after each, for several block sizes; on a file system also small files are made, with and
//! without. Blocks get the content back that they had: the drive is left as it was found.

mod plausible;
mod small_files;

use hdrhistogram::Histogram;
use io::{Device, IoError};
use serde::Serialize;

pub use plausible::{DriveFacts, Opinion, Plausibility};
pub use small_files::small_files;

/// Sizes of the rewritten blocks, in bytes; a drive's own sector where that is larger.
const BLOCK_BYTES: [usize; 4] = [512, 4096, 16384, 65536];

/// Operations of one case at most: enough for a 99th percentile, and a bound on wear.
const OPERATIONS_MAX: u64 = 20_000;

/// Latencies are recorded up to this (ns), 10 minutes, with two digits.
const LATENCY_NS_MAX: u64 = 600_000_000_000;

/// One case: what was done, how often, and how long it took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Case {
    /// "raw rewrite" or "small files".
    pub workload: &'static str,
    /// Bytes of each write.
    pub block_bytes: u64,
    /// A flush follows each write.
    pub flushed: bool,
    /// Writes (each with its flush) done.
    pub operations: u64,
    /// Of them per second.
    pub rate_per_s: f64,
    /// Write and flush together, in ns.
    pub latency_ns: Spread,
    /// The flush alone, in ns.
    pub flush_ns: Option<Spread>,
}

/// A distribution of latencies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The smallest.
    pub min: u64,
    /// Half are not above.
    pub p50: u64,
    /// Nine of ten are not above.
    pub p90: u64,
    /// 99 of a hundred are not above.
    pub p99: u64,
    /// The largest.
    pub max: u64,
}

/// A clock for one case.
pub(crate) struct Stopwatch {
    began_ns: u64,
    budget_ns: u64,
    whole: Histogram<u64>,
    flush: Histogram<u64>,
}

impl Stopwatch {
    pub(crate) fn new(began_ns: u64, budget_ns: u64) -> Stopwatch {
        let histogram =
            || Histogram::new_with_bounds(1, LATENCY_NS_MAX, 2).expect("constant bounds are valid");
        Stopwatch { began_ns, budget_ns, whole: histogram(), flush: histogram() }
    }

    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        now_ns - self.began_ns >= self.budget_ns || self.whole.len() >= OPERATIONS_MAX
    }

    /// An operation has ended; its flush, if any, began at `flush_ns`.
    pub(crate) fn note(&mut self, began_ns: u64, flush_ns: Option<u64>, ended_ns: u64) {
        self.whole.saturating_record((ended_ns - began_ns).max(1));
        if let Some(flush_ns) = flush_ns {
            self.flush.saturating_record((ended_ns - flush_ns).max(1));
        }
    }

    pub(crate) fn case(&self, workload: &'static str, block_bytes: usize, now_ns: u64) -> Case {
        let seconds = (now_ns - self.began_ns).max(1) as f64 / 1e9;
        let flushed = !self.flush.is_empty();
        Case {
            workload,
            block_bytes: block_bytes as u64,
            flushed,
            operations: self.whole.len(),
            rate_per_s: self.whole.len() as f64 / seconds,
            latency_ns: spread(&self.whole),
            flush_ns: flushed.then(|| spread(&self.flush)),
        }
    }
}

fn spread(histogram: &Histogram<u64>) -> Spread {
    Spread {
        min: histogram.min(),
        p50: histogram.value_at_quantile(0.5),
        p90: histogram.value_at_quantile(0.9),
        p99: histogram.value_at_quantile(0.99),
        max: histogram.max(),
    }
}

/// The block sizes that the drive can be given.
pub fn block_sizes(device: &Device) -> Vec<usize> {
    let sector_bytes = device.info().sector_bytes as usize;
    BLOCK_BYTES.into_iter().filter(|bytes| bytes.is_multiple_of(sector_bytes)).collect()
}

/// Writes the block at byte `at` over and over for `budget_ns`, at least once.
pub async fn raw_rewrite(
    device: &Device,
    at: u64,
    block_bytes: usize,
    flushed: bool,
    budget_ns: u64,
) -> Result<Case, IoError> {
    let io = device.io();
    let (mut buf, outcome) = device.read(at, io.pool().take(block_bytes)).await;
    outcome?;
    // What earlier cases left in the cache is not this one's to flush.
    device.flush().await?;
    let mut watch = Stopwatch::new(io.now_ns(), budget_ns);
    loop {
        let began_ns = io.now_ns();
        let (back, outcome) = device.write(at, buf).await;
        outcome?;
        buf = back;
        let flush_ns = flushed.then(|| io.now_ns());
        if flushed {
            device.flush().await?;
        }
        let now_ns = io.now_ns();
        watch.note(began_ns, flush_ns, now_ns);
        if watch.is_over(now_ns) {
            device.flush().await?;
            return Ok(watch.case("raw rewrite", block_bytes, now_ns));
        }
    }
}

#[cfg(test)]
mod tests;
