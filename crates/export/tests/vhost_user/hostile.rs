//! Guests and front-ends that break every rule: the queue or the connection ends, the server and
//! its other clients go on.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use vhost::VhostBackend;
use vhost::vhost_user::VhostUserFrontend;
use vhost::vhost_user::message::VhostUserInflight;

use crate::guest::*;
use crate::server::Server;

/// The server still serves who comes next.
fn still_serves(server: &Server) {
    let mut guest = Guest::connect(&server.path, 1, 0);
    assert_eq!(guest.ask(0, (OUT, 0), &[3; 512], 0).0, 0);
    assert_eq!(guest.read(0, 0, 512), [3; 512]);
}

fn await_error(guest: &Guest, queue: usize) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while guest.queues[queue].error.read().is_err() {
        assert!(Instant::now() < deadline, "the queue is not said to be broken");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_guest_that_breaks_its_queue_breaks_no_other() {
    type Crime = fn(&mut Guest);
    let crimes: [(&str, Crime); 7] = [
        ("jumped", |guest| guest.set_available(0, 1000)),
        ("descriptor 999", |guest| guest.make_available(0, 999)),
        ("more than", |guest| {
            guest.raw_descriptor(0, 0, (1 << 32, 16, 1, 0));
            guest.make_available(0, 0);
        }),
        ("16 bytes with 0", |guest| {
            guest.raw_descriptor(0, 0, (1 << 32, 16, 0, 0));
            guest.make_available(0, 0);
        }),
        ("where there is no memory", |guest| {
            guest.raw_descriptor(0, 0, (u64::MAX - 100, 64, 4, 0));
            guest.make_available(0, 0);
        }),
        ("memory to read behind", |guest| {
            guest.raw_descriptor(0, 0, (1 << 32, 16, 3, 1));
            guest.raw_descriptor(0, 1, (1 << 32, 16, 0, 0));
            guest.make_available(0, 0);
        }),
        ("is in use", |guest| {
            guest.put(0, (OUT, 0), &[1; 512], 0, 512);
            let head = guest.put(0, (OUT, 1), &[1; 512], 0, 512);
            guest.make_available(0, head);
        }),
    ];
    for (words, crime) in crimes {
        let server = Server::start();
        server.delay(Duration::from_millis(5));
        let mut guest = Guest::connect(&server.path, 2, 0);
        crime(&mut guest);
        guest.kick(0);
        server.await_report(words);
        await_error(&guest, 0);
        assert_eq!(guest.read(1, 0, 512), [0; 512], "{words}: the other queue goes on");
        guest.stop_queue(0);
        drop(guest);
        still_serves(&server);
        server.stop();
    }
}

#[test]
fn requests_in_no_memory_are_answered_with_an_error() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 1, FEATURE_INDIRECT);
    let head = guest.put(0, (IN, 0), &[], 512, 512);
    // Its data now lies where there is nothing; its status stays where it was.
    guest.raw_descriptor(0, head * 4 + 1, (1 << 50, 512, 3, head * 4 + 2));
    guest.kick(0);
    assert_eq!(guest.await_answers(0, 1)[0].status, 1);
    let head = guest.put(0, (OUT, 0), &[1; 512], 0, 512);
    guest.raw_descriptor(0, head * 4 + 1, (u64::MAX - 3, 512, 1, head * 4 + 2));
    guest.kick(0);
    assert_eq!(guest.await_answers(0, 1)[0].status, 1);
    assert_eq!(server.counts().writes, 0, "nothing was written for it");
    assert_eq!(guest.read(0, 0, 512), [0; 512]);
    server.stop();
}

/// Queues full of random bytes, with random indices, again and again.
#[test]
fn random_queues_do_no_harm() {
    let server = Server::start();
    let mut seed = 0x1234_5678_9abc_def1_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..60 {
        let mut guest = Guest::connect(&server.path, 2, 0);
        let at = guest.queue_at(0);
        for _ in 0..5 {
            for index in 0..QUEUE_SIZE {
                // Mostly addresses that exist, so that some chains are whole.
                let place = match random() % 8 {
                    0 => random(),
                    _ => at + random() % (1 << 20),
                };
                let length = [16, 1, 512, 4096, 32, 48, random() as u32][random() as usize % 7];
                let flags = random() as u16 & [1, 3, 7, 2][random() as usize % 4];
                let next = (random() % (u64::from(QUEUE_SIZE) + 2)) as u16;
                guest.raw_descriptor(0, index, (place, length, flags, next));
            }
            for _ in 0..random() % 20 {
                guest.make_available(0, (random() % u64::from(QUEUE_SIZE)) as u16);
            }
            if round % 7 == 6 {
                guest.set_available(0, random() as u16);
            }
            guest.kick(0);
        }
        assert_eq!(guest.read(1, 8000, 512).len(), 512);
        if round % 2 == 0 {
            guest.stop_queue(0);
        }
    }
    still_serves(&server);
    assert!(!server.reports().is_empty(), "some of it was wrong");
    server.stop();
}

#[test]
fn a_front_end_that_says_nonsense_is_left() {
    let server = Server::start();
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..50u64 {
        let mut stream = UnixStream::connect(&server.path).unwrap();
        let mut bytes = Vec::new();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round | 1);
            // A request of some kind, version 1, with a length that may be true.
            let length = random % 64;
            bytes.extend((1 + (random >> 40) as u32 % 44).to_le_bytes());
            bytes.extend((1 | (random >> 20) as u32 & 8).to_le_bytes());
            bytes.extend((length as u32).to_le_bytes());
            bytes.extend((0..length).map(|n| (random >> (n % 50)) as u8));
        }
        // The server may hang up on us in the middle.
        let _ = stream.write_all(&bytes);
    }
    still_serves(&server);
    server.stop();
}

#[test]
fn what_a_front_end_gets_wrong_is_said() {
    let server = Server::start();
    type Offence = fn(&mut Guest);
    let offences: [(&str, Offence); 6] = [
        ("not offered", |guest| {
            let _ = guest.front_end.set_features(u64::MAX);
        }),
        ("are the most", |guest| {
            let _ = guest.front_end.set_vring_num(0, 2048);
        }),
        ("of its file", |guest| {
            let mut regions = guest.regions();
            regions[0].memory_size = 1 << 30;
            let _ = guest.front_end.set_mem_table(&regions);
        }),
        ("whole pages", |guest| {
            let mut regions = guest.regions();
            regions[0].memory_size = 0x1001;
            let _ = guest.front_end.set_mem_table(&regions);
        }),
        ("in-flight memory", |guest| {
            let file = tempfile::tempfile().unwrap();
            let shape = VhostUserInflight::new(1 << 20, 0, 1, 64);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            let _ = guest.front_end.set_inflight_fd(&shape, fd);
        }),
        ("an eventfd was wanted", |guest| {
            use std::os::fd::{FromRawFd, IntoRawFd};
            guest.stop_queue(0);
            let file = std::fs::File::open("/dev/zero").unwrap().into_raw_fd();
            // SAFETY: the number was just given up by the file, so the event owns it alone.
            let kick = unsafe { vmm_sys_util::eventfd::EventFd::from_raw_fd(file) };
            let _ = guest.front_end.set_vring_kick(0, &kick);
        }),
    ];
    for (words, offence) in offences {
        let mut guest = Guest::connect(&server.path, 1, 0);
        offence(&mut guest);
        server.await_report(words);
        drop(guest);
        still_serves(&server);
    }
    server.stop();
}

/// A front-end that never takes its calls costs nothing but its own patience.
#[test]
fn calls_that_nobody_takes_do_not_pile_up() {
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, 1, FEATURE_EVENT_INDEX);
    let full = vmm_sys_util::eventfd::EventFd::new(0).unwrap();
    full.write(u64::MAX - 1).unwrap();
    guest.front_end.set_vring_call(0, &full).unwrap();
    for _ in 0..200 {
        guest.put(0, (FLUSH, 0), &[], 0, 512);
        guest.kick(0);
        let deadline = Instant::now() + Duration::from_secs(30);
        while guest.answers(0).is_empty() {
            assert!(Instant::now() < deadline, "served although nobody listens");
        }
    }
    guest.stop_queue(0);
    drop(guest);
    still_serves(&server);
}

/// What a guest may hold of the server's memory does not grow with its queues, and no queue is
/// forgotten that waits for the others.
#[test]
fn all_queues_share_one_bound() {
    const QUEUES: usize = 5;
    const BYTES: usize = 252 << 10;
    let delay = Duration::from_secs(1);
    let server = Server::start();
    let mut guest = Guest::connect(&server.path, QUEUES, 0);
    server.delay(delay);
    let begun = Instant::now();
    for queue in 0..QUEUES {
        for _ in 0..HEADS {
            guest.put(queue, (IN, 0), &[], BYTES, BYTES);
        }
        guest.kick(queue);
    }
    for queue in 0..QUEUES {
        let answers = guest.await_answers(queue, usize::from(HEADS));
        assert!(answers.iter().all(|answer| answer.status == 0), "{answers:?}");
    }
    assert!(begun.elapsed() >= 2 * delay, "79 MiB were under way at once");
    server.stop();
}
