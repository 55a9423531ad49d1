//! Experiments from beginning to page, in virtual time.

use lab::bench::{Bench, TwinBench};
use lab::experiment::{self, Progress, RunOptions, RunRecord, Workload};
use lab::fio::JobFile;

const OPTIONS: RunOptions = RunOptions { seed: 1, step_seconds: Some(5) };

/// Counts the steps that are made.
#[derive(Default)]
struct Steps(std::cell::RefCell<Vec<String>>);

impl Progress for Steps {
    fn step(&self, _: usize, _: usize, name: &str) {
        self.0.borrow_mut().push(name.to_owned());
    }
}

fn disk() -> TwinBench {
    TwinBench::new("wd5002abys,cache=off", 1).unwrap()
}

#[test]
fn every_job_file_of_every_experiment_can_be_played() {
    for experiment in experiment::all() {
        for bench in ["twin:wd5002abys", "apple-fusion:a+b", "/dev/sdb"] {
            for step in experiment.steps(bench, 1_000_000_000_000) {
                let file = JobFile::parse(experiment.name(), &step.job);
                assert!(file.is_ok(), "{}", file.unwrap_err());
                assert!(step.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
            }
        }
        assert!(experiment::named(experiment.name()).is_some());
    }
}

#[test]
fn steps_that_are_done_are_not_done_again() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = experiment::named("working-set").unwrap();
    let run = || {
        let (mut bench, steps) = (disk(), Steps::default());
        let out = Some(dir.path());
        let record = experiment::run(experiment.as_ref(), &mut bench, OPTIONS, "x", out, &steps);
        (record.unwrap(), steps.0.take())
    };
    let (first, made) = run();
    assert_eq!(made, ["random-1g", "random-100g", "zipf"]);
    let (second, made) = run();
    assert!(made.is_empty(), "{made:?}");
    assert_eq!(second.steps.len(), first.steps.len());
    // The last step is lost: it is made again, alone, and with the same outcome.
    let path = dir.path().join("run.json");
    let mut record = RunRecord::load(dir.path()).unwrap().unwrap();
    record.steps.pop();
    std::fs::write(&path, serde_json::to_string(&record).unwrap()).unwrap();
    let (third, made) = run();
    assert_eq!(made, ["zipf"]);
    assert_eq!(third.steps[2].figures[0].measured, first.steps[2].figures[0].measured);
    // Another run does not go on in this directory.
    let (mut other, steps) = (TwinBench::new("wd5002abys", 1).unwrap(), Steps::default());
    let out = Some(dir.path());
    let refused = experiment::run(experiment.as_ref(), &mut other, OPTIONS, "x", out, &steps);
    assert!(refused.unwrap_err().contains("another run"));
}

#[test]
fn a_larger_part_of_a_disk_answers_later_and_the_page_shows_it() {
    let dir = tempfile::tempdir().unwrap();
    let experiment = experiment::named("working-set").unwrap();
    let (mut bench, steps) = (disk(), Steps::default());
    let record = experiment::run(
        experiment.as_ref(),
        &mut bench,
        OPTIONS,
        "the command",
        Some(dir.path()),
        &steps,
    );
    let record = record.unwrap();
    let times: Vec<f64> = record.figures().map(|figure| figure.measured.unwrap()).collect();
    assert!(times[0] < times[1] && times[1] < 20.0, "{times:?}");
    let runs = lab::report::runs(dir.path()).unwrap();
    let page = lab::report::page(&runs);
    for wanted in ["<svg", "the command", "working-set", "twin:wd5002abys,cache=off", "p99"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    // Nothing is fetched and nothing runs.
    assert!(!page.contains("<script") && !page.contains("src=") && !page.contains("@import"));
    for log in ["01-random-1g.json", "01-random-1g.fio", "01-random-1g.random-1g_clat.1.log"] {
        assert!(dir.path().join("steps").join(log).exists(), "{log}");
    }
}

#[test]
fn a_workload_of_ones_own_runs_and_what_a_drive_did_is_seen_each_second() {
    let workload = Workload::new("mine.fio", "[a]\nrw=randread\nruntime=4\ntime_based\n").unwrap();
    let (mut bench, steps) = (disk(), Steps::default());
    let record = experiment::run(&workload, &mut bench, OPTIONS, "x", None, &steps).unwrap();
    let outcome = &record.steps[0].outcome;
    assert!(outcome.moments.len() >= 4, "{:?}", outcome.moments);
    let read = &outcome.report.jobs[0].read;
    assert_eq!(outcome.total(0).reads, read.total_ios);
    assert!((60.0..120.0).contains(&read.iops), "{}", read.iops);
    assert_eq!(bench.drives().len(), 1);
}
