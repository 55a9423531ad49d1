//! Deferred mode where it is closest to breaking: changes of the mode beside writes, the bound in age and in
//! bytes, and what a flush that promises order owes to a process that dies.

use engine::{Bound, FlushMode, Wish};
use io::Durability::Volatile;
use io::units::{KIB, MIB, MILLISECOND_NS};

use super::{Drives, EXTENT, FAST_EXTENTS, Prey, Story, boxed, idle, insist, lay, together, wish};
use crate::watched::Trouble;

async fn defer(volume: &Prey, age_ms: u32, bytes: u64) -> Result<(), Trouble> {
    volume.promise(FlushMode::Deferred(Bound { age_ms, bytes })).await
}

/// Far more than the drives need for whatever comes before a flush.
const AGE_MS: u32 = 1500;

/// Whole extents, each with a flush: their records are on their way when the next one is written.
pub(super) fn whole_extents(drives: &Drives) -> Story {
    drives
        .story("deferred: whole extents and flushes")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..4).await?;
            idle(&stage.volume).await;
            defer(&stage.volume, AGE_MS, 64 * MIB).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for extent in 8..13 {
                volume.write(extent * EXTENT, EXTENT, Volatile).await?;
                volume.flush().await?;
            }
            insist(&stage, "allocating", |status| status.served.fast_bytes > 0)
        })
}

/// Back to strict while homes could be written in place, and into deferred mode while one is.
pub(super) fn changes_beside_homes(drives: &Drives) -> Story {
    let mut story = drives
        .story("deferred: the mode is changed beside homes")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..12).await?;
            idle(&stage.volume).await;
            defer(&stage.volume, AGE_MS, 64 * MIB).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                volume.write(round * 4096, 4096, Volatile).await?;
                let (teller, client) = (volume.clone(), volume.clone());
                let change = boxed(async move { teller.promise(FlushMode::Strict).await });
                let writes = boxed(async move {
                    client.io().sleep(2 * MILLISECOND_NS).await;
                    for n in 0..2 {
                        let extent = 2 + 2 * round + n;
                        client.write(extent * EXTENT, 4096, Volatile).await?;
                    }
                    Ok(())
                });
                together(volume, [change, writes].into_iter()).await?;
                // This one takes longer than the change.
                let (teller, client) = (volume.clone(), volume.clone());
                let change = boxed(async move { defer(&teller, AGE_MS, 64 * MIB).await });
                let long = boxed(async move {
                    client.write((8 + round) * EXTENT, 120 * KIB, Volatile).await
                });
                // And this client goes on through all of it.
                let client = volume.clone();
                let small = boxed(async move {
                    client.io().sleep(200 * MILLISECOND_NS).await;
                    for n in 0..12 {
                        client.write((2 + n % 6) * EXTENT + 8192, 4096, Volatile).await?;
                    }
                    Ok(())
                });
                together(volume, [long, change, small].into_iter()).await?;
                for n in 0..3 {
                    volume.write(EXTENT + n * 4096, 4096, Volatile).await?;
                }
            }
            Ok(())
        });
    story.fast.latencies.flush_ns = 17_500_000;
    story.fast.latencies.kib_ns = 2 * MILLISECOND_NS;
    story
}

/// A write during a flush; then clients read, so that nothing is done but for the bound.
pub(super) fn a_write_during_a_flush(drives: &Drives) -> Story {
    let mut story = drives
        .story("deferred: a write during a flush")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..4).await?;
            idle(&stage.volume).await;
            defer(&stage.volume, 400, MIB).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            // More than half of the bound is flushed at once.
            for n in 0..5 {
                volume.write((10 + n) * EXTENT, 112 * KIB, Volatile).await?;
            }
            volume.write(0, 4096, Volatile).await?;
            for _ in 0..10 {
                volume.io().sleep(50 * MILLISECOND_NS).await;
                volume.read(2 * EXTENT, 4096).await?;
            }
            volume.write(4096, 4096, Volatile).await?;
            volume.write(8192, 4096, Volatile).await?;
            insist(&stage, "a flush for the bound", |status| {
                status.drives[0].traffic.flushes > 0 && status.flush_mode != FlushMode::Strict
            })
        });
    story.fast.latencies.flush_ns = 17_500_000;
    story
}

/// Small writes one after the other for longer than the bound.
pub(super) fn a_stream_of_small_writes(drives: &Drives) -> Story {
    drives
        .story("deferred: small writes without a pause")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..4).await?;
            idle(&stage.volume).await;
            defer(&stage.volume, 60, 64 * MIB).await
        })
        .act(|stage| async move {
            for n in 0..120 {
                stage.volume.write(n % 16 * 4096, 4096, Volatile).await?;
                stage.volume.io().sleep(MILLISECOND_NS / 2).await;
            }
            Ok(())
        })
        .in_strides(16)
}

/// Several clients together want to write more than the bound: none of it is ordered before there is room.
pub(super) fn no_more_than_the_bound(drives: &Drives) -> Story {
    drives
        .story("deferred: no more is ordered than the bound")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            idle(&stage.volume).await;
            defer(&stage.volume, AGE_MS, MIB).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            let writers = (0..36).map(|n| {
                let volume = volume.clone();
                boxed(async move {
                    // To extents of the slow drive in part: it goes to the log.
                    let at = (FAST_EXTENTS - 12 + n % 12) * EXTENT + n / 12 * 40 * KIB;
                    volume.write(at, 40 * KIB, Volatile).await
                })
            });
            let watcher = volume.clone();
            let watching = boxed(async move {
                for _ in 0..400 {
                    let bytes = watcher.volume().status().exposed.bytes;
                    if bytes > MIB {
                        let text = format!("{bytes} bytes are exposed, and the bound is {MIB}");
                        return Err(Trouble::Lie(text));
                    }
                    watcher.io().sleep(MILLISECOND_NS / 100).await;
                }
                Ok(())
            });
            together(volume, [watching].into_iter().chain(writers)).await
        })
        .in_strides(4)
}

/// Changes of every kind grow old while clients only read, and are durable in time: by then something else is
/// written.
pub(super) fn changes_that_grow_old(drives: &Drives) -> Story {
    const BOUND_MS: u32 = 60;
    let mut story = drives
        .story("deferred: changes that grow old")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..8).await?;
            idle(&stage.volume).await;
            defer(&stage.volume, BOUND_MS, 64 * MIB).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                match round {
                    0 => volume.write(4096, 4096, Volatile).await?,
                    1 => volume.trim(EXTENT, EXTENT, Volatile).await?,
                    _ => volume.trim(2 * EXTENT + 4096, 8192, Volatile).await?,
                }
                // Without a pause that the volume would take for rest.
                for _ in 0..13 {
                    volume.io().sleep(5 * MILLISECOND_NS).await;
                    volume.read(4 * EXTENT, 4096).await?;
                }
                wish(&stage, 6 + round..7 + round, Wish::Stream).await?;
            }
            insist(&stage, "deferred mode", |status| status.flush_mode != FlushMode::Strict)
        })
        .in_strides(2);
    // Less than half of the bound.
    let of = &mut story.fast.latencies;
    (of.flush_ns, of.jitter_percent) = (25 * MILLISECOND_NS, 0);
    story
}

/// Small writes without a pause on a drive that takes nearly as long to flush as the bound: clients wait.
pub(super) fn a_drive_that_flushes_slowly(drives: &Drives) -> Story {
    let mut story = drives
        .story("deferred: a drive that flushes slowly")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..4).await?;
            idle(&stage.volume).await;
            defer(&stage.volume, 60, 64 * MIB).await
        })
        .act(|stage| async move {
            for n in 0..60 {
                stage.volume.write(n % 16 * 4096, 4096, Volatile).await?;
                stage.volume.io().sleep(2 * MILLISECOND_NS).await;
            }
            Ok(())
        })
        .in_strides(4);
    let of = &mut story.fast.latencies;
    (of.flush_ns, of.jitter_percent) = (50 * MILLISECOND_NS, 0);
    story
}
