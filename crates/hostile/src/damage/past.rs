//! Volumes with a random past, of which random metadata is damaged: what a rescue gives must be what
//! was last written, or an error.
//!
//! Everything is flushed before the server is killed, so exactly one content is right. The pasts have
//! what the two images of the exhaustive run have not: destaged and moved extents, checkpoints in the
//! middle of the log, slots that changed hands, sessions on sessions.

use std::collections::BTreeMap;

use engine::format::superblock::COPY_POSITIONS;
use engine::{
    CacheMode, Class, CreateOptions, Engine, Error, Geometry, OpenOptions, Tier, Tuning, Wish,
    create,
};
use io::units::{KIB, MIB, MILLISECOND_NS};
use io::{Durability, Io, Volume, ZeroMode};
use twin::{DriveSpec, Random, Simulation, Snapshot};

use super::BLOCK_BYTES;
use super::image::{Region, log_regions};
use super::rescue::Rescued;
use crate::recovery::{on, open};

/// Extents that are written to, of both pages of the map: some more than fit the fast drive.
const EXTENTS: u64 = 160;
const EXTENTS_APART: u64 = 520;
const FAST_BYTES: u64 = 16 * MIB;
/// Damages that each past is tried with.
const DAMAGES: u64 = 8;

/// Makes a volume with the past of this seed, damages it in several ways, and rescues it each time.
///
/// # Errors
/// A rescue was refused, or gave what is neither right nor an error.
pub fn rescue_from_past(seed: u64) -> Result<Tried, String> {
    let past = live(seed);
    let mut random = Random::new(seed ^ 0x5eed);
    let mut sum = Rescued { right: 0, all: 0 };
    for _ in 0..DAMAGES {
        let simulation = Simulation::wake(&past.drives);
        let told = damage(&simulation, &past.geometry, &mut random);
        let rescued = rescue(&simulation, &past.content)
            .map_err(|why| format!("seed {seed}, {told}: {why}"))?;
        sum.right += rescued.right;
        sum.all += rescued.all;
    }
    Ok(Tried { rescued: sum, extents_in_part: past.extents_in_part })
}

/// What came of a past.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tried {
    /// From all its damages together.
    pub rescued: Rescued,
    /// So many extents had some of their blocks on the fast drive, and the others on the slow one, at its end.
    pub extents_in_part: u64,
}

struct Past {
    drives: Snapshot,
    geometry: Geometry,
    content: Content,
    extents_in_part: u64,
}

/// What was last written, by block; blocks that are not named are zeros.
type Content = BTreeMap<u64, u64>;

fn live(seed: u64) -> Past {
    let mut random = Random::new(seed);
    let simulation = Simulation::new(seed);
    let atomic_write_bytes = if random.below(2) == 0 { 512 } else { 4096 };
    let spec = |spec: DriveSpec| DriveSpec { atomic_write_bytes, ..spec };
    simulation.add_drive(spec(DriveSpec::fast("fast", FAST_BYTES)));
    simulation.add_drive(spec(DriveSpec::slow("slow", 96 * MIB)));
    // One in three is a cache, which has extents in part; of the others every second one keeps below what goes
    // up.
    let options = CreateOptions::new("past");
    let cached = seed % 3 == 2;
    let options = if cached {
        CreateOptions { class: Class::Cache, cache_mode: CacheMode::WriteBack, ..options }
    } else {
        let tuning = Tuning { inclusion: seed.is_multiple_of(2), ..Tuning::default() };
        CreateOptions { tuning, ..options }
    };
    let geometry = on(&simulation, |io, fast, slow| async move {
        create(&io, &fast, &slow, options, &|_, _| ()).await.unwrap().geometry
    });
    let (mut content, mut extents_in_part) = (Content::new(), 0);
    let sessions = 1 + random.below(3);
    for session in 1..=sessions {
        let last = session == sessions;
        let given = std::mem::take(&mut content);
        let steps = Random::new(random.below(u64::MAX));
        (content, extents_in_part) = on(&simulation, |io, fast, slow| async move {
            let engine = open(&io, &fast, &slow).await.unwrap();
            let mut life = Life { io, engine, content: given, random: steps, version: session };
            life.go_on().await;
            if cached {
                life.part().await;
            }
            let extents_in_part = life.engine.status().extents_in_part;
            if !last || life.random.below(3) == 0 {
                life.engine.close().await.unwrap();
            }
            (life.content, extents_in_part)
        });
    }
    Past { drives: simulation.snapshot(), geometry, content, extents_in_part }
}

struct Life {
    io: Io,
    engine: Engine,
    content: Content,
    random: Random,
    version: u64,
}

impl Life {
    async fn go_on(&mut self) {
        let steps = 10 + self.random.below(60);
        for step in 0..steps {
            if step == steps / 3 {
                self.wish(Wish::Cold).await;
            } else if step == 2 * steps / 3 {
                self.wish(Wish::Pinned).await;
            }
            let extent = match self.random.below(EXTENTS) {
                // Some are written again and again.
                n if n % 3 == 0 => n % 12,
                n => n % 2 * EXTENTS_APART + n / 2,
            };
            let at = extent * 128 * KIB;
            let offset = self.random.below(32) * BLOCK_BYTES;
            let length = (1 + self.random.below(8)) * BLOCK_BYTES;
            let whole = 128 * KIB * (1 + self.random.below(4));
            match self.random.below(12) {
                0..4 => self.put(at, whole).await,
                4..8 => self.put(at + offset, length).await,
                8 => self.zero(at + offset, length).await,
                9 => self.zero(at, whole).await,
                10 => self.engine.flush().await.unwrap(),
                // Time for the background: some destages, some checkpoints, some is vouched for.
                _ => self.io.sleep(self.random.below(20_000) * MILLISECOND_NS).await,
            }
        }
        self.engine.flush().await.unwrap();
        if self.random.below(2) == 0 {
            // The last records are known to be durable.
            self.io.sleep(500 * MILLISECOND_NS).await;
        }
    }

    /// Has some blocks of extents go up whose others stay below: where there is room for them, and those that
    /// have it do not go home for a while.
    async fn part(&mut self) {
        for extent in 0..EXTENTS {
            self.put((EXTENTS + extent) * 128 * KIB, 128 * KIB).await;
        }
        self.io.sleep(20_000 * MILLISECOND_NS).await;
        self.zero(EXTENTS * 128 * KIB, 16 * 128 * KIB).await;
        self.io.sleep(20_000 * MILLISECOND_NS).await;
        for extent in 0..8 {
            let block = (2 * EXTENTS - 1 - extent) * 32 + self.random.below(31);
            self.put(block * BLOCK_BYTES, BLOCK_BYTES).await;
        }
        self.engine.flush().await.unwrap();
        self.io.sleep(self.random.below(1000) * MILLISECOND_NS).await;
    }

    /// Has what is used most go down, or up.
    async fn wish(&mut self, wish: Wish) {
        self.engine.wish(&[(0, 16 * 128 * KIB)], Some(wish)).await.unwrap();
        self.io.sleep(2000 * MILLISECOND_NS).await;
    }

    async fn put(&mut self, at: u64, length: u64) {
        self.version += 1 << 8;
        let mut buf = self.io.pool().take(length as usize);
        for (block, bytes) in (at / BLOCK_BYTES..).zip(buf.chunks_exact_mut(BLOCK_BYTES as usize)) {
            bytes.copy_from_slice(&block_of(block, self.version));
            self.content.insert(block, self.version);
        }
        self.engine.write(at, buf, Durability::Volatile).await.1.unwrap();
    }

    async fn zero(&mut self, at: u64, length: u64) {
        for block in at / BLOCK_BYTES..(at + length) / BLOCK_BYTES {
            self.content.remove(&block);
        }
        let mode = ZeroMode::Deallocate;
        self.engine.write_zeroes(at, length, mode, Durability::Volatile).await.unwrap();
    }
}

/// A block that tells where it belongs and of which write it is.
fn block_of(block: u64, version: u64) -> Vec<u8> {
    [block, version].map(u64::to_le_bytes).concat().repeat(BLOCK_BYTES as usize / 16)
}

/// Damages one to three things; tells which.
fn damage(simulation: &Simulation, geometry: &Geometry, random: &mut Random) -> String {
    let drives = simulation.drives();
    let fast = simulation.peek(drives[0], 0, FAST_BYTES as usize);
    let (regions, _) = log_regions(&fast, geometry);
    let headers: Vec<u64> = regions
        .iter()
        .filter(|(_, region)| matches!(region, Region::Header | Region::LastRecord))
        .map(|(at, _)| *at)
        .collect();
    // Of the last records nothing says that they were durable: rotten, they look like torn ones, and
    // with them goes what they say of others.
    let only_unreadable = |at: u64| regions.get(&at) == Some(&Region::LastRecord);
    let mut told = Vec::new();
    let mut hit = |tier: Tier, at: u64, random: &mut Random| {
        let drive = drives[tier.index()];
        if random.below(3) == 0 || tier == Tier::Fast && only_unreadable(at) {
            simulation.set_unreadable(drive, at..at + 512);
        } else {
            let byte = simulation.peek(drive, at + 700, 1)[0];
            simulation.poke(drive, at + 700, &[!byte]);
        }
        told.push(format!("{tier} {at}"));
    };
    for _ in 0..1 + random.below(3) {
        match random.below(7) {
            0..4 if !headers.is_empty() => {
                let first = random.below(headers.len() as u64) as usize;
                let run = 1 + random.below(3) as usize;
                headers[first..].iter().take(run).for_each(|at| hit(Tier::Fast, *at, random));
            }
            4 => {
                let page = random.below(geometry.map_pages());
                for tier in Tier::BOTH {
                    for copy in 0..2 {
                        hit(tier, geometry.map_page_position(tier, page, copy), random);
                    }
                }
            }
            5 => {
                // The newest of both drives, or what a cut would have left.
                let (page, copy) = (random.below(geometry.map_pages()), random.below(2));
                for tier in Tier::BOTH {
                    hit(tier, geometry.map_page_position(tier, page, copy), random);
                }
            }
            _ => hit(Tier::Slow, [256 * KIB, 768 * KIB][random.below(2) as usize], random),
        }
    }
    if random.below(8) == 0 {
        hit(Tier::Fast, COPY_POSITIONS[random.below(2) as usize], random);
    }
    told.join(", ")
}

fn rescue(simulation: &Simulation, content: &Content) -> Result<Rescued, String> {
    let written = |drive| simulation.counters(drive).writes + simulation.counters(drive).flushes;
    let counted: u64 = simulation.drives().into_iter().map(written).sum();
    let rescued = on(simulation, |io, fast, slow| async move {
        let options = OpenOptions { rescue: true, ..OpenOptions::default() };
        let engine = Engine::open(&io, &fast, &slow, options).await?;
        let rescued = compare(&io, &engine, content).await;
        engine.close().await?;
        Ok::<_, Error>(rescued)
    });
    if simulation.drives().into_iter().map(written).sum::<u64>() != counted {
        return Err("a rescue wrote to the drives".into());
    }
    rescued.map_err(|error| format!("a rescue was refused: {error}"))?
}

async fn compare(io: &Io, engine: &Engine, content: &Content) -> Result<Rescued, String> {
    let mut rescued = Rescued { right: 0, all: content.len() as u64 };
    let nothing = vec![0; BLOCK_BYTES as usize];
    let size = engine.info().size_bytes;
    for first in (0..size / BLOCK_BYTES).step_by(32) {
        let (whole, outcome) =
            engine.read(first * BLOCK_BYTES, io.pool().take(128 * KIB as usize)).await;
        for (block, bytes) in (first..).zip(whole.chunks_exact(BLOCK_BYTES as usize)) {
            let mut bytes = bytes.to_vec();
            if outcome.is_err() {
                let buf = io.pool().take(BLOCK_BYTES as usize);
                let (buf, outcome) = engine.read(block * BLOCK_BYTES, buf).await;
                if outcome.is_err() {
                    continue;
                }
                bytes = buf.to_vec();
            }
            let right = content.get(&block).map(|version| block_of(block, *version));
            if bytes != *right.as_ref().unwrap_or(&nothing) {
                let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
                return Err(format!(
                    "WRONG DATA RESCUED: block {block} (extent {}) should be of write {:x?} and is \
                     block {}, write {:x}",
                    block / 32,
                    content.get(&block),
                    word(0),
                    word(8)
                ));
            }
            rescued.right += u64::from(right.is_some());
        }
    }
    Ok(rescued)
}
