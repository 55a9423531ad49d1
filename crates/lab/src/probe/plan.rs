//! What a drive is asked, so that its answers tell its numbers.
//!
//! * Reads of a stream at five places: the rates of a disk's zones. Random reads over shares of
//!   the drive: its seeks. Random reads at several depths: lanes, queue, electronics. Reads of
//!   growing size: where they are cut.
//! * Writes, if they are wanted, come behind all reads: streams first, so that a drive that was empty is still
//!   nearly so; flushes last.

use serde::{Deserialize, Serialize};

use crate::fio::Direction;

/// What a probe may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Of each measurement.
    pub seconds: u64,
    /// Of each measurement.
    pub bytes: u64,
    /// It may write.
    pub writes: bool,
}

/// One thing that a drive is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measure {
    /// Its name.
    pub id: String,
    /// Read or write.
    pub direction: Direction,
    /// Anywhere in the span, or one block after the other.
    pub random: bool,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests under way.
    pub depth: u64,
    /// First byte.
    pub from_bytes: u64,
    /// Bytes from there on that are used.
    pub span_bytes: u64,
    /// Each write is followed by a flush.
    pub flush: bool,
    /// It ended after so long at the latest (s).
    pub seconds_max: u64,
    /// It moved so many bytes at the most.
    pub bytes_max: u64,
}

/// A stream needs no more than this to tell its rate, and never meets itself within a measurement.
const STREAM_BYTES: u64 = 16 << 30;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Sizes of requests that tell where they are cut.
const SIZES_KIB: [u64; 7] = [64, 128, 256, 512, 1024, 2048, 4096];

/// The largest request and the deepest queue that a plan has.
const BLOCK_BYTES_MAX: u64 = 4 << 20;
const DEPTH_MAX: u64 = 64;

/// The least that can be probed: the largest requests need somewhere to go.
const SIZE_BYTES_MIN: u64 = 64 << 20;

/// The measurements of a drive of that size.
///
/// # Errors
/// When it is too small.
pub fn plan(size_bytes: u64, bounds: Bounds) -> Result<Vec<Measure>, String> {
    if size_bytes < SIZE_BYTES_MIN {
        return Err(format!(
            "{size_bytes} bytes are too few to be probed: {SIZE_BYTES_MIN} at least"
        ));
    }
    let size_bytes = size_bytes / MIB * MIB;
    let base = |id: String, direction, random, block_bytes, depth| Measure {
        id,
        direction,
        random,
        block_bytes,
        depth,
        from_bytes: 0,
        span_bytes: if random { size_bytes } else { STREAM_BYTES.min(size_bytes) },
        flush: false,
        seconds_max: bounds.seconds,
        bytes_max: bounds.bytes,
    };
    let read = |id: String, random, block, depth| base(id, Direction::Read, random, block, depth);
    let mut list = Vec::new();
    for percent in [0, 25, 50, 75, 100] {
        let span_bytes = STREAM_BYTES.min(size_bytes / 8) / MIB * MIB;
        let from_bytes = (size_bytes - span_bytes) / 100 * percent / MIB * MIB;
        let measure = read(format!("seq-read-1m-at-{percent:03}"), false, MIB, 1);
        list.push(Measure { from_bytes, span_bytes, ..measure });
    }
    list.push(read("seq-read-1m-d8".to_owned(), false, MIB, 8));
    list.push(read("seq-read-4k".to_owned(), false, 4 * KIB, 1));
    for (name, parts) in [("0.1", 1000), ("1", 100), ("10", 10), ("100", 1)] {
        let span_bytes = (size_bytes / parts / MIB * MIB).max(SIZE_BYTES_MIN);
        let measure = read(format!("rand-read-4k-over-{name}-percent"), true, 4 * KIB, 1);
        list.push(Measure { span_bytes, ..measure });
    }
    for depth in [4, 8, 32, DEPTH_MAX] {
        list.push(read(format!("rand-read-4k-d{depth}"), true, 4 * KIB, depth));
    }
    for kib in SIZES_KIB {
        list.push(read(format!("rand-read-{kib}k"), true, kib * KIB, 1));
    }
    if bounds.writes {
        let write = |id: &str, random, block, depth| {
            base(id.to_owned(), Direction::Write, random, block, depth)
        };
        list.push(write("seq-write-1m-d8", false, MIB, 8));
        list.push(write("seq-write-1m", false, MIB, 1));
        list.push(write("seq-write-4k", false, 4 * KIB, 1));
        list.push(write("seq-write-4k-d32", false, 4 * KIB, 32));
        list.push(write("rand-write-4k", true, 4 * KIB, 1));
        list.push(write("rand-write-4k-d32", true, 4 * KIB, 32));
        list.push(write("rand-write-1m", true, MIB, 1));
        list.push(Measure { flush: true, ..write("rand-write-4k-flush", true, 4 * KIB, 1) });
    }
    Ok(list)
}

impl Measure {
    /// It as a job of fio.
    pub fn job(&self) -> String {
        let Measure { id, block_bytes, depth, from_bytes, span_bytes, seconds_max, .. } = self;
        let random = if self.random { "rand" } else { "" };
        let direction = self.direction.name();
        let mut job = format!(
            "[{id}]\nioengine=libaio\ndirect=1\nrw={random}{direction}\nbs={block_bytes}\n\
             iodepth={depth}\noffset={from_bytes}\nsize={span_bytes}\nio_size={}\n\
             runtime={seconds_max}\n",
            self.bytes_max.max(*block_bytes)
        );
        if self.random {
            job += "norandommap\n";
        }
        if self.flush {
            job += "fsync=1\n";
        }
        job
    }

    /// Why a drive of that size cannot have been asked this.
    pub(super) fn check(&self, size_bytes: u64) -> Result<(), String> {
        let Measure { block_bytes, depth, from_bytes, span_bytes, seconds_max, .. } = *self;
        let end = from_bytes.checked_add(span_bytes).filter(|end| *end <= size_bytes);
        if end.is_none() || span_bytes < block_bytes {
            return Err(format!("{span_bytes} bytes from {from_bytes} on, of {size_bytes}"));
        }
        if block_bytes == 0 || block_bytes > BLOCK_BYTES_MAX || !block_bytes.is_multiple_of(512) {
            return Err(format!("requests of {block_bytes} bytes"));
        }
        if depth == 0 || depth > DEPTH_MAX || seconds_max > 3600 {
            return Err(format!("{depth} requests under way for {seconds_max} s"));
        }
        Ok(())
    }
}
