//! What the slow drive vouches for when it is all that is left: changes after a rest, changes while the
//! log is emptied, moves, and volumes so large that a mark stands for several extents.

use io::Durability::Volatile;
use io::units::{GIB, KIB, MILLISECOND_NS};

use super::{
    Drives, EXTENT, FAST_EXTENTS, Prey, Story, boxed, idle, insist, lay, lay_and_rest, scatter,
    together,
};
use crate::watched::Trouble;

/// A slow drive with more extents than there are marks: one stands for two.
const VAST_BYTES: u64 = 5 * GIB;

/// Marks are taken away when clients have rested for a little longer.
const REST_NS: u64 = 7_900 * MILLISECOND_NS;

/// The first extent that lives on the slow drive.
const FIRST_SLOW: u64 = FAST_EXTENTS - 4;

/// Each way in which something changes of which the slow drive was sure.
pub(super) fn changes(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("doubts: changes after a rest")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(move |stage| async move {
            let volume = &stage.volume;
            volume.write(FIRST_SLOW * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            volume.trim((FIRST_SLOW + 1) * EXTENT, EXTENT, Volatile).await?;
            volume.write((FIRST_SLOW + 2) * EXTENT + 8192, 8192, Volatile).await?;
            volume.flush().await?;
            volume.write((FIRST_SLOW + 3) * EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            volume.write((FAST_EXTENTS + 20) * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            // Destaged, and vouched for again.
            idle(volume).await;
            volume.write((FIRST_SLOW + 2) * EXTENT, 4096, Volatile).await?;
            volume.write((FAST_EXTENTS + 20) * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            scatter(volume, seed, 2, 2).await?;
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
}

/// One client's change comes while the marks for another one's are on their way.
pub(super) fn beside_one_another(drives: &Drives) -> Story {
    drives
        .story("doubts: changes beside one another")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            // Opened anew, all that is not known is in doubt until clients have rested.
            volume.write(0, 4096, Volatile).await?;
            idle(volume).await;
            for round in 0..2 {
                let at = (FIRST_SLOW + 3 * round) * EXTENT;
                let (first, second) = (volume.clone(), volume.clone());
                let one = boxed(async move {
                    first.write(at, 4096, Volatile).await?;
                    first.flush().await
                });
                let other = boxed(async move {
                    second.io().sleep(4 * MILLISECOND_NS).await;
                    second.write(at + EXTENT, 4096, Volatile).await?;
                    second.flush().await?;
                    second.write(8192, 4096, Volatile).await
                });
                together(volume, [one, other].into_iter()).await?;
            }
            Ok(())
        })
}

/// What lives on the slow drive changes while its mark is being taken away.
pub(super) fn as_marks_go(drives: &Drives) -> Story {
    drives
        .story("doubts: changes as marks are taken away")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for (round, writes) in (0..).zip([1, 2, 3]) {
                let at = (FIRST_SLOW + round) * EXTENT;
                volume.write(at, 4096, Volatile).await?;
                volume.flush().await?;
                // Destaged, and at rest nearly until the slow drive is made to vouch for it.
                volume.io().sleep(REST_NS).await;
                let slow = stage.machine.drives()[1];
                let before = stage.machine.counters(slow).writes;
                for _ in 0..10_000 {
                    if stage.machine.counters(slow).writes >= before + writes {
                        break;
                    }
                    volume.io().sleep(MILLISECOND_NS / 5).await;
                }
                volume.write(at + 8192, 4096, Volatile).await?;
                volume.flush().await?;
            }
            volume.write(0, 4096, Volatile).await
        })
        .in_strides(3)
}

/// Closed with blocks in the log of what lives on the slow drive.
pub(super) fn close(drives: &Drives) -> Story {
    drives
        .story("doubts: a close over a full log")
        .closing()
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            stage.volume.write(FIRST_SLOW * EXTENT, 4096, Volatile).await?;
            stage.volume.write(0, 4096, Volatile).await?;
            stage.volume.trim((FIRST_SLOW + 1) * EXTENT, EXTENT, Volatile).await
        })
}

/// The log is emptied in several rounds, and an extent of another map page changes meanwhile: its page
/// is newer than what the checkpoints write.
pub(super) fn checkpoints(drives: &Drives) -> Story {
    drives
        .story("doubts: checkpoints that leave a page")
        .prepare(|stage| async move {
            let volume = &stage.volume;
            // More extents than a batch of destage takes, and one far away.
            lay(volume, 0..200).await?;
            lay(volume, 510..511).await?;
            idle(volume).await;
            // Not yet half of the log.
            let writers = (0..4u64).map(|writer| {
                let volume = volume.clone();
                async move {
                    for extent in (writer..180).step_by(4) {
                        volume.write(extent * EXTENT + 4096, 2 * 4096, Volatile).await?;
                    }
                    Ok(())
                }
            });
            together(volume, writers).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write(510 * EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            let checkpoints = || stage.volume.volume().status().log.checkpoints;
            let before = checkpoints();
            for enough in [before + 1, before + 2] {
                // So long that marks are looked at again, and without a rest. Holes cost no drive anything.
                for _ in 0..400 {
                    volume.read(400 * EXTENT, 4096).await?;
                    volume.io().sleep(80 * MILLISECOND_NS).await;
                }
                for round in 0..40 {
                    if checkpoints() >= enough {
                        break;
                    }
                    // Over what is in the log already: its oldest records die.
                    let extent = FIRST_SLOW + round % 4;
                    volume.write(extent * EXTENT, 60 * KIB, Volatile).await?;
                    // So few that no second checkpoint follows at once.
                    volume.io().sleep(80 * MILLISECOND_NS).await;
                }
            }
            volume.write(510 * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
        .in_strides(16)
}

/// Reads an extent until it is worth a place on the fast drive.
async fn warm(volume: &Prey, extent: u64) -> Result<(), Trouble> {
    for round in 0..8 {
        volume.read(extent * EXTENT + round * 12288, 4096).await?;
        volume.io().sleep(5 * MILLISECOND_NS).await;
    }
    Ok(())
}

/// A mark for several extents, some on each drive; those on the fast one change, and move down.
pub(super) fn vast(drives: &Drives) -> Story {
    let story = drives
        .story("doubts: a vast volume")
        .prepare(|stage| async move {
            // Every second one lives on the slow drive, so that each region has one.
            let volume = &stage.volume;
            lay(volume, 0..FAST_EXTENTS).await?;
            idle(volume).await;
            for extent in 0..10 {
                volume.trim(2 * extent * EXTENT, EXTENT, Volatile).await?;
            }
            for extent in FAST_EXTENTS..FAST_EXTENTS + 8 {
                volume.write(extent * EXTENT, EXTENT, Volatile).await?;
            }
            for extent in 0..10 {
                volume.write(2 * extent * EXTENT, EXTENT, Volatile).await?;
            }
            idle(volume).await;
            Ok(())
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for extent in FIRST_SLOW - 2..FAST_EXTENTS + 4 {
                volume.write(extent * EXTENT, 4096, Volatile).await?;
            }
            volume.flush().await?;
            for extent in FAST_EXTENTS..FAST_EXTENTS + 8 {
                warm(volume, extent).await?;
            }
            for extent in 0..12 {
                volume.write(extent * EXTENT + 64 * KIB, 4096, Volatile).await?;
            }
            idle(volume).await;
            volume.write(512, 512, Volatile).await?;
            volume.flush().await?;
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        });
    let mut story = story.in_strides(4);
    story.slow.size_bytes = VAST_BYTES;
    story
}
