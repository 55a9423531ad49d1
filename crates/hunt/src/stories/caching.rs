//! Class cache: what only volumes do that have every extent on the slow drive, in both modes, and the
//! changes between these.

use engine::CacheMode::{self, WriteAround, WriteBack, WriteThrough};
use io::Durability::{Durable, Volatile};
use io::units::{KIB, MILLISECOND_NS};
use io::{IoError, ZeroMode};

use super::{Drives, EXTENT, Prey, Story, boxed, idle, lay, lay_and_rest, scatter, together};
use crate::scenario::Stage;
use crate::watched::Trouble;
use crate::workload::Workload;
use engine::Engine;

/// Extents that the fast drive has copies of.
const WARM: u64 = 6;

pub(super) async fn change(stage: &Stage<Engine>, mode: CacheMode) -> Result<(), Trouble> {
    let changed = stage.volume.volume().set_cache_mode(mode).await;
    changed.map_err(|error| Trouble::Refused(IoError::from(error)))
}

/// Has the fast drive take copies.
async fn warm(volume: &Prey, extents: std::ops::Range<u64>) -> Result<(), Trouble> {
    for round in 0..6 {
        for extent in extents.clone() {
            volume.read(extent * EXTENT + round * 12288, 4096).await?;
        }
    }
    idle(volume).await;
    Ok(())
}

/// Data, holes and copies on a volume that has the slow drive tell the truth.
pub(super) fn through(drives: &Drives, mode: CacheMode) -> (CacheMode, Story) {
    let seed = drives.seed;
    let name = match mode {
        WriteAround => "around: data, holes and copies",
        _ => "through: data, holes and copies",
    };
    let story = drives
        .story(name)
        .prepare(|stage| async move {
            lay(&stage.volume, 0..16).await?;
            warm(&stage.volume, 0..WARM).await?;
            stage.volume.trim(WARM * EXTENT, 6 * EXTENT, Volatile).await?;
            stage.volume.flush().await
        })
        .act(move |stage| async move {
            let volume = &stage.volume;
            // Over copies, into holes whose slots held something, and beside both.
            scatter(volume, seed, 3, WARM).await?;
            volume.write(WARM * EXTENT + 8192, 4096, Volatile).await?;
            volume.flush().await?;
            volume.trim(2 * EXTENT, EXTENT, Volatile).await?;
            volume.write((WARM + 1) * EXTENT, EXTENT, Volatile).await?;
            volume.write(12 * EXTENT + 512, 1024, Durable).await?;
            volume.write_zeroes(3 * EXTENT, 8192, ZeroMode::Deallocate, Volatile).await?;
            volume.write(2 * EXTENT + 4096, 4096, Volatile).await?;
            volume.flush().await?;
            volume.trim(13 * EXTENT, 2 * EXTENT, Volatile).await?;
            volume.write(20 * EXTENT, 2 * EXTENT + 4096, Volatile).await?;
            volume.flush().await?;
            volume.read(0, 8 * EXTENT).await?;
            idle(volume).await;
            scatter(volume, seed + 1, 3, WARM).await?;
            volume.read(0, 8 * EXTENT).await
        });
    (mode, story)
}

/// What is written around its copies, in the midst of changes to the other modes and back.
pub(super) fn into_and_out_of_around(drives: &Drives) -> (CacheMode, Story) {
    let seed = drives.seed;
    let story = drives
        .story("the mode of the cache goes to write-around and back")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..8).await?;
            change(&stage, WriteThrough).await?;
            warm(&stage.volume, 0..WARM).await
        })
        .act(move |stage| async move {
            let volume = &stage.volume;
            for (round, mode) in (0..).zip([WriteAround, WriteBack, WriteAround, WriteThrough]) {
                scatter(volume, seed + round, 3, WARM).await?;
                change(&stage, mode).await?;
                scatter(volume, seed + 10 + round, 3, WARM).await?;
                volume.flush().await?;
                volume.read(0, WARM * EXTENT).await?;
            }
            idle(volume).await;
            volume.read(0, 8 * EXTENT).await
        })
        .in_strides(2);
    (WriteBack, story)
}

/// Copies are made of what was written a moment ago and is not durable yet.
pub(super) fn copies_of_the_volatile(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("through: copies of what is volatile")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..8).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for extent in 0..4 {
                for round in 0..6 {
                    volume.read(extent * EXTENT + round * 12288, 4096).await?;
                }
                volume.write(extent * EXTENT + 4096, 4096, Volatile).await?;
            }
            volume.io().sleep(300 * MILLISECOND_NS).await;
            volume.read(0, 4 * EXTENT).await?;
            volume.write(0, 4096, Volatile).await?;
            volume.flush().await
        });
    (WriteThrough, story)
}

/// Clean copies are written, given up, and made anew.
pub(super) fn back(drives: &Drives) -> (CacheMode, Story) {
    let seed = drives.seed;
    let story = drives
        .story("back: clean copies are written")
        .prepare(|stage| async move {
            let volume = &stage.volume;
            lay(volume, 0..20).await?;
            change(&stage, WriteThrough).await?;
            warm(volume, 0..WARM).await?;
            change(&stage, WriteBack).await?;
            idle(volume).await;
            Ok(())
        })
        .act(move |stage| async move {
            let volume = &stage.volume;
            scatter(volume, seed, 4, WARM).await?;
            volume.flush().await?;
            volume.write(0, 4096, Volatile).await?;
            volume.write(EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            idle(volume).await;
            scatter(volume, seed + 1, 4, WARM).await?;
            volume.flush().await?;
            volume.read(0, WARM * EXTENT).await
        });
    (WriteBack, story)
}

/// The mode changes to and fro while clients are at work.
pub(super) fn changing(drives: &Drives) -> (CacheMode, Story) {
    let seed = drives.seed;
    let work = move |salt| Workload {
        seed: seed * 100 + salt,
        clients: 3,
        steps: 6,
        span: 0..16 * EXTENT,
        length_bytes_max: 256 * KIB,
        patient: false,
    };
    let story = drives
        .story("the mode of the cache changes under load")
        .prepare(move |stage| async move { work(1).run(&stage.volume).await })
        .act(move |stage| async move {
            let volume = stage.volume.clone();
            let writing = volume.clone();
            let changing = Stage { volume: volume.clone(), machine: stage.machine.clone() };
            let clients = boxed(async move { work(2).run(&writing).await });
            let changes = boxed(async move {
                let volume = &changing.volume;
                change(&changing, WriteThrough).await?;
                volume.write(8192, 12288, Volatile).await?;
                volume.flush().await?;
                change(&changing, WriteBack).await?;
                work(3).run(volume).await?;
                change(&changing, WriteThrough).await
            });
            together(&volume, [clients, changes].into_iter()).await
        });
    (WriteBack, story)
}

/// The mode changes while what was written through is on its way home.
pub(super) fn changing_at_destage(drives: &Drives) -> (CacheMode, Story) {
    let seed = drives.seed;
    let story = drives
        .story("the mode of the cache changes during a destage")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..12).await?;
            warm(&stage.volume, 0..WARM).await
        })
        .act(move |stage| async move {
            let volume = stage.volume.clone();
            for round in 0..3 {
                scatter(&volume, seed + round, 4, WARM).await?;
                // Into holes, which become whole extents.
                volume.write((20 + round) * EXTENT + 8192, 4096, Volatile).await?;
                let flushing = volume.clone();
                let changing = Stage { volume: volume.clone(), machine: stage.machine.clone() };
                let flush = boxed(async move { flushing.flush().await });
                let back = boxed(async move {
                    changing.volume.io().sleep(round * MILLISECOND_NS / 2).await;
                    change(&changing, WriteBack).await
                });
                together(&volume, [flush, back].into_iter()).await?;
                volume.read(0, WARM * EXTENT).await?;
                volume.read((20 + round) * EXTENT, EXTENT).await?;
                change(&stage, WriteThrough).await?;
            }
            Ok(())
        });
    (WriteThrough, story)
}
