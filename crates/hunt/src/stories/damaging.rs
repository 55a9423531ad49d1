//! What a drive does to the volume behind its back: bits of the log rot while it is up, or a drive comes
//! back as it was earlier in the same session. Played to their ends, and not cut.

use engine::Tier;
use io::Durability::Volatile;
use io::units::SECOND_NS;
use twin::{DriveImage, DriveSpec, Simulation};

use super::{Drives, EXTENT, FAST_EXTENTS, Story, idle, insist, lay, lay_and_rest, missed};
use crate::bimetal::Bimetal;
use crate::play::{Ended, Machine};
use crate::scenario::Stage;
use crate::subject::Subject;
use crate::watched::Trouble;
use engine::Engine;

/// A block of the log rots: it is an error from then on, in the log and when it should be destaged, until
/// it is overwritten.
pub(super) fn a_block_of_the_log(drives: &Drives) -> Story {
    drives
        .story("a block of the log rots")
        .uncut()
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            let engine = volume.volume();
            for round in 0..2 {
                let at = FAST_EXTENTS * EXTENT + round * 8192;
                let geometry = engine.status().geometry;
                // Behind the header of its record.
                let place = (engine.log_end().0 + 1) % geometry.ring_blocks() * 4096;
                volume.write(at, 4096, Volatile).await?;
                volume.flush().await?;
                let position = geometry.layouts[Tier::Fast.index()].log_at + place;
                stage.machine.poke(stage.machine.drives()[0], position + 100, &[0xee; 8]);
                if round == 0 {
                    expect_refusal(&stage, at, "reading what has rotten").await?;
                }
                volume.io().sleep(2 * SECOND_NS).await;
                expect_refusal(&stage, at, "reading what has rotten, when it is destaged").await?;
                volume.write(at, 4096, Volatile).await?;
                volume.read(at, 4096).await?;
            }
            insist(&stage, "destaging", |status| status.moves.destaged_bytes > 0)
        })
}

async fn expect_refusal(stage: &Stage<Engine>, at: u64, what: &str) -> Result<(), Trouble> {
    match stage.volume.read(at, 4096).await {
        Err(Trouble::Refused(_)) => Ok(()),
        Err(lie) => Err(lie),
        Ok(()) => Err(missed(what, &stage.volume.volume().status())),
    }
}

/// Each drive as it was earlier in the session, beside the other as it is.
pub(super) fn drives_of_other_moments(drives: &Drives) -> Story {
    let seed = drives.seed;
    let story = drives.story("drives of other moments of a session");
    let specs = [story.fast.clone(), story.slow.clone()];
    story.uncut().prepare(|stage| async move { lay(&stage.volume, 0..FAST_EXTENTS + 4).await }).act(
        move |stage| {
            let specs = specs.clone();
            async move {
                let volume = &stage.volume;
                let copies = || {
                    let drives = stage.machine.drives();
                    [0, 1].map(|index: usize| stage.machine.copy_drive(drives[index]))
                };
                volume.write(0, 4096, Volatile).await?;
                volume.flush().await?;
                let [fast_early, slow_early] = copies();
                // Pages of the map are written that know of this.
                volume.trim((FAST_EXTENTS - 1) * EXTENT, EXTENT, Volatile).await?;
                volume.write(2 * EXTENT, EXTENT, Volatile).await?;
                volume.flush().await?;
                idle(volume).await;
                let [_, slow_late] = copies();
                refuses(seed, &specs, [&fast_early, &slow_late], Tier::Fast)?;
                volume.volume().close().await.map_err(|error| Trouble::Refused(error.into()))?;
                let [fast_closed, _] = copies();
                refuses(seed, &specs, [&fast_closed, &slow_early], Tier::Slow)
            }
        },
    )
}

/// Two drives that are not of the same moment must not open.
fn refuses(
    seed: u64,
    specs: &[DriveSpec; 2],
    images: [&DriveImage; 2],
    older: Tier,
) -> Result<(), Trouble> {
    let simulation = Simulation::new(seed);
    for (spec, image) in specs.iter().zip(images) {
        let drive = simulation.add_drive(spec.clone());
        simulation.restore_drive(drive, image);
    }
    let ended = Machine::of(&simulation).play(|io, fast, slow, _| async move {
        match Bimetal.open(&io, &fast, &slow).await {
            Ok(_) => Err("it opens".to_owned()),
            Err(_) => Ok(()),
        }
    });
    match ended {
        Ended::Well | Ended::PowerCut => Ok(()),
        Ended::Wrong { message, .. } => {
            Err(Trouble::Lie(format!("an older copy of the {older} drive was offered: {message}")))
        }
    }
}
