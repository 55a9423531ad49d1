//! Thomas-Krenn's comparison of hard disks, SSDs and an ioDrive: ten tests, both directions, one to
//! 64 jobs.
//!
//! The source leaves open its block sizes: 4 KiB for the tests of requests per second and 1 MiB for
//! those of throughput fit the disks to a few percent. Its MB is 2^20 bytes. All jobs of a test begin at
//! the same address, so that several sequential jobs find each other's blocks in a cache.

use twin::{Condition, Profile};

use super::measures::{read_iops, read_mib, write_iops, write_mib};
use super::{Bound, Chart, Experiment, Figure, RunRecord, STEP_S, Series, Stage, Step};

/// The pause between two tests.
const PAUSE_S: u64 = 30;
const FIVE_GB: u64 = 5 << 30;
/// Requests of a copy that tell its rate in virtual time: on a disk never reached within the minute.
const REQUESTS_MAX: u64 = 300_000;

struct Test {
    number: u8,
    throughput: bool,
    random: bool,
    span: &'static str,
    title: &'static str,
}

const fn test(
    number: u8,
    kind: &str,
    random: bool,
    span: &'static str,
    title: &'static str,
) -> Test {
    Test { number, throughput: matches!(kind.as_bytes(), b"MB/s"), random, span, title }
}

/// In the order of the published tables.
const TESTS: [Test; 10] = [
    test(1, "io/s", false, "whole", "IOPS, sequential, whole drive"),
    test(2, "io/s", false, "first10pct", "IOPS, sequential, first 10 %"),
    test(3, "io/s", true, "whole", "IOPS, random, whole drive"),
    test(4, "io/s", true, "first10pct", "IOPS, random, first 10 %"),
    test(5, "MB/s", false, "first5g", "MB/s, sequential, first 5 GB"),
    test(6, "MB/s", false, "last5g", "MB/s, sequential, last 5 GB"),
    test(7, "MB/s", false, "whole", "MB/s, sequential, whole drive"),
    test(8, "MB/s", true, "first5g", "MB/s, random, first 5 GB"),
    test(9, "MB/s", true, "last5g", "MB/s, random, last 5 GB"),
    test(10, "MB/s", true, "whole", "MB/s, random, whole drive"),
];

/// See the head of the file.
pub struct ThomasKrenn;

impl Experiment for ThomasKrenn {
    fn name(&self) -> &str {
        "thomas-krenn"
    }

    fn question(&self) -> &str {
        "What does a drive do of small and large requests, in order and at random, by one and by many?"
    }

    fn source(&self) -> &str {
        "Thomas-Krenn wiki, comparison of hard disks, SSDs and a Fusion-io ioDrive"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, bench: &str, size_bytes: u64) -> Vec<Step> {
        let config = config_of(bench);
        let jobs: &[u64] = match config {
            Some("iod" | "r5atp") => &[1, 4, 64],
            Some(_) => &[1, 4],
            None => &[1, 4, 64],
        };
        let mut steps = Vec::new();
        for test in &TESTS {
            for write in [false, true] {
                for count in jobs {
                    steps.push(step(test, write, *count, config, size_bytes, steps.is_empty()));
                }
            }
        }
        steps
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let bars = |unit: &str, published: bool| {
            let wanted = record.figures().filter(|figure| figure.unit == unit);
            wanted
                .filter(|figure| figure.column.ends_with(", 1 job"))
                .filter_map(|figure| {
                    let value = match published {
                        true => figure.published.map(|row| row.value()),
                        false => figure.measured,
                    };
                    let short = figure.column.split(',').next().unwrap_or_default();
                    Some((format!("{} {short}", figure.row), value?))
                })
                .collect::<Vec<_>>()
        };
        let chart = |name: &str, unit: &str, title: &str| {
            let mut chart = Chart::new(&format!("{name}:{}", record.on), title, "", unit);
            chart.y_log = true;
            chart.series.push(Series::bars("measured", false, bars(unit, false)));
            let published = bars(unit, true);
            if !published.is_empty() {
                chart.series.push(Series::bars("published", true, published));
            }
            chart
        };
        vec![
            chart("tk-iops", "io/s", "Requests per second, one job"),
            chart("tk-mb", "MB/s", "Throughput, one job"),
        ]
    }

    fn notes(&self, bench: &str) -> Vec<String> {
        let mut notes = vec![
            "MB is 2^20 bytes. Blocks of 4 KiB (IOPS) and 1 MiB (MB/s): the source does not say."
                .to_owned(),
            "Within 60 s a sequential test of the whole drive reaches only its first part: tests 1, 2 \
             and 5, 7 repeat each other, in the source too."
                .to_owned(),
        ];
        if bench.starts_with("twin:") {
            notes.push(format!(
                "In virtual time a test ends after {REQUESTS_MAX} requests of each job."
            ));
        }
        notes
    }
}

fn step(
    test: &Test,
    write: bool,
    jobs: u64,
    config: Option<&str>,
    size_bytes: u64,
    first: bool,
) -> Step {
    let direction = if write { "write" } else { "read" };
    let short = if write { "wr" } else { "rd" };
    let name = format!("t{:02}-{short}-j{jobs}", test.number);
    let pattern = if test.random { format!("rand{direction}") } else { direction.to_owned() };
    let block = if test.throughput { "1m" } else { "4k" };
    let span = match test.span {
        "first10pct" => "size=10%\n".to_owned(),
        "first5g" => "size=5g\n".to_owned(),
        "last5g" => {
            let start = size_bytes.saturating_sub(FIVE_GB) >> 20 << 20;
            format!("offset={start}\nsize=5g\n")
        }
        _ => String::new(),
    };
    let job = format!(
        "[{name}]\nioengine=psync\ndirect=1\nrw={pattern}\nbs={block}\n{span}numjobs={jobs}\n\
         group_reporting\nruntime={STEP_S}\ntime_based\n"
    );
    let (unit, measure): (_, super::Measure) = match (test.throughput, write) {
        (false, false) => ("io/s", read_iops),
        (false, true) => ("io/s", write_iops),
        (true, false) => ("MB/s", read_mib),
        (true, true) => ("MB/s", write_mib),
    };
    let plural = if jobs == 1 { "job" } else { "jobs" };
    let figure = Figure {
        id: config.map(|config| format!("tk-{config}-{name}")),
        row: test.title.to_owned(),
        column: format!("{direction}, {jobs} {plural}"),
        unit,
        measure,
    };
    Step {
        name,
        renew: first,
        rest_s: if first { 0 } else { PAUSE_S },
        restart: false,
        cut: None,
        memory: None,
        job,
        figures: vec![figure],
        bound: Bound { seconds: Some(STEP_S), requests: Some(REQUESTS_MAX) },
    }
}

/// The published configuration that a twin stands for.
fn config_of(bench: &str) -> Option<&'static str> {
    let profile = Profile::named(bench.strip_prefix("twin:")?).ok()?;
    let setting = profile.setting();
    let used = setting.condition == Condition::Used;
    Some(match (profile.name(), setting.write_cache, used) {
        ("wd5002abys", false, _) => "re3-wcoff",
        ("wd5002abys", true, _) => "re3-wcon",
        ("ssdsa2m160g2gc", false, false) => "x25m-wcoff-se",
        ("ssdsa2m160g2gc", false, true) => "x25m-wcoff-used",
        ("ssdsa2m160g2gc", true, true) => "x25m-wcon-used",
        ("raid5-4x-hus156060vl", ..) => "r5hit",
        ("raid5-4x-atp-velocity-sii", ..) => "r5atp",
        ("fusion-io-iodrive", ..) => "iod",
        ("ssdsa2cw160g310", true, _) => "i320-cacheon",
        ("ssdsa2cw160g310", false, _) => "i320-cacheoff",
        _ => return None,
    })
}
