//! Does the damage, and decides whether what comes of it may.

use engine::{CheckReport, Engine, Error, Tier};
use io::{Io, Place, Volume};
use twin::{DriveId, Simulation};

use super::image::{Content, Image, Region, extents};
use super::rescue::{Rescued, rescue};
use super::{BLOCK_BYTES, Damage, SECTOR_BYTES};
use crate::recovery::{on, open};

/// What came of damage; all of these are right where they are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Everything was as before.
    Right,
    /// Opening was refused.
    Refused,
    /// One block could not be read, everything else was right.
    ReadError,
    /// The last record was taken for torn.
    Older,
    /// The damaged bytes of a home were returned.
    HomeChanged,
}

/// What came of damage, and what of the volume could be rescued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// What opening the volume came to.
    pub outcome: Outcome,
    /// What a rescue brought back; `None` when no damage was found.
    pub rescued: Option<Rescued>,
}

/// What was read of a volume: an extent's blocks, each with its bytes or an error.
pub(super) struct Seen {
    pub extents: Vec<(u64, Vec<Option<Vec<u8>>>)>,
    /// Extents that should hold nothing, and hold something.
    pub strangers: Vec<u64>,
}

/// Does `damage` to `image` and says what came of it.
///
/// # Errors
/// What came of it may not.
pub fn judge(image: &Image, damage: &Damage) -> Result<Verdict, String> {
    let simulation = Simulation::wake(&image.snapshot);
    let drives = simulation.drives();
    apply(image, damage, &simulation, &drives);
    let report = on(&simulation, |io, fast, slow| async move {
        engine::check(&io, &fast, &slow, &|_, _| ()).await
    });
    let sound = |report: &CheckReport| report.errors.is_empty() && report.repairable.is_empty();
    let rescued = match &report {
        Ok(report) if sound(report) => None,
        _ => rescue(image, damage, &simulation)?,
    };
    let counted = drives.iter().map(|drive| simulation.counters(*drive).writes).sum::<u64>();
    let session = on(&simulation, |io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await?;
        let seen = read_all(&io, &engine, image).await;
        let closed = engine.close().await;
        Ok::<_, Error>((seen, closed))
    });
    let (seen, closed) = match session {
        Ok(session) => session,
        Err(error) => {
            let now = drives.iter().map(|drive| simulation.counters(*drive).writes).sum::<u64>();
            if now != counted {
                return Err(format!("refused, but not without writing: {error}"));
            }
            let outcome = may_refuse(image, damage, &report, &error)?;
            if rescued.is_none() && !matches!(error, Error::Mismatch(_)) {
                return Err(format!("refused and cannot be rescued: {error}"));
            }
            return Ok(Verdict { outcome, rescued });
        }
    };
    let outcome = compare(image, damage, &seen)?;
    if let Err(error) = closed {
        // What cannot be read or is damaged cannot be moved either, but closing needs not move it.
        return Err(format!("opened and {outcome:?}, but closing failed: {error}"));
    }
    again(image, damage, &simulation, outcome)?;
    told(image, damage, outcome, &report)?;
    Ok(Verdict { outcome, rescued })
}

fn apply(image: &Image, damage: &Damage, simulation: &Simulation, drives: &[DriveId]) {
    let of = |tier: Tier| drives[tier.index()];
    match *damage {
        Damage::Byte(tier, at, pattern) => {
            simulation.poke(of(tier), at, &[pattern.of(image.byte(tier, at), at)]);
        }
        Damage::Sector(tier, at, fill) => {
            simulation.poke(of(tier), at, &[fill; SECTOR_BYTES as usize]);
        }
        Damage::Unreadable(tier, at) => simulation.set_unreadable(of(tier), at..at + SECTOR_BYTES),
        Damage::Swapped(tier, here, there) => {
            let [one, other] =
                [here, there].map(|at| simulation.peek(of(tier), at, BLOCK_BYTES as usize));
            simulation.poke(of(tier), here, &other);
            simulation.poke(of(tier), there, &one);
        }
        Damage::Stale(tier, at) => {
            let earlier = Simulation::wake(&image.earlier);
            let bytes = earlier.peek(earlier.drives()[tier.index()], at, BLOCK_BYTES as usize);
            simulation.poke(of(tier), at, &bytes);
        }
        Damage::Truncated(tier, bytes) => simulation.truncate(of(tier), bytes),
    }
}

/// The region that was hit, where there is one.
pub(super) fn region(image: &Image, damage: &Damage) -> Option<Region> {
    match *damage {
        Damage::Byte(tier, at, _) | Damage::Sector(tier, at, _) | Damage::Unreadable(tier, at) => {
            Some(image.region(tier, at))
        }
        Damage::Swapped(..) | Damage::Stale(..) | Damage::Truncated(..) => None,
    }
}

fn may_refuse(
    image: &Image,
    damage: &Damage,
    report: &Result<CheckReport, Error>,
    error: &Error,
) -> Result<Outcome, String> {
    let unreadable = matches!(damage, Damage::Unreadable(..));
    let may = match region(image, damage) {
        Some(Region::Header) => image.is_last_header(damage),
        // Whether the log goes on behind what cannot be read is not known.
        Some(Region::LastRecord) => unreadable,
        Some(_) => false,
        None => true,
    };
    let found = match report {
        Ok(report) => !report.errors.is_empty(),
        Err(_) => true,
    };
    match (may, found) {
        (true, true) => Ok(Outcome::Refused),
        (true, false) => Err(format!("refused, but check finds nothing: {error}")),
        (false, _) => Err(format!("refused: {error}")),
    }
}

pub(super) async fn read_all(io: &Io, engine: &Engine, image: &Image) -> Seen {
    let extent_bytes = image.geometry.extent_bytes;
    let named = extents(image);
    let mut strangers = Vec::new();
    let size = engine.info().size_bytes;
    let mut at = 0;
    while at < size {
        let spans = engine.places(at, size - at, 1024);
        for span in &spans {
            let last = (at + span.length - 1) / extent_bytes;
            if !matches!(span.place, Place::Hole | Place::Lost) {
                strangers.extend((at / extent_bytes..=last).filter(|x| !named.contains(x)));
            }
            at += span.length;
        }
    }
    let mut extents = Vec::new();
    for extent in named {
        let start = extent * extent_bytes;
        let (buf, outcome) = engine.read(start, io.pool().take(extent_bytes as usize)).await;
        let mut blocks = Vec::new();
        for (n, block) in (0..).zip(buf.chunks_exact(BLOCK_BYTES as usize)) {
            blocks.push(if outcome.is_ok() {
                Some(block.to_vec())
            } else {
                let at = start + n * BLOCK_BYTES;
                let (buf, outcome) = engine.read(at, io.pool().take(BLOCK_BYTES as usize)).await;
                outcome.is_ok().then(|| buf.to_vec())
            });
        }
        extents.push((extent, blocks));
    }
    Seen { extents, strangers }
}

/// Differences between what was seen and what should be: blocks that could not be read, and bytes
/// that are others, with their extents and offsets there.
fn differences(seen: &Seen, content: &Content, extent_bytes: u64) -> (u64, Vec<(u64, u64, u8)>) {
    let mut unread = 0;
    let mut wrong = Vec::new();
    let nothing = vec![0; extent_bytes as usize];
    for (extent, blocks) in &seen.extents {
        let right = content.get(extent).unwrap_or(&nothing);
        for (n, (block, right)) in
            blocks.iter().zip(right.chunks_exact(BLOCK_BYTES as usize)).enumerate()
        {
            match block {
                None => unread += 1,
                Some(block) if block == right => {}
                Some(block) => {
                    let offset = n as u64 * BLOCK_BYTES;
                    let bytes = (offset..).zip(block.iter().zip(right));
                    let others = bytes.filter(|(_, (is, should))| is != should);
                    wrong.extend(others.map(|(offset, (is, _))| (*extent, offset, *is)));
                }
            }
        }
    }
    (unread, wrong)
}

fn compare(image: &Image, damage: &Damage, seen: &Seen) -> Result<Outcome, String> {
    let extent_bytes = image.geometry.extent_bytes;
    let region = region(image, damage);
    let (unread, wrong) = differences(seen, &image.content, extent_bytes);
    if !seen.strangers.is_empty() {
        return Err(format!("extents {:?} are not holes", seen.strangers));
    }
    if unread == 0 && wrong.is_empty() {
        return match region {
            Some(Region::LastRecord) => Err("a damaged record was believed".into()),
            _ => Ok(Outcome::Right),
        };
    }
    if wrong.is_empty() && unread <= 1 {
        return match (region, damage) {
            // What cannot be read of the last record was written once: it may not pass for torn.
            (Some(Region::LogData) | None, _)
            | (Some(Region::Home | Region::LastRecord), Damage::Unreadable(..)) => {
                Ok(Outcome::ReadError)
            }
            _ => Err(format!("{unread} blocks cannot be read")),
        };
    }
    // A block that was swapped or is stale may be the last record's.
    if matches!(region, Some(Region::LastRecord) | None)
        && differences(seen, &image.before, extent_bytes) == (0, Vec::new())
    {
        return Ok(Outcome::Older);
    }
    // Two blocks that changed places may be of the last record and of an earlier one.
    if region.is_none() && differences(seen, &image.before, extent_bytes).1.is_empty() {
        return Ok(Outcome::ReadError);
    }
    if region == Some(Region::Home) && unread == 0 && is_the_damage(image, damage, &wrong) {
        return Ok(Outcome::HomeChanged);
    }
    if region.is_none() && wrong.is_empty() {
        return Ok(Outcome::ReadError);
    }
    let (extent, offset, is) = wrong.first().copied().unwrap_or_default();
    Err(format!(
        "WRONG DATA: {} bytes, the first in extent {extent} at {offset}: {is:#x}; {unread} blocks \
         cannot be read",
        wrong.len()
    ))
}

/// Whether the wrong bytes are those that were damaged in a home, and no others.
fn is_the_damage(image: &Image, damage: &Damage, wrong: &[(u64, u64, u8)]) -> bool {
    let (tier, at, length) = match *damage {
        Damage::Byte(tier, at, _) => (tier, at, 1),
        Damage::Sector(tier, at, _) => (tier, at, SECTOR_BYTES),
        _ => return false,
    };
    let layout = &image.geometry.layouts[tier.index()];
    let offset = (at - layout.slots_at) % image.geometry.extent_bytes;
    let one_extent = wrong.windows(2).all(|two| two[0].0 == two[1].0);
    one_extent
        && wrong.iter().all(|(_, place, is)| {
            let damaged = match *damage {
                Damage::Byte(tier, at, pattern) => pattern.of(image.byte(tier, at), at),
                Damage::Sector(_, _, fill) => fill,
                _ => return false,
            };
            (offset..offset + length).contains(place) && *is == damaged
        })
}

/// Opens a second time: what was right stays right, and what was repaired is repaired.
fn again(
    image: &Image,
    damage: &Damage,
    simulation: &Simulation,
    outcome: Outcome,
) -> Result<(), String> {
    if !matches!(outcome, Outcome::Right | Outcome::Older) {
        return Ok(());
    }
    let seen = on(simulation, |io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await?;
        Ok::<_, Error>(read_all(&io, &engine, image).await)
    });
    let seen = seen.map_err(|error| format!("{outcome:?}, but not opened again: {error}"))?;
    let content = if outcome == Outcome::Right { &image.content } else { &image.before };
    let (unread, wrong) = differences(&seen, content, image.geometry.extent_bytes);
    let home = region(image, damage) == Some(Region::Home);
    if (unread > 0 || !wrong.is_empty()) && !home {
        return Err(format!("{outcome:?} at first, and not the second time"));
    }
    Ok(())
}

/// Damage to metadata in use is told by `check`, as what it is.
fn told(
    image: &Image,
    damage: &Damage,
    outcome: Outcome,
    report: &Result<CheckReport, Error>,
) -> Result<(), String> {
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            return match damage {
                // Reading the drive fails where it is unreadable; `check` says so and ends.
                Damage::Unreadable(..) => Ok(()),
                _ => Err(format!("{outcome:?}, but check failed: {error}")),
            };
        }
    };
    // A sector of zeros may make an older copy look as if it had never been written.
    let blanked = matches!(damage, Damage::Sector(_, _, 0));
    let told = match region(image, damage) {
        Some(Region::Map) if blanked => report.errors.is_empty(),
        Some(Region::Superblock | Region::Map | Region::Header) => {
            !report.repairable.is_empty() && report.errors.is_empty()
        }
        Some(Region::LogData) => !report.errors.is_empty() || outcome == Outcome::Right,
        Some(Region::LastRecord) => report.errors.is_empty() == (outcome != Outcome::ReadError),
        Some(Region::Unused | Region::Home) => report.errors.is_empty(),
        _ => true,
    };
    if told {
        return Ok(());
    }
    Err(format!(
        "{outcome:?}, and check tells errors {:?}, repairable {:?}",
        report.errors, report.repairable
    ))
}
