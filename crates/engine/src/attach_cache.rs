//! Class cache: a new, empty fast drive for a volume that has lost its own.
//!
//! The slow drive has everything (write-through). Order, and what it is good for: the slow drive says
//! that it goes on alone, so that the old fast drive is refused from then on, with the right words; the new
//! drive is made while it still counts as half-made; the map on the slow drive forgets copies on the old
//! one, which tells nothing wrong at any moment; then the new drive is whole, a generation on, and the
//! slow drive takes it as its partner last. Until then the slow drive goes on alone, and doing it again does it.

use io::units::MIB;
use io::{Device, DeviceInfo, Io};

use crate::address::{ExtentId, Tier};
use crate::canary::canary;
use crate::drive::Drive;
use crate::error::Error;
use crate::format::map_page::{ENTRIES_PER_PAGE, PAGE_BYTES, encode};
use crate::format::superblock::{COPY_POSITIONS, State as Left, Superblock, Uuid};
use crate::geometry::{Class, CreateOptions, Geometry, plan};
use crate::loss::Loss;
use crate::recover::{Source, recover};
use crate::state::State;
use crate::superblocks::{self, Shorter, judge_alone};

/// The map area is zeroed in pieces of this size.
const ZERO_STEP_BYTES: u64 = 64 * MIB;

/// Makes `fast` the empty cache of the volume whose slow drive is `slow`; what `fast` held is lost.
/// The volume must not be open.
///
/// # Errors
/// `Unsuitable` when the slow drive does not have everything, `Geometry` when the new drive is too
/// small; then nothing was changed. Or a device's error.
pub async fn attach_cache(io: &Io, fast: &Device, slow: &Device) -> Result<Geometry, Error> {
    let found = superblocks::read(io, slow).await?;
    let stale = found.as_ref().map_or(0, |found| found.stale_copy);
    let [old, _] = judge_alone(Tier::Slow, slow, found, Shorter::Refused)?;
    can_attach_cache(&old)?;
    let geometry = with_new_fast(&old, fast.info(), slow.info())?;
    let slow_drive = Drive::new(Tier::Slow, slow.clone(), stale);
    let lost = Drive::absent(Tier::Fast, "the lost drive".into(), "it is replaced".into());
    let doubt_page = old.has_doubt_page();
    let source =
        Source { io, fast: &lost, slow: &slow_drive, superblock: &old, doubt_page, rescue: false };
    let state = recover(&source).await?;
    let knows_all = state.loss.as_ref().is_none_or(Loss::knows_all);
    if !knows_all || state.map.on_fast_alone() > 0 {
        return Err(Error::Unsuitable(format!(
            "the slow drive {} of '{}' does not know where everything is: a part of its map is damaged, and a new \
             fast drive would make it look empty. Nothing was changed; 'bimetal lost {}' lists what it is, and \
             'bimetal serve {} --degraded' serves the rest",
            slow.info().path,
            old.name,
            old.name,
            old.name
        )));
    }
    let old = alone(io, &slow_drive, old).await?;
    let end = state.alone_end();
    let mut new = Superblock {
        generation: old.generation + 1,
        session: io.random(),
        sequence: old.sequence + 1,
        geometry: geometry.clone(),
        drive_ids: [Uuid::from_random(io.random(), io.random()), old.drive_ids[1]],
        state: Left::Creating,
        alone: false,
        in_parts: geometry.fits_parts(),
        log_tail: end,
        log_session_start: end,
        log_durable: end,
        role: Tier::Fast,
        ..old.clone()
    };
    let fast_drive = Drive::new(Tier::Fast, fast.clone(), 0);
    superblocks::write(io, &fast_drive, &new).await?;
    blank(io, fast, &geometry).await?;
    if !canary!(AttachKeepsCopies) {
        forget_copies(io, &slow_drive, &state, old.volume_tag()).await?;
    }
    new.state = Left::Clean;
    new.sequence += 1;
    superblocks::write(io, &fast_drive, &new).await?;
    new.role = Tier::Slow;
    superblocks::write(io, &slow_drive, &new).await?;
    Ok(geometry)
}

/// Has the slow drive say that it goes on without the fast one, if it does not say so yet.
async fn alone(io: &Io, slow: &Drive, old: Superblock) -> Result<Superblock, Error> {
    if old.alone || canary!(AttachUntold) {
        return Ok(old);
    }
    let (generation, sequence) = (old.generation + 1, old.sequence + 1);
    let told = Superblock { generation, sequence, session: io.random(), alone: true, ..old };
    superblocks::write(io, slow, &told).await?;
    Ok(told)
}

/// Says whether the volume of this slow drive can be given an empty fast drive.
///
/// # Errors
/// `Unsuitable` with what the lost drive had.
pub fn can_attach_cache(old: &Superblock) -> Result<(), Error> {
    let refuse = |text: String| Err(Error::Unsuitable(text));
    let name = &old.name;
    if old.geometry.class != Class::Cache {
        return refuse(format!(
            "'{name}' is of class span: what its fast drive held is lost with it"
        ));
    }
    if !old.brings_home() {
        return refuse(format!(
            "'{name}' was in write-back: its fast drive has data that is nowhere else. Bring it \
             back; 'bimetal lost {name}' lists what is missing without it, and 'bimetal serve \
             {name} --degraded' serves the rest"
        ));
    }
    Ok(())
}

/// The volume's shape with a new fast drive like this.
///
/// # Errors
/// `Geometry` when it is too small.
pub fn with_new_fast(
    old: &Superblock,
    fast: &DeviceInfo,
    slow: &DeviceInfo,
) -> Result<Geometry, Error> {
    let options = CreateOptions {
        class: Class::Cache,
        extent_bytes: old.geometry.extent_bytes,
        ..CreateOptions::new(old.name.clone())
    };
    let planned = plan(fast, slow, &options)?;
    let layouts = [planned.layouts[0], old.geometry.layouts[1]];
    let geometry = Geometry { layouts, ..old.geometry.clone() };
    match geometry.problem() {
        Some(problem) => Err(Error::Geometry(problem)),
        None => Ok(geometry),
    }
}

/// Blank map pages on the new drive: the slow drive's are newer, and opening copies them.
async fn blank(io: &Io, fast: &Device, geometry: &Geometry) -> Result<(), Error> {
    let layout = geometry.layouts[Tier::Fast.index()];
    let end = layout.map_at + layout.map_bytes;
    let mut at = layout.map_at;
    while at < end {
        let length = ZERO_STEP_BYTES.min(end - at);
        fast.write_zeroes(at, length).await?;
        at += length;
    }
    // No foreign signature may survive there.
    fast.write(0, io.pool().take_zeroed(COPY_POSITIONS[0] as usize)).await.1?;
    fast.flush().await?;
    Ok(())
}

/// Writes the slow drive's map pages, both copies, without any copies on a fast drive: every extent
/// is at home, or a hole.
async fn forget_copies(io: &Io, slow: &Drive, state: &State, tag: u64) -> Result<(), Error> {
    let mut entries = Vec::new();
    for page in 0..state.geometry.map_pages() {
        let first = page * ENTRIES_PER_PAGE as u64;
        let last = (first + ENTRIES_PER_PAGE as u64).min(state.map.extents());
        if (first..last).all(|extent| state.map.get(ExtentId(extent)).home().is_none()) {
            continue;
        }
        state.map.page_entries(page, &mut entries);
        for copy in [state.map.older_copy(page), 1 - state.map.older_copy(page)] {
            let mut buf = io.pool().take(PAGE_BYTES);
            encode(&mut buf, tag, page, state.alone_end(), &entries);
            let at = state.geometry.map_page_position(Tier::Slow, page, copy);
            slow.write(at, buf).await.1?;
            slow.flush().await?;
        }
    }
    Ok(())
}
