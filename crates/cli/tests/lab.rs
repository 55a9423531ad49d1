//! `bimetal lab run`, `fio`, `list` and `report`, as a person uses them.

mod support;

use std::fs;

use support::*;

/// It ended well and said all of this.
#[track_caller]
fn told(said: &Said, words: &[&str]) {
    said.expect(0, &[]);
    for word in words {
        assert!(said.out.contains(word), "'{word}' is missing: {said:#?}");
    }
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
    run("working-set", "twin:nothing").expect(2, &["nothing", "wd5002abys"]);
    run("fusion", "twin:wd5002abys").expect(2, &["needs a volume", "fusion:FAST+SLOW"]);
    run("working-set", "vol0").expect(1, &["no volume 'vol0' is served"]);
    place.bimetal(&["lab", "report", "."]).expect(1, &["holds no runs"]);
    told(&place.bimetal(&["lab", "list"]), &["thomas-krenn", "fusion", "lottery"]);
    let fio = ["lab", "fio", "thomas-krenn", "--step", "t03-rd-j4"];
    told(&place.bimetal(&fio), &["[t03-rd-j4]", "numjobs=4", "rw=randread"]);
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
