//! Experiments from beginning to page, in virtual time.

use engine::{CreateOptions, Engine, OpenOptions, Placement};
use io::{Durability, Volume};
use lab::bench::{Bench, FusedBench, FusedKind, TwinBench};
use lab::experiment::{self, Progress, RunOptions, RunRecord, Workload};
use lab::fio::JobFile;
use twin::{DriveSpec, Simulation};

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
            let steps = experiment.steps(bench, 1_000_000_000_000);
            for step in steps.iter().filter(|step| step.cut.is_none()) {
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
    assert_eq!(made, ["random-1g", "random-100g", "random-whole", "zipf"]);
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
    assert_eq!(third.steps[3].figures[0].measured, first.steps[3].figures[0].measured);
    // Another run does not go on in this directory.
    let (mut other, steps) = (TwinBench::new("wd5002abys", 1).unwrap(), Steps::default());
    let out = Some(dir.path());
    let refused = experiment::run(experiment.as_ref(), &mut other, OPTIONS, "x", out, &steps);
    assert!(refused.unwrap_err().contains("another run"));
}

/// Three steps of which each leans on the one before.
struct Chain;

impl experiment::Experiment for Chain {
    fn name(&self) -> &str {
        "chain"
    }

    fn question(&self) -> &str {
        "?"
    }

    fn source(&self) -> &str {
        ""
    }

    fn stage(&self) -> experiment::Stage {
        experiment::Stage::Drive
    }

    fn steps(&self, _: &str, _: u64) -> Vec<experiment::Step> {
        let step = |name: &str| experiment::Step {
            name: name.to_owned(),
            renew: name == "one",
            rest_s: 0,
            restart: false,
            cut: None,
            memory: None,
            job: format!("[{name}]\nrw=randwrite\nbs=4k\nsize=1g\n"),
            figures: vec![experiment::Figure {
                id: None,
                row: "written".to_owned(),
                column: name.to_owned(),
                unit: "io/s",
                measure: |outcome, _| outcome.iops(lab::fio::Direction::Write),
            }],
            bound: experiment::Bound { seconds: Some(1), requests: None },
        };
        ["one", "two", "three"].map(step).into()
    }

    fn charts(&self, _: &RunRecord) -> Vec<experiment::Chart> {
        Vec::new()
    }
}

/// Notes how many steps the directory holds when each one begins.
struct Kept<'a>(&'a std::path::Path, std::cell::RefCell<Vec<(String, usize)>>);

impl Progress for Kept<'_> {
    fn step(&self, _: usize, _: usize, name: &str) {
        let kept = RunRecord::load(self.0).unwrap().map_or(0, |record| record.steps.len());
        self.1.borrow_mut().push((name.to_owned(), kept));
    }
}

#[test]
fn steps_that_lean_on_others_are_played_again_and_what_was_kept_stays_meanwhile() {
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let (mut bench, kept) = (disk(), Kept(dir.path(), std::cell::RefCell::default()));
        let record =
            experiment::run(&Chain, &mut bench, OPTIONS, "x", Some(dir.path()), &kept).unwrap();
        (record, kept.1.take())
    };
    let forget = |change: fn(&mut RunRecord)| {
        let mut record = RunRecord::load(dir.path()).unwrap().unwrap();
        change(&mut record);
        let text = serde_json::to_string(&record).unwrap();
        std::fs::write(dir.path().join("run.json"), text).unwrap();
    };
    let name = |name: &str, kept: usize| (name.to_owned(), kept);
    let (whole, made) = run();
    assert_eq!(made, [name("one", 0), name("two", 1), name("three", 2)]);
    forget(|record| _ = record.steps.pop());
    let (again, made) = run();
    assert_eq!(made, [name("one (again)", 2), name("two (again)", 2), name("three", 2)]);
    let figures = |record: &RunRecord| -> Vec<_> { record.figures().map(|f| f.measured).collect() };
    assert_eq!(figures(&again), figures(&whole));
    // Kept by a program that measured something else: nothing of it is believed.
    forget(|record| {
        record.steps.pop();
        record.steps[0].figures[0].measured = Some(1.0);
    });
    let (fresh, made) = run();
    assert_eq!(made, [name("one (again)", 2), name("two", 1), name("three", 2)]);
    assert_eq!(figures(&fresh), figures(&whole));
    assert_eq!(RunRecord::load(dir.path()).unwrap().unwrap().steps.len(), 3);
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
    let (runs, _) = lab::report::runs(dir.path()).unwrap();
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

#[test]
fn a_fused_volume_takes_small_writes_on_its_fast_drive() {
    let pair = "imac-fusion-ssd+imac-fusion-disk";
    let mut bench = FusedBench::new(pair, FusedKind::Own, 1).unwrap();
    let text = "[a]\nrw=randwrite\nbs=4k\nsize=1g\nruntime=2\ntime_based\n";
    let workload = Workload::new("mine.fio", text).unwrap();
    let record =
        experiment::run(&workload, &mut bench, OPTIONS, "x", None, &Steps::default()).unwrap();
    let outcome = &record.steps[0].outcome;
    assert!(outcome.report.jobs[0].write.total_ios > 1000, "{:?}", outcome.report.jobs[0].write);
    assert!(outcome.total(0).writes > 1000 && outcome.total(1).write_bytes < 1 << 20);
    assert_eq!(record.drives.len(), 2);
}

/// Writes a volume full, overwrites a block of its slow drive, and gives how many bytes the slow drive
/// was written for that, without a rest.
fn written_below(placement: Placement) -> u64 {
    let simulation = Simulation::new(1);
    let atomic =
        |spec: DriveSpec| DriveSpec { atomic_write_bytes: 4096, zeros_are_holes: true, ..spec };
    let fast = simulation.add_drive(atomic(DriveSpec::fast("fast", 64 << 20)));
    let slow = simulation.add_drive(atomic(DriveSpec::slow("slow", 256 << 20)));
    let io = simulation.boot();
    let devices = [fast, slow].map(|drive| simulation.device(&io, drive));
    let below = simulation.run(&io, async {
        let [fast_device, slow_device] = &devices;
        let create = CreateOptions::new("v");
        engine::create(&io, fast_device, slow_device, create, &|_, _| ()).await.unwrap();
        let options = OpenOptions { placement, ..OpenOptions::default() };
        let volume = Engine::open(&io, fast_device, slow_device, options).await.unwrap();
        let size = volume.info().size_bytes;
        for at in (0..size - (1 << 20)).step_by(1 << 20) {
            let buf = io.pool().take_zeroed(1 << 20);
            volume.write(at, buf, Durability::Volatile).await.1.unwrap();
        }
        volume.flush().await.unwrap();
        // Until a new extent's record is durable its data may not change in place.
        io.sleep(2_000_000_000).await;
        let (at, before) = (size - (8 << 20), simulation.counters(slow).write_bytes);
        let mut buf = io.pool().take_zeroed(4096);
        buf.fill(7);
        volume.write(at, buf, Durability::Volatile).await.1.unwrap();
        let below = simulation.counters(slow).write_bytes - before;
        volume.flush().await.unwrap();
        // It is there, also after the volume was closed and opened again.
        volume.close().await.unwrap();
        let again = Engine::open(&io, fast_device, slow_device, options).await.unwrap();
        let (buf, outcome) = again.read(at, io.pool().take(8192)).await;
        outcome.unwrap();
        assert!(buf[..4096].iter().all(|byte| *byte == 7) && buf[4096..].iter().all(|b| *b == 0));
        again.close().await.unwrap();
        below
    });
    io.drop_tasks();
    below.done()
}

#[test]
fn a_fusion_drives_overwrites_stay_where_they_live_and_bimetals_land_on_flash() {
    assert_eq!(written_below(Placement::Fusion), 4096);
    assert_eq!(written_below(Placement::Heat), 0);
}

#[track_caller]
fn run(name: &str, bench: &mut dyn Bench) -> RunRecord {
    let experiment = experiment::named(name).unwrap();
    let options = RunOptions { seed: 1, step_seconds: None };
    experiment::run(experiment.as_ref(), bench, options, "x", None, &Steps::default()).unwrap()
}

fn figure(record: &RunRecord, row: &str, column: &str) -> f64 {
    let found = record.figures().find(|figure| figure.row == row && figure.column == column);
    found.unwrap_or_else(|| panic!("{row}, {column}")).measured.unwrap()
}

#[test]
fn a_hybrid_drive_starts_a_machine_sooner_the_next_time_and_others_do_not() {
    let pair = "st2000dx001-flash+st2000dx001-disk";
    let mut hybrid = FusedBench::new(pair, FusedKind::Hybrid, 1).unwrap();
    let row = "time against that of the first start";
    let learnt = run("boot", &mut hybrid);
    let ratio = figure(&learnt, row, "second start");
    assert!((0.3..0.9).contains(&ratio), "{:#?}", learnt.figures().collect::<Vec<_>>());
    assert!(figure(&learnt, row, "third start") <= ratio + 0.05);
    // The disk alone takes half as long again, each time.
    let mut disk = TwinBench::new("st2000dx001-disk", 1).unwrap();
    let alone = figure(&run("boot", &mut disk), "start 2", "time");
    assert!(figure(&learnt, "start 2", "time") < 0.72 * alone, "{alone}");
    for other in ["wd3200bekt", "seagate-600-pro"] {
        let mut bench = TwinBench::new(other, 1).unwrap();
        let ratio = figure(&run("boot", &mut bench), row, "second start");
        assert!((0.95..1.05).contains(&ratio), "{other}: {ratio}");
    }
}

#[test]
fn the_page_cache_makes_the_lottery_and_not_the_drive() {
    let mut bench = TwinBench::new("wd3200bekt", 1).unwrap();
    let record = run("lottery", &mut bench);
    let first = "first run, empty page cache";
    let frequent = figure(&record, first, "file f, 24 tickets");
    let rare = figure(&record, first, "file j, 2 tickets");
    assert!(rare < frequent, "{rare} and {frequent}");
    assert_eq!(figure(&record, first, "reads of the drive"), 10.0);
    assert_eq!(figure(&record, "second run", "reads of the drive"), 0.0);
    assert_eq!(figure(&record, "every ticket from the drive", "reads of the drive"), 100.0);
}

#[test]
fn who_does_not_flush_is_fast_and_loses_what_it_acknowledged() {
    let lost = |record: &RunRecord, row: &str| {
        (figure(record, row, "of these lost"), figure(record, row, "later kept, earlier lost"))
    };
    let evo = run("powercut", &mut TwinBench::new("samsung-860-evo-500", 1).unwrap());
    assert_eq!(lost(&evo, "flushes done, cache lost"), (0.0, 0.0));
    assert_eq!(lost(&evo, "flushes done, cache partly written").0, 0.0);
    assert!(lost(&evo, "flushes not done, cache lost").0 > 100.0);
    assert!(lost(&evo, "flushes not done, then five seconds idle").0 > 100.0);
    assert_eq!(lost(&evo, "flushes not done, cache partly written").1, 1.0);
    assert!(
        figure(&evo, "never flushed", "writes")
            > 10.0 * figure(&evo, "flushed after each", "writes")
    );
    // Without a cache there is nothing to lose, whatever is said of flushes.
    let stick = run("powercut", &mut TwinBench::new("usb3-flash-drive", 1).unwrap());
    assert_eq!(lost(&stick, "flushes not done, cache lost"), (0.0, 0.0));
}

#[test]
fn a_twin_made_of_its_data_sheet_does_what_that_says() {
    let mut bench = TwinBench::new("samsung-850-evo-1tb", 1).unwrap();
    let experiment = experiment::named("ssd-spec").unwrap();
    let record =
        experiment::run(experiment.as_ref(), &mut bench, OPTIONS, "x", None, &Steps::default());
    let record = record.unwrap();
    let advertised = record.figures().filter(|figure| figure.column.starts_with("advertised"));
    let errors: Vec<f64> = advertised.map(|figure| figure.error_percent.unwrap()).collect();
    assert_eq!(errors.len(), 4);
    assert!(errors.iter().all(|error| error.abs() < 5.0), "{errors:?}");
    // One request at a time, of which no other figure says anything.
    for (direction, promised) in [("read", 10_000.0), ("write", 40_000.0)] {
        let text = format!(
            "[fill]\nrw=write\nbs=1m\nsize=1g\n\n[a]\nstonewall\nrw=rand{direction}\nbs=4k\nsize=1g\n\
             runtime=2\ntime_based\n"
        );
        let workload = Workload::new("one.fio", &text).unwrap();
        let record =
            experiment::run(&workload, &mut bench, OPTIONS, "x", None, &Steps::default()).unwrap();
        let job = &record.steps[0].outcome.report.jobs[1];
        let iops = if direction == "read" { job.read.iops } else { job.write.iops };
        assert!((iops / promised - 1.0).abs() < 0.05, "{direction}: {iops}");
    }
}
