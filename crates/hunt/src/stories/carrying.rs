//! Blocks that stay in the log: written again at its end when they are in the way of its tail.

use engine::{Engine, Tier};
use io::Durability::Volatile;
use io::ErrorKind;
use io::units::{KIB, MICROSECOND_NS, MILLISECOND_NS};
use twin::{Kind, Random};

use super::{
    Drives, EXTENT, FAST_EXTENTS, Prey, Story, boxed, insist, lay_and_rest, missed, put_in_step,
    together, unless_refused,
};
use crate::scenario::Stage;
use crate::watched::Trouble;

/// Extents that live below, of each of which one block is written: nothing says that they are worth more.
const COLD: u64 = 24;
/// The extent that is written again and again.
const HOT: u64 = FAST_EXTENTS + COLD;
/// All that is laid: what follows the hot one is read, for else the slow drive has the time to take what is written.
const LAID: u64 = HOT + 200;
/// Half of the smallest log, in records of [`fill`].
const HALF_A_LOG: u64 = 28;

/// The records of a hot place, of 16 blocks each: the log is full of what is dead.
async fn fill(volume: &Prey, records: u64) -> Result<(), Trouble> {
    let mut random = Random::new(volume.io().now_ns());
    for n in 0..records {
        if n % 8 == 0 {
            let extent = HOT + 1 + random.below(LAID - HOT - 1);
            volume.read(extent * EXTENT + random.below(32) * 4096, 4096).await?;
        }
        volume.write(HOT * EXTENT, 60 * KIB, Volatile).await?;
    }
    Ok(())
}

/// The block of a cold extent.
fn cold(n: u64) -> u64 {
    (FAST_EXTENTS + n) * EXTENT + n * 4096
}

async fn write_cold(volume: &Prey) -> Result<(), Trouble> {
    for n in 0..COLD {
        volume.write(cold(n), 4096, Volatile).await?;
    }
    volume.flush().await
}

fn insist_carried(stage: &Stage<Engine>) -> Result<(), Trouble> {
    insist(stage, "carrying", |status| status.moves.carried_bytes > 0)
}

/// A story that is not cut, on a volume of cold extents, hot ones and those that are read.
fn laid(drives: &Drives, name: &'static str) -> Story {
    drives
        .story(name)
        .uncut()
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..LAID).await })
}

/// Once round the ring and more: what was written once is carried before the tail passes it, and written anew
/// behind that.
pub(super) fn round_the_ring(drives: &Drives) -> Story {
    drives
        .story("carried: round the ring")
        .prepare(|stage| async move {
            lay_and_rest(&stage.volume, 0..LAID).await?;
            write_cold(&stage.volume).await?;
            fill(&stage.volume, HALF_A_LOG - 5).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            fill(volume, 6).await?;
            volume.flush().await?;
            fill(volume, 6).await?;
            volume.write(cold(3), 4096, Volatile).await?;
            volume.trim(cold(4), 4096, Volatile).await?;
            fill(volume, HALF_A_LOG).await?;
            volume.flush().await?;
            fill(volume, 6).await?;
            for n in 0..COLD {
                volume.read(cold(n), 4096).await?;
            }
            insist_carried(&stage)
        })
}

/// Clients write the same blocks in the moments in which they are carried.
pub(super) fn written_as_they_are_carried(drives: &Drives) -> Story {
    let seed = drives.seed;
    let mut story = laid(drives, "carried: written meanwhile").act(move |stage| async move {
        let volume = &stage.volume;
        write_cold(volume).await?;
        let writers = (0..4).map(|writer| {
            let volume = volume.clone();
            boxed(async move {
                let mut random = Random::new(seed << 8 | writer);
                for _ in 0..400 {
                    let at = cold(writer + 4 * random.below(COLD / 4));
                    match random.below(8) {
                        0 => volume.trim(at, 4096, Volatile).await?,
                        1 => volume.read(at, 4096).await?,
                        _ => volume.write(at, 4096, Volatile).await?,
                    }
                    volume.io().sleep(random.below(40) * MILLISECOND_NS / 10).await;
                }
                Ok(())
            })
        });
        let filler = {
            let volume = volume.clone();
            boxed(async move {
                for _ in 0..12 {
                    fill(&volume, HALF_A_LOG).await?;
                    volume.flush().await?;
                }
                Ok(())
            })
        };
        together(volume, writers.chain([filler])).await?;
        for n in 0..COLD {
            volume.read(cold(n), 4096).await?;
        }
        insist_carried(&stage)
    });
    put_in_step(&mut story);
    // Long enough for many of them.
    story.fast.latencies.read_ns = 5 * MILLISECOND_NS;
    story
}

/// A block rots before it is carried: reading it is an error behind that, as before.
pub(super) fn rotten_before(drives: &Drives) -> Story {
    laid(drives, "carried: a block has rotted").act(|stage| async move {
        let volume = &stage.volume;
        let engine = volume.volume();
        write_cold(volume).await?;
        let geometry = engine.status().geometry;
        // Behind the header of its record.
        let place = (engine.log_end().0 + 1) % geometry.ring_blocks() * 4096;
        volume.write(cold(3), 4096, Volatile).await?;
        volume.flush().await?;
        let position = geometry.layouts[Tier::Fast.index()].log_at + place;
        stage.machine.poke(stage.machine.drives()[0], position + 100, &[0xee; 8]);
        fill(volume, 2 * HALF_A_LOG).await?;
        match volume.read(cold(3), 4096).await {
            Err(Trouble::Refused(_)) => {}
            Err(lie) => return Err(lie),
            Ok(()) => return Err(missed("reading what has rotted", &engine.status())),
        }
        volume.write(cold(3), 4096, Volatile).await?;
        for n in 0..COLD {
            volume.read(cold(n), 4096).await?;
        }
        insist_carried(&stage)
    })
}

/// The log cannot be written any more when something has just been carried: what was flushed can be read where it
/// was before.
pub(super) fn refused(drives: &Drives) -> Story {
    laid(drives, "carried: the log is refused").act(|stage| async move {
        let volume = &stage.volume;
        write_cold(volume).await?;
        let (writer, watcher) = (volume.clone(), volume.clone());
        let machine = stage.machine.clone();
        let writes = boxed(async move { unless_refused(fill(&writer, 8 * HALF_A_LOG).await) });
        let strikes = boxed(async move {
            let carried = || watcher.volume().status().moves.carried_bytes;
            let (mut last, mut times) = (0, 0);
            for _ in 0..100_000 {
                if carried() > last {
                    (last, times) = (carried(), times + 1);
                }
                if times == 2 {
                    machine.fail_next(machine.drives()[0], Kind::Write, 1, ErrorKind::Io);
                    return Ok(());
                }
                watcher.io().sleep(10 * MICROSECOND_NS).await;
            }
            Ok(())
        });
        together(volume, [writes, strikes].into_iter()).await?;
        for n in 0..COLD {
            if let Err(trouble) = volume.read(cold(n), 4096).await {
                let text = format!("block {n} was flushed, and cannot be read: {trouble:?}");
                return Err(Trouble::Lie(text));
            }
        }
        insist_carried(&stage)
    })
}
