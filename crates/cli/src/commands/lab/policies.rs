//! `bimetal lab policies`: traces played through placement policies.

use std::path::PathBuf;

use clap::Args;
use lab::placement::{POLICIES, Row, compare};
use lab::trace::Trace;
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::progress;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Play block traces through placement policies, and see what the slow drive is spared
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab policies monday.csv.zst
  bimetal --json lab policies monday.csv.zst tuesday.iolog --sizes 5,10,20

Sizes are those of the fast drive, in percent of the extents (128K) that a trace touches. SLOW BUSY is
the time of the slow drive with everything that moves, in percent of what it would be without a fast
drive, by a plain model of a disk: 8 ms to position for a read, 5.5 ms for a write, 150 MB/s. 'static',
'epoch oracle' and 'clairvoyant' know the future; no real policy can. 'fusion' is what was seen of Apple's
Fusion Drive, without a log. UP PER BYTE is what moved up for each byte of clients. Traces may be CSV
(t_us,op,offset,length), fio iologs, blkparse text or MSR files, also compressed with zstd.")]
pub struct PoliciesArguments {
    /// The traces
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Sizes of the fast drive, in percent of what the trace touches
    #[arg(long, value_delimiter = ',', default_value = "5,10,20", value_parser = percent)]
    sizes: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<Row>,
}

/// Runs the command.
pub fn run(arguments: &PoliciesArguments, settings: &Settings) -> Outcome {
    let bar = progress::steps("playing");
    bar.set_length((arguments.traces.len() * arguments.sizes.len() * POLICIES) as u64);
    let mut rows = Vec::new();
    for path in &arguments.traces {
        let trace = Trace::read(path).map_err(Failure::failed)?;
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
        for percent in &arguments.sizes {
            rows.extend(compare(&name, &trace.events, *percent, |_| bar.inc(1)));
        }
    }
    bar.finish_and_clear();
    settings.output.show("lab policies", &Report { rows }, text)?;
    Ok(Exit::Done)
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        ("TRACE", Align::Left),
        ("FAST", Align::Right),
        ("POLICY", Align::Left),
        ("READ HITS", Align::Right),
        ("SLOW BUSY", Align::Right),
        ("OF THAT DESTAGE", Align::Right),
        ("UP PER BYTE", Align::Right),
        ("MOVED PER BYTE", Align::Right),
        ("MEAN", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
    ]);
    for row in &report.rows {
        table.row([
            row.trace.clone(),
            format!("{} %", row.size_percent),
            row.policy.clone(),
            format!("{:.1} %", row.read_hit * 100.0),
            format!("{:.1} s ({:.1} %)", row.slow_busy_s, row.slow_busy_percent),
            format!("{:.1} s", row.destage_s),
            format!("{:.2}", row.fast_written_per_byte),
            format!("{:.2}", row.moved_per_byte),
            format!("{:.2} ms", row.mean_us / 1e3),
            format!("{:.1} ms", row.p50_us / 1e3),
            format!("{:.1} ms", row.p99_us / 1e3),
            format!("{:.1} ms", row.p999_us / 1e3),
        ]);
    }
    table.render()
}

fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim_end_matches('%').parse().map_err(|_| "a number of percent")?;
    if value > 0.0 && value <= 100.0 {
        Ok(value)
    } else {
        Err("above 0 and at most 100 percent".to_owned())
    }
}
