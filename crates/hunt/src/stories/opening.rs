//! Openings of what an interrupted deed has left, cut again: a superblock that was half written, what a
//! dead process left in the caches, a page of the map that is to be mended, records that nobody continues.

use engine::FlushMode;
use io::Durability::Volatile;
use io::units::{MILLISECOND_NS, SECOND_NS};
use twin::CacheLoss;

use super::paging::worth_a_checkpoint;
use super::{Drives, EXTENT, FAST_EXTENTS, Prey, Story, idle, insist, lay, missed, scatter};
use crate::scenario::Stage;
use crate::watched::Trouble;
use engine::{Engine, Tier};

/// How often one looks who waits for a write, and how long.
const LOOK_NS: u64 = 2_000;
const LOOKS_MAX: u64 = 1_000_000;

/// Waits until a drive has been given so many more writes than before.
async fn until_writes(stage: &Stage<Engine>, tier: Tier, count: u64) -> Result<(), Trouble> {
    let drive = stage.machine.drives()[tier.index()];
    let until = stage.machine.counters(drive).writes + count;
    for _ in 0..LOOKS_MAX {
        if stage.machine.counters(drive).writes >= until {
            return Ok(());
        }
        stage.volume.io().sleep(LOOK_NS).await;
    }
    Err(missed("waiting for a write", &stage.volume.volume().status()))
}

/// What a session does that is opened only to be looked at.
async fn a_little(volume: &Prey) -> Result<(), Trouble> {
    volume.write(0, 4096, Volatile).await?;
    volume.flush().await
}

/// The second copy of a superblock is torn.
pub(super) fn after_a_torn_superblock(drives: &Drives) -> Story {
    drives
        .story("openings: after a torn superblock")
        .about_opening()
        .after_cut(CacheLoss::Torn(drives.seed))
        .prepare(|stage| async move {
            lay(&stage.volume, 0..2).await?;
            let teller = stage.volume.clone();
            stage.volume.io().spawn(async move {
                let _ = teller.promise(FlushMode::Strict).await;
            });
            until_writes(&stage, Tier::Fast, 2).await
        })
        .act(|stage| async move { a_little(&stage.volume).await })
}

/// What the process had written lies in the caches when the volume is opened.
pub(super) fn after_a_death(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("openings: after a death of the process")
        .about_opening()
        .after_kill()
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..2).await?;
            scatter(&stage.volume, seed, 12, 4).await?;
            stage.volume.write(5 * EXTENT, EXTENT, Volatile).await?;
            stage.volume.trim(EXTENT, EXTENT, Volatile).await
        })
        .act(|stage| async move { a_little(&stage.volume).await })
}

/// The same, of extents that have moved within the slow drive: its map does not know, and no mark is there.
pub(super) fn after_a_death_below(drives: &Drives) -> Story {
    drives
        .story("openings: after a death, over the slow drive")
        .about_opening()
        .after_kill()
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS + 4).await?;
            idle(&stage.volume).await;
            for extent in FAST_EXTENTS - 4..FAST_EXTENTS {
                stage.volume.write(extent * EXTENT, EXTENT, Volatile).await?;
            }
            stage.volume.io().sleep(MILLISECOND_NS).await;
            Ok(())
        })
        .act(|stage| async move { a_little(&stage.volume).await })
}

/// A page of the map was being written, and the tail of the log has moved before.
pub(super) fn with_a_page_to_mend(drives: &Drives) -> Story {
    drives
        .story("openings: a page to mend")
        .about_opening()
        .after_cut(CacheLoss::Torn(drives.seed))
        .prepare(|stage| async move {
            lay(&stage.volume, 0..4).await?;
            worth_a_checkpoint(&stage.volume, 0).await?;
            stage.volume.io().sleep(SECOND_NS).await;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)?;
            worth_a_checkpoint(&stage.volume, 1).await?;
            until_writes(&stage, Tier::Slow, 1).await?;
            stage.volume.io().sleep(MILLISECOND_NS / 5).await;
            Ok(())
        })
        .act(|stage| async move { a_little(&stage.volume).await })
}

/// Records of one length, some of which the cut has taken: what is written next ends where one of those
/// begins that nobody continues.
pub(super) fn over_a_lost_session(drives: &Drives) -> Story {
    drives
        .story("openings: over the records of a lost session")
        .after_cut(CacheLoss::Subset(drives.seed))
        .prepare(|stage| async move {
            lay(&stage.volume, 0..1).await?;
            for block in 0..16 {
                stage.volume.write(2 * EXTENT + block * 4096, 4096, Volatile).await?;
            }
            Ok(())
        })
        .act(|stage| async move {
            for block in 20..23 {
                stage.volume.write(2 * EXTENT + block * 4096, 4096, Volatile).await?;
                stage.volume.flush().await?;
            }
            Ok(())
        })
}

/// Laps of the ring in records of one length: where the log ends, one of an older lap begins.
pub(super) fn laps_in_step(drives: &Drives) -> Story {
    drives
        .story("laps of the log in step")
        .prepare(|stage| async move { lay(&stage.volume, 0..1).await })
        .act(|stage| async move {
            for n in 0..1700 {
                stage.volume.write(2 * EXTENT + n % 8 * 4096, 4096, Volatile).await?;
                if n % 100 == 99 {
                    stage.volume.flush().await?;
                }
            }
            stage.volume.flush().await?;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
        .in_strides(400)
}
