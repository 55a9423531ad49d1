//! What a door serves: a block volume.

use crate::{Buf, IoError, Lent};

/// The fixed facts of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Size in bytes, a multiple of 4096.
    pub size_bytes: u64,
    /// Smallest unit of access, in bytes (512).
    pub sector_bytes: u32,
    /// Access in multiples of this many bytes avoids read-modify-write (4096).
    pub preferred_bytes: u32,
    /// Largest buffer one call takes, in bytes. Doors cut longer requests.
    pub transfer_bytes_max: u32,
    /// Writes are refused.
    pub read_only: bool,
}

/// When a write may be reported as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// After it is ordered and readable; a later flush makes it durable.
    #[default]
    Volatile,
    /// After it is on stable storage (force unit access).
    Durable,
}

/// How zeros may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ZeroMode {
    /// Holes are welcome: space comes back.
    #[default]
    Deallocate,
    /// The range must stay provisioned: zeros are written.
    Allocate,
}

/// Where a range of the volume is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Nowhere: reads as zeros.
    Hole,
    /// In a slot of the fast drive.
    Fast,
    /// In a slot of the slow drive.
    Slow,
    /// In the landing log, not destaged yet.
    Log,
    /// Lost with a drive that is gone, or damaged: reading it is an error.
    Lost,
}

/// A run of bytes in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// Length in bytes, never 0.
    pub length: u64,
    /// Where it is.
    pub place: Place,
}

/// A run of bytes of which one is as much worth as the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worth {
    /// Length in bytes, never 0.
    pub length: u64,
    /// The slow drive does not have it, or not its newest state: it would be lost with the fast one.
    pub dirty: bool,
    /// How often it was read lately, in sixteenths: 16 for once, halved when as many other requests
    /// came as the volume takes for its memory. 0: nothing is known.
    pub heat: u32,
}

/// A block device as its clients see it. Calls may overlap freely; a read that starts after a
/// write has ended sees it. All offsets and lengths are multiples of `sector_bytes` and lie
/// inside the volume, otherwise the call fails with `ErrorKind::Range` and nothing happens.
#[allow(async_fn_in_trait)] // One thread: futures need not be Send.
pub trait Volume: 'static {
    /// The fixed facts.
    fn info(&self) -> VolumeInfo;

    /// Fills `buf` from byte `at`.
    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>);

    /// Fills lent memory from byte `at`, where one read of one drive does it. False: the request has not
    /// been served, and is to be asked for with [`Volume::read`], which also tells what is wrong.
    async fn read_lent(&self, _at: u64, _memory: Lent) -> bool {
        false
    }

    /// Writes `buf` at byte `at`. Gives the buffer back with unspecified content.
    async fn write(&self, at: u64, buf: Buf, durability: Durability) -> (Buf, Result<(), IoError>);

    /// Makes every write that ended before this call durable.
    async fn flush(&self) -> Result<(), IoError>;

    /// The range is no longer needed: it reads as zeros and its space comes back. Parts smaller
    /// than a block may be left as they are.
    async fn trim(&self, at: u64, length: u64, durability: Durability) -> Result<(), IoError>;

    /// The range reads as zeros, to the byte.
    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        mode: ZeroMode,
        durability: Durability,
    ) -> Result<(), IoError>;

    /// Hint: this range will be read soon.
    async fn cache(&self, at: u64, length: u64) -> Result<(), IoError>;

    /// Where the range is, as runs in order that cover it or a front part of it: at most
    /// `spans_max` (at least one) of them.
    fn places(&self, at: u64, length: u64, spans_max: usize) -> Vec<Span>;

    /// What the range is worth, as runs in order that cover it or a front part of it: at most
    /// `runs_max` (at least one) of them. Nothing is known of it where a volume does not say.
    fn worths(&self, _at: u64, length: u64, _runs_max: usize) -> Vec<Worth> {
        vec![Worth { length, dirty: false, heat: 0 }]
    }
}
