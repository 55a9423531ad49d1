//! Damage, all of it: each byte, sector and block of what two volumes have on their drives is
//! changed, one at a time, and the volume is checked, opened, read, closed and read again.
//!
//! What may come of it depends on what was hit ([`Region`]), and on nothing else:
//!
//! | hit | may come of it |
//! |---|---|
//! | a superblock, a map page | nothing: the other copy, or the other drive's, is used |
//! | a header of the log that something says was durable | nothing: the next record repeats it |
//! | the last header of a volume closed in order | a refusal to open |
//! | a data block of the log, likewise | an error when that block is read |
//! | the last record, of which nothing says that it was durable | it is as if it had not been written; where its data cannot be read, an error |
//! | a home | its bytes are returned as they are: data at rest has no checksum |
//! | what is not in use | nothing |
//!
//! Where `check` finds something, the volume is also opened to be rescued: that is never refused but
//! for drives that do not belong together, writes nothing, and gives what is right or an error.
//!
//! Blocks that changed places, and blocks that went back to what they held before, are judged by
//! what is common to all: right, or refused, or an error, and never anything else.

mod image;
mod judge;
mod past;
mod rescue;

use engine::Tier;

pub use image::{Image, Region, images};
pub use judge::{Outcome, Verdict, judge};
pub use past::{Tried, rescue_from_past};
pub use rescue::Rescued;

/// What is done to a byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One bit is another.
    OneBit,
    /// All bits are others.
    AllBits,
    /// It is zero.
    Zero,
}

impl Pattern {
    const ALL: [Pattern; 3] = [Pattern::OneBit, Pattern::AllBits, Pattern::Zero];

    fn of(self, byte: u8, at: u64) -> u8 {
        match self {
            Pattern::OneBit => byte ^ 1 << (at % 8),
            Pattern::AllBits => !byte,
            Pattern::Zero => 0,
        }
    }
}

/// Damage to one place of one drive, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// One byte.
    Byte(Tier, u64, Pattern),
    /// The sector of 512 bytes here holds nothing but this byte.
    Sector(Tier, u64, u8),
    /// The sector here cannot be read.
    Unreadable(Tier, u64),
    /// The blocks here and there have changed places.
    Swapped(Tier, u64, u64),
    /// The block here is what it was a session ago.
    Stale(Tier, u64),
    /// The drive has become as short as this.
    Truncated(Tier, u64),
}

/// Bytes of a sector and of a block.
pub(crate) const SECTOR_BYTES: u64 = 512;
pub(crate) const BLOCK_BYTES: u64 = 4096;

/// Every case of an image, in an order in which each `stride`th is a fair sample.
pub fn cases(image: &Image) -> Vec<Damage> {
    let mut cases = Vec::new();
    let blocks = image.blocks_in_use();
    for (tier, block) in &blocks {
        let metadata = image.region(*tier, *block) != Region::Home;
        // A home is one thing from its first byte to its last.
        let step = if metadata { 1 } else { 509 };
        for at in (*block..block + BLOCK_BYTES).step_by(step) {
            let byte = image.byte(*tier, at);
            let changed = Pattern::ALL.into_iter().filter(|pattern| pattern.of(byte, at) != byte);
            cases.extend(changed.map(|pattern| Damage::Byte(*tier, at, pattern)));
        }
        for at in (*block..block + BLOCK_BYTES).step_by(SECTOR_BYTES as usize) {
            let changed =
                |fill: &u8| (at..at + SECTOR_BYTES).any(|at| image.byte(*tier, at) != *fill);
            let fills = [0, 0xff, 0x5a].into_iter().filter(changed);
            cases.extend(fills.map(|fill| Damage::Sector(*tier, at, fill)));
            cases.push(Damage::Unreadable(*tier, at));
        }
    }
    let metadata: Vec<_> =
        blocks.iter().filter(|(tier, at)| image.region(*tier, *at) != Region::Home).collect();
    for (index, (tier, here)) in metadata.iter().enumerate() {
        cases.push(Damage::Stale(*tier, *here));
        let others = metadata[index + 1..].iter().filter(|(other, _)| other == tier);
        cases.extend(others.map(|(_, there)| Damage::Swapped(*tier, *here, *there)));
    }
    for tier in Tier::BOTH {
        let whole = image.drive_bytes(tier);
        let shorter = [0, BLOCK_BYTES, 1 << 20, whole / 2, whole - BLOCK_BYTES, whole - 512];
        cases.extend(shorter.map(|bytes| Damage::Truncated(tier, bytes)));
    }
    cases
}
