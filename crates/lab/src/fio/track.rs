//! What a job did over time, in slices, and as fio's log files.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::job::{Direction, PerDirection};

/// Length of a slice: what fio averages bandwidth over.
pub(super) const SLICE_NS: u64 = 500_000_000;

/// What happened in one direction within one slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Slice {
    /// Requests that ended.
    pub requests: u64,
    /// Bytes they moved.
    pub bytes: u64,
    /// How long they took together (ns).
    pub latency_ns: u64,
}

/// A job over time, from its beginning.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Track {
    slices: Vec<PerDirection<Slice>>,
}

impl Track {
    pub(super) fn note(
        &mut self,
        direction: Direction,
        since_ns: u64,
        bytes: u64,
        latency_ns: u64,
    ) {
        let index = (since_ns / SLICE_NS) as usize;
        if self.slices.len() <= index {
            self.slices.resize_with(index + 1, PerDirection::default);
        }
        let slice = self.slices[index].get_mut(direction);
        slice.requests += 1;
        slice.bytes += bytes;
        slice.latency_ns += latency_ns;
    }

    pub(super) fn add(&mut self, other: &Track) {
        if self.slices.len() < other.slices.len() {
            self.slices.resize_with(other.slices.len(), PerDirection::default);
        }
        for (ours, theirs) in self.slices.iter_mut().zip(&other.slices) {
            for direction in Direction::ALL {
                let (ours, theirs) = (ours.get_mut(direction), theirs.get(direction));
                ours.requests += theirs.requests;
                ours.bytes += theirs.bytes;
                ours.latency_ns += theirs.latency_ns;
            }
        }
    }

    /// One direction's slices of half a second, in order.
    pub fn slices(&self, direction: Direction) -> impl Iterator<Item = Slice> + '_ {
        self.slices.iter().map(move |slices| *slices.get(direction))
    }

    /// Those slices whose whole length the job was at work, for averages.
    pub(super) fn whole(
        &self,
        direction: Direction,
        runtime_ns: u64,
    ) -> impl Iterator<Item = Slice> + '_ {
        self.slices(direction).take((runtime_ns / SLICE_NS) as usize)
    }

    /// As a fio log: milliseconds, value, direction, block size, offset, priority.
    pub(super) fn log(&self, value: impl Fn(&Slice) -> u64) -> String {
        let mut text = String::new();
        for (index, slices) in self.slices.iter().enumerate() {
            for direction in Direction::ALL {
                let slice = slices.get(direction);
                if let Some(block) = slice.bytes.checked_div(slice.requests) {
                    let end_ms = (index as u64 + 1) * SLICE_NS / 1_000_000;
                    let (value, direction) = (value(slice), direction.index());
                    writeln!(text, "{end_ms}, {value}, {direction}, {block}, 0, 0")
                        .expect("a string takes any text");
                }
            }
        }
        text
    }

    /// The log of bandwidth, in KiB/s.
    pub fn bandwidth_log(&self) -> String {
        self.log(|slice| slice.bytes * 1_000_000_000 / SLICE_NS / 1024)
    }

    /// The log of requests per second.
    pub fn iops_log(&self) -> String {
        self.log(|slice| slice.requests * 1_000_000_000 / SLICE_NS)
    }

    /// The log of mean completion latencies, in ns.
    pub fn latency_log(&self) -> String {
        self.log(|slice| slice.latency_ns / slice.requests)
    }
}
