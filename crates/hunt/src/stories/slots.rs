//! Slots of the fast drive change hands: so few are free that one which is given up is used again as soon
//! as it may be, and reads last so long that what they read is given up meanwhile.

use engine::FlushMode;
use io::Durability::Volatile;
use io::units::{KIB, MILLISECOND_NS, SECOND_NS};

use super::{Drives, EXTENT, FAST_EXTENTS, Prey, Story, boxed, insist, lay_and_rest, together};
use crate::watched::Trouble;

async fn rewrite(volume: Prey, extent: u64) -> Result<(), Trouble> {
    volume.write(extent * EXTENT, EXTENT, Volatile).await
}

/// Makes durable, and durably known to be, whatever was done: slots that wait for that are free.
async fn settle(volume: &Prey) -> Result<(), Trouble> {
    volume.flush().await?;
    volume.write((FAST_EXTENTS + 20) * EXTENT, 4096, Volatile).await?;
    volume.flush().await
}

/// A story over a fast drive with few free slots, on which what began together ends together.
fn scarce(drives: &Drives, name: &'static str) -> Story {
    let mut story = drives
        .story(name)
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS).await });
    let of = &mut story.fast.latencies;
    (of.kib_ns, of.jitter_percent, of.channels) = (0, 0, 64);
    story
}

/// The first records of a session lie where all before is known to be durable: what they give up is not.
pub(super) fn from_the_first(drives: &Drives) -> Story {
    scarce(drives, "slots: from the first of a session").act(|stage| async move {
        let volume = &stage.volume;
        together(volume, (0..4).map(|n| rewrite(volume.clone(), n))).await?;
        together(volume, (4..8).map(|n| rewrite(volume.clone(), n))).await?;
        insist(&stage, "writing whole extents", |status| status.served.fast_bytes > 0)
    })
}

/// One extent again and again, which gives up all its slots but the last; then others.
pub(super) fn again_and_again(drives: &Drives) -> Story {
    scarce(drives, "slots: the same extent again and again").act(|stage| async move {
        let volume = &stage.volume;
        for round in 0..2 {
            for _ in 0..4 {
                rewrite(volume.clone(), round).await?;
            }
            volume.flush().await?;
            let others = (0..4).map(|n| rewrite(volume.clone(), 8 + 4 * round + n));
            together(volume, others).await?;
            settle(volume).await?;
        }
        insist(&stage, "writing whole extents", |status| status.served.fast_bytes > 0)
    })
}

/// A flush ends while a superblock is written that does not know of it.
pub(super) fn beside_a_superblock(drives: &Drives) -> Story {
    scarce(drives, "slots: beside a superblock").act(|stage| async move {
        let volume = &stage.volume;
        for round in 0..3 {
            let (teller, client) = (volume.clone(), volume.clone());
            let superblock = boxed(async move { teller.promise(FlushMode::Strict).await });
            let rewriting = boxed(async move {
                client.io().sleep((6 + 2 * round) * MILLISECOND_NS / 10).await;
                for _ in 0..3 {
                    rewrite(client.clone(), round).await?;
                }
                client.flush().await
            });
            together(volume, [superblock, rewriting].into_iter()).await?;
            let others = (0..4).map(|n| rewrite(volume.clone(), 8 + 4 * round + n));
            together(volume, others).await?;
            settle(volume).await?;
        }
        insist(&stage, "writing whole extents", |status| status.served.fast_bytes > 0)
    })
}

/// One client rewrites two extents, and another one flushes all the time.
pub(super) fn beside_flushes(drives: &Drives) -> Story {
    let mut story = scarce(drives, "slots: beside flushes").act(|stage| async move {
        let volume = &stage.volume;
        let (writer, flusher) = (volume.clone(), volume.clone());
        let rewriting = boxed(async move {
            for round in 0..24 {
                rewrite(writer.clone(), 12 + round % 2).await?;
            }
            Ok(())
        });
        let flushing = boxed(async move {
            for _ in 0..8 {
                flusher.flush().await?;
            }
            Ok(())
        });
        together(volume, [rewriting, flushing].into_iter()).await?;
        insist(&stage, "writing whole extents", |status| status.served.fast_bytes > 0)
    });
    let of = &mut story.fast.latencies;
    (of.write_ns, of.jitter_percent) = (150_000, 60);
    story
}

/// Reads of slots, and of the log, that end only when what they read would long have been used again.
pub(super) fn lasting_reads(drives: &Drives) -> Story {
    let mut story = drives
        .story("reads that last")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..FAST_EXTENTS + 4).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            let readers = (0..3).map(|extent| {
                let volume = volume.clone();
                boxed(async move { volume.read(extent * EXTENT, EXTENT).await })
            });
            let client = volume.clone();
            let writer = boxed(async move {
                client.io().sleep(MILLISECOND_NS).await;
                // In another order each time, so that nobody gets back what was his.
                for round in 0..3 {
                    for n in 0..6 {
                        rewrite(client.clone(), (n + 4 * round) % 6).await?;
                    }
                    settle(&client).await?;
                }
                Ok(())
            });
            together(volume, readers.chain([writer])).await?;
            // A block of the log, and a lap of the ring.
            let at = FAST_EXTENTS * EXTENT;
            volume.write(at, 4096, Volatile).await?;
            volume.flush().await?;
            let (reader, client) = (volume.clone(), volume.clone());
            let reading = boxed(async move { reader.read(at, 4096).await });
            let lapping = boxed(async move {
                client.io().sleep(MILLISECOND_NS).await;
                for _ in 0..80 {
                    client.write(at, 60 * KIB, Volatile).await?;
                }
                client.flush().await
            });
            together(volume, [reading, lapping].into_iter()).await?;
            insist(&stage, "a checkpoint", |status| status.log.checkpoints > 0)
        })
        .in_strides(16);
    story.fast.latencies.read_ns = 2 * SECOND_NS;
    story.fast.latencies.channels = 64;
    story
}
