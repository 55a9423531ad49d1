//! The stories that the engine must survive: each of its deeds, with power failing at every
//! operation of it. Each act verifies by the engine's own counters that the deed took place, so
//! that a story cannot become empty unnoticed.

use engine::{Engine, Status};
use io::units::{KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, ErrorKind, IoError, Volume, ZeroMode};
use twin::{CacheLoss, DriveSpec, Kind, Random, mix};

use crate::scenario::{Scenario, Stage};
use crate::watched::{Trouble, Watched};
use crate::workload::Workload;

/// Bytes of an extent.
const EXTENT: u64 = 128 * KIB;

/// The fast drive: superblocks, map and the smallest landing log take 6 MiB; 32 slots.
const FAST_BYTES: u64 = 10 * MIB;

/// The slow drive: the volume just exceeds the smallest one.
const SLOW_BYTES: u64 = 68 * MIB;

/// Extents that surely fill the fast drive.
const FAST_EXTENTS: u64 = 40;

/// Long enough for all that the engine does when idle.
const IDLE_NS: u64 = 20 * SECOND_NS;

use Durability::{Durable, Volatile};

type Story = Scenario<Engine>;
type Prey = Watched<Engine>;

/// All stories. `atomic_write_bytes` is what a power cut does not tear on either drive: 512 has
/// the engine avoid writing in place, 4096 lets it.
pub fn stories(seed: u64, atomic_write_bytes: u32) -> Vec<Story> {
    let drives = Drives { seed, atomic_write_bytes };
    let mut all = vec![
        creation(&drives),
        clean_close(&drives),
        small_writes(&drives),
        unaligned_writes(&drives),
        forced_writes(&drives),
        concurrent_flushes(&drives),
        allocation_on_fast(&drives),
        allocation_on_slow(&drives),
        rewriting_whole_extents(&drives),
        overwriting_at_home(&drives),
        trims(&drives),
        zeroes(&drives),
        destage(&drives),
        destage_under_fire(&drives),
        promotion(&drives),
        demotion(&drives),
        checkpoint(&drives),
        checkpoint_under_fire(&drives),
        log_wrap(&drives),
        full_volume(&drives),
        recovery(&drives, CacheLoss::KeepAll),
        recovery(&drives, CacheLoss::Subset(seed)),
        failing_drives(&drives),
    ];
    all.push(mixture(seed, atomic_write_bytes));
    all
}

/// A longer life on drives of many kinds, which begins with a recovery: for hunting. Its
/// operations are many, so cut it at some of them only.
pub fn endurance(seed: u64, atomic_write_bytes: u32) -> Story {
    let drives = Drives { seed, atomic_write_bytes };
    let work = move |salt: u64| {
        let seed = mix(seed ^ salt);
        let span = match seed % 3 {
            0 => 0..8 * EXTENT,
            1 => 0..60 * EXTENT,
            _ => 0..64 * MIB,
        };
        let (clients, steps) = (1 + seed % 7, 60);
        Workload { seed, clients, steps, span, length_bytes_max: MIB, patient: false }
    };
    let mut random = Random::new(mix(seed));
    let mut story = drives
        .story("endurance")
        .after_cut(CacheLoss::Torn(seed))
        .prepare(move |stage| async move { work(1).run(&stage.volume).await })
        .act(move |stage| async move {
            work(2).run(&stage.volume).await?;
            if seed.is_multiple_of(2) {
                idle(&stage.volume).await;
            }
            work(3).run(&stage.volume).await
        });
    for drive in [&mut story.fast, &mut story.slow] {
        // Some without a volatile cache, with a small one, or with large sectors.
        match random.below(6) {
            0 => drive.cache_bytes = 0,
            1 => drive.cache_bytes = 256 * KIB,
            2 => drive.sector_bytes = 4096,
            _ => {}
        }
        if random.chance(25) {
            drive.atomic_write_bytes = 4608 - atomic_write_bytes;
        }
        drive.latencies.channels = 1 + random.below(16) as usize;
    }
    story
}

/// Several clients that do everything at once; another mixture for each seed.
pub fn mixture(seed: u64, atomic_write_bytes: u32) -> Story {
    let drives = Drives { seed, atomic_write_bytes };
    let work = move |salt: u64, steps| {
        let seed = mix(seed ^ salt);
        let span = match seed % 3 {
            0 => 0..4 * EXTENT,
            1 => 0..40 * EXTENT,
            _ => 8 * EXTENT - 64 * KIB..20 * EXTENT,
        };
        Workload {
            seed,
            clients: 1 + seed % 5,
            steps,
            span,
            length_bytes_max: 512 * KIB,
            patient: false,
        }
    };
    drives
        .story("mixture")
        .prepare(move |stage| async move { work(1, 20).run(&stage.volume).await })
        .act(move |stage| async move { work(2, 8).run(&stage.volume).await })
}

struct Drives {
    seed: u64,
    atomic_write_bytes: u32,
}

impl Drives {
    fn story(&self, name: &'static str) -> Story {
        let atomic_write_bytes = self.atomic_write_bytes;
        let fast = DriveSpec { atomic_write_bytes, ..DriveSpec::fast("fast", FAST_BYTES) };
        let slow = DriveSpec { atomic_write_bytes, ..DriveSpec::slow("slow", SLOW_BYTES) };
        Scenario::new(name, self.seed, fast, slow)
    }
}

/// The story is not about what it says it is.
fn missed(what: &str, status: &Status) -> Trouble {
    let text = format!("the story missed its deed, {what}: {status:?}");
    Trouble::Refused(IoError::new(ErrorKind::Unsupported, text))
}

fn insist(stage: &Stage<Engine>, what: &str, deed: fn(&Status) -> bool) -> Result<(), Trouble> {
    let status = stage.volume.volume().status();
    if deed(&status) { Ok(()) } else { Err(missed(what, &status)) }
}

async fn idle(volume: &Prey) {
    volume.io().sleep(IDLE_NS).await;
}

/// Writes extents as a whole and makes them durable.
async fn lay(volume: &Prey, extents: std::ops::Range<u64>) -> Result<(), Trouble> {
    for extent in extents {
        volume.write(extent * EXTENT, EXTENT, Volatile).await?;
    }
    volume.flush().await
}

/// Small writes spread over the first `extents`.
async fn scatter(volume: &Prey, seed: u64, count: u64, extents: u64) -> Result<(), Trouble> {
    let mut random = Random::new(seed);
    for _ in 0..count {
        let at = random.below(extents * EXTENT / 4096) * 4096;
        volume.write(at, 4096, Volatile).await?;
    }
    Ok(())
}

fn creation(drives: &Drives) -> Story {
    drives.story("create").fresh().closing().act(|stage| async move {
        stage.volume.write(0, 8192, Volatile).await?;
        stage.volume.flush().await
    })
}

fn clean_close(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("clean close")
        .closing()
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..3).await?;
            scatter(&stage.volume, seed, 20, 6).await
        })
        .act(move |stage| async move {
            scatter(&stage.volume, seed + 1, 10, 6).await?;
            stage.volume.trim(EXTENT, EXTENT, Volatile).await
        })
}

fn small_writes(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("small writes and flushes")
        .prepare(move |stage| async move { scatter(&stage.volume, seed, 8, 2).await })
        .act(move |stage| async move {
            for round in 0..4 {
                scatter(&stage.volume, seed + round, 3, 2).await?;
                stage.volume.flush().await?;
            }
            scatter(&stage.volume, seed + 9, 2, 2).await?;
            insist(&stage, "writing to the log", |status| status.served.log_bytes > 0)
        })
}

fn unaligned_writes(drives: &Drives) -> Story {
    drives
        .story("unaligned writes")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..1).await?;
            stage.volume.write(EXTENT, 8192, Volatile).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write(512, 512, Volatile).await?;
            volume.write(EXTENT - 1024, 2048, Volatile).await?;
            volume.flush().await?;
            volume.write(4096 - 512, 9216, Volatile).await?;
            volume.write(2 * EXTENT + 1536, 1024, Volatile).await?;
            volume.write(1024, 512, Durable).await?;
            volume.read(0, 16 << 10).await
        })
}

fn forced_writes(drives: &Drives) -> Story {
    drives.story("durable writes").act(|stage| async move {
        let volume = &stage.volume;
        volume.write(0, 4096, Durable).await?;
        volume.write(EXTENT, EXTENT, Durable).await?;
        volume.write(EXTENT, 4096, Durable).await?;
        volume.trim(0, 4096, Durable).await?;
        volume.write_zeroes(EXTENT, 8192, ZeroMode::Allocate, Durable).await?;
        volume.write(4096, 64 * KIB, Durable).await
    })
}

fn concurrent_flushes(drives: &Drives) -> Story {
    drives.story("concurrent clients that flush").act(|stage| async move {
        let pairs = (0..4u64).map(|client| {
            let volume = stage.volume.clone();
            async move {
                for round in 0..3 {
                    volume.write((client + round * 4) * 4096, 4096, Volatile).await?;
                    volume.flush().await?;
                }
                Ok(())
            }
        });
        together(&stage.volume, pairs).await
    })
}

/// Runs the futures as tasks of their own until all have ended.
async fn together<F>(volume: &Prey, all: impl Iterator<Item = F>) -> Result<(), Trouble>
where
    F: Future<Output = Result<(), Trouble>> + 'static,
{
    use std::cell::RefCell;
    use std::rc::Rc;
    let ended = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::new(io::WaitList::new());
    let mut count = 0;
    for one in all {
        count += 1;
        let (ended, list) = (ended.clone(), list.clone());
        volume.io().spawn(async move {
            let outcome = one.await;
            ended.borrow_mut().push(outcome);
            list.wake_all();
        });
    }
    list.until(|| (ended.borrow().len() == count).then_some(())).await;
    let outcomes = std::mem::take(&mut *ended.borrow_mut());
    outcomes.into_iter().collect()
}

fn allocation_on_fast(drives: &Drives) -> Story {
    drives.story("allocation on the fast drive").act(|stage| async move {
        stage.volume.write(0, EXTENT, Volatile).await?;
        stage.volume.write(2 * EXTENT, 2 * EXTENT, Volatile).await?;
        stage.volume.flush().await?;
        stage.volume.write(6 * EXTENT - 4096, EXTENT + 8192, Volatile).await?;
        stage.volume.flush().await?;
        stage.volume.write(8 * EXTENT, EXTENT, Volatile).await?;
        insist(&stage, "allocating on fast", |status| status.served.fast_bytes > 0)
    })
}

fn allocation_on_slow(drives: &Drives) -> Story {
    drives
        .story("allocation on the slow drive")
        .prepare(|stage| async move { lay(&stage.volume, 0..FAST_EXTENTS).await })
        .act(|stage| async move {
            let first = FAST_EXTENTS * EXTENT;
            stage.volume.write(first, EXTENT, Volatile).await?;
            stage.volume.write(first + 2 * EXTENT, 2 * EXTENT, Volatile).await?;
            stage.volume.flush().await?;
            stage.volume.write(first + 5 * EXTENT, EXTENT, Durable).await?;
            stage.volume.write(first + 7 * EXTENT, EXTENT, Volatile).await?;
            insist(&stage, "allocating on slow", |status| status.served.slow_bytes > 0)
        })
}

fn rewriting_whole_extents(drives: &Drives) -> Story {
    drives
        .story("rewriting whole extents")
        .prepare(|stage| async move { lay(&stage.volume, 0..FAST_EXTENTS).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            // The same extents twice without a flush: fresh slots, one after the other.
            for extent in [0, FAST_EXTENTS - 1, 0, FAST_EXTENTS - 1] {
                volume.write(extent * EXTENT, EXTENT, Volatile).await?;
            }
            volume.write(4096, 4096, Volatile).await?;
            volume.flush().await?;
            volume.write(0, EXTENT, Volatile).await?;
            volume.write(8192, 4096, Volatile).await?;
            volume.read(0, EXTENT).await
        })
}

fn overwriting_at_home(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("overwriting at home")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            // Until no home is verified by its data any more.
            idle(&stage.volume).await;
            Ok(())
        })
        .act(move |stage| async move {
            scatter(&stage.volume, seed, 4, 4).await?;
            stage.volume.flush().await?;
            stage.volume.write((FAST_EXTENTS - 1) * EXTENT, EXTENT, Volatile).await?;
            stage.volume.write((FAST_EXTENTS - 2) * EXTENT + 4096, 4096, Volatile).await?;
            stage.volume.write(EXTENT - 8192, 16 << 10, Volatile).await?;
            stage.volume.flush().await?;
            scatter(&stage.volume, seed + 1, 3, 4).await
        })
}

/// Data in each kind of place: homes on both drives, and the log.
async fn everywhere(volume: &Prey, seed: u64) -> Result<(), Trouble> {
    lay(volume, 0..FAST_EXTENTS).await?;
    scatter(volume, seed, 10, FAST_EXTENTS).await?;
    volume.write(FAST_EXTENTS * EXTENT, 12288, Volatile).await
}

fn trims(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("trims")
        .prepare(move |stage| async move { everywhere(&stage.volume, seed).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.trim(EXTENT, 2 * EXTENT, Volatile).await?;
            volume.read(EXTENT - 4096, 2 * EXTENT + 8192).await?;
            volume.trim(4 * EXTENT + 512, 16 << 10, Volatile).await?;
            volume.flush().await?;
            // What was trimmed is written anew, perhaps where something else was trimmed.
            volume.write(EXTENT, EXTENT, Volatile).await?;
            volume.trim((FAST_EXTENTS - 2) * EXTENT, 3 * EXTENT, Volatile).await?;
            volume.write(2 * EXTENT, 4096, Volatile).await?;
            volume.trim(0, 32 * MIB, Durable).await?;
            volume.write(8192, 4096, Volatile).await?;
            volume.read(0, MIB).await
        })
}

fn zeroes(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("zeroes")
        .prepare(move |stage| async move { everywhere(&stage.volume, seed).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write_zeroes(EXTENT + 512, 1024, ZeroMode::Deallocate, Volatile).await?;
            volume.write_zeroes(2 * EXTENT, EXTENT, ZeroMode::Allocate, Volatile).await?;
            volume.flush().await?;
            let slow = (FAST_EXTENTS - 2) * EXTENT;
            volume.write_zeroes(slow - 4608, EXTENT, ZeroMode::Deallocate, Volatile).await?;
            volume.write(2 * EXTENT + 4096, 4096, Volatile).await?;
            volume.write_zeroes(2 * EXTENT, 8192, ZeroMode::Allocate, Volatile).await?;
            volume.read(0, MIB).await
        })
}

fn destage(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("destage")
        .prepare(move |stage| async move {
            lay(&stage.volume, 2..FAST_EXTENTS).await?;
            scatter(&stage.volume, seed, 12, 2).await?;
            stage.volume.write((FAST_EXTENTS - 1) * EXTENT, 8192, Volatile).await?;
            stage.volume.write(5 * EXTENT, 8192, Volatile).await
        })
        .act(move |stage| async move {
            scatter(&stage.volume, seed + 1, 4, 4).await?;
            stage.volume.trim(0, 4096, Volatile).await?;
            idle(&stage.volume).await;
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
}

fn destage_under_fire(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("destage while clients write")
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            scatter(&stage.volume, seed, 12, 3).await
        })
        .act(move |stage| async move {
            // Destage begins when the clients have been quiet for a while, and is at work for
            // some tens of milliseconds.
            stage.volume.write((FAST_EXTENTS - 1) * EXTENT, 4096, Volatile).await?;
            stage.volume.io().sleep(101 * MILLISECOND_NS).await;
            for round in 0..6 {
                scatter(&stage.volume, seed + 1 + round, 2, 3).await?;
                stage.volume.io().sleep(3 * MILLISECOND_NS).await;
            }
            stage.volume.write(EXTENT, EXTENT, Volatile).await?;
            stage.volume.trim(0, EXTENT, Volatile).await?;
            stage.volume.flush().await?;
            stage.volume.io().sleep(SECOND_NS).await;
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
}

/// Reads an extent until it is worth a place on the fast drive.
async fn warm(volume: &Prey, extent: u64) -> Result<(), Trouble> {
    for round in 0..6 {
        volume.read(extent * EXTENT + round * 12288, 4096).await?;
        volume.io().sleep(5 * MILLISECOND_NS).await;
    }
    Ok(())
}

fn promotion(drives: &Drives) -> Story {
    drives
        .story("promotion")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            // Room on the fast drive: more than its reserve.
            stage.volume.trim(0, 20 * EXTENT, Volatile).await?;
            idle(&stage.volume).await;
            Ok(())
        })
        .act(|stage| async move {
            warm(&stage.volume, FAST_EXTENTS - 1).await?;
            warm(&stage.volume, FAST_EXTENTS - 3).await?;
            stage.volume.io().sleep(150 * MILLISECOND_NS).await;
            stage.volume.write((FAST_EXTENTS - 1) * EXTENT, 4096, Volatile).await?;
            idle(&stage.volume).await;
            stage.volume.read((FAST_EXTENTS - 1) * EXTENT, EXTENT).await?;
            insist(&stage, "promoting", |status| status.moves.promoted_bytes > 0)
        })
}

fn demotion(drives: &Drives) -> Story {
    drives
        .story("demotion")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            idle(&stage.volume).await;
            Ok(())
        })
        .act(|stage| async move {
            for extent in FAST_EXTENTS - 4..FAST_EXTENTS {
                warm(&stage.volume, extent).await?;
                warm(&stage.volume, extent).await?;
            }
            idle(&stage.volume).await;
            stage.volume.read(0, MIB).await?;
            insist(&stage, "demoting", |status| status.moves.demoted_bytes > 0)
        })
}

fn checkpoint(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("checkpoint")
        .prepare(move |stage| async move {
            // Overwritten again and again: dead records, worth a checkpoint.
            for round in 0..12 {
                scatter(&stage.volume, seed, 8, 2).await?;
                stage.volume.write(4 * EXTENT, 32 * KIB + round * 4096, Volatile).await?;
            }
            stage.volume.write(8 * EXTENT, EXTENT, Volatile).await
        })
        .act(move |stage| async move {
            for _ in 0..10 {
                stage.volume.write(4 * EXTENT, 60 * KIB, Volatile).await?;
            }
            idle(&stage.volume).await;
            scatter(&stage.volume, seed, 2, 2).await?;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
}

fn checkpoint_under_fire(drives: &Drives) -> Story {
    drives
        .story("checkpoint while clients write")
        .after_cut(CacheLoss::KeepAll)
        .prepare(|stage| async move {
            // More than a third of the log, flushed; then the newest versions of some of it are
            // written over and over without a flush, so that older durable ones become worthless.
            for place in 0..26 {
                stage.volume.write(place * 64 * KIB, 60 * KIB, Volatile).await?;
            }
            stage.volume.flush().await
        })
        .act(|stage| async move {
            for round in 0..30 {
                stage.volume.write(round % 26 * 64 * KIB, 60 * KIB, Volatile).await?;
            }
            // The checkpoint is under way or about to be; clients do not stop.
            for round in 0..8 {
                stage.volume.io().sleep(20 * MILLISECOND_NS).await;
                stage.volume.write(round * 64 * KIB, 60 * KIB, Volatile).await?;
            }
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
}

/// Drives that fail now and then while several clients work. Requests may be refused, but what
/// was acknowledged stays true.
fn failing_drives(drives: &Drives) -> Story {
    let seed = drives.seed;
    let work = move |salt: u64, patient| {
        let seed = mix(seed ^ salt);
        let span = 0..12 * EXTENT;
        Workload { seed, clients: 4, steps: 20, span, length_bytes_max: 256 * KIB, patient }
    };
    drives
        .story("failing drives")
        .prepare(move |stage| async move { work(1, false).run(&stage.volume).await })
        .act(move |stage| async move {
            let (machine, io) = (stage.machine.clone(), stage.volume.io().clone());
            io.clone().spawn(async move {
                let mut random = Random::new(seed);
                for _ in 0..6 {
                    io.sleep(random.below(60 * MILLISECOND_NS)).await;
                    let drive = machine.drives()[random.below(2) as usize];
                    let kind = match random.below(8) {
                        0..=3 => Kind::Read,
                        4..=6 => Kind::Write,
                        _ => Kind::Flush,
                    };
                    machine.fail_next(drive, kind, 1 + random.below(2), ErrorKind::Io);
                }
            });
            work(2, true).run(&stage.volume).await
        })
}

fn log_wrap(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("the log wraps")
        .after_cut(CacheLoss::KeepAll)
        .prepare(move |stage| async move {
            let mut random = Random::new(seed);
            for _ in 0..45 {
                let at = random.below(8 * EXTENT / 4096) * 4096;
                stage.volume.write(at, 60 * KIB, Volatile).await?;
            }
            stage.volume.flush().await
        })
        .act(move |stage| async move {
            let mut random = Random::new(seed + 1);
            let writers = (0..3u64).map(|_| {
                let (volume, mut random) = (stage.volume.clone(), random.fork());
                async move {
                    for _ in 0..10 {
                        let at = random.below(8 * EXTENT / 4096) * 4096;
                        volume.write(at, (1 + random.below(30)) * 4096, Volatile).await?;
                    }
                    volume.flush().await
                }
            });
            together(&stage.volume, writers).await?;
            insist(&stage, "emptying the log", |status| status.log.checkpoints > 0)
        })
}

fn full_volume(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("a full volume")
        .prepare(|stage| async move {
            let extents = stage.volume.volume().info().size_bytes / EXTENT;
            lay(&stage.volume, 0..extents).await?;
            idle(&stage.volume).await;
            Ok(())
        })
        .act(move |stage| async move {
            let extents = stage.volume.volume().info().size_bytes / EXTENT;
            scatter(&stage.volume, seed, 6, extents).await?;
            let mut random = Random::new(seed);
            for _ in 0..6 {
                let extent = random.below(extents);
                stage.volume.write(extent * EXTENT, EXTENT, Volatile).await?;
            }
            stage.volume.flush().await?;
            idle(&stage.volume).await;
            scatter(&stage.volume, seed + 2, 4, extents).await?;
            insist(&stage, "being full", |status| {
                status.extents_mapped == status.geometry.extents()
            })
        })
}

fn recovery(drives: &Drives, loss: CacheLoss) -> Story {
    let seed = drives.seed;
    drives
        .story("recovery of a recovery")
        .after_cut(loss)
        .prepare(move |stage| async move {
            let volume = &stage.volume;
            lay(volume, 0..2).await?;
            scatter(volume, seed, 10, 4).await?;
            volume.flush().await?;
            scatter(volume, seed + 1, 6, 4).await?;
            volume.write(5 * EXTENT, EXTENT, Volatile).await?;
            volume.trim(0, EXTENT, Volatile).await?;
            volume.write(512, 512, Volatile).await
        })
        .act(move |stage| async move {
            scatter(&stage.volume, seed + 2, 3, 4).await?;
            stage.volume.flush().await
        })
}
