//! Rows that need more than a drive: a fused volume, a hybrid drive, a machine's memory. The experiments answer
//! them, on volumes of twins that the engine makes.

use twin::Profile;

use crate::bench::{Bench, FusedBench, FusedKind, TwinBench};
use crate::experiment::{self, Progress, RunOptions};
use crate::reference::Row;

/// The Fusion Drive is played at this part of its size, with parts and passes as much smaller, so that
/// all of the comparison takes seconds.
const FUSION: &str = "apple-fusion:imac-fusion-ssd,scale=1/32+imac-fusion-disk,scale=1/32";

/// Experiments, what they are made on, and the rows that they answer.
pub const EXPERIMENTS: &[(&str, &str, &[&str])] = &[
    (
        "fusion",
        FUSION,
        &[
            "at-fill-switch",
            "at-fill-hdd-activity",
            "at-rnd-full",
            "at-8g-run1",
            "at-8g-run2",
            "at-8g-run3-peak",
            "at-8g-run3-min",
            "at-full-split",
        ],
    ),
    ("boot", "hybrid:st2000dx001-flash+st2000dx001-disk", &["ah-boot-hybrid"]),
    ("boot", "twin:wd3200bekt", &["ah-boot-hdd"]),
    ("boot", "twin:seagate-600-pro", &["ah-boot-ssd"]),
    (
        "lottery",
        "twin:wd3200bekt",
        &[
            "ah-rate-f",
            "ah-rate-j",
            "ah-rate-cached",
            "ah-rate-factor",
            "ah-faults-first",
            "ah-faults-second",
        ],
    ),
    ("working-set", "twin:st91000640ns", &["nr-sata-zipf"]),
];

/// Rows that a number of an experiment itself was taken from: how fast a program takes in what is in memory.
pub const FITTED: &[&str] = &["ah-rate-cached"];

struct Silent;

impl Progress for Silent {
    fn step(&self, _: usize, _: usize, _: &str) {}
}

/// A figure for each of these rows.
///
/// # Panics
/// When the place or the experiment does not exist, which a test excludes.
pub fn play(name: &str, place: &str, rows: &[&Row]) -> Vec<(String, f64)> {
    let experiment = experiment::named(name).expect("a test names every experiment");
    let mut bench = bench(place);
    let options = RunOptions { seed: 1, step_seconds: None };
    let run = experiment::run(experiment.as_ref(), bench.as_mut(), options, "", None, &Silent);
    let record = run.expect("a simulated bench fails at nothing");
    let of = |row: &&Row| {
        let mut figures = record.figures();
        let figure = figures.find(|figure| figure.id.as_deref() == Some(row.id.as_str()))?;
        Some((row.id.clone(), figure.measured?))
    };
    rows.iter().filter_map(of).collect()
}

fn bench(place: &str) -> Box<dyn Bench> {
    let (scheme, drives) = place.split_once(':').expect("places have a scheme");
    if scheme == "twin" {
        return Box::new(TwinBench::new(drives, 1).expect("a test makes every place"));
    }
    let kinds = [FusedKind::Own, FusedKind::Apple, FusedKind::Hybrid];
    let kind = kinds.into_iter().find(|kind| kind.scheme() == scheme).expect("a known scheme");
    Box::new(FusedBench::new(drives, kind, 1).expect("a test makes every place"))
}

/// Whether the place names twins that there are.
pub fn exists(place: &str) -> bool {
    let drives = place.split_once(':').map_or("", |(_, drives)| drives);
    drives.split('+').all(|choice| Profile::named(choice).is_ok())
}
