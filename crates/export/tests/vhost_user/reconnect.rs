//! Servers that stop, die and come back while a guest uses the disk.

use std::time::{Duration, Instant};

use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;

use crate::guest::*;
use crate::server::Server;

#[test]
fn a_queue_stops_when_everything_taken_is_answered_and_goes_on_where_it_was() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 2, 0);
    server.delay(Duration::from_millis(20));
    for round in 0..5u8 {
        for sector in 0..4 {
            guest.put(0, (OUT, sector), &[round + 1; 512], 0, 512);
        }
        guest.kick(0);
        let before = guest.answers(0).len();
        let base = guest.stop_queue(0);
        // Whatever was taken is answered, and what was not is taken afterwards.
        let answered = before + guest.answers(0).len();
        let taken = usize::from(base.wrapping_sub(u16::from(round) * 4));
        assert_eq!(answered, taken, "round {round}");
        guest.start_queue(0, base);
        assert_eq!(guest.await_answers(0, 4 - answered).len(), 4 - answered);
        assert_eq!(guest.read(1, 0, 2048), [round + 1; 2048]);
    }
    server.delay(Duration::ZERO);
    // A queue that is not enabled takes nothing.
    guest.front_end.set_vring_enable(0, false).unwrap();
    guest.put(0, (FLUSH, 0), &[], 0, 512);
    guest.kick(0);
    guest.read(1, 0, 512);
    assert!(guest.answers(0).is_empty());
    guest.front_end.set_vring_enable(0, true).unwrap();
    assert_eq!(guest.await_answers(0, 1).len(), 1);
    drop(guest);
    server.stop();
}

#[test]
fn a_server_that_is_replaced_in_order_loses_no_request() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 2, 0);
    server.delay(Duration::from_millis(10));
    for round in 0..4u8 {
        for sector in 0..8 {
            guest.put(0, (OUT, sector), &[round + 1; 512], 0, 512);
        }
        guest.kick(0);
        server.reopen();
        // Asked while nobody was there to hear the kick.
        guest.put(1, (OUT, 100), &[round + 1; 512], 0, 512);
        guest.kick(1);
        guest.reconnect(&server.path);
        assert!(guest.await_answers(0, 8).iter().all(|answer| answer.status == 0));
        assert!(guest.await_answers(1, 1).iter().all(|answer| answer.status == 0));
        assert_eq!(guest.read(0, 0, 4096), [round + 1; 4096]);
        assert_eq!(guest.read(1, 100, 512), [round + 1; 512]);
    }
    assert!(server.reports().is_empty(), "{:?}", server.reports());
}

/// What was in flight is known from the memory that the front-end keeps, so the new server does
/// it again although the guest never asks twice.
#[test]
fn what_was_in_flight_when_a_server_died_is_done_by_the_next() {
    let mut server = Server::start();
    let mut guest = Guest::connect(&server.path, 2, 0);
    for round in 0..3u8 {
        server.delay(Duration::from_secs(3600));
        for sector in 0..6 {
            guest.put(0, (OUT, sector), &[round + sector as u8 + 1; 512], 0, 512);
            guest.put(1, (OUT, 100 + sector), &[round + 7; 512], 0, 512);
        }
        guest.kick(0);
        guest.kick(1);
        let deadline = Instant::now() + Duration::from_secs(30);
        while server.counts().writes < 12 {
            assert!(Instant::now() < deadline, "the requests do not arrive");
            std::thread::sleep(Duration::from_millis(1));
        }
        server = server.replace();
        guest.reconnect(&server.path);
        for queue in 0..2 {
            let answers = guest.await_answers(queue, 6);
            assert!(answers.iter().all(|answer| answer.status == 0), "{answers:?}");
            assert_eq!(answers.len(), 6);
        }
        for sector in 0..6 {
            assert_eq!(guest.read(0, sector, 512), [round + sector as u8 + 1; 512]);
            assert_eq!(guest.read(0, 100 + sector, 512), [round + 7; 512]);
        }
        assert_eq!(server.counts().writes, 12, "each was done once");
    }
}

/// A guest that asks for what is in flight once more breaks its queue, also when it was another
/// server that took the request.
#[test]
fn what_was_in_flight_cannot_be_asked_for_again() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 1, 0);
    server.delay(Duration::from_secs(3600));
    let head = guest.put(0, (OUT, 0), &[1; 512], 0, 512);
    guest.kick(0);
    while server.counts().writes < 1 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let server = server.replace();
    guest.make_available(0, head);
    guest.reconnect(&server.path);
    server.await_report("is in use");
    drop(guest);
    let mut guest = Guest::connect(&server.path, 1, 0);
    assert_eq!(guest.read(0, 1, 512), [0; 512]);
}

#[test]
fn memory_comes_and_goes_region_by_region() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 1, 0);
    assert!(guest.front_end.get_max_mem_slots().unwrap() >= 32);
    assert_eq!(guest.ask(0, (OUT, 0), &[5; 512], 0).0, 0);
    // The lower region has nothing of the queue's.
    let lower = guest.regions()[0];
    guest.front_end.remove_mem_region(&lower).unwrap();
    assert_eq!(guest.read(0, 0, 512), [5; 512]);
    guest.front_end.add_mem_region(&lower).unwrap();
    assert_eq!(guest.read(0, 0, 512), [5; 512]);
    let regions = guest.regions();
    guest.front_end.set_mem_table(&regions).unwrap();
    assert_eq!(guest.read(0, 0, 512), [5; 512]);
    assert!(server.reports().is_empty(), "{:?}", server.reports());
}

#[test]
fn the_next_front_end_waits_until_the_first_has_gone() {
    let server = Server::start();
    let first = Guest::connect(&server.path, 1, 0);
    let path = server.path.clone();
    let second = std::thread::spawn(move || {
        let mut guest = Guest::connect(&path, 1, 0);
        guest.read(0, 0, 512)
    });
    std::thread::sleep(Duration::from_millis(50));
    assert!(!second.is_finished());
    drop(first);
    assert_eq!(second.join().unwrap(), [0; 512]);
    server.stop();
}
