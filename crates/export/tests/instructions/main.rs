//! What a request costs the NBD door, and how often it has the kernel do something for it: instructions,
//! receives, sends and rounds, kept below a budget for each route.
//!
//! Counted is the door with its executor, on a volume that asks a drive for everything. Client and drive are
//! part of the test and cost next to nothing. `docs/performance.md` has the table.

#[path = "../../../engine/tests/instructions/callgrind.rs"]
mod callgrind;
mod wire;

use std::rc::Rc;

use export::nbd::{NbdOptions, NbdServer};
use io::units::MIB;
use io::{Buf, Device, Durability, IoError, Place, Span, Volume, VolumeInfo, ZeroMode};
use wire::{Asked, Script};

const BLOCK: u64 = 4096;

/// Route, instructions, and entries into the kernel in hundredths, which are measured and a quarter.
const BUDGETS: [(&str, i64, u64); 4] = [
    ("read-1", 9_000, 250),
    ("read-32", 3_700, 8),
    ("write-1", 15_200, 250),
    ("write-32", 13_700, 8),
];

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
        unreachable!("nobody flushes here")
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
    let (kind, depth) = route.split_once('-').expect("a route is a kind and a depth");
    let depth = depth.parse().expect("a depth");
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
    let asked = *asked.borrow();
    assert!(asked.rounds >= count / depth, "{asked:?}");
    asked
}

fn main() {
    if let Some((route, count)) = callgrind::asked() {
        send(&route, count);
        return;
    }
    let mut over = Vec::new();
    let counts = callgrind::is_here();
    for (route, budget, rounds_budget) in BUDGETS {
        let [few, many] = [320, 3520].map(|count| send(route, count));
        let each = |of: fn(&Asked) -> u64| (of(&many) - of(&few)) as f64 / 3200.0;
        let rounds = each(|asked| asked.rounds);
        let instructions = if counts { callgrind::per_request(route) } else { 0 };
        println!(
            "nbd {route:<9} {instructions:>6} instructions per request, budget {budget}; {rounds:.2} rounds, {:.2} receives, \
             {:.2} sends",
            each(|asked| asked.receives),
            each(|asked| asked.sends),
        );
        if instructions > budget || rounds * 100.0 > rounds_budget as f64 {
            over.push(format!("{route}: {instructions} instructions, {rounds:.2} rounds"));
        }
    }
    assert!(over.is_empty(), "more per request than allowed: {over:?}");
}
