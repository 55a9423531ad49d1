//! What is lost while a drive is gone, or of a damaged volume: the answer to "may this be read?".
//!
//! * What lives on the drive that is gone cannot be read.
//! * What is *unknown* could be read from what is left, but might be older than what was
//!   acknowledged: then it counts as lost. Never is old data given for current data.
//! * Nothing is written meanwhile, so that nothing has diverged when a drive returns.

use std::fmt;
use std::ops::Range;

use crate::address::{BLOCK_BYTES, ExtentId, Tier};
use crate::log::Logged;
use crate::map::Mapping;
use crate::state::State;

/// Why a range cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LossCause {
    /// It lived on the drive that is gone, or its newest version did.
    LivedThere,
    /// There is a version of it, but what is gone or damaged may have had a newer one.
    MaybeNewer,
    /// No data is known here, but what is gone or damaged may have had some.
    MaybeWritten,
    /// The newest version lay in the landing log and is damaged there.
    Damaged,
}

/// A range of the volume that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostRange {
    /// Byte offset in the volume.
    pub at: u64,
    /// Bytes.
    pub length: u64,
    /// Why.
    pub cause: LossCause,
}

/// How much cannot be read, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LossSummary {
    /// What is wrong with the fast and the slow drive; `None` for one that is well.
    pub gone: [Option<String>; 2],
    /// What else is damaged beyond repair, a sentence each.
    pub damage: Vec<String>,
    /// Bytes that can be read and hold data.
    pub readable_bytes: u64,
    /// Bytes that lived on the drive that is gone.
    pub lost_bytes: u64,
    /// Bytes of which there is a version that may be too old.
    pub maybe_newer_bytes: u64,
    /// Bytes of which nobody knows whether they held data.
    pub maybe_written_bytes: u64,
    /// Bytes whose newest version is damaged.
    pub damaged_bytes: u64,
}

impl fmt::Display for LossSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let human = io::units::human_bytes;
        write!(f, "{} of data can be read", human(self.readable_bytes))?;
        let place = match &self.gone {
            [Some(_), _] => "on the fast drive",
            [_, Some(_)] => "on the slow drive",
            [None, None] => "in what is damaged",
        };
        if self.lost_bytes > 0 {
            write!(f, ", {} lived {place} and is lost", human(self.lost_bytes))?;
        }
        if self.maybe_newer_bytes > 0 {
            let bytes = human(self.maybe_newer_bytes);
            write!(f, ", {bytes} may have been newer {place} and counts as lost")?;
        }
        if self.maybe_written_bytes > 0 {
            let bytes = human(self.maybe_written_bytes);
            write!(f, ", {bytes} in which nothing is known may have been written {place}")?;
        }
        if self.damaged_bytes > 0 {
            write!(f, ", {} is damaged in the landing log", human(self.damaged_bytes))?;
        }
        Ok(())
    }
}

/// Tells the pieces of some extents in order: offset, bytes, whether they hold data, and why they
/// cannot be read.
fn visit_pieces(
    state: &State,
    extents: Range<u64>,
    mut visit: impl FnMut(u64, u64, bool, Option<LossCause>),
) {
    let extent_bytes = state.geometry.extent_bytes;
    for extent in extents.map(ExtentId) {
        let mapping = state.map.get(extent);
        let at_home = (mapping.home().is_some(), state.loss_at_home(extent));
        if !mapping.in_log() {
            visit(extent.0 * extent_bytes, extent_bytes, at_home.0, at_home.1);
            continue;
        }
        for block in state.blocks_of(extent) {
            let (data, cause) = match state.log.lookup(block) {
                None => at_home,
                Some(Logged::Zero { .. }) => (false, None),
                Some(Logged::Lost { .. }) => (true, Some(LossCause::Damaged)),
                Some(Logged::Data { .. })
                    if state.is_gone(Tier::Fast) && state.kept.get(block).is_none() =>
                {
                    (true, Some(LossCause::LivedThere))
                }
                Some(Logged::Data { .. }) => (true, None),
            };
            visit(block.0 * BLOCK_BYTES, BLOCK_BYTES, data, cause);
        }
    }
}

/// How much is lost now.
pub(crate) fn summarize(state: &State) -> LossSummary {
    let mut summary = LossSummary::default();
    if let Some(loss) = &state.loss {
        summary.gone.clone_from(&loss.gone);
        summary.damage.clone_from(&loss.damage);
    }
    visit_pieces(state, 0..state.map.extents(), |_, bytes, data, cause| {
        let sum = match cause {
            None if data => &mut summary.readable_bytes,
            None => return,
            Some(LossCause::LivedThere) => &mut summary.lost_bytes,
            Some(LossCause::MaybeNewer) => &mut summary.maybe_newer_bytes,
            Some(LossCause::MaybeWritten) => &mut summary.maybe_written_bytes,
            Some(LossCause::Damaged) => &mut summary.damaged_bytes,
        };
        *sum += bytes;
    });
    summary
}

/// What is lost in some extents, neighbours of one cause merged.
pub(crate) fn ranges(state: &State, extents: Range<u64>) -> Vec<LostRange> {
    let mut ranges: Vec<LostRange> = Vec::new();
    visit_pieces(state, extents, |at, length, _, cause| {
        let Some(cause) = cause else { return };
        match ranges.last_mut() {
            Some(last) if last.cause == cause && last.at + last.length == at => {
                last.length += length;
            }
            _ => ranges.push(LostRange { at, length, cause }),
        }
    });
    ranges
}

/// What is known of the loss while the volume is up.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loss {
    gone: [Option<String>; 2],
    /// What else is damaged beyond repair.
    pub damage: Vec<String>,
    /// One bit per extent: what is left cannot vouch for it. Empty: for all it can.
    unknown: Vec<u64>,
    /// Counted once: nothing changes meanwhile.
    pub summary: LossSummary,
}

impl Loss {
    pub fn add(&mut self, tier: Tier, why: String) {
        self.gone[tier.index()].get_or_insert(why);
    }

    pub fn is_gone(&self, tier: Tier) -> bool {
        self.gone[tier.index()].is_some()
    }

    /// The extent, of a volume of so many, may be older than it should.
    pub fn mark_unknown(&mut self, extent: ExtentId, extents: u64) {
        if self.unknown.is_empty() {
            self.unknown = vec![0; extents.div_ceil(64) as usize];
        }
        self.unknown[extent.0 as usize / 64] |= 1 << (extent.0 % 64);
    }

    /// The drive that is left can vouch for every extent.
    pub fn knows_all(&self) -> bool {
        self.unknown.is_empty()
    }

    pub fn is_unknown(&self, extent: ExtentId) -> bool {
        let word = self.unknown.get(extent.0 as usize / 64);
        word.is_some_and(|word| word >> (extent.0 % 64) & 1 != 0)
    }

    /// Why the home of an extent (or that it is a hole) cannot be read, if it cannot.
    pub fn judge(&self, extent: ExtentId, mapping: Mapping) -> Option<LossCause> {
        // Of a clean copy either drive has all.
        let either = mapping.is_clean() && !self.is_gone(Tier::Slow);
        // Of a copy in part neither has all.
        if mapping.part().is_some() && self.gone.iter().any(Option::is_some) {
            return Some(LossCause::LivedThere);
        }
        match mapping.home() {
            Some(home) if self.is_gone(home.tier) && !either => Some(LossCause::LivedThere),
            Some(_) if self.is_unknown(extent) => Some(LossCause::MaybeNewer),
            None if self.is_unknown(extent) => Some(LossCause::MaybeWritten),
            _ => None,
        }
    }
}
