//! The same job files in fio itself: the order of requests is drawn alike.

use std::collections::HashMap;
use std::process::Command;

use lab::fio::{Direction, JobFile, Limits, Report, play};
use twin::{DriveSpec, Simulation};

/// Requests of each job: enough to tell distributions apart, few enough for a second.
const SIZE: &str = "bs=4k\nsize=40m\nio_size=200m\n";
const BLOCKS: usize = 10_240;

fn has_fio(test: &str) -> bool {
    let there = Command::new("fio").arg("--version").output().is_ok();
    if !there {
        eprintln!("{test}: skipped, there is no fio (scripts/setup brings it)");
    }
    there
}

/// How often fio goes to each block, the most visited first.
fn counts_of_fio(pattern: &str) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let text = format!("[a]\nioengine=null\n{SIZE}{pattern}\nwrite_iolog=log\n");
    std::fs::write(dir.path().join("a.fio"), text).unwrap();
    let run = Command::new("fio").arg("a.fio").current_dir(dir.path()).output().unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
    // "MSEC FILE read OFFSET LENGTH"
    let offsets = log.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(2);
        (words.next()? == "read").then(|| words.next()?.parse::<u64>().ok()).flatten()
    });
    counted(offsets)
}

/// The same of a twin.
fn counts_of_ours(pattern: &str) -> Vec<u64> {
    let file = JobFile::parse("a.fio", &format!("[a]\n{SIZE}{pattern}\n")).unwrap();
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveSpec::fast("drive", 64 << 20));
    simulation.keep_trace_text();
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let played = simulation.run(&io, play(&device, &file, Limits::default())).done();
    assert_eq!(played.jobs[0].requests(Direction::Read), 51_200);
    // "… drive 0 Read at OFFSET length …"
    let text = simulation.trace_text();
    let offsets = text.iter().filter_map(|line| {
        let at = line.split(" Read at ").nth(1)?;
        at.split(' ').next()?.parse::<u64>().ok()
    });
    counted(offsets)
}

fn counted(offsets: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut counts: HashMap<u64, u64> = HashMap::new();
    offsets.for_each(|at| *counts.entry(at).or_default() += 1);
    let mut counts: Vec<u64> = counts.into_values().collect();
    counts.sort_unstable_by(|one, other| other.cmp(one));
    counts
}

/// What share of all requests goes to the `most` blocks that are visited most.
fn share(counts: &[u64], most: usize) -> f64 {
    let all: u64 = counts.iter().sum();
    counts.iter().take(most).sum::<u64>() as f64 / all as f64
}

#[test]
fn requests_are_spread_as_fio_spreads_them() {
    if !has_fio("requests_are_spread_as_fio_spreads_them") {
        return;
    }
    for distribution in
        ["random", "zipf:1.2", "zipf:0.8", "pareto:0.2", "pareto:0.4", "zoned:60/10:30/20:10/70"]
    {
        let pattern = format!("rw=randread\nrandom_distribution={distribution}");
        let (theirs, ours) = (counts_of_fio(&pattern), counts_of_ours(&pattern));
        assert_eq!(theirs.iter().sum::<u64>(), ours.iter().sum::<u64>(), "{distribution}");
        for most in [1, 10, 100, 1000, BLOCKS / 2] {
            let (theirs, ours) = (share(&theirs, most), share(&ours, most));
            let close = (theirs - ours).abs() < 0.01 + 0.05 * theirs;
            assert!(
                close,
                "{distribution}: the first {most} have {theirs} of fio's, {ours} of ours"
            );
        }
    }
    // Uniform: every block five times, no more and no less.
    let even = counts_of_ours("rw=randread");
    assert_eq!((even.len(), even[0], even[BLOCKS - 1]), (BLOCKS, 5, 5));
}

#[test]
fn a_report_of_fio_is_read_and_ours_has_all_it_has() {
    if !has_fio("a_report_of_fio_is_read_and_ours_has_all_it_has") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let text = "[a]\nioengine=null\nrw=randrw\nbs=4k\nsize=4m\nfsync=16\n";
    std::fs::write(dir.path().join("a.fio"), text).unwrap();
    let mut fio = Command::new("fio");
    fio.args(["--output-format=json", "a.fio"]).current_dir(dir.path());
    let printed = fio.output().unwrap().stdout;
    let theirs: Report = serde_json::from_slice(&printed).unwrap();
    assert_eq!(theirs.jobs[0].read.total_ios + theirs.jobs[0].write.total_ios, 1024);
    let file = JobFile::parse("a.fio", "[a]\nrw=randrw\nsize=4m\nfsync=16\n").unwrap();
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveSpec::fast("drive", 64 << 20));
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let played = simulation.run(&io, play(&device, &file, Limits::default())).done();
    let ours = serde_json::to_value(Report::of(&file, &played)).unwrap();
    let theirs: serde_json::Value = serde_json::from_slice(&printed).unwrap();
    let missing = missing(&theirs, &ours, "");
    assert!(missing.is_empty(), "{missing:?}");
}

/// Fields of `theirs` that `ours` has not.
fn missing(theirs: &serde_json::Value, ours: &serde_json::Value, path: &str) -> Vec<String> {
    use serde_json::Value;
    match (theirs, ours) {
        (Value::Object(fields), Value::Object(others)) => {
            // The job file's own words.
            let fields = fields.iter().filter(|(name, _)| *name != "job options");
            let look = |(name, value): (&String, &Value)| match others.get(name) {
                None => vec![format!("{path}/{name}")],
                Some(other) => missing(value, other, &format!("{path}/{name}")),
            };
            fields.flat_map(look).collect()
        }
        (Value::Array(items), Value::Array(others)) => {
            let pairs = items.iter().zip(others);
            pairs.flat_map(|(one, other)| missing(one, other, path)).collect()
        }
        _ => Vec::new(),
    }
}
