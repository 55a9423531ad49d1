//! Rescues what it can of a damaged volume, and holds that nothing of it is wrong.

use engine::{Engine, Error, OpenOptions};
use io::{Io, Volume};
use twin::{DriveCounters, Simulation};

use super::image::{Image, Region};
use super::judge::{Seen, read_all, region};
use super::{BLOCK_BYTES, Damage, SECTOR_BYTES};
use crate::recovery::on;

/// Ranges of the list that are tried.
const LISTED_MAX: usize = 64;

/// What a rescue brought back, in blocks that hold data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rescued {
    /// They came back.
    pub right: u64,
    /// There were so many.
    pub all: u64,
}

/// Opens the volume to be rescued, reads it, and judges what was given. `None`: the drives do not
/// belong together.
///
/// # Errors
/// It was refused, something was written, or something was given that is neither right nor an error.
pub(super) fn rescue(
    image: &Image,
    damage: &Damage,
    simulation: &Simulation,
) -> Result<Option<Rescued>, String> {
    let counted = written(simulation);
    let opened = on(simulation, |io, fast, slow| async move {
        let options = OpenOptions { rescue: true, ..OpenOptions::default() };
        let engine = Engine::open(&io, &fast, &slow, options).await?;
        let seen = read_all(&io, &engine, image).await;
        Ok::<_, Error>((seen, listed(&io, &engine).await, engine.close().await))
    });
    if written(simulation) != counted {
        return Err("a rescue wrote to the drives".into());
    }
    let (seen, listed, closed) = match opened {
        Ok(opened) => opened,
        Err(Error::Mismatch(_)) => return Ok(None),
        Err(error) => return Err(format!("a rescue was refused: {error}")),
    };
    closed.map_err(|error| format!("closing after a rescue failed: {error}"))?;
    listed?;
    if !seen.strangers.is_empty() {
        return Err(format!("rescued extents {:?} are not holes", seen.strangers));
    }
    compare(image, damage, &seen).map(Some)
}

fn written(simulation: &Simulation) -> Vec<(u64, u64)> {
    let use_of = |counters: DriveCounters| (counters.writes, counters.flushes);
    simulation.drives().iter().map(|drive| use_of(simulation.counters(*drive))).collect()
}

/// What is listed as lost cannot be read.
async fn listed(io: &Io, engine: &Engine) -> Result<(), String> {
    let size = engine.info().size_bytes;
    for range in engine.lost_ranges(0, size).iter().take(LISTED_MAX) {
        let (_, outcome) = engine.read(range.at, io.pool().take(SECTOR_BYTES as usize)).await;
        if outcome.is_ok() {
            return Err(format!("{range:?} is listed as lost and can be read"));
        }
    }
    Ok(())
}

/// Every block that was given is right. Of the last record nothing says that it was durable: where
/// it was hit, the volume may be as it was before. A home has no checksum.
fn compare(image: &Image, damage: &Damage, seen: &Seen) -> Result<Rescued, String> {
    let region = region(image, damage);
    let maybe_older = matches!(region, Some(Region::LastRecord) | None);
    let extent_bytes = image.geometry.extent_bytes as usize;
    let nothing = vec![0; extent_bytes];
    let mut rescued = Rescued { right: 0, all: 0 };
    for (extent, blocks) in &seen.extents {
        let [right, before] =
            [&image.content, &image.before].map(|content| content.get(extent).unwrap_or(&nothing));
        for (n, block) in blocks.iter().enumerate() {
            let place = n * BLOCK_BYTES as usize..(n + 1) * BLOCK_BYTES as usize;
            let (right, before) = (&right[place.clone()], &before[place]);
            let holds_data = right.iter().any(|byte| *byte != 0);
            rescued.all += u64::from(holds_data);
            let Some(block) = block else { continue };
            rescued.right += u64::from(holds_data && block == right);
            let older = maybe_older && block == before;
            if block != right && !older && region != Some(Region::Home) {
                return Err(format!("WRONG DATA RESCUED: extent {extent}, block {n}"));
            }
        }
    }
    Ok(rescued)
}
