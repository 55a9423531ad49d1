//! A heat page on the fast drive: how hot extents were when a session ended. It only helps to place data:
//! a page that is missing, torn or old changes nothing but where things are.
//!
//! * Pages lie in what the first MiB leaves between the superblock's copies. Each is sound on its own.
//! * An entry is the distance from the extent before it (LEB128, 1 to 10 bytes) and the extent's level.
//! * Pages of one saving carry the same number; those of an earlier one are not heard.

use policy::{ExtentId, HeatLevel};

use super::{put_u32, put_u64, u32_at, u64_at};
use crate::checksum::crc32c_around;

/// Bytes in a heat page.
pub const HEAT_PAGE_BYTES: usize = 4096;
/// Where pages may lie on the fast drive: first byte and number of pages.
pub const HEAT_AREAS: [(u64, usize); 2] = [(8 << 10, 126), (516 << 10, 127)];

const MAGIC: u32 = u32::from_le_bytes(*b"BMht");
const VERSION: u32 = 1;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = AT_MAGIC + 4;
const AT_PAGE: usize = AT_VERSION + 4;
const AT_CRC: usize = AT_PAGE + 4;
const AT_VOLUME: usize = AT_CRC + 4;
const AT_SAVING: usize = AT_VOLUME + 8;
const AT_FIRST_EXTENT: usize = AT_SAVING + 8;
const AT_ENTRY_BYTES: usize = AT_FIRST_EXTENT + 8;
const HEADER_BYTES: usize = 64;
const _: () = assert!(AT_ENTRY_BYTES + 4 <= HEADER_BYTES);

/// The longest entry.
const ENTRY_BYTES_MAX: usize = 11;
/// So many entries fit into any page.
#[cfg(test)]
const ENTRIES_MIN: usize = (HEAT_PAGE_BYTES - HEADER_BYTES) / ENTRY_BYTES_MAX;

/// Encodes a page of the first of `extents`, which ascend, as many as it takes; gives the others.
pub fn encode<'a>(
    out: &mut [u8],
    (volume_tag, saving, page): (u64, u64, u32),
    extents: &'a [(ExtentId, HeatLevel)],
) -> &'a [(ExtentId, HeatLevel)] {
    assert!(out.len() == HEAT_PAGE_BYTES, "a heat page");
    out.fill(0);
    put_u32(out, AT_MAGIC, MAGIC);
    put_u32(out, AT_VERSION, VERSION);
    put_u32(out, AT_PAGE, page);
    put_u64(out, AT_VOLUME, volume_tag);
    put_u64(out, AT_SAVING, saving);
    let mut before = extents.first().map_or(0, |(extent, _)| extent.0);
    put_u64(out, AT_FIRST_EXTENT, before);
    let mut at = HEADER_BYTES;
    let mut taken = 0;
    for (extent, level) in extents {
        if at + ENTRY_BYTES_MAX > HEAT_PAGE_BYTES {
            break;
        }
        let mut distance = extent.0 - before;
        while distance >= 0x80 {
            out[at] = distance as u8 | 0x80;
            distance >>= 7;
            at += 1;
        }
        out[at] = distance as u8;
        out[at + 1] = level.0;
        at += 2;
        before = extent.0;
        taken += 1;
    }
    put_u32(out, AT_ENTRY_BYTES, (at - HEADER_BYTES) as u32);
    let crc = crc32c_around(out, AT_CRC);
    put_u32(out, AT_CRC, crc);
    &extents[taken..]
}

/// The number of the saving that a page is part of; `None`: it is not a sound page of the volume at this
/// place.
pub fn saving(page: &[u8], volume_tag: u64, number: u32) -> Option<u64> {
    let sound = page.len() == HEAT_PAGE_BYTES
        && u32_at(page, AT_MAGIC) == MAGIC
        && u64_at(page, AT_VOLUME) == volume_tag
        && u32_at(page, AT_PAGE) == number
        && u32_at(page, AT_VERSION) == VERSION
        && u32_at(page, AT_CRC) == crc32c_around(page, AT_CRC)
        && u32_at(page, AT_ENTRY_BYTES) as usize <= HEAT_PAGE_BYTES - HEADER_BYTES;
    sound.then(|| u64_at(page, AT_SAVING))
}

/// What a sound page says, as far as it makes sense.
pub fn entries(page: &[u8]) -> impl Iterator<Item = (ExtentId, HeatLevel)> + '_ {
    let end = HEADER_BYTES + u32_at(page, AT_ENTRY_BYTES) as usize;
    let mut bytes = page[HEADER_BYTES..end].iter();
    let mut extent = u64_at(page, AT_FIRST_EXTENT);
    std::iter::from_fn(move || {
        let mut distance = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = *bytes.next()?;
            distance |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                extent = extent.checked_add(distance)?;
                return Some((ExtentId(extent), HeatLevel(*bytes.next()?)));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: (u64, u64, u32) = (42, 7, 3);

    fn page(extents: &[(ExtentId, HeatLevel)]) -> (Vec<u8>, usize) {
        let mut bytes = vec![1; HEAT_PAGE_BYTES];
        let left = encode(&mut bytes, PLACE, extents).len();
        (bytes, left)
    }

    #[test]
    fn a_page_comes_back_as_it_was_written() {
        let distances = [0, 1, 127, 128, 1 << 20, 1 << 62];
        let mut at = 5;
        let extents = distances.map(|distance| {
            at += distance;
            (ExtentId(at), HeatLevel(distance as u8))
        });
        let (bytes, left) = page(&extents);
        assert_eq!(left, 0);
        assert_eq!(saving(&bytes, 42, 3), Some(7));
        assert!(entries(&bytes).eq(extents));
        assert_eq!(entries(&page(&[]).0).count(), 0);
    }

    #[test]
    fn what_does_not_fit_is_for_the_next_page() {
        let near: Vec<_> = (0..10_000).map(|extent| (ExtentId(extent), HeatLevel(9))).collect();
        let (bytes, left) = page(&near);
        assert!(entries(&bytes).eq(near[..10_000 - left].iter().copied()));
        assert!(left < 10_000 - 2000 && left > 10_000 - 2017);
        let far: Vec<_> = (0..400).map(|n| (ExtentId(n << 55), HeatLevel(n as u8))).collect();
        let (bytes, left) = page(&far);
        assert!(400 - left >= ENTRIES_MIN);
        assert!(entries(&bytes).eq(far[..400 - left].iter().copied()));
    }

    #[test]
    fn a_page_of_another_place_or_volume_or_with_a_flipped_bit_says_nothing() {
        let (pristine, _) = page(&[(ExtentId(1), HeatLevel(2))]);
        assert_eq!(saving(&pristine, 42, 4), None);
        assert_eq!(saving(&pristine, 41, 3), None);
        assert_eq!(saving(&pristine[1..], 42, 3), None);
        for at in 0..HEAT_PAGE_BYTES {
            let mut bytes = pristine.clone();
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(saving(&bytes, 42, 3), None, "byte {at}");
        }
    }
}
