//! `cargo x scale`: what a volume costs as it grows: opening, memory, a flush, closing, recovery.
//!
//! Sparse files stand for the drives. A file of 64 TiB does not fit on ext4; they lie in memory (`/dev/shm`) unless
//! another directory is named, so that a flush of the drive costs nothing and what is seen is bimetal's own part.
//! Each size goes through the same: made, opened, 20,000 small writes anywhere in it, flushed writes one at
//! a time, closed, opened, its log filled, killed, opened again.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::bench::load;
use crate::shell::Outcome;

const TIB: u64 = 1 << 40;
const GIB: u64 = 1 << 30;
/// The landing log; what is written behind the reopening fills it.
const LANDING_BYTES: u64 = 256 << 20;
/// Small writes anywhere, each of which changes another part of the map.
const WRITES: u64 = 20_000;
/// A small write takes its block and a header in the log.
const LOGGED_BYTES: u64 = 8192;
/// Flushed writes go on for so long.
const FLUSH_SECONDS: u64 = 3;
/// Opening, and closing, take no longer than this.
const PATIENCE: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(2);

/// Measure what a volume costs as it grows
#[derive(Debug, Args)]
pub struct ScaleArguments {
    /// Where the sparse files go: a file system that takes files as large as the largest size
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    dir: PathBuf,
    /// Sizes of the slow drive in TiB
    #[arg(long, value_name = "TIB,…", value_delimiter = ',', default_value = "1,16,64")]
    sizes: Vec<u64>,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Measures and prints a table.
pub fn run(arguments: &ScaleArguments) -> Outcome {
    measure_all(arguments).map_err(|error| format!("{error:#}"))
}

fn measure_all(arguments: &ScaleArguments) -> Result<()> {
    load::build(&["--package", "bimetal"])?;
    let program = load::release().join("bimetal");
    let mut rows = Vec::new();
    for tib in &arguments.sizes {
        eprintln!("{tib} TiB");
        rows.push(measure(&program, &arguments.dir, *tib).with_context(|| format!("{tib} TiB"))?);
    }
    println!("{}", table(&rows));
    if let Some(path) = &arguments.json {
        let text = serde_json::to_string_pretty(&json!({ "rows": rows }))? + "\n";
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn measure(program: &Path, directory: &Path, tib: u64) -> Result<Value> {
    let place = tempfile::Builder::new().prefix("bimetal-scale-").tempdir_in(directory)?;
    let slow_bytes = tib * TIB;
    // The map takes 1/16,384 of the volume or less, the log its part, the rest is for data.
    let fast_bytes = slow_bytes / 256 + 16 * GIB;
    let volume = Volume { program, place: place.path() };
    let create_s = volume.create(fast_bytes, slow_bytes)?;

    let empty = volume.serve()?;
    let anywhere = ["--rw=randwrite", "--bs=4k", "--iodepth=32", "--norandommap"];
    empty.fio(&[&anywhere[..], &[&format!("--number_ios={WRITES}")]].concat())?;
    let seconds = format!("--runtime={FLUSH_SECONDS}");
    let flushed = ["--rw=randwrite", "--bs=4k", "--fsync=1", "--norandommap", "--time_based"];
    let report = empty.fio(&[&flushed[..], &[&seconds]].concat())?;
    let flushed_per_s = report["jobs"][0]["write"]["iops"].as_f64().context("fio: no iops")?;
    let (open_s, open_mib) = (empty.open_s, empty.resident_mib()?);
    let log = volume.log_status()?;
    let close_s = empty.close()?;

    let used = volume.serve()?;
    let (reopen_s, reopen_mib) = (used.open_s, used.resident_mib()?);
    let records = LANDING_BYTES / LOGGED_BYTES * 9 / 10;
    used.fio(&[&anywhere[..], &[&format!("--number_ios={records}")]].concat())?;
    used.kill()?;

    let recovered = volume.serve()?;
    let (recovery_s, recovery_mib) = (recovered.open_s, recovered.resident_mib()?);
    recovered.close()?;
    Ok(json!({
        "slow_tib": tib,
        "create_s": create_s,
        "open_empty_s": open_s,
        "resident_after_writes_mib": open_mib,
        "write_and_flush_per_s": flushed_per_s,
        "checkpoints": log["checkpoints"],
        "checkpoint_ms": per(&log["checkpoint_us"], &log["checkpoints"]).map(|us| us / 1e3),
        "checkpoint_pages": per(&log["map_pages_written"], &log["checkpoints"]),
        "checkpoint_us_per_page": per(&log["checkpoint_us"], &log["map_pages_written"]),
        "close_s": close_s,
        "open_used_s": reopen_s,
        "resident_used_mib": reopen_mib,
        "recovery_s": recovery_s,
        "resident_recovered_mib": recovery_mib,
    }))
}

/// One number by another, if there are any.
fn per(number: &Value, by: &Value) -> Option<f64> {
    let (number, by) = (number.as_f64()?, by.as_f64()?);
    (by > 0.0).then(|| number / by)
}

struct Volume<'a> {
    program: &'a Path,
    place: &'a Path,
}

impl Volume<'_> {
    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.arg("--config-dir").arg(self.place.join("volumes"));
        command
    }

    /// Makes it; says how long that took.
    fn create(&self, fast_bytes: u64, slow_bytes: u64) -> Result<f64> {
        let drive = |name: &str, bytes: u64| format!("{}:{bytes}", self.place.join(name).display());
        let began = Instant::now();
        let output = self
            .command()
            .args(["create", "it", "--landing", &LANDING_BYTES.to_string()])
            .args(["--fast", &drive("fast.img", fast_bytes)])
            .args(["--slow", &drive("slow.img", slow_bytes)])
            .output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// What its server says of the landing log.
    fn log_status(&self) -> Result<Value> {
        let output = self.command().args(["--json", "status", "it"]).output()?;
        let status: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| String::from_utf8_lossy(&output.stderr).trim().to_owned())?;
        let log = &status["volumes"][0]["log"];
        log.as_object().map(|_| log.clone()).context("status: no log")
    }

    fn serve(&self) -> Result<Serving> {
        let socket = self.place.join("it.sock");
        let log = File::create(self.place.join("serve.log"))?;
        let began = Instant::now();
        let child = self
            .command()
            .args(["serve", "it", "--exit-with-parent", "--nbd"])
            .arg(format!("unix:{}", socket.display()))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let mut serving = Serving { child, socket, open_s: 0.0 };
        while UnixStream::connect(&serving.socket).is_err() {
            if serving.child.try_wait()?.is_some() || began.elapsed() > PATIENCE {
                let said = fs::read_to_string(self.place.join("serve.log")).unwrap_or_default();
                bail!("the server does not come up: {}", said.trim());
            }
            thread::sleep(POLL);
        }
        serving.open_s = began.elapsed().as_secs_f64();
        Ok(serving)
    }
}

struct Serving {
    child: Child,
    socket: PathBuf,
    open_s: f64,
}

impl Serving {
    fn fio(&self, more: &[&str]) -> Result<Value> {
        load::fio_on(&self.socket, more)
    }

    fn resident_mib(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        Ok(kib.context("no VmRSS")? / 1024.0)
    }

    /// Ends it in order, with a last checkpoint: how long that takes (s).
    fn close(mut self) -> Result<f64> {
        let began = Instant::now();
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        while self.child.try_wait()?.is_none() {
            if began.elapsed() > PATIENCE {
                bail!("the server does not end");
            }
            thread::sleep(POLL);
        }
        Ok(began.elapsed().as_secs_f64())
    }

    /// Ends it at once.
    fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        let _ = fs::remove_file(&self.socket);
        Ok(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn table(rows: &[Value]) -> String {
    let columns: [(&str, &str, usize); 14] = [
        ("slow_tib", "slow drive, TiB", 0),
        ("create_s", "create, s", 2),
        ("open_empty_s", "open, empty, s", 2),
        ("write_and_flush_per_s", "write and flush, one by one, per s", 0),
        ("resident_after_writes_mib", "resident behind 20,000 small writes anywhere, MiB", 0),
        ("checkpoints", "checkpoints meanwhile", 0),
        ("checkpoint_pages", "map pages written in each", 0),
        ("checkpoint_ms", "one takes, ms", 1),
        ("checkpoint_us_per_page", "of that per map page, µs", 1),
        ("close_s", "close, with a checkpoint of all that, s", 2),
        ("open_used_s", "open, s", 2),
        ("resident_used_mib", "resident, MiB", 0),
        ("recovery_s", "open after kill -9 with a full log of 256 MiB, s", 2),
        ("resident_recovered_mib", "resident, MiB", 0),
    ];
    let mut text = String::new();
    for (name, label, decimals) in columns {
        let cells = rows.iter().map(|row| match row[name].as_f64() {
            Some(value) => format!("{value:>10.decimals$}"),
            None => format!("{:>10}", "-"),
        });
        text += &format!("{label:<52}{}\n", cells.collect::<String>());
    }
    text
}
