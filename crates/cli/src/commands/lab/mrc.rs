//! `bimetal lab mrc`: how often caches of all sizes would miss.

use std::path::PathBuf;

use clap::Args;
use io::units::{human_bytes, parse_bytes};
use lab::miss_ratio::MissRatioCurve;
use lab::trace::{Footprint, Trace};
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Sizes shown, in percent of what the trace touches.
const PERCENTS: [u64; 11] = [1, 2, 5, 10, 20, 30, 40, 50, 70, 90, 100];

/// Below so many places followed a sample is not to be trusted (errors of 0.65 have been seen).
const PLACES_MIN: u64 = 1000;

/// The miss-ratio curve of a block trace
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab mrc monday.csv.zst
  bimetal --json lab mrc monday.csv.zst --unit 4K --sample 0.05

For each size, the share of reads (in units) that a cache of the last used units would miss. With
--sample only a share of the places is followed, which is what a running server can afford; the exact
curve is computed too, and the difference said.")]
pub struct MrcArguments {
    /// The trace
    #[arg(value_name = "TRACE")]
    trace: PathBuf,
    /// What is cached as one
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "128K")]
    unit: u64,
    /// Follow only this share of the places
    #[arg(long, value_name = "SHARE", value_parser = share)]
    sample: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    trace: PathBuf,
    unit_bytes: u64,
    footprint: Footprint,
    curve: Vec<Point>,
    sample: Option<Sample>,
}

#[derive(Debug, Serialize)]
struct Point {
    size_bytes: u64,
    size_percent: u64,
    miss_ratio: f64,
    sampled_miss_ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Sample {
    share: f64,
    places: u64,
    mean_error: f64,
    worst_error: f64,
}

/// Runs the command.
pub fn run(arguments: &MrcArguments, settings: &Settings) -> Outcome {
    if !(512..=1 << 30).contains(&arguments.unit) {
        return Err(Failure::usage("a unit has 512 bytes to 1 GiB"));
    }
    let trace = Trace::read(&arguments.trace).map_err(Failure::failed)?;
    let exact = MissRatioCurve::exact(&trace.events, arguments.unit);
    let sampled = arguments
        .sample
        .map(|share| (share, MissRatioCurve::sampled(&trace.events, arguments.unit, share)));
    let point = |percent: u64| {
        let size_bytes = exact.touched_bytes * percent / 100;
        Point {
            size_bytes,
            size_percent: percent,
            miss_ratio: exact.at(size_bytes),
            sampled_miss_ratio: sampled.as_ref().map(|(_, curve)| curve.at(size_bytes)),
        }
    };
    let report = Report {
        trace: arguments.trace.clone(),
        unit_bytes: arguments.unit,
        footprint: Footprint::of(&trace.events, arguments.unit),
        curve: PERCENTS.map(point).into(),
        sample: sampled.as_ref().map(|(share, curve)| {
            let (mean_error, worst_error) = exact.error_from(curve);
            Sample { share: *share, places: curve.places, mean_error, worst_error }
        }),
    };
    settings.output.show("lab mrc", &report, text)?;
    Ok(Exit::Done)
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        ("CACHE", Align::Right),
        ("OF WHAT IS TOUCHED", Align::Right),
        ("MISSES", Align::Right),
        ("SAMPLED", Align::Right),
    ]);
    for point in &report.curve {
        table.row([
            human_bytes(point.size_bytes),
            format!("{} %", point.size_percent),
            format!("{:.1} %", point.miss_ratio * 100.0),
            point.sampled_miss_ratio.map_or_else(String::new, |r| format!("{:.1} %", r * 100.0)),
        ]);
    }
    let sum = &report.footprint;
    let mut text = format!(
        "{}: {} reads ({}), {} writes ({}), {} flushes; {} touched, in units of {}\n\n{}",
        report.trace.display(),
        sum.reads,
        human_bytes(sum.read_bytes),
        sum.writes,
        human_bytes(sum.write_bytes),
        sum.flushes,
        human_bytes(sum.touched_extents * report.unit_bytes),
        human_bytes(report.unit_bytes),
        table.render()
    );
    if let Some(sample) = &report.sample {
        text += &format!(
            "\nthe sample of {} places is off by {:.3} in the mean, {:.3} at worst\n",
            sample.places, sample.mean_error, sample.worst_error
        );
        if sample.places < PLACES_MIN {
            text += &format!("fewer than {PLACES_MIN} places: do not trust it\n");
        }
    }
    text
}

fn share(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "a number")?;
    if value > 0.0 && value <= 1.0 { Ok(value) } else { Err("above 0 and at most 1".to_owned()) }
}
