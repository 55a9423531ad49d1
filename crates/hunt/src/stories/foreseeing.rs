//! Reads from front to back, of which the engine reads the next ones before they are asked for, while
//! the places are written, given up and used for something else.

use io::Durability::Volatile;
use io::ErrorKind;
use io::units::{KIB, MILLISECOND_NS};
use twin::Kind;

use super::{Drives, EXTENT, Prey, Story, boxed, insist, lay_and_rest, together};
use crate::watched::Trouble;

/// Enough for a stream to be known as one.
const STREAM: u64 = 5 * EXTENT;

/// Extents on the fast drive.
const LAID: u64 = 26;

async fn read_on(volume: &Prey, from: u64, until: u64, piece: u64) -> Result<(), Trouble> {
    for at in (from..until).step_by(piece as usize) {
        volume.read(at, piece).await?;
    }
    Ok(())
}

/// An extent is being written in place when the stream comes near it.
async fn written_as_it_is_read_ahead(volume: &Prey, piece: u64) -> Result<(), Trouble> {
    read_on(volume, 0, 2 * EXTENT, piece).await?;
    let (one, other) = (volume.clone(), volume.clone());
    let writer = boxed(async move { one.write(6 * EXTENT + 4096, 4096, Volatile).await });
    let reader = boxed(async move {
        other.io().sleep(MILLISECOND_NS / 4).await;
        read_on(&other, 2 * EXTENT, 4 * EXTENT, piece).await
    });
    together(volume, [writer, reader].into_iter()).await?;
    read_on(volume, 4 * EXTENT, 8 * EXTENT, piece).await
}

/// What a stream will read next is written: behind its back and while it is read ahead, in place and anew.
pub(super) fn writes_ahead_of_a_stream(drives: &Drives) -> Story {
    let mut story = drives
        .story("writes ahead of a stream")
        .prepare(|stage| async move { lay_and_rest(&stage.volume, 0..LAID).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            for piece in [EXTENT, 64 * KIB, 2 * EXTENT] {
                written_as_it_is_read_ahead(volume, piece).await?;
                read_on(volume, 0, STREAM, piece).await?;
                // Of the next extents one is written in place, one as a whole, one is given up; another one
                // takes its slot.
                volume.write(STREAM + 2 * EXTENT + 4096, 4096, Volatile).await?;
                volume.write(STREAM + 4 * EXTENT, EXTENT, Volatile).await?;
                volume.trim(STREAM + 5 * EXTENT, EXTENT, Volatile).await?;
                volume.write(LAID * EXTENT, EXTENT, Volatile).await?;
                let other = volume.clone();
                let (reader, writer) = (
                    boxed(async move { read_on(&other, STREAM, 2 * STREAM, piece).await }),
                    boxed({
                        let volume = volume.clone();
                        async move {
                            let first = STREAM + EXTENT;
                            for at in (first..first + 8 * EXTENT).step_by(EXTENT as usize) {
                                volume.write(at + 8192, 4096, Volatile).await?;
                                volume.io().sleep(MILLISECOND_NS / 4).await;
                            }
                            Ok(())
                        }
                    }),
                );
                together(volume, [reader, writer].into_iter()).await?;
                read_on(volume, STREAM, 15 * EXTENT, piece).await?;
            }
            // What is begun next cannot be read, and is tried once more when it is asked for.
            read_on(volume, 15 * EXTENT, 17 * EXTENT, EXTENT).await?;
            stage.machine.fail_next(stage.machine.drives()[0], Kind::Read, 1, ErrorKind::Io);
            read_on(volume, 17 * EXTENT, LAID * EXTENT, EXTENT).await?;
            insist(&stage, "reading of the fast drive", |status| status.served_reads.fast_bytes > 0)
        });
    story.fast.latencies.write_ns = 2 * MILLISECOND_NS;
    story
}
