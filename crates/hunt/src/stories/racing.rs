//! Things that seldom meet, made to: flushes side by side of which one fails, requests of several parts,
//! changes of the mode over what lies on the slow drive, and drives that are in step.

use engine::{Bound, FlushMode};
use io::Durability::{Durable, Volatile};
use io::units::{KIB, MIB, MILLISECOND_NS};
use io::{ErrorKind, ZeroMode};
use twin::{Fault, Kind, Random};

use super::{
    Drives, EXTENT, FAST_EXTENTS, Prey, Story, boxed, idle, insist, lay, lay_and_rest, put_in_step,
    scatter, together,
};
use crate::watched::Trouble;

/// Far more than the drives ever need for what they have to do before a flush has its turn.
const AGE_MS: u32 = 1500;

async fn defer(volume: &Prey) -> Result<(), Trouble> {
    volume.promise(FlushMode::Deferred(Bound { age_ms: AGE_MS, bytes: MIB })).await
}

/// A flush of the background fails, and a client's runs beside it.
pub(super) fn flushes_side_by_side(drives: &Drives) -> Story {
    let seed = drives.seed;
    let mut story = drives
        .story("a flush fails beside another")
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..6).await?;
            idle(&stage.volume).await;
            scatter(&stage.volume, seed, 12, 6).await?;
            stage.volume.flush().await
        })
        .act(move |stage| async move {
            let (volume, machine) = (&stage.volume, &stage.machine);
            let fast = machine.drives()[0];
            // The volume destages when clients rest, and the flush of that is struck.
            machine.strike_next(fast, Fault::FailedFlush, 1);
            let before = machine.counters(fast).flushes;
            for _ in 0..20_000 {
                if machine.counters(fast).flushes > before {
                    break;
                }
                volume.io().sleep(MILLISECOND_NS / 20).await;
            }
            for round in 0..3 {
                let refused =
                    [volume.write(round * EXTENT, 4096, Volatile).await, volume.flush().await];
                if let Some(lie) = refused.into_iter().find(|it| matches!(it, Err(Trouble::Lie(_))))
                {
                    return lie;
                }
            }
            Ok(())
        });
    story.fast.latencies.flush_ns = 17_500_000;
    story
}

/// Homes are written in place while another client's flush runs: in flight when it looks at what there is to
/// make durable, and begun and done before it ends. They are for the next flush.
pub(super) fn homes_beside_a_flush(drives: &Drives) -> Story {
    let mut story = drives
        .story("homes are written beside a flush")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..4).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for (round, after_ms) in (0..).zip([1, 8, 2, 12]) {
                let (first, second) = (volume.clone(), volume.clone());
                let one = boxed(async move {
                    first.write(round * 8192, 4096, Volatile).await?;
                    first.flush().await
                });
                let other = boxed(async move {
                    second.io().sleep(after_ms * MILLISECOND_NS).await;
                    second.write(EXTENT + round * 8192, 4096, Volatile).await
                });
                together(volume, [one, other].into_iter()).await?;
                volume.flush().await?;
            }
            volume.write(2 * EXTENT, 4096, Volatile).await
        });
    let of = &mut story.fast.latencies;
    (of.write_ns, of.flush_ns) = (3 * MILLISECOND_NS, 17 * MILLISECOND_NS);
    story
}

/// Two clients flush, the second while the first one's flush has taken all there is to make durable.
pub(super) fn flushes_that_overlap(drives: &Drives) -> Story {
    let mut story = drives
        .story("flushes that overlap")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..4).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                volume.write(round * 8192, 4096, Volatile).await?;
                let (first, second) = (volume.clone(), volume.clone());
                let one = boxed(async move { first.flush().await });
                let other = boxed(async move {
                    second.io().sleep(2 * MILLISECOND_NS).await;
                    second.flush().await?;
                    second.write(EXTENT + round * 8192, 4096, Volatile).await
                });
                together(volume, [one, other].into_iter()).await?;
            }
            Ok(())
        });
    story.fast.latencies.flush_ns = 17_500_000;
    story
}

/// The slow drive refuses what a flush needs there.
pub(super) fn slow_drive_refuses(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("the slow drive refuses")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 8).await })
        .act(move |stage| async move {
            let (volume, machine) = (&stage.volume, &stage.machine);
            let slow = machine.drives()[1];
            let first = FAST_EXTENTS * EXTENT;
            volume.write(first, 4096, Volatile).await?;
            volume.flush().await?;
            // The marks that this needs cannot be written, or made durable.
            let kind = if seed.is_multiple_of(2) { Kind::Flush } else { Kind::Write };
            machine.fail_next(slow, kind, 2, ErrorKind::Io);
            volume.write(first + EXTENT, 4096, Volatile).await?;
            for round in 0..2 {
                let flushed = volume.flush().await;
                if matches!(flushed, Err(Trouble::Lie(_))) {
                    return flushed;
                }
                let _ = volume.write(first + (2 + round) * EXTENT, 4096, Volatile).await;
            }
            Ok(())
        })
}

/// Requests that go partly to the log and partly to fresh slots, whole extents last or first.
pub(super) fn parts(drives: &Drives) -> Story {
    drives
        .story("deferred: requests of several parts")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..8).await?;
            idle(&stage.volume).await;
            defer(&stage.volume).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write(EXTENT, EXTENT + 8192, Volatile).await?;
            volume.write(3 * EXTENT - 4096, EXTENT + 8192, Volatile).await?;
            volume.write(0, 4096, Volatile).await?;
            volume.write(10 * EXTENT, 2 * EXTENT + 4096, Volatile).await?;
            insist(&stage, "allocating", |status| status.served.fast_bytes > 0)
        })
}

/// Large writes of several clients at once, together more than the bound: none may be told before what
/// is exposed is within it.
pub(super) fn more_than_the_bound(drives: &Drives) -> Story {
    drives
        .story("deferred: more at once than the bound")
        .prepare(|stage| async move { defer(&stage.volume).await })
        .act(|stage| async move {
            let writers = (0..6u64).map(|writer| {
                let volume = stage.volume.clone();
                async move { volume.write(writer * 4 * EXTENT, 4 * EXTENT, Volatile).await }
            });
            together(&stage.volume, writers).await?;
            stage.volume.write(40 * EXTENT, 4096, Volatile).await?;
            insist(&stage, "allocating", |status| status.served.fast_bytes > 0)
        })
}

/// Into deferred mode and back over whole extents that went to the slow drive.
pub(super) fn switches_below(drives: &Drives) -> Story {
    drives
        .story("deferred: the mode is changed over the slow drive")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 6).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            let below = |extent| (FAST_EXTENTS + extent) * EXTENT;
            volume.write(below(0), EXTENT, Volatile).await?;
            defer(volume).await?;
            volume.write(0, 4096, Volatile).await?;
            volume.write(below(1), EXTENT, Volatile).await?;
            volume.write(4096, 4096, Volatile).await?;
            volume.promise(FlushMode::Strict).await?;
            volume.write(below(2), EXTENT, Volatile).await?;
            volume.write(8192, 4096, Volatile).await?;
            defer(volume).await?;
            // Homes on the fast drive on their way when the mode is changed.
            volume.promise(FlushMode::Strict).await?;
            idle(volume).await;
            let writers: Vec<_> = (0..6u64)
                .map(|writer| {
                    let volume = volume.clone();
                    boxed(async move { volume.write(writer % 3 * EXTENT, 4096, Volatile).await })
                })
                .collect();
            let switch = volume.clone();
            let change = boxed(async move { defer(&switch).await });
            together(volume, writers.into_iter().chain([change])).await?;
            volume.write(below(3), 4096, Volatile).await
        })
}

/// Into deferred mode while clients write whole extents over their homes on the slow drive, all the time.
pub(super) fn whole_extents_beside_a_switch(drives: &Drives) -> Story {
    let mut story = drives
        .story("deferred: the mode is changed beside whole extents below")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 6).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                // To be made durable by the change, which takes a while.
                volume.write((FAST_EXTENTS + 4) * EXTENT, EXTENT, Volatile).await?;
                let writers = (0..3u64).map(|writer| {
                    let volume = volume.clone();
                    boxed(async move {
                        volume.io().sleep((1 + writer * 4) * MILLISECOND_NS).await;
                        volume.write((FAST_EXTENTS + writer) * EXTENT, EXTENT, Volatile).await?;
                        volume.write(writer * 8192, 4096, Volatile).await
                    })
                });
                let switch = volume.clone();
                let change = boxed(async move { defer(&switch).await });
                together(volume, writers.chain([change])).await?;
                volume.write(round * 8192, 4096, Volatile).await?;
                volume.flush().await?;
                volume.write(round * 8192 + 4096, 4096, Volatile).await?;
                volume.io().sleep(30 * MILLISECOND_NS).await;
                volume.promise(FlushMode::Strict).await?;
            }
            Ok(())
        });
    story.slow.latencies.flush_ns = 17 * MILLISECOND_NS;
    story
}

/// Into deferred mode while changes that ask to be durable are on their way to the slow drive: they began
/// when a flush was a flush.
pub(super) fn durable_beside_a_switch(drives: &Drives) -> Story {
    let mut story = drives
        .story("deferred: the mode is changed beside durable writes")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            let (first, zeros) = ((FAST_EXTENTS + 5) * EXTENT, (FAST_EXTENTS + 7) * EXTENT);
            let (one, other, switch) = (volume.clone(), volume.clone(), volume.clone());
            let write = boxed(async move { one.write(first, EXTENT, Durable).await });
            let erase = boxed(async move {
                other.write_zeroes(zeros, EXTENT, ZeroMode::Allocate, Durable).await
            });
            let change = boxed(async move {
                switch.io().sleep(2 * MILLISECOND_NS).await;
                defer(&switch).await
            });
            together(volume, [write, erase, change].into_iter()).await?;
            for block in 0..3 {
                volume.io().sleep(5 * MILLISECOND_NS).await;
                volume.read(block * 4096, 4096).await?;
            }
            insist(&stage, "deferred mode", |status| status.flush_mode != FlushMode::Strict)
        });
    story.slow.latencies.write_ns = 60 * MILLISECOND_NS;
    story
}

/// Zeros that take no room in the log fill its index, and trims wait behind them: what destage frees is
/// taken in the very moment in which the janitor goes on to write pages of the map.
pub(super) fn zeros_fill_the_index(drives: &Drives) -> Story {
    drives
        .story("zeros fill the index of the log")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 8).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            // A page of the map is to be written.
            volume.trim((FAST_EXTENTS + 7) * EXTENT, EXTENT, Volatile).await?;
            let zeros = (0..38u64).map(|client| {
                let volume = volume.clone();
                async move {
                    let (at, length) = (client * EXTENT + 4096, EXTENT - 8192);
                    volume.write_zeroes(at, length, ZeroMode::Deallocate, Volatile).await
                }
            });
            let trims = (38..46u64).map(|extent| {
                let volume = volume.clone();
                async move {
                    volume.trim(extent * EXTENT, EXTENT, Volatile).await?;
                    volume.flush().await
                }
            });
            together(volume, zeros.map(boxed).chain(trims.map(boxed))).await?;
            volume.write(0, 4096, Volatile).await?;
            volume.flush().await?;
            volume.io().sleep(200 * MILLISECOND_NS).await;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
}

/// Drives on which whatever began together ends together: changes of the map come in the very
/// moments in which pages of it are written.
pub(super) fn in_step(drives: &Drives) -> Story {
    let seed = drives.seed;
    let mut story = drives
        .story("drives in step")
        .prepare(move |stage| async move {
            let volume = &stage.volume;
            lay(volume, 0..FAST_EXTENTS + 20).await?;
            idle(volume).await;
            // Half of the log, in many records that die soon.
            for round in 0..34 {
                let extent = FAST_EXTENTS + round % 20;
                volume.write(extent * EXTENT + 4096, 60 * KIB, Volatile).await?;
            }
            volume.flush().await
        })
        .act(move |stage| async move {
            let mut random = Random::new(seed);
            let clients = (0..10u64).map(|client| {
                let (volume, mut random) = (stage.volume.clone(), random.fork());
                async move {
                    for _ in 0..8 {
                        let extent = FAST_EXTENTS - 4 + random.below(20);
                        let at = extent * EXTENT;
                        match (client + random.below(3)) % 5 {
                            0 => volume.trim(at, EXTENT, Volatile).await?,
                            1 => volume.write(at, EXTENT, Volatile).await?,
                            2 => volume.flush().await?,
                            _ => volume.write(at + 4096, 60 * KIB, Volatile).await?,
                        }
                    }
                    Ok(())
                }
            });
            together(&stage.volume, clients).await?;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
        .in_strides(4);
    put_in_step(&mut story);
    story
}
