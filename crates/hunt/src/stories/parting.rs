//! Class cache, write-back: extents of which some blocks are on the fast drive, and the others on the slow one.

use engine::CacheMode::{self, WriteBack, WriteThrough};
use engine::Engine;
use io::Durability::Volatile;
use io::ZeroMode;
use io::units::{MILLISECOND_NS, SECOND_NS};

use super::caching::change;
use super::cleaning::until_slow_is_written;
use super::{Drives, EXTENT, FAST_EXTENTS, Story, idle, insist, lay};
use crate::scenario::Stage;
use crate::watched::Trouble;

/// Extents that live on the slow drive.
const LOW: u64 = FAST_EXTENTS;

/// Fills the fast drive, with some extents below, and makes room for parts of them.
async fn lay_low(stage: &Stage<Engine>) -> Result<(), Trouble> {
    lay(&stage.volume, 0..LOW + 8).await?;
    stage.volume.trim(0, 16 * EXTENT, Volatile).await?;
    idle(&stage.volume).await;
    Ok(())
}

/// Writes a block or two of some extents, which leave the log for slots of the fast drive.
async fn part(stage: &Stage<Engine>, count: u64) -> Result<(), Trouble> {
    for extent in 0..count {
        let at = (LOW + extent) * EXTENT + 8192 * (extent + 1);
        stage.volume.write(at, 4096 * (1 + extent % 2), Volatile).await?;
    }
    stage.volume.flush().await?;
    until_parted(stage, count).await
}

/// For three seconds at most; the story then misses its deed.
async fn until_parted(stage: &Stage<Engine>, count: u64) -> Result<(), Trouble> {
    let in_part = || stage.volume.volume().status().extents_in_part;
    for _ in 0..1500 {
        if in_part() >= count {
            break;
        }
        stage.volume.io().sleep(2 * MILLISECOND_NS).await;
    }
    insist(stage, "going up in part", |status| status.extents_in_part > 0)
}

/// Parts are read, grow, become whole and are replaced.
pub(super) fn grown_and_replaced(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("parts: grown and replaced")
        .prepare(|stage| async move { lay_low(&stage).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            part(&stage, 6).await?;
            volume.read(LOW * EXTENT, 7 * EXTENT).await?;
            // A block that is above, one that is not, and some of both.
            volume.write(LOW * EXTENT + 8192, 4096, Volatile).await?;
            volume.write(LOW * EXTENT + 65_536, 4096, Volatile).await?;
            volume.write((LOW + 1) * EXTENT + 12_288, 16_384, Volatile).await?;
            volume
                .write_zeroes((LOW + 1) * EXTENT + 40_960, 8192, ZeroMode::Deallocate, Volatile)
                .await?;
            volume.write((LOW + 2) * EXTENT, EXTENT, Volatile).await?;
            volume.trim((LOW + 3) * EXTENT, EXTENT, Volatile).await?;
            // All that is missing.
            volume.write((LOW + 4) * EXTENT, 40_960, Volatile).await?;
            volume.write((LOW + 4) * EXTENT + 40_960, EXTENT - 40_960, Volatile).await?;
            volume.write((LOW + 5) * EXTENT + 512, 1024, Volatile).await?;
            volume.flush().await?;
            volume.read(LOW * EXTENT, 6 * EXTENT).await?;
            volume.io().sleep(SECOND_NS).await;
            volume.read(LOW * EXTENT, 6 * EXTENT).await?;
            volume.write(LOW * EXTENT + 12_288, 4096, Volatile).await?;
            volume.flush().await
        });
    (WriteBack, story)
}

/// Parts go home at rest, and are written in the moment in which they go.
pub(super) fn written_as_they_go_home(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("parts: written as they go home")
        .prepare(|stage| async move {
            lay_low(&stage).await?;
            part(&stage, 5).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            until_slow_is_written(&stage).await;
            volume.write(LOW * EXTENT + 8192, 4096, Volatile).await?;
            volume.write((LOW + 1) * EXTENT + 65_536, 4096, Volatile).await?;
            volume.write((LOW + 2) * EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            volume.read(LOW * EXTENT, 5 * EXTENT).await?;
            idle(volume).await;
            idle(volume).await;
            volume.read(LOW * EXTENT, 5 * EXTENT).await?;
            insist(&stage, "going home", |status| {
                status.extents_in_part == 0 && status.dirty_bytes == 0
            })
        })
        .in_strides(2);
    (WriteBack, story)
}

/// What is missing of parts that are read a lot is copied up at rest, and written meanwhile.
pub(super) fn filled_as_they_are_hot(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("parts: filled as they are hot")
        .prepare(|stage| async move {
            lay_low(&stage).await?;
            part(&stage, 5).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..6 {
                for extent in 0..5 {
                    volume
                        .read((LOW + extent) * EXTENT + round * 16_384 + 65_536 * (round % 2), 4096)
                        .await?;
                }
            }
            let promoted = || volume.volume().status().moves.promoted_bytes;
            for _ in 0..4000 {
                if promoted() > 0 {
                    break;
                }
                volume.io().sleep(MILLISECOND_NS).await;
            }
            volume.write(LOW * EXTENT + 8192, 4096, Volatile).await?;
            volume.write((LOW + 3) * EXTENT + 77_824, 8192, Volatile).await?;
            volume.flush().await?;
            volume.io().sleep(SECOND_NS).await;
            volume.read(LOW * EXTENT, 5 * EXTENT).await?;
            insist(&stage, "filling parts", |status| status.moves.promoted_bytes > 0)
        })
        .in_strides(2);
    (WriteBack, story)
}

/// Everything is brought home while parts are there, and written.
pub(super) fn into_write_through(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("parts: into write-through and back")
        .prepare(|stage| async move {
            lay_low(&stage).await?;
            part(&stage, 5).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            // In the log when the mode changes: blocks that are above, and others.
            volume.write(LOW * EXTENT + 8192, 4096, Volatile).await?;
            volume.write((LOW + 1) * EXTENT + 16_384, 16_384, Volatile).await?;
            volume.write((LOW + 2) * EXTENT + 65_536, 4096, Volatile).await?;
            change(&stage, WriteThrough).await?;
            let status = volume.volume().status();
            if status.extents_in_part > 0 {
                let text = format!("{} extents are in part above", status.extents_in_part);
                return Err(Trouble::Lie(text));
            }
            volume.write((LOW + 1) * EXTENT + 8192, 4096, Volatile).await?;
            volume.flush().await?;
            volume.read(LOW * EXTENT, 5 * EXTENT).await?;
            change(&stage, WriteBack).await?;
            part(&stage, 3).await?;
            volume.read(LOW * EXTENT, 5 * EXTENT).await
        })
        .in_strides(2);
    (WriteBack, story)
}
