//! `bimetal lab size`: how large the fast drive should be.

use std::path::PathBuf;

use clap::Args;
use io::units::human_bytes;
use lab::replay::{
    Advice, Goal, Ground, Outcome as Replayed, PairClass, Size, Sizing, Speed, Try, alone,
};
use lab::trace::Trace;
use serde::Serialize;

use super::replay::{Pace, busy, pair_named, time};
use crate::failure::{Exit, Failure, Outcome};
use crate::progress;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Find out how large a fast drive a workload needs
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab size monday.csv.zst --fast samsung-860-evo-500 --slow wd5002abys
  bimetal lab size monday.csv.zst --fast samsung-860-evo-500 --slow wd5002abys --target-p99 5ms
  bimetal --json lab size monday.csv.zst --fast mz7lm1t9 --slow st91000640ns --target-hit 95% --fast-price 0.10

The trace is played on volumes of these twins, by the engine that ships, with fast drives of several
sizes (in percent of what it touches, landing log included) and with none. The first half warms up, the
second counts. FLASH LIFE takes the drive to bear so many full writes (--full-writes; 0.3 a day for five years
are 550) at the pace of the trace. A price is for 10^9 bytes. Record a trace with blktrace or
'fio --write_iolog', or on a served volume with 'bimetal trace record'.")]
pub struct SizeArguments {
    /// The trace
    trace: PathBuf,
    /// The twin whose kind the fast drive is
    #[arg(long, value_name = "TWIN")]
    fast: String,
    /// The twin of the slow drive
    #[arg(long, value_name = "TWIN")]
    slow: String,
    /// Sizes of the fast drive, in percent of what the trace touches
    #[arg(long, value_delimiter = ',', default_value = "1,2,5,10,20,30,50,100", value_parser = percent)]
    sizes: Vec<f64>,
    /// 99 of 100 reads and writes shall take no longer, such as 5ms
    #[arg(long, value_name = "TIME", value_parser = milliseconds, conflicts_with = "target_hit")]
    target_p99: Option<f64>,
    /// This share of the bytes shall be read without the slow drive
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    target_hit: Option<f64>,
    /// At the trace's own times, or as fast as it goes
    #[arg(long, value_enum, default_value = "original")]
    speed: Pace,
    /// Requests under way at any time, with --speed max
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    depth: u64,
    /// This share of the requests, in percent, is played before anything counts
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u64).range(0..=95))]
    warm_up: u64,
    /// How often the flash may be written fully
    #[arg(long, value_name = "N", default_value_t = 550.0)]
    full_writes: f64,
    /// What 10^9 bytes of the fast drive cost
    #[arg(long, value_name = "PRICE")]
    fast_price: Option<f64>,
    /// Decides what the simulation draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Serialize)]
struct Report {
    trace: PathBuf,
    fast: String,
    slow: String,
    speed: Speed,
    goal: Goal,
    touched_bytes: u64,
    packed: bool,
    without: Replayed,
    rows: Vec<Row>,
    advice: Advice,
}

#[derive(Debug, Serialize)]
struct Row {
    #[serde(flatten)]
    tried: Try,
    cost: Option<f64>,
}

/// Runs the command.
pub fn run(arguments: &SizeArguments, settings: &Settings) -> Outcome {
    let trace = Trace::read(&arguments.trace).map_err(Failure::failed)?;
    let names = format!("{}+{}", arguments.fast, arguments.slow);
    let pair = pair_named(&names, PairClass::Fusion, arguments.seed)?;
    let ground = Ground::new(&trace.events, pair.slow_bytes()).map_err(Failure::failed)?;
    let goal = match (arguments.target_p99, arguments.target_hit) {
        (Some(ms), _) => Goal::P99Ms(ms),
        (_, Some(percent)) if percent <= 100.0 => Goal::Hit(percent / 100.0),
        (_, Some(_)) => return Err(Failure::usage("a share of hits is at most 100 %")),
        (None, None) => Goal::Worthwhile,
    };
    let touched = ground.touched_bytes() as f64;
    let mut rooms: Vec<u64> =
        arguments.sizes.iter().map(|percent| (touched * percent / 100.0) as u64).collect();
    rooms.sort_unstable();
    rooms.dedup();
    let speed = arguments.speed.speed(arguments.depth);
    let warm_up = ground.events.len() * arguments.warm_up as usize / 100;
    let full_writes = arguments.full_writes;
    let sizing = Sizing { pair, rooms, warm_up, speed, goal, full_writes };
    let bar = progress::steps("playing");
    bar.set_length(ground.events.len() as u64 * (sizing.rooms.len() as u64 + 1));
    let slow = arguments.slow.strip_prefix("twin:").unwrap_or(&arguments.slow);
    let without = alone(slow, &ground, warm_up, speed, arguments.seed, &|n| bar.inc(n))
        .map_err(Failure::failed)?;
    let tries = sizing.run(&ground, &|n| bar.inc(n));
    bar.finish_and_clear();
    let advice = sizing.advice(&tries);
    let row = |tried: Try| {
        let bytes = match &tried {
            Try::Tried(size) => size.outcome.volume.as_ref().map(|volume| volume.fast_bytes),
            Try::Refused { .. } => None,
        };
        let cost = arguments.fast_price.zip(bytes).map(|(price, bytes)| price * bytes as f64 / 1e9);
        Row { tried, cost }
    };
    let report = Report {
        trace: arguments.trace.clone(),
        fast: arguments.fast.clone(),
        slow: arguments.slow.clone(),
        speed,
        goal,
        touched_bytes: ground.touched_bytes(),
        packed: ground.is_packed,
        without,
        rows: tries.into_iter().map(row).collect(),
        advice,
    };
    settings.output.show("lab size", &report, text)?;
    Ok(if report.advice.room_bytes.is_some() { Exit::Done } else { Exit::Failed })
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        ("FAST DRIVE", Align::Right),
        ("OF WHAT IS TOUCHED", Align::Right),
        ("READ HITS", Align::Right),
        ("MEAN", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("SLOW BUSY", Align::Right),
        ("FLASH LIFE", Align::Right),
        ("COST", Align::Right),
        ("GOAL", Align::Right),
    ]);
    let latency = &report.without.latency;
    let slow = report.without.drive.unwrap_or_default();
    table.row([
        "none".to_owned(),
        String::new(),
        "0.0 %".to_owned(),
        time(latency.mean_us),
        time(latency.p99_us),
        time(latency.p999_us),
        busy(slow.busy_s, slow.busy_share),
        String::new(),
        String::new(),
        String::new(),
    ]);
    let mut refused = String::new();
    for row in &report.rows {
        match &row.tried {
            Try::Tried(size) => table.row(cells(size, row.cost, report.goal)),
            Try::Refused { room_bytes, why } => {
                refused += &format!("not tried: {}: {why}\n", human_bytes(*room_bytes));
            }
        }
    }
    let advice = match report.advice.room_bytes {
        Some(bytes) => format!("take {}: {}", human_bytes(bytes), report.advice.why),
        None => format!("none: {}", report.advice.why),
    };
    let packed = if report.packed { ", gaps left out" } else { "" };
    format!(
        "{}: touches {}{packed}; {} over {}\n\n{}{refused}\n{advice}\n",
        report.trace.display(),
        human_bytes(report.touched_bytes),
        report.fast,
        report.slow,
        table.render()
    )
}

fn cells(size: &Size, cost: Option<f64>, goal: Goal) -> [String; 10] {
    let latency = &size.outcome.latency;
    let volume = size.outcome.volume.clone().unwrap_or_default();
    let years = |years: f64| match years {
        years if years >= 100.0 => "> 100 years".to_owned(),
        years => format!("{years:.1} years"),
    };
    let reached = match goal {
        Goal::Worthwhile => String::new(),
        _ => format!("{} of {}", size.parts_reached, size.parts),
    };
    [
        human_bytes(size.room_bytes),
        format!("{:.0} %", size.percent),
        format!("{:.1} %", volume.read_hit * 100.0),
        time(latency.mean_us),
        time(latency.p99_us),
        time(latency.p999_us),
        busy(volume.slow_busy_s, volume.slow_busy_share),
        size.flash_years.map_or_else(String::new, years),
        cost.map_or_else(String::new, |cost| format!("{cost:.2}")),
        reached,
    ]
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| "a number of percent")?;
    if value > 0.0 && value <= 1000.0 { Ok(value) } else { Err("above 0 percent".to_owned()) }
}

/// `5ms`, `800us`, `0.02s`, or a number of milliseconds.
fn milliseconds(text: &str) -> Result<f64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let value: f64 = number.parse().map_err(|_| format!("'{text}' is no time"))?;
    let ms = match unit.trim() {
        "" | "ms" => value,
        "us" | "µs" => value / 1e3,
        "s" => value * 1e3,
        other => return Err(format!("'{other}' is no unit of time (us, ms or s)")),
    };
    if ms > 0.0 { Ok(ms) } else { Err("above 0".to_owned()) }
}
