//! Which blocks the log holds, and where: block → place in the ring and CRC, 16 bytes each.

use crate::address::{BlockId, Lsn};
use crate::fixed_map::FixedMap;

/// Marks an entry without a data block: its place is the record's header, its CRC field says what
/// it stands for.
const MARK: u32 = 1 << 31;
const STANDS_FOR_ZEROS: u32 = 0;
const STANDS_FOR_LOST: u32 = 1;

#[derive(Debug, Clone, Copy)]
struct Packed {
    place: u32,
    crc: u32,
}

/// A block's newest version in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logged {
    /// In the data block at this LSN.
    Data { lsn: Lsn, crc: u32 },
    /// Zeros, by the record at this LSN.
    Zero { lsn: Lsn },
    /// Damaged, by the record at this LSN.
    Lost { lsn: Lsn },
}

impl Logged {
    pub fn lsn(self) -> Lsn {
        match self {
            Logged::Data { lsn, .. } | Logged::Zero { lsn } | Logged::Lost { lsn } => lsn,
        }
    }
}

/// Places are kept modulo the ring; the caller gives the tail to recover the LSN.
#[derive(Default)]
pub(crate) struct Index {
    blocks: FixedMap<u64, Packed>,
}

impl Index {
    pub fn insert(&mut self, block: BlockId, version: Logged, ring_blocks: u64) {
        let packed = match version {
            Logged::Data { lsn, crc } => Packed { place: (lsn.0 % ring_blocks) as u32, crc },
            Logged::Zero { lsn } => {
                Packed { place: (lsn.0 % ring_blocks) as u32 | MARK, crc: STANDS_FOR_ZEROS }
            }
            Logged::Lost { lsn } => {
                Packed { place: (lsn.0 % ring_blocks) as u32 | MARK, crc: STANDS_FOR_LOST }
            }
        };
        self.blocks.insert(block.0, packed);
    }

    pub fn get(&self, block: BlockId, tail: Lsn, ring_blocks: u64) -> Option<Logged> {
        let packed = self.blocks.get(&block.0)?;
        let place = u64::from(packed.place & !MARK);
        let lsn = Lsn(tail.0 + (place + ring_blocks - tail.0 % ring_blocks) % ring_blocks);
        Some(match (packed.place & MARK, packed.crc) {
            (0, crc) => Logged::Data { lsn, crc },
            (_, STANDS_FOR_LOST) => Logged::Lost { lsn },
            _ => Logged::Zero { lsn },
        })
    }

    pub fn remove(&mut self, block: BlockId) {
        self.blocks.remove(&block.0);
    }

    /// Blocks whose newest version is in the log.
    pub fn len(&self) -> u64 {
        self.blocks.len() as u64
    }

    pub fn memory_bytes(&self) -> u64 {
        // 16 bytes of entry and one of control per slot of the table; load at most 7/8.
        self.blocks.capacity() as u64 * 8 / 7 * 17
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_gives_back_its_lsn_over_many_laps() {
        let mut index = Index::default();
        let ring = 1000;
        for lsn in [3, 999, 1000, 123_456, 999_999_999] {
            let version = Logged::Data { lsn: Lsn(lsn), crc: 5 };
            index.insert(BlockId(1), version, ring);
            for tail in [lsn.saturating_sub(999), lsn.saturating_sub(1), lsn] {
                assert_eq!(index.get(BlockId(1), Lsn(tail), ring), Some(version));
            }
        }
        index.insert(BlockId(1), Logged::Zero { lsn: Lsn(1001) }, ring);
        assert_eq!(index.get(BlockId(1), Lsn(500), ring), Some(Logged::Zero { lsn: Lsn(1001) }));
        index.remove(BlockId(1));
        assert_eq!(index.len(), 0);
    }
}
