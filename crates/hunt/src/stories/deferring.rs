//! Deferred mode: flushes that promise order and a bound. What survives any cut must be the state
//! after a prefix of the writes, over the whole volume.

use engine::{Bound, FlushMode};
use io::Durability::{Durable, Volatile};
use io::ZeroMode;
use io::units::{KIB, MIB, MILLISECOND_NS};
use twin::mix;

use super::{
    Drives, EXTENT, FAST_EXTENTS, Prey, Story, idle, insist, lay, lay_and_rest, scatter, together,
};
use crate::watched::Trouble;
use crate::workload::Workload;

/// Far more than the drives ever need for what they have to do before a flush has its turn.
const AGE_MS: u32 = 1500;

async fn defer(volume: &Prey) -> Result<(), Trouble> {
    volume.promise(FlushMode::Deferred(Bound { age_ms: AGE_MS, bytes: MIB })).await
}

async fn rest(volume: &Prey, ms: u64) {
    volume.io().sleep(ms * MILLISECOND_NS).await;
}

pub(super) fn small_writes(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("deferred: small writes and flushes")
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..2).await?;
            idle(&stage.volume).await;
            defer(&stage.volume).await
        })
        .act(move |stage| async move {
            let volume = &stage.volume;
            for round in 0..6 {
                scatter(volume, seed + round, 2, 2).await?;
                volume.flush().await?;
                volume.write(512 * round, 512, Durable).await?;
                rest(volume, 150 * round).await;
            }
            insist(&stage, "flushing for the bound", |status| {
                status.drives[0].traffic.flushes > 0 && status.flush_mode != FlushMode::Strict
            })
        })
}

pub(super) fn large_writes(drives: &Drives) -> Story {
    drives
        .story("deferred: large writes and holes")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS - 8).await?;
            idle(&stage.volume).await;
            defer(&stage.volume).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            // Log and fresh slots in one request, then what must not survive without it.
            volume.write(2 * EXTENT - 8192, 2 * EXTENT + 16384, Volatile).await?;
            volume.write(0, 4096, Volatile).await?;
            volume.write(3 * EXTENT, EXTENT, Volatile).await?;
            volume.trim(EXTENT - 4096, 2 * EXTENT, Volatile).await?;
            volume.flush().await?;
            volume.write(EXTENT, EXTENT, Volatile).await?;
            volume.write_zeroes(8192, EXTENT, ZeroMode::Deallocate, Volatile).await?;
            volume.write((FAST_EXTENTS + 1) * EXTENT, 96 * KIB, Volatile).await?;
            volume.write(4096, 4096, Volatile).await?;
            insist(&stage, "allocating", |status| status.served.fast_bytes > 0)
        })
}

/// Whole extents to the slow drive beside small writes to the log: two caches that lose apart.
pub(super) fn both_drives(drives: &Drives) -> Story {
    drives
        .story("deferred: both drives")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            idle(&stage.volume).await;
            defer(&stage.volume).await
        })
        .act(|stage| async move {
            for round in 0..3 {
                let (volume, at) = (&stage.volume, (FAST_EXTENTS + 2 * round) * EXTENT);
                volume.write(at, EXTENT, Volatile).await?;
                volume.write(round * 4096, 4096, Volatile).await?;
                volume.flush().await?;
                // Onto extents that live on the slow drive, in small and whole.
                volume.write((FAST_EXTENTS - 1) * EXTENT + round * 4096, 4096, Volatile).await?;
                volume.write((FAST_EXTENTS - 2) * EXTENT, EXTENT, Volatile).await?;
                rest(volume, 700).await;
            }
            insist(&stage, "writing to slow", |status| status.served.slow_bytes > 0)
        })
}

pub(super) fn destage(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("deferred: destage, moves and checkpoints")
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            idle(&stage.volume).await;
            defer(&stage.volume).await?;
            // Half of the log, so that it is emptied while clients are busy.
            for round in 0..20 {
                stage.volume.write((1 + round % 2) * EXTENT, 64 * KIB, Volatile).await?;
            }
            scatter(&stage.volume, seed, 20, 3).await
        })
        .act(move |stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                scatter(volume, seed + 1 + round, 2, 8).await?;
                volume.flush().await?;
                volume.write((3 + round % 2) * EXTENT + 8192, 40 * KIB, Volatile).await?;
                volume.read((FAST_EXTENTS - 1) * EXTENT + round * 8192, 4096).await?;
                rest(volume, 90 * (round % 3)).await;
            }
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
        .in_strides(16)
}

/// Into deferred mode over homes that are being written in place, and back again.
pub(super) fn switches(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("deferred: the mode is changed under load")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..4).await })
        .act(move |stage| async move {
            let volume = &stage.volume;
            for round in 0..2 {
                let seed = seed + 10 * round;
                scatter(volume, seed, 3, 4).await?;
                let writers = (0..3).map(|writer| {
                    let volume = volume.clone();
                    async move {
                        for step in 0..3 {
                            let at = (writer * 5 + step) * 4096 + writer % 2 * EXTENT;
                            volume.write(at, 4096, Volatile).await?;
                        }
                        volume.flush().await
                    }
                });
                let switch = volume.clone();
                let change = async move { defer(&switch).await };
                let change: std::pin::Pin<Box<dyn Future<Output = _>>> = Box::pin(change);
                let all = writers.map(|writer| Box::pin(writer) as _).chain([change]);
                together(volume, all).await?;
                scatter(volume, seed + 1, 3, 4).await?;
                volume.flush().await?;
                scatter(volume, seed + 2, 2, 4).await?;
                volume.promise(FlushMode::Strict).await?;
                scatter(volume, seed + 3, 2, 4).await?;
                volume.flush().await?;
            }
            Ok(())
        })
}

/// Back to strict while whole extents on the slow drive are not flushed. Their records become durable by what
/// the change itself writes, so they alone would be missed.
pub(super) fn strict_again_below(drives: &Drives) -> Story {
    drives
        .story("deferred: strict again over whole extents below")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS + 6).await?;
            idle(&stage.volume).await;
            // So wide that nothing is flushed for it.
            let bound = Bound { age_ms: 60_000, bytes: 64 * MIB };
            stage.volume.promise(FlushMode::Deferred(bound)).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for extent in 10..20 {
                volume.write((FAST_EXTENTS + extent) * EXTENT, EXTENT, Volatile).await?;
            }
            volume.promise(FlushMode::Strict).await?;
            volume.write(0, 4096, Volatile).await?;
            insist(&stage, "writing to slow", |status| status.served.slow_bytes > 0)
        })
}

/// Several clients that do everything at once, in deferred mode; another mixture for each seed.
pub(super) fn mixture(drives: &Drives) -> Story {
    let seed = drives.seed;
    let work = move |salt: u64, steps| {
        let seed = mix(seed ^ salt ^ 0xdefe);
        let span = match seed % 3 {
            0 => 0..4 * EXTENT,
            1 => 0..40 * EXTENT,
            _ => 8 * EXTENT - 64 * KIB..20 * EXTENT,
        };
        let (clients, length_bytes_max) = (1 + seed % 5, 512 * KIB);
        Workload { seed, clients, steps, span, length_bytes_max, patient: false }
    };
    drives
        .story("deferred mixture")
        .prepare(move |stage| async move {
            work(1, 20).run(&stage.volume).await?;
            defer(&stage.volume).await?;
            work(2, 8).run(&stage.volume).await
        })
        .act(move |stage| async move { work(3, 8).run(&stage.volume).await })
}
