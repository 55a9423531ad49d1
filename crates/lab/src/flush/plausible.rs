//! Can a drive of this kind have made a write durable in that time?
//!
//! * A disk writes a sector when it passes under the head. Who writes the same sector again and
//!   waits for the platter each time waits a revolution each time: 4 ms at 15,000 rpm, the
//!   fastest made, 8.3 ms at 7200, 11.1 ms at 5400.
//! * NAND flash takes some 200 µs (one bit a cell) to over 1 ms (three bits) to program a page:
//!   Grupp et al., *Characterizing Flash Memory*, MICRO 2009. Faster is possible with power-loss
//!   protection (capacitors behind the cache) and on media that are no NAND; a drive with
//!   protection should say that it has no volatile cache, and most do.
//! * A drive that says it has no volatile cache is not asked to flush at all.
//!
//! Nothing can be said of files and virtual disks but by what is under them, and that is not seen.

use serde::Serialize;

use super::Case;

/// One revolution of the fastest disks, 15,000 rpm, less a tenth for the clock's sake, in ns.
const REVOLUTION_NS_MIN: u64 = 3_600_000;

/// Half of the shortest program time of NAND (200 µs): a write and its flush below it cannot have
/// waited for the cells.
const PROGRAM_NS_MIN: u64 = 100_000;

/// What is known of a drive from outside.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct DriveFacts {
    /// The maker's name for it.
    pub model: Option<String>,
    /// It has a spinning disk.
    pub rotational: Option<bool>,
    /// It says that it has a volatile write cache.
    pub volatile_cache: Option<bool>,
    /// What stands between it and us, if something does: a file system, a loop device, a virtual
    /// machine. Then nothing can be said.
    pub hidden_by: Option<String>,
}

/// Whether a flush can have been one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Plausibility {
    /// It took as long as it must.
    Plausible,
    /// It was faster than the medium can be.
    NotPlausible,
    /// Too little is known.
    Unknown,
}

/// A verdict with its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Opinion {
    /// The verdict.
    pub plausibility: Plausibility,
    /// The typical time in which a rewritten block was acknowledged as durable, in ns.
    pub acknowledged_ns: u64,
    /// In a sentence.
    pub reason: String,
}

impl Opinion {
    /// Judges the flushed raw rewrites among `cases`; `None` when there are none.
    pub fn of(facts: &DriveFacts, cases: &[Case]) -> Option<Opinion> {
        let raw = cases.iter().filter(|case| case.flushed && case.workload == "raw rewrite");
        let acknowledged_ns = raw.map(|case| case.latency_ns.p50).min()?;
        let (plausibility, why) = judge(facts, acknowledged_ns);
        let micros = acknowledged_ns as f64 / 1e3;
        let verdict = match plausibility {
            Plausibility::Plausible => "physically plausible",
            Plausibility::NotPlausible => "not plausible for its kind",
            Plausibility::Unknown => "plausible or not: unknown",
        };
        let reason =
            format!("this drive acknowledges a flush in {micros:.0} µs: {verdict} ({why})");
        Some(Opinion { plausibility, acknowledged_ns, reason })
    }
}

fn judge(facts: &DriveFacts, acknowledged_ns: u64) -> (Plausibility, String) {
    use Plausibility::{NotPlausible, Plausible, Unknown};
    if let Some(hidden_by) = &facts.hidden_by {
        return (Unknown, format!("{hidden_by} hides the drive below"));
    }
    match (facts.rotational, facts.volatile_cache) {
        (_, Some(false)) => (
            Plausible,
            "it says it has no volatile cache, so that a write is durable when it is acknowledged; \
             only a power cut can prove it: 'bimetal lab powercut'"
                .to_owned(),
        ),
        (Some(true), _) if acknowledged_ns < REVOLUTION_NS_MIN => (
            NotPlausible,
            "a disk waits a revolution to write the same sector again, 4 ms at 15,000 rpm; it \
             lies, or has a cache that survives power cuts and does not say so"
                .to_owned(),
        ),
        (Some(true), _) => (Plausible, "a disk waits a revolution to write it again".to_owned()),
        (Some(false), _) if acknowledged_ns < PROGRAM_NS_MIN => (
            NotPlausible,
            "NAND takes 200 µs and more to program a page; it lies, has capacitors behind its \
             cache and does not say so, or is no NAND"
                .to_owned(),
        ),
        (Some(false), _) => (Plausible, "long enough for NAND to be programmed".to_owned()),
        (None, _) => (Unknown, "the kernel does not say what kind of drive it is".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_judged_by_its_physics() {
        use Plausibility::*;
        let facts = |rotational, volatile_cache| DriveFacts {
            rotational,
            volatile_cache,
            ..DriveFacts::default()
        };
        let judged = |facts: DriveFacts, micros: u64| judge(&facts, micros * 1000).0;
        assert_eq!(judged(facts(Some(true), Some(true)), 300), NotPlausible);
        assert_eq!(judged(facts(Some(true), None), 3000), NotPlausible);
        assert_eq!(judged(facts(Some(true), Some(true)), 8300), Plausible);
        assert_eq!(judged(facts(Some(true), Some(false)), 300), Plausible);
        assert_eq!(judged(facts(Some(false), Some(true)), 30), NotPlausible);
        assert_eq!(judged(facts(Some(false), Some(true)), 500), Plausible);
        assert_eq!(judged(facts(Some(false), Some(false)), 15), Plausible);
        assert_eq!(judged(facts(None, Some(true)), 30), Unknown);
        let hidden =
            DriveFacts { hidden_by: Some("a file system".into()), ..facts(Some(true), None) };
        assert_eq!(judged(hidden, 1), Unknown);
    }
}
