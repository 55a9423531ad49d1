//! `bimetal lab flush`: what a flush costs on a drive, and whether that can be true.

use std::path::{Path, PathBuf};

use clap::Args;
use io::units::{human_bytes, parse_bytes};
use lab::flush::{Case, DriveFacts, Opinion, Plausibility, block_sizes, raw_rewrite, small_files};
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use super::facts;
use crate::blank_file;
use crate::drive::Drive;
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::in_use;
use crate::progress;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Bytes of a file that is made for the test.
const FILE_BYTES: u64 = 64 << 20;

/// Measure what a flush costs, and say whether that is physically plausible
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab flush --drive /dev/sdb
  bimetal lab flush --file /mnt/data/flush-test.img --seconds 60
  bimetal --json lab flush --drive /dev/nvme0n1

One block at the chosen place is written over and over with what it held, so the content stays; a
drive that is mounted or otherwise in use is refused. A file that is not there is made and taken
away again, and small files are made beside it too. Exit code 3: not plausible for its kind.")]
pub struct FlushArguments {
    /// A block device, not in use
    #[arg(long, value_name = "DEV", required_unless_present = "file", conflicts_with = "file")]
    drive: Option<PathBuf>,
    /// A file on a file system, existing or not
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
    /// Where on the drive the block lies
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, default_value = "0")]
    at: u64,
    /// How long all of it may take
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    path: PathBuf,
    facts: DriveFacts,
    cases: Vec<Case>,
    opinion: Option<Opinion>,
}

/// Takes a file away again that was made for the test.
struct Made<'a>(Option<&'a Path>);

impl Drop for Made<'_> {
    fn drop(&mut self) {
        if let Some(path) = self.0 {
            // What cannot be removed is a file of ours with nothing in it.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Runs the command.
pub fn run(arguments: &FlushArguments, settings: &Settings) -> Outcome {
    let mut made = Made(None);
    let path = match (&arguments.drive, &arguments.file) {
        (Some(path), _) => path,
        (None, Some(path)) => {
            if !path.exists() {
                blank_file::make(path, FILE_BYTES)?;
                made.0 = Some(path);
            }
            path
        }
        (None, None) => return Err(Failure::usage("say --drive or --file")),
    };
    let drive = Drive::look(path)?;
    let users = in_use::users(&drive);
    if !users.is_empty() {
        let users = users.join("; ");
        return Err(Failure::refused(format!("{} is in use: {users}", drive.path.display()))
            .hint("unmount or stop what uses it, or measure a file on it with --file"));
    }
    let facts = facts::of(&drive);
    let home = arguments.file.as_ref().and_then(|_| drive.path.parent());
    let cases = measure(arguments, &drive.path, home)?;
    let opinion = Opinion::of(&facts, &cases);
    let report = Report { path: drive.path, facts, cases, opinion };
    settings.output.show("lab flush", &report, text)?;
    let implausible = |opinion: &Opinion| opinion.plausibility == Plausibility::NotPlausible;
    Ok(if report.opinion.as_ref().is_some_and(implausible) { Exit::Degraded } else { Exit::Done })
}

fn measure(
    arguments: &FlushArguments,
    path: &Path,
    home: Option<&Path>,
) -> Result<Vec<Case>, Failure> {
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let device = kernel.open_device(path, Access::ReadWrite)?;
    let sizes = block_sizes(&device);
    let count = 2 * sizes.len() as u64 + if home.is_some() { 2 } else { 0 };
    let budget_ns = arguments.seconds * 1_000_000_000 / count;
    let bar = progress::steps("measuring");
    bar.set_length(count);
    let mut cases = Vec::new();
    for flushed in [false, true] {
        for bytes in &sizes {
            let case = raw_rewrite(&device, arguments.at, *bytes, flushed, budget_ns);
            cases.push(io.block_on(case)?);
            bar.inc(1);
        }
        if let Some(home) = home {
            let case = small_files(home, flushed, budget_ns);
            cases.push(case.on_path("make small files in", home)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(cases)
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        ("WORKLOAD", Align::Left),
        ("BLOCK", Align::Right),
        ("FLUSH", Align::Left),
        ("PER SECOND", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("MAX", Align::Right),
        ("FLUSH P50", Align::Right),
    ]);
    for case in &report.cases {
        table.row([
            case.workload.to_owned(),
            human_bytes(case.block_bytes),
            if case.flushed { "each" } else { "none" }.to_owned(),
            format!("{:.0}", case.rate_per_s),
            micros(case.latency_ns.p50),
            micros(case.latency_ns.p99),
            micros(case.latency_ns.max),
            case.flush_ns.map_or_else(String::new, |flush| micros(flush.p50)),
        ]);
    }
    let facts = &report.facts;
    let said = |fact: Option<bool>, yes: &str, no: &str| match fact {
        Some(true) => yes.to_owned(),
        Some(false) => no.to_owned(),
        None => "unknown".to_owned(),
    };
    let model = facts.model.as_deref().unwrap_or("unknown");
    let kind = said(facts.rotational, "rotating", "not rotating");
    let cache = said(facts.volatile_cache, "volatile", "none that is volatile");
    let opinion = report.opinion.as_ref().map_or("", |opinion| opinion.reason.as_str());
    format!(
        "{}: model {model}, {kind}, write cache {cache}\n\n{}\n{opinion}\n",
        report.path.display(),
        table.render()
    )
}

fn micros(ns: u64) -> String {
    format!("{:.0} µs", ns as f64 / 1e3)
}
