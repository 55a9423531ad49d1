//! A volume of two twins, in virtual time.
//!
//! Before a trace begins, what it touches is written once, so that it lies on the slow drive and the
//! fast one is free, as after buying it; then the volume is closed and opened again, and knows nothing
//! of what was used how often. The slow drive is a partition of its twin, as large as is needed.

use engine::{CacheMode, Class, CreateOptions, Engine, OpenOptions};
use io::units::MIB;
use io::{Device, Durability, Io, Place, Volume};
use twin::{DriveCounters, DriveId, DriveSpec, Profile, Simulation};

use super::{Ground, Outcome, Played, Speed, VolumeOutcome, play};
use crate::fio::Served;

/// Blocks are never torn on these drives: what the kernel promises of drives with 4 KiB sectors, and
/// what lets the engine write in place.
const ATOMIC_BYTES: u32 = 4096;
/// What is not for data: superblocks, map pages and spare slots of the slow drive.
const SLACK_BYTES: u64 = 128 * MIB;

/// What the volume is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PairClass {
    /// Capacities add up.
    Fusion,
    /// The fast drive holds copies of the slow one's data.
    Cache(CacheMode),
}

/// Which drives, and what is made of them.
#[derive(Debug, Clone)]
pub struct PairSpec {
    fast: DriveSpec,
    slow: DriveSpec,
    class: PairClass,
    /// What goes up keeps its slot below.
    inclusion: bool,
    seed: u64,
}

/// See the head of the file.
pub struct Pair {
    simulation: Simulation,
    drives: [DriveId; 2],
    io: Io,
    volume: Served<Engine>,
    fast_bytes: u64,
}

impl PairSpec {
    /// Of two twins by name. The fast drive is all of its twin until [`PairSpec::with_fast_bytes`].
    ///
    /// # Errors
    /// A sentence that says which name is not known.
    pub fn named(fast: &str, slow: &str, class: PairClass, seed: u64) -> Result<PairSpec, String> {
        let spec = |choice: &str| {
            let profile = Profile::named(choice).map_err(|error| error.to_string())?;
            Ok::<_, String>(DriveSpec {
                atomic_write_bytes: ATOMIC_BYTES,
                // What a power cut could lose is of no interest here, and costs memory.
                cache_bytes: 0,
                zeros_are_holes: true,
                ..profile.spec(choice)
            })
        };
        Ok(PairSpec { fast: spec(fast)?, slow: spec(slow)?, class, inclusion: false, seed })
    }

    /// The volume keeps below what goes up, or does not; for capacities that add up.
    #[must_use]
    pub fn with_inclusion(&self, inclusion: bool) -> PairSpec {
        PairSpec { inclusion, ..self.clone() }
    }

    /// Size of the fast drive.
    pub fn fast_bytes(&self) -> u64 {
        self.fast.size_bytes
    }

    /// Size of the slow drive, and so about what a trace may touch.
    pub fn slow_bytes(&self) -> u64 {
        self.slow.size_bytes
    }

    /// The fast drive is a partition of so many bytes of its twin.
    ///
    /// # Errors
    /// A sentence, when the twin is smaller.
    pub fn with_fast_bytes(&self, bytes: u64) -> Result<PairSpec, String> {
        let fast = partition(&self.fast, bytes)?;
        Ok(PairSpec { fast, ..self.clone() })
    }

    /// The fast drive has so many bytes for data and log; what the map of the volume takes comes on
    /// top.
    ///
    /// # Errors
    /// A sentence, when the twin is smaller, or the drive too small for a volume.
    pub fn with_fast_room(&self, bytes: u64, ground: &Ground) -> Result<PairSpec, String> {
        let tried = self.with_fast_bytes(bytes + 2 * MIB)?.around(ground)?;
        let map_bytes = (tried.fast.size_bytes + tried.slow.size_bytes) / (128 << 10) * 16;
        self.with_fast_bytes((bytes + map_bytes + 2 * MIB).next_multiple_of(MIB))
    }

    /// The slow drive as large as that ground needs.
    fn around(&self, ground: &Ground) -> Result<PairSpec, String> {
        let end = ground.runs.last().map_or(0, |(at, length)| at + length);
        let end = ground.events.iter().map(|event| event.offset + event.length).fold(end, u64::max);
        let wanted = end + end / 512 + self.fast.size_bytes + SLACK_BYTES;
        let slow = partition(&self.slow, wanted.next_multiple_of(MIB).min(self.slow.size_bytes))?;
        Ok(PairSpec { slow, ..self.clone() })
    }
}

fn partition(spec: &DriveSpec, bytes: u64) -> Result<DriveSpec, String> {
    if bytes > spec.size_bytes {
        let (path, size) = (&spec.path, spec.size_bytes);
        return Err(format!("twin {path} has {size} bytes, not {bytes}"));
    }
    Ok(DriveSpec { size_bytes: bytes, ..spec.clone() })
}

impl Pair {
    /// The volume with everything that `ground` touches on its slow drive.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(spec: &PairSpec, ground: &Ground) -> Result<Pair, String> {
        let spec = spec.around(ground)?;
        let simulation = Simulation::new(spec.seed);
        let drives = [&spec.fast, &spec.slow].map(|drive| simulation.add_drive(drive.clone()));
        let io = simulation.boot();
        let devices = drives.map(|drive| simulation.device(&io, drive));
        let made = simulation.run(&io, prepare(&io, &devices, &spec, ground)).done();
        let engine = made.map_err(|error| format!("the volume cannot be made: {error}"))?;
        let volume = Served::new(io.clone(), engine);
        Ok(Pair { simulation, drives, io, volume, fast_bytes: spec.fast.size_bytes })
    }

    /// The running volume.
    pub fn engine(&self) -> &Engine {
        self.volume.volume()
    }

    /// Plays the first `warm_up` of the requests without counting, then the others.
    ///
    /// # Errors
    /// A sentence, when a request fails.
    pub fn play(
        &self,
        ground: &Ground,
        warm_up: usize,
        speed: Speed,
        progress: &dyn Fn(u64),
    ) -> Result<Outcome, String> {
        Ok(self.play_in_parts(ground, warm_up, 1, speed, progress)?.0)
    }

    /// As [`Pair::play`]; what counts also by itself for each of so many parts of as many requests.
    ///
    /// # Errors
    /// As [`Pair::play`].
    pub fn play_in_parts(
        &self,
        ground: &Ground,
        warm_up: usize,
        parts: usize,
        speed: Speed,
        progress: &dyn Fn(u64),
    ) -> Result<(Outcome, Vec<Outcome>), String> {
        let (before, after) = ground.events.split_at(warm_up.min(ground.events.len()));
        let first_us = ground.events.first().map_or(0, |event| event.at_us);
        let run = async {
            let warmed = play(&self.volume, before, first_us, speed, progress).await;
            warmed.check()?;
            let from = self.counts();
            let mut whole: Option<Played> = None;
            let mut outcomes = Vec::new();
            // The pauses between the parts belong to the trace.
            let mut origin_us = before.last().map_or(first_us, |event| event.at_us);
            for part in after.chunks(after.len().div_ceil(parts).max(1)) {
                let part_from = self.counts();
                let played = play(&self.volume, part, origin_us, speed, progress).await;
                played.check()?;
                outcomes.push(self.with_volume(played.outcome(), &part_from, &self.counts()));
                origin_us = part.last().map_or(origin_us, |event| event.at_us);
                match &mut whole {
                    Some(whole) => whole.absorb(played),
                    None => whole = Some(played),
                }
            }
            let whole = whole.ok_or("nothing is left of the trace after the warm-up")?;
            Ok((self.with_volume(whole.outcome(), &from, &self.counts()), outcomes))
        };
        self.simulation.run(&self.io, run).done()
    }

    fn with_volume(&self, outcome: Outcome, from: &Counts, to: &Counts) -> Outcome {
        Outcome { volume: Some(self.volume_outcome(&outcome, from, to)), ..outcome }
    }

    fn counts(&self) -> Counts {
        let slow = self.simulation.counters(self.drives[1]);
        let fast = self.simulation.counters(self.drives[0]);
        Counts { engine: self.engine().status(), fast, slow }
    }

    fn volume_outcome(&self, outcome: &Outcome, from: &Counts, to: &Counts) -> VolumeOutcome {
        let (before, now) = (&from.engine, &to.engine);
        let (read_before, read_now) = (&before.served_reads, &now.served_reads);
        let slow_bytes = read_now.slow_bytes - read_before.slow_bytes;
        // Served in blocks: more than was asked for, where that was less than a block.
        let read_bytes = all_bytes(read_now) - all_bytes(read_before);
        let slow_busy_s = (to.slow.busy_ns - from.slow.busy_ns) as f64 / 1e9;
        let client_bytes = (outcome.read_bytes + outcome.write_bytes).max(1) as f64;
        let promoted_bytes = now.moves.promoted_bytes - before.moves.promoted_bytes;
        let demoted_bytes = now.moves.demoted_bytes - before.moves.demoted_bytes;
        let fast_written_bytes = to.fast.write_bytes - from.fast.write_bytes;
        VolumeOutcome {
            fast_bytes: self.fast_bytes,
            read_hit: 1.0 - slow_bytes as f64 / read_bytes.max(1) as f64,
            slow_busy_s,
            slow_flushes: to.slow.flushes - from.slow.flushes,
            slow_busy_share: slow_busy_s / outcome.seconds.max(1e-9),
            promoted_bytes,
            demoted_bytes,
            destaged_bytes: now.moves.destaged_bytes - before.moves.destaged_bytes,
            fast_written_bytes,
            fast_received_per_byte: fast_written_bytes as f64 / client_bytes,
            fast_written_per_byte: promoted_bytes as f64 / client_bytes,
            moved_per_byte: (promoted_bytes + demoted_bytes) as f64 / client_bytes,
            log_left_bytes: now.log.dirty_bytes,
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The engine's tasks hold the executor, which holds them.
        self.io.drop_tasks();
    }
}

fn all_bytes(served: &engine::Served) -> u64 {
    let engine::Served { log_bytes, fast_bytes, slow_bytes, stage_bytes, hole_bytes } = served;
    log_bytes + fast_bytes + slow_bytes + stage_bytes + hole_bytes
}

struct Counts {
    engine: engine::Status,
    fast: DriveCounters,
    slow: DriveCounters,
}

/// Makes the volume, and puts what the trace touches on the slow drive.
async fn prepare(
    io: &Io,
    devices: &[Device; 2],
    spec: &PairSpec,
    ground: &Ground,
) -> Result<Engine, engine::Error> {
    let [fast, slow] = devices;
    let mut options = CreateOptions::new("laboratory");
    options.tuning.inclusion = spec.inclusion;
    if let PairClass::Cache(mode) = spec.class {
        options.class = Class::Cache;
        options.cache_mode = mode;
    }
    engine::create(io, fast, slow, options, &|_, _| ()).await?;
    let engine = Engine::open(io, fast, slow, OpenOptions::default()).await?;
    let in_the_way = match spec.class {
        PairClass::Fusion => occupy_fast(io, &engine, ground).await?,
        PairClass::Cache(_) => Vec::new(),
    };
    for (at, length) in &ground.runs {
        let end = (at + length).min(engine.info().size_bytes);
        let mut at = *at;
        while at < end {
            let bytes = MIB.min(end - at);
            fill(io, &engine, at, bytes).await?;
            at += bytes;
        }
    }
    for at in in_the_way {
        engine.trim(at, engine.status().geometry.extent_bytes, Durability::Volatile).await?;
    }
    engine.close().await?;
    Engine::open(io, fast, slow, OpenOptions::default()).await
}

/// Fills the fast drive with extents that the trace does not touch, so that what comes next goes to
/// the slow one. Gives their first bytes.
async fn occupy_fast(io: &Io, engine: &Engine, ground: &Ground) -> Result<Vec<u64>, engine::Error> {
    let extent_bytes = engine.status().geometry.extent_bytes;
    let mut runs = ground.runs.iter().peekable();
    let mut occupied = Vec::new();
    let mut at = 0;
    while at + extent_bytes <= engine.info().size_bytes {
        while runs.peek().is_some_and(|(start, length)| start + length <= at) {
            runs.next();
        }
        if runs.peek().is_none_or(|(start, _)| *start >= at + extent_bytes) {
            fill(io, engine, at, extent_bytes).await?;
            occupied.push(at);
            let lies = engine.places(at, extent_bytes, 1);
            if lies.first().is_some_and(|span| span.place == Place::Slow) {
                break;
            }
        }
        at += extent_bytes;
    }
    Ok(occupied)
}

/// Zeros: simulated drives keep no memory for them.
async fn fill(io: &Io, engine: &Engine, at: u64, bytes: u64) -> Result<(), engine::Error> {
    let buf = io.pool().take_zeroed(bytes as usize);
    Ok(engine.write(at, buf, Durability::Volatile).await.1?)
}
