use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestRegionMmap};

use super::*;
use crate::vhost_user::chain::Table;

const VOLUME_BYTES: u64 = 1 << 20;
const TABLE: u64 = 0x1000;
const GIVEN: u64 = 0x8000;

fn info(read_only: bool) -> VolumeInfo {
    VolumeInfo {
        size_bytes: VOLUME_BYTES,
        sector_bytes: 512,
        preferred_bytes: 4096,
        transfer_bytes_max: 1 << 20,
        read_only,
    }
}

/// What comes of a request with these bytes to read and so many to write.
fn parse_as(given: &[u8], wanted: u32, read_only: bool) -> Result<Asked, Malformed> {
    let region = GuestRegionMmap::from_range(GuestAddress(0), 1 << 20, None).unwrap();
    let memory = GuestMemory::from_regions(vec![region]).unwrap();
    memory.write_slice(given, GuestAddress(GIVEN)).unwrap();
    let readable = Descriptor::new(GIVEN, given.len() as u32, 1, 1);
    let writable = Descriptor::new(0x4_0000, wanted, 2, 0);
    memory.write_obj(readable, GuestAddress(TABLE)).unwrap();
    memory.write_obj(writable, GuestAddress(TABLE + 16)).unwrap();
    let mut chain = Chain::default();
    let table = Table { at: GuestAddress(TABLE), size: 2, indirect_allowed: false };
    chain.follow(&memory, table, 0)?;
    Asked::parse(&memory, &chain, &info(read_only))
}

fn parse(given: &[u8], wanted: u32) -> Asked {
    parse_as(given, wanted, false).unwrap()
}

fn header(kind: u32, sector: u64) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &[0xff; 4], &sector.to_le_bytes()].concat()
}

fn with_range(kind: u32, sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let range = [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat();
    [header(kind, 0), range].concat()
}

#[test]
fn reads_and_writes_lie_in_the_volume() {
    let sectors = VOLUME_BYTES / 512;
    assert_eq!(parse(&header(kind::IN, 8), 4097), Asked::Read { at: 4096, length: 4096 });
    assert_eq!(parse(&header(kind::IN, sectors), 1), Asked::Read { at: VOLUME_BYTES, length: 0 });
    let written = [header(kind::OUT, 2), vec![0; 1024]].concat();
    assert_eq!(parse(&written, 1), Asked::Write { at: 1024, length: 1024 });
    let refused = Asked::Refused(Status::IoError);
    for (sector, wanted) in [(sectors, 513), (sectors - 1, 1025), (u64::MAX, 513), (0, 100)] {
        assert_eq!(parse(&header(kind::IN, sector), wanted), refused, "{sector} {wanted}");
    }
    assert_eq!(parse_as(&written, 1, true).unwrap(), refused, "the volume is read-only");
    let beyond = [header(kind::OUT, sectors), vec![0; 512]].concat();
    assert_eq!(parse(&beyond, 1), refused);
}

#[test]
fn ranges_are_trimmed_and_zeroed() {
    let Asked::Zero(spots) = parse(&with_range(kind::WRITE_ZEROES, 8, 16, 1), 1) else { panic!() };
    assert_eq!(spots.iter().collect::<Vec<_>>(), [Spot { at: 4096, length: 8192, unmap: true }]);
    let Asked::Trim(spots) = parse(&with_range(kind::DISCARD, 1, 1, 0), 1) else { panic!() };
    assert_eq!(spots.iter().collect::<Vec<_>>(), [Spot { at: 512, length: 512, unmap: false }]);

    let unsupported = Asked::Refused(Status::Unsupported);
    assert_eq!(parse(&with_range(kind::DISCARD, 1, 1, 1), 1), unsupported, "trims have no flags");
    assert_eq!(parse(&with_range(kind::WRITE_ZEROES, 1, 1, 2), 1), unsupported);
    let refused = Asked::Refused(Status::IoError);
    assert_eq!(parse(&with_range(kind::DISCARD, u64::MAX, 1, 0), 1), refused);
    assert_eq!(parse(&with_range(kind::DISCARD, 0, u32::MAX, 0), 1), refused);
    assert_eq!(parse(&header(kind::DISCARD, 0), 1), refused, "no range at all");
    let odd = [with_range(kind::DISCARD, 0, 1, 0), vec![0; 3]].concat();
    assert_eq!(parse(&odd, 1), refused);
    let many = [header(kind::DISCARD, 0), vec![0; 16 * (RANGES_MAX + 1)]].concat();
    assert_eq!(parse(&many, 1), refused);
}

#[test]
fn the_rest_is_answered_too() {
    assert_eq!(parse(&header(kind::FLUSH, 0), 1), Asked::Flush);
    assert_eq!(parse(&header(kind::GET_ID, 0), 21), Asked::Identity);
    for unknown in [2, 3, 14, 99, u32::MAX] {
        assert_eq!(parse(&header(unknown, 0), 1), Asked::Refused(Status::Unsupported));
    }
    assert_eq!(parse_as(&[0; 15], 1, false), Err(Malformed::Short(15, 1)));
    assert_eq!(parse_as(&[0; 16], 0, false), Err(Malformed::Short(16, 0)));
}
