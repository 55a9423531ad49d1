//! A whole small volume with damage anywhere: opening, checking, reading, writing and closing it.
//!
//! The input is a list of [`Patch`]es to one of two volumes, one closed in order and one left by a
//! killed process. A patched structure may get a right checksum, so that recovery goes on with
//! what no bimetal has written.

use std::cell::OnceCell;

use engine::{CreateOptions, Engine, Layout, OpenOptions, create};
use io::units::{KIB, MIB};
use io::{Device, Durability, Io, Volume, ZeroMode};
use twin::{DriveId, DriveSpec, Simulation, Snapshot};

use crate::{Seed, Target, make_checksum_right, map_page, record, seed, superblock};

const FAST_BYTES: u64 = 16 * MIB;
const SLOW_BYTES: u64 = 64 * MIB;
const BLOCK_BYTES: u64 = 4096;
const EXTENT_BYTES: u64 = 128 * KIB;
/// More patches than this are no likelier to find something, and slow the search.
const PATCHES_MAX: usize = 16;

pub(crate) const TARGET: Target = Target { name: "recovery", run, seeds };

/// Some bytes of one block, overwritten.
struct Patch<'a> {
    /// Of the drives: fast, slow.
    drive: usize,
    block_at: u64,
    offset: usize,
    bytes: &'a [u8],
    /// Makes the checksum of what the block seems to be right afterwards.
    checksum: bool,
}

/// The areas of a drive that a patch may hit.
const AREAS: u8 = 4;

impl<'a> Patch<'a> {
    /// Takes one from the front: area and flags (1 byte), block in the area (2), offset (2),
    /// length (1), and that many bytes.
    fn take(input: &mut &'a [u8], layouts: &[Layout; 2]) -> Option<Patch<'a>> {
        let (head, rest) = input.split_first_chunk::<6>()?;
        let length = usize::from(head[5]).min(rest.len());
        let (bytes, rest) = rest.split_at(length);
        *input = rest;
        let drive = usize::from(head[0] & 1);
        let layout = &layouts[drive];
        let block = u64::from(u16::from_le_bytes([head[1], head[2]]));
        let nth = |start: u64, length: u64| start + block % (length / BLOCK_BYTES) * BLOCK_BYTES;
        let block_at = match head[0] >> 2 & (AREAS - 1) {
            0 => [4 * KIB, 512 * KIB][block as usize % 2],
            1 => nth(layout.map_at, layout.map_bytes),
            2 if drive == 0 => nth(layout.log_at, layout.log_bytes),
            _ => nth(0, layout.drive_bytes),
        };
        let offset = usize::from(u16::from_le_bytes([head[3], head[4]])) % BLOCK_BYTES as usize;
        let bytes = &bytes[..length.min(BLOCK_BYTES as usize - offset)];
        Some(Patch { drive, block_at, offset, bytes, checksum: head[0] & 2 != 0 })
    }

    fn apply(&self, simulation: &Simulation, drive: DriveId) {
        let mut block = simulation.peek(drive, self.block_at, BLOCK_BYTES as usize);
        block[self.offset..][..self.bytes.len()].copy_from_slice(self.bytes);
        if self.checksum {
            match &block[..4] {
                b"bime" => make_checksum_right(&mut block, superblock::CRC_AT),
                b"BMmp" => make_checksum_right(&mut block, map_page::CRC_AT),
                b"BMlr" => make_checksum_right(&mut block, record::CRC_AT),
                _ => {}
            }
        }
        simulation.poke(drive, self.block_at, &block);
    }
}

struct Base {
    closed: Snapshot,
    killed: Snapshot,
    layouts: [Layout; 2],
}

thread_local! {
    static BASE: OnceCell<Base> = const { OnceCell::new() };
}

fn with_base<T>(look: impl FnOnce(&Base) -> T) -> T {
    BASE.with(|base| look(base.get_or_init(make_base)))
}

fn make_base() -> Base {
    let simulation = Simulation::new(1);
    let spec = |spec: DriveSpec| DriveSpec { atomic_write_bytes: 4096, ..spec };
    simulation.add_drive(spec(DriveSpec::fast("fast", FAST_BYTES)));
    simulation.add_drive(spec(DriveSpec::slow("slow", SLOW_BYTES)));
    let identity = on(&simulation, |io, fast, slow| async move {
        create(&io, &fast, &slow, CreateOptions::new("hostile"), &|_, _| ()).await.unwrap()
    });
    on(&simulation, |io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await.unwrap();
        fill(&io, &engine).await;
        engine.close().await.unwrap();
    });
    let closed = simulation.snapshot();
    on(&simulation, |io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await.unwrap();
        fill(&io, &engine).await;
    });
    Base { closed, killed: simulation.snapshot(), layouts: identity.geometry.layouts }
}

/// Runs something on a fresh executor, and kills it.
pub(crate) fn on<T, F: Future<Output = T>>(
    simulation: &Simulation,
    work: impl FnOnce(Io, Device, Device) -> F,
) -> T {
    let io = simulation.boot();
    let drives = simulation.drives();
    let [fast, slow] = [drives[0], drives[1]].map(|drive| simulation.device(&io, drive));
    let value = simulation.run(&io, work(io.clone(), fast, slow)).done();
    io.drop_tasks();
    io.drain();
    value
}

pub(crate) async fn open(io: &Io, fast: &Device, slow: &Device) -> Result<Engine, engine::Error> {
    Engine::open(io, fast, slow, OpenOptions::default()).await
}

/// Makes records of most kinds.
async fn fill(io: &Io, engine: &Engine) {
    let put = async |at: u64, length: u64| {
        let mut buf = io.pool().take(length as usize);
        buf.fill(at as u8 + 1);
        engine.write(at, buf, Durability::Volatile).await.1.unwrap();
    };
    for extent in 0..4 {
        put(extent * EXTENT_BYTES, EXTENT_BYTES).await;
    }
    put(20 * EXTENT_BYTES, 16 * KIB).await;
    engine.flush().await.unwrap();
    put(BLOCK_BYTES, 8 * KIB).await;
    put(21 * EXTENT_BYTES, 100 * KIB).await;
    let zeroes = (ZeroMode::Deallocate, Durability::Volatile);
    engine.write_zeroes(20 * EXTENT_BYTES, 8 * KIB, zeroes.0, zeroes.1).await.unwrap();
    engine.trim(2 * EXTENT_BYTES, 2 * EXTENT_BYTES, Durability::Durable).await.unwrap();
    put(3 * EXTENT_BYTES, EXTENT_BYTES).await;
    engine.flush().await.unwrap();
}

fn run(mut input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    input = rest;
    let (simulation, patches) = with_base(|base| {
        let snapshot = if first & 1 == 0 { &base.closed } else { &base.killed };
        let patches: Vec<Patch<'_>> = std::iter::from_fn(|| Patch::take(&mut input, &base.layouts))
            .take(PATCHES_MAX)
            .collect();
        (Simulation::wake(snapshot), patches)
    });
    let drives = simulation.drives();
    for patch in &patches {
        patch.apply(&simulation, drives[patch.drive]);
    }
    on(&simulation, |io, fast, slow| async move {
        let _ = engine::check(&io, &fast, &slow, &|_, _| ()).await;
    });
    on(&simulation, |io, fast, slow| async move {
        let options = OpenOptions { rescue: true, ..OpenOptions::default() };
        let Ok(engine) = Engine::open(&io, &fast, &slow, options).await else { return };
        read_all(&io, &engine).await;
    });
    on(&simulation, |io, fast, slow| async move {
        let Ok(engine) = open(&io, &fast, &slow).await else { return };
        use_all(&io, &engine).await;
        // Damage may make it fail, but not panic or last for ever.
        let _ = engine.close().await;
    });
}

async fn read_all(io: &Io, engine: &Engine) {
    let size = engine.info().size_bytes;
    let mut at = 0;
    while at < size {
        let Some(span) = engine.places(at, size - at, 1).first().copied() else { break };
        if span.place != io::Place::Hole {
            let mut offset = 0;
            while offset < span.length {
                let length = (span.length - offset).min(MIB);
                let _ = engine.read(at + offset, io.pool().take(length as usize)).await;
                offset += length;
            }
        }
        at += span.length;
    }
}

/// Reads everything, and writes a little of everything.
async fn use_all(io: &Io, engine: &Engine) {
    read_all(io, engine).await;
    let size = engine.info().size_bytes;
    for at in [0, 2 * EXTENT_BYTES, 20 * EXTENT_BYTES, size.saturating_sub(EXTENT_BYTES)] {
        if at + EXTENT_BYTES <= size {
            let buf = io.pool().take_zeroed(EXTENT_BYTES as usize);
            let _ = engine.write(at, buf, Durability::Durable).await;
            let _ = engine.write(at + 512, io.pool().take_zeroed(1024), Durability::Durable).await;
            let _ = engine.trim(at, EXTENT_BYTES / 2, Durability::Durable).await;
        }
    }
}

/// A block of the killed volume.
pub(crate) fn example_block(drive: usize, at: u64) -> Vec<u8> {
    with_base(|base| {
        let simulation = Simulation::wake(&base.killed);
        simulation.peek(simulation.drives()[drive], at, BLOCK_BYTES as usize)
    })
}

fn seeds() -> Vec<Seed> {
    let patch = |head: u8, block: u16, offset: u16, bytes: &[u8]| {
        let [block, offset] = [block.to_le_bytes(), offset.to_le_bytes()];
        let mut patch = vec![head, block[0], block[1], offset[0], offset[1], bytes.len() as u8];
        patch.extend_from_slice(bytes);
        patch
    };
    let input = |base: u8, patches: &[Vec<u8>]| [vec![base], patches.concat()].concat();
    let (map, log, checksum, slow) = (1 << 2, 2 << 2, 2, 1);
    vec![
        seed("closed", input(0, &[])),
        seed("killed", input(1, &[])),
        seed("superblock-copy", input(1, &[patch(0, 0, 100, &[7; 8])])),
        seed("superblock-session-start", input(1, &[patch(checksum, 1, 336, &[1])])),
        seed("superblock-tail", input(1, &[patch(checksum, 0, 328, &[3, 0, 0, 0])])),
        seed(
            "map-page",
            input(0, &[patch(map, 1, 70, &[9; 4]), patch(map | slow, 1, 70, &[9; 4])]),
        ),
        seed("map-entry", input(0, &[patch(map | checksum, 1, 64, &[5, 0, 0, 0, 0, 0, 0, 0x80])])),
        seed("log-header", input(1, &[patch(log, 1, 40, &[9])])),
        seed("log-blocks", input(1, &[patch(log | checksum, 1, 40, &[1, 2])])),
        seed("log-entry", input(1, &[patch(log | checksum, 1, 64, &[8, 0, 0, 0, 255])])),
        seed("log-data", input(1, &[patch(log, 3, 1000, &[1, 2, 3])])),
        seed("a-home", input(1, &[patch(3 << 2, 2000, 0, &[1; 16])])),
    ]
}
