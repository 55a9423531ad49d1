//! What the placement policy does, for `status`: how much was decided which way, and why.

use std::collections::BTreeMap;

use io::units::human_bytes;
use serde::{Deserialize, Serialize};

/// Placement of a served volume.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// Decisions since the server started, by their reason.
    pub decisions: BTreeMap<String, u64>,
    /// RAM for extents of the slow drive that were read whole: at most, and now.
    pub stage_bytes_max: u64,
    /// See `stage_bytes_max`.
    pub stage_bytes: u64,
    /// What a small read costs on the slow drive, as measured.
    pub read_us: u64,
    /// What the read of a whole extent costs there.
    pub around_us: u64,
    /// Bytes that may be written to the fast drive a day before nothing moves there.
    pub wear_bytes_per_day: Option<u64>,
    /// The slow drive may sleep.
    pub quiet: bool,
    /// How often it was woken while it may, by cause.
    pub wakes: BTreeMap<String, u64>,
    /// Clients' requests that met background work which could have waited.
    pub met: u64,
}

impl From<engine::PolicyStatus> for PolicyStatus {
    fn from(policy: engine::PolicyStatus) -> PolicyStatus {
        let named = policy.decisions.named();
        PolicyStatus {
            decisions: named.into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            stage_bytes_max: policy.stage_bytes_max,
            stage_bytes: policy.stage_bytes,
            read_us: policy.read_us.round() as u64,
            around_us: policy.around_us.round() as u64,
            wear_bytes_per_day: policy.tuning.wear_bytes_per_day,
            quiet: policy.tuning.quiet,
            wakes: [
                ("read", policy.wakes.reads),
                ("write", policy.wakes.writes),
                ("log_full", policy.wakes.log_full),
                ("upkeep", policy.wakes.upkeep),
            ]
            .map(|(cause, count)| (cause.to_owned(), count))
            .into(),
            met: policy.met,
        }
    }
}

impl PolicyStatus {
    /// The stage in a line.
    pub fn stage_text(&self) -> String {
        let (now, most) = (human_bytes(self.stage_bytes), human_bytes(self.stage_bytes_max));
        format!("{now} of {most} in RAM; {} extents read around", self.count("read_around"))
    }

    /// The decisions in a line: what went up, and what most often kept others down.
    pub fn decision_text(&self) -> String {
        let sum = |prefix: &str| -> u64 {
            let of = self.decisions.iter().filter(|(name, _)| name.starts_with(prefix));
            of.map(|(_, count)| count).sum()
        };
        let why = self.decisions.iter().filter(|(name, _)| name.starts_with("stays_"));
        let most = why.max_by_key(|(_, count)| **count).filter(|(_, count)| **count > 0);
        let most = most.map_or(String::new(), |(name, count)| {
            let words = name.trim_start_matches("stays_").replace('_', " ");
            format!(", most often ({count}): {words}")
        });
        format!("{} extents up, {} refused{most}", sum("up_"), sum("stays_"))
    }

    /// What is set, in a line; `None` when nothing is.
    pub fn setting_text(&self) -> Option<String> {
        let wear = self
            .wear_bytes_per_day
            .map(|bytes| format!("at most {} a day to the fast drive", human_bytes(bytes)));
        let quiet = self.quiet.then(|| {
            let wakes: Vec<String> =
                self.wakes.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
            format!("quiet, the slow drive was woken by: {}", wakes.join(", ").replace('_', " "))
        });
        let texts: Vec<String> = wear.into_iter().chain(quiet).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    fn count(&self, name: &str) -> u64 {
        self.decisions.get(name).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commonest_reason_is_named() {
        let mut policy = engine::PolicyStatus::default();
        policy.decisions.up_from_stage = 5;
        policy.decisions.up_at_rest = 2;
        policy.decisions.stays_budget = 3;
        policy.decisions.stays_not_hotter = 40;
        let text = PolicyStatus::from(policy).decision_text();
        assert_eq!(text, "7 extents up, 43 refused, most often (40): not hotter");
        let text = PolicyStatus::from(engine::PolicyStatus::default()).decision_text();
        assert_eq!(text, "0 extents up, 0 refused");
    }
}
