//! Writes that a drive or a controller has taken into its cache and not yet brought further.
//!
//! * Writes that touch become one run; runs never overlap.
//! * The run that is being written has been taken out, but its bytes count until it is done.
//! * Each run remembers its oldest write, so that a flush knows what it waits for, and a place,
//!   whatever that is to its owner.

use std::collections::BTreeMap;

/// A run of bytes to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<P> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Where its first byte lies.
    pub(crate) place: P,
    /// The number of its oldest write.
    pub(crate) oldest: u64,
}

/// See the head of the file.
#[derive(Debug, Clone)]
pub(crate) struct Pool<P> {
    /// By their first byte.
    runs: BTreeMap<u64, Run<P>>,
    /// Bytes of the runs and of what is being written.
    bytes: u64,
    /// Number of the latest write.
    sequence: u64,
    bytes_max: u64,
    runs_max: usize,
}

impl<P: Copy> Pool<P> {
    pub(crate) fn new(bytes_max: u64, runs_max: usize) -> Pool<P> {
        Pool { runs: BTreeMap::new(), bytes: 0, sequence: 0, bytes_max, runs_max }
    }

    /// The number of the latest write: what a flush covers.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The oldest write that is still waiting.
    pub(crate) fn oldest(&self) -> Option<u64> {
        self.runs.values().map(|run| run.oldest).min()
    }

    /// Whether there is room for a write; an empty pool takes any.
    pub(crate) fn has_room(&self, at: u64, length: u64) -> bool {
        if self.bytes == 0 {
            return true;
        }
        let joins = || self.runs.range(..=at).next_back().is_some_and(|(_, run)| run.end >= at);
        self.bytes + length <= self.bytes_max && (self.runs.len() < self.runs_max || joins())
    }

    /// Whether all of the range waits here: a read of it needs no platter.
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        self.runs.range(..=start).next_back().is_some_and(|(_, run)| run.end >= end)
    }

    /// Takes a write. `place` says where a byte lies.
    pub(crate) fn put(&mut self, at: u64, length: u64, place: impl Fn(u64) -> P) {
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
    pub(crate) fn nearest(&self, cost_ns: impl Fn(&Run<P>) -> f64) -> Option<(Run<P>, f64)> {
        let mut best: Option<(&Run<P>, f64)> = None;
        for run in self.runs.values() {
            let cost_ns = cost_ns(run);
            if best.is_none_or(|(_, least_ns)| cost_ns < least_ns) {
                best = Some((run, cost_ns));
            }
        }
        best.map(|(run, cost_ns)| (*run, cost_ns))
    }

    /// The first run at or behind that byte, else the first of all.
    pub(crate) fn onward(&self, at: u64) -> Option<Run<P>> {
        let next = self.runs.range(at..).next().or_else(|| self.runs.iter().next());
        next.map(|(_, run)| *run)
    }

    /// Bytes that wait or are being written.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Runs that wait.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Takes out up to `length_max` bytes from the front of a run, for writing.
    pub(crate) fn take(
        &mut self,
        run: &Run<P>,
        length_max: u64,
        place: impl Fn(u64) -> P,
    ) -> (u64, u64) {
        let run = self.runs.remove(&run.start).expect("a run of this pool");
        let end = run.end.min(run.start + length_max);
        if end < run.end {
            self.runs.insert(end, Run { start: end, place: place(end), ..run });
        }
        (run.start, end - run.start)
    }

    /// What was taken out has been written.
    pub(crate) fn written(&mut self, length: u64) {
        self.bytes -= length;
    }

    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somewhere(_: u64) {}

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
