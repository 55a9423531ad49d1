use vm_memory::Bytes;

use super::*;

const RING_AT: u64 = 0xff0;
const PLACES: u16 = 16;

fn queue_in(regions: &[(GuestAddress, usize)]) -> (Queue, GuestMemory) {
    let memory = GuestMemory::from_ranges(regions).unwrap();
    let mut queue = Queue::new(PLACES).unwrap();
    queue.try_set_size(PLACES).unwrap();
    queue.try_set_desc_table_address(GuestAddress(0)).unwrap();
    queue.try_set_avail_ring_address(GuestAddress(RING_AT)).unwrap();
    queue.try_set_used_ring_address(GuestAddress(0x200)).unwrap();
    queue.set_ready(true);
    assert!(queue.is_valid(&memory));
    (queue, memory)
}

fn make_available(memory: &GuestMemory, index: u16) {
    memory.write_obj(index.to_le(), GuestAddress(RING_AT + 2)).unwrap();
}

#[test]
fn an_entry_that_cannot_be_read_breaks_the_queue() {
    // The seventh entry lies across both, and nobody can read it in one piece.
    let torn = [(GuestAddress(0), 0x1001), (GuestAddress(0x1001), 0x2000)];
    let (mut queue, memory) = queue_in(&torn);
    let mut heads = 0;
    let mut take = |_| {
        heads += 1;
        Ok(())
    };
    make_available(&memory, 6);
    assert_eq!(each_head(&mut queue, &memory, &mut take), Ok(()));
    assert_eq!(each_head(&mut queue, &memory, &mut take), Ok(()), "nothing is there");
    make_available(&memory, 8);
    assert_eq!(each_head(&mut queue, &memory, &mut take), Err(Malformed::Queue));
    assert_eq!(heads, 6);
}

#[test]
fn an_index_that_wraps_is_none_that_jumped() {
    let (mut queue, memory) = queue_in(&[(GuestAddress(0), 0x2000)]);
    queue.set_next_avail(u16::MAX);
    make_available(&memory, 3);
    let mut heads = 0;
    let take = |_| {
        heads += 1;
        Ok(())
    };
    assert_eq!(each_head(&mut queue, &memory, take), Ok(()));
    assert_eq!(heads, 4);
}
