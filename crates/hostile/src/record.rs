//! The header block of a log record, at its place in the log of its volume.

use engine::format::record::{
    Entry, HEADER_BYTES, Header, decode_echo, decode_entries, decode_header, first_entry_at, seal,
};
use engine::{BlockId, ExtentId, Lsn};

use crate::{Seed, Target, make_checksum_right, seed as named};

/// Where the checksum is.
pub(crate) const CRC_AT: usize = 48;
const TAG: u64 = 42;
const LSN: Lsn = Lsn(500);

pub(crate) const TARGET: Target = Target { name: "record", run, seeds };

fn run(bytes: &[u8]) {
    let _ = decode_header(bytes, TAG, LSN);
    let mut block = vec![0; HEADER_BYTES];
    let length = bytes.len().min(HEADER_BYTES);
    block[..length].copy_from_slice(&bytes[..length]);
    make_checksum_right(&mut block, CRC_AT);
    let Some(header) = decode_header(&block, TAG, LSN) else { return };
    let Some(entries) = decode_entries(&block, &header) else { return };
    let named: u64 = entries
        .iter()
        .map(|entry| if let Entry::Data { crcs, .. } = entry { crcs.len() as u64 } else { 0 })
        .sum();
    assert!(named < u64::from(header.blocks), "data beyond the record's end");
    let mut again = vec![0; HEADER_BYTES];
    let end = entries.iter().fold(first_entry_at(), |at, entry| entry.encode(&mut again, at));
    seal(&mut again, TAG, header, end, decode_echo(&block).as_ref());
    assert_eq!(decode_header(&again, TAG, LSN), Some(header));
    assert_eq!(decode_entries(&again, &header), Some(entries));
    assert_eq!(decode_echo(&again), decode_echo(&block));
}

fn seeds() -> Vec<Seed> {
    let record = |name: &str, blocks: u32, entries: &[Entry]| {
        let mut block = vec![0; HEADER_BYTES];
        let end = entries.iter().fold(first_entry_at(), |at, entry| entry.encode(&mut block, at));
        let header = Header { lsn: LSN, generation: 3, durable: Lsn(450), blocks };
        seal(&mut block, TAG, header, end, None);
        named(name, &block[..end])
    };
    let (extent, entry) = (ExtentId(5), 1 << 63 | 6);
    let map = [
        Entry::Allocate { extent, entry, crc: 77 },
        Entry::Relocate { extent, entry },
        Entry::Destaged { extent, entry: 0, before: Lsn(55) },
        Entry::Unmap { first: extent, count: 1000 },
    ];
    vec![
        record("empty", 1, &[]),
        record("data", 4, &[Entry::Data { start: BlockId(7), crcs: vec![1, 2, 3] }]),
        record("map", 1, &map),
        record(
            "marks",
            1,
            &[
                Entry::Zero { start: BlockId(99), count: 4 },
                Entry::Lost { start: BlockId(1), count: 1 },
            ],
        ),
        record("padded", 9, &[Entry::Data { start: BlockId(7), crcs: vec![1] }, Entry::Pad]),
    ]
}
