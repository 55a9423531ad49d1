//! What would be lost with a drive, for `status`.

use engine::{Class, Tier};
use io::units::human_bytes;
use serde::{Deserialize, Serialize};

/// Bytes that only one drive has, at most: whole extents are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RiskStatus {
    /// Lost if the fast drive is.
    pub fast_bytes: u64,
    /// Lost if the slow drive is.
    pub slow_bytes: u64,
}

impl RiskStatus {
    /// Of a volume that is served.
    pub fn of(engine: &engine::Status) -> RiskStatus {
        let extent_bytes = engine.geometry.extent_bytes;
        let used = |tier: Tier| {
            let drive = &engine.drives[tier.index()];
            (drive.slots - drive.slots_free) * extent_bytes
        };
        let clean = engine.extents_clean * extent_bytes;
        match engine.geometry.class {
            // What is in the log is newer than what its extent has at home, wherever that is. A clean
            // copy and its original are on both.
            Class::Span => RiskStatus {
                fast_bytes: used(Tier::Fast).saturating_sub(clean) + engine.log.dirty_bytes,
                slow_bytes: used(Tier::Slow).saturating_sub(clean),
            },
            // A dirty copy is newer than what is below it; of an extent in part neither drive has all.
            Class::Cache => {
                let part =
                    (engine.extents_in_part * extent_bytes).saturating_sub(engine.part_bytes);
                let whole = engine.dirty_bytes - engine.log.dirty_bytes - engine.part_bytes;
                RiskStatus {
                    fast_bytes: engine.dirty_bytes + part,
                    slow_bytes: (engine.extents_mapped * extent_bytes)
                        .saturating_sub(clean + whole),
                }
            }
        }
    }

    /// In a line.
    pub fn text(&self) -> String {
        let [fast, slow] = [self.fast_bytes, self.slow_bytes].map(human_bytes);
        format!("up to {fast} is on the fast drive alone, up to {slow} on the slow one alone")
    }
}
