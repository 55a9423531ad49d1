//! A log record: one header block with entries, then the data blocks the entries name.
//!
//! * A record never crosses the end of the ring; a `pad` record fills what is left there.
//! * The header's CRC covers the entries, and they hold a CRC per data block: a torn record is
//!   recognised whichever part is missing, and the header can be believed before the data is read.
//! * `lsn` is the record's own place, `generation` its session: neither an older lap's record nor
//!   one that an earlier, lost session left beyond the end is taken for part of the log.
//! * It repeats the entries of the record before it: a header that is lost is found in its successor.
//! * `durable`: everything before this LSN was on stable storage when the record was written.
//!   Recovery verifies allocations only from the greatest such LSN on.

use super::{put_u32, put_u64, u32_at, u64_at};
use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Lsn};
use crate::canary::canary;
use crate::checksum::crc32c_around;

/// Bytes in a record's header block.
pub const HEADER_BYTES: usize = BLOCK_BYTES as usize;
/// Most blocks a record may have, its header included: bounds what recovery must read at once.
pub const RECORD_BLOCKS_MAX: u64 = 513;
/// Room for entries in the header block.
pub const ENTRY_BYTES_MAX: usize = HEADER_BYTES - AT_ENTRIES;
/// Where entries end at most when a record is written: the other half of the room is for the echo
/// of the record before.
pub const ENTRIES_END_MAX: usize = AT_ENTRIES + (ENTRY_BYTES_MAX - ECHO_HEAD_BYTES) / 16 * 8;

const MAGIC: u32 = u32::from_le_bytes(*b"BMlr");
const VERSION: u32 = 1;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = AT_MAGIC + 4;
const AT_LSN: usize = AT_VERSION + 4;
const AT_VOLUME: usize = AT_LSN + 8;
const AT_GENERATION: usize = AT_VOLUME + 8;
const AT_DURABLE: usize = AT_GENERATION + 8;
const AT_BLOCKS: usize = AT_DURABLE + 8;
const AT_ENTRY_BYTES: usize = AT_BLOCKS + 4;
const AT_CRC: usize = AT_ENTRY_BYTES + 4;
const AT_ECHO_BYTES: usize = AT_CRC + 4;
const AT_ECHO_BLOCKS: usize = AT_ECHO_BYTES + 4;
const AT_ENTRIES: usize = 64;
const _: () = assert!(AT_ECHO_BLOCKS + 4 <= AT_ENTRIES);

/// In front of the entries in an echo: generation and durable point of their record.
const ECHO_HEAD_BYTES: usize = 16;

const KIND_DATA: u32 = 1;
const KIND_ZERO: u32 = 2;
const KIND_ALLOCATE: u32 = 3;
const KIND_UNMAP: u32 = 4;
const KIND_RELOCATE: u32 = 5;
const KIND_DESTAGED: u32 = 6;
const KIND_PAD: u32 = 7;
const KIND_LOST: u32 = 8;

/// One change that a record carries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// The next `crcs.len()` data blocks of the record are these consecutive volume blocks.
    Data {
        /// First volume block.
        start: BlockId,
        /// CRC-32C of each block.
        crcs: Vec<u32>,
    },
    /// These blocks read as zeros.
    Zero {
        /// First volume block.
        start: BlockId,
        /// Number of blocks.
        count: u32,
    },
    /// The whole extent was written to a fresh slot.
    Allocate {
        /// Which extent.
        extent: ExtentId,
        /// Its new map entry.
        entry: u64,
        /// CRC-32C of the extent's data.
        crc: u32,
    },
    /// These extents are holes now.
    Unmap {
        /// First extent.
        first: ExtentId,
        /// Number of extents.
        count: u32,
    },
    /// The extent's home moved; blocks in the log stay in force.
    Relocate {
        /// Which extent.
        extent: ExtentId,
        /// Its new map entry.
        entry: u64,
    },
    /// Blocks of the extent logged before `before` are in its home now.
    Destaged {
        /// Which extent.
        extent: ExtentId,
        /// Its map entry (0: all of it was zeros).
        entry: u64,
        /// Blocks with an LSN below this are superseded by the home.
        before: Lsn,
    },
    /// Nothing; fills the ring to its end.
    Pad,
    /// The logged data of these blocks is damaged: reading them is an error until they are
    /// overwritten.
    Lost {
        /// First volume block.
        start: BlockId,
        /// Number of blocks.
        count: u32,
    },
}

impl Entry {
    /// Bytes the entry takes in the header.
    pub fn encoded_bytes(&self) -> usize {
        match self {
            Entry::Data { crcs, .. } => data_entry_bytes(crcs.len()),
            Entry::Zero { .. } | Entry::Lost { .. } | Entry::Unmap { .. } => 16,
            Entry::Allocate { .. } | Entry::Relocate { .. } => 24,
            Entry::Destaged { .. } => 32,
            Entry::Pad => 8,
        }
    }

    /// Appends the entry to `out` at `at`; returns the end.
    pub fn encode(&self, out: &mut [u8], at: usize) -> usize {
        let (kind, argument) = match self {
            Entry::Data { crcs, .. } => (KIND_DATA, crcs.len() as u32),
            Entry::Zero { count, .. } => (KIND_ZERO, *count),
            Entry::Allocate { crc, .. } => (KIND_ALLOCATE, *crc),
            Entry::Unmap { count, .. } => (KIND_UNMAP, *count),
            Entry::Relocate { .. } => (KIND_RELOCATE, 0),
            Entry::Destaged { .. } => (KIND_DESTAGED, 0),
            Entry::Pad => (KIND_PAD, 0),
            Entry::Lost { count, .. } => (KIND_LOST, *count),
        };
        put_u32(out, at, kind);
        put_u32(out, at + 4, argument);
        match self {
            Entry::Data { start, crcs } => {
                put_u64(out, at + 8, start.0);
                for (index, crc) in crcs.iter().enumerate() {
                    put_u32(out, at + 16 + index * 4, *crc);
                }
            }
            Entry::Zero { start, .. } | Entry::Lost { start, .. } => put_u64(out, at + 8, start.0),
            Entry::Unmap { first, .. } => put_u64(out, at + 8, first.0),
            Entry::Allocate { extent, entry, .. } | Entry::Relocate { extent, entry } => {
                put_u64(out, at + 8, extent.0);
                put_u64(out, at + 16, *entry);
            }
            Entry::Destaged { extent, entry, before } => {
                put_u64(out, at + 8, extent.0);
                put_u64(out, at + 16, *entry);
                put_u64(out, at + 24, before.0);
            }
            Entry::Pad => {}
        }
        at + self.encoded_bytes()
    }
}

/// Bytes of a data entry for `blocks` blocks.
pub fn data_entry_bytes(blocks: usize) -> usize {
    16 + (blocks * 4).next_multiple_of(8)
}

/// Writes a data entry whose CRCs are given one by one, without building an [`Entry`].
pub fn encode_data(
    out: &mut [u8],
    at: usize,
    start: BlockId,
    crcs: impl ExactSizeIterator<Item = u32>,
) -> usize {
    let count = crcs.len();
    put_u32(out, at, KIND_DATA);
    put_u32(out, at + 4, count as u32);
    put_u64(out, at + 8, start.0);
    for (index, crc) in crcs.enumerate() {
        put_u32(out, at + 16 + index * 4, crc);
    }
    at + data_entry_bytes(count)
}

/// The facts of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The record's place.
    pub lsn: Lsn,
    /// Session that wrote it.
    pub generation: u64,
    /// Durable before this LSN, when written.
    pub durable: Lsn,
    /// Blocks, this one included.
    pub blocks: u32,
}

/// What a header repeats of the record before it: all but the data.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Echo {
    /// Session that wrote that record.
    pub generation: u64,
    /// Durable before this LSN, when it was written.
    pub durable: Lsn,
    /// Its blocks, header included.
    pub blocks: u32,
    /// Its entries, encoded.
    pub entries: Vec<u8>,
}

impl Echo {
    /// Takes what stands in a header block that [`seal`] has completed or [`decode_header`]
    /// accepted.
    pub fn take(&mut self, block: &[u8], header: &Header) {
        self.generation = header.generation;
        self.durable = header.durable;
        self.blocks = header.blocks;
        let end = AT_ENTRIES + u32_at(block, AT_ENTRY_BYTES) as usize;
        self.entries.clear();
        self.entries.extend_from_slice(&block[AT_ENTRIES..end]);
    }

    /// The header block of the record at `lsn`, which is the one that is repeated.
    pub fn header_block(&self, volume_tag: u64, lsn: Lsn, before: Option<&Echo>) -> Vec<u8> {
        let mut block = vec![0; HEADER_BYTES];
        let end = AT_ENTRIES + self.entries.len();
        block[AT_ENTRIES..end].copy_from_slice(&self.entries);
        let Echo { generation, durable, blocks, .. } = *self;
        seal(&mut block, volume_tag, Header { lsn, generation, durable, blocks }, end, before);
        block
    }
}

/// Completes a header block whose entries already stand from [`first_entry_at`] to `entries_end`.
/// `before`: the record before it, which is repeated if there is room.
pub fn seal(
    out: &mut [u8],
    volume_tag: u64,
    header: Header,
    entries_end: usize,
    before: Option<&Echo>,
) {
    let (block, _) = out.split_at_mut(HEADER_BYTES);
    block[..AT_ENTRIES].fill(0);
    block[entries_end..].fill(0);
    put_u32(block, AT_MAGIC, MAGIC);
    put_u32(block, AT_VERSION, VERSION);
    put_u64(block, AT_LSN, header.lsn.0);
    put_u64(block, AT_VOLUME, volume_tag);
    put_u64(block, AT_GENERATION, header.generation);
    put_u64(block, AT_DURABLE, header.durable.0);
    put_u32(block, AT_BLOCKS, header.blocks);
    put_u32(block, AT_ENTRY_BYTES, (entries_end - AT_ENTRIES) as u32);
    let room = HEADER_BYTES - entries_end;
    if let Some(echo) = before.filter(|echo| ECHO_HEAD_BYTES + echo.entries.len() <= room) {
        let bytes = ECHO_HEAD_BYTES + echo.entries.len();
        put_u32(block, AT_ECHO_BYTES, bytes as u32);
        put_u32(block, AT_ECHO_BLOCKS, echo.blocks);
        put_u64(block, entries_end, echo.generation);
        put_u64(block, entries_end + 8, echo.durable.0);
        block[entries_end + ECHO_HEAD_BYTES..entries_end + bytes].copy_from_slice(&echo.entries);
    }
    let crc = crc32c_around(block, AT_CRC);
    put_u32(block, AT_CRC, crc);
}

/// Offset in the header block where entries begin.
pub const fn first_entry_at() -> usize {
    AT_ENTRIES
}

/// Decodes a header block that was read from the place of `lsn`. `None`: no record of this log.
pub fn decode_header(block: &[u8], volume_tag: u64, lsn: Lsn) -> Option<Header> {
    let sound = block.len() == HEADER_BYTES
        && u32_at(block, AT_MAGIC) == MAGIC
        && u64_at(block, AT_VOLUME) == volume_tag
        && (u64_at(block, AT_LSN) == lsn.0 || canary!(OlderLapAccepted))
        && u32_at(block, AT_VERSION) == VERSION
        && u32_at(block, AT_CRC) == crc32c_around(block, AT_CRC);
    if !sound {
        return None;
    }
    let header = Header {
        lsn,
        generation: u64_at(block, AT_GENERATION),
        durable: Lsn(u64_at(block, AT_DURABLE)),
        blocks: u32_at(block, AT_BLOCKS),
    };
    let fits = (1..=RECORD_BLOCKS_MAX).contains(&u64::from(header.blocks))
        && u32_at(block, AT_ENTRY_BYTES) as usize <= ENTRY_BYTES_MAX
        && header.durable <= lsn;
    fits.then_some(header)
}

/// What a header block that [`decode_header`] accepted repeats of the record before it. `None`:
/// nothing, or nothing that makes sense.
pub fn decode_echo(block: &[u8]) -> Option<Echo> {
    let at = AT_ENTRIES + u32_at(block, AT_ENTRY_BYTES) as usize;
    let bytes = u32_at(block, AT_ECHO_BYTES) as usize;
    let echo = block.get(at..at.checked_add(bytes)?)?;
    let entries = echo.get(ECHO_HEAD_BYTES..)?.to_vec();
    let blocks = u32_at(block, AT_ECHO_BLOCKS);
    let fits = (1..=RECORD_BLOCKS_MAX).contains(&u64::from(blocks));
    let durable = Lsn(u64_at(echo, 8));
    fits.then_some(Echo { generation: u64_at(echo, 0), durable, blocks, entries })
}

/// Decodes the entries of a header block that [`decode_header`] accepted. `None`: they make no
/// sense, which under a valid CRC means a bug or malice.
pub fn decode_entries(block: &[u8], header: &Header) -> Option<Vec<Entry>> {
    let end = AT_ENTRIES + u32_at(block, AT_ENTRY_BYTES) as usize;
    let mut at = AT_ENTRIES;
    let mut entries = Vec::new();
    let mut data_blocks = 0u64;
    let mut padded = false;
    while at < end {
        let (kind, argument) = (u32_at(block, at), u32_at(block, at + 4));
        let size = match kind {
            KIND_DATA => data_entry_bytes(usize::try_from(argument).ok()?.min(HEADER_BYTES)),
            KIND_ZERO | KIND_UNMAP | KIND_LOST => 16,
            KIND_ALLOCATE | KIND_RELOCATE => 24,
            KIND_DESTAGED => 32,
            KIND_PAD => 8,
            _ => return None,
        };
        if at + size > end {
            return None;
        }
        let first = if size >= 16 { u64_at(block, at + 8) } else { 0 };
        entries.push(match kind {
            KIND_DATA => {
                data_blocks += u64::from(argument);
                let crcs = (0..argument as usize).map(|n| u32_at(block, at + 16 + n * 4)).collect();
                Entry::Data { start: BlockId(first), crcs }
            }
            KIND_ZERO => Entry::Zero { start: BlockId(first), count: argument },
            KIND_LOST => Entry::Lost { start: BlockId(first), count: argument },
            KIND_UNMAP => Entry::Unmap { first: ExtentId(first), count: argument },
            KIND_ALLOCATE => Entry::Allocate {
                extent: ExtentId(first),
                entry: u64_at(block, at + 16),
                crc: argument,
            },
            KIND_RELOCATE => {
                Entry::Relocate { extent: ExtentId(first), entry: u64_at(block, at + 16) }
            }
            KIND_DESTAGED => Entry::Destaged {
                extent: ExtentId(first),
                entry: u64_at(block, at + 16),
                before: Lsn(u64_at(block, at + 24)),
            },
            _ => {
                padded = true;
                Entry::Pad
            }
        });
        at += size;
    }
    // A padded record may be longer than its data, but data never lies beyond its record.
    let named = data_blocks + 1;
    let blocks = u64::from(header.blocks);
    let blocks_fit = if padded { named <= blocks } else { named == blocks };
    blocks_fit.then_some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Vec<u8>, Header, Vec<Entry>) {
        let entries = vec![
            Entry::Data { start: BlockId(7), crcs: vec![1, 2, 3] },
            Entry::Zero { start: BlockId(99), count: 4 },
            Entry::Allocate { extent: ExtentId(5), entry: 1 << 63 | 6, crc: 77 },
            Entry::Unmap { first: ExtentId(8), count: 1000 },
            Entry::Relocate { extent: ExtentId(9), entry: 1 << 63 | 7 },
            Entry::Destaged { extent: ExtentId(10), entry: 0, before: Lsn(55) },
            Entry::Lost { start: BlockId(77), count: 1 },
        ];
        let header = Header { lsn: Lsn(500), generation: 3, durable: Lsn(450), blocks: 4 };
        let mut block = vec![0xee; HEADER_BYTES];
        let end = entries.iter().fold(first_entry_at(), |at, entry| entry.encode(&mut block, at));
        let mut before = Echo { generation: 3, durable: Lsn(440), blocks: 7, entries: vec![0; 8] };
        Entry::Pad.encode(&mut before.entries, 0);
        seal(&mut block, 42, header, end, Some(&before));
        (block, header, entries)
    }

    #[test]
    fn a_record_comes_back_as_it_was_written() {
        let (block, header, entries) = example();
        assert_eq!(decode_header(&block, 42, Lsn(500)), Some(header));
        assert_eq!(decode_entries(&block, &header), Some(entries));
        assert_eq!(decode_header(&block, 42, Lsn(501)), None, "another place");
        assert_eq!(decode_header(&block, 41, Lsn(500)), None, "another volume");
    }

    #[test]
    fn a_header_is_found_again_in_its_successor() {
        let (block, header, entries) = example();
        let mut echo = Echo::default();
        echo.take(&block, &header);
        let next = Header { lsn: Lsn(504), generation: 4, durable: Lsn(500), blocks: 1 };
        let mut successor = vec![0xee; HEADER_BYTES];
        let end = Entry::Pad.encode(&mut successor, first_entry_at());
        seal(&mut successor, 42, next, end, Some(&echo));
        assert_eq!(decode_header(&successor, 42, Lsn(504)), Some(next));
        assert_eq!(decode_entries(&successor, &next), Some(vec![Entry::Pad]));
        assert_eq!(decode_echo(&successor), Some(echo));
        let again = decode_echo(&successor).unwrap().header_block(
            42,
            Lsn(500),
            decode_echo(&block).as_ref(),
        );
        assert_eq!(again, block);
        assert_eq!(decode_entries(&again, &header), Some(entries));
        // The largest that are written leave room for each other.
        let mut largest = Echo { blocks: 1, ..Echo::default() };
        largest.entries.resize(ENTRIES_END_MAX - AT_ENTRIES, 0);
        seal(&mut successor, 42, next, ENTRIES_END_MAX, Some(&largest));
        assert_eq!(decode_echo(&successor), Some(largest));
        // An earlier version's may leave none, and repeat nothing.
        let all = Echo { blocks: 1, entries: vec![0; ENTRY_BYTES_MAX], ..Echo::default() };
        seal(&mut successor, 42, next, end, Some(&all));
        assert_eq!(decode_echo(&successor), None);
    }

    #[test]
    fn data_entries_are_the_same_either_way() {
        let mut one = vec![0; HEADER_BYTES];
        let mut other = vec![0; HEADER_BYTES];
        let entry = Entry::Data { start: BlockId(3), crcs: vec![9, 8, 7] };
        let end = entry.encode(&mut one, 64);
        assert_eq!(encode_data(&mut other, 64, BlockId(3), [9, 8, 7].into_iter()), end);
        assert_eq!(one, other);
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let (mut block, ..) = example();
        for at in 0..HEADER_BYTES {
            block[at] ^= 1 << (at % 8);
            assert_eq!(decode_header(&block, 42, Lsn(500)), None, "byte {at}");
            block[at] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn a_padded_record_does_not_name_data_beyond_its_end() {
        let mut block = vec![0; HEADER_BYTES];
        let entry = Entry::Data { start: BlockId(7), crcs: vec![1, 2, 3] };
        let end = entry.encode(&mut block, first_entry_at());
        let end = Entry::Pad.encode(&mut block, end);
        for (blocks, accepted) in [(1, false), (3, false), (4, true), (9, true)] {
            let header = Header { lsn: Lsn(500), generation: 3, durable: Lsn(450), blocks };
            let mut block = block.clone();
            seal(&mut block, 42, header, end, None);
            let header = decode_header(&block, 42, Lsn(500)).unwrap();
            assert_eq!(decode_entries(&block, &header).is_some(), accepted, "{blocks} blocks");
        }
    }

    #[test]
    fn hostile_entries_under_a_valid_crc_do_not_panic() {
        let (pristine, ..) = example();
        for at in AT_BLOCKS..400 {
            for value in [0, 1, 2, 6, 7, 0x7f, 0xff] {
                let mut block = pristine.clone();
                block[at] = value;
                let crc = crc32c_around(&block, AT_CRC);
                put_u32(&mut block, AT_CRC, crc);
                if let Some(header) = decode_header(&block, 42, Lsn(500)) {
                    let _ = (decode_entries(&block, &header), decode_echo(&block));
                }
            }
        }
    }
}
