//! Writes that a disk has taken into its cache and not yet brought to the platters.
//!
//! * Writes that touch become one run; runs never overlap.
//! * The run that is being written has been taken out, but its bytes count until it is done.
//! * Each run remembers its oldest write, so that a flush knows what it waits for.

use std::collections::BTreeMap;

use super::geometry::Place;

/// A run of bytes to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) start: u64,
    pub(super) end: u64,
    /// Where its first byte lies.
    pub(super) place: Place,
    /// The number of its oldest write.
    pub(super) oldest: u64,
}

/// See the head of the file.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    /// By their first byte.
    runs: BTreeMap<u64, Run>,
    /// Bytes of the runs and of what is being written.
    bytes: u64,
    /// Number of the latest write.
    sequence: u64,
    bytes_max: u64,
    runs_max: usize,
}

impl Pool {
    pub(super) fn new(bytes_max: u64, runs_max: usize) -> Pool {
        Pool { runs: BTreeMap::new(), bytes: 0, sequence: 0, bytes_max, runs_max }
    }

    /// The number of the latest write: what a flush covers.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The oldest write that is still waiting.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.runs.values().map(|run| run.oldest).min()
    }

    /// Whether there is room for a write; an empty pool takes any.
    pub(super) fn has_room(&self, at: u64, length: u64) -> bool {
        if self.bytes == 0 {
            return true;
        }
        let joins = || self.runs.range(..=at).next_back().is_some_and(|(_, run)| run.end >= at);
        self.bytes + length <= self.bytes_max && (self.runs.len() < self.runs_max || joins())
    }

    /// Whether all of the range waits here: a read of it needs no platter.
    pub(super) fn holds(&self, start: u64, end: u64) -> bool {
        self.runs.range(..=start).next_back().is_some_and(|(_, run)| run.end >= end)
    }

    /// Takes a write. `place` says where a byte lies.
    pub(super) fn put(&mut self, at: u64, length: u64, place: impl Fn(u64) -> Place) {
        self.sequence += 1;
        let (mut start, mut end, mut oldest) = (at, at + length, self.sequence);
        // Backwards from the end: runs do not overlap, so the first that ends before is the last
        // one that can touch.
        while let Some((&first, run)) = self.runs.range(..=end).next_back() {
            if run.end < start {
                break;
            }
            let run = self.runs.remove(&first).expect("just seen");
            self.bytes -= run.end - run.start;
            (start, end) = (start.min(run.start), end.max(run.end));
            oldest = oldest.min(run.oldest);
        }
        self.bytes += end - start;
        self.runs.insert(start, Run { start, end, place: place(start), oldest });
    }

    /// The run that costs least to get at.
    pub(super) fn nearest(&self, cost_ns: impl Fn(&Run) -> f64) -> Option<(Run, f64)> {
        let mut best: Option<(&Run, f64)> = None;
        for run in self.runs.values() {
            let cost_ns = cost_ns(run);
            if best.is_none_or(|(_, least_ns)| cost_ns < least_ns) {
                best = Some((run, cost_ns));
            }
        }
        best.map(|(run, cost_ns)| (*run, cost_ns))
    }

    /// Takes out up to `length_max` bytes from the front of a run, for writing.
    pub(super) fn take(
        &mut self,
        run: &Run,
        length_max: u64,
        place: impl Fn(u64) -> Place,
    ) -> (u64, u64) {
        let run = self.runs.remove(&run.start).expect("a run of this pool");
        let end = run.end.min(run.start + length_max);
        if end < run.end {
            self.runs.insert(end, Run { start: end, place: place(end), ..run });
        }
        (run.start, end - run.start)
    }

    /// What was taken out has been written.
    pub(super) fn written(&mut self, length: u64) {
        self.bytes -= length;
    }

    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somewhere(_: u64) -> Place {
        Place { turns: 0.0, stroke: 0.0 }
    }

    #[test]
    fn writes_that_touch_become_one_run() {
        let mut pool = Pool::new(1 << 20, 8);
        for at in [0, 8192, 40960, 4096, 0] {
            pool.put(at, 4096, somewhere);
        }
        let (first, _) = pool.nearest(|run| run.start as f64).unwrap();
        assert_eq!((first.start, first.end, first.oldest), (0, 12288, 1));
        assert!(pool.holds(4096, 12288) && !pool.holds(8192, 16384));
        assert_eq!(pool.take(&first, 8192, somewhere), (0, 8192));
        assert_eq!((pool.bytes, pool.runs.len(), pool.oldest()), (16384, 2, Some(1)));
        pool.written(8192);
        assert_eq!(pool.bytes, 8192);
    }

    #[test]
    fn a_pool_is_full_by_bytes_or_by_runs() {
        let mut pool = Pool::new(64 << 10, 2);
        assert!(pool.has_room(0, 1 << 20), "an empty one takes any");
        pool.put(0, 4096, somewhere);
        pool.put(1 << 20, 4096, somewhere);
        assert!(!pool.has_room(2 << 20, 4096), "a third run");
        assert!(pool.has_room(4096, 4096), "joins the first");
        assert!(!pool.has_room(4096, 60 << 10), "too many bytes");
    }
}
