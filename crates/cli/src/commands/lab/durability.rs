//! `bimetal lab durability`: what strict and deferred durability cost over a drive that flushes slowly.

use clap::Args;
use engine::FlushMode;
use io::units::{MICROSECOND_NS, SECOND_NS};
use lab::durability::{PUBLISHED_FLUSH_NS, Rewriting, Rewritten};
use serde::Serialize;

use crate::failure::{Exit, Outcome};
use crate::progress;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Compare strict and deferred durability in virtual time
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab durability
  bimetal lab durability --flush-us 800 --clients 1,8,64
  bimetal --json lab durability --mode strict --mode deferred=200

Clients rewrite 4 KiB and flush, again and again, each a block of its own, on a volume of two simulated
drives whose fast one takes so long to flush. The shipped engine serves them for ten seconds of virtual
time. The default is the published case of an Apple SSD: 17.5 ms, 46 to 58 flushed writes per second.")]
pub struct DurabilityArguments {
    /// How long the fast drive takes to flush, in microseconds
    #[arg(long, value_name = "US", default_value_t = PUBLISHED_FLUSH_NS / MICROSECOND_NS,
          value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    flush_us: u64,
    /// What flushes promise: strict or deferred=MS[,BYTES]; may be given several times
    #[arg(long = "mode", value_name = "MODE", default_values = ["strict", "deferred=50", "deferred=1s"])]
    modes: Vec<FlushMode>,
    /// How many clients, each with one request at a time
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values = ["1", "32"],
          value_parser = clap::value_parser!(u64).range(1..=1024))]
    clients: Vec<u64>,
}

#[derive(Debug, Serialize)]
struct Report {
    flush_us: u64,
    /// What one client reaches that waits for a flush of the drive each time.
    drive_flushes_per_second: f64,
    rows: Vec<Rewritten>,
}

/// Runs the command.
pub fn run(arguments: &DurabilityArguments, settings: &Settings) -> Outcome {
    let flush_ns = arguments.flush_us * MICROSECOND_NS;
    let bar = progress::steps("measuring in virtual time");
    bar.set_length((arguments.modes.len() * arguments.clients.len()) as u64);
    let mut rows = Vec::new();
    for &mode in &arguments.modes {
        for &clients in &arguments.clients {
            rows.push(Rewriting { mode, clients, flush_ns }.measure());
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let drive_flushes_per_second = SECOND_NS as f64 / flush_ns as f64;
    let report = Report { flush_us: arguments.flush_us, drive_flushes_per_second, rows };
    settings.output.show("lab durability", &report, text)?;
    Ok(Exit::Done)
}

fn text(report: &Report) -> String {
    let drive = report.drive_flushes_per_second;
    let mut table = Table::new(&[
        ("durability", Align::Left),
        ("clients", Align::Right),
        ("rewrites/s", Align::Right),
        ("per flush of the drive", Align::Right),
    ]);
    for row in &report.rows {
        table.row([
            row.durability.clone(),
            row.clients.to_string(),
            format!("{:.0}", row.rewrites_per_second),
            match row.drive_flushes_per_second {
                // The bound was not reached in the time that was measured.
                0.0 => "none needed".to_owned(),
                flushes => format!("{:.1}", row.rewrites_per_second / flushes),
            },
        ]);
    }
    format!(
        "a fast drive that can flush {drive:.1} times per second, one flush after the other\n{}",
        table.render()
    )
}
