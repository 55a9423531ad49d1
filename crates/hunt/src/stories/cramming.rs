//! More than fits, all at once: the part of the log that the volume keeps for itself is all that is left,
//! and it must be enough to get out again.

use io::Durability::Volatile;
use io::units::{KIB, MILLISECOND_NS};
use twin::Random;

use super::{
    Drives, EXTENT, FAST_EXTENTS, Story, boxed, insist, lay_and_rest, put_in_step, together,
};

/// Everything in the log is the newest version: only destage makes room, which needs some itself.
pub(super) fn a_log_of_what_lives(drives: &Drives) -> Story {
    drives
        .story("a log full of what lives")
        .uncut()
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 60).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            let large = (0..33).map(|n| {
                let volume = volume.clone();
                let at = (FAST_EXTENTS + n) * EXTENT + 4096;
                boxed(async move { volume.write(at, 120 * KIB, Volatile).await })
            });
            let small = (0..200).map(|n| {
                let volume = volume.clone();
                let at = (FAST_EXTENTS + 34 + n / 10) * EXTENT + n % 10 * 8192;
                boxed(async move { volume.write(at, 4096, Volatile).await })
            });
            together(volume, large.chain(small)).await?;
            volume.flush().await?;
            insist(&stage, "filling the log", |status| status.log.full_waits > 0)
        })
}

/// Whole extents whose records come later, many at once, beside a log that is full.
pub(super) fn fresh_extents_over_a_full_log(drives: &Drives) -> Story {
    drives
        .story("fresh extents over a full log")
        .uncut()
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 40).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            // None of them waits, so that nobody else does behind it.
            let large = (0..27).map(|n| {
                let volume = volume.clone();
                let at = (FAST_EXTENTS + n) * EXTENT + 4096;
                boxed(async move { volume.write(at, 120 * KIB, Volatile).await })
            });
            let fresh = (0..300).map(|n| {
                let volume = volume.clone();
                let at = (FAST_EXTENTS + 60 + n) * EXTENT;
                boxed(async move { volume.write(at, EXTENT, Volatile).await })
            });
            together(volume, large.chain(fresh)).await?;
            volume.flush().await?;
            insist(&stage, "filling the log", |status| status.log.full_waits > 0)
        })
}

/// A device with many requests at once, none of which is a flush until all have ended: what a file system
/// writes back. They and what makes room for them go on in the same moments.
pub(super) fn writers_that_never_flush(drives: &Drives) -> Story {
    let seed = drives.seed;
    let mut story = drives
        .story("writers that never flush")
        .uncut()
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 60).await })
        .act(move |stage| async move {
            let volume = &stage.volume;
            let writers = (0..48).map(|writer| {
                let volume = volume.clone();
                boxed(async move {
                    let mut random = Random::new(seed << 8 | writer);
                    for n in 0..100 {
                        if n / 10 % 2 == 0 {
                            volume.io().sleep(random.below(20) * MILLISECOND_NS / 10).await;
                        }
                        let place = random.below(20 * EXTENT / (16 * KIB));
                        let at = (FAST_EXTENTS + 20 * (writer % 2)) * EXTENT + place * 16 * KIB;
                        volume.write(at, 16 * KIB, Volatile).await?;
                    }
                    Ok(())
                })
            });
            together(volume, writers).await?;
            volume.flush().await?;
            insist(&stage, "filling the log", |status| status.log.full_waits > 0)
        });
    put_in_step(&mut story);
    story
}
