//! `bimetal probe`: what a drive says of itself, how fast it is, and where requests to it are cut.

use std::path::{Path, PathBuf};

use clap::Args;
use io::units::{human_bytes, parse_bytes};
use lab::fio::Direction;
use lab::fit::{Fit, fit};
use lab::probe::{Bounds, Identity, Measurements, plan, probe};
use serde::Serialize;
use twin::Condition;

use super::lab::place;
use super::twin::{fitted_text, stem};
use crate::failure::{Exit, Failure, Outcome};
use crate::new_file;
use crate::progress;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Measure a drive, and find out how requests to it are cut
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal probe /dev/sdb --out sdb.json
  bimetal probe /dev/sdb --write --twin sdb.toml   (an empty drive; writes to it)
  bimetal probe twin:wd5002abys --seconds 2
  bimetal twin fit --from sdb.json --out sdb.toml

Only reads, unless --write is given; that refuses a drive that holds anything (exit code 4), with no flag against
it. Each measurement ends after --seconds or --bytes, whichever comes first; what all of it takes at most
is said before it begins. fio makes the measurements, so it has to be installed.")]
pub struct ProbeArguments {
    /// DEV, FILE, FILE:SIZE, VOLUME, an NBD URI or twin:NAME
    #[arg(value_name = "DEV")]
    on: String,
    /// Measure writes too: only on a drive that holds nothing
    #[arg(long)]
    write: bool,
    /// The longest a measurement may take
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The most that a measurement may read or write
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4G")]
    bytes: u64,
    /// Keep the measurements in this file, for 'twin fit'
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Make a twin of it at once, in this file
    #[arg(long, value_name = "FILE")]
    twin: Option<PathBuf>,
}

#[derive(Serialize)]
struct Report<'a> {
    measurements: &'a Measurements,
    twin: Option<TwinReport<'a>>,
}

#[derive(Serialize)]
struct TwinReport<'a> {
    file: &'a Path,
    lines: &'a [lab::fit::Line],
}

/// Runs the command.
pub fn run(arguments: &ProbeArguments, settings: &Settings) -> Outcome {
    for path in [&arguments.out, &arguments.twin].into_iter().flatten() {
        new_file::refuse_existing(path)?;
    }
    let mut place = place::find(&arguments.on, 1, settings)?;
    let identity = place.identity(&arguments.on)?;
    if arguments.write {
        place.refuse_unless_empty()?;
    } else {
        place.refuse_unless_safe(false, false)?;
        place.warn_of_holes();
    }
    let bounds =
        Bounds { seconds: arguments.seconds, bytes: arguments.bytes, writes: arguments.write };
    let measures = plan(identity.size_bytes, bounds).map_err(Failure::usage)?;
    let count =
        |direction| measures.iter().filter(|measure| measure.direction == direction).count() as u64;
    let (reads, writes) = (count(Direction::Read), count(Direction::Write));
    if !settings.output.json {
        eprintln!(
            "at most {} s: reads up to {}, writes {}",
            measures.len() as u64 * (arguments.seconds + 2),
            human_bytes(reads * arguments.bytes),
            if writes == 0 {
                "nothing".to_owned()
            } else {
                format!("up to {}", human_bytes(writes * arguments.bytes))
            },
        );
    }
    let bar = progress::steps("probing");
    bar.set_length(measures.len() as u64);
    let tell = |number: usize, name: &str| {
        bar.set_position(number as u64);
        bar.set_message(name.to_owned());
    };
    let found = probe(place.bench.as_mut(), identity, &measures, &tell);
    bar.finish_and_clear();
    let found = found.map_err(Failure::failed)?;
    // Measuring took minutes: it is shown whatever becomes of the files.
    let kept = match &arguments.out {
        Some(path) => new_file::write(path, &found.to_json()),
        None => Ok(()),
    };
    let fitted = match &arguments.twin {
        Some(path) => twin_of(&found, path, condition(arguments.write)).map(Some),
        None => Ok(None),
    };
    let (made, made_failure) = match fitted {
        Ok(made) => (made, None),
        Err(failure) => (None, Some(failure)),
    };
    let twin = made.as_ref().map(|(file, made)| TwinReport { file, lines: &made.lines });
    let report = Report { measurements: &found, twin };
    let fitted = made.as_ref().map(|(path, made)| (*path, made));
    settings.output.show("probe", &report, |report| {
        let out = arguments.out.as_deref();
        text(report.measurements, out.filter(|_| kept.is_ok()), fitted, out.is_none())
    })?;
    kept.map_err(|failure| {
        failure.hint("the figures above are all that is left of the measurements; --json has all")
    })?;
    made_failure.map_or(Ok(Exit::Done), Err)
}

/// Fits a twin, and writes it into a new file.
fn twin_of<'a>(
    found: &Measurements,
    path: &'a Path,
    condition: Condition,
) -> Result<(&'a Path, Fit), Failure> {
    let made = fit(found, &stem(path), condition).map_err(Failure::failed)?;
    new_file::write(path, &made.profile.file().to_toml())?;
    Ok((path, made))
}

/// In what condition a flash drive is taken to be: what may be written held nothing.
fn condition(written: bool) -> Condition {
    if written { Condition::Fresh } else { Condition::Used }
}

fn text(
    found: &Measurements,
    kept_in: Option<&Path>,
    made: Option<(&Path, &Fit)>,
    advise_keeping: bool,
) -> String {
    let mut text = identity_text(&found.identity);
    let mut table = Table::new(&[
        ("MEASURED", Align::Left),
        ("io/s", Align::Right),
        ("MB/s", Align::Right),
        ("MEAN µs", Align::Right),
        ("p99 µs", Align::Right),
        ("ARRIVED KiB", Align::Right),
    ]);
    for one in &found.measured {
        table.row([
            one.measure.id.clone(),
            format!("{:.0}", one.iops),
            format!("{:.1}", one.mb_s),
            format!("{:.0}", one.latency_us.mean),
            format!("{:.0}", one.latency_us.p99),
            one.arrived_kib.map_or_else(String::new, |kib| format!("{kib:.0}")),
        ]);
    }
    text += &format!("\n{}\nlarge requests: {}\n", table.render(), found.split.why);
    for note in &found.notes {
        text += &format!("note: {note}\n");
    }
    if let Some((path, made)) = made {
        text += &format!("\n{}", fitted_text(path, made));
    }
    match kept_in {
        Some(path) => text += &format!("\nkept in {}\n", path.display()),
        None if made.is_none() && advise_keeping => {
            text += "\nnot kept: --out FILE keeps it for 'bimetal twin fit'\n"
        }
        None => {}
    }
    text
}

fn identity_text(identity: &Identity) -> String {
    let mut text = format!(
        "{}: {}, {}",
        identity.place,
        identity.model.as_deref().unwrap_or(&identity.kind),
        human_bytes(identity.size_bytes)
    );
    if let Some(firmware) = &identity.firmware {
        text += &format!(", firmware {firmware}");
    }
    text.push('\n');
    let mut facts = Vec::new();
    facts.extend(identity.rotational.map(|turns| match (turns, identity.rpm) {
        (true, Some(rpm)) => format!("turns at {rpm} rpm"),
        (true, None) => "turns".to_owned(),
        (false, _) => "does not turn".to_owned(),
    }));
    facts.extend(
        identity.write_cache.map(|on| {
            if on { "volatile write cache" } else { "no volatile write cache" }.to_owned()
        }),
    );
    facts.extend(
        identity.link.as_ref().map(|link| format!("{} ({:.0} MB/s)", link.name, link.mb_s)),
    );
    facts.extend(identity.sector_bytes.map(|bytes| {
        format!("sectors of {bytes}, kept in {}", identity.physical_sector_bytes.unwrap_or(bytes))
    }));
    facts.extend(identity.hidden_by.as_ref().map(|what| format!("seen through {what}")));
    if !facts.is_empty() {
        text += &format!("  {}\n", facts.join("; "));
    }
    if let Some(queue) = &identity.queue {
        let known = |name: &str, value: Option<u64>| value.map(|value| format!("{name} {value}"));
        let limits: Vec<String> = [
            known("max_sectors_kb", queue.max_sectors_kb),
            known("max_hw_sectors_kb", queue.max_hw_sectors_kb),
            known("max_segments", queue.max_segments),
            known("nr_requests", queue.requests_max),
            known("queue_depth", queue.device_depth),
        ]
        .into_iter()
        .flatten()
        .collect();
        text += &format!("  {}\n", limits.join(", "));
    }
    if let Some(twin) = &identity.known_twin {
        text += &format!("  there is a twin of this model: {twin}\n");
    }
    if !identity.advertised.is_empty() {
        let one = |it: &lab::probe::Advertised| format!("{} {} {}", it.what, it.value, it.unit);
        let all: Vec<String> = identity.advertised.iter().map(one).collect();
        text += &format!("  advertised: {}\n", all.join(", "));
    }
    text
}
