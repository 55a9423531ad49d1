//! Heat: our own policy. One decayed count an extent, evidence before a move, and what the head
//! passes anyway is read along.
//!
//! * A count is in reads that must position, which is what the slow drive is saved. It halves with
//!   touches and not with time: two extents change places only when one is touched, and an idle
//!   night cools nothing.
//! * A read that misses brings the whole extent into the stage. When it leaves the stage it goes up
//!   if its count says that it will be asked for again and is well above the coldest one's.
//! * Reading around ends where nothing comes of it, and is tried again now and then.
//! * What moves is bounded by a share of what clients move.

use crate::around::Around;
use crate::budget::Budget;
use crate::coldest::Coldest;
use crate::costs::{Costs, Measured};
use crate::counts::{Counts, HeatLevel, Weight};
use crate::decisions::Decisions;
use crate::interface::{ExtentId, FastDrive, NotAround, Occasion, Policy, Refusal, Touch};
use crate::stays::Stays;
use crate::verdicts::{Verdict, Verdicts};

/// A read that misses and must position: the unit.
const READ: f64 = 1.0;
/// A write that begins a stay in the log: it will be brought home once, however often it is
/// rewritten meanwhile, for 5.5 ms where a read that misses takes 8.
const LANDING: f64 = 0.7;
/// The count from which an extent has proved itself.
const ENTER_COUNT: f64 = 1.5;
/// The count that is enough for what is in RAM while the drives rest: one read, lately. To write it to the
/// fast drive costs nobody time then, and whoever starts a machine reads most of it once.
const ENTER_AT_REST_COUNT: f64 = 0.5;
/// An extent has proved itself, too, when so many pieces of it leave the log together.
const SCATTERED_PIECES: usize = 4;
/// How much hotter than what leaves.
const HYSTERESIS: f64 = 2.0;
/// While this share of the slots is free, everything may come.
const FREE_SHARE: f64 = 0.1;

/// See the head of the file.
pub struct Heat {
    counts: Counts,
    stays: Stays,
    coldest: Coldest,
    around: Around,
    budget: Budget,
    /// What requests cost the slow drive.
    pub costs: Costs,
    /// What was decided.
    pub decisions: Decisions,
    /// The last of them, by extent.
    pub verdicts: Verdicts,
    slots: u64,
    extent_bytes: u64,
}

impl Heat {
    /// For so many extents, slots of the fast drive, and bytes of landing log.
    pub fn new(extents: u64, slots: u64, extent_bytes: u64, log_bytes: u64) -> Heat {
        Heat {
            counts: Counts::new(extents, slots),
            stays: Stays::new(extents, log_bytes),
            coldest: Coldest::default(),
            around: Around::new(),
            budget: Budget::new(slots * extent_bytes),
            costs: Costs::new(extent_bytes),
            decisions: Decisions::default(),
            verdicts: Verdicts::default(),
            slots,
            extent_bytes,
        }
    }

    /// The decayed count of an extent now.
    pub fn count(&self, extent: ExtentId) -> f64 {
        f64::from(self.counts.count(extent))
    }

    /// Milliseconds of the slow drive that it would have been saved lately, had it been above.
    pub fn saved_ms(&self, extent: ExtentId) -> f64 {
        self.count(extent) * self.costs.read_ms()
    }

    /// Whether an extent has proved itself.
    pub fn is_hot(&self, extent: ExtentId) -> bool {
        self.count(extent) >= ENTER_COUNT
    }

    /// A client asks for an extent to be fast: it counts as read twice just now.
    pub fn request(&mut self, extent: ExtentId) {
        self.counts.touch(extent, Weight::of(2.0 * READ));
    }

    /// The extents that were touched most lately, at most so many, in the order of their numbers: what is
    /// worth keeping when the session ends.
    pub fn hottest(&self, most: usize) -> Vec<(ExtentId, HeatLevel)> {
        self.counts.hottest(most)
    }

    /// The extent had that count when an earlier session ended. One that does not exist is passed over.
    pub fn recall(&mut self, extent: ExtentId, level: HeatLevel) {
        self.counts.recall(extent, level);
    }

    /// Whether `candidate` should take the place of `resident`.
    pub fn should_displace(&self, candidate: ExtentId, resident: ExtentId) -> bool {
        self.count(candidate) >= HYSTERESIS * self.count(resident)
    }

    /// The coldest extent known of the fast drive, to make room for what is new.
    pub fn coldest(&mut self, fast: &dyn FastDrive) -> Option<ExtentId> {
        self.coldest.take(&self.counts, fast)
    }

    /// Counts and remembers what was decided about an extent without asking [`Policy::admit`]: because of a
    /// wish, of wear, or for room.
    pub fn overrule(&mut self, extent: ExtentId, verdict: Verdict) {
        self.decisions.count(verdict);
        self.verdicts.note(extent, verdict);
    }

    /// Bytes of memory that its tables take.
    pub fn memory_bytes(&self) -> u64 {
        self.counts.memory_bytes() + self.stays.memory_bytes() + self.verdicts.memory_bytes()
    }

    /// What a touch says about the time that the extent will cost on the slow drive.
    fn weight(&mut self, touch: &Touch) -> f64 {
        if touch.is_stream {
            // The disk is good at streams: they count what they cost it.
            return self.costs.stream_share(touch.bytes);
        }
        if !touch.is_write {
            return READ;
        }
        let lands_bytes = if touch.is_resident { 0 } else { touch.bytes };
        if self.stays.begins(touch.extent, lands_bytes) { LANDING } else { 0.0 }
    }

    fn has_plenty(&self, fast: &dyn FastDrive) -> bool {
        fast.free() as f64 > FREE_SHARE * self.slots as f64
    }

    /// Whether there is room for an extent: a free slot, or that of one that is well colder.
    pub fn finds_room(&mut self, extent: ExtentId, fast: &dyn FastDrive) -> bool {
        fast.free() > 0 || {
            let coldest = self.coldest.look(&self.counts, fast);
            coldest.is_some_and(|coldest| self.should_displace(extent, coldest))
        }
    }

    /// Whether an extent would go up if all of it were read now.
    fn goes_up_when_missed(&mut self, extent: ExtentId, fast: &dyn FastDrive) -> bool {
        self.is_hot(extent)
            && self.budget.covers(self.extent_bytes)
            && self.finds_room(extent, fast)
    }

    fn decide(
        &mut self,
        extent: ExtentId,
        occasion: Occasion,
        fast: &dyn FastDrive,
    ) -> Result<Option<ExtentId>, Refusal> {
        let plenty = self.has_plenty(fast);
        // All of it passes through memory anyway: keeping it costs no time of the slow drive.
        let is_at_hand = match occasion {
            Occasion::LeavesStage { .. } | Occasion::Missed { is_stream: true } => true,
            Occasion::Missed { is_stream: false }
            | Occasion::Destaged { .. }
            | Occasion::DestagedInPart
            | Occasion::Rest
            | Occasion::StagedAtRest => false,
        };
        let at_rest = matches!(occasion, Occasion::Rest | Occasion::StagedAtRest);
        let count = self.count(extent);
        // Of that so much moves as clients have left over.
        let read_once = occasion == Occasion::StagedAtRest
            && (ENTER_AT_REST_COUNT..ENTER_COUNT).contains(&count)
            && self.budget.has_spare(self.extent_bytes);
        // Within one stay in the log it was written again and again, and never in order: so it will be
        // in the next.
        let scattered = match occasion {
            Occasion::Destaged { pieces } => pieces >= SCATTERED_PIECES,
            _ => false,
        };
        // Nothing moves: what was written goes to one drive instead of the other.
        let in_part = occasion == Occasion::DestagedInPart;
        if !(is_at_hand && plenty || in_part) {
            if let Occasion::Missed { is_stream: true } = occasion {
                return Err(Refusal::Stream);
            }
            if count < ENTER_COUNT && !read_once && !scattered {
                return Err(Refusal::NoEvidence);
            }
        }
        // Filling what is empty is done once. Bounding it would leave holes in streams, and each
        // hole costs the disk a positioning. At rest nobody is in the way.
        if !plenty && !at_rest && !in_part && !self.budget.covers(self.extent_bytes) {
            return Err(Refusal::Budget);
        }
        let leaving = if fast.free() == 0 {
            let coldest = self.coldest.look(&self.counts, fast).ok_or(Refusal::NoSlot)?;
            if !self.should_displace(extent, coldest) {
                return Err(Refusal::NotHotter);
            }
            self.coldest.take(&self.counts, fast)
        } else {
            None
        };
        if in_part {
            return Ok(leaving);
        }
        if read_once {
            self.budget.spend_spare(self.extent_bytes);
        } else if plenty {
            self.budget.fill(self.extent_bytes);
        } else if !at_rest {
            self.budget.spend(self.extent_bytes);
        }
        Ok(leaving)
    }
}

impl Policy for Heat {
    fn reads_around(&mut self, touch: &Touch, fast: &dyn FastDrive) -> Result<(), NotAround> {
        let decision = if touch.is_stream {
            if self.has_plenty(fast) { Ok(()) } else { Err(NotAround::Stream) }
        } else {
            // One that has proved itself is on its way up, whatever comes of others.
            let pays = self.around.pays(&self.costs);
            if pays || self.goes_up_when_missed(touch.extent, fast) {
                Ok(())
            } else {
                Err(NotAround::DoesNotPay)
            }
        };
        self.decisions.count_around(decision);
        let verdict = decision.map_or_else(Verdict::NotStaged, |()| Verdict::Staged);
        self.verdicts.note(touch.extent, verdict);
        decision
    }

    fn observe(&mut self, touch: &Touch) {
        let weight = self.weight(touch);
        if self.counts.touch(touch.extent, Weight::of(weight)) {
            self.coldest.forget();
        }
        self.budget.earn(touch.bytes);
    }

    fn admit(
        &mut self,
        extent: ExtentId,
        occasion: Occasion,
        fast: &dyn FastDrive,
    ) -> Result<Option<ExtentId>, Refusal> {
        let decision = self.decide(extent, occasion, fast);
        self.decisions.count_admission(occasion, &decision);
        let verdict = decision.map_or_else(Verdict::Stays, |_| Verdict::Up(occasion));
        self.verdicts.note(extent, verdict);
        if let Ok(Some(leaving)) = decision {
            self.overrule(leaving, Verdict::GivesWay);
        }
        decision
    }

    fn took(&mut self, what: Measured, taken_ms: f64) {
        self.costs.took(what, taken_ms);
    }

    fn left_stage(&mut self, touched: bool) {
        self.around.left_stage(touched);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extents below 10 are above, and no slot is free.
    struct Full;

    impl FastDrive for Full {
        fn free(&self) -> u64 {
            0
        }

        fn may_leave(&self, extent: ExtentId) -> bool {
            extent.0 < 10
        }
    }

    #[test]
    fn what_is_as_hot_as_all_that_is_above_is_not_read_whole_for_nothing() {
        let mut heat = Heat::new(100, 10, 128 << 10, 1 << 20);
        let touch = |extent| Touch {
            extent: ExtentId(extent),
            is_write: false,
            is_stream: false,
            is_resident: extent < 10,
            bytes: 4096,
            request: 0,
        };
        for extent in (0..10).flat_map(|_| 0..100) {
            heat.observe(&touch(extent));
        }
        // Nothing comes of reading around.
        (0..5000).for_each(|_| heat.left_stage(false));
        assert!(heat.is_hot(ExtentId(50)));
        let whole = (0..160).filter(|_| heat.reads_around(&touch(50), &Full).is_ok()).count();
        assert_eq!(whole, 10, "but for one try in sixteen");
        for _ in 0..40 {
            heat.observe(&touch(60));
        }
        let whole = (0..160).filter(|_| heat.reads_around(&touch(60), &Full).is_ok()).count();
        assert_eq!(whole, 160, "this one would go up");
    }
}
