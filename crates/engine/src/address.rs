//! The kinds of address, so that they cannot be mixed up.
//!
//! * block: 4 KiB of the volume, counted from its start;
//! * extent: `extent_bytes` of the volume, the unit of placement;
//! * slot: an extent-sized place on one drive;
//! * LSN: block number in the endless log, of which the ring holds the newest part. A record's LSN
//!   is the LSN of its header block, so order of writes = order of LSNs, and the place in the ring
//!   is `lsn % ring_blocks`.

use std::fmt;

/// Bytes in a block: the unit of the log and of atomicity.
pub const BLOCK_BYTES: u64 = 4096;

/// A 4 KiB block of the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u64);

/// An extent of the volume.
pub use policy::ExtentId;

/// A slot on one drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(pub u64);

/// Log sequence number, in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lsn {}", self.0)
    }
}

/// One of the two drives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// The small fast drive.
    Fast,
    /// The large slow drive.
    Slow,
}

impl Tier {
    /// Both, in the order used for arrays.
    pub const BOTH: [Tier; 2] = [Tier::Fast, Tier::Slow];

    /// Index into arrays of two.
    pub fn index(self) -> usize {
        self as usize
    }

    /// The other drive.
    pub fn other(self) -> Tier {
        match self {
            Tier::Fast => Tier::Slow,
            Tier::Slow => Tier::Fast,
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::Fast => "fast",
            Tier::Slow => "slow",
        })
    }
}

/// A place on one drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Home {
    /// Which drive.
    pub tier: Tier,
    /// Which slot of it.
    pub slot: SlotId,
}
