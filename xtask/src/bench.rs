//! `cargo x bench`: bimetal beside other servers, door by door, all in one run.
//!
//! Every server serves a prefilled span of 1 GiB on a file of its own in the same directory to the same
//! clients. Rows are interleaved: in each repetition every server takes
//! its turn at a row before the next row begins, in an order that rotates, so that a busy moment of
//! the machine hits all of them. Between turns the file is synced and the server given time to
//! finish what it does in the background; neither counts for anybody.
//!
//! Limits: rates and CPU are of this machine at this moment; ratios within one run are what
//! carries over. CPU that the kernel spends on write-back in its own threads is nobody's.

mod backing;
mod door;
mod interruption;
mod launch;
pub mod load;
mod machine;
mod paced_disk;
mod page;
mod server;
mod steps;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use backing::Backing;
use door::Door;
use interruption::Interruption;
use load::Clients;
use machine::Machine;
use server::Server;
use steps::{STEPS, Step};
use table::{Row, Sample};

use crate::shell::{self, Outcome};

/// What one turn leaves behind is given at most this long to come to rest: destaging a full log
/// of [`launch::LANDING_BYTES`] takes less.
const SETTLE_MAX: Duration = Duration::from_secs(1);
/// A server that uses less than a clock tick in this time is at rest.
const SETTLE_STEP: Duration = Duration::from_millis(60);
/// A turn costs this much beside its measured time: starting the client, syncing, settling.
const TURN_OVERHEAD_SECONDS: f64 = 1.0;
/// One measurement, so that a run of all doors, the engine in process included, ends within a quarter of an hour.
const TURN_SECONDS: f64 = 0.8;
/// An odd number has a median.
const REPETITIONS: u32 = 3;
/// One measurement of `--all`.
const LONG_TURN_SECONDS: f64 = 2.0;

/// All that this machine can be asked for.
const DOORS: &str = "nbd,fuse,vhost-user,paced-disk,memory";
/// Where files in memory go, and how much of it has to be free: three spans and a half are filled.
const MEMORY: &str = "/dev/shm";
const MEMORY_FREE_BYTES: u64 = 5 << 30;

/// Measure bimetal side by side with nbdkit and QEMU's servers
#[derive(Debug, Args)]
pub struct BenchArguments {
    /// Where the backing files go; what is measured is the drive under this directory
    #[arg(long, value_name = "DIR", default_value = "run/bench")]
    dir: PathBuf,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Half a second per measurement: for a first look
    #[arg(long)]
    quick: bool,
    /// Only at these doors
    #[arg(
        long,
        value_enum,
        value_name = "DOOR,…",
        value_delimiter = ',',
        default_value = DOORS
    )]
    doors: Vec<Door>,
    /// Also NBD over TCP, other depths, several connections and mixes, and longer turns: about an hour
    #[arg(long)]
    all: bool,
    /// Repetitions of every row; the median counts
    #[arg(long, default_value_t = REPETITIONS, value_parser = clap::value_parser!(u32).range(1..=9))]
    repetitions: u32,
}

impl BenchArguments {
    fn door_names(&self) -> String {
        let values = self.doors.iter().filter_map(Door::to_possible_value);
        values.map(|value| value.get_name().to_owned()).collect::<Vec<_>>().join(",")
    }

    fn doors_are_default(&self) -> bool {
        self.door_names() == DOORS
    }

    /// What of it is not the default and changes what is measured, as it was written.
    fn told(&self) -> String {
        let mut text = String::new();
        for (given, option) in [(self.quick, " --quick"), (self.all, " --all")] {
            if given {
                text += option;
            }
        }
        if !self.doors_are_default() {
            text += &format!(" --doors {}", self.door_names());
        }
        if self.repetitions != REPETITIONS {
            text += &format!(" --repetitions {}", self.repetitions);
        }
        text
    }
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
    let turn_seconds = match (arguments.quick, arguments.all) {
        (true, _) => TURN_SECONDS / 2.0,
        (false, false) => TURN_SECONDS,
        (false, true) => LONG_TURN_SECONDS,
    };
    let mut doors: Vec<Door> = Vec::new();
    for door in &arguments.doors {
        if !doors.contains(door) {
            doors.push(*door);
        }
    }
    if arguments.all && arguments.doors_are_default() {
        doors.push(Door::NbdTcp);
    }
    let wants_fuse = doors.iter().any(|door| matches!(door, Door::Fuse | Door::PacedDisk));
    if wants_fuse && !Path::new("/dev/fuse").exists() {
        bail!(
            "/dev/fuse is missing: the doors fuse and paced-disk need it (modprobe fuse); choose others with --doors"
        );
    }
    if doors.contains(&Door::Memory) && memory_free_bytes()? < MEMORY_FREE_BYTES {
        eprintln!("SKIPPED: memory: less than {} GiB of it are free", MEMORY_FREE_BYTES >> 30);
        doors.retain(|door| *door != Door::Memory);
    }
    let clients = Clients::build(turn_seconds)?;
    let directory = shell::root().join(&arguments.dir);
    let machine = Machine::look(&directory)?;
    println!("{machine}");

    let steps_at = |door: Door| {
        let wanted = |step: &Step| (arguments.all || !step.long_run) && door.takes(step);
        STEPS.into_iter().filter(wanted).collect::<Vec<Step>>()
    };
    let seconds_at = |door: &Door| {
        let round = steps_at(*door).iter().map(|step| turn_seconds * step.times()).sum::<f64>();
        let overhead = steps_at(*door).len() as f64 * TURN_OVERHEAD_SECONDS;
        (round + overhead) * door.contestants().len() as f64 * f64::from(arguments.repetitions)
    };
    let about_minutes = doors.iter().map(seconds_at).sum::<f64>() / 60.0;
    println!("turns of {turn_seconds} s: about {about_minutes:.0} minutes, then in process");

    let interruption = Interruption::listen()?;
    let files = Backing::make(&directory)?;
    let in_memory = match doors.contains(&Door::Memory) {
        true => Some(Backing::make(Path::new(MEMORY))?),
        false => None,
    };
    let mut rows = Vec::new();
    for door in &doors {
        let files = in_memory.as_ref().filter(|_| *door == Door::Memory).unwrap_or(&files);
        let servers = prepare(*door, files, &clients, &interruption)?;
        let steps = steps_at(*door);
        let of_door = measure(&steps, &servers, &clients, arguments.repetitions, &interruption)?;
        println!("\n{}", table::DoorTables(*door, &of_door));
        rows.extend(of_door);
        for server in servers {
            server.end()?;
        }
    }
    let in_process = clients.in_process(files.directory(), arguments.all)?;
    let options = arguments.told();
    let report = table::Report { machine, options, turn_seconds, rows, in_process };
    println!("{report}");
    if let Some(path) = &arguments.json {
        write_json(path, &report)?;
    }
    let page = page::write(&report, &directory, &clients.bimetal())?;
    println!("The same with pictures: {}", page.display());
    Ok(())
}

/// Free for files in memory.
fn memory_free_bytes() -> Result<u64> {
    let files = rustix::fs::statvfs(MEMORY).with_context(|| format!("looking at {MEMORY}"))?;
    let path = "/proc/meminfo";
    let text = std::fs::read_to_string(path).with_context(|| path.to_owned())?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    let available = kib.with_context(|| format!("{path} has no MemAvailable"))? << 10;
    Ok(available.min(files.f_bavail * files.f_frsize))
}

/// Everybody who takes part at a door, with the span filled.
fn prepare(
    door: Door,
    files: &Backing,
    clients: &Clients,
    interruption: &Interruption,
) -> Result<Vec<Server>> {
    let mut servers = Vec::new();
    let preparing = bar(door.contestants().len() as u64, &format!("preparing {door}"));
    for kind in door.contestants() {
        let server = Server::start(*kind, door, files, clients)?;
        clients.fill(&server).with_context(|| format!("filling the file of {}", kind.name()))?;
        servers.push(server);
        interruption.check()?;
        preparing.inc(1);
    }
    preparing.finish_and_clear();
    for server in &servers {
        server.forget_cached()?;
    }
    Ok(servers)
}

/// All repetitions of all rows.
fn measure(
    steps: &[Step],
    servers: &[Server],
    clients: &Clients,
    repetitions: u32,
    interruption: &Interruption,
) -> Result<Vec<Row>> {
    let door = servers.first().context("somebody takes part at each door")?.door;
    let mut rows: Vec<Row> = steps.iter().map(|step| Row::new(door, *step)).collect();
    let progress = bar(u64::from(repetitions) * (rows.len() * servers.len()) as u64, "");
    for repetition in 0..repetitions as usize {
        for (number, row) in rows.iter_mut().enumerate() {
            for turn in 0..servers.len() {
                let chosen = (turn + repetition + number) % servers.len();
                let server = &servers[chosen];
                let what = format!("{door}: {} with {}", row.step.name, server.kind.name());
                progress.set_message(what.clone());
                if !row.step.mix.writes() && !server.kind.uses_page_cache() {
                    // What writes have left there is no merit of who keeps out of it.
                    server.forget_cached()?;
                }
                let sample = take_turn(server, clients, row.step).context(what)?;
                row.samples[chosen].push(sample);
                if row.step.mix.writes() {
                    settle(server)?;
                }
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
