//! A load on any vhost-user-blk back-end, from a guest that is nothing but memory and one queue.
//!
//! ```text
//! vhost_load SOCKET read|write|flush|fill DEPTH SECONDS [BLOCK] [SPAN] [sequential]
//! ```
//!
//! At random places in the first SPAN bytes (256 MiB when left out), or one after another. With `flush` each
//! write is followed by a flush, which counts for no request of its own. `fill` writes the span once and flushes,
//! however long that takes. The client looks for answers without sleeping, as a guest with a processor to itself does.

use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

#[allow(dead_code)]
#[path = "../tests/vhost_user/guest.rs"]
mod guest;

use guest::{FLUSH, Guest, HEADS, IN, OUT};

/// A request's data stays in one piece up to here, as the place of each in the guest's memory does.
const BLOCK_BYTES_MAX: u64 = 128 << 10;
const SECTOR_BYTES: u64 = 512;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "vhost_load SOCKET read|write|flush|fill DEPTH SECONDS [BLOCK] [SPAN] [sequential]";
    let [socket, kind, depth, seconds, rest @ ..] = arguments.as_slice() else {
        return Err(usage.into());
    };
    let size = |place: usize, otherwise| {
        rest.get(place).map_or(Ok(otherwise), |text| io::units::parse_bytes(text))
    };
    let (block, span) = (size(0, 4096)?, size(1, 256 << 20)?);
    let depth: usize = depth.parse()?;
    let depth_max = usize::from(HEADS);
    if !(1..=depth_max).contains(&depth) {
        return Err(format!("depths are 1 to {depth_max}").into());
    }
    if block == 0 || block > BLOCK_BYTES_MAX || block % SECTOR_BYTES != 0 || span < block {
        return Err("a block is up to 128K, in sectors, and fits into the span".into());
    }
    let what = match kind.as_str() {
        "read" => What::Read,
        "write" => What::Write,
        "flush" => What::WriteAndFlush,
        "fill" => What::Fill,
        _ => return Err(usage.into()),
    };
    let sequential = what == What::Fill || rest.get(2).is_some_and(|word| word == "sequential");
    let blocks = span / block;
    let places = Places { blocks, sequential, state: 0x1234_5678_9abc_def1, next: 0 };
    let mut load = Load {
        guest: Guest::connect_to(Path::new(socket), 1, 0, true),
        what,
        data: vec![0x5a; block as usize],
        places,
        flushing: Vec::new(),
    };
    let begun = Instant::now();
    let done = match what {
        What::Fill => load.run(depth, |done| done < blocks)?,
        _ => {
            let end = begun + Duration::from_secs_f64(seconds.parse()?);
            load.run(depth, |_| Instant::now() < end)?
        }
    };
    if what == What::Fill {
        load.flush()?;
    }
    println!(
        "{kind} {block} depth {depth}: {:.0} IOPS",
        done as f64 / begun.elapsed().as_secs_f64()
    );
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    Read,
    Write,
    WriteAndFlush,
    Fill,
}

/// Where the requests go.
struct Places {
    blocks: u64,
    sequential: bool,
    state: u64,
    next: u64,
}

impl Places {
    fn next(&mut self) -> u64 {
        self.next += 1;
        if self.sequential {
            return (self.next - 1) % self.blocks;
        }
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % self.blocks
    }
}

struct Load {
    guest: Guest,
    what: What,
    data: Vec<u8>,
    places: Places,
    /// Heads of the flushes under way.
    flushing: Vec<u16>,
}

impl Load {
    /// Keeps so many requests under way as long as `more` says so of those that were begun; gives how many
    /// were answered.
    fn run(&mut self, depth: usize, more: impl Fn(u64) -> bool) -> Result<u64, Box<dyn Error>> {
        let (mut begun, mut done, mut under_way) = (0, 0, 0);
        loop {
            while under_way < depth && more(begun) {
                self.put();
                begun += 1;
                under_way += 1;
            }
            if under_way == 0 {
                return Ok(done);
            }
            self.guest.kick(0);
            // All heads that were answered are free again: flushes are told from writes before new requests
            // take any of them.
            let (flushes, others): (Vec<u16>, Vec<u16>) =
                self.answers()?.into_iter().partition(|head| self.flushing.contains(head));
            self.flushing.retain(|head| !flushes.contains(head));
            let mut ended = flushes.len();
            if self.what == What::WriteAndFlush {
                for _ in others {
                    let flush = self.guest.put(0, (FLUSH, 0), &[], 0, 4096);
                    self.flushing.push(flush);
                }
            } else {
                ended += others.len();
            }
            under_way -= ended;
            done += ended as u64;
        }
    }

    fn put(&mut self) {
        let block = self.data.len();
        let sector = self.places.next() * block as u64 / SECTOR_BYTES;
        match self.what {
            What::Read => self.guest.put(0, (IN, sector), &[], block, block),
            _ => self.guest.put(0, (OUT, sector), &self.data, 0, block),
        };
    }

    fn answers(&mut self) -> Result<Vec<u16>, Box<dyn Error>> {
        loop {
            let answers = self.guest.answers(0);
            if let Some(failed) = answers.iter().find(|answer| answer.status != 0) {
                return Err(format!("a request ended with status {}", failed.status).into());
            }
            if !answers.is_empty() {
                return Ok(answers.into_iter().map(|answer| answer.head).collect());
            }
            std::thread::yield_now();
        }
    }

    fn flush(&mut self) -> Result<(), Box<dyn Error>> {
        match self.guest.ask(0, (FLUSH, 0), &[], 0) {
            (0, _) => Ok(()),
            (status, _) => Err(format!("the flush ended with status {status}").into()),
        }
    }
}
