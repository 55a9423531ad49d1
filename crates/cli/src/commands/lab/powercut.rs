//! `bimetal lab powercut`: does a drive keep its word when the plug is pulled?

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Subcommand};
use io::units::{human_bytes, parse_bytes};
use lab::powercut::{End, Record, Run, Told, Verdict, Wire, listen, verify, write};
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use super::free;
use crate::drive::Drive;
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::progress;
use crate::settings::Settings;

/// Pull the plug on a drive and see whether it kept what it had acknowledged
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  other$ bimetal lab powercut witness --listen 0.0.0.0:7070 --record sdb.record
  this$  bimetal lab powercut write --drive /dev/sdb --witness other:7070 --yes-destroy
         (pull the plug of this machine, or of the drive; power it up again)
  this$  bimetal lab powercut verify --drive /dev/sdb --record sdb.record")]
pub struct PowercutArguments {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    Witness(WitnessArguments),
    Write(WriteArguments),
    Verify(VerifyArguments),
}

/// Record, on a machine that keeps its power, what a writer says its drive has acknowledged
#[derive(Debug, Args)]
struct WitnessArguments {
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7070")]
    listen: String,
    /// The file to write; it must not exist
    #[arg(long, value_name = "FILE")]
    record: PathBuf,
    /// So long a silence of the writer means that the plug was pulled
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    silence: u64,
}

/// Write and flush until the plug is pulled; what the drive holds is lost
#[derive(Debug, Args)]
struct WriteArguments {
    /// A block device, or a file, not in use
    #[arg(long, value_name = "DEV")]
    drive: PathBuf,
    /// Where the witness listens
    #[arg(long, value_name = "HOST:PORT")]
    witness: String,
    /// How much of the drive is written, from its beginning, at most
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1G")]
    span: u64,
    /// End after so long, if nothing happens
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Overwrite what the drive holds
    #[arg(long)]
    yes_destroy: bool,
}

/// Compare what the drive holds with what it had acknowledged; exit code 3 when it broke its word
#[derive(Debug, Args)]
struct VerifyArguments {
    /// The drive that was written
    #[arg(long, value_name = "DEV")]
    drive: PathBuf,
    /// What the witness has recorded
    #[arg(long, value_name = "FILE")]
    record: PathBuf,
}

#[derive(Debug, Serialize)]
struct Writing {
    epochs: u64,
    writes: u64,
    /// "asked", "drive" or "witness".
    ended_by: &'static str,
    message: Option<String>,
}

/// Runs the command.
pub fn run(arguments: &PowercutArguments, settings: &Settings) -> Outcome {
    match &arguments.part {
        Part::Witness(arguments) => run_witness(arguments, settings),
        Part::Write(arguments) => run_writer(arguments, settings),
        Part::Verify(arguments) => run_verifier(arguments, settings),
    }
}

fn run_witness(arguments: &WitnessArguments, settings: &Settings) -> Outcome {
    let address = &arguments.listen;
    let listener = TcpListener::bind(address)
        .map_err(|error| Failure::failed(format!("cannot listen at {address}: {error}")))?;
    let path = &arguments.record;
    // A record of an older run is worth more than the few bytes of a new name.
    let file = File::create_new(path).on_path("make the record", path)?;
    let at = listener.local_addr().map_or_else(|_| address.clone(), |at| at.to_string());
    let _ = writeln!(std::io::stderr(), "listening at {at}");
    let bar = progress::counter("acknowledged flushes");
    let silence = Duration::from_secs(arguments.silence);
    let told = listen(&listener, &mut BufWriter::new(&file), silence, |epoch| {
        bar.set_position(epoch);
    });
    bar.finish_and_clear();
    let told = told.map_err(Failure::failed)?;
    file.sync_all().on_path("write", path)?;
    settings.output.show("lab powercut witness", &told, |told: &Told| {
        let end = if told.goodbye { "the writer has ended" } else { "the writer fell silent" };
        format!(
            "{end}: {} acknowledged flushes of {} recorded in {}\n\
             next: bimetal lab powercut verify --drive {} --record {}\n",
            told.epochs,
            told.drive,
            path.display(),
            told.drive,
            path.display()
        )
    })?;
    Ok(Exit::Done)
}

fn run_writer(arguments: &WriteArguments, settings: &Settings) -> Outcome {
    let drive = Drive::look(&arguments.drive)?;
    free::refuse_unless_free(&drive, arguments.yes_destroy, "--yes-destroy")?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let device = kernel.open_device(&drive.path, Access::ReadWrite)?;
    let info = device.info();
    let name = drive.stable_path().display().to_string();
    let span_bytes = arguments.span.min(info.size_bytes);
    let run =
        Run::new(io.random(), &name, span_bytes, info.sector_bytes).map_err(Failure::usage)?;
    let mut wire = Wire::connect(&arguments.witness, &run).map_err(Failure::failed)?;
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, asked.clone())
            .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
    }
    let span = human_bytes(run.span_bytes);
    let _ = writeln!(std::io::stderr(), "writing to {span} of {name}: pull the plug now");
    let bar = progress::counter("acknowledged flushes");
    let until_ns = arguments.seconds.map(|seconds| io.now_ns() + seconds * 1_000_000_000);
    let clock = io.clone();
    let go_on = |epochs| {
        bar.set_position(epochs);
        let late = until_ns.is_some_and(|until_ns| clock.now_ns() >= until_ns);
        !late && !asked.load(Ordering::Relaxed)
    };
    let written = io.block_on(write(&device, &run, &mut wire, go_on));
    bar.finish_and_clear();
    let (ended_by, message) = match &written.end {
        End::Asked => ("asked", None),
        End::Drive(error) => ("drive", Some(error.to_string())),
        End::Witness(problem) => ("witness", Some(problem.clone())),
    };
    let (epochs, writes) = (written.epochs, written.writes);
    let writing = Writing { epochs, writes, ended_by, message };
    settings.output.show("lab powercut write", &writing, |writing| {
        let why = match (writing.ended_by, &writing.message) {
            ("drive", Some(message)) => format!("the drive failed: {message}"),
            (_, Some(message)) => message.clone(),
            _ => "ended as asked, with power on".to_owned(),
        };
        format!("{why}\n{epochs} flushes of {writes} writes were acknowledged\n")
    })?;
    match written.end {
        End::Witness(problem) => {
            Err(Failure::failed(problem).hint("without a witness the test proves nothing"))
        }
        _ => Ok(Exit::Done),
    }
}

fn run_verifier(arguments: &VerifyArguments, settings: &Settings) -> Outcome {
    let path = &arguments.record;
    let file = File::open(path).on_path("open", path)?;
    let record = Record::read(BufReader::new(file))
        .map_err(|error| Failure::failed(format!("{} is no record: {error}", path.display())))?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let device = kernel.open_device(&arguments.drive, Access::ReadOnly)?;
    let (span_bytes, size_bytes) = (record.run.span_bytes, device.info().size_bytes);
    if span_bytes > size_bytes {
        return Err(Failure::failed(format!(
            "{} has {size_bytes} bytes, and {span_bytes} were written: it is another drive",
            arguments.drive.display()
        )));
    }
    let bar = progress::bar("reading");
    let tell = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let verdict = io.block_on(verify(&device, &record, tell))?;
    bar.finish_and_clear();
    settings.output.show("lab powercut verify", &verdict, text)?;
    Ok(if verdict.kept_its_word { Exit::Done } else { Exit::Degraded })
}

fn text(verdict: &Verdict) -> String {
    let mut text = format!(
        "{}\n\n\
         acknowledged: {} flushes of {} writes\n\
         newest there: epoch {} (acknowledged up to {})\n",
        verdict.sentence(),
        verdict.epochs_acknowledged,
        verdict.writes_acknowledged,
        verdict.epoch_newest_seen,
        verdict.epochs_acknowledged,
    );
    if let (Some(epoch), Some(age_ms)) = (verdict.epoch_oldest_lost, verdict.oldest_lost_age_ms) {
        text += &format!(
            "lost:         {} acknowledged writes, the oldest of epoch {epoch}, acknowledged \
             {:.3} s before the end\n",
            verdict.writes_lost,
            age_ms as f64 / 1e3
        );
    }
    text += &format!(
        "torn:         {} unacknowledged writes are there in part (allowed), {} blocks of 4096 \
         bytes are torn\n\
         damaged:      {} sectors are neither old nor new, {} lie in the wrong place\n",
        verdict.writes_torn_unacknowledged,
        verdict.blocks_torn,
        verdict.units_damaged,
        verdict.units_misplaced
    );
    if verdict.kept_its_word {
        text += "\nOne cut proves a liar and no honest drive: repeat it some times.\n";
    }
    text
}
