//! Class cache, write-back: dirty copies that go home while clients rest.

use engine::CacheMode::{self, WriteBack};
use engine::Engine;
use io::Durability::Volatile;
use io::units::{MILLISECOND_NS, SECOND_NS};
use twin::Fault;

use super::{Drives, EXTENT, Story, idle, insist, lay, lay_and_rest, unless_refused};
use crate::scenario::Stage;
use crate::watched::Trouble;

/// Waits until so many bytes have gone home, and not until the slow drive is flushed for another reason.
/// For half a minute at most; the story then misses its deed.
async fn until_cleaned(stage: &Stage<Engine>, bytes: u64) -> Result<(), Trouble> {
    let cleaned = || stage.volume.volume().status().moves.cleaned_bytes;
    for _ in 0..15_000 {
        if cleaned() >= bytes {
            break;
        }
        stage.volume.io().sleep(2 * MILLISECOND_NS).await;
    }
    insist(stage, "dirty copies at home", |status| status.moves.cleaned_bytes > 0)
}

/// Waits until the slow drive is written by the volume itself; as long as that.
pub(super) async fn until_slow_is_written(stage: &Stage<Engine>) {
    let slow = stage.machine.drives()[1];
    let writes = || stage.machine.counters(slow).writes;
    let before = writes();
    for _ in 0..15_000 {
        if writes() != before {
            return;
        }
        stage.volume.io().sleep(2 * MILLISECOND_NS).await;
    }
}

/// Copies go home; one of them cannot be read after that, and is given up for its home.
pub(super) fn given_up_for_their_homes(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("back: copies go home at rest, and are given up")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..4).await?;
            stage.volume.io().sleep(SECOND_NS).await;
            Ok(())
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            until_cleaned(&stage, 4 * EXTENT).await?;
            stage.machine.strike_next(stage.machine.drives()[0], Fault::ReadError, 1);
            unless_refused(volume.read(2 * EXTENT, EXTENT).await)?;
            stage.machine.clear_faults();
            // Not as long as until the slow drive is made to vouch for what it has.
            volume.io().sleep(SECOND_NS).await;
            volume.write(EXTENT + 8192, 4096, Volatile).await?;
            volume.flush().await?;
            volume.read(0, 4 * EXTENT).await
        });
    (WriteBack, story)
}

/// Copies are written, as a whole and in part, in the moment in which they go home.
pub(super) fn written_as_they_go_home(drives: &Drives) -> (CacheMode, Story) {
    let story = drives
        .story("back: copies are written as they go home")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..6).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..2 {
                for extent in 0..3 {
                    volume.write(extent * EXTENT + round * 8192, 4096, Volatile).await?;
                }
                volume.write(3 * EXTENT, EXTENT, Volatile).await?;
                volume.flush().await?;
                // The log is emptied into the copies first.
                volume.io().sleep(4 * SECOND_NS).await;
                until_slow_is_written(&stage).await;
                volume.write(EXTENT + 16384, 4096, Volatile).await?;
                volume.write((2 + round) * EXTENT, EXTENT, Volatile).await?;
                volume.flush().await?;
            }
            idle(volume).await;
            volume.read(0, 6 * EXTENT).await?;
            insist(&stage, "dirty copies at home", |status| {
                status.moves.cleaned_bytes > 0 && status.dirty_bytes == 0
            })
        })
        .in_strides(2);
    (WriteBack, story)
}
