//! One change of a drive's content: a write, zeroes, or a trim, ready to be applied to a medium.
//!
//! * Data is cut into blocks once, when the operation is submitted; whole blocks are shared
//!   with the medium afterwards, never copied again.
//! * A trim leaves each block it covers old, zero or garbage, decided by the change's salt and
//!   the block number: the same wherever and whenever it is applied.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::medium::{BLOCK_BYTES, Block, Medium, bytes_of, cut};
use crate::random::{Random, mix};

/// What happens to the content.
#[derive(Clone)]
pub enum Change {
    /// New bytes, in ascending order of place.
    Write(Vec<Piece>),
    /// The byte range reads as zeros.
    Zero(Range<u64>),
    /// The byte range's content is undefined.
    Trim {
        /// Bytes.
        range: Range<u64>,
        /// Decides what is left.
        salt: u64,
    },
}

/// Bytes of a write inside one block.
#[derive(Clone)]
pub struct Piece {
    /// Which block.
    pub block: u64,
    /// Which of its bytes are new; the others of `content` mean nothing.
    pub bytes: Range<usize>,
    /// The block's content.
    pub content: Arc<Block>,
}

/// Whether all bytes are zero, as fast as memory is read.
pub fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: Block = [0; BLOCK_BYTES];
    bytes.chunks(BLOCK_BYTES).all(|chunk| *chunk == ZEROS[..chunk.len()])
}

impl Change {
    /// A write of `data` at byte `at`.
    pub fn write(at: u64, data: &[u8]) -> Change {
        let pieces = cut(at, data.len()).map(|(block, within, part)| {
            let mut content = Arc::new([0; BLOCK_BYTES]);
            let bytes = within..within + part.len();
            Arc::get_mut(&mut content).expect("just made")[bytes.clone()]
                .copy_from_slice(&data[part]);
            Piece { block, bytes, content }
        });
        Change::Write(pieces.collect())
    }

    /// The same change with its blocks of zeros as holes.
    pub fn without_zeros(self) -> [Change; 2] {
        let Change::Write(mut pieces) = self else { return [self, Change::Zero(0..0)] };
        let place = |piece: &Piece, byte: usize| piece.block * BLOCK_BYTES as u64 + byte as u64;
        let range = match (pieces.first(), pieces.last()) {
            (Some(first), Some(last)) => {
                place(first, first.bytes.start)..place(last, last.bytes.end)
            }
            _ => 0..0,
        };
        pieces.retain(|piece| !is_zero(&piece.content[piece.bytes.clone()]));
        [Change::Zero(range), Change::Write(pieces)]
    }

    /// In words, how much of it `medium` shows, in units of `unit_bytes`. What a later change covers
    /// is not told apart from what was lost.
    pub fn left_in(&self, medium: &Medium, unit_bytes: usize) -> String {
        let Change::Write(pieces) = self else { return "done or not".into() };
        let (mut there, mut all) = (0, 0);
        for Piece { block, bytes, content } in pieces {
            let mut start = bytes.start;
            while start < bytes.end {
                let end = ((start / unit_bytes + 1) * unit_bytes).min(bytes.end);
                let mut found = vec![0; end - start];
                medium.read(block * BLOCK_BYTES as u64 + start as u64, &mut found);
                there += usize::from(found == content[start..end]);
                all += 1;
                start = end;
            }
        }
        match there {
            0 => "lost".into(),
            _ if there == all => "kept".into(),
            _ => format!("torn, {there} of {all} units of {unit_bytes} bytes are there"),
        }
    }

    /// Bytes of memory it holds.
    pub fn held_bytes(&self) -> u64 {
        match self {
            Change::Write(pieces) => (pieces.len() * BLOCK_BYTES) as u64,
            Change::Zero(_) | Change::Trim { .. } => 0,
        }
    }

    /// Bytes of data it carries.
    pub fn moved_bytes(&self) -> u64 {
        match self {
            Change::Write(pieces) => pieces.iter().map(|piece| piece.bytes.len() as u64).sum(),
            Change::Zero(_) | Change::Trim { .. } => 0,
        }
    }

    /// Blocks it may alter in `medium`. Holes that stay holes are left out, so that a trim of
    /// 64 TiB costs what is stored there.
    pub fn touched(&self, medium: &Medium) -> Vec<u64> {
        match self {
            Change::Write(pieces) => pieces.iter().map(|piece| piece.block).collect(),
            Change::Zero(range) | Change::Trim { range, .. } => medium.present(blocks(range)),
        }
    }

    /// Carries it out.
    pub fn apply(&self, medium: &mut Medium) {
        for block in self.touched(medium) {
            medium.update(block, |content| self.apply_to(block, content));
        }
    }

    /// Carries out what it does to one of the blocks it touches.
    pub fn apply_to(&self, block: u64, content: &mut Option<Arc<Block>>) {
        match self {
            Change::Write(pieces) => {
                let index = pieces.binary_search_by_key(&block, |piece| piece.block);
                pieces[index.expect("a touched block has its piece")].apply_to(content);
            }
            Change::Zero(range) => fill(content, within(range, block), None),
            Change::Trim { range, salt } => {
                let choice = mix(salt ^ block);
                match choice % 3 {
                    0 => {}
                    1 => fill(content, within(range, block), None),
                    _ => fill(content, within(range, block), Some(choice)),
                }
            }
        }
    }

    /// Its first `bytes`, whole blocks of them, if any: where a write stopped for want of space.
    pub fn front(&self, bytes: u64) -> Option<Change> {
        let Change::Write(pieces) = self else { return None };
        let mut left = bytes as usize;
        let fits = |piece: &&Piece| {
            let fits = piece.bytes.len() <= left;
            left = left.saturating_sub(piece.bytes.len());
            fits
        };
        let front: Vec<Piece> = pieces.iter().take_while(fits).cloned().collect();
        (!front.is_empty()).then_some(Change::Write(front))
    }

    /// What is left of it when power fails in its middle: each unit of `unit_bytes` is done or
    /// not. Only writes tear; the others happen or do not.
    pub fn torn(&self, unit_bytes: usize, random: &mut Random) -> Vec<Change> {
        let Change::Write(pieces) = self else { return vec![self.clone()] };
        // Half of the time a prefix, as a drive leaves it that writes in order; otherwise any
        // units, as one that spreads them over channels.
        let mut prefix = random.chance(50).then(|| {
            let units: usize = pieces.iter().map(|p| p.bytes.len().div_ceil(unit_bytes)).sum();
            random.below(units as u64 + 1)
        });
        let mut left = Vec::new();
        for piece in pieces {
            let mut start = piece.bytes.start;
            while start < piece.bytes.end {
                let end = ((start / unit_bytes + 1) * unit_bytes).min(piece.bytes.end);
                let done = match &mut prefix {
                    Some(0) => false,
                    Some(units) => {
                        *units -= 1;
                        true
                    }
                    None => random.chance(50),
                };
                if done {
                    left.push(Piece { bytes: start..end, ..piece.clone() });
                }
                start = end;
            }
        }
        // One piece per change: a change's pieces lie in different blocks.
        left.into_iter().map(|piece| Change::Write(vec![piece])).collect()
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Write(pieces) => {
                let at = pieces
                    .first()
                    .map_or(0, |piece| piece.block * BLOCK_BYTES as u64 + piece.bytes.start as u64);
                let length: usize = pieces.iter().map(|piece| piece.bytes.len()).sum();
                write!(f, "Write at {at} length {length}")
            }
            Change::Zero(range) => {
                write!(f, "WriteZeroes at {} length {}", range.start, range.end - range.start)
            }
            Change::Trim { range, .. } => {
                write!(f, "Trim at {} length {}", range.start, range.end - range.start)
            }
        }
    }
}

impl Piece {
    fn apply_to(&self, content: &mut Option<Arc<Block>>) {
        if self.bytes.len() == BLOCK_BYTES {
            *content = Some(self.content.clone());
        } else {
            let bytes = self.bytes.clone();
            bytes_of(content)[bytes.clone()].copy_from_slice(&self.content[bytes]);
        }
    }
}

/// Blocks that the byte range touches.
fn blocks(range: &Range<u64>) -> Range<u64> {
    range.start / BLOCK_BYTES as u64..range.end.div_ceil(BLOCK_BYTES as u64)
}

/// The part of `block` that lies in the byte range of the drive.
fn within(range: &Range<u64>, block: u64) -> Range<usize> {
    let base = block * BLOCK_BYTES as u64;
    let start = range.start.saturating_sub(base) as usize;
    start..(range.end - base).min(BLOCK_BYTES as u64) as usize
}

/// Fills those bytes of a block with zeros, or with garbage of that seed.
fn fill(content: &mut Option<Arc<Block>>, bytes: Range<usize>, garbage: Option<u64>) {
    match garbage {
        None if bytes.len() == BLOCK_BYTES => *content = None,
        None => bytes_of(content)[bytes].fill(0),
        Some(seed) => {
            let mut random = Random::new(seed);
            bytes_of(content)[bytes].fill_with(|| random.bits() as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Medium {
        let mut medium = Medium::default();
        medium.write(0, &[9; 16 * BLOCK_BYTES]);
        medium
    }

    #[test]
    fn zeroes_are_exact_to_the_byte() {
        let mut medium = filled();
        Change::Zero(512..8704).apply(&mut medium);
        let mut buf = vec![0; 12288];
        medium.read(0, &mut buf);
        assert!(buf.iter().enumerate().all(|(i, b)| (*b == 0) == (512..8704).contains(&i)));
        assert_eq!(medium.blocks(), 15, "the whole block became a hole");
    }

    #[test]
    fn a_trim_leaves_old_zero_or_garbage_and_the_same_each_time() {
        let trim = Change::Trim { range: 0..(16 * BLOCK_BYTES as u64), salt: 3 };
        let kinds = |medium: &Medium| {
            (0..16)
                .map(|block| match medium.get(block).map(|content| content[..16] == [9; 16]) {
                    None => "zero",
                    Some(true) => "old",
                    Some(false) => "garbage",
                })
                .collect::<Vec<_>>()
        };
        let (mut first, mut second) = (filled(), filled());
        trim.apply(&mut first);
        trim.apply(&mut second);
        assert_eq!(kinds(&first), kinds(&second));
        for kind in ["zero", "old", "garbage"] {
            assert!(kinds(&first).contains(&kind), "{kind} never happened");
        }
    }

    #[test]
    fn a_torn_write_keeps_whole_units_only() {
        let write = Change::write(512, &[1; 7680]);
        let mut partial = 0;
        for seed in 0..50 {
            let mut medium = filled();
            for change in write.torn(512, &mut Random::new(seed)) {
                change.apply(&mut medium);
            }
            let mut buf = vec![0; 8704];
            medium.read(0, &mut buf);
            assert!(buf[..512].iter().all(|b| *b == 9) && buf[8192..].iter().all(|b| *b == 9));
            for sector in buf.chunks(512) {
                assert!(sector.iter().all(|b| *b == sector[0]));
            }
            let new = buf.iter().filter(|b| **b == 1).count() / 512;
            partial += usize::from((1..15).contains(&new));
        }
        assert!(partial > 25, "tearing must be the rule, was {partial} of 50");
    }
}
