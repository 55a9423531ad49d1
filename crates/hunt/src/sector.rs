//! Self-describing content: every sector written by the hunt says which write it belongs to and
//! where it should lie, so that foreign, misplaced and torn data is recognised, not only noticed.
//!
//! A sector is 64 little-endian words: magic, write, sector number, then 61 words that follow
//! from those, so that a sector mixed from two writes does not pass.

use std::fmt;

use twin::mix;

/// Bytes in a sector: the smallest unit of access.
pub const SECTOR_BYTES: usize = 512;

/// Sectors in a block, the unit that an engine keeps whole.
pub const BLOCK_SECTORS: usize = 8;

const MAGIC: u64 = u64::from_le_bytes(*b"bimhunt1");

/// What a sector holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// Nothing but zeros.
    Zeros,
    /// Data of this write, in its place.
    Of(u32),
    /// Data of a write that belongs to another sector.
    Misplaced {
        /// The write.
        write: u32,
        /// The sector it was made for.
        sector: u64,
    },
    /// It begins like data of this write, and goes on otherwise.
    Torn(u32),
    /// Nothing this hunt has ever written.
    Foreign,
}

impl Value {
    /// Whether the sector behind this one holds what follows from it: one line says both.
    pub(crate) fn goes_on_as(&self, next: &Value) -> bool {
        match (self, next) {
            (
                Value::Misplaced { write, sector },
                Value::Misplaced { write: write2, sector: sector2 },
            ) => write == write2 && *sector + 1 == *sector2,
            _ => self == next,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Zeros => write!(f, "zeros"),
            Value::Of(write) => write!(f, "data of write {write}"),
            Value::Misplaced { write, sector } => {
                let at = sector * SECTOR_BYTES as u64;
                write!(f, "data of write {write} made for byte {at}: misplaced")
            }
            Value::Torn(write) => {
                write!(f, "the beginning of data of write {write}, torn inside the sector")
            }
            Value::Foreign => write!(f, "foreign bytes that were never written"),
        }
    }
}

/// Fills `buf` with data of `write` for the sectors from `sector` on.
pub fn stamp(buf: &mut [u8], write: u32, sector: u64) {
    for (index, bytes) in buf.as_chunks_mut::<SECTOR_BYTES>().0.iter_mut().enumerate() {
        let sector = sector + index as u64;
        let words = bytes.as_chunks_mut::<8>().0;
        for (place, word) in words.iter_mut().enumerate() {
            *word = expected(write, sector, place).to_le_bytes();
        }
    }
}

/// Says what the sector's bytes are.
pub fn identify(bytes: &[u8; SECTOR_BYTES], sector: u64) -> Value {
    if *bytes == [0; SECTOR_BYTES] {
        return Value::Zeros;
    }
    let words = bytes.as_chunks::<8>().0;
    let word = |place: usize| u64::from_le_bytes(words[place]);
    let (Ok(write), MAGIC) = (u32::try_from(word(1)), word(0)) else {
        return Value::Foreign;
    };
    let made_for = word(2);
    if (3..words.len()).any(|place| word(place) != expected(write, made_for, place)) {
        return Value::Torn(write);
    }
    if made_for == sector { Value::Of(write) } else { Value::Misplaced { write, sector: made_for } }
}

fn expected(write: u32, sector: u64, place: usize) -> u64 {
    match place {
        0 => MAGIC,
        1 => u64::from(write),
        2 => sector,
        _ => mix(sector ^ (u64::from(write) << 32)).wrapping_mul(2 * place as u64 + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sector(write: u32, number: u64) -> [u8; SECTOR_BYTES] {
        let mut bytes = [0; SECTOR_BYTES];
        stamp(&mut bytes, write, number);
        bytes
    }

    #[test]
    fn a_sector_is_recognised_for_what_it_is() {
        assert_eq!(identify(&sector(7, 9), 9), Value::Of(7));
        assert_eq!(identify(&sector(7, 9), 10), Value::Misplaced { write: 7, sector: 9 });
        assert_eq!(identify(&[0; SECTOR_BYTES], 1), Value::Zeros);
        assert_eq!(identify(&[5; SECTOR_BYTES], 1), Value::Foreign);
    }

    #[test]
    fn no_flipped_byte_and_no_mixture_passes() {
        for place in 0..SECTOR_BYTES {
            let mut bytes = sector(7, 9);
            bytes[place] ^= 1;
            assert_ne!(identify(&bytes, 9), Value::Of(7), "byte {place}");
        }
        // From the third word on: the first is the same in every sector.
        for cut in 2..SECTOR_BYTES / 8 {
            let mut bytes = sector(7, 9);
            bytes[cut * 8..].copy_from_slice(&sector(8, 9)[cut * 8..]);
            assert_eq!(identify(&bytes, 9), Value::Torn(7), "word {cut}");
        }
    }
}
