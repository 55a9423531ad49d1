use vm_memory::GuestRegionMmap;

use super::*;

const TABLE: u64 = 0x1000;
const SIZE: u16 = 8;
const WRITE: u16 = 2;
const NEXT: u16 = 1;
const INDIRECT: u16 = 4;

fn memory() -> GuestMemory {
    let region = |at: u64, bytes| GuestRegionMmap::from_range(GuestAddress(at), bytes, None);
    let regions = vec![region(0, 1 << 20).unwrap(), region(1 << 30, 1 << 20).unwrap()];
    GuestMemory::from_regions(regions).unwrap()
}

fn put(memory: &GuestMemory, table: u64, index: u16, descriptor: (u64, u32, u16, u16)) {
    let (at, length, flags, next) = descriptor;
    let place = GuestAddress(table + u64::from(index) * 16);
    memory.write_obj(Descriptor::new(at, length, flags, next), place).unwrap();
}

fn follow(memory: &GuestMemory, head: u16) -> Result<Chain, Malformed> {
    let table = Table { at: GuestAddress(TABLE), size: SIZE, indirect_allowed: true };
    let mut chain = Chain::default();
    chain.follow(memory, table, head).map(|()| chain)
}

#[test]
fn a_chain_is_read_and_written_across_its_segments() {
    let memory = memory();
    put(&memory, TABLE, 3, (0x2000, 16, NEXT, 1));
    put(&memory, TABLE, 1, (0x3000, 100, NEXT, 5));
    put(&memory, TABLE, 5, (1 << 30, 300, NEXT | WRITE, 0));
    put(&memory, TABLE, 0, (0x4000, 1, WRITE, 0));
    let chain = follow(&memory, 3).unwrap();
    assert_eq!((chain.readable.bytes(), chain.writable.bytes()), (116, 301));
    memory.write_slice(&[7; 16], GuestAddress(0x2000)).unwrap();
    memory.write_slice(&[8; 100], GuestAddress(0x3000)).unwrap();
    let mut buf = [0; 20];
    chain.readable.read(&memory, 6, &mut buf).unwrap();
    assert_eq!((&buf[..10], &buf[10..]), (&[7; 10][..], &[8; 10][..]));
    chain.writable.write(&memory, 290, &[9; 11]).unwrap();
    assert_eq!(memory.read_obj::<u8>(GuestAddress(0x4000)).unwrap(), 9);
    assert_eq!(memory.read_obj::<u8>(GuestAddress((1 << 30) + 290)).unwrap(), 9);
    assert_eq!(memory.read_obj::<u8>(GuestAddress((1 << 30) + 289)).unwrap(), 0);
}

#[test]
fn an_indirect_table_is_followed_once() {
    let memory = memory();
    put(&memory, TABLE, 2, (0x5000, 3 * 16, INDIRECT, 0));
    put(&memory, 0x5000, 0, (0x2000, 16, NEXT, 2));
    put(&memory, 0x5000, 2, (0x3000, 4096, WRITE, 0));
    let chain = follow(&memory, 2).unwrap();
    assert_eq!((chain.readable.bytes(), chain.writable.bytes()), (16, 4096));

    put(&memory, 0x5000, 2, (0x5000, 48, INDIRECT, 0));
    assert_eq!(follow(&memory, 2).unwrap_err(), Malformed::Indirect);
    put(&memory, TABLE, 2, (0x5000, 48, INDIRECT | NEXT, 0));
    assert_eq!(follow(&memory, 2).unwrap_err(), Malformed::Indirect);
    for bytes in [0, 8, 17, u32::MAX, 16 << 16] {
        put(&memory, TABLE, 2, (0x5000, bytes, INDIRECT, 0));
        assert_eq!(follow(&memory, 2).unwrap_err(), Malformed::IndirectBytes(bytes));
    }
    let table = Table { at: GuestAddress(TABLE), size: SIZE, indirect_allowed: false };
    put(&memory, TABLE, 2, (0x5000, 16, INDIRECT, 0));
    let refused = Chain::default().follow(&memory, table, 2);
    assert_eq!(refused, Err(Malformed::Indirect), "it was not negotiated");
}

#[test]
fn broken_chains_are_told_apart() {
    let memory = memory();
    assert_eq!(follow(&memory, SIZE).unwrap_err(), Malformed::Index(SIZE, SIZE));
    put(&memory, TABLE, 0, (0x2000, 16, NEXT, 99));
    assert_eq!(follow(&memory, 0).unwrap_err(), Malformed::Index(99, SIZE));
    put(&memory, TABLE, 0, (0x2000, 16, NEXT, 0));
    assert_eq!(follow(&memory, 0).unwrap_err(), Malformed::Long, "a circle");
    put(&memory, TABLE, 0, (0x2000, 0, NEXT, 0));
    assert_eq!(follow(&memory, 0).unwrap_err(), Malformed::Long, "a circle of nothing");
    put(&memory, TABLE, 0, (0x2000, u32::MAX, 0, 0));
    assert_eq!(follow(&memory, 0).unwrap_err(), Malformed::Long);
    put(&memory, TABLE, 0, (0x2000, 16, WRITE | NEXT, 1));
    put(&memory, TABLE, 1, (0x2000, 16, 0, 0));
    assert_eq!(follow(&memory, 0).unwrap_err(), Malformed::Order);
    put(&memory, TABLE, 0, (u64::MAX - 8, 64, INDIRECT, 0));
    assert_eq!(follow(&memory, 0).unwrap_err(), Malformed::Table(u64::MAX - 8));
}

/// Memory that is not there is found when it is used, not before.
#[test]
fn segments_in_no_memory_fail_when_they_are_copied() {
    let memory = memory();
    for (at, length) in [(1 << 20, 16), (u64::MAX, 16), ((1 << 20) - 8, 16), (1 << 40, 4096)] {
        put(&memory, TABLE, 0, (at, length, NEXT, 1));
        put(&memory, TABLE, 1, (at, length, WRITE, 0));
        let chain = follow(&memory, 0).unwrap();
        assert!(chain.readable.read(&memory, 0, &mut [0; 16]).is_err());
        assert!(chain.readable.read(&memory, 9, &mut [0; 7]).is_err());
        assert!(chain.writable.write(&memory, 0, &[0; 16]).is_err());
    }
}

/// Random tables: whatever they say, following and copying ends, without a panic.
#[test]
fn random_descriptors_do_no_harm() {
    let memory = memory();
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let (mut whole, mut broken) = (0, 0);
    let mut buf = vec![0; CHAIN_BYTES_MAX as usize];
    for _ in 0..20_000 {
        for table in [TABLE, TABLE + 0x1000] {
            for index in 0..SIZE {
                let at = match random() % 4 {
                    0 => TABLE + 0x1000,
                    1 => random(),
                    _ => random() % (1 << 20),
                };
                let length = if random() % 8 == 0 { random() as u32 } else { 16 << (random() % 8) };
                let flags = (random() % 8) as u16 & if random() % 3 == 0 { 7 } else { 3 };
                put(&memory, table, index, (at, length, flags, (random() % 10) as u16));
            }
        }
        match follow(&memory, (random() % 9) as u16) {
            Ok(chain) => {
                whole += 1;
                let readable = chain.readable.bytes() as usize;
                let _ = chain.readable.read(&memory, 0, &mut buf[..readable.min(4096)]);
                // Not into the tables: the next round would find its own bytes there.
                assert!(readable as u64 + chain.writable.bytes() <= CHAIN_BYTES_MAX);
            }
            Err(_) => broken += 1,
        }
    }
    assert!(whole > 1000 && broken > 1000, "{whole} whole, {broken} broken");
}
