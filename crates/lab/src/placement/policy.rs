//! The interface of placement: a policy decides, the replay carries out.

use super::ground::Extent;

/// An extent was asked for.
#[derive(Debug, Clone, Copy)]
pub struct Touch {
    /// Which.
    pub extent: Extent,
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
    /// It was just read from the slow drive, part of it.
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
    Destaged,
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
}

/// See the head of the file.
pub trait Policy {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Whether a read that misses brings the whole extent into RAM.
    fn reads_around(&mut self, _extent: Extent) -> bool {
        false
    }

    /// Whether it has a landing log in front of the slow drive.
    fn has_log(&self) -> bool {
        true
    }

    /// What clients do.
    fn observe(&mut self, touch: &Touch);

    /// Whether the extent may go to the fast drive, of which `free` slots are free. When none is,
    /// the one to leave for it.
    fn admit(
        &mut self,
        extent: Extent,
        occasion: Occasion,
        free: usize,
    ) -> Result<Option<Extent>, Refusal>;

    /// A staged extent left the stage, touched again or not.
    fn left_stage(&mut self, _touched: bool) {}

    /// Extents to bring up now, without a request for them, each with the one to leave for it.
    fn plan(&mut self, _request: u64) -> Vec<(Extent, Option<Extent>)> {
        Vec::new()
    }

    /// What is on the fast drive from the start, brought there before the clock runs.
    fn residents(&self) -> Vec<Extent> {
        Vec::new()
    }
}
