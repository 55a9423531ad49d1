//! A cache whose fast drive is gone for good: the slow drive serves alone, or is given a new fast drive at
//! each opening. Cut like everything else.

use io::Durability::Volatile;
use io::ZeroMode;

use super::paging::APART;
use super::{Drives, EXTENT, Story, idle, lay};

/// Holes come and go, and data in them. On drives that write blocks as a whole: without a log a block is as
/// whole after a cut as the drive writes it.
pub(super) fn data_and_holes(drives: &Drives) -> Story {
    drives
        .story("alone: data and holes")
        .closing()
        .prepare(|stage| async move {
            lay(&stage.volume, 0..8).await?;
            stage.volume.trim(2 * EXTENT, 2 * EXTENT, Volatile).await?;
            stage.volume.flush().await
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.write(2 * EXTENT + 8192, 4096, Volatile).await?;
            volume.write(EXTENT + 512, 1024, Volatile).await?;
            volume.flush().await?;
            volume.trim(0, 2 * EXTENT, Volatile).await?;
            volume.write(10 * EXTENT - 4096, 8192, Volatile).await?;
            volume.write_zeroes(4 * EXTENT + 4096, 8192, ZeroMode::Deallocate, Volatile).await?;
            volume.flush().await?;
            volume.write(0, 4096, Volatile).await?;
            volume.trim(9 * EXTENT, EXTENT, Volatile).await?;
            volume.flush().await?;
            volume.write(5 * EXTENT, EXTENT, Volatile).await?;
            volume.read(0, 12 * EXTENT).await
        })
}

/// Holes only, so that nothing is under way that a drive may tear but pages of the map.
pub(super) fn holes(drives: &Drives) -> Story {
    drives
        .story("alone: holes")
        .ending_with_cut()
        .prepare(|stage| async move {
            for place in 0..7 {
                lay(&stage.volume, place * APART..place * APART + 4).await?;
            }
            Ok(())
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            for round in 0..3 {
                for place in 0..7 {
                    volume.trim((place * APART + round) * EXTENT, EXTENT, Volatile).await?;
                }
                volume.flush().await?;
            }
            volume.trim(3 * EXTENT, EXTENT, Volatile).await?;
            volume.read(0, 4 * EXTENT).await
        })
}

/// The fast drive has copies when it is lost.
pub(super) fn with_copies(drives: &Drives) -> Story {
    drives
        .story("a new fast drive: data, holes and copies")
        .about_opening()
        .prepare(|stage| async move {
            let volume = &stage.volume;
            lay(volume, 0..8).await?;
            let asked = io::Volume::cache(volume.volume(), 0, 4 * EXTENT).await;
            asked.map_err(crate::watched::Trouble::Refused)?;
            volume.trim(6 * EXTENT, EXTENT, Volatile).await?;
            idle(volume).await;
            Ok(())
        })
        .act(|stage| async move {
            let volume = &stage.volume;
            volume.read(0, 8 * EXTENT).await?;
            volume.write(4096, 4096, Volatile).await?;
            volume.write(6 * EXTENT, 4096, Volatile).await?;
            volume.flush().await?;
            let asked = io::Volume::cache(volume.volume(), 0, 4 * EXTENT).await;
            asked.map_err(crate::watched::Trouble::Refused)?;
            volume.trim(5 * EXTENT, EXTENT, Volatile).await?;
            idle(volume).await;
            volume.write(EXTENT, 4096, Volatile).await?;
            volume.flush().await
        })
}
