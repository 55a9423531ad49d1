//! What guests ask, against what the volume holds.

use std::collections::HashMap;
use std::time::Duration;

use io::{ErrorKind, IoError};
use uring::Backend;

use crate::guest::*;
use crate::server::{SERIAL, SIZE_BYTES, Server};

/// Cuts requests into this many bytes at most, so that some are cut by the door, too.
const SEGMENT: usize = 20_000;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Mixed requests over `queues`, many at a time, against a model of the volume. The requests that
/// are under way together touch different zones, so that their order does not matter.
fn play(server: &Server, queues: usize, without: u64, rounds: usize) {
    const ZONE_BYTES: usize = 128 << 10;
    let mut guest = Guest::connect(&server.path, queues, without);
    let mut model = vec![0u8; SIZE_BYTES as usize];
    let mut random = Random(0x5eed_0001 + queues as u64);
    for round in 0..rounds {
        let mut zones: Vec<usize> = (0..SIZE_BYTES as usize / ZONE_BYTES).collect();
        let mut asked = HashMap::new();
        let mut counts = vec![0; queues];
        for _ in 0..1 + random.below(12 * queues as u64) {
            let queue = random.below(queues as u64) as usize;
            if counts[queue] == 12 {
                continue;
            }
            let zone = zones.swap_remove(random.below(zones.len() as u64) as usize);
            let from = random.below(200) as usize * 512;
            let length = (1 + random.below((ZONE_BYTES - from) as u64 / 512) as usize) * 512;
            let at = zone * ZONE_BYTES + from;
            let (sector, sectors) = ((at / 512) as u64, (length / 512) as u32);
            let segment = if guest.indirect() { SEGMENT } else { 1 << 20 };
            let head = match random.below(5) {
                0 | 1 => guest.put(queue, (IN, sector), &[], length, segment),
                2 | 3 => {
                    let fill = random.below(256) as u8;
                    let data: Vec<u8> = (0..length).map(|n| fill ^ (n / 512) as u8).collect();
                    model[at..at + length].copy_from_slice(&data);
                    guest.put(queue, (OUT, sector), &data, 0, segment)
                }
                _ => {
                    model[at..at + length].fill(0);
                    let (kind, flags) = [(WRITE_ZEROES, 1), (WRITE_ZEROES, 0), (DISCARD, 0)]
                        [random.below(3) as usize];
                    // Trims may leave parts of blocks; the volume in memory does not.
                    guest.put(queue, (kind, 0), &range(sector, sectors, flags), 0, segment)
                }
            };
            asked.insert((queue, head), (at, length));
            counts[queue] += 1;
        }
        if random.below(3) == 0 {
            guest.put(0, (FLUSH, 0), &[], 0, SEGMENT);
            counts[0] += 1;
        }
        for (queue, count) in counts.iter().enumerate() {
            if *count > 0 {
                guest.kick(queue);
            }
        }
        for (queue, count) in counts.iter().enumerate() {
            for answer in guest.await_answers(queue, *count) {
                assert_eq!(answer.status, 0, "round {round}");
                if answer.written > 1 {
                    let (at, length) = asked[&(queue, answer.head)];
                    assert_eq!(answer.written as usize, length + 1);
                    let data = guest.data(queue, answer.head, length);
                    assert!(data == model[at..at + length], "round {round}: {length} at {at}");
                }
            }
        }
    }
    for at in (0..SIZE_BYTES).step_by(ZONE_BYTES) {
        let data = guest.read(0, at / 512, ZONE_BYTES);
        assert!(data == model[at as usize..][..ZONE_BYTES], "at the end: {at}");
    }
}

#[test]
fn mixed_requests_over_several_queues_do_what_they_say() {
    let server = Server::with(|volume| volume.with_transfer_max(32 << 10));
    play(&server, 4, 0, 400);
    assert!(server.reports().is_empty(), "{:?}", server.reports());
    server.stop();
}

#[test]
fn a_guest_without_the_newer_features_is_served_as_well() {
    for (queues, without) in [(1, FEATURE_INDIRECT | FEATURE_EVENT_INDEX), (2, FEATURE_EVENT_INDEX)]
    {
        let server = Server::start();
        play(&server, queues, without, 60);
        assert!(server.reports().is_empty(), "{:?}", server.reports());
        server.stop();
    }
}

#[test]
fn without_io_uring_it_works_too() {
    let server = Server::on(Backend::Threads, |volume| volume);
    play(&server, 2, 0, 60);
    server.stop();
}

#[test]
fn a_slow_volume_is_waited_for() {
    let server = Server::start();
    server.delay(Duration::from_millis(1));
    play(&server, 2, 0, 20);
    server.stop();
}

#[test]
fn a_flush_is_a_flush_and_who_knows_none_gets_durable_writes() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 1, 0);
    assert_eq!(guest.ask(0, (OUT, 0), &[1; 4096], 0).0, 0);
    assert_eq!(guest.ask(0, (FLUSH, 0), &[], 0).0, 0);
    let counts = server.counts();
    assert_eq!((counts.writes, counts.flushes, counts.durable), (1, 1, 0));
    drop(guest);

    let mut guest = Guest::connect(&server.path, 1, FEATURE_FLUSH);
    assert_eq!(guest.ask(0, (OUT, 8), &[1; 4096], 0).0, 0);
    assert_eq!(guest.ask(0, (WRITE_ZEROES, 0), &range(0, 8, 1), 0).0, 0);
    assert_eq!(guest.ask(0, (DISCARD, 0), &range(8, 8, 0), 0).0, 0);
    let counts = server.counts();
    assert_eq!((counts.flushes, counts.durable), (1, 3));
}

#[test]
fn failures_reach_the_guest_and_it_goes_on() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 1, 0);
    server.fail(Some(IoError::new(ErrorKind::Io, "a broken drive")));
    assert_eq!(guest.ask(0, (OUT, 0), &[1; 512], 0), (1, vec![]));
    assert_eq!(guest.ask(0, (IN, 0), &[], 512), (1, vec![]));
    assert_eq!(guest.ask(0, (FLUSH, 0), &[], 0), (1, vec![]));
    assert_eq!(guest.ask(0, (DISCARD, 0), &range(0, 8, 0), 0), (1, vec![]));
    server.fail(None);
    assert_eq!(guest.ask(0, (OUT, 0), &[1; 512], 0), (0, vec![]));
    assert_eq!(guest.ask(0, (IN, SIZE_BYTES / 512), &[], 512), (1, vec![]));
    assert_eq!(guest.ask(0, (77, 0), &[], 0), (2, vec![]));
    assert_eq!(guest.read(0, 0, 512), [1; 512]);
    assert!(server.reports().is_empty(), "{:?}", server.reports());
}

#[test]
fn the_disk_says_what_it_is() {
    let server = Server::with(|volume| volume.read_only());
    let mut guest = Guest::connect(&server.path, 1, 0);
    let (status, identity) = guest.ask(0, (GET_ID, 0), &[], 20);
    assert_eq!(status, 0);
    assert_eq!(std::str::from_utf8(&identity).unwrap().trim_end_matches('\0'), SERIAL);
    let config = guest.config(60);
    assert_eq!(u64::from_le_bytes(config[..8].try_into().unwrap()), SIZE_BYTES / 512);
    assert_eq!(guest.config(96)[..60], config[..]);
    assert_eq!(guest.ask(0, (OUT, 0), &[1; 512], 0), (1, vec![]), "it is read-only");
    assert_eq!(guest.ask(0, (WRITE_ZEROES, 0), &range(0, 8, 1), 0), (1, vec![]));
    assert_eq!(guest.read(0, 0, 4096), [0; 4096]);
}
