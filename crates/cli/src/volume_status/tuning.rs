//! What is set for a volume, as its superblocks keep it.

use engine::Tuning;
use io::units::human_bytes;
use serde::{Deserialize, Serialize};

/// What `set` and `create` have set beyond flushes and the cache's mode.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TuningStatus {
    /// Bytes that may be written to the fast drive a day before nothing moves there.
    pub wear_bytes_per_day: Option<u64>,
    /// The slow drive may sleep.
    pub quiet: bool,
    /// RAM for extents that were read whole; `None`: as much as the fast drive makes of it.
    pub stage_bytes: Option<u64>,
    /// Class span: what goes up keeps its slot below while there is room.
    pub inclusion: bool,
}

impl From<Tuning> for TuningStatus {
    fn from(tuning: Tuning) -> TuningStatus {
        let Tuning { wear_bytes_per_day, quiet, stage_bytes, inclusion, .. } = tuning;
        TuningStatus { wear_bytes_per_day, quiet, stage_bytes, inclusion }
    }
}

impl TuningStatus {
    /// In a line; `None` when nothing is set.
    pub fn text(&self) -> Option<String> {
        let wear = self
            .wear_bytes_per_day
            .map(|bytes| format!("at most {} a day to the fast drive", human_bytes(bytes)));
        let quiet = self.quiet.then(|| "quiet: the slow drive may sleep".to_owned());
        let stage =
            self.stage_bytes.map(|bytes| format!("a stage of {} in RAM", human_bytes(bytes)));
        let inclusion = self
            .inclusion
            .then(|| "what goes up stays on the slow drive while there is room".to_owned());
        let texts: Vec<String> =
            wear.into_iter().chain(quiet).chain(stage).chain(inclusion).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }
}
