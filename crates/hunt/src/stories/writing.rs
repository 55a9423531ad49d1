//! What clients do: each route of a write, flushes, trims and zeroes; making a volume and closing it.

use io::Durability::{Durable, Volatile};
use io::ZeroMode;
use io::units::{KIB, MIB};

use super::paging::APART;
use super::{Drives, EXTENT, FAST_EXTENTS, Prey, Story, idle, insist, lay, scatter, together};
use crate::watched::Trouble;

pub(super) fn creation(drives: &Drives) -> Story {
    drives.story("create").fresh().closing().act(|stage| async move {
        stage.volume.write(0, 8192, Volatile).await?;
        stage.volume.flush().await
    })
}

pub(super) fn clean_close(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("clean close")
        .closing()
        .prepare(move |stage| async move {
            lay(&stage.volume, 0..3).await?;
            scatter(&stage.volume, seed, 20, 6).await
        })
        .act(move |stage| async move {
            scatter(&stage.volume, seed + 1, 10, 6).await?;
            // So far away that a page of the map which is torn is neither old nor new.
            for n in 3..=8 {
                stage.volume.write(n * APART * EXTENT, EXTENT, Volatile).await?;
            }
            stage.volume.trim(EXTENT, EXTENT, Volatile).await
        })
}

pub(super) fn small_writes(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("small writes and flushes")
        .prepare(move |stage| async move { scatter(&stage.volume, seed, 8, 2).await })
        .act(move |stage| async move {
            for round in 0..4 {
                scatter(&stage.volume, seed + round, 3, 2).await?;
                stage.volume.flush().await?;
            }
            scatter(&stage.volume, seed + 9, 2, 2).await?;
            insist(&stage, "writing to the log", |status| status.served.log_bytes > 0)
        })
}

pub(super) fn unaligned_writes(drives: &Drives) -> Story {
    drives
        .story("unaligned writes")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..1).await?;
            stage.volume.write(EXTENT, 8192, Volatile).await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write(512, 512, Volatile).await?;
            volume.write(EXTENT - 1024, 2048, Volatile).await?;
            volume.flush().await?;
            volume.write(4096 - 512, 9216, Volatile).await?;
            volume.write(2 * EXTENT + 1536, 1024, Volatile).await?;
            volume.write(1024, 512, Durable).await?;
            volume.read(0, 16 << 10).await
        })
}

pub(super) fn forced_writes(drives: &Drives) -> Story {
    drives.story("durable writes").act(|stage| async move {
        let volume = &stage.volume;
        volume.write(0, 4096, Durable).await?;
        volume.write(EXTENT, EXTENT, Durable).await?;
        volume.write(EXTENT, 4096, Durable).await?;
        volume.trim(0, 4096, Durable).await?;
        volume.write_zeroes(EXTENT, 8192, ZeroMode::Allocate, Durable).await?;
        volume.write(4096, 64 * KIB, Durable).await
    })
}

pub(super) fn concurrent_flushes(drives: &Drives) -> Story {
    drives.story("concurrent clients that flush").act(|stage| async move {
        let pairs = (0..4u64).map(|client| {
            let volume = stage.volume.clone();
            async move {
                for round in 0..3 {
                    volume.write((client + round * 4) * 4096, 4096, Volatile).await?;
                    volume.flush().await?;
                }
                Ok(())
            }
        });
        together(&stage.volume, pairs).await
    })
}

pub(super) fn allocation_on_fast(drives: &Drives) -> Story {
    drives.story("allocation on the fast drive").act(|stage| async move {
        stage.volume.write(0, EXTENT, Volatile).await?;
        stage.volume.write(2 * EXTENT, 2 * EXTENT, Volatile).await?;
        stage.volume.flush().await?;
        // Into an extent whose data recovery may still verify as a whole.
        stage.volume.write(2 * EXTENT + 8192, 4096, Volatile).await?;
        stage.volume.write(6 * EXTENT - 4096, EXTENT + 8192, Volatile).await?;
        stage.volume.flush().await?;
        stage.volume.write(8 * EXTENT, EXTENT, Volatile).await?;
        insist(&stage, "allocating on fast", |status| status.served.fast_bytes > 0)
    })
}

pub(super) fn allocation_on_slow(drives: &Drives) -> Story {
    drives
        .story("allocation on the slow drive")
        .prepare(|stage| async move { lay(&stage.volume, 0..FAST_EXTENTS).await })
        .act(|stage| async move {
            let first = FAST_EXTENTS * EXTENT;
            stage.volume.write(first, EXTENT, Volatile).await?;
            stage.volume.write(first + 2 * EXTENT, 2 * EXTENT, Volatile).await?;
            stage.volume.flush().await?;
            stage.volume.write(first + 5 * EXTENT, EXTENT, Durable).await?;
            stage.volume.write(first + 7 * EXTENT, EXTENT, Volatile).await?;
            insist(&stage, "allocating on slow", |status| status.served.slow_bytes > 0)
        })
}

pub(super) fn rewriting_whole_extents(drives: &Drives) -> Story {
    drives
        .story("rewriting whole extents")
        .prepare(|stage| async move { lay(&stage.volume, 0..FAST_EXTENTS).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            // The same extents twice without a flush: fresh slots, one after the other.
            for extent in [0, FAST_EXTENTS - 1, 0, FAST_EXTENTS - 1] {
                volume.write(extent * EXTENT, EXTENT, Volatile).await?;
            }
            volume.write(4096, 4096, Volatile).await?;
            volume.flush().await?;
            volume.write(0, EXTENT, Volatile).await?;
            volume.write(8192, 4096, Volatile).await?;
            volume.read(0, EXTENT).await
        })
}

pub(super) fn overwriting_at_home(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("overwriting at home")
        .prepare(|stage| async move {
            lay(&stage.volume, 0..FAST_EXTENTS).await?;
            // Until no home is verified by its data any more.
            idle(&stage.volume).await;
            Ok(())
        })
        .act(move |stage| async move {
            scatter(&stage.volume, seed, 4, 4).await?;
            stage.volume.flush().await?;
            stage.volume.write((FAST_EXTENTS - 1) * EXTENT, EXTENT, Volatile).await?;
            stage.volume.write((FAST_EXTENTS - 2) * EXTENT + 4096, 4096, Volatile).await?;
            stage.volume.write(EXTENT - 8192, 16 << 10, Volatile).await?;
            stage.volume.flush().await?;
            scatter(&stage.volume, seed + 1, 3, 4).await
        })
}

/// Data in each kind of place: homes on both drives, and the log.
async fn everywhere(volume: &Prey, seed: u64) -> Result<(), Trouble> {
    lay(volume, 0..FAST_EXTENTS).await?;
    scatter(volume, seed, 10, FAST_EXTENTS).await?;
    volume.write(FAST_EXTENTS * EXTENT, 12288, Volatile).await
}

pub(super) fn trims(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("trims")
        .prepare(move |stage| async move { everywhere(&stage.volume, seed).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.trim(EXTENT, 2 * EXTENT, Volatile).await?;
            volume.read(EXTENT - 4096, 2 * EXTENT + 8192).await?;
            volume.trim(4 * EXTENT + 512, 16 << 10, Volatile).await?;
            volume.flush().await?;
            // What was trimmed is written anew, perhaps where something else was trimmed.
            volume.write(EXTENT, EXTENT, Volatile).await?;
            volume.trim((FAST_EXTENTS - 2) * EXTENT, 3 * EXTENT, Volatile).await?;
            volume.write(2 * EXTENT, 4096, Volatile).await?;
            volume.trim(0, 32 * MIB, Durable).await?;
            volume.write(8192, 4096, Volatile).await?;
            volume.read(0, MIB).await
        })
}

pub(super) fn zeroes(drives: &Drives) -> Story {
    let seed = drives.seed;
    drives
        .story("zeroes")
        .prepare(move |stage| async move { everywhere(&stage.volume, seed).await })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write_zeroes(EXTENT + 512, 1024, ZeroMode::Deallocate, Volatile).await?;
            volume.write_zeroes(2 * EXTENT, EXTENT, ZeroMode::Allocate, Volatile).await?;
            volume.flush().await?;
            let slow = (FAST_EXTENTS - 2) * EXTENT;
            volume.write_zeroes(slow - 4608, EXTENT, ZeroMode::Deallocate, Volatile).await?;
            volume.write(2 * EXTENT + 4096, 4096, Volatile).await?;
            volume.write_zeroes(2 * EXTENT, 8192, ZeroMode::Allocate, Volatile).await?;
            volume.read(0, MIB).await
        })
}
