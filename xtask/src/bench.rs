//! `cargo x bench`: bimetal beside other NBD servers, all in one run.
//!
//! Every server serves a prefilled span of 1 GiB on a file of its own in the same directory, over a
//! unix socket, to the same clients. Rows are interleaved: in each repetition every server takes
//! its turn at a row before the next row begins, in an order that rotates, so that a busy moment of
//! the machine hits all of them. Between turns the file is synced and the server given time to
//! finish what it does in the background; neither counts for anybody.
//!
//! Limits: rates and CPU are of this machine at this moment; ratios within one run are what
//! carries over. CPU that the kernel spends on write-back in its own threads is nobody's.

mod backing;
mod interruption;
pub mod load;
mod machine;
mod server;
mod steps;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};

use backing::Backing;
use interruption::Interruption;
use load::Clients;
use machine::Machine;
use server::{Kind, Server};
use steps::{STEPS, Step};
use table::{Row, Sample};

use crate::shell::{self, Outcome};

/// What one turn leaves behind is given at most this long to come to rest: destaging a full log
/// of [`server::LANDING_BYTES`] takes less.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// A server that uses less than a clock tick in this time is at rest.
const SETTLE_STEP: Duration = Duration::from_millis(60);
/// A turn costs this much beside its measured time: starting the client, syncing, settling.
const TURN_OVERHEAD_SECONDS: f64 = 1.2;

/// Measure bimetal side by side with nbdkit and qemu-nbd
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Where the backing files go; what is measured is the drive under this directory
    #[arg(long, value_name = "DIR", default_value = "run/bench")]
    dir: PathBuf,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// A second per measurement: for a first look
    #[arg(long)]
    quick: bool,
    /// Also other depths, several connections and mixes: twice as long
    #[arg(long)]
    all: bool,
    /// Repetitions of every row; the median counts
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=9))]
    repetitions: u32,
}

/// Runs the benchmark and prints its tables.
pub fn run(arguments: &BenchArguments) -> Outcome {
    compare(arguments).map_err(|error| format!("{error:#}"))
}

fn compare(arguments: &BenchArguments) -> Result<()> {
    for tool in ["fio", "nbdkit", "qemu-nbd", "qemu-storage-daemon"] {
        if !on_path(tool) {
            bail!(
                "'{tool}' is missing: run scripts/setup, which installs what is measured against"
            );
        }
    }
    let turn_seconds = if arguments.quick { 1.0 } else { 2.0 };
    let clients = Clients::build(turn_seconds)?;
    let directory = shell::root().join(&arguments.dir);
    let machine = Machine::look(&directory)?;
    println!("{machine}");

    let steps: Vec<Step> =
        STEPS.into_iter().filter(|step| arguments.all || !step.long_run).collect();
    let turns = u64::from(arguments.repetitions) * (steps.len() * Kind::ALL.len()) as u64;
    let about_minutes = turns as f64 * (turn_seconds + TURN_OVERHEAD_SECONDS) / 60.0;
    println!(
        "{turns} turns of {turn_seconds} s: about {about_minutes:.0} minutes, then in process"
    );

    let interruption = Interruption::listen()?;
    let files = Backing::make(&directory)?;
    let mut servers = Vec::new();
    let preparing = bar(Kind::ALL.len() as u64, "preparing");
    for kind in Kind::ALL {
        let server = Server::start(kind, &files, &clients)?;
        clients.fill(&server).with_context(|| format!("filling the file of {}", kind.name()))?;
        servers.push(server);
        interruption.check()?;
        preparing.inc(1);
    }
    preparing.finish_and_clear();
    for server in &servers {
        server.forget_cached()?;
    }

    let rows = measure(&steps, &servers, &clients, arguments.repetitions, &interruption)?;
    for server in servers {
        server.end()?;
    }
    let in_process = clients.in_process(files.directory())?;
    let report = table::Report { machine, turn_seconds, rows, in_process };
    println!("\n{report}");
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    Ok(())
}

/// All repetitions of all rows.
fn measure(
    steps: &[Step],
    servers: &[Server],
    clients: &Clients,
    repetitions: u32,
    interruption: &Interruption,
) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = steps.iter().map(|step| Row::new(*step, servers.len())).collect();
    let progress = bar(u64::from(repetitions) * (rows.len() * servers.len()) as u64, "");
    for repetition in 0..repetitions as usize {
        for (number, row) in rows.iter_mut().enumerate() {
            for turn in 0..servers.len() {
                let chosen = (turn + repetition + number) % servers.len();
                let server = &servers[chosen];
                let what = format!("{} with {}", row.step.name, server.kind.name());
                progress.set_message(what.clone());
                let sample = take_turn(server, clients, row.step).context(what)?;
                row.samples[chosen].push(sample);
                settle(server)?;
                interruption.check()?;
                progress.inc(1);
            }
        }
    }
    progress.finish_and_clear();
    Ok(rows)
}

/// One measurement, with the server's CPU time over it.
fn take_turn(server: &Server, clients: &Clients, step: Step) -> Result<Sample> {
    let (cpu_before_us, read_before) = (server.cpu_us()?, server.drive_read_bytes()?);
    let outcome = clients.run(server, step)?;
    let cpu_us = (server.cpu_us()? - cpu_before_us) as f64;
    let read_bytes = (server.drive_read_bytes()? - read_before) as f64;
    Ok(Sample {
        per_second: outcome.per_second,
        cpu_us: cpu_us / outcome.requests,
        from_drive: read_bytes / (outcome.requests * step.block_bytes as f64),
    })
}

/// Waits until what the turn left in caches is on the drive and the server rests.
fn settle(server: &Server) -> Result<()> {
    server.sync_backing()?;
    let end = Instant::now() + SETTLE_MAX;
    let mut before_us = server.cpu_us()?;
    while Instant::now() < end {
        std::thread::sleep(SETTLE_STEP);
        let now_us = server.cpu_us()?;
        if now_us == before_us {
            break;
        }
        before_us = now_us;
    }
    Ok(())
}

fn write_json(path: &Path, report: &table::Report) -> Result<()> {
    let text = serde_json::to_string_pretty(&report.to_json())?;
    std::fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}

/// A bar on standard error; the library hides it where nobody watches.
fn bar(steps: u64, message: &str) -> ProgressBar {
    let style = ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta} {msg:<60!}")
        .expect("a constant template is valid");
    let bar = ProgressBar::new(steps).with_style(style);
    bar.set_message(message.to_owned());
    bar
}

fn on_path(tool: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(tool).is_file())
}
