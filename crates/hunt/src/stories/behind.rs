//! Write-behind: writes that are acknowledged before they have reached a drive. To clients they are
//! done, and a flush covers them.

use engine::{Bound, FlushMode, TuningChange};
use io::Durability::{Durable, Volatile};
use io::units::{KIB, MIB, MILLISECOND_NS};
use io::{ErrorKind, ZeroMode};
use twin::{Kind, Random, mix};

use super::{Drives, EXTENT, Prey, Story, idle, insist, lay, together};
use crate::scenario::Stage;
use crate::watched::Trouble;
use crate::workload::Workload;

/// More than the writes that are on their way at once, in blocks.
const QUEUED_BLOCKS: u64 = 96;

async fn allow(volume: &Prey, bytes: u64) -> Result<(), Trouble> {
    let change = TuningChange::Behind(Some(bytes));
    volume.volume().tune(change).await.map_err(|error| Trouble::Refused(error.into()))
}

fn insist_behind(stage: &Stage<engine::Engine>) -> Result<(), Trouble> {
    insist(stage, "writing behind", |status| status.behind.bytes > 0)
}

/// Some extents at home on the fast drive, so that small writes go there in place.
async fn settle_in(volume: &Prey, bytes: u64) -> Result<(), Trouble> {
    lay(volume, 0..4).await?;
    idle(volume).await;
    allow(volume, bytes).await
}

pub(super) fn writes(drives: &Drives) -> Story {
    drives
        .story("behind: writes, reads and flushes")
        .prepare(|stage| async move { settle_in(&stage.volume, MIB).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                let at = round * 8192;
                volume.write(at, 4096, Volatile).await?;
                volume.write(at, 8192, Volatile).await?;
                insist_behind(&stage)?;
                volume.read(at, 16384).await?;
                volume.write(at + 4096, 4096, Volatile).await?;
                volume.write(at + 4608, 512, Volatile).await?;
                volume.write(EXTENT + at, 2 * EXTENT, Volatile).await?;
                volume.write(9 * EXTENT + at, 4096, Volatile).await?;
                volume.flush().await?;
                volume.write(at, 4096, Volatile).await?;
                volume.trim(at, 4096, Volatile).await?;
                volume.write(at + 8192, 4096, Volatile).await?;
                volume.write_zeroes(at + 8192, 4096, ZeroMode::Allocate, Durable).await?;
                volume.write(at + 12288, 4096, Durable).await?;
            }
            Ok(())
        })
}

/// Closed over much that has not even begun.
pub(super) fn close(drives: &Drives) -> Story {
    drives
        .story("behind: a close")
        .closing()
        .prepare(|stage| async move { settle_in(&stage.volume, MIB).await })
        .act(|stage| async move {
            for block in 0..QUEUED_BLOCKS {
                let at = block * 4096 + block % 2 * EXTENT;
                stage.volume.write(at, 4096, Volatile).await?;
            }
            insist_behind(&stage)
        })
}

/// Several clients, with less room behind than they ask for.
pub(super) fn pressed(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("behind: clients that write too much")
        .prepare(|stage| async move { settle_in(&stage.volume, 192 * KIB).await })
        .act(move |stage| async move {
            let clients = (0..6u64).map(|client| {
                let (volume, mut random) = (stage.volume.clone(), Random::new(mix(seed + client)));
                async move {
                    for _ in 0..12 {
                        let at = random.below(24) * 4096;
                        match random.below(8) {
                            0 => volume.flush().await?,
                            1 => volume.read(at, 8192).await?,
                            2 => volume.write(at + 512, 1024, Volatile).await?,
                            3 => volume.write(at, 4096, Durable).await?,
                            4 => volume.write(at, 64 * KIB, Volatile).await?,
                            _ => volume.write(at, 4096, Volatile).await?,
                        }
                    }
                    Ok(())
                }
            });
            together(&stage.volume, clients).await
        })
}

/// Into deferred mode while much is behind: what is acknowledged later must not survive it.
pub(super) fn into_deferred(drives: &Drives) -> Story {
    drives
        .story("deferred: into the mode and back over writes behind")
        .prepare(|stage| async move { settle_in(&stage.volume, 8 * MIB).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..2 {
                if round == 0 {
                    for block in 0..QUEUED_BLOCKS {
                        volume.write(2 * block * 4096, 4096, Volatile).await?;
                    }
                } else {
                    // More than the log holds: much waits for room there.
                    for extent in 20..70 {
                        volume.write(extent * EXTENT, 120 * KIB, Volatile).await?;
                    }
                }
                insist_behind(&stage)?;
                let (changed, other) = (volume.clone(), volume.clone());
                let change = async move {
                    let bound = Bound { age_ms: 1500, bytes: MIB };
                    changed.promise(FlushMode::Deferred(bound)).await?;
                    for step in 0..4 {
                        // What is whole, then what is read first and so never waits behind.
                        changed.write((8 + round) * EXTENT + step * 8192, 4096, Volatile).await?;
                        changed.write((9 + round) * EXTENT + step * 4096, 512, Volatile).await?;
                        changed.io().sleep(MILLISECOND_NS).await;
                    }
                    changed.flush().await?;
                    changed.io().sleep(MILLISECOND_NS).await;
                    changed.promise(FlushMode::Strict).await
                };
                let write = async move {
                    other.io().yield_now().await;
                    for block in 0..8 {
                        other.write((11 + round) * EXTENT + block * 4096, 4096, Volatile).await?;
                    }
                    Ok(())
                };
                let both: [std::pin::Pin<Box<dyn Future<Output = _>>>; 2] =
                    [Box::pin(change), Box::pin(write)];
                together(volume, both.into_iter()).await?;
            }
            Ok(())
        })
}

/// Flushes promise what they promised before: all the same everything is durable then.
pub(super) fn strict_again(drives: &Drives) -> Story {
    drives
        .story("behind: strict once more")
        .prepare(|stage| async move { settle_in(&stage.volume, 8 * MIB).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for _ in 0..2 {
                // So much that it is still behind when the superblocks have been written.
                for extent in 20..50 {
                    volume.write(extent * EXTENT, 120 * KIB, Volatile).await?;
                }
                insist_behind(&stage)?;
                volume.promise(FlushMode::Strict).await?;
                volume.io().sleep(MILLISECOND_NS).await;
            }
            Ok(())
        })
}

/// The drive refuses what was acknowledged: then nothing may pass for it.
pub(super) fn refused(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("behind: a drive refuses what was acknowledged")
        .prepare(|stage| async move { settle_in(&stage.volume, MIB).await })
        .act(move |stage| async move {
            let volume = &stage.volume;
            volume.write(0, 4096, Volatile).await?;
            volume.flush().await?;
            let fast = stage.machine.drives()[0];
            stage.machine.fail_next(fast, Kind::Write, 1, ErrorKind::Io);
            volume.write(0, 4096, Volatile).await?;
            volume.write(8192, 4096, Volatile).await?;
            // Refused, or what was acknowledged.
            for at in [0, 8192] {
                if let Err(lie @ Trouble::Lie(_)) = volume.read(at, 4096).await {
                    return Err(lie);
                }
            }
            if let Err(lie @ Trouble::Lie(_)) = volume.flush().await {
                return Err(lie);
            }
            let work = Workload {
                seed,
                clients: 2,
                steps: 6,
                span: 0..2 * EXTENT,
                length_bytes_max: 16 * KIB,
                patient: true,
            };
            work.run(volume).await?;
            insist(&stage, "failing", |status| status.drives[0].first_error.is_some())
        })
}
