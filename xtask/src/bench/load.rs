//! The clients: fio, the lean ones of this repository, and the engine called in process.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::door::Door;
use super::server::Server;
use super::steps::{Client, Mix, SPAN_BYTES, Step};
use crate::shell;

/// Where the programs are, and for how long they run.
pub struct Clients {
    release: PathBuf,
    seconds: f64,
}

/// What a client saw.
pub struct Outcome {
    /// Requests per second; a flush is none.
    pub per_second: f64,
    /// Requests in all.
    pub requests: f64,
}

impl Clients {
    /// Builds what this repository brings: the release binary and four of its examples.
    pub fn build(seconds: f64) -> Result<Clients> {
        build(&["--package", "bimetal", "--bin", "bimetal", "--example", "in_process"])?;
        let examples = ["nbd_load", "vhost_load", "nbd_memory"].map(|name| ["--example", name]);
        build(&[&["--package", "bimetal-export"], &examples.concat()[..]].concat())?;
        Ok(Clients { release: release(), seconds })
    }

    /// The program that is measured.
    pub fn bimetal(&self) -> PathBuf {
        self.release.join("bimetal")
    }

    /// The NBD door with no engine behind it.
    pub fn door_alone(&self) -> PathBuf {
        self.release.join("examples/nbd_memory")
    }

    /// Writes the span through the server, once, one request after another, and flushes.
    pub fn fill(&self, server: &Server) -> Result<()> {
        if server.door == Door::VhostUser {
            return self
                .vhost(server, &["fill", "4", "0", "128K", &SPAN_BYTES.to_string()])
                .map(|_| ());
        }
        let more = ["--rw=write", "--bs=1M", "--iodepth=4", "--end_fsync=1"];
        fio(server, &more.map(str::to_owned)).map(|_| ())
    }

    /// One turn at one row.
    pub fn run(&self, server: &Server, step: Step) -> Result<Outcome> {
        match (server.door, step.client) {
            (Door::VhostUser, _) => self.run_vhost(server, step),
            (_, Client::Fio) => self.run_fio(server, step),
            (_, Client::Lean) => self.run_lean(server, step),
        }
    }

    fn run_vhost(&self, server: &Server, step: Step) -> Result<Outcome> {
        let kind = match step.mix {
            Mix::Read => "read",
            Mix::Write if step.flush => "flush",
            Mix::Write => "write",
            Mix::SevenToThree => bail!("mixes are not asked for at this door"),
        };
        let number = |value: u64| value.to_string();
        let (depth, seconds) = (step.depth.to_string(), self.seconds.to_string());
        let (block, span) = (number(step.block_bytes), number(SPAN_BYTES));
        let order: &[&str] = if step.random { &[] } else { &["sequential"] };
        let per_second =
            self.vhost(server, &[&[kind, &depth, &seconds, &block, &span], order].concat())?;
        Ok(Outcome { per_second, requests: per_second * self.seconds })
    }

    fn vhost(&self, server: &Server, more: &[&str]) -> Result<f64> {
        let mut command = Command::new(self.release.join("examples/vhost_load"));
        rate_of(command.arg(&server.entrance).args(more))
    }

    fn run_fio(&self, server: &Server, step: Step) -> Result<Outcome> {
        let pattern = match (step.random, step.mix) {
            (true, Mix::Write) => "randwrite",
            (true, Mix::Read) => "randread",
            (true, Mix::SevenToThree) => "randrw",
            (false, Mix::Write) => "write",
            (false, Mix::Read) => "read",
            (false, Mix::SevenToThree) => "rw",
        };
        let mut more = vec![
            format!("--rw={pattern}"),
            format!("--bs={}", step.block_bytes),
            format!("--iodepth={}", step.depth),
            format!("--numjobs={}", step.jobs),
            "--group_reporting".to_owned(),
            "--rwmixread=70".to_owned(),
            "--time_based".to_owned(),
            format!("--runtime={:.0}ms", self.seconds * step.times() * 1e3),
            // The same places for every server, and no map of those that were visited.
            "--randrepeat=1".to_owned(),
            "--norandommap".to_owned(),
        ];
        if step.flush {
            more.push("--fsync=1".to_owned());
        }
        if step.zipf {
            more.push("--random_distribution=zipf:1.2".to_owned());
        }
        let report = fio(server, &more)?;
        let sides: &[&str] = match step.mix {
            Mix::Read => &["read"],
            Mix::Write => &["write"],
            Mix::SevenToThree => &["read", "write"],
        };
        let number = |name: &str| {
            let each = sides.iter().map(|side| report["jobs"][0][side][name].as_f64());
            each.sum::<Option<f64>>().with_context(|| format!("fio: no {name}"))
        };
        let outcome = Outcome { per_second: number("iops")?, requests: number("total_ios")? };
        if outcome.requests == 0.0 {
            bail!("fio did nothing");
        }
        Ok(outcome)
    }

    fn run_lean(&self, server: &Server, step: Step) -> Result<Outcome> {
        let seconds = self.seconds.ceil();
        let mut command = Command::new(self.release.join("examples/nbd_load"));
        command.arg(&server.entrance).arg(if step.mix.writes() { "write" } else { "read" });
        command.args([step.depth.to_string(), format!("{seconds:.0}")]);
        command.args([step.block_bytes.to_string(), SPAN_BYTES.to_string()]);
        let per_second = rate_of(&mut command)?;
        Ok(Outcome { per_second, requests: per_second * seconds })
    }

    /// The table of the engine called in process beside raw operations, as JSON.
    pub fn in_process(&self, directory: &Path, all: bool) -> Result<Value> {
        let mut command = Command::new(self.release.join("examples/in_process"));
        command.arg(directory).arg((self.seconds / 2.0).to_string()).arg("--json");
        command.args(all.then_some("--all"));
        let text = output(&mut command)?;
        serde_json::from_str(&text).with_context(|| format!("in_process said: {text}"))
    }
}

/// Builds it in release.
pub fn build(what: &[&str]) -> Result<()> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--release", "--locked"])
        .args(what)
        .current_dir(shell::root())
        .status()
        .context("running cargo")?;
    if !status.success() {
        bail!("cargo build --release {}: {status}", what.join(" "));
    }
    Ok(())
}

/// Where what is built in release goes.
pub fn release() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    shell::root().join(target).join("release")
}

fn fio(server: &Server, more: &[String]) -> Result<Value> {
    let size = format!("--size={SPAN_BYTES}");
    let more = std::iter::once(&size).chain(more);
    match server.door {
        Door::Fuse => {
            let file = format!("--filename={}", server.entrance.display());
            fio_with(["--ioengine=io_uring", "--direct=1", &file], more)
        }
        Door::NbdTcp => {
            let uri = format!("--uri=nbd://{}", server.entrance.display());
            fio_with(["--ioengine=nbd", "--thread", &uri], more)
        }
        Door::Nbd | Door::VhostUser | Door::PacedDisk | Door::Memory => {
            fio_on(&server.entrance, more)
        }
    }
}

/// What fio reports of requests through the NBD socket.
pub fn fio_on(socket: &Path, more: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Value> {
    let uri = format!("--uri=nbd+unix:///?socket={}", socket.display());
    fio_with(["--ioengine=nbd", "--thread", &uri], more)
}

fn fio_with(engine: [&str; 3], more: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Value> {
    let mut command = Command::new("fio");
    command.args(["--name=bench", "--output-format=json"]).args(engine).args(more);
    let text = output(&mut command)?;
    // Notes may stand before the report.
    let report = text.find('{').map_or("", |start| &text[start..]);
    let report: Value =
        serde_json::from_str(report).with_context(|| format!("fio said: {text}"))?;
    match report["jobs"][0]["error"].as_i64() {
        Some(0) => Ok(report),
        error => bail!("fio ended with error {error:?}"),
    }
}

/// The rate that one of our own clients prints: "read 4096 depth 32: 123456 IOPS".
fn rate_of(command: &mut Command) -> Result<f64> {
    let text = output(command)?;
    text.split_once(" IOPS")
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse::<f64>().ok())
        .with_context(|| format!("{command:?} said: {text}"))
}

/// What a command printed; an error with what it complained about when it failed.
fn output(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("running {name}"))?;
    if !output.status.success() {
        bail!("{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
