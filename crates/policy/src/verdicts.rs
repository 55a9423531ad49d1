//! The last decisions about extents, each with its reason, for people who ask why something is where it is.

use std::collections::VecDeque;

use crate::interface::{ExtentId, NotAround, Occasion, Refusal};

/// Decisions that are remembered: 384 KiB.
const KEPT_MAX: usize = 16 << 10;

/// What was decided about an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// A read that missed brought all of it into RAM.
    Staged,
    /// It did not.
    NotStaged(NotAround),
    /// It may go to the fast drive.
    Up(Occasion),
    /// It may not.
    Stays(Refusal),
    /// It goes to the fast drive because somebody wishes it there.
    WishedUp,
    /// It does not, because somebody wishes it below.
    WishedBelow,
    /// It does not, because the fast drive has been written enough for today.
    Wear,
    /// It leaves the fast drive, for one that is worth more.
    GivesWay,
    /// It leaves the fast drive, so that new data finds room there.
    MakesRoom,
    /// It leaves the fast drive because somebody wishes it below.
    WishedDown,
    /// Its copy on the fast drive cannot be read, and is given up for what the slow drive has.
    BadCopy,
}

impl Verdict {
    /// As part of a sentence about the extent.
    pub fn words(self) -> &'static str {
        match self {
            Verdict::Staged => "was read as a whole into memory",
            Verdict::NotStaged(NotAround::Stream) => {
                "was not read as a whole: it was read as part of a stream"
            }
            Verdict::NotStaged(NotAround::DoesNotPay) => {
                "was not read as a whole: too few that were lately were asked for again"
            }
            Verdict::Up(Occasion::LeavesStage { .. } | Occasion::Missed { .. }) => {
                "goes up: it was read"
            }
            Verdict::Up(Occasion::Destaged { .. }) => "goes up: it was written, and is in use",
            Verdict::Up(Occasion::DestagedInPart) => "goes up in part: it was written",
            Verdict::Up(Occasion::StagedAtRest) => "goes up: it was read, and the drives rest",
            Verdict::Up(Occasion::Rest) => "goes up: it is in use, and the drives rest",
            Verdict::Stays(Refusal::NoEvidence) => {
                "stays: nothing says that it will be asked for again"
            }
            Verdict::Stays(Refusal::Stream) => "stays: it was read as part of a stream",
            Verdict::Stays(Refusal::NotHotter) => {
                "stays: what is on the fast drive is worth as much"
            }
            Verdict::Stays(Refusal::Budget) => "stays for now: enough was moved lately",
            Verdict::Stays(Refusal::NoSlot) => "stays: nothing could leave the fast drive for it",
            Verdict::WishedUp => "goes up: it is pinned, or advised to be hot",
            Verdict::WishedBelow => "stays: it is advised to be cold, or a stream",
            Verdict::Wear => "stays: the fast drive has been written enough for today",
            Verdict::GivesWay => "leaves the fast drive: something else is worth more",
            Verdict::MakesRoom => "leaves the fast drive: new data needs room there",
            Verdict::WishedDown => "leaves the fast drive: it is advised to be cold",
            Verdict::BadCopy => "leaves the fast drive: its copy there cannot be read",
        }
    }
}

/// See the head of the file.
#[derive(Debug, Default)]
pub struct Verdicts {
    /// Extent, when (seconds of whoever sets the clock), what; the latest last.
    kept: VecDeque<(ExtentId, u32, Verdict)>,
    clock_s: u32,
}

impl Verdicts {
    /// What is decided from now on is decided at that second.
    pub fn set_clock(&mut self, clock_s: u32) {
        self.clock_s = clock_s;
    }

    pub(crate) fn note(&mut self, extent: ExtentId, verdict: Verdict) {
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((extent, self.clock_s, verdict));
    }

    /// The last one about an extent, and when it was, if it is remembered. Looks through all.
    pub fn last(&self, extent: ExtentId) -> Option<(u32, Verdict)> {
        let found = self.kept.iter().rev().find(|(known, ..)| *known == extent)?;
        Some((found.1, found.2))
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.kept.capacity() * size_of::<(ExtentId, u32, Verdict)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_decision_is_told_and_old_ones_are_forgotten() {
        let mut verdicts = Verdicts::default();
        verdicts.set_clock(7);
        verdicts.note(ExtentId(1), Verdict::Stays(Refusal::NoEvidence));
        verdicts.set_clock(9);
        verdicts.note(ExtentId(1), Verdict::Up(Occasion::Rest));
        verdicts.note(ExtentId(2), Verdict::GivesWay);
        assert_eq!(verdicts.last(ExtentId(1)), Some((9, Verdict::Up(Occasion::Rest))));
        assert_eq!(verdicts.last(ExtentId(3)), None);
        for _ in 0..KEPT_MAX {
            verdicts.note(ExtentId(4), Verdict::Staged);
        }
        assert_eq!(verdicts.last(ExtentId(2)), None);
    }
}
