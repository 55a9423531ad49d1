//! What a request costs each door, and how often it has the kernel do something for it:
//! instructions, allocations, receives, sends and rounds, kept below a budget for each route.
//!
//! Counted is the door with its executor, on a volume that asks a drive for everything. Drive, client, guest and ublk's
//! driver are part of the test and cost next to nothing or are left out; the FUSE door has the real kernel on its other
//! side. `docs/performance.md` has the table.

#[path = "../../../engine/tests/instructions/allocations.rs"]
mod allocations;
#[path = "../../../engine/tests/instructions/callgrind.rs"]
mod callgrind;
mod driver;
#[allow(dead_code)]
#[path = "../vhost_user/guest.rs"]
mod guest;
mod mounted;
mod ring;
mod wire;

use std::rc::Rc;
use std::sync::Arc;

use export::nbd::{NbdOptions, NbdServer};
use export::ublk;
use export::vhost_user::{VhostUserDoor, VhostUserOptions};
use io::units::MIB;
use io::{Buf, Device, Durability, IoError, Place, Span, Volume, VolumeInfo, ZeroMode};
use wire::{Asked, Script};

const BLOCK: u64 = 4096;

/// Route, instructions, and entries into the kernel in hundredths, which are measured and a quarter. Measured and a
/// half where the real kernel is the other side, which takes turns with the door as it likes: at FUSE.
const BUDGETS: [(&str, i64, u64); 16] = [
    ("nbd-read-1", 9_000, 250),
    ("nbd-read-32", 3_700, 8),
    ("nbd-write-1", 15_200, 250),
    ("nbd-write-32", 13_700, 8),
    ("vhost-read-1", 17_600, 250),
    ("vhost-read-32", 9_600, 8),
    ("vhost-write-1", 17_600, 250),
    ("vhost-write-32", 9_600, 8),
    ("ublk-read-1", 4_600, 250),
    ("ublk-read-32", 3_000, 8),
    ("ublk-write-1", 4_500, 250),
    ("ublk-write-32", 3_000, 8),
    ("fuse-read-1", 10_900, 250),
    ("fuse-read-32", 6_000, 125),
    ("fuse-write-1", 12_800, 250),
    ("fuse-write-32", 7_400, 125),
];

/// Allocations per request: of the first few only.
const ALLOCATIONS_BUDGET: f64 = 0.1;

/// A volume that is a drive.
struct Passed(Device);

impl Volume for Passed {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            size_bytes: 64 * MIB,
            sector_bytes: 512,
            preferred_bytes: 4096,
            transfer_bytes_max: 1 << 20,
            read_only: false,
        }
    }

    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        self.0.read(at, buf).await
    }

    async fn write(&self, at: u64, buf: Buf, _: Durability) -> (Buf, Result<(), IoError>) {
        self.0.write(at, buf).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        // Who closes the file of the FUSE door does.
        Ok(())
    }

    async fn trim(&self, _: u64, _: u64, _: Durability) -> Result<(), IoError> {
        unreachable!("nobody trims here")
    }

    async fn write_zeroes(
        &self,
        _: u64,
        _: u64,
        _: ZeroMode,
        _: Durability,
    ) -> Result<(), IoError> {
        unreachable!("nobody writes zeroes here")
    }

    async fn cache(&self, _: u64, _: u64) -> Result<(), IoError> {
        unreachable!("nobody asks for this here")
    }

    fn places(&self, _: u64, length: u64, _: usize) -> Vec<Span> {
        vec![Span { length, place: Place::Fast }]
    }
}

/// A handshake by name, and without zeros.
fn handshake() -> Vec<u8> {
    let name = b"vol";
    let flags = 3_u32.to_be_bytes();
    let export_name = 1_u32.to_be_bytes();
    [&flags[..], b"IHAVEOPT", &export_name, &(name.len() as u32).to_be_bytes(), name].concat()
}

fn request(command: u16, payload_bytes: usize) -> Vec<u8> {
    let mut said = 0x2560_9513_u32.to_be_bytes().to_vec();
    said.extend(0_u16.to_be_bytes());
    said.extend(command.to_be_bytes());
    said.extend(7_u64.to_be_bytes());
    said.extend((9 * BLOCK).to_be_bytes());
    said.extend((BLOCK as u32).to_be_bytes());
    said.resize(said.len() + payload_bytes, 1);
    said
}

/// Sends so many requests down the route and leaves.
fn send(route: &str, count: u64) -> Asked {
    let words: Vec<&str> = route.split('-').collect();
    let [door, kind, depth] = words[..] else { panic!("a route is a door, a kind and a depth") };
    let depth = depth.parse().expect("a depth");
    let asked = match door {
        "nbd" => send_nbd(kind, count, depth),
        "vhost" => send_vhost(kind, count, depth),
        "ublk" => send_ublk(kind, count, depth as u16),
        "fuse" => mounted::send(kind, count, depth),
        door => panic!("there is no door '{door}'"),
    };
    assert!(asked.rounds >= count / depth, "{asked:?}");
    asked
}

fn send_nbd(kind: &str, count: u64, depth: u64) -> Asked {
    let (request, reply_bytes) = match kind {
        "read" => (request(0, 0), 16 + BLOCK),
        "write" => (request(1, BLOCK as usize), 16),
        kind => panic!("there is no route '{kind}'"),
    };
    let script = Script { handshake: handshake(), request, count, depth, reply_bytes };
    let (io, asked) = wire::talk(script);
    let volume = Rc::new(Passed(wire::drive(&io)));
    let options = NbdOptions {
        export_name: "vol".into(),
        description: "a volume".into(),
        ..NbdOptions::default()
    };
    let server = NbdServer::new(io.clone(), volume, options);
    io.block_on(server.serve_connection(wire::client(&io)));
    io.drop_tasks();
    asked.take()
}

fn send_vhost(kind: &str, count: u64, depth: u64) -> Asked {
    let writes = kind == "write";
    let (io, board) = ring::hall(ring::Script { writes, count, depth });
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("socket");
    let options = VhostUserOptions {
        path: path.clone(),
        serial: "a volume".into(),
        report: Arc::new(|why| panic!("{why}")),
    };
    let volume = Rc::new(Passed(wire::drive(&io)));
    let door = VhostUserDoor::open(io.clone(), volume, options).expect("a door");
    let (hand_over, mut handed_over) = io::mailbox(1);
    let front_end = std::thread::spawn(move || {
        let guest = guest::Guest::connect(&path, 1, 0);
        assert!(hand_over.send(guest).is_ok(), "somebody takes it");
    });
    *board.guest.borrow_mut() = io.block_on(handed_over.receive());
    front_end.join().expect("the front-end connects");
    io.block_on(board.changed.until(|| board.over.get().then_some(())));
    drop(board.guest.take());
    io.block_on(door.shutdown());
    io.drop_tasks();
    board.asked.take()
}

fn send_ublk(kind: &str, count: u64, depth: u16) -> Asked {
    let (io, file, asked) = driver::yard(driver::Script { writes: kind == "write", count });
    let volume = Rc::new(Passed(wire::drive(&io)));
    io.block_on(ublk::serve_file(io.clone(), volume, file, 1, depth)).expect("a device's file");
    io.drop_tasks();
    asked.take()
}

fn main() {
    if mounted::use_file() {
        return;
    }
    if let Some((route, count)) = callgrind::asked() {
        send(&route, count);
        return;
    }
    let mut over = Vec::new();
    let counts = callgrind::is_here();
    let hindrance = mounted::hindrance();
    if let Some(why) = hindrance {
        eprintln!("SKIPPED: instructions per request of the FUSE door: {why}");
    }
    for (route, budget, rounds_budget) in BUDGETS {
        if route.starts_with("fuse") && hindrance.is_some() {
            continue;
        }
        let [few, many] = [320, 3520].map(|count| send(route, count));
        let each = |of: fn(&Asked) -> u64| (of(&many) - of(&few)) as f64 / 3200.0;
        let rounds = each(|asked| asked.rounds);
        let instructions = if counts { callgrind::per_request(route, Some("*_works*")) } else { 0 };
        let allocations = allocations::per_request(|count| {
            send(route, count);
        });
        println!(
            "{route:<14} {instructions:>6} instructions per request, budget {budget}; {rounds:.2} rounds, {:.2} receives, \
             {:.2} sends, {allocations:.3} allocations",
            each(|asked| asked.receives),
            each(|asked| asked.sends),
        );
        if instructions > budget
            || rounds * 100.0 > rounds_budget as f64
            || allocations > ALLOCATIONS_BUDGET
        {
            over.push(format!(
                "{route}: {instructions} instructions, {rounds:.2} rounds, {allocations:.3} allocations"
            ));
        }
    }
    assert!(over.is_empty(), "more per request than allowed: {over:?}");
}
