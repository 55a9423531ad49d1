//! Class span with inclusion: what goes up keeps its slot below, is changed, given up for nothing, and gives
//! its slot back when slots are short.

use engine::{Engine, TuningChange, Wish};
use io::Durability::Volatile;
use io::units::{MILLISECOND_NS, SECOND_NS};
use io::{IoError, Volume};
use twin::Fault;

use super::{
    Drives, EXTENT, FAST_EXTENTS, Prey, Story, boxed, idle, insist, lay, together, unless_refused,
    wish,
};
use crate::scenario::Stage;
use crate::watched::Trouble;

/// Extents that live on the slow drive until they are wished up.
const LOW: u64 = FAST_EXTENTS;

/// Fills the fast drive, with `more` extents below, and makes room for some of them.
async fn lay_low(volume: &Prey, more: u64) -> Result<(), Trouble> {
    lay(volume, 0..LOW + more).await?;
    volume.trim(0, 16 * EXTENT, Volatile).await?;
    idle(volume).await;
    Ok(())
}

/// Has some extents go up, which keep their slots.
async fn raise(stage: &Stage<Engine>, count: u64) -> Result<(), Trouble> {
    wish(stage, LOW..LOW + count, Wish::Pinned).await?;
    idle(&stage.volume).await;
    insist(stage, "keeping originals", |status| status.extents_clean > 0)
}

/// Has them go down again.
async fn lower(stage: &Stage<Engine>, count: u64) -> Result<(), Trouble> {
    wish(stage, LOW..LOW + count, Wish::Cold).await?;
    idle(&stage.volume).await;
    Ok(())
}

async fn tune(stage: &Stage<Engine>, change: TuningChange) -> Result<(), Trouble> {
    let tuned = stage.volume.volume().tune(change).await;
    tuned.map_err(|error| Trouble::Refused(IoError::from(error)))
}

/// They go up and come down again with nothing copied, some of them changed meanwhile, while their slots
/// would do for others.
pub(super) fn up_and_down(drives: &Drives) -> Story {
    drives
        .story("kept: up, changed, and down again")
        .prepare(|stage| async move { lay_low(&stage.volume, 6).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            raise(&stage, 5).await?;
            // Into the slots that are kept, if they counted as free.
            lay(volume, LOW + 10..LOW + 24).await?;
            volume.write(LOW * EXTENT + 8192, 4096, Volatile).await?;
            volume.flush().await?;
            idle(volume).await;
            volume.write(LOW * EXTENT + 16384, 4096, Volatile).await?;
            volume.write((LOW + 1) * EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            lower(&stage, 5).await?;
            volume.read(LOW * EXTENT, 5 * EXTENT).await?;
            insist(&stage, "giving copies up", |status| {
                status.moves.demoted_bytes > 0 && status.extents_clean == 0
            })
        })
        .in_strides(2)
}

/// Clean copies that both drives know of are changed in every way.
pub(super) fn changes(drives: &Drives) -> Story {
    drives
        .story("kept: changes after a rest")
        .prepare(|stage| async move {
            lay_low(&stage.volume, 8).await?;
            raise(&stage, 7).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write(LOW * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            volume.trim((LOW + 1) * EXTENT, EXTENT, Volatile).await?;
            volume.trim((LOW + 2) * EXTENT + 4096, 8192, Volatile).await?;
            volume.write((LOW + 3) * EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            volume.write((LOW + 4) * EXTENT + 512, 1024, Volatile).await?;
            // Destaged: now they are dirty, and are written in place.
            volume.io().sleep(SECOND_NS).await;
            volume.write(LOW * EXTENT + 4096, 8192, Volatile).await?;
            volume.write((LOW + 4) * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            volume.write((LOW + 1) * EXTENT + 4096, 4096, Volatile).await?;
            insist(&stage, "destaging", |status| {
                status.moves.destaged_bytes > 0 && status.extents_clean > 0
            })
        })
}

/// What was kept is wanted by others: the volume is filled to its last extent.
pub(super) fn full_volume(drives: &Drives) -> Story {
    const LEFT: u64 = 40;
    drives
        .story("kept: a full volume")
        .prepare(|stage| async move {
            let volume = &stage.volume;
            lay_low(volume, 2 * LEFT).await?;
            raise(&stage, 12).await?;
            let extents = volume.volume().info().size_bytes / EXTENT;
            lay(volume, LOW + 2 * LEFT..extents - LEFT).await?;
            lay(volume, 0..8).await?;
            insist(&stage, "keeping originals", |status| status.extents_clean > 0)
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            let extents = volume.volume().info().size_bytes / EXTENT;
            lay(volume, 8..16).await?;
            lay(volume, extents - LEFT..extents).await?;
            for extent in [LOW, LOW + 3, extents - 1, extents - 7] {
                volume.write(extent * EXTENT, EXTENT, Volatile).await?;
                volume.write((extent - 1) * EXTENT + 4096, 4096, Volatile).await?;
            }
            volume.flush().await?;
            idle(volume).await;
            volume.read((LOW - 1) * EXTENT, 6 * EXTENT).await?;
            let kept = volume.volume().status().extents_clean;
            if kept > 0 {
                let text = format!("the volume is full, and keeps {kept} originals");
                return Err(Trouble::Lie(text));
            }
            insist(&stage, "being full", |status| {
                status.extents_mapped == status.geometry.extents()
            })
        })
        .in_strides(6)
}

/// Inclusion ends while copies are changed, and what was kept is given back.
pub(super) fn switched_off(drives: &Drives) -> Story {
    drives
        .story("kept: given back when it is not wanted")
        .prepare(|stage| async move {
            lay_low(&stage.volume, 8).await?;
            raise(&stage, 6).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write(LOW * EXTENT, 4096, Volatile).await?;
            let kept = volume.volume().status().extents_clean;
            tune(&stage, TuningChange::Inclusion(false)).await?;
            until_kept(&stage, kept - 1).await;
            volume.write((LOW + 5) * EXTENT, 4096, Volatile).await?;
            volume.write((LOW + 1) * EXTENT, 4096, Volatile).await?;
            volume.io().sleep(SECOND_NS).await;
            // Dirty by now.
            for extent in LOW..LOW + 4 {
                volume.write(extent * EXTENT + 4096, 4096, Volatile).await?;
            }
            volume.flush().await?;
            lay(volume, LOW + 10..LOW + 18).await?;
            let kept = volume.volume().status().extents_clean;
            tune(&stage, TuningChange::Inclusion(true)).await?;
            lower(&stage, 3).await?;
            raise(&stage, 3).await?;
            volume.read(LOW * EXTENT, 6 * EXTENT).await?;
            if kept > 0 {
                let text = format!("{kept} originals are kept, which nobody wants");
                return Err(Trouble::Lie(text));
            }
            Ok(())
        })
        .in_strides(2)
}

/// Waits until no more than `count` originals are kept, looking often; for half a second at most.
async fn until_kept(stage: &Stage<Engine>, count: u64) {
    for _ in 0..50_000 {
        if stage.volume.volume().status().extents_clean <= count {
            return;
        }
        stage.volume.io().sleep(MILLISECOND_NS / 100).await;
    }
}

/// Copies are written the moment their originals are given back: that may not be durable yet.
pub(super) fn written_as_given_back(drives: &Drives) -> Story {
    drives
        .story("kept: written as they are given back")
        .prepare(|stage| async move {
            lay_low(&stage.volume, 8).await?;
            raise(&stage, 6).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            tune(&stage, TuningChange::Inclusion(false)).await?;
            until_kept(&stage, 0).await;
            let writers = (0..6).map(|n| {
                let volume = volume.clone();
                boxed(async move { volume.write((LOW + n) * EXTENT, 4096, Volatile).await })
            });
            together(volume, writers).await?;
            insist(&stage, "giving back", |status| status.extents_clean == 0)
        })
}

/// A copy cannot be read, and its original can; then it is given up for it.
pub(super) fn unreadable_copies(drives: &Drives) -> Story {
    drives
        .story("kept: a copy that cannot be read")
        .prepare(|stage| async move {
            lay_low(&stage.volume, 6).await?;
            raise(&stage, 5).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            let fast = stage.machine.drives()[0];
            stage.machine.strike_next(fast, Fault::ReadError, 1);
            unless_refused(volume.read((LOW + 1) * EXTENT + 4096, 8192).await)?;
            stage.machine.strike_next(fast, Fault::ReadError, 1);
            unless_refused(volume.read((LOW + 2) * EXTENT, 2 * EXTENT).await)?;
            stage.machine.clear_faults();
            volume.write((LOW + 3) * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            idle(volume).await;
            volume.read(LOW * EXTENT, 5 * EXTENT).await?;
            insist(&stage, "giving copies up", |status| status.moves.demoted_bytes > 0)
        })
}
