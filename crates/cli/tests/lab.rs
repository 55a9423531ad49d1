//! `bimetal lab run`, `fio`, `list` and `report`, as a person uses them.

mod support;

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};

use support::*;

/// It ended well and said all of this.
#[track_caller]
fn told(said: &Said, words: &[&str]) {
    said.expect(0, &[]);
    for word in words {
        assert!(said.out.contains(word), "'{word}' is missing: {said:#?}");
    }
}

#[test]
fn strict_flushes_keep_the_drives_rate_and_deferred_ones_do_not() {
    let place = Place::new();
    let words = ["--json", "lab", "durability", "--flush-us", "10000", "--clients", "1"];
    let modes = ["--mode", "strict", "--mode", "deferred=1s"];
    let report = place.bimetal(&[&words[..], &modes].concat()).expect(0, &[]).json();
    let rate = |row: usize| report["rows"][row]["rewrites_per_second"].as_f64().unwrap();
    assert!((90.0..=100.0).contains(&rate(0)) && rate(1) > 10_000.0, "{report}");
    place.bimetal(&["lab", "durability", "--mode", "lax"]).expect(2, &["'lax'", "deferred=MS"]);
}

const JOB: &str = "[hot]\nrw=randread\nbs=4k\nruntime=5\ntime_based\n";

#[test]
fn a_job_file_runs_on_a_twin_and_its_report_is_fios() {
    let place = Place::new();
    fs::write(place.path("mine.fio"), JOB).unwrap();
    let run = ["lab", "run", "mine.fio", "--on", "twin:wd5002abys", "--out", "kept"];
    told(&place.bimetal(&run), &["hot", "read", "virtual time", "lab report kept"]);
    let report = fs::read_to_string(place.path("kept/steps/01-jobs.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["jobs"][0]["jobname"], "hot");
    assert!(report["jobs"][0]["read"]["clat_ns"]["percentile"]["99.000000"].is_u64());
    told(&place.bimetal(&["lab", "report", "kept"]), &["kept/report.html", "1 runs"]);
    assert!(fs::read_to_string(place.path("kept/report.html")).unwrap().contains("<svg"));
    let json = [&["--json"], &run[..5]].concat();
    told(&place.bimetal(&json), &["\"output_version\":{\"command\":\"lab run\""]);
}

#[test]
fn what_cannot_be_played_or_found_is_refused_with_what_to_do() {
    let place = Place::new();
    fs::write(place.path("bad.fio"), "[a]\nrw=read\nverify=md5\n").unwrap();
    let run = |what: &str, on: &str| place.bimetal(&["lab", "run", what, "--on", on]);
    run("bad.fio", "twin:wd5002abys").expect(2, &["bad.fio:3: verify=md5", "fio-jobs.md"]);
    run("nothing", "twin:wd5002abys").expect(2, &["neither an experiment nor", "working-set"]);
    run("nothing.fio", "twin:wd5002abys").expect(2, &["there is no file 'nothing.fio'"]);
    fs::write(place.path("far.fio"), "[far]\nrw=read\noffset=600g\nsize=1g\n").unwrap();
    run("far.fio", "twin:wd5002abys").expect(1, &["'far' begins behind the end", "wd5002abys has"]);
    fs::write(place.path("huge.fio"), "[huge]\nrw=read\nsize=100T\n").unwrap();
    run("huge.fio", "twin:wd5002abys").expect(1, &["'huge' asks for more than there is"]);
    run("working-set", "twin:nothing").expect(2, &["nothing", "wd5002abys"]);
    run("fusion", "twin:wd5002abys").expect(2, &["needs a volume", "fusion:FAST+SLOW"]);
    run("working-set", "vol0").expect(1, &["no volume 'vol0' is served"]);
    place.bimetal(&["lab", "report", "."]).expect(1, &["holds no runs"]);
    told(&place.bimetal(&["lab", "list"]), &["thomas-krenn", "fusion", "lottery"]);
    let fio = ["lab", "fio", "thomas-krenn", "--step", "t03-rd-j4"];
    told(&place.bimetal(&fio), &["[t03-rd-j4]", "numjobs=4", "rw=randread"]);
    place.bimetal(&["lab", "fio", "working-set", "--size", "1K"]).expect(2, &["at least 16M"]);
}

#[test]
fn what_fio_is_printed_is_one_job_file_whose_steps_follow_one_another() {
    let place = Place::new();
    let printed = place.bimetal(&["lab", "fio", "working-set"]);
    fs::write(place.path("all.fio"), &printed.out).unwrap();
    let run = |what: &str| {
        let words = ["--json", "lab", "run", what, "--on", "twin:st91000640ns"];
        place.bimetal(&words).expect(0, &[]).json()
    };
    let mean = |run: &serde_json::Value, step: usize, job: usize| {
        let report = &run["steps"][step]["outcome"]["report"];
        report["jobs"][job]["read"]["clat_ns"]["mean"].as_f64().unwrap()
    };
    let (own, printed) = (run("working-set"), run("all.fio"));
    for step in 0..own["steps"].as_array().unwrap().len() {
        let ratio = mean(&printed, 0, step) / mean(&own, step, 0);
        assert!((0.95..1.05).contains(&ratio), "{step}: {ratio}");
    }
    told(&place.bimetal(&["lab", "fio", "fusion", "--out", "jobs"]), &["8 job files in jobs"]);
    let rest = fs::read_to_string(place.path("jobs/03-whole-random.fio")).unwrap();
    assert!(rest.starts_with("; the drive rests 600 s"), "{rest}");
}

#[test]
fn another_seed_draws_other_places_and_the_same_one_the_same() {
    let place = Place::new();
    fs::write(place.path("mine.fio"), JOB).unwrap();
    let rate = |seed: &str| {
        let words = ["--json", "lab", "run", "mine.fio", "--on", "twin:wd5002abys", "--seed", seed];
        let run = place.bimetal(&words).expect(0, &[]).json();
        run["steps"][0]["outcome"]["report"]["jobs"][0]["read"]["iops"].as_f64().unwrap()
    };
    assert_eq!(rate("2").to_bits(), rate("2").to_bits());
    assert_ne!(rate("2").to_bits(), rate("3").to_bits());
}

#[test]
fn a_run_that_cannot_be_read_is_named_and_the_others_are_shown() {
    let place = Place::new();
    fs::write(place.path("mine.fio"), JOB).unwrap();
    let run = ["lab", "run", "mine.fio", "--on", "twin:wd5002abys", "--out", "all/good"];
    told(&place.bimetal(&run), &["hot"]);
    fs::create_dir_all(place.path("all/bad")).unwrap();
    fs::write(place.path("all/bad/run.json"), "{\"schema\":1,").unwrap();
    let report = place.bimetal(&["lab", "report", "all"]);
    report.expect(1, &["left out", "all/bad/run.json is no record of a run"]);
    assert!(report.out.contains("1 runs"), "{report:#?}");
}

#[test]
fn who_ends_a_measurement_ends_fio_with_it() {
    if !has_tools("fio on a file", &["fio"]) {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("tmp")).unwrap();
    let mut command = place.command();
    command.args(["lab", "run", "flush", "--on", "drive.img:80M", "--seconds", "40"]);
    command.env("TMPDIR", place.path("tmp")).stderr(std::process::Stdio::piped());
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let directory = place.path("tmp").display().to_string();
    let measures = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|it| fs::read_to_string(it.path().join("cmdline")).ok());
        lines.filter(|line| line.contains(&directory)).count()
    };
    let began = std::time::Instant::now();
    while measures() == 0 && began.elapsed().as_secs() < 20 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = wait(&mut child).expect("it ends");
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    assert!(began.elapsed().as_secs() < 30, "it did not wait for the end of the step");
    assert_eq!(measures(), 0);
    assert_eq!(fs::read_dir(place.path("tmp")).unwrap().count(), 0, "nothing stays behind");
}

#[test]
fn fio_measures_a_file_that_holds_nothing_and_no_other() {
    if !has_tools("fio on a file", &["fio"]) {
        return;
    }
    let place = Place::new();
    let write = "[w]\nrw=randwrite\nbs=4k\nio_size=1m\nioengine=psync\n";
    fs::write(place.path("w.fio"), write).unwrap();
    let run = ["lab", "run", "w.fio", "--on", "drive.img:8M"];
    told(&place.bimetal(&run), &["measured by fio", "write"]);
    place.bimetal(&run).expect(4, &["holds data", "--force"]);
    told(&place.bimetal(&[&run[..], &["--force"]].concat()), &["measured by fio"]);
    fs::write(place.path("r.fio"), "[r]\nrw=read\nbs=64k\n").unwrap();
    let read = place.bimetal(&["--json", "lab", "run", "r.fio", "--on", "drive.img"]);
    told(&read, &["\"io_bytes\":8388608"]);
}

#[test]
fn a_file_that_is_too_short_is_refused_and_stays_what_it_is() {
    if !has_tools("fio on a file", &["fio"]) {
        return;
    }
    let place = Place::new();
    let image = pattern(7, 1 << 20);
    fs::write(place.path("disk.img"), &image).unwrap();
    // The last piece that is read begins in it and ends behind it.
    let file = fs::OpenOptions::new().write(true).open(place.path("disk.img")).unwrap();
    file.set_len(950_000_000).unwrap();
    let inode = || fs::metadata(place.path("disk.img")).unwrap().ino();
    let before = inode();
    let run = |words: &[&str]| place.bimetal(&[&["lab", "run"], words].concat());
    let on = ["--on", "disk.img", "--force"];
    run(&["lottery", "--on", "disk.img"]).expect(1, &["more than there is", "disk.img has"]);
    let jobs = [
        ("r.fio", "[r]\nrw=read\nsize=1g\n"),
        ("w.fio", "[w]\nrw=write\nsize=1g\n"),
        ("filesize.fio", "[global]\nfilesize=8g\n[r]\nrw=read\nsize=1m\n"),
    ];
    for (name, job) in jobs {
        fs::write(place.path(name), job).unwrap();
    }
    for name in ["r.fio", "w.fio"] {
        run(&[&[name][..], &on].concat()).expect(1, &["more than there is"]);
    }
    run(&[&["filesize.fio"][..], &on].concat()).expect(2, &["filesize=8g", "say size="]);
    assert_eq!(inode(), before, "it was replaced");
    assert_eq!(fs::metadata(place.path("disk.img")).unwrap().len(), 950_000_000);
    let mut begin = vec![0; image.len()];
    fs::File::open(place.path("disk.img")).unwrap().read_exact_at(&mut begin, 0).unwrap();
    assert!(begin == image, "it was written");
}

#[test]
fn a_drive_of_a_served_volume_is_not_measured_by_writing() {
    if !has_tools("fio on a served drive", &["fio"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    fs::write(place.path("w.fio"), SHORT.replace("randread", "randwrite")).unwrap();
    fs::write(place.path("r.fio"), SHORT).unwrap();
    let run = |what: &str, more: &[&str]| {
        place.bimetal(&[&["lab", "run", what, "--on", "v.slow"], more].concat())
    };
    let server = place.serve(&["v"]);
    run("w.fio", &["--force"]).expect(4, &["in use", "no flag overrides"]);
    // Reading only disturbs.
    run("r.fio", &[]).expect(4, &["in use", "--force reads it"]);
    told(&run("r.fio", &["--force"]), &["measured by fio"]);
    place.bimetal(&["probe", "v.slow", "--write"]).expect(4, &["in use"]);
    assert!(server.stop().success());
    place.bimetal(&["check", "v"]).expect(0, &[]);
}

#[test]
fn a_drive_that_is_measured_by_writing_is_not_served() {
    if !has_tools("fio on a drive", &["fio"]) {
        return;
    }
    let place = Place::new();
    place.create("v", "64M", "128M");
    let long = SHORT.replace("randread", "randwrite").replace("runtime=1", "runtime=60");
    fs::write(place.path("w.fio"), long).unwrap();
    let mut command = place.command();
    command.args(["lab", "run", "w.fio", "--on", "v.slow", "--force"]);
    let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
    let drive = fs::File::open(place.path("v.slow")).unwrap();
    eventually("the drive is locked", || match drive.try_lock_shared() {
        Ok(()) => drive.unlock().is_err(),
        Err(error) => matches!(error, fs::TryLockError::WouldBlock),
    });
    place.bimetal(&["serve", "v", "--run", "true"]).expect(4, &["v.slow is in use"]);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    wait(&mut child).expect("it ends");
}

#[test]
fn a_twin_that_is_probed_and_fitted_can_be_used_like_any_other() {
    let place = Place::new();
    let probe = ["probe", "twin:wd5002abys", "--seconds", "2", "--out", "re3.json"];
    told(
        &place.bimetal(&probe),
        &["rand-read-4k-over-1-percent", "Nothing was written", "re3.json"],
    );
    place.bimetal(&probe).expect(4, &["re3.json exists"]);
    let fit = ["twin", "fit", "--from", "re3.json"];
    told(&place.bimetal(&fit), &["twin re3 in re3.toml", "predicted", "median error"]);
    place.bimetal(&fit).expect(4, &["re3.toml exists"]);
    told(
        &place.bimetal(&["twin", "show", "./re3.toml"]),
        &["rpm", "7200", "rand-read-4k-over-1-percent"],
    );
    fs::write(place.path("r.fio"), "[r]\nrw=randread\nruntime=5\n").unwrap();
    let run = ["lab", "run", "r.fio", "--on", "twin:./re3.toml,cache=off"];
    told(&place.bimetal(&run), &["virtual time", "read"]);
    place.bimetal(&["twin", "fit", "--from", "r.fio"]).expect(1, &["r.fio holds no measurements"]);
}

#[test]
fn a_file_is_probed_and_written_to_only_when_it_holds_nothing() {
    if !has_tools("fio on a file", &["fio"]) {
        return;
    }
    let place = Place::new();
    let probe = |more: &[&str]| {
        let all = [&["probe", "d.img:128M", "--seconds", "1", "--bytes", "4M"], more].concat();
        place.bimetal(&all)
    };
    let read = probe(&[]);
    read.expect(0, &["writes nothing"]);
    told(&read, &["rand-read-4096k", "counted by no one"]);
    let json = probe(&["--write", "--twin", "mine.toml"]);
    told(&json, &["rand-write-4k-flush", "twin mine in mine.toml"]);
    told(&place.bimetal(&["twin", "show", "./mine.toml"]), &["flush_us", "rand-write-4k-flush"]);
    // What the probe wrote is data now.
    probe(&["--write"]).expect(4, &["holds data", "without --write it is only read"]);
}

/// Small reads of what is there, in a second.
const SHORT: &str = "[r]\nrw=randread\nbs=4k\nruntime=1\ntime_based\nioengine=psync\n";

#[test]
fn a_served_volume_and_an_nbd_uri_are_places_like_drives() {
    if !has_tools("fio over NBD", &["fio", "nbdinfo"]) {
        return;
    }
    let place = Place::new();
    place.create("vol0", "256M", "1G");
    fs::write(place.path("r.fio"), SHORT).unwrap();
    let server = place.serve(&["vol0"]);
    let run = |on: &str| place.bimetal(&["--json", "lab", "run", "r.fio", "--on", on]);
    for on in ["vol0", &server.uri] {
        let said = run(on);
        said.expect(0, &[]);
        let value = said.json();
        assert!(
            value["steps"][0]["outcome"]["report"]["jobs"][0]["read"]["total_ios"].as_u64()
                > Some(0)
        );
        assert_eq!(value["virtual_time"], false);
        assert_eq!(value["size_bytes"], place.status("vol0")["size_bytes"]);
    }
    fs::write(place.path("w.fio"), SHORT.replace("randread", "randwrite")).unwrap();
    let write = ["lab", "run", "w.fio", "--on", "vol0"];
    place.bimetal(&write).expect(4, &["may hold data", "--force"]);
    told(&place.bimetal(&[&write[..], &["--force"]].concat()), &["measured by fio"]);
    place.bimetal(&["probe", "vol0", "--write"]).expect(4, &["may hold data"]);
    server.stop();
}

#[test]
fn a_block_device_is_measured_with_the_requests_that_arrive() {
    if !has_tools("fio on a loop device", &["fio"]) || !can_attach("fio on a loop device") {
        return;
    }
    let place = Place::new();
    fs::File::create(place.path("d.img")).unwrap().set_len(128 << 20).unwrap();
    let shown = must(tool("losetup").args(["--find", "--show"]).arg(place.path("d.img")));
    let device = shown.trim();
    fs::write(place.path("r.fio"), SHORT).unwrap();
    let said = place.bimetal(&["--json", "lab", "run", "r.fio", "--on", device]);
    let probe = ["--json", "probe", device, "--seconds", "1", "--bytes", "8M"];
    let probed = place.bimetal(&probe);
    must(tool("losetup").arg("--detach").arg(device));
    said.expect(0, &[]);
    let step = &said.json()["steps"][0]["outcome"];
    let reads = step["moments"][0]["drives"][0]["reads"].as_u64().unwrap();
    assert!(reads >= step["report"]["jobs"][0]["read"]["total_ios"].as_u64().unwrap());
    probed.expect(0, &[]);
    let found = &probed.json()["measurements"];
    assert!(found["identity"]["queue"]["max_sectors_kb"].as_u64() > Some(0), "{found}");
    assert_eq!(found["identity"]["hidden_by"], "a loop device");
    let arrived = |one: &serde_json::Value| one["arrived_kib"].as_f64().is_some();
    assert!(found["measured"].as_array().unwrap().iter().all(arrived), "{found}");
    // A loop device of the test's size cuts somewhere, or takes all: either way it is told.
    assert!(found["split"]["why"].as_str().unwrap().contains("arrive"), "{found}");
}

#[test]
fn on_a_real_drive_too_steps_that_are_done_are_not_done_again() {
    if !has_tools("fio on a file", &["fio"]) {
        return;
    }
    let place = Place::new();
    let run = ["lab", "run", "working-set", "--on", "d.img:2G", "--seconds", "1", "--out", "kept"];
    told(&place.bimetal(&run), &["measured by fio"]);
    let path = place.path("kept/run.json");
    let kept =
        || -> serde_json::Value { serde_json::from_slice(&fs::read(&path).unwrap()).unwrap() };
    let whole = kept();
    let steps = whole["steps"].as_array().unwrap().len();
    assert!(steps > 1);
    let mut shorter = whole.clone();
    shorter["steps"].as_array_mut().unwrap().pop();
    fs::write(&path, shorter.to_string()).unwrap();
    told(&place.bimetal(&run), &["measured by fio"]);
    let again = kept();
    assert_eq!(again["steps"].as_array().unwrap().len(), steps);
    assert_eq!(again["steps"][0], whole["steps"][0], "it was not measured again");
    let last = |value: &serde_json::Value| value["steps"][steps - 1]["outcome"].clone();
    assert_ne!(last(&again), last(&whole), "and this one was");
}

#[test]
fn fio_on_a_served_twin_finds_what_virtual_time_says() {
    if !has_tools("fio on a served twin", &["fio"]) {
        return;
    }
    let place = Place::new();
    const TWIN: &str = "wd5002abys,cache=off";
    let socket = place.path("twin.sock");
    let address = format!("unix:{}", socket.display());
    let mut serve = place.command();
    serve.args(["twin", "serve", TWIN, "--scale", "1/64", "--nbd", &address]);
    let server = Server::start(&mut serve);
    let rates = |on: &str, name: &str| {
        let said = place.bimetal(&["--json", "lab", "run", name, "--on", on, "--force"]);
        said.expect(0, &[]);
        let job = said.json()["steps"][0]["outcome"]["report"]["jobs"][0].clone();
        job["read"]["iops"].as_f64().unwrap() + job["write"]["iops"].as_f64().unwrap()
    };
    for (rw, bs) in [("randread", "4k"), ("write", "4k"), ("read", "1m"), ("randwrite", "1m")] {
        let name = format!("{rw}-{bs}.fio");
        let job = format!("[j]\nrw={rw}\nbs={bs}\nioengine=psync\nruntime=5\ntime_based\n");
        fs::write(place.path(&name), job).unwrap();
        let simulated = rates(&format!("twin:{TWIN},scale=1/64"), &name);
        // Real time is what the machine leaves of it: a moment of other work is tried again.
        let errors = (0..3).map(|_| rates(&server.uri, &name) / simulated - 1.0);
        let mut errors = errors.inspect(|error| println!("{rw} {bs}: {error:+.3}"));
        assert!(errors.any(|error| error.abs() < 0.10), "{rw} {bs}: {simulated} in virtual time");
    }
    server.stop();
}
