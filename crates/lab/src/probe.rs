//! Gets to know a drive: what it says of itself, how fast it is at what, and where large requests to
//! it are cut. What is found is kept as a [`Measurements`] file, of which [`crate::fit`] makes a twin.
//!
//! * The measurements are fio jobs like those of any experiment, so they are made on twins in virtual
//!   time, on files and block devices, and on whatever speaks NBD.
//! * Each has a bound in time and in bytes. What writes is left out unless it is asked for.

mod identity;
mod kernel;
mod plan;
mod split;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bench::{Bench, Outcome};
use crate::fio::{Direction, JobFile, LatencyReport, Limits};

pub use identity::{Advertised, Identity, Link, Queue};
pub use plan::{Bounds, Measure, plan};
pub use split::{Split, split};

/// The version of the file of measurements.
const SCHEMA: u32 = 1;

/// How long a drive rests behind what wrote, so that its cache is empty for what comes next.
const REST_NS: u64 = 2_000_000_000;

/// What was found of one drive.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measurements {
    /// Version of this layout.
    pub schema: u32,
    /// What it says of itself, and what the kernel says of it.
    pub identity: Identity,
    /// What it was asked, and how fast it answered.
    pub measured: Vec<Measured>,
    /// At which size large requests are cut, and why.
    pub split: Split,
    /// What is worth knowing about all this.
    pub notes: Vec<String>,
}

/// One measurement.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// What was asked.
    #[serde(flatten)]
    pub measure: Measure,
    /// Requests that ended.
    pub requests: u64,
    /// How long it took (s).
    pub seconds: f64,
    /// Requests per second.
    pub iops: f64,
    /// 10^6 bytes per second.
    pub mb_s: f64,
    /// Response times.
    pub latency_us: LatencyPoints,
    /// Mean size of the requests that the kernel sent to the drive, where it counts them (KiB).
    pub arrived_kib: Option<f64>,
}

/// Some points of a distribution of response times (µs).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyPoints {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub deviation: f64,
    /// Of a hundred requests, one is faster.
    pub p1: f64,
    /// Half of them are.
    pub p50: f64,
    /// All but one are.
    pub p99: f64,
}

/// Makes all of `measures` on `bench`, in order. `tell` hears the number and the name of each before.
///
/// # Errors
/// A sentence.
pub fn probe(
    bench: &mut dyn Bench,
    identity: Identity,
    measures: &[Measure],
    tell: &dyn Fn(usize, &str),
) -> Result<Measurements, String> {
    let mut measured = Vec::new();
    bench.renew()?;
    for (number, measure) in measures.iter().enumerate() {
        tell(number, &measure.id);
        let text = measure.job();
        let within = |problem: String| format!("measurement {}: {problem}", measure.id);
        let file =
            JobFile::parse(&measure.id, &text).map_err(|refusal| within(refusal.to_string()))?;
        let outcome = bench.play(&file, &text, Limits::default(), None).map_err(within)?;
        let found = Measured::of(measure, &outcome, identity.counts_requests);
        measured.push(found.ok_or_else(|| within("no request came to its end".to_owned()))?);
        if measure.direction == Direction::Write {
            bench.rest(REST_NS)?;
        }
    }
    let split = split(&identity, &measured);
    let mut notes = Vec::new();
    if !measures.iter().any(|measure| measure.direction == Direction::Write) {
        notes.push("Nothing was written: what a twin says of writes is of its kind.".to_owned());
    }
    if identity.kind == "file" {
        notes.push(
            "A file is measured through its file system, and not its drive alone.".to_owned(),
        );
    }
    Ok(Measurements { schema: SCHEMA, identity, measured, split, notes })
}

impl Measured {
    fn of(measure: &Measure, outcome: &Outcome, counted: bool) -> Option<Measured> {
        let report = outcome.report.jobs.first()?.direction(measure.direction);
        if report.total_ios == 0 {
            return None;
        }
        let latency = if report.clat_ns.count > 0 { &report.clat_ns } else { &report.lat_ns };
        let sent = outcome.total(0);
        let (bytes, requests) = match measure.direction {
            Direction::Read => (sent.read_bytes, sent.reads),
            _ => (sent.write_bytes, sent.writes),
        };
        Some(Measured {
            measure: measure.clone(),
            requests: report.total_ios,
            seconds: report.total_ios as f64 / report.iops,
            iops: report.iops,
            mb_s: report.bw_bytes as f64 / 1e6,
            latency_us: LatencyPoints::of(latency),
            arrived_kib: (counted && requests > 0).then(|| bytes as f64 / requests as f64 / 1024.0),
        })
    }
}

impl LatencyPoints {
    fn of(report: &LatencyReport) -> LatencyPoints {
        let at = |wanted: f64| {
            let list = report.percentile.as_ref();
            let found = list.and_then(|list| list.0.iter().find(|(at, _)| *at >= wanted));
            found.map_or(report.mean, |(_, ns)| *ns as f64) / 1e3
        };
        let (mean, deviation) = (report.mean / 1e3, report.stddev / 1e3);
        LatencyPoints { mean, deviation, p1: at(1.0), p50: at(50.0), p99: at(99.0) }
    }
}

impl Measurements {
    /// Reads a file of measurements.
    ///
    /// # Errors
    /// A sentence that names the file.
    pub fn load(path: &Path) -> Result<Measurements, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        Measurements::parse(&path.display().to_string(), &text)
    }

    /// Reads the text of such a file; `origin` names it in errors.
    ///
    /// # Errors
    /// A sentence.
    pub fn parse(origin: &str, text: &str) -> Result<Measurements, String> {
        let found: Measurements = serde_json::from_str(text).map_err(|error| {
            format!("{origin} holds no measurements of 'bimetal probe': {error}")
        })?;
        if found.schema != SCHEMA {
            return Err(format!("{origin} has version {}, and {SCHEMA} is known", found.schema));
        }
        for one in &found.measured {
            let Measured { measure, iops, seconds, .. } = one;
            if !(*iops > 0.0 && iops.is_finite() && *seconds > 0.0 && seconds.is_finite()) {
                return Err(format!(
                    "{origin}: {} has a rate of {iops} in {seconds} s",
                    measure.id
                ));
            }
            measure.check(found.identity.size_bytes).map_err(|problem| {
                format!("{origin}: {} cannot have been: {problem}", measure.id)
            })?;
        }
        Ok(found)
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain data becomes JSON");
        text.push('\n');
        text
    }

    /// The measurement of that name.
    pub fn get(&self, id: &str) -> Option<&Measured> {
        self.measured.iter().find(|one| one.measure.id == id)
    }
}

#[cfg(test)]
mod tests;
