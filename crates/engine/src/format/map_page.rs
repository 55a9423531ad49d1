//! A page of the map: where each of 504 consecutive extents has its home.
//!
//! * Two copies of each page lie side by side on each drive; a checkpoint overwrites the older.
//! * `lsn`: the page holds exactly the map changes of all records before it. Recovery applies
//!   those from it on.
//! * A page of zeros was never written: all its extents are holes.
//! * A torn page fails its CRC, and the other copy together with the log replaces it.

use super::{put_u32, put_u64, u32_at, u64_at};
use crate::address::{ExtentId, Home, Lsn, SlotId, Tier};
use crate::checksum::crc32c_around;

/// Bytes in a page: what any drive since 2011 writes as one sector or a few.
pub const PAGE_BYTES: usize = 4096;
/// Extents per page.
pub const ENTRIES_PER_PAGE: usize = (PAGE_BYTES - HEADER_BYTES) / 8;

/// Compared with as a whole, which is as fast as memory: a large volume has mostly blank pages.
const BLANK: [u8; PAGE_BYTES] = [0; PAGE_BYTES];

const MAGIC: u32 = u32::from_le_bytes(*b"BMmp");
const VERSION: u32 = 1;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = AT_MAGIC + 4;
const AT_PAGE: usize = AT_VERSION + 4;
const AT_LSN: usize = AT_PAGE + 8;
const AT_VOLUME: usize = AT_LSN + 8;
const AT_CRC: usize = AT_VOLUME + 8;
const HEADER_BYTES: usize = 64;
const _: () = assert!(AT_CRC + 4 <= HEADER_BYTES && ENTRIES_PER_PAGE == 504);

const MAPPED: u64 = 1 << 63;
const ON_SLOW: u64 = 1 << 62;
/// The extent lives on the fast drive, and what the slow drive has of it is current too.
pub(crate) const CLEAN: u64 = 1 << 61;
const SLOT_MASK: u64 = (1 << 40) - 1;
/// Of an entry whose extent is on the fast drive in part: ON_SLOW and CLEAN are set both; the slot is in
/// the lower bits, a bit for each block that it holds above.
pub(crate) const PART: u64 = ON_SLOW | CLEAN;
const PART_SLOT_BITS: u32 = 27;
const PART_BLOCK_BITS: u32 = 32;
const _: () = assert!(PART_SLOT_BITS + PART_BLOCK_BITS == 59);
/// The most blocks of an extent, and the most slots of the fast drive, that such an entry can tell apart.
pub(crate) const PART_BLOCKS_MAX: u64 = PART_BLOCK_BITS as u64;
pub(crate) const PART_SLOTS_MAX: u64 = 1 << PART_SLOT_BITS;
/// Of an entry that names two slots: the slow drive's is in the lower bits, the fast one's above.
const ORIGINAL_BITS: u32 = 34;
const COPY_BITS: u32 = 25;
/// Bits 59 and 60 are free for marks in memory.
const _: () = assert!(ORIGINAL_BITS + COPY_BITS == 59);
/// The most slots of the fast and of the slow drive that such an entry can tell apart.
pub(crate) const TWO_PLACES_SLOTS_MAX: [u64; 2] = [1 << COPY_BITS, 1 << ORIGINAL_BITS];

/// Encodes where an extent is; a hole is 0.
pub fn encode_home(home: Option<Home>) -> u64 {
    match home {
        None => 0,
        Some(Home { tier: Tier::Fast, slot }) => MAPPED | slot.0,
        Some(Home { tier: Tier::Slow, slot }) => MAPPED | ON_SLOW | slot.0,
    }
}

/// Decodes where an extent is. Outer `None`: not a valid entry.
#[allow(clippy::option_option)] // A hole is a valid value.
pub fn decode_home(raw: u64) -> Option<Option<Home>> {
    if raw == 0 {
        return Some(None);
    }
    if raw & MAPPED == 0 || raw & !(MAPPED | ON_SLOW | SLOT_MASK) != 0 {
        return None;
    }
    let tier = if raw & ON_SLOW == 0 { Tier::Fast } else { Tier::Slow };
    Some(Some(Home { tier, slot: SlotId(raw & SLOT_MASK) }))
}

/// What the entries of a volume may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryForm {
    /// Class span: an extent is in one place.
    OnePlace,
    /// Class span that keeps originals: it may also be a clean copy, and the entry names both slots.
    TwoPlaces,
    /// Class cache: it may also be a clean copy, and its original is in its own slot.
    OwnSlot,
    /// Class cache: some of its blocks may also be on the fast drive, the others in its own slot.
    OwnSlotInParts,
}

/// Blocks of an extent, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(u32);

impl Part {
    /// These blocks; `None`: it is none, or all of an extent that has so many, at most [`PART_BLOCKS_MAX`].
    pub fn of(blocks: impl IntoIterator<Item = u64>, extent_blocks: u64) -> Option<Part> {
        assert!(extent_blocks <= PART_BLOCKS_MAX);
        let bits = blocks.into_iter().fold(0, |bits, block| bits | 1_u64 << block);
        let all = (1_u64 << extent_blocks) - 1;
        (bits != 0 && bits != all).then_some(Part(bits as u32))
    }

    /// Whether the block is one of them.
    pub fn has(self, block: u64) -> bool {
        u64::from(self.0) >> block & 1 == 1
    }

    /// Whether it is some of the blocks of an extent that has so many, and not all of them.
    pub fn is_sound(self, extent_blocks: u64) -> bool {
        Part::of(self.blocks(extent_blocks), extent_blocks) == Some(self)
    }

    /// How many they are.
    pub fn count(self) -> u64 {
        u64::from(self.0.count_ones())
    }

    /// Which they are, of an extent of so many.
    pub fn blocks(self, extent_blocks: u64) -> impl Iterator<Item = u64> {
        (0..extent_blocks).filter(move |block| self.has(*block))
    }
}

/// Where an extent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Residence {
    /// Its home; a hole has none.
    pub home: Option<Home>,
    /// If the home is a copy: the slot of the slow drive that holds the same, or the rest.
    pub original: Option<Home>,
    /// The home has these blocks alone, and they are newer than the original's; the others are in the
    /// original alone. `None`: the home has all.
    pub part: Option<Part>,
}

impl Residence {
    /// In one place; `None`: a hole.
    pub fn at(home: impl Into<Option<Home>>) -> Residence {
        Residence { home: home.into(), ..Residence::default() }
    }

    /// A clean copy.
    pub fn copy(copy: Home, original: Home) -> Residence {
        Residence { home: Some(copy), original: Some(original), part: None }
    }

    /// Some blocks in a copy, and the others in the original.
    pub fn in_part(copy: Home, original: Home, part: Part) -> Residence {
        Residence { home: Some(copy), original: Some(original), part: Some(part) }
    }
}

impl EntryForm {
    /// Encodes where an extent is.
    pub fn encode(self, Residence { home, original, part }: Residence) -> u64 {
        let Some(original) = original else { return encode_home(home) };
        let copy = home.filter(|home| home.tier == Tier::Fast).expect("only a copy is clean");
        assert!(original.tier == Tier::Slow, "an original is below");
        if let Some(Part(blocks)) = part {
            assert!(self == EntryForm::OwnSlotInParts && copy.slot.0 < PART_SLOTS_MAX);
            return MAPPED | PART | u64::from(blocks) << PART_SLOT_BITS | copy.slot.0;
        }
        match self {
            EntryForm::OnePlace => panic!("entries of this volume name one place"),
            EntryForm::OwnSlot | EntryForm::OwnSlotInParts => encode_home(home) | CLEAN,
            EntryForm::TwoPlaces => {
                assert!(copy.slot.0 < TWO_PLACES_SLOTS_MAX[0]);
                assert!(original.slot.0 < TWO_PLACES_SLOTS_MAX[1]);
                MAPPED | CLEAN | copy.slot.0 << ORIGINAL_BITS | original.slot.0
            }
        }
    }

    /// Decodes where an extent is. `None`: not a valid entry for this extent.
    pub fn decode(self, raw: u64, extent: ExtentId) -> Option<Residence> {
        let slow = |slot| Home { tier: Tier::Slow, slot: SlotId(slot) };
        if raw & CLEAN == 0 {
            let home = decode_home(raw)?;
            // In class cache each extent has its own slot there.
            let foreign = |home: Home| home.tier == Tier::Slow && home.slot.0 != extent.0;
            let sound = !self.is_own_slot() || !home.is_some_and(foreign);
            return sound.then_some(Residence::at(home));
        }
        match self {
            EntryForm::OnePlace => None,
            EntryForm::OwnSlotInParts if raw & PART == PART => {
                let marks = 0b11 << (PART_SLOT_BITS + PART_BLOCK_BITS);
                let blocks = (raw >> PART_SLOT_BITS) as u32;
                let copy = Home { tier: Tier::Fast, slot: SlotId(raw & (PART_SLOTS_MAX - 1)) };
                let sound = raw & MAPPED != 0 && raw & marks == 0 && blocks != 0;
                sound.then_some(Residence::in_part(copy, slow(extent.0), Part(blocks)))
            }
            EntryForm::OwnSlot | EntryForm::OwnSlotInParts => {
                let home = decode_home(raw & !CLEAN)??;
                (home.tier == Tier::Fast).then_some(Residence::copy(home, slow(extent.0)))
            }
            EntryForm::TwoPlaces => {
                let marks = 0b11 << (ORIGINAL_BITS + COPY_BITS);
                let sound = raw & MAPPED != 0 && raw & (ON_SLOW | marks) == 0;
                let copy = SlotId(raw >> ORIGINAL_BITS & ((1 << COPY_BITS) - 1));
                let original = slow(raw & ((1 << ORIGINAL_BITS) - 1));
                sound.then_some(Residence::copy(Home { tier: Tier::Fast, slot: copy }, original))
            }
        }
    }

    /// Class cache: each extent has its own slot on the slow drive.
    pub fn is_own_slot(self) -> bool {
        matches!(self, EntryForm::OwnSlot | EntryForm::OwnSlotInParts)
    }
}

/// What stands in one copy of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCopy {
    /// All zeros: never written.
    Blank,
    /// Torn, rotten, or of another place or volume.
    Bad,
    /// Valid, up to this LSN.
    Valid(Lsn),
}

/// Encodes a page. `entries` are raw map entries, at most [`ENTRIES_PER_PAGE`]; the rest is holes.
pub fn encode(out: &mut [u8], volume_tag: u64, page: u64, lsn: Lsn, entries: &[u64]) {
    assert!(out.len() == PAGE_BYTES && entries.len() <= ENTRIES_PER_PAGE);
    out.fill(0);
    put_u32(out, AT_MAGIC, MAGIC);
    put_u32(out, AT_VERSION, VERSION);
    put_u64(out, AT_PAGE, page);
    put_u64(out, AT_LSN, lsn.0);
    put_u64(out, AT_VOLUME, volume_tag);
    for (bytes, entry) in out[HEADER_BYTES..].chunks_exact_mut(8).zip(entries) {
        bytes.copy_from_slice(&entry.to_le_bytes());
    }
    let crc = crc32c_around(out, AT_CRC);
    put_u32(out, AT_CRC, crc);
}

/// Judges one copy of a page. The entries of a valid one are read with [`entries`].
pub fn examine(bytes: &[u8], volume_tag: u64, page: u64) -> PageCopy {
    if bytes.len() != PAGE_BYTES {
        return PageCopy::Bad;
    }
    if bytes == BLANK {
        return PageCopy::Blank;
    }
    let sound = u32_at(bytes, AT_MAGIC) == MAGIC
        && u32_at(bytes, AT_VERSION) == VERSION
        && u64_at(bytes, AT_VOLUME) == volume_tag
        && u64_at(bytes, AT_PAGE) == page
        && u32_at(bytes, AT_CRC) == crc32c_around(bytes, AT_CRC);
    if sound { PageCopy::Valid(Lsn(u64_at(bytes, AT_LSN))) } else { PageCopy::Bad }
}

/// The raw entries of a page that [`examine`] found valid.
pub fn entries(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes[HEADER_BYTES..PAGE_BYTES].chunks_exact(8).map(|bytes| u64_at(bytes, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_comes_back_as_it_was_written() {
        let mut bytes = vec![0; PAGE_BYTES];
        let written: Vec<u64> = (0..504)
            .map(|n| {
                let tier = if n % 3 == 0 { Tier::Fast } else { Tier::Slow };
                encode_home((n % 5 != 0).then_some(Home { tier, slot: SlotId(n * 7) }))
            })
            .collect();
        encode(&mut bytes, 42, 9, Lsn(1000), &written);
        assert_eq!(examine(&bytes, 42, 9), PageCopy::Valid(Lsn(1000)));
        assert_eq!(entries(&bytes).collect::<Vec<_>>(), written);
        assert_eq!(examine(&bytes, 42, 8), PageCopy::Bad, "misdirected");
        assert_eq!(examine(&bytes, 41, 9), PageCopy::Bad, "foreign");
        assert_eq!(examine(&[0; PAGE_BYTES], 42, 9), PageCopy::Blank);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut bytes = vec![0; PAGE_BYTES];
        encode(&mut bytes, 42, 9, Lsn(1000), &[encode_home(None); 504]);
        for at in 0..PAGE_BYTES {
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(examine(&bytes, 42, 9), PageCopy::Bad, "byte {at}");
            bytes[at] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn impossible_entries_are_not_homes() {
        assert_eq!(decode_home(0), Some(None));
        assert_eq!(decode_home(5), None);
        assert_eq!(decode_home(MAPPED | 1 << 50), None);
        let home = Home { tier: Tier::Slow, slot: SlotId((1 << 40) - 1) };
        assert_eq!(decode_home(encode_home(Some(home))), Some(Some(home)));
    }

    #[test]
    fn an_entry_that_names_two_slots_is_what_it_was_when_the_form_was_made() {
        let fast = |slot| Some(Home { tier: Tier::Fast, slot: SlotId(slot) });
        let slow = |slot| Some(Home { tier: Tier::Slow, slot: SlotId(slot) });
        for ((home, original), raw) in [
            ((fast(0), slow(0)), 0xa000_0000_0000_0000),
            ((fast(5), slow(9)), 0xa000_0014_0000_0009),
            ((fast((1 << 25) - 1), slow((1 << 34) - 1)), 0xa7ff_ffff_ffff_ffff),
            ((fast(5), None), 0x8000_0000_0000_0005),
            ((slow(9), None), 0xc000_0000_0000_0009),
            ((None, None), 0),
        ] {
            let residence = Residence { home, original, part: None };
            assert_eq!(EntryForm::TwoPlaces.encode(residence), raw, "{residence:?}");
            assert_eq!(EntryForm::TwoPlaces.decode(raw, ExtentId(7)), Some(residence));
        }
    }

    #[test]
    fn an_entry_of_a_part_is_what_it_was_when_the_form_was_made() {
        let form = EntryForm::OwnSlotInParts;
        let copy = |slot| Home { tier: Tier::Fast, slot: SlotId(slot) };
        let original = Home { tier: Tier::Slow, slot: SlotId(7) };
        for (slot, blocks, raw) in [
            (0, vec![0], 0xe000_0000_0800_0000),
            (5, vec![0, 3], 0xe000_0000_4800_0005),
            ((1 << 27) - 1, (1..32).collect(), 0xe7ff_ffff_f7ff_ffff),
        ] {
            let part = Part::of(blocks.clone(), 32).unwrap();
            assert_eq!(part.blocks(32).collect::<Vec<_>>(), blocks);
            assert_eq!(part.count(), blocks.len() as u64);
            let residence = Residence::in_part(copy(slot), original, part);
            assert_eq!(form.encode(residence), raw, "{residence:?}");
            assert_eq!(form.decode(raw, ExtentId(7)), Some(residence));
            assert_eq!(form.decode(raw & !MAPPED, ExtentId(7)), None);
            assert_eq!(EntryForm::OwnSlot.decode(raw, ExtentId(7)), None);
        }
        assert_eq!(form.decode(MAPPED | PART | 5, ExtentId(7)), None, "a part of no block");
        assert_eq!([Part::of([], 32), Part::of(0..32, 32), Part::of(0..16, 16)], [None; 3]);
    }

    #[test]
    fn no_form_takes_what_is_not_its_own() {
        let extent = ExtentId(7);
        let [one, two, own] = [EntryForm::OnePlace, EntryForm::TwoPlaces, EntryForm::OwnSlot];
        let clean = MAPPED | CLEAN | 5;
        assert_eq!(one.decode(clean, extent), None);
        let copy = Home { tier: Tier::Fast, slot: SlotId(5) };
        let original = Home { tier: Tier::Slow, slot: SlotId(7) };
        for own in [own, EntryForm::OwnSlotInParts] {
            assert_eq!(own.decode(clean, extent), Some(Residence::copy(copy, original)));
        }
        for form in [one, two, own] {
            assert_eq!(form.decode(CLEAN, extent), None);
            assert_eq!(form.decode(clean | ON_SLOW, extent), None);
            for mark in [59, 60] {
                assert_eq!(form.decode(clean | 1 << mark, extent), None);
                assert_eq!(form.decode(MAPPED | 1 << mark, extent), None);
            }
        }
        let foreign = MAPPED | ON_SLOW | 8;
        assert_eq!(own.decode(foreign, extent), None);
        assert!(one.decode(foreign, extent).is_some() && two.decode(foreign, extent).is_some());
    }
}
