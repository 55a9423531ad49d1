use super::*;

const TAG: u64 = 7;

fn log(ring_blocks: u64) -> Log {
    let mut log = Log::new(ring_blocks, 1 << 20, TAG, Lsn(1));
    log.begin_session(3);
    log
}

fn data(blocks: u64, byte: u8) -> Vec<u8> {
    vec![byte; blocks as usize * BLOCK]
}

/// Takes the sealed records as a drive would, and says they are durable.
fn write_out(log: &mut Log) -> Vec<(Lsn, Vec<u8>)> {
    let mut records = Vec::new();
    while let Some(sealed) = log.next_sealed() {
        assert_eq!(sealed.position, log.position(sealed.lsn));
        log.settle_written(sealed.lsn);
        records.push((sealed.lsn, sealed.buf.to_vec()));
    }
    let end = log.end();
    log.settle_durable(end, &Flushed::told_by_a_test());
    records
}

#[test]
fn requests_of_one_round_share_a_record() {
    let (mut log, pool) = (log(1024), Pool::new(0));
    for n in 0..10 {
        log.append_data(&pool, BlockId(n * 5), &data(1, n as u8));
    }
    let records = write_out(&mut log);
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].1.len(), 11 * BLOCK);
    let header = record::decode_header(&records[0].1[..BLOCK], TAG, Lsn(1)).unwrap();
    let entries = record::decode_entries(&records[0].1[..BLOCK], &header).unwrap();
    assert_eq!((header.blocks, header.generation, entries.len()), (11, 3, 10));
    assert_eq!(log.lookup(BlockId(45)).unwrap().lsn(), Lsn(11));
    assert_eq!(log.live_blocks(), 10);
}

#[test]
fn records_stay_whole_at_the_end_of_the_ring_over_many_laps() {
    let (mut log, pool) = (log(1024), Pool::new(0));
    let mut size = 1;
    for lap in 0..200u64 {
        size = size * 7 % 90 + 1;
        log.append_data(&pool, BlockId(lap * 100), &data(size, lap as u8));
        for (lsn, bytes) in write_out(&mut log) {
            let blocks = (bytes.len() / BLOCK) as u64;
            assert!(lsn.0 % 1024 + blocks <= 1024, "{lsn} has {blocks} blocks");
            assert!(record::decode_header(&bytes[..BLOCK], TAG, lsn).is_some());
        }
        for block in lap * 100..lap * 100 + size {
            assert!(log.lookup(BlockId(block)).is_some());
            log.forget(BlockId(block));
        }
        let live = log.oldest_live();
        assert_eq!(live, log.end(), "everything was forgotten");
        let flushed = Flushed::told_by_a_test();
        log.settle_recorded(live, &flushed);
        log.advance_tail(live, &flushed);
    }
    assert!(log.tail().0 > 3 * 1024);
}

#[test]
fn the_newest_version_wins_and_only_it_lives() {
    let (mut log, pool) = (log(1024), Pool::new(0));
    for version in 0..5 {
        log.append_data(&pool, BlockId(1), &data(1, version));
        write_out(&mut log);
    }
    log.append_entry(&pool, &Entry::Zero { start: BlockId(2), count: 2 });
    write_out(&mut log);
    let mut live = Vec::new();
    log.visit_live(log.end(), |one| {
        live.push((one.block.0, one.lsn.0));
        true
    });
    assert_eq!(live, [(1, 10), (2, 11), (3, 11)]);
    assert_eq!(log.oldest_live(), Lsn(9));
    log.append_data(&pool, BlockId(1), &data(3, 9));
    assert_eq!(log.oldest_live(), Lsn(12), "the zeros are overwritten too");
}

#[test]
fn a_large_request_is_its_own_record_without_a_copy() {
    let (mut log, pool) = (log(1024), Pool::new(0));
    log.append_data(&pool, BlockId(0), &data(1, 1));
    let mut buf = pool.take(32 * BLOCK);
    buf.fill(2);
    let address = buf.as_ptr();
    let (lsn, position, end) = log.append_large(BlockId(100), &mut buf).unwrap();
    assert_eq!((lsn, end, position), (Lsn(3), Lsn(36), log.position(Lsn(3))));
    assert_eq!(buf[BLOCK..].as_ptr(), address);
    assert!(record::decode_header(&buf[..BLOCK], TAG, lsn).is_some());
    // The small one before it was sealed; written is counted without gaps.
    log.settle_written(lsn);
    assert_eq!(log.written(), Lsn(1));
    write_out(&mut log);
    assert_eq!(log.written(), Lsn(36));
    let mut small = pool.take(4 * BLOCK);
    assert!(log.append_large(BlockId(0), &mut small).is_none());
}

#[test]
fn durability_is_recorded_by_a_later_record_only() {
    let (mut log, pool) = (log(1024), Pool::new(0));
    log.append_data(&pool, BlockId(0), &data(1, 1));
    write_out(&mut log);
    assert_eq!((log.durable(), log.recorded()), (Lsn(3), Lsn(1)));
    log.append_durable_point(&pool);
    write_out(&mut log);
    assert_eq!((log.durable(), log.recorded()), (Lsn(4), Lsn(3)));
}

#[test]
#[should_panic(expected = "overran")]
fn the_ring_cannot_overtake_its_tail() {
    let (mut log, pool) = (log(1024), Pool::new(0));
    for n in 0..20 {
        log.append_data(&pool, BlockId(n * 64), &data(64, 1));
    }
}
