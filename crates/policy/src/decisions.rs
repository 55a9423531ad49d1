//! What was decided, counted by its reason.

use crate::interface::{NotAround, Occasion, Refusal};
use crate::verdicts::Verdict;

/// Counts since the volume was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Decisions {
    /// Reads that missed and brought their whole extent into RAM.
    pub read_around: u64,
    /// Those that did not, as part of a stream.
    pub not_around_stream: u64,
    /// Those that did not because it has not paid lately.
    pub not_around_unprofitable: u64,
    /// Extents that may go up: on leaving the stage.
    pub up_from_stage: u64,
    /// On leaving the landing log.
    pub up_from_log: u64,
    /// When the drives rested, or because a client asked for it.
    pub up_at_rest: u64,
    /// Because somebody wished it.
    pub up_wished: u64,
    /// Extents that may not: nothing says that they will be asked for again.
    pub stays_no_evidence: u64,
    /// They belong to a stream.
    pub stays_stream: u64,
    /// What is up there is worth as much.
    pub stays_not_hotter: u64,
    /// Enough was moved lately.
    pub stays_budget: u64,
    /// Nothing could leave for them.
    pub stays_no_slot: u64,
    /// The fast drive has been written enough for today.
    pub stays_wear: u64,
    /// Somebody wished them to stay.
    pub stays_wished: u64,
    /// Extents that leave the fast drive: for one that is worth more.
    pub down_displaced: u64,
    /// So that new data finds room.
    pub down_for_new: u64,
    /// Because somebody wished it.
    pub down_wished: u64,
    /// Because the copy there cannot be read.
    pub down_bad_copy: u64,
    /// Places for extents that had none: on the fast drive.
    pub new_fast: u64,
    /// On the slow one, because the fast drive has no room but what is kept free.
    pub new_slow_full: u64,
    /// On the slow one, because somebody wished it or brings everything home.
    pub new_slow_wished: u64,
}

impl Decisions {
    /// Whether a read that missed brings its whole extent.
    pub fn count_around(&mut self, decision: Result<(), NotAround>) {
        *match decision {
            Ok(()) => &mut self.read_around,
            Err(NotAround::Stream) => &mut self.not_around_stream,
            Err(NotAround::DoesNotPay) => &mut self.not_around_unprofitable,
        } += 1;
    }

    /// What was decided without asking the policy, which knows nothing of wishes and wear.
    pub(crate) fn count(&mut self, verdict: Verdict) {
        let counter = match verdict {
            Verdict::WishedUp => &mut self.up_wished,
            Verdict::WishedBelow => &mut self.stays_wished,
            Verdict::Wear => &mut self.stays_wear,
            Verdict::Stays(Refusal::NoSlot) => &mut self.stays_no_slot,
            Verdict::GivesWay => &mut self.down_displaced,
            Verdict::MakesRoom => &mut self.down_for_new,
            Verdict::WishedDown => &mut self.down_wished,
            Verdict::BadCopy => &mut self.down_bad_copy,
            Verdict::Staged | Verdict::NotStaged(_) | Verdict::Up(_) | Verdict::Stays(_) => {
                unreachable!("decided by the policy, and counted there")
            }
        };
        *counter += 1;
    }

    /// Whether an extent may go up.
    pub fn count_admission<T>(&mut self, occasion: Occasion, decision: &Result<T, Refusal>) {
        *match (decision, occasion) {
            (Ok(_), Occasion::LeavesStage { .. } | Occasion::Missed { .. }) => {
                &mut self.up_from_stage
            }
            (Ok(_), Occasion::Destaged { .. } | Occasion::DestagedInPart) => &mut self.up_from_log,
            (Ok(_), Occasion::Rest | Occasion::StagedAtRest) => &mut self.up_at_rest,
            (Err(Refusal::NoEvidence), _) => &mut self.stays_no_evidence,
            (Err(Refusal::Stream), _) => &mut self.stays_stream,
            (Err(Refusal::NotHotter), _) => &mut self.stays_not_hotter,
            (Err(Refusal::Budget), _) => &mut self.stays_budget,
            (Err(Refusal::NoSlot), _) => &mut self.stays_no_slot,
        } += 1;
    }

    /// Each with the words that say what it is, in order.
    pub fn named(&self) -> [(&'static str, u64); 21] {
        [
            ("read_around", self.read_around),
            ("not_around_stream", self.not_around_stream),
            ("not_around_unprofitable", self.not_around_unprofitable),
            ("up_from_stage", self.up_from_stage),
            ("up_from_log", self.up_from_log),
            ("up_at_rest", self.up_at_rest),
            ("up_wished", self.up_wished),
            ("stays_no_evidence", self.stays_no_evidence),
            ("stays_stream", self.stays_stream),
            ("stays_not_hotter", self.stays_not_hotter),
            ("stays_budget", self.stays_budget),
            ("stays_no_slot", self.stays_no_slot),
            ("stays_wear", self.stays_wear),
            ("stays_wished", self.stays_wished),
            ("down_displaced", self.down_displaced),
            ("down_for_new", self.down_for_new),
            ("down_wished", self.down_wished),
            ("down_bad_copy", self.down_bad_copy),
            ("new_fast", self.new_fast),
            ("new_slow_full", self.new_slow_full),
            ("new_slow_wished", self.new_slow_wished),
        ]
    }
}
