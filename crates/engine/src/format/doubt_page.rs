//! The doubt page on the slow drive: for which regions of the volume the slow drive alone does not
//! know the truth, because what is newest there may lie in the log or map changes of the fast drive.
//!
//! * Eight sectors of 512 bytes, each sound or not on its own: a drive that tears a page tears it
//!   between sectors, so each sector of each copy is old or new, and never damaged by a cut.
//! * Two copies, written together. A region is in doubt when any sound copy of its sector says so,
//!   or when none is sound.
//! * A bit stands for a fixed number of extents, a power of two ([`region_extents`]).

use super::{put_u32, put_u64, u32_at, u64_at};
use crate::checksum::crc32c_around;

/// Bytes in a doubt page.
pub const DOUBT_PAGE_BYTES: usize = 4096;
/// Where its two copies lie on the slow drive: in the first MiB, away from the superblocks.
pub const DOUBT_POSITIONS: [u64; 2] = [256 << 10, 768 << 10];
/// Most regions a page tells of.
pub const REGIONS_MAX: u64 = (SECTORS * BITS_PER_SECTOR) as u64;

const SECTOR_BYTES: usize = 512;
const SECTORS: usize = DOUBT_PAGE_BYTES / SECTOR_BYTES;
const MAGIC: u32 = u32::from_le_bytes(*b"BMdt");
const VERSION: u32 = 1;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = AT_MAGIC + 4;
const AT_SECTOR: usize = AT_VERSION + 4;
const AT_CRC: usize = AT_SECTOR + 4;
const AT_VOLUME: usize = AT_CRC + 4;
const AT_REGION_EXTENTS: usize = AT_VOLUME + 8;
const HEADER_BYTES: usize = 32;
const BITS_PER_SECTOR: usize = (SECTOR_BYTES - HEADER_BYTES) * 8;
const WORDS_PER_SECTOR: usize = BITS_PER_SECTOR / 64;
const _: () = assert!(AT_REGION_EXTENTS + 8 <= HEADER_BYTES && BITS_PER_SECTOR == 3840);

/// Extents per region of a volume: as few as the page allows.
pub fn region_extents(extents: u64) -> u64 {
    extents.div_ceil(REGIONS_MAX).next_power_of_two()
}

/// Encodes a page. `words`: 64 regions each, set bits in doubt; regions beyond them are not.
pub fn encode(out: &mut [u8], volume_tag: u64, region_extents: u64, words: &[u64]) {
    assert!(out.len() == DOUBT_PAGE_BYTES && words.len() <= SECTORS * WORDS_PER_SECTOR);
    out.fill(0);
    for (n, sector) in out.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        put_u32(sector, AT_MAGIC, MAGIC);
        put_u32(sector, AT_VERSION, VERSION);
        put_u32(sector, AT_SECTOR, n as u32);
        put_u64(sector, AT_VOLUME, volume_tag);
        put_u64(sector, AT_REGION_EXTENTS, region_extents);
        let own = words.iter().skip(n * WORDS_PER_SECTOR).take(WORDS_PER_SECTOR);
        for (bytes, word) in sector[HEADER_BYTES..].chunks_exact_mut(8).zip(own) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32c_around(sector, AT_CRC);
        put_u32(sector, AT_CRC, crc);
    }
}

/// Reads what the copies say together, into as many words as `out` has. A copy that could not be
/// read is `None`.
pub fn decode(copies: [Option<&[u8]>; 2], volume_tag: u64, region_extents: u64, out: &mut [u64]) {
    for (n, words) in out.chunks_mut(WORDS_PER_SECTOR).enumerate() {
        words.fill(0);
        let mut heard = false;
        for copy in copies.into_iter().flatten() {
            let Some(sector) = copy.chunks_exact(SECTOR_BYTES).nth(n) else { continue };
            let sound = u32_at(sector, AT_MAGIC) == MAGIC
                && u64_at(sector, AT_VOLUME) == volume_tag
                && u32_at(sector, AT_VERSION) == VERSION
                && u32_at(sector, AT_SECTOR) as usize == n
                && u64_at(sector, AT_REGION_EXTENTS) == region_extents
                && u32_at(sector, AT_CRC) == crc32c_around(sector, AT_CRC);
            if sound {
                heard = true;
                for (word, bytes) in words.iter_mut().zip(sector[HEADER_BYTES..].chunks_exact(8)) {
                    *word |= u64_at(bytes, 0);
                }
            }
        }
        if !heard {
            words.fill(u64::MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(words: &[u64]) -> Vec<u8> {
        let mut bytes = vec![0; DOUBT_PAGE_BYTES];
        encode(&mut bytes, 42, 4, words);
        bytes
    }

    fn read(copies: [Option<&[u8]>; 2]) -> Vec<u64> {
        let mut words = vec![7; 480];
        decode(copies, 42, 4, &mut words);
        words
    }

    #[test]
    fn a_page_comes_back_as_it_was_written() {
        let words: Vec<u64> = (0..480).map(|n| n * 0x0101_0101).collect();
        let bytes = page(&words);
        assert_eq!(read([Some(&bytes), Some(&bytes)]), words);
        assert_eq!(read([None, Some(&bytes)]), words);
        assert_eq!(read([None, None]), vec![u64::MAX; 480]);
    }

    #[test]
    fn either_copy_can_raise_a_doubt_and_none_can_take_the_other_s_away() {
        let old = page(&[1; 480]);
        let new = page(&[2; 480]);
        assert_eq!(read([Some(&old), Some(&new)]), vec![3; 480]);
        // A torn write: the first sectors are new, the others old.
        let torn = [&new[..1024], &old[1024..]].concat();
        let mut expected = vec![1; 480];
        expected[..120].fill(2);
        assert_eq!(read([Some(&torn), None]), expected);
    }

    #[test]
    fn any_flipped_bit_means_doubt_about_its_sector_alone() {
        let pristine = page(&[0; 480]);
        for at in 0..DOUBT_PAGE_BYTES {
            let mut bytes = pristine.clone();
            bytes[at] ^= 1 << (at % 8);
            let words = read([Some(&bytes), None]);
            let sector = at / SECTOR_BYTES;
            for (n, word) in words.iter().enumerate() {
                let expected = if n / 60 == sector { u64::MAX } else { 0 };
                assert_eq!(*word, expected, "byte {at}, word {n}");
            }
            assert_eq!(read([Some(&bytes), Some(&pristine)]), vec![0; 480], "byte {at}");
        }
    }

    #[test]
    fn regions_are_as_small_as_the_page_allows() {
        assert_eq!(region_extents(1), 1);
        assert_eq!(region_extents(REGIONS_MAX), 1);
        assert_eq!(region_extents(REGIONS_MAX + 1), 2);
        // 1 TiB at 128 KiB: regions of 64 MiB.
        assert_eq!(region_extents(8 << 20), 512);
    }
}
