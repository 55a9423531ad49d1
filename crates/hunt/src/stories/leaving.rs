//! Extents that change, or are read, in the very moment in which the volume moves or destages them.

use engine::Wish;
use io::Durability::Volatile;
use io::ZeroMode;
use io::units::{GIB, KIB, MILLISECOND_NS};

use super::{
    Drives, EXTENT, FAST_EXTENTS, Story, boxed, idle, insist, lay, lay_and_rest, together,
    until_background, wish,
};

/// What is wished to be cold is written while it is copied down.
pub(super) fn written_as_they_leave(drives: &Drives) -> Story {
    drives
        .story("cold extents are written as they leave")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..6).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for extent in 0..3 {
                wish(&stage, extent..extent + 1, Wish::Cold).await?;
                until_background(&stage).await;
                volume.write(extent * EXTENT + 8192, 4096, Volatile).await?;
                if extent == 1 {
                    volume.flush().await?;
                }
            }
            idle(volume).await;
            volume.read(0, 3 * EXTENT).await?;
            insist(&stage, "demoting", |status| status.moves.demoted_bytes > 0)
        })
}

/// The same, where one mark of doubt stands for an extent on each drive, and the volume is closed before
/// what was written is at home.
pub(super) fn closed_as_they_leave(drives: &Drives) -> Story {
    let mut story = drives
        .story("doubts: closed as extents leave")
        .closing()
        .prepare(|stage| async move {
            let volume = &stage.volume;
            lay(volume, 0..FAST_EXTENTS).await?;
            idle(volume).await;
            // Those with even numbers go to the slow drive.
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
            // Opened anew, all is in doubt until clients have rested.
            volume.write(12 * EXTENT, 4096, Volatile).await?;
            idle(volume).await;
            wish(&stage, 9..10, Wish::Cold).await?;
            until_background(&stage).await;
            volume.write(9 * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            // Not as long as the volume waits before it destages.
            volume.io().sleep(60 * MILLISECOND_NS).await;
            insist(&stage, "demoting", |status| status.moves.demoted_bytes > 0)
        })
        .in_strides(4);
    story.slow.size_bytes = 5 * GIB;
    story
}

/// What is wished to be hot is read as a whole while its home is being written.
pub(super) fn read_as_they_are_destaged(drives: &Drives) -> Story {
    let mut story = drives
        .story("hot extents are read as they are destaged")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS + 8).await?;
            idle(&stage.volume).await;
            wish(&stage, FAST_EXTENTS..FAST_EXTENTS + 4, Wish::Hot).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            let at = FAST_EXTENTS * EXTENT;
            for block in [0, 8] {
                volume.write(at + block * 4096, 4096, Volatile).await?;
                volume.flush().await?;
                // Too few slots are left for it to move up.
                for extent in 0..3 {
                    volume.trim(extent * EXTENT, 4096, Volatile).await?;
                    volume.write(extent * EXTENT, EXTENT, Volatile).await?;
                }
                until_background(&stage).await;
                volume.read(at + 64 * KIB, 4096).await?;
                volume.io().sleep(2_000 * MILLISECOND_NS).await;
                volume.read(at, EXTENT).await?;
            }
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        });
    story.slow.latencies.write_ns = 100 * MILLISECOND_NS;
    story
}

/// A hot extent is read as a whole, written anew elsewhere meanwhile, and read as a whole again, before what was
/// read first has come.
pub(super) fn read_again_as_they_change(drives: &Drives) -> Story {
    let mut story = drives
        .story("hot extents are read again as they are written anew")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS + 8).await?;
            idle(&stage.volume).await;
            wish(&stage, FAST_EXTENTS..FAST_EXTENTS + 4, Wish::Hot).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..2 {
                let at = (FAST_EXTENTS + round) * EXTENT;
                let clients = [0, 400].map(|after_ms| {
                    let volume = volume.clone();
                    boxed(async move {
                        volume.io().sleep(after_ms * MILLISECOND_NS).await;
                        volume.read(at + 64 * KIB, 4096).await
                    })
                });
                let writer = volume.clone();
                let write = boxed(async move {
                    writer.io().sleep(20 * MILLISECOND_NS).await;
                    writer.write(at, EXTENT, Volatile).await
                });
                together(volume, clients.into_iter().chain([write])).await?;
                volume.read(at, EXTENT).await?;
            }
            insist(&stage, "reading whole extents", |status| status.policy.stage_bytes > 0)
        });
    let of = &mut story.slow.latencies;
    (of.read_ns, of.jitter_percent, of.channels) = (1_000 * MILLISECOND_NS, 0, 64);
    story
}

/// A hot extent is written as a whole, in place on the slow drive, and zeroed in part beside that, while
/// the log is emptied.
pub(super) fn destaged_as_they_are_written(drives: &Drives) -> Story {
    let mut story = drives
        .story("hot extents are destaged as they are written")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS + 40).await?;
            idle(&stage.volume).await;
            wish(&stage, FAST_EXTENTS..FAST_EXTENTS + 2, Wish::Hot).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            let at = FAST_EXTENTS * EXTENT;
            let (writer, zeroer) = (volume.clone(), volume.clone());
            let write = boxed(async move { writer.write(at, EXTENT, Volatile).await });
            let zero = boxed(async move {
                zeroer.io().sleep(MILLISECOND_NS / 10).await;
                zeroer.write_zeroes(at + 8192, 8192, ZeroMode::Deallocate, Volatile).await?;
                zeroer.flush().await
            });
            let pressing = (0..30).map(|n| {
                let volume = volume.clone();
                boxed(async move {
                    volume.io().sleep(2 * MILLISECOND_NS).await;
                    volume.write((FAST_EXTENTS + 4 + n) * EXTENT + 4096, 64 * KIB, Volatile).await
                })
            });
            together(volume, [write, zero].into_iter().chain(pressing)).await?;
            volume.io().sleep(3_000 * MILLISECOND_NS).await;
            volume.read(at, EXTENT).await?;
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
        .in_strides(4);
    story.slow.latencies.write_ns = 200 * MILLISECOND_NS;
    story.slow.latencies.channels = 64;
    story
}
