//! What flushes promise, and what is acknowledged and not safe yet, for `status`.

use engine::{Bound, FlushMode};
use io::units::{MILLISECOND_NS, human_bytes};
use serde::{Deserialize, Serialize};

/// Durability of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurabilityStatus {
    /// `strict` or `deferred`.
    pub mode: String,
    /// In deferred mode: what is durable after so long at the latest.
    pub bound_ms: Option<u32>,
    /// In deferred mode: no more than so much is ever exposed.
    pub bound_bytes: Option<u64>,
    /// Age of the oldest change that a power cut could take now, though a flush has ended since; 0 in
    /// strict mode.
    pub exposed_ms: u64,
    /// Bytes that a power cut could take so; 0 in strict mode.
    pub exposed_bytes: u64,
    /// The most that is acknowledged before it is written; 0: write-behind is off.
    #[serde(default)]
    pub behind_bytes_max: u64,
    /// What is acknowledged and not written now.
    #[serde(default)]
    pub behind_bytes: u64,
    /// Age of the oldest of that.
    #[serde(default)]
    pub behind_ms: u64,
}

impl DurabilityStatus {
    /// Of a volume that is served.
    pub fn of(engine: &engine::Status) -> DurabilityStatus {
        let bound = engine.flush_mode.bound();
        DurabilityStatus {
            exposed_ms: engine.exposed.age_ns.div_ceil(MILLISECOND_NS),
            exposed_bytes: engine.exposed.bytes,
            behind_bytes_max: engine.behind.bytes_max,
            behind_bytes: engine.behind.bytes,
            behind_ms: engine.behind.age_ns.div_ceil(MILLISECOND_NS),
            ..DurabilityStatus::bounded(bound)
        }
    }

    /// Of one that is not.
    pub fn at_rest(mode: FlushMode) -> DurabilityStatus {
        DurabilityStatus::bounded(mode.bound())
    }

    fn bounded(bound: Option<Bound>) -> DurabilityStatus {
        DurabilityStatus {
            mode: if bound.is_some() { "deferred" } else { "strict" }.to_owned(),
            bound_ms: bound.map(|bound| bound.age_ms),
            bound_bytes: bound.map(|bound| bound.bytes),
            exposed_ms: 0,
            exposed_bytes: 0,
            behind_bytes_max: 0,
            behind_bytes: 0,
            behind_ms: 0,
        }
    }

    /// What a flush promises, in a line.
    pub fn text(&self) -> String {
        match (self.bound_ms, self.bound_bytes) {
            (Some(ms), Some(bytes)) => format!(
                "deferred: a power cut takes at most {ms} ms and {}; exposed now: {} ms, {}",
                human_bytes(bytes),
                self.exposed_ms,
                human_bytes(self.exposed_bytes)
            ),
            _ => "strict: a flush is a flush".to_owned(),
        }
    }

    /// What is behind, in a line; `None` when write-behind is off.
    pub fn behind_text(&self) -> Option<String> {
        (self.behind_bytes_max > 0).then(|| {
            format!(
                "up to {} acknowledged before they are written; now {}, the oldest {} ms ago",
                human_bytes(self.behind_bytes_max),
                human_bytes(self.behind_bytes),
                self.behind_ms
            )
        })
    }
}
