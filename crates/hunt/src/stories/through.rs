//! Class cache under several clients: write-through while others write what is on its way home, changes of
//! the mode that meet writes, and copies that are given up or cannot be read.

use engine::CacheMode::{self, WriteBack, WriteThrough};
use engine::{Engine, Wish};
use io::Durability::Volatile;
use io::ZeroMode;
use io::units::{KIB, MILLISECOND_NS, SECOND_NS};
use twin::Fault;

use super::{
    Drives, EXTENT, Prey, Story, boxed, idle, insist, lay, missed, together, unless_refused, wish,
};
use super::{caching::change, lay_and_rest};
use crate::scenario::Stage;
use crate::watched::Trouble;

/// Has the fast drive take copies of extents when clients rest.
async fn copy(volume: &Prey, extents: std::ops::Range<u64>) -> Result<(), Trouble> {
    let length = (extents.end - extents.start) * EXTENT;
    let asked = io::Volume::cache(volume.volume(), extents.start * EXTENT, length).await;
    asked.map_err(Trouble::Refused)?;
    idle(volume).await;
    Ok(())
}

/// Two clients write the same, fill holes and make some, and flush, each in the midst of the other's.
pub(super) fn beside_one_another(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("through: clients beside one another")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..16).await?;
            lay(&stage.volume, 40..52).await?;
            copy(&stage.volume, 0..4).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            // One makes holes all the time that the other's flush takes.
            let (flusher, trimmer) = (volume.clone(), volume.clone());
            let flush = boxed(async move {
                flusher.trim(5 * EXTENT, EXTENT, Volatile).await?;
                flusher.flush().await
            });
            let trims = boxed(async move {
                for extent in 40..52 {
                    trimmer.io().sleep(5 * MILLISECOND_NS).await;
                    trimmer.trim(extent * EXTENT, EXTENT, Volatile).await?;
                }
                trimmer.flush().await?;
                trimmer.write(10 * EXTENT, 4096, Volatile).await
            });
            together(volume, [flush, trims].into_iter()).await?;
            let clients = (0..2).map(|client| {
                let volume = volume.clone();
                boxed(async move {
                    for round in 0..3 {
                        volume.io().sleep((client * 7 + round * 5) * MILLISECOND_NS).await;
                        volume.write(round * EXTENT + 4096, 8192, Volatile).await?;
                        match (client + round) % 2 {
                            0 => volume.trim((6 + round) * EXTENT, EXTENT, Volatile).await?,
                            _ => {
                                let extent = 20 + 2 * round + client;
                                volume.write(extent * EXTENT + 8192, 4096, Volatile).await?;
                            }
                        }
                        volume.flush().await?;
                    }
                    Ok(())
                })
            });
            together(volume, clients).await?;
            // An extent that has no copy: zeros of it are in the log, and data comes over them.
            for extent in 14..16 {
                let at = extent * EXTENT;
                volume.write_zeroes(at, 8192, ZeroMode::Deallocate, Volatile).await?;
                volume.write(at, 4096, Volatile).await?;
                volume.read(at, 16 * KIB).await?;
            }
            volume.flush().await?;
            volume.read(0, 8 * EXTENT).await
        });
    (WriteThrough, story.in_strides(2))
}

/// Extents that stand in different sectors of the map's pages come, go and are copied: a page is torn when
/// power fails.
pub(super) fn far_apart(drives: &Drives) -> (CacheMode, Story) {
    let far = |n: u64| n * 37 % 540;
    let story = drives
        .story("through: extents far apart")
        .prepare(move |stage| async move {
            for n in 0..10 {
                stage.volume.write(far(n) * EXTENT, 4096, Volatile).await?;
            }
            stage.volume.flush().await
        })
        .act(move |stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                for n in 0..6 {
                    let at = far(round * 5 + n) * EXTENT;
                    match n % 2 {
                        0 => volume.write(at, EXTENT, Volatile).await?,
                        _ => volume.trim(at, EXTENT, Volatile).await?,
                    }
                }
                volume.flush().await?;
            }
            Ok(())
        })
        .closing();
    (WriteThrough, story)
}

/// The extent whose home on the slow drive begins where the fast drive's first slot does.
fn first_in_step(volume: &Prey) -> u64 {
    let [fast, slow] = volume.volume().status().geometry.layouts.map(|it| it.slots_at);
    (fast - slow) / EXTENT
}

/// A copy that lies on the fast drive where the next extent's home would follow it on the slow one: a
/// request for both must not take them for one piece.
pub(super) fn seeming_neighbours(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("through: copies beside homes")
        .prepare(|stage| async move {
            let volume = &stage.volume;
            let first = first_in_step(volume);
            lay(volume, first..first + 12).await?;
            copy(volume, first..first + 8).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            let status = volume.volume().status();
            let first = first_in_step(volume);
            for extent in first..first + 11 {
                volume.read(extent * EXTENT + EXTENT / 2, EXTENT).await?;
            }
            volume.read(first * EXTENT, 12 * EXTENT).await?;
            if status.extents_clean > 0 { Ok(()) } else { Err(missed("copying", &status)) }
        })
        .uncut();
    (WriteThrough, story)
}

/// Copies are made of what was written in place a moment ago, and not flushed.
pub(super) fn copied_at_once(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("through: what is copied at once")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..12).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for first in [0, 6] {
                for extent in first..first + 6 {
                    volume.write(extent * EXTENT + 4096, 4096, Volatile).await?;
                }
                let asked = io::Volume::cache(volume.volume(), first * EXTENT, 6 * EXTENT).await;
                asked.map_err(Trouble::Refused)?;
                volume.io().sleep(400 * MILLISECOND_NS).await;
                volume.write(20 * EXTENT + first * 4096, 4096, Volatile).await?;
            }
            let status = volume.volume().status();
            let copied = status.moves.promoted_bytes > 0 || status.alone;
            if copied { Ok(()) } else { Err(missed("copying", &status)) }
        });
    (WriteThrough, story)
}

/// Into write-through while whole extents are on their way to the fast drive.
pub(super) fn changed_while_written(drives: &Drives) -> (CacheMode, Story) {
    let mut story = drives
        .story("the mode of the cache changes while extents are written")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..4).await?;
            change(&stage, WriteThrough).await?;
            change(&stage, WriteBack).await?;
            idle(&stage.volume).await;
            Ok(())
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..2 {
                let (writer, changer) = (volume.clone(), stage.clone());
                let writing = boxed(async move {
                    writer.write((10 + round) * EXTENT, EXTENT, Volatile).await?;
                    writer.flush().await
                });
                let changing = boxed(async move {
                    changer.volume.io().sleep(MILLISECOND_NS).await;
                    change(&changer, WriteThrough).await
                });
                together(volume, [writing, changing].into_iter()).await?;
                volume.write(4096, 4096, Volatile).await?;
                volume.flush().await?;
                change(&stage, WriteBack).await?;
            }
            Ok(())
        });
    story.fast.latencies.kib_ns = 3 * MILLISECOND_NS;
    (WriteBack, story)
}

/// Into write-through and out of it, while a client makes durable what it writes over copies, all the time.
pub(super) fn changed_while_flushed(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("the mode of the cache changes beside flushes")
        .prepare(|stage| async move { lay_copied(&stage).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for mode in [WriteThrough, WriteBack] {
                let (writer, changer) = (volume.clone(), stage.clone());
                let writing = boxed(async move {
                    for n in 0..16 {
                        writer.write(n % 4 * EXTENT + 4096 * n, 4096, Volatile).await?;
                        writer.flush().await?;
                        writer.io().sleep(8 * MILLISECOND_NS).await;
                    }
                    Ok(())
                });
                let changing = boxed(async move { change(&changer, mode).await });
                together(volume, [writing, changing].into_iter()).await?;
            }
            Ok(())
        })
        .in_strides(2);
    (WriteBack, story)
}

/// Lays extents of which the fast drive has clean copies, in write-back.
async fn lay_copied(stage: &Stage<Engine>) -> Result<(), Trouble> {
    let volume = &stage.volume;
    lay(volume, 0..8).await?;
    change(stage, WriteThrough).await?;
    copy(volume, 0..6).await?;
    change(stage, WriteBack).await?;
    idle(volume).await;
    Ok(())
}

/// Writes into copies, which are dirty once the log has been emptied into them.
async fn dirty(volume: &Prey) -> Result<(), Trouble> {
    for extent in 0..4 {
        volume.write(extent * EXTENT + 8192, 4096, Volatile).await?;
    }
    volume.flush().await?;
    // Not as long as until dirty copies go home.
    volume.io().sleep(2 * SECOND_NS).await;
    Ok(())
}

/// Write-through comes when the log is empty and the fast drive has what nobody else has.
pub(super) fn changed_over_dirty_copies(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("back: into write-through over dirty copies")
        .prepare(|stage| async move { lay_copied(&stage).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            dirty(volume).await?;
            insist(&stage, "copies that are dirty", |status| status.dirty_bytes > 0)?;
            change(&stage, WriteThrough).await?;
            volume.write(2 * EXTENT + 4096, 8192, Volatile).await?;
            volume.flush().await?;
            volume.read(0, 4 * EXTENT).await
        });
    (WriteBack, story)
}

/// Dirty copies that leave the fast drive, and such as cannot be read there.
pub(super) fn dirty_copies(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("back: dirty copies leave, and cannot be read")
        .prepare(|stage| async move { lay_copied(&stage).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            dirty(volume).await?;
            // Twice: what was read ahead is tried once more.
            stage.machine.strike_next(stage.machine.drives()[0], Fault::ReadError, 2);
            unless_refused(volume.read(2 * EXTENT, EXTENT).await)?;
            stage.machine.clear_faults();
            volume.read(3 * EXTENT, EXTENT).await?;
            wish(&stage, 0..2, Wish::Cold).await?;
            idle(volume).await;
            volume.read(0, 4 * EXTENT).await?;
            insist(&stage, "demoting", |status| status.moves.demoted_bytes > 0)
        });
    (WriteBack, story)
}
