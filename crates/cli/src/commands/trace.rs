//! `bimetal trace`: what clients ask of a volume, written down.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use export::control::ControlRequest;
use export::{Asked, AskedKind, Batch};
use io::units::human_bytes;
use lab::trace::{Deed, Event, Format, Trace, Writer};
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::new_file;
use crate::progress;
use crate::selection;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::volume_name::VolumeName;

/// How often the server is asked for what came: its buffer holds a million requests.
const FETCH_EVERY: Duration = Duration::from_millis(200);

/// Record what clients ask of a volume
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal trace record vol0 monday.trace --seconds 3600
  bimetal trace record vol0 monday.iolog --format iolog     (for fio --read_iolog)
  bimetal trace convert monday.trace monday.csv --format csv
  bimetal lab size monday.trace --fast samsung-860-evo-500 --slow wd5002abys

Addresses, lengths and times are recorded, no data.")]
pub struct TraceArguments {
    #[command(subcommand)]
    order: Order,
}

#[derive(Debug, Subcommand)]
enum Order {
    Record(RecordArguments),
    Convert(ConvertArguments),
}

/// Write down what clients ask of a served volume, until interrupted
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal trace record vol0 monday.trace --seconds 3600
  bimetal --json trace record vol0 monday.csv --format csv --seconds 60

The file can be read at any time; it must not be there before.")]
struct RecordArguments {
    /// The volume
    name: VolumeName,
    /// The file to make
    out: PathBuf,
    /// How it is written
    #[arg(long, value_enum, default_value = "compact")]
    format: Written,
    /// End after so long
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// End after so many requests
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
}

/// Write a trace in another format
#[derive(Debug, Args)]
#[command(after_help = "Example:
  bimetal trace convert monday.blkparse monday.iolog --format iolog

Reads what 'bimetal lab policies' reads: our own formats, fio iologs, blkparse text, MSR files.")]
struct ConvertArguments {
    /// The trace
    trace: PathBuf,
    /// The file to make
    out: PathBuf,
    /// How it is written
    #[arg(long, value_enum, default_value = "compact")]
    format: Written,
}

/// Formats that are written.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Written {
    /// A few bytes per request
    Compact,
    /// `t_us,op,offset,length`
    Csv,
    /// fio's iolog, version 3
    Iolog,
}

impl From<Written> for Format {
    fn from(written: Written) -> Format {
        match written {
            Written::Compact => Format::Compact,
            Written::Csv => Format::Csv,
            Written::Iolog => Format::Iolog3,
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    trace: PathBuf,
    requests: u64,
    seconds: f64,
    bytes: u64,
    /// Requests that the server could not keep, because they came faster than they were fetched.
    lost: u64,
}

/// Runs the command.
pub fn run(arguments: &TraceArguments, settings: &Settings) -> Outcome {
    match &arguments.order {
        Order::Record(arguments) => record(arguments, settings),
        Order::Convert(arguments) => convert(arguments, settings),
    }
}

fn record(arguments: &RecordArguments, settings: &Settings) -> Outcome {
    let selection = selection::by_name(settings, &arguments.name)?;
    let name = &selection.name;
    let server = ServerRecord::serving(settings, &selection)?;
    server.filter(|server| server.ready).ok_or_else(|| {
        Failure::failed(format!("volume '{name}' is not served"))
            .hint(format!("bimetal serve {name}"))
    })?;
    let socket = settings.control_socket(name);
    let order = |what: &str| survey::ask(&socket, &ControlRequest::new("trace").with("do", what));
    let stopped = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stopped.clone())
            .map_err(|error| Failure::failed(format!("cannot listen for signals: {error}")))?;
    }
    let mut writer = writer(&arguments.out, arguments.format)?;
    order("start")?;
    let bar = progress::counter("requests");
    let began = Instant::now();
    let (mut requests, mut last_us) = (0, 0);
    let lost = loop {
        let is_last = stopped.load(Ordering::Relaxed)
            || arguments.seconds.is_some_and(|most| began.elapsed().as_secs() >= most)
            || arguments.requests.is_some_and(|most| requests >= most);
        let batch: Batch = serde_json::from_value(order("fetch")?).map_err(|error| {
            Failure::failed(format!("the server gave an answer of another version: {error}"))
        })?;
        let events: Vec<Event> = batch.requests.iter().map(event).collect();
        writer.add(&events).on_path("write", &arguments.out)?;
        requests += events.len() as u64;
        bar.set_position(requests);
        last_us = events.last().map_or(last_us, |event| event.at_us);
        // What came before the end belongs to it, also when it does not fit into one batch.
        if is_last && !batch.more {
            break batch.lost;
        }
        if !batch.more {
            thread::sleep(FETCH_EVERY);
        }
    };
    bar.finish_and_clear();
    order("stop")?;
    writer.finish(last_us).on_path("write", &arguments.out)?;
    let seconds = began.elapsed().as_secs_f64();
    show(settings, "trace record", &arguments.out, requests, seconds, lost)?;
    Ok(if lost > 0 { Exit::Degraded } else { Exit::Done })
}

fn convert(arguments: &ConvertArguments, settings: &Settings) -> Outcome {
    let trace = Trace::read(&arguments.trace).map_err(Failure::failed)?;
    let mut writer = writer(&arguments.out, arguments.format)?;
    writer.add(&trace.events).on_path("write", &arguments.out)?;
    let last_us = trace.events.last().map_or(0, |event| event.at_us);
    writer.finish(last_us).on_path("write", &arguments.out)?;
    let (requests, seconds) = (trace.events.len() as u64, last_us as f64 / 1e6);
    show(settings, "trace convert", &arguments.out, requests, seconds, 0)?;
    Ok(Exit::Done)
}

fn writer(path: &Path, format: Written) -> Result<Writer<File>, Failure> {
    Writer::new(new_file::make(path)?, format.into()).on_path("write", path)
}

fn event(asked: &Asked) -> Event {
    let (at_us, kind, offset, length) = *asked;
    let deed = match kind {
        AskedKind::Read => Deed::Read,
        AskedKind::Write => Deed::Write,
        AskedKind::Flush => Deed::Flush,
        AskedKind::Discard => Deed::Discard,
    };
    Event { at_us, deed, offset, length }
}

fn show(
    settings: &Settings,
    command: &str,
    path: &Path,
    requests: u64,
    seconds: f64,
    lost: u64,
) -> Result<(), Failure> {
    let bytes = fs::metadata(path).on_path("look at", path)?.len();
    let report = Report { trace: path.to_owned(), requests, seconds, bytes, lost };
    settings.output.show(command, &report, |report| {
        let mut text = format!(
            "{}: {} requests in {:.1} s ({})\n",
            report.trace.display(),
            report.requests,
            report.seconds,
            human_bytes(report.bytes)
        );
        if report.lost > 0 {
            text += &format!("{} requests came too fast and are missing\n", report.lost);
        }
        text
    })
}
