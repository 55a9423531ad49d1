//! `bimetal lab powercut` and `bimetal lab flush` as people run them: three processes, and a
//! simulated drive served over NBD whose plug is pulled.

#[path = "../support/mod.rs"]
mod support;

mod plugged_drive;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use plugged_drive::{PluggedDrive, Temper};
use support::{Place, Said, has_tools, run, tool, wait};
use twin::{CacheLoss, ReorderBound};

/// How long the witness listens to nothing until it takes that for the cut.
const SILENCE: &str = "60";

/// A drive as a file: nbdfuse over the simulated one.
struct Attached {
    child: Child,
    mount: std::path::PathBuf,
}

impl Attached {
    fn new(place: &Place, drive: &PluggedDrive) -> Attached {
        let mount = place.path("drive");
        std::fs::create_dir_all(&mount).unwrap();
        let child = tool("nbdfuse")
            .arg(&mount)
            .arg(drive.uri())
            .stderr(Stdio::null())
            .spawn()
            .expect("nbdfuse starts");
        let deadline = Instant::now() + Duration::from_secs(30);
        while !mount.join("nbd").exists() {
            assert!(Instant::now() < deadline, "nbdfuse shows no file");
            std::thread::sleep(Duration::from_millis(10));
        }
        Attached { child, mount }
    }

    fn file(&self) -> std::path::PathBuf {
        self.mount.join("nbd")
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let _ = tool("fusermount3").arg("-u").arg(&self.mount).status();
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(command: &mut Command) -> Said {
    let output = run(command);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let code = output.status.code().unwrap_or(-1);
    Said { code, out: text(output.stdout), err: text(output.stderr) }
}

/// Witness, writer, the cut, verifier; gives what the verifier said.
fn experiment(temper: Temper) -> Option<(i32, serde_json::Value)> {
    let can = has_tools("lab powercut over NBD", &["nbdfuse", "fusermount3"])
        && std::path::Path::new("/dev/fuse").exists();
    if !can {
        return None;
    }
    let place = Place::new();
    let drive = PluggedDrive::start(temper);
    let record = place.path("drive.record");
    let port = free_port();
    let mut witness = place
        .command()
        .args(["--json", "lab", "powercut", "witness", "--silence", SILENCE, "--listen", &port])
        .arg("--record")
        .arg(&record)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !record.exists() {
        assert!(Instant::now() < deadline, "the witness does not listen");
        std::thread::sleep(Duration::from_millis(10));
    }
    let attached = Attached::new(&place, &drive);
    let mut write = place.command();
    write.args(["--json", "lab", "powercut", "write", "--span", "16M", "--seconds", "60"]);
    write.args(["--witness", &port, "--drive"]).arg(attached.file());
    let written = said(&mut write);
    written.expect(0, &["pull the plug"]);
    assert_eq!(written.json()["ended_by"], "drive", "{written:?}");
    assert!(wait(&mut witness).expect("the witness ends").success());
    drop(attached);
    drive.power_on();
    let attached = Attached::new(&place, &drive);
    let mut verify = place.command();
    verify.args(["--json", "lab", "powercut", "verify", "--record"]).arg(&record);
    let verdict = said(verify.arg("--drive").arg(attached.file()));
    assert!(verdict.out.starts_with("{\"output_version\""), "{verdict:?}");
    Some((verdict.code, verdict.json()))
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[test]
fn an_honest_drive_is_acquitted() {
    let temper = Temper { lies: false, loss: CacheLoss::LoseAll, operations: 900 };
    let Some((code, verdict)) = experiment(temper) else { return };
    assert_eq!(code, 0, "{verdict}");
    assert_eq!(verdict["kept_its_word"], true, "{verdict}");
    assert!(verdict["epochs_acknowledged"].as_u64().unwrap() > 10, "{verdict}");
}

#[test]
fn a_liar_is_convicted_with_what_it_lost() {
    let loss = CacheLoss::Bounded(5, ReorderBound::Changes(0));
    let Some((code, verdict)) = experiment(Temper { lies: true, loss, operations: 900 }) else {
        return;
    };
    assert_eq!(code, 3, "{verdict}");
    assert_eq!((&verdict["kept_its_word"], &verdict["order"]), (&false.into(), &"kept".into()));
    assert!(verdict["writes_lost"].as_u64().unwrap() > 10, "{verdict}");
    assert!(verdict["oldest_lost_age_ms"].as_u64().is_some(), "{verdict}");
}

#[test]
fn a_liar_that_reorders_is_told_apart() {
    let temper = Temper { lies: true, loss: CacheLoss::Subset(3), operations: 900 };
    let Some((code, verdict)) = experiment(temper) else { return };
    assert_eq!(code, 3, "{verdict}");
    assert_eq!((&verdict["kept_its_word"], &verdict["order"]), (&false.into(), &"broken".into()));
}

#[test]
fn a_drive_that_holds_something_is_not_written_without_a_word() {
    let place = Place::new();
    let drive = place.path("full.img");
    std::fs::write(&drive, vec![7; 16 << 20]).unwrap();
    let attempt = |more: &[&str]| {
        let mut command = place.command();
        command.args(["lab", "powercut", "write", "--witness", "127.0.0.1:1", "--drive"]);
        said(command.arg(&drive).args(more))
    };
    attempt(&[]).expect(4, &["holds data", "--yes-destroy"]);
    attempt(&["--yes-destroy"]).expect(1, &["cannot reach the witness"]);
    attempt(&["--yes-destroy", "--span", "1M"]).expect(2, &["too few"]);
    assert!(std::fs::read(&drive).unwrap().iter().all(|byte| *byte == 7));
}

#[test]
fn a_record_is_never_written_over_and_a_wrong_one_is_told() {
    let place = Place::new();
    let record = place.path("old.record");
    std::fs::write(&record, "not a record\n").unwrap();
    let drive = place.path("d.img");
    std::fs::write(&drive, vec![0; 1 << 20]).unwrap();
    let mut witness = place.command();
    witness.args(["lab", "powercut", "witness", "--listen", "127.0.0.1:0", "--record"]);
    said(witness.arg(&record)).expect(1, &["cannot make the record", "exists"]);
    let mut verify = place.command();
    verify.args(["lab", "powercut", "verify", "--drive"]).arg(&drive).arg("--record").arg(&record);
    said(&mut verify).expect(1, &["is no record", "line 1"]);
}

#[test]
fn a_flush_is_measured_on_a_file_that_stays_as_it_was() {
    let place = Place::new();
    let file = place.path("f.img");
    std::fs::write(&file, vec![9; 1 << 20]).unwrap();
    let mut command = place.command();
    command.args(["--json", "lab", "flush", "--seconds", "1", "--file"]).arg(&file);
    let report = said(&mut command);
    report.expect(0, &[]);
    let json = report.json();
    let cases = json["cases"].as_array().unwrap();
    assert!(cases.len() >= 6, "{json}");
    for case in cases {
        assert!(case["rate_per_s"].as_f64().unwrap() > 0.0, "{case}");
        assert_eq!(case["flushed"].as_bool().unwrap(), !case["flush_ns"].is_null(), "{case}");
    }
    assert_eq!(json["opinion"]["plausibility"], "unknown");
    assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 9));
    let new = place.path("new.img");
    let mut command = place.command();
    said(command.args(["lab", "flush", "--seconds", "1", "--file"]).arg(&new)).expect(0, &[]);
    assert!(!new.exists(), "what was made is taken away");
    let mut command = place.command();
    said(command.args(["lab", "flush", "--drive"]).arg(place.path("none")))
        .expect(1, &["no drive"]);
    said(place.command().args(["lab", "flush"])).expect(2, &["--drive"]);
}
