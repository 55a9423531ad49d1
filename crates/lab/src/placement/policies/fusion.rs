//! What was seen of Apple's Fusion Drive, as the engine plays it for `apple-fusion:`: what lives on the slow
//! drive is overwritten there, what is read or written there moves up at the next rest, and nothing is
//! read along.
//!
//! * The engine's rule in the engine's words: each touch counts as a read, and one that meets the slow drive and is no
//!   part of a stream as two more; the extent then waits in line. At rest it goes up if it is still hot, in the place
//!   of one half as hot when no slot is free. Count, coldest and hysteresis are those of `heat`.
//! * *Not* here: new allocations, which land on the fast drive. In a replay everything is there from the start.

use std::collections::{BTreeSet, VecDeque};

use super::{Contender, Extent, FastDrive, Ground, Heat, Moment, Occasion, Policy, Touch};

/// Extents that may wait, as in the engine.
const CANDIDATES_MAX: usize = 1 << 16;
/// Time of one move: a read of the whole extent, and the write of what leaves, now and then.
const MOVE_S: f64 = 12e-3;

/// See the head of the file.
pub struct Fusion {
    heat: Heat,
    candidates: VecDeque<Extent>,
}

impl Fusion {
    /// For so many slots.
    pub fn new(ground: &Ground, slots: usize) -> Fusion {
        let (extents, slots) = (ground.extents() as u64, slots as u64);
        let heat = Heat::new(extents, slots, ground.extent_bytes(), 0);
        Fusion { heat, candidates: VecDeque::new() }
    }
}

impl Policy for Fusion {
    fn observe(&mut self, touch: &Touch) {
        // Nothing takes writes in front of the disk: they position as reads do.
        self.heat.observe(&Touch { is_write: false, ..*touch });
        if touch.is_resident || touch.is_stream {
            return;
        }
        self.heat.request(touch.extent);
        let is_new = self.candidates.back() != Some(&touch.extent);
        if is_new && self.candidates.len() < CANDIDATES_MAX {
            self.candidates.push_back(touch.extent);
        }
    }
}

impl Contender for Fusion {
    fn name(&self) -> &'static str {
        "fusion"
    }

    fn has_log(&self) -> bool {
        false
    }

    fn plan(&mut self, moment: Moment, fast: &dyn FastDrive) -> Vec<(Extent, Option<Extent>)> {
        let most = (moment.rest_s / MOVE_S) as usize;
        let mut later = Later { fast, coming: BTreeSet::new(), leaving: BTreeSet::new() };
        let mut moves = Vec::new();
        while moves.len() < most
            && let Some(extent) = self.candidates.pop_front()
        {
            // It may have been in line twice.
            if fast.may_leave(extent) || later.coming.contains(&extent) {
                continue;
            }
            if let Ok(leaving) = self.heat.admit(extent, Occasion::Rest, &later) {
                later.coming.insert(extent);
                later.leaving.extend(leaving);
                moves.push((extent, leaving));
            }
        }
        moves
    }
}

/// The fast drive with what is planned.
struct Later<'a> {
    fast: &'a dyn FastDrive,
    coming: BTreeSet<Extent>,
    leaving: BTreeSet<Extent>,
}

impl FastDrive for Later<'_> {
    fn free(&self) -> u64 {
        self.fast.free() + self.leaving.len() as u64 - self.coming.len() as u64
    }

    /// What is on its way cannot leave.
    fn may_leave(&self, extent: Extent) -> bool {
        self.fast.may_leave(extent) && !self.leaving.contains(&extent)
    }
}
