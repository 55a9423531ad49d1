//! Class cache, write-through: the blocks that only the landing log has, kept in memory until they
//! are at home, so that the death of the fast drive takes nothing that clients have seen.
//!
//! Bounded ([`blocks_max`]): who would exceed it waits until some are at home.

use crate::address::{BLOCK_BYTES, BlockId};
use crate::fixed_map::FixedMap;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Most blocks: 64 MiB, half a second of a disk's writing.
const BLOCKS_MAX: u64 = 16_384;

/// How many blocks are kept at most with a ring of so many: on the smallest a request fits twice.
pub(crate) fn blocks_max(ring_blocks: u64) -> u64 {
    (ring_blocks / 2).min(BLOCKS_MAX)
}

/// Blocks with their newest data.
#[derive(Default)]
pub(crate) struct Kept {
    blocks: FixedMap<u64, Box<[u8]>>,
}

impl Kept {
    /// Keeps consecutive blocks.
    pub fn insert(&mut self, start: BlockId, data: &[u8]) {
        for (block, bytes) in (start.0..).zip(data.chunks_exact(BLOCK)) {
            match self.blocks.get_mut(&block) {
                Some(kept) => kept.copy_from_slice(bytes),
                None => {
                    self.blocks.insert(block, bytes.into());
                }
            }
        }
    }

    pub fn get(&self, block: BlockId) -> Option<&[u8]> {
        self.blocks.get(&block.0).map(|bytes| &bytes[..])
    }

    /// The block is at home, or is something else now.
    pub fn remove(&mut self, block: BlockId) {
        self.blocks.remove(&block.0);
    }

    pub fn clear(&mut self) {
        self.blocks = FixedMap::default();
    }

    pub fn memory_bytes(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_BYTES + self.blocks.capacity() as u64 * 25
    }
}
