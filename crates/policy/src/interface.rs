//! What a policy is told and asked. It decides; the engine, or a replay, carries out.
//!
//! Every function of [`Policy`] is called by both, on the same occasions. What only a comparison needs (a
//! name, moves that nobody asked for, a drive that is full from the start) is the laboratory's.

use crate::costs::Measured;

/// An extent of the volume: the unit of placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ExtentId(pub u64);

impl ExtentId {
    /// Its place in a table with an entry for each extent.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An extent was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// Which.
    pub extent: ExtentId,
    /// By a write.
    pub is_write: bool,
    /// As part of a stream.
    pub is_stream: bool,
    /// It is on the fast drive now.
    pub is_resident: bool,
    /// Bytes of it that were asked for.
    pub bytes: u64,
    /// How many requests came before.
    pub request: u64,
}

/// Why an extent could go to the fast drive now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// It was just read from the slow drive, part of it, and no stage takes all of it.
    Missed {
        /// As part of a stream.
        is_stream: bool,
    },
    /// It is leaving the stage, all of it in RAM.
    LeavesStage {
        /// It was asked for again while it was there.
        touched: bool,
    },
    /// Its blocks leave the log.
    Destaged {
        /// They are so many pieces, with blocks between them that were not written.
        pieces: usize,
    },
    /// Its blocks leave the log, and they alone go up: nothing else of it is read or written.
    DestagedInPart,
    /// It deserved a slot before, when there was no budget for it, and the drives rest now.
    Rest,
    /// All of it is in RAM, and the drives rest now.
    StagedAtRest,
}

/// Why it may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing says that it will be asked for again.
    NoEvidence,
    /// It belongs to a stream.
    Stream,
    /// What is there is worth as much.
    NotHotter,
    /// Enough was moved lately.
    Budget,
    /// Nothing can leave for it now.
    NoSlot,
}

/// Why a read that misses does not bring its whole extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotAround {
    /// It belongs to a stream.
    Stream,
    /// Too few of those brought lately were asked for again.
    DoesNotPay,
}

/// The fast drive as it is now.
pub trait FastDrive {
    /// Slots that an extent may take without another one leaving.
    fn free(&self) -> u64;

    /// The first extent from `from` on that may live there: all are candidates where nobody knows better.
    fn next_resident(&self, from: ExtentId) -> Option<ExtentId> {
        Some(from)
    }

    /// Whether the extent lives there, and could leave now.
    fn may_leave(&self, extent: ExtentId) -> bool;
}

/// See the head of the file.
pub trait Policy {
    /// Whether a read that misses brings the whole extent into RAM.
    ///
    /// # Errors
    /// Why not.
    fn reads_around(&mut self, _touch: &Touch, _fast: &dyn FastDrive) -> Result<(), NotAround> {
        Err(NotAround::DoesNotPay)
    }

    /// What clients do.
    fn observe(&mut self, _touch: &Touch) {}

    /// Whether the extent may go to the fast drive. When none of its slots is free, with the one
    /// to leave for it. Who does not say lets nothing in: nothing was shown to be worth it.
    ///
    /// # Errors
    /// Why not.
    fn admit(
        &mut self,
        _extent: ExtentId,
        _occasion: Occasion,
        _fast: &dyn FastDrive,
    ) -> Result<Option<ExtentId>, Refusal> {
        Err(Refusal::NoEvidence)
    }

    /// A read of the slow drive that had it for itself took so long.
    fn took(&mut self, _what: Measured, _taken_ms: f64) {}

    /// An extent that no stream had brought left the stage, touched again or not.
    fn left_stage(&mut self, _touched: bool) {}
}
