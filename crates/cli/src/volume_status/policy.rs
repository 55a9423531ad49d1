//! What the placement policy does, for `status`: how much was decided which way, and why.

use std::collections::BTreeMap;

use engine::GHOST_QUARTERS;
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
    /// Class span: what goes up keeps its slot below while there is room.
    #[serde(default)]
    pub inclusion: bool,
    /// How often it was woken while it may, by cause.
    pub wakes: BTreeMap<String, u64>,
    /// Clients' requests that met background work which could have waited.
    pub met: u64,
    /// What fast drives of other sizes would have served lately; empty before there were reads.
    #[serde(default)]
    pub ghosts: Vec<Ghost>,
}

/// A fast drive of another size that keeps what was used last.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ghost {
    /// Its size, in shares of the present one.
    pub fast_times: f64,
    /// The share of the reads, streams left out, that it would have served.
    pub hit_ratio: f64,
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
            inclusion: policy.tuning.inclusion,
            wakes: [
                ("read", policy.wakes.reads),
                ("write", policy.wakes.writes),
                ("mark", policy.wakes.marks),
                ("log_full", policy.wakes.log_full),
                ("upkeep", policy.wakes.upkeep),
            ]
            .map(|(cause, count)| (cause.to_owned(), count))
            .into(),
            met: policy.met,
            ghosts: ghosts(policy.ghosts),
        }
    }
}

fn ghosts(ratios: Option<[f64; GHOST_QUARTERS.len()]>) -> Vec<Ghost> {
    let ghost = |(quarters, hit_ratio)| Ghost { fast_times: quarters as f64 / 4.0, hit_ratio };
    ratios
        .into_iter()
        .flat_map(|ratios| GHOST_QUARTERS.into_iter().zip(ratios))
        .map(ghost)
        .collect()
}

impl PolicyStatus {
    /// What fast drives of other sizes would have served, in a line; `None` while nothing is known.
    pub fn ghost_text(&self) -> Option<String> {
        let size = |times: f64| match times {
            0.25 => "a quarter".to_owned(),
            0.5 => "half".to_owned(),
            1.0 => "its size".to_owned(),
            2.0 => "twice".to_owned(),
            times => format!("{times:.0} times"),
        };
        let part =
            |ghost: &Ghost| format!("{} {:.0} %", size(ghost.fast_times), ghost.hit_ratio * 100.0);
        let parts: Vec<String> = self.ghosts.iter().map(part).collect();
        (!parts.is_empty())
            .then(|| format!("reads that a fast drive would serve: with {}", parts.join(", ")))
    }

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

    /// What woke the slow drive while it may sleep, in a line.
    pub fn wake_text(&self) -> Option<String> {
        let wakes = || {
            let parts = self.wakes.iter().map(|(cause, count)| format!("{count} {cause}"));
            parts.collect::<Vec<String>>().join(", ").replace('_', " ")
        };
        self.quiet.then(|| format!("the slow drive was woken by: {}", wakes()))
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

    #[test]
    fn fast_drives_of_other_sizes_are_told_once_there_were_reads() {
        let mut policy = engine::PolicyStatus::default();
        assert_eq!(PolicyStatus::from(policy).ghost_text(), None);
        policy.ghosts = Some([0.1, 0.25, 0.5, 0.75, 0.99]);
        let text = PolicyStatus::from(policy).ghost_text().unwrap();
        let sizes = "a quarter 10 %, half 25 %, its size 50 %, twice 75 %, 4 times 99 %";
        assert_eq!(text, format!("reads that a fast drive would serve: with {sizes}"));
    }
}
