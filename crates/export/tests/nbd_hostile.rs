//! Peers that break the rules, on purpose or by being slow: the server stays alive, correct for
//! others, and bounded in memory.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use export::nbd::NbdOptions;
use io::units::MILLISECOND_NS;

mod memory;
mod nbd_server;

use memory::MemoryVolume;
use nbd_server::{Random, Server, noise};

const MIB: u64 = 1 << 20;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISC: u16 = 2;
const FLUSH: u16 = 3;

/// A peer that speaks the protocol by hand. Every wait is bounded, so that a server that hangs
/// fails the test.
struct Peer(UnixStream);

impl Peer {
    fn connect(server: &Server) -> Peer {
        let stream = UnixStream::connect(server.socket()).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(30))).unwrap();
        Peer(stream)
    }

    /// Through the handshake with simple replies.
    fn transmitting(server: &Server) -> Peer {
        let mut peer = Peer::connect(server);
        peer.send(&hello());
        peer.send(&option(1, b""));
        peer.take(18 + 10);
        peer
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).expect("the server reads");
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = vec![0; bytes];
        self.0.read_exact(&mut buffer).expect("the server answers");
        buffer
    }

    /// A simple reply's error and cookie.
    fn reply(&mut self) -> (u32, u64) {
        let head = self.take(16);
        assert_eq!(head[..4], [0x67, 0x44, 0x66, 0x98]);
        let error = u32::from_be_bytes(head[4..8].try_into().unwrap());
        (error, u64::from_be_bytes(head[8..].try_into().unwrap()))
    }

    /// Everything until the server closes.
    fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset is an end as well: the server need not read what it does not want.
        match self.0.read_to_end(&mut bytes) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("the server does not close: {error}"),
        }
        bytes
    }
}

fn hello() -> Vec<u8> {
    3_u32.to_be_bytes().to_vec()
}

fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn request(command: u16, flags: u16, cookie: u64, at: u64, length: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend_from_slice(&flags.to_be_bytes());
    bytes.extend_from_slice(&command.to_be_bytes());
    bytes.extend_from_slice(&cookie.to_be_bytes());
    bytes.extend_from_slice(&at.to_be_bytes());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes
}

/// The server still does what it should for a peer that behaves.
fn assert_alive(server: &Server, seed: u64) {
    let mut peer = Peer::transmitting(server);
    let data = noise(seed, 8192);
    peer.send(&request(WRITE, 0, 1, MIB / 2, 8192));
    peer.send(&data);
    assert_eq!(peer.reply(), (0, 1));
    peer.send(&request(READ, 0, 2, MIB / 2, 8192));
    assert_eq!(peer.reply(), (0, 2));
    assert!(peer.take(8192) == data);
    peer.send(&request(DISC, 0, 3, 0, 0));
    assert_eq!(peer.rest(), b"");
}

fn assert_nothing_left(server: Server) {
    let report = server.stop();
    assert_eq!((report.connections, report.leaked_bytes), (0, 0), "{report:?}");
}

#[test]
fn a_refused_write_leaves_the_connection_in_step() {
    let server = Server::start(MIB);
    let mut peer = Peer::transmitting(&server);
    // Beyond the end, not aligned, too long, with a flag of another command: each with payload.
    for (cookie, (flags, at, length, expected)) in
        [(0, MIB, 4096, 28), (0, 0, 1000, 22), (0, 0, 33 << 20, 22), (4, 0, 512, 22)]
            .into_iter()
            .enumerate()
    {
        peer.send(&request(WRITE, flags, cookie as u64, at, length));
        // In odd pieces, so that it is dropped across many receives.
        let payload = vec![0x25; length as usize];
        payload.chunks(99_991).for_each(|piece| peer.send(piece));
        assert_eq!(peer.reply(), (expected, cookie as u64));
    }
    peer.send(&request(READ, 0, 9, 0, 512));
    assert_eq!(peer.reply(), (0, 9));
    assert_eq!(peer.take(512), [0; 512]);
    drop(peer);
    assert_nothing_left(server);
}

#[test]
fn a_write_is_refused_behind_its_payload() {
    let server = Server::start(MIB);
    let mut peer = Peer::transmitting(&server);
    peer.send(&request(WRITE, 0, 7, MIB, 4096));
    peer.send(&[0x25; 4095]);
    peer.0.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let early = peer.0.read(&mut [0; 16]).expect_err("clients that still send do not listen");
    assert_eq!(early.kind(), std::io::ErrorKind::WouldBlock);
    peer.0.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    peer.send(&[0x25]);
    assert_eq!(peer.reply(), (28, 7));
    drop(peer);
    assert_nothing_left(server);
}

#[test]
fn a_claim_of_gigabytes_ends_the_connection_and_takes_no_memory() {
    let server = Server::start(MIB);
    let mut peer = Peer::transmitting(&server);
    peer.send(&request(WRITE, 0, 1, 0, u32::MAX));
    assert_eq!(peer.rest(), b"");
    let mut peer = Peer::connect(&server);
    peer.send(&hello());
    peer.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
    assert_eq!(peer.rest().len(), 18);
    // A valid claim of the longest write, of which nothing comes.
    let mut waiting: Vec<Peer> = (0..50).map(|_| Peer::transmitting(&server)).collect();
    waiting.iter_mut().for_each(|peer| peer.send(&request(WRITE, 0, 1, 0, 1 << 20)));
    assert_alive(&server, 1);
    drop(waiting);
    // The server must hear of fifty ends before it is asked what is left; a busy machine takes long.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let report = server.stop();
    assert_eq!((report.connections, report.leaked_bytes), (0, 0));
    assert!(report.peak_bytes < 80 << 20, "{report:?}");
}

#[test]
fn bad_magic_ends_the_connection_after_the_replies_before_it() {
    let server = Server::start(MIB);
    let mut peer = Peer::transmitting(&server);
    let mut bytes = request(FLUSH, 0, 5, 0, 0);
    bytes.extend_from_slice(&[0xee; 28]);
    bytes.extend_from_slice(&request(FLUSH, 0, 6, 0, 0));
    peer.send(&bytes);
    assert_eq!(peer.reply(), (0, 5));
    assert_eq!(peer.rest(), b"");
    assert_nothing_left(server);
}

#[test]
fn unknown_commands_are_refused_one_by_one() {
    let server = Server::start(MIB);
    let mut peer = Peer::transmitting(&server);
    for command in 8..40 {
        peer.send(&request(command, 0, u64::from(command), 0, 512));
        assert_eq!(peer.reply(), (22, u64::from(command)));
    }
    peer.send(&request(FLUSH, 0, 7, 0, 0));
    assert_eq!(peer.reply(), (0, 7));
    drop(peer);
    assert_nothing_left(server);
}

#[test]
fn requests_byte_by_byte_are_understood() {
    let server = Server::start(MIB);
    let mut peer = Peer::connect(&server);
    let data = noise(3, 512);
    let mut bytes = hello();
    bytes.extend_from_slice(&option(1, b""));
    bytes.extend_from_slice(&request(WRITE, 1, 1, 512, 512));
    bytes.extend_from_slice(&data);
    bytes.extend_from_slice(&request(READ, 0, 2, 512, 512));
    for byte in bytes {
        peer.send(&[byte]);
    }
    peer.take(18 + 10);
    assert_eq!(peer.reply(), (0, 1));
    assert_eq!(peer.reply(), (0, 2));
    assert_eq!(peer.take(512), data);
    drop(peer);
    assert_nothing_left(server);
}

#[test]
fn a_peer_that_never_reads_is_served_within_its_bounds() {
    let server = Server::start_with(|io| {
        let volume = MemoryVolume::new(io.clone(), 64 * MIB);
        (volume, NbdOptions { in_flight_bytes_max: 4 << 20, ..NbdOptions::default() })
    });
    let mut peer = Peer::transmitting(&server);
    peer.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    // Ask for far more than the socket holds, and take nothing.
    let wanted = request(READ, 0, 1, 0, 1 << 20).repeat(1000);
    let mut sent = 0;
    while let Ok(count) = peer.0.write(&wanted[sent..]) {
        sent += count;
        if sent == wanted.len() {
            break;
        }
    }
    assert_alive(&server, 2);
    drop(peer);
    let report = server.stop();
    assert_eq!((report.connections, report.leaked_bytes), (0, 0));
    assert!(report.peak_bytes < 16 << 20, "{report:?}");
}

#[test]
fn a_half_closed_connection_gets_its_replies() {
    let server = Server::start_with(|io| {
        let volume = MemoryVolume::new(io.clone(), MIB);
        volume.delay_ns.set(50 * MILLISECOND_NS);
        (volume, NbdOptions::default())
    });
    let mut peer = Peer::transmitting(&server);
    for cookie in 0..10 {
        peer.send(&request(READ, 0, cookie, cookie * 512, 512));
    }
    peer.0.shutdown(Shutdown::Write).unwrap();
    let mut seen: Vec<u64> = (0..10)
        .map(|_| {
            let (error, cookie) = peer.reply();
            assert_eq!(error, 0);
            peer.take(512);
            cookie
        })
        .collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    assert_eq!(peer.rest(), b"");
    assert_nothing_left(server);
}

#[test]
fn a_peer_that_leaves_in_the_middle_leaves_nothing_behind() {
    let server = Server::start_with(|io| {
        let volume = MemoryVolume::new(io.clone(), 8 * MIB).with_transfer_max(64 << 10);
        volume.delay_ns.set(5 * MILLISECOND_NS);
        (volume, NbdOptions::default())
    });
    for cut in [0, 3, 4, 20, 30, 31] {
        let mut peer = Peer::connect(&server);
        let mut bytes = hello();
        bytes.extend_from_slice(&option(3, b""));
        peer.send(&bytes[..cut.min(bytes.len())]);
    }
    for sent in [1, 27, 28, 29, 28 + 70_000, 28 + (1 << 20)] {
        let mut peer = Peer::transmitting(&server);
        let mut bytes = request(READ, 0, 1, 0, 1 << 20);
        bytes.extend_from_slice(&request(WRITE, 0, 2, 0, 1 << 20));
        bytes.resize(bytes.len() + (1 << 20), 7);
        peer.send(&bytes[..28 + sent]);
    }
    assert_alive(&server, 4);
    assert_nothing_left(server);
}

#[test]
fn a_silent_peer_is_closed_and_too_many_are_not_admitted() {
    let server = Server::start_with(|io| {
        let options = NbdOptions { handshake_ms: 300, connections_max: 3, ..NbdOptions::default() };
        (MemoryVolume::new(io.clone(), MIB), options)
    });
    let begun = Instant::now();
    let mut silent: Vec<Peer> = (0..3).map(|_| Peer::connect(&server)).collect();
    silent.iter_mut().for_each(|peer| assert_eq!(peer.take(18).len(), 18));
    assert_eq!(Peer::connect(&server).rest(), b"", "the fourth is not admitted");
    for peer in &mut silent {
        assert_eq!(peer.rest(), b"");
    }
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert_alive(&server, 5);
    assert_nothing_left(server);
}

#[test]
fn shutdown_answers_what_is_under_way_and_closes_the_rest() {
    let server = Server::start_with(|io| {
        let volume = MemoryVolume::new(io.clone(), MIB);
        volume.delay_ns.set(300 * MILLISECOND_NS);
        (volume, NbdOptions::default())
    });
    let mut haggling = Peer::connect(&server);
    haggling.take(18);
    let mut idle = Peer::transmitting(&server);
    let mut busy = Peer::transmitting(&server);
    busy.send(&request(READ, 0, 1, 0, 512));
    std::thread::sleep(Duration::from_millis(100));
    let report = std::thread::spawn(move || server.stop());
    assert_eq!(busy.reply(), (0, 1));
    busy.take(512);
    for peer in [&mut busy, &mut idle, &mut haggling] {
        assert_eq!(peer.rest(), b"");
    }
    let report = report.join().unwrap();
    assert_eq!((report.connections, report.leaked_bytes), (0, 0));
}

#[test]
fn a_session_of_nonsense_harms_nobody() {
    let server = Server::start(MIB);
    for seed in 1..=300_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut peer = Peer::connect(&server);
        peer.0.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut bytes = Vec::new();
        if random.below(4) > 0 {
            bytes.extend_from_slice(&hello());
        }
        if random.below(3) > 0 {
            bytes.extend_from_slice(&option(random.below(12) as u32, &noise(seed, 8)));
        }
        let length = random.below(3000) as usize;
        bytes.extend_from_slice(&noise(seed, length));
        // The server may close at any point.
        let _ = peer.0.write_all(&bytes);
        let _ = peer.0.read(&mut [0; 4096]);
    }
    assert_alive(&server, 6);
    assert_nothing_left(server);
}

/// Good sessions with a few bytes changed: they get much deeper than noise.
#[test]
fn a_mutated_session_harms_nobody_and_changes_nothing_out_of_bounds() {
    let server = Server::start_with(|io| {
        let volume = MemoryVolume::new(io.clone(), MIB).with_transfer_max(16 << 10);
        (volume, NbdOptions { in_flight_max: 4, ..NbdOptions::default() })
    });
    let go = {
        let mut data = 0_u32.to_be_bytes().to_vec();
        data.extend_from_slice(&[0, 1, 0, 3]);
        option(7, &data)
    };
    let contexts = {
        let mut data = [0_u32.to_be_bytes(), 1_u32.to_be_bytes()].concat();
        data.extend_from_slice(&15_u32.to_be_bytes());
        data.extend_from_slice(b"base:allocation");
        option(10, &data)
    };
    for seed in 1..=1500_u64 {
        let mut random = Random(seed.wrapping_mul(0xd134_2543_de82_ef95));
        let mut session = vec![hello()];
        if random.below(2) == 0 {
            session.push(option(8, b""));
            session.push(contexts.clone());
            session.push(go.clone());
        } else {
            session.push(option(1, b""));
        }
        for cookie in 0..random.below(12) {
            let command = random.below(9) as u16;
            let at = random.below(MIB / 512 + 2) * 512;
            let length = (random.below(200) * 512) as u32;
            let flags = if random.below(3) == 0 { random.below(32) as u16 } else { 0 };
            session.push(request(command, flags, cookie, at, length));
            if command == WRITE {
                session.push(noise(seed, length as usize));
            }
        }
        session.push(request(DISC, 0, 99, 0, 0));
        let mut bytes = session.concat();
        for _ in 0..random.below(4) {
            // The front is where the structure is.
            let reach = if random.below(2) == 0 { 120.min(bytes.len()) } else { bytes.len() };
            let at = random.below(reach as u64) as usize;
            bytes[at] = if random.below(2) == 0 { random.next() as u8 } else { bytes[at] ^ 1 };
        }
        let mut peer = Peer::connect(&server);
        let reading = peer.0.try_clone().unwrap();
        let reader = std::thread::spawn(move || {
            let mut reading = reading;
            let mut sink = [0; 16384];
            while matches!(reading.read(&mut sink), Ok(count) if count > 0) {}
        });
        let _ = peer.0.write_all(&bytes);
        let _ = peer.0.shutdown(Shutdown::Write);
        reader.join().unwrap();
    }
    assert_alive(&server, 7);
    assert_nothing_left(server);
}
