use super::*;
use crate::sector::stamp;

fn data(write: u32, at: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    stamp(&mut bytes, write, at / 512);
    bytes
}

fn write(oracle: &mut Oracle, at: u64, length: u64) -> u32 {
    let write = oracle.begin_write(Deed::Data, at, length, false);
    oracle.end_write(write, true);
    write
}

fn flush(oracle: &mut Oracle) {
    let flushing = oracle.begin_flush();
    oracle.end_flush(flushing);
}

fn read(oracle: &mut Oracle, at: u64, bytes: &[u8]) -> Result<(), String> {
    let reading = oracle.begin_read();
    oracle.check_read(reading, at, bytes)
}

#[test]
fn a_read_must_show_the_last_write() {
    let mut oracle = Oracle::new();
    let first = write(&mut oracle, 0, 8192);
    let second = write(&mut oracle, 4096, 4096);
    let mut bytes = data(first, 0, 8192);
    let wrong = read(&mut oracle, 0, &bytes).unwrap_err();
    assert!(wrong.contains("block 1") && wrong.contains("write 2: Data of bytes 4096..8192"));
    bytes[4096..].copy_from_slice(&data(second, 4096, 4096));
    assert_eq!(read(&mut oracle, 0, &bytes), Ok(()));
    assert_eq!(read(&mut oracle, 512, &bytes[512..1536]), Ok(()));
}

#[test]
fn a_racing_read_may_show_either_value() {
    let mut oracle = Oracle::new();
    let first = write(&mut oracle, 0, 4096);
    flush(&mut oracle);
    let reading = oracle.begin_read();
    let other = oracle.begin_read();
    let late = oracle.begin_read();
    let second = write(&mut oracle, 0, 4096);
    flush(&mut oracle);
    // Enough later writes that the first would be forgotten, were nobody reading.
    oracle.check_read(reading, 0, &data(first, 0, 4096)).unwrap();
    let third = write(&mut oracle, 0, 4096);
    oracle.check_read(other, 0, &data(second, 0, 4096)).unwrap();
    oracle.check_read(late, 0, &data(first, 0, 4096)).unwrap();
    assert!(read(&mut oracle, 0, &data(second, 0, 4096)).is_err());
    assert_eq!(read(&mut oracle, 0, &data(third, 0, 4096)), Ok(()));
}

#[test]
fn without_a_landing_log_what_was_not_flushed_may_be_torn_and_nothing_else() {
    let mut oracle = Oracle::new();
    let first = write(&mut oracle, 0, 8192);
    flush(&mut oracle);
    let second = write(&mut oracle, 0, 8192);
    oracle.cut();
    let mut bytes = data(first, 0, 8192);
    bytes[512..1024].copy_from_slice(&data(second, 512, 512));
    assert!(oracle.clone().check_after_cut(0, &bytes).is_err(), "the log has blocks");
    oracle.allow_torn();
    bytes[4096..4608].fill(0);
    assert!(oracle.clone().check_after_cut(0, &bytes).is_err(), "what was flushed is lost");
    bytes[4096..4608].copy_from_slice(&data(second, 4096, 512));
    assert_eq!(oracle.check_after_cut(0, &bytes), Ok(()));
    // What was seen stays, sector by sector.
    assert_eq!(oracle.check_after_cut(0, &bytes), Ok(()));
    assert!(oracle.check_after_cut(0, &data(first, 0, 8192)).is_err());
}

#[test]
fn a_flushed_write_must_survive_and_an_unflushed_one_may() {
    let mut oracle = Oracle::new();
    let first = write(&mut oracle, 0, 4096);
    flush(&mut oracle);
    let second = write(&mut oracle, 0, 4096);
    oracle.cut();
    let after = |bytes: Vec<u8>| oracle.clone().check_after_cut(0, &bytes);
    assert_eq!(after(data(first, 0, 4096)), Ok(()));
    assert_eq!(after(data(second, 0, 4096)), Ok(()));
    assert!(after(vec![0; 4096]).unwrap_err().contains("must survive"));
    let mut torn = data(first, 0, 4096);
    torn[512..1024].copy_from_slice(&data(second, 512, 512));
    assert!(after(torn).is_err());
}

#[test]
fn a_flush_covers_only_what_ended_before_it_began() {
    let mut oracle = Oracle::new();
    let racing = oracle.begin_write(Deed::Data, 0, 4096, false);
    let flushing = oracle.begin_flush();
    oracle.end_write(racing, true);
    oracle.end_flush(flushing);
    oracle.cut();
    assert_eq!(oracle.clone().check_after_cut(0, &[0; 4096]), Ok(()));
    assert_eq!(oracle.check_after_cut(0, &data(racing, 0, 4096)), Ok(()));
}

#[test]
fn a_forced_write_survives_without_a_flush() {
    let mut oracle = Oracle::new();
    let forced = oracle.begin_write(Deed::Data, 0, 4096, true);
    oracle.cut();
    assert_eq!(oracle.clone().check_after_cut(0, &[0; 4096]), Ok(()), "it never ended");
    let mut oracle = Oracle::new();
    assert_eq!(oracle.begin_write(Deed::Data, 0, 4096, true), forced);
    oracle.end_write(forced, true);
    oracle.cut();
    assert!(oracle.check_after_cut(0, &[0; 4096]).is_err());
}

#[test]
fn what_was_seen_after_a_cut_stays() {
    let mut oracle = Oracle::new();
    let lost = write(&mut oracle, 0, 8192);
    oracle.cut();
    let mut seen = data(lost, 0, 8192);
    seen[..4096].fill(0);
    assert_eq!(oracle.check_after_cut(0, &seen), Ok(()));
    oracle.cut();
    assert_eq!(oracle.clone().check_after_cut(0, &seen), Ok(()));
    assert!(oracle.clone().check_after_cut(0, &data(lost, 0, 8192)).is_err(), "it came back");
    assert!(oracle.clone().check_after_cut(4096, &[0; 4096]).is_err(), "it went away");
    assert!(read(&mut oracle, 0, &data(lost, 0, 8192)).unwrap_err().contains("power cuts ago"));
}

#[test]
fn a_trim_reads_as_zeros_and_may_be_lost_until_flushed() {
    let mut oracle = Oracle::new();
    let first = write(&mut oracle, 0, 8192);
    flush(&mut oracle);
    let trim = oracle.begin_write(Deed::Trim, 0, 4608, false);
    oracle.end_write(trim, true);
    let old = data(first, 0, 8192);
    assert!(read(&mut oracle, 0, &old[..4096]).is_err());
    assert_eq!(read(&mut oracle, 0, &[0; 4096]), Ok(()));
    assert_eq!(read(&mut oracle, 4096, &old[4096..]), Ok(()), "the ragged edge may stay");
    let mut edge = old[4096..].to_vec();
    edge[..512].fill(0);
    assert_eq!(read(&mut oracle, 4096, &edge), Ok(()));
    let mut cut = oracle.clone();
    cut.cut();
    assert_eq!(cut.check_after_cut(0, &old), Ok(()));
    flush(&mut oracle);
    oracle.cut();
    assert!(oracle.clone().check_after_cut(0, &old).is_err());
    assert_eq!(oracle.check_after_cut(0, &[0; 4096]), Ok(()));
}

#[test]
fn a_failed_write_may_show_or_not() {
    let mut oracle = Oracle::new();
    let first = write(&mut oracle, 0, 4096);
    let failed = oracle.begin_write(Deed::Data, 0, 4096, false);
    oracle.end_write(failed, false);
    assert_eq!(read(&mut oracle, 0, &data(first, 0, 4096)), Ok(()));
    assert_eq!(read(&mut oracle, 0, &data(failed, 0, 4096)), Ok(()));
}

#[test]
fn foreign_and_misplaced_data_is_named() {
    let mut oracle = Oracle::new();
    let first = write(&mut oracle, 0, 4096);
    assert!(read(&mut oracle, 8192, &[9; 512]).unwrap_err().contains("foreign"));
    let wrong = read(&mut oracle, 0, &data(first, 4096, 4096)).unwrap_err();
    assert!(wrong.contains("misplaced"), "{wrong}");
}

#[test]
fn touched_ranges_are_listed_once_and_the_certain_ones_told_apart() {
    let mut oracle = Oracle::new();
    let chunk = 128 << 10;
    write(&mut oracle, 4096, 8192);
    write(&mut oracle, 200 << 10, 512);
    flush(&mut oracle);
    write(&mut oracle, 8192, 4096);
    assert_eq!(oracle.touched(chunk), [(0..chunk, false), (chunk..2 * chunk, true)]);
}
