//! Bringing a volume up from what is on its drives: load the map pages, replay the log.
//!
//! Where the log ends: at the first place that holds no record of this log, or a record whose data
//! or allocation did not arrive completely *and* that nobody claimed to be durable. What was
//! claimed durable and is damaged is no end but damage, and is reported, never skipped in silence.

mod loading;
mod replay;
mod verify;

use std::collections::BTreeSet;

use io::Io;

use crate::address::{ExtentId, Lsn, Tier};
use crate::canary::canary;
use crate::doubts;
use crate::drive::Drive;
use crate::error::Error;
use crate::format::map_page::{ENTRIES_PER_PAGE, Residence};
use crate::format::superblock::{State as Left, Superblock};
use crate::log::Log;
use crate::marks::{self, Mark};
use crate::rescue::{self, Rescue};
use crate::state::State;

use loading::load_map;
use replay::replay;
use verify::verify;

/// The drives and superblock a volume is brought up from.
pub(crate) struct Source<'a> {
    pub io: &'a Io,
    pub fast: &'a Drive,
    pub slow: &'a Drive,
    /// The fast drive's, or the slow one's if that is all there is.
    pub superblock: &'a Superblock,
    /// The slow drive keeps a doubt page.
    pub doubt_page: bool,
    /// Damage refuses nothing: what cannot be proven then counts as lost (`rescue.rs`).
    pub rescue: bool,
}

impl Source<'_> {
    /// Class cache in write-through: all that was flushed is on the slow drive.
    fn is_through(&self) -> bool {
        self.superblock.brings_home()
    }

    /// The drive that is there, if one is gone.
    fn survivor(&self) -> Option<&Drive> {
        match (self.fast.gone(), self.slow.gone()) {
            (None, None) => None,
            (None, Some(_)) => Some(self.fast),
            (Some(_), _) => Some(self.slow),
        }
    }

    /// Where the log ends, if the volume was closed in order: nothing was appended since.
    fn known_end(&self) -> Option<Lsn> {
        (self.superblock.state == Left::Clean).then_some(self.superblock.log_durable)
    }
}

enum Attempt {
    Done(Box<State>),
    /// The record at this LSN has lost its data: the log ends before it.
    EndsAt(Lsn),
}

/// Brings the state up. Changes nothing on the drives.
///
/// # Errors
/// `Error::Damaged` when metadata is beyond repair, or a device's error.
pub(crate) async fn recover(source: &Source<'_>) -> Result<State, Error> {
    let mut end = None;
    loop {
        match attempt(source, end).await? {
            Attempt::Done(state) => return Ok(*state),
            Attempt::EndsAt(lsn) => {
                marks::hit(Mark::FreshDropped);
                end = Some(lsn);
            }
        }
    }
}

async fn attempt(source: &Source<'_>, stop_at: Option<Lsn>) -> Result<Attempt, Error> {
    let superblock = source.superblock;
    let geometry = &superblock.geometry;
    let layout = &geometry.layouts[0];
    let tag = superblock.volume_tag();
    let log = Log::new(geometry.ring_blocks(), layout.log_at, tag, superblock.log_tail);
    let in_place = [source.fast, source.slow].map(Drive::writes_blocks_atomically);
    let mut state = State::new(geometry, superblock.entry_form(), log, in_place);
    state.rescue = source.rescue.then(|| Box::new(Rescue::new(geometry.extents())));
    for drive in [source.fast, source.slow] {
        if let Some(why) = drive.gone() {
            state.loss.get_or_insert_default().add(drive.tier(), why);
        }
    }
    if source.doubt_page {
        doubts::read(source.io, source.slow, &mut state.doubts, tag).await;
    }
    let page_lsns = load_map(source, &mut state).await?;
    if source.fast.gone().is_some() {
        if source.is_through() {
            let newest = page_lsns.iter().max().map_or(0, |lsn| lsn.0);
            trust_homes(&mut state, Lsn(newest.max(superblock.log_durable.0) + 1));
        } else {
            trust_slow_drive(&mut state);
        }
        rescue::settle(&mut state);
        return Ok(Attempt::Done(Box::new(state)));
    }
    if page_lsns.iter().any(|lsn| *lsn > superblock.log_durable) {
        marks::hit(Mark::CheckpointWasCut);
    }
    let (pending, bytes) = replay(source, &mut state, &page_lsns, stop_at).await?;
    state.recovery.log_bytes = bytes;
    // A page is written only when all it holds is durable in the log.
    if !source.rescue
        && !canary!(PageAheadAccepted)
        && let Some(ahead) = page_lsns.iter().position(|lsn| *lsn > state.log.end())
    {
        return Err(Error::Damaged(format!(
            "map page {ahead} knows of changes up to {}, but the landing log on {} ends at {}: \
             durable records are gone. Nothing was changed; restore an image of the drive if there \
             is one",
            page_lsns[ahead],
            source.fast.info().path,
            state.log.end()
        )));
    }
    if let Some(lsn) = verify(source, &mut state, pending).await? {
        return Ok(Attempt::EndsAt(lsn));
    }
    state.recovery.blocks_damaged += state.log.lost_blocks();
    if source.rescue {
        rescue::claim_slots(&mut state);
    } else {
        claim_slots(&mut state, &page_lsns)?;
    }
    rescue::settle(&mut state);
    Ok(Attempt::Done(Box::new(state)))
}

/// The fast drive is gone, and everything is at home: nothing is missing.
fn trust_homes(state: &mut State, lsn: Lsn) {
    for extent in (0..state.map.extents()).map(ExtentId) {
        if state.map.get(extent).is_clean() {
            let own = state.geometry.own_slot(extent);
            state.map.load(extent, Residence::at(own));
        }
    }
    state.begin_alone(lsn);
}

/// The fast drive is gone, and with it the log. What the slow drive's map says is the truth only
/// where it carries no mark of doubt, and where what it says can be.
fn trust_slow_drive(state: &mut State) {
    let extents = state.map.extents();
    let mut loss = state.loss.clone().unwrap_or_default();
    let mut impossible = BTreeSet::new();
    for extent in (0..extents).map(ExtentId) {
        if state.doubts.is_marked(extent) && !canary!(DoubtsUnheard) {
            loss.mark_unknown(extent, extents);
        } else if let Some(home) = state.readable_home(extent)
            && home.tier == Tier::Slow
            && !state.slots[Tier::Slow.index()].claim(home.slot)
        {
            impossible.insert(home);
        }
    }
    if !impossible.is_empty() {
        // One slot of two extents, or none at all: then neither extent is believed.
        for extent in (0..extents).map(ExtentId) {
            if state.readable_home(extent).is_some_and(|home| impossible.contains(&home)) {
                loss.mark_unknown(extent, extents);
            }
        }
    }
    state.loss = Some(loss);
}

/// Marks the slots in use. Two extents in one slot, or a slot outside the drive, is damage.
/// Pages that were never written and not replayed into hold holes only, and are passed over.
fn claim_slots(state: &mut State, page_lsns: &[Lsn]) -> Result<(), Error> {
    for (page, lsn) in (0..).zip(page_lsns) {
        if *lsn == Lsn(0) && !state.map.is_dirty(page) {
            continue;
        }
        let first = page * ENTRIES_PER_PAGE as u64;
        let end = (first + ENTRIES_PER_PAGE as u64).min(state.map.extents());
        for extent in (first..end).map(ExtentId) {
            for home in state.owned_by(extent).into_iter().flatten() {
                if !state.slots[home.tier.index()].claim(home.slot) {
                    return Err(Error::Damaged(format!(
                        "extent {} is mapped to slot {} of the {} drive, which does not exist or \
                         belongs to another extent. Nothing was changed",
                        extent.0, home.slot.0, home.tier
                    )));
                }
            }
        }
    }
    Ok(())
}
