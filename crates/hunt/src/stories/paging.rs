//! The map and the log in one another's way: pages are written one checkpoint after the other, and while
//! records are on their way.

use io::Durability::Volatile;
use io::units::{KIB, MILLISECOND_NS, SECOND_NS};
use twin::Random;

use super::{
    Drives, EXTENT, FAST_EXTENTS, Prey, Story, boxed, insist, lay, lay_and_rest, together,
};
use crate::watched::Trouble;

/// Extents so far apart that their entries are in different sectors of a map page: one that is torn is
/// neither old nor new.
pub(super) const APART: u64 = 64;

/// Changes of the map that are flushed, and dead records that are worth a checkpoint.
pub(super) async fn worth_a_checkpoint(volume: &Prey, round: u64) -> Result<(), Trouble> {
    for place in 1..7 {
        let extent = place * APART + round;
        volume.write(extent * EXTENT, EXTENT, Volatile).await?;
        if round > 0 {
            volume.trim((extent - 1) * EXTENT, EXTENT, Volatile).await?;
        }
    }
    // A part of a hole: whatever the drives tear, that goes to the log.
    for _ in 0..10 {
        volume.write((20 + round) * EXTENT, 60 * KIB, Volatile).await?;
    }
    volume.flush().await
}

/// Page after page, checkpoint after checkpoint: each overwrites what the one before the last has written.
pub(super) fn checkpoints_in_a_row(drives: &Drives) -> Story {
    drives
        .story("checkpoint upon checkpoint")
        .prepare(|stage| async move { lay(&stage.volume, 0..4).await })
        .act(|stage| async move {
            for round in 0..4 {
                worth_a_checkpoint(&stage.volume, round).await?;
                stage.volume.io().sleep(SECOND_NS).await;
            }
            insist(&stage, "checkpoints", |status| status.log.checkpoints > 2)
        })
}

/// Records take long, so that one gathers changes while others fly; they are read, and pages are written,
/// meanwhile.
pub(super) fn records_on_their_way(drives: &Drives) -> Story {
    let seed = drives.seed;
    let mut story = drives
        .story("records on their way")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 20).await })
        .act(move |stage| async move {
            let volume = &stage.volume;
            for round in 0..2 {
                let at = (FAST_EXTENTS + 12) * EXTENT + round * 4096;
                beside(volume, (at, 4096), None).await?;
                // A home on the fast drive, where it is written in place.
                let at = round * EXTENT + 8192;
                beside(volume, (at, 4096), Some((at + 512, 512))).await?;
                volume.read(at, 4096).await?;
            }
            // At odds with one another, or a few records would soon carry all of them.
            let mut random = Random::new(seed);
            let clients = (0..24).map(|client| {
                let (volume, mut random) = (volume.clone(), random.fork());
                async move {
                    for step in 0..6 {
                        volume.io().sleep(random.below(4 * MILLISECOND_NS)).await;
                        let own = (10 + client) * EXTENT;
                        match (client + 3 * step) % 4 {
                            0 => {
                                volume.trim(own, EXTENT, Volatile).await?;
                                volume.flush().await?;
                            }
                            1 => {
                                volume.write(own, EXTENT, Volatile).await?;
                                volume.flush().await?;
                            }
                            n => {
                                let at = (FAST_EXTENTS + (client + n) % 8) * EXTENT + 4096;
                                volume.write(at, 60 * KIB, Volatile).await?;
                            }
                        }
                    }
                    volume.flush().await
                }
            });
            together(volume, clients).await?;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
        .in_strides(8);
    let of = &mut story.fast.latencies;
    (of.write_ns, of.kib_ns, of.channels) = (3 * MILLISECOND_NS, 0, 64);
    story
}

/// Writes, and writes or reads the same a moment later.
async fn beside(
    volume: &Prey,
    (at, length): (u64, u64),
    other: Option<(u64, u64)>,
) -> Result<(), Trouble> {
    let (first, second) = (volume.clone(), volume.clone());
    let one = boxed(async move { first.write(at, length, Volatile).await });
    let other = boxed(async move {
        second.io().sleep(MILLISECOND_NS / 20).await;
        match other {
            Some((at, length)) => second.write(at, length, Volatile).await,
            None => second.read(at, length).await,
        }
    });
    together(volume, [one, other].into_iter()).await
}
