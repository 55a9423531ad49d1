//! What a drive holds: a sparse array of 4 KiB blocks, zeros where nothing was written.
//!
//! * Memory follows what was written, not the size: 64 TiB cost what was stored in them.
//! * Clones share blocks until one side changes them, so a copy of a whole drive is cheap.
//! * Iteration order never depends on addresses in memory: the hasher is fixed.
//!
//! It knows nothing about time, caches or sizes; the caller checks bounds.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use crate::random::mix;

/// Bytes in a block.
pub const BLOCK_BYTES: usize = 4096;

/// One block's content.
pub type Block = [u8; BLOCK_BYTES];

/// Blocks in a leaf: the unit in which clones part. 64 keep a leaf's copy below a block's.
const LEAF_BLOCKS: u64 = 64;

type Leaf = [Option<Arc<Block>>; LEAF_BLOCKS as usize];

/// A map by number whose order depends on the numbers alone.
pub type NumberMap<V> = HashMap<u64, V, BuildHasherDefault<NumberHasher>>;

/// Hashes one `u64`; no other key type.
#[derive(Default, Clone)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = mix(number);
    }
}

/// The sparse array.
#[derive(Clone, Default)]
pub struct Medium {
    leaves: NumberMap<Arc<Leaf>>,
    /// Blocks that hold something, so that thin space can be accounted.
    blocks: u64,
}

impl Medium {
    /// The block, unless it is a hole.
    pub fn get(&self, block: u64) -> Option<&Arc<Block>> {
        self.leaves.get(&(block / LEAF_BLOCKS))?[(block % LEAF_BLOCKS) as usize].as_ref()
    }

    /// Replaces the block; `None` makes a hole.
    pub fn set(&mut self, block: u64, content: Option<Arc<Block>>) {
        if content.is_some() || self.get(block).is_some() {
            self.update(block, |place| *place = content);
        }
    }

    /// Changes the block, or the hole where it would be.
    pub fn update(&mut self, block: u64, change: impl FnOnce(&mut Option<Arc<Block>>)) {
        let leaf = self
            .leaves
            .entry(block / LEAF_BLOCKS)
            .or_insert_with(|| Arc::new([const { None }; LEAF_BLOCKS as usize]));
        let place = &mut Arc::make_mut(leaf)[(block % LEAF_BLOCKS) as usize];
        self.blocks -= u64::from(place.is_some());
        change(place);
        self.blocks += u64::from(place.is_some());
    }

    /// Blocks that hold something.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// The blocks of `range` that hold something, ascending.
    pub fn present(&self, range: Range<u64>) -> Vec<u64> {
        let leaves = range.start / LEAF_BLOCKS..range.end.div_ceil(LEAF_BLOCKS);
        let mut keys: Vec<u64> = if leaves.end - leaves.start <= self.leaves.len() as u64 {
            leaves.filter(|key| self.leaves.contains_key(key)).collect()
        } else {
            self.leaves.keys().copied().filter(|key| leaves.contains(key)).collect()
        };
        keys.sort_unstable();
        let blocks = keys.iter().flat_map(|key| key * LEAF_BLOCKS..(key + 1) * LEAF_BLOCKS);
        blocks.filter(|block| range.contains(block) && self.get(*block).is_some()).collect()
    }

    /// Fills `buf` from byte `at`.
    pub fn read(&self, at: u64, buf: &mut [u8]) {
        for (block, within, part) in cut(at, buf.len()) {
            let target = &mut buf[part];
            match self.get(block) {
                Some(content) => target.copy_from_slice(&content[within..within + target.len()]),
                None => target.fill(0),
            }
        }
    }

    /// Stores `bytes` at byte `at`.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        for (block, within, part) in cut(at, bytes.len()) {
            let source = &bytes[part];
            self.update(block, |content| {
                bytes_of(content)[within..within + source.len()].copy_from_slice(source);
            });
        }
    }
}

/// The content for changing; a hole becomes zeros first.
pub fn bytes_of(content: &mut Option<Arc<Block>>) -> &mut Block {
    Arc::make_mut(content.get_or_insert_with(|| Arc::new([0; BLOCK_BYTES])))
}

/// Cuts `length` bytes at `at` into blocks: block number, offset inside it, and the range of the
/// caller's bytes that lies there.
pub fn cut(at: u64, length: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let position = at + done as u64;
        let within = (position % BLOCK_BYTES as u64) as usize;
        let count = (BLOCK_BYTES - within).min(length - done);
        let part = done..done + count;
        done += count;
        Some((position / BLOCK_BYTES as u64, within, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_the_rest_is_zeros() {
        let mut medium = Medium::default();
        let far = (64u64 << 40) - 8192;
        medium.write(far - 100, &[7; 5000]);
        let mut buf = vec![1; 5200];
        medium.read(far - 200, &mut buf);
        assert!(buf[..100].iter().all(|b| *b == 0));
        assert!(buf[100..5100].iter().all(|b| *b == 7));
        assert!(buf[5100..].iter().all(|b| *b == 0));
        assert_eq!(medium.blocks(), 3);
        assert_eq!(medium.present(0..u64::MAX / 2).len(), 3);
    }

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut medium = Medium::default();
        medium.write(0, &[1; 8192]);
        let copy = medium.clone();
        medium.write(0, &[2; 100]);
        medium.set(1, None);
        let mut buf = [0; 2];
        copy.read(4095, &mut buf);
        assert_eq!(buf, [1, 1]);
        assert_eq!((medium.blocks(), copy.blocks()), (1, 2));
    }

    #[test]
    fn present_blocks_are_listed_in_order_for_small_and_huge_ranges() {
        let mut medium = Medium::default();
        for block in [900, 3, 64, 5_000_000, 65] {
            medium.write(block * 4096, &[1]);
        }
        assert_eq!(medium.present(0..1000), [3, 64, 65, 900]);
        assert_eq!(medium.present(64..65), [64]);
        assert_eq!(medium.present(0..1 << 40), [3, 64, 65, 900, 5_000_000]);
    }
}
