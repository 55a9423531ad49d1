//! Where data is now, and what it is worth: what doors and people may ask.

use io::units::SECOND_NS;
use io::{Place, Span, Worth};

use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Tier};
use crate::alone;
use crate::log::Logged;
use crate::shared::Shared;
use crate::state::State;
use crate::wishes::Wish;

/// `Worth::heat` of one read.
const HEAT_STEPS: f64 = 16.0;

/// What the volume thinks of an extent.
#[derive(Debug, Clone, PartialEq)]
pub struct Opinion {
    /// Its first byte in the volume.
    pub at: u64,
    /// Where it lives; what the landing log has of it is apart from that.
    pub home: Place,
    /// Some of it is in the landing log.
    pub in_log: bool,
    /// How often it was read lately; older reads count less.
    pub count: f64,
    /// The time of the slow drive (ms) that these reads take there.
    pub saved_ms: f64,
    /// Whole seconds since it was asked for last; `None`: not lately, or not since the volume was opened.
    pub asked_s_ago: Option<u64>,
    /// What somebody wishes for it.
    pub wish: Option<Wish>,
    /// The last decision about it, as part of a sentence, and whole seconds since then; `None`: none that is
    /// remembered.
    pub verdict: Option<(&'static str, u64)>,
}

/// A piece of an extent, from somewhere in it.
struct Piece {
    place: Place,
    dirty: bool,
    extent: ExtentId,
    /// Where it ends in the volume, at most.
    end: u64,
}

/// The range as runs in one place, at most `spans_max` of them (at least one).
pub(crate) fn places(shared: &Shared, at: u64, length: u64, spans_max: usize) -> Vec<Span> {
    let state = shared.state.borrow();
    let end = at.saturating_add(length).min(shared.geometry.volume_bytes);
    let mut spans: Vec<Span> = Vec::new();
    let mut cursor = at;
    while cursor < end {
        let Piece { place, end: piece_end, .. } = piece(shared, &state, cursor);
        let length = piece_end.min(end) - cursor;
        let full = spans.len() == spans_max.max(1);
        match spans.last_mut() {
            Some(last) if last.place == place => last.length += length,
            _ if full => break,
            _ => spans.push(Span { length, place }),
        }
        cursor += length;
    }
    spans
}

/// The range as runs of one worth, at most `runs_max` of them (at least one).
pub(crate) fn worths(shared: &Shared, at: u64, length: u64, runs_max: usize) -> Vec<Worth> {
    let state = shared.state.borrow();
    let end = at.saturating_add(length).min(shared.geometry.volume_bytes);
    let mut runs: Vec<Worth> = Vec::new();
    let mut cursor = at;
    while cursor < end {
        let Piece { dirty, extent, end: piece_end, .. } = piece(shared, &state, cursor);
        let length = piece_end.min(end) - cursor;
        let heat = (state.placer.count(extent) * HEAT_STEPS).round() as u32;
        let full = runs.len() == runs_max.max(1);
        match runs.last_mut() {
            Some(last) if last.dirty == dirty && last.heat == heat => last.length += length,
            _ if full => break,
            _ => runs.push(Worth { length, dirty, heat }),
        }
        cursor += length;
    }
    runs
}

fn piece(shared: &Shared, state: &State, at: u64) -> Piece {
    let known = piece_of_drives(shared, state, at);
    let extent_bytes = shared.geometry.extent_bytes;
    let extent_at = at - at % extent_bytes;
    let behind = &state.behind;
    if !behind.overlaps(extent_at, extent_bytes) && !behind.is_lost(extent_at, extent_bytes) {
        return known;
    }
    // What was acknowledged and is on no drive yet, or never will be: the map knows nothing of it.
    let block_at = at - at % BLOCK_BYTES;
    let end = known.end.min(block_at + BLOCK_BYTES);
    if behind.is_lost(block_at, BLOCK_BYTES) {
        return Piece { place: Place::Lost, dirty: false, end, ..known };
    }
    match behind.overlaps(block_at, BLOCK_BYTES) {
        true => Piece { place: Place::Log, dirty: true, end, ..known },
        false => Piece { end, ..known },
    }
}

/// As far as the map and the log tell.
fn piece_of_drives(shared: &Shared, state: &State, at: u64) -> Piece {
    let extent = state.extent_of(at);
    let mapping = state.map.get(extent);
    let home = home_of(state, extent);
    let home_dirty = home == Place::Fast && !mapping.is_current_on_slow();
    let block = BlockId(at / BLOCK_BYTES);
    let (home, home_dirty) = match mapping.part() {
        Some((part, _))
            if home == Place::Fast && !part.has(block.0 % state.geometry.extent_blocks()) =>
        {
            (Place::Slow, false)
        }
        Some(_) | None => (home, home_dirty),
    };
    if !mapping.in_log() {
        let extents_end = (extent.0 + 1) * shared.geometry.extent_bytes;
        let end = if mapping.part().is_some() { (block.0 + 1) * BLOCK_BYTES } else { extents_end };
        return Piece { place: home, dirty: home_dirty, extent, end };
    }
    let (place, dirty) = match state.log.lookup(block) {
        Some(Logged::Lost { .. }) => (Place::Lost, false),
        Some(Logged::Data { .. }) if state.is_gone(Tier::Fast) && !alone::is_kept(state, block) => {
            (Place::Lost, false)
        }
        Some(Logged::Data { .. }) => (Place::Log, true),
        Some(Logged::Zero { .. }) => (Place::Hole, true),
        None => (home, home_dirty),
    };
    Piece { place, dirty, extent, end: (block.0 + 1) * BLOCK_BYTES }
}

/// Of each extent of the range.
pub(crate) fn opinions(shared: &Shared, at: u64, length: u64) -> Vec<Opinion> {
    let state = shared.state.borrow();
    let now_ns = shared.io.now_ns();
    let extent_bytes = shared.geometry.extent_bytes;
    let end = at.saturating_add(length).min(shared.geometry.volume_bytes);
    (at / extent_bytes..end.div_ceil(extent_bytes))
        .map(|extent| {
            let extent = ExtentId(extent);
            let heat = &state.placer.heat;
            let verdict = heat.verdicts.last(extent).map(|(clock_s, verdict)| {
                (verdict.words(), (now_ns / SECOND_NS).saturating_sub(u64::from(clock_s)))
            });
            Opinion {
                at: extent.0 * extent_bytes,
                home: home_of(&state, extent),
                in_log: state.map.get(extent).in_log(),
                count: heat.count(extent),
                saved_ms: heat.saved_ms(extent),
                asked_s_ago: state.placer.asked_s_ago(extent, now_ns),
                wish: state.wishes.of(extent),
                verdict,
            }
        })
        .collect()
}

fn home_of(state: &State, extent: ExtentId) -> Place {
    match (state.loss_at_home(extent), state.map.get(extent).home().map(|home| home.tier)) {
        (Some(_), _) => Place::Lost,
        (None, None) => Place::Hole,
        (None, Some(Tier::Fast)) => Place::Fast,
        (None, Some(Tier::Slow)) => Place::Slow,
    }
}
