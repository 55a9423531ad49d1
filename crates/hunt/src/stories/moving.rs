//! What the engine does by itself: destage, moves, checkpoints, and room when everything is full.

use io::Durability::Volatile;
use io::units::{KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Volume, ZeroMode};
use twin::{CacheLoss, Random};

use super::{
    Drives, EXTENT, FAST_EXTENTS, Prey, Story, idle, insist, lay, lay_and_rest, scatter, together,
    until_background,
};
use crate::watched::Trouble;

pub(super) fn destage(drives: &Drives) -> Story {
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

pub(super) fn destage_under_fire(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("destage while clients write")
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            scatter(&stage.volume, seed, 12, 3).await
        })
        .act(move |stage| async move {
            stage.volume.write((FAST_EXTENTS - 1) * EXTENT, 4096, Volatile).await?;
            // Destage takes some tens of milliseconds.
            until_background(&stage).await;
            for round in 0..6 {
                let volume = &stage.volume;
                scatter(volume, seed + 1 + round, 1, 3).await?;
                // Each deed meets extents in motion, sooner or later.
                match round % 3 {
                    0 => volume.trim(round / 3 * EXTENT, EXTENT, Volatile).await?,
                    1 => volume.write((1 + round / 3) * EXTENT, EXTENT, Volatile).await?,
                    _ => {
                        let at = 2 * EXTENT + 4096;
                        volume.write_zeroes(at, 8192, ZeroMode::Deallocate, Volatile).await?;
                    }
                }
                volume.io().sleep(3 * MILLISECOND_NS).await;
            }
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

pub(super) fn promotion(drives: &Drives) -> Story {
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
            warm(&stage.volume, FAST_EXTENTS - 5).await?;
            // One of the extents in motion is written, and another trimmed.
            until_background(&stage).await;
            stage.volume.write((FAST_EXTENTS - 1) * EXTENT, 4096, Volatile).await?;
            stage.volume.trim((FAST_EXTENTS - 3) * EXTENT, EXTENT, Volatile).await?;
            idle(&stage.volume).await;
            stage.volume.read((FAST_EXTENTS - 3) * EXTENT, EXTENT).await?;
            stage.volume.flush().await?;
            stage.volume.read((FAST_EXTENTS - 1) * EXTENT, EXTENT).await?;
            insist(&stage, "promoting", |status| status.moves.promoted_bytes > 0)
        })
}

pub(super) fn demotion(drives: &Drives) -> Story {
    drives
        .story("demotion")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS).await })
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

pub(super) fn checkpoint(drives: &Drives) -> Story {
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

pub(super) fn checkpoint_under_fire(drives: &Drives) -> Story {
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

pub(super) fn log_wrap(drives: &Drives) -> Story {
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

/// More clients than the log has room for, all at once: whoever waits takes what a checkpoint frees in
/// the moment it is free.
pub(super) fn full_log(drives: &Drives) -> Story {
    let mut story = drives
        .story("a full log")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            // Parts of extents on the slow drive.
            let writers = (0..40).map(|writer| {
                let volume = stage.volume.clone();
                let at = (FAST_EXTENTS + writer % 4) * EXTENT + 4096;
                async move {
                    volume.write(at, 120 * KIB, Volatile).await?;
                    volume.flush().await
                }
            });
            together(&stage.volume, writers).await?;
            insist(&stage, "filling the log", |status| status.log.full_waits > 0)
        })
        .in_strides(4);
    // So long that what the freed part of the ring then takes is written before the superblock is durable.
    story.fast.latencies.flush_ns = 17 * MILLISECOND_NS;
    story
}

pub(super) fn full_volume(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("a full volume")
        .prepare(|stage| async move {
            let extents = stage.volume.volume().info().size_bytes / EXTENT;
            lay_and_rest(&stage.volume, 0..extents).await
        })
        .act(move |stage| async move {
            let extents = stage.volume.volume().info().size_bytes / EXTENT;
            scatter(&stage.volume, seed, 6, extents).await?;
            let mut random = Random::new(seed);
            // More than there are free slots, without a flush: some must be won back in between.
            for _ in 0..16 {
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
