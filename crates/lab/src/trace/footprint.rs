//! What a trace touches.

use std::collections::HashSet;

use super::{Deed, Event};

/// Unit in which data is counted: what file systems use.
const BLOCK_BYTES: u64 = 4096;

/// Sums over a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
pub struct Footprint {
    /// Requests of each kind.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// See `reads`.
    pub flushes: u64,
    /// See `reads`.
    pub discards: u64,
    /// Bytes asked for.
    pub read_bytes: u64,
    /// Bytes brought.
    pub write_bytes: u64,
    /// Distinct 4 KiB blocks read or written, in bytes.
    pub touched_bytes: u64,
    /// Distinct extents read or written.
    pub touched_extents: u64,
    /// End of the last byte touched.
    pub end: u64,
    /// From the first request to the last, in microseconds.
    pub duration_us: u64,
}

impl Footprint {
    /// Of these requests, with extents of so many bytes.
    pub fn of(events: &[Event], extent_bytes: u64) -> Footprint {
        let mut sum = Footprint::default();
        let mut blocks = HashSet::new();
        let mut extents = HashSet::new();
        for event in events {
            sum.duration_us = sum.duration_us.max(event.at_us);
            match event.deed {
                Deed::Read => {
                    sum.reads += 1;
                    sum.read_bytes += event.length;
                }
                Deed::Write => {
                    sum.writes += 1;
                    sum.write_bytes += event.length;
                }
                Deed::Flush => sum.flushes += 1,
                Deed::Discard => sum.discards += 1,
            }
            if !matches!(event.deed, Deed::Read | Deed::Write) || event.length == 0 {
                continue;
            }
            let end = event.offset + event.length;
            sum.end = sum.end.max(end);
            blocks.extend(event.offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES));
            extents.extend(event.offset / extent_bytes..end.div_ceil(extent_bytes));
        }
        sum.touched_bytes = blocks.len() as u64 * BLOCK_BYTES;
        sum.touched_extents = extents.len() as u64;
        sum
    }
}
