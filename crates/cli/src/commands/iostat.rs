//! `bimetal iostat`: what goes to each drive, a line per drive and interval.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::selection::VolumeArgument;
use crate::settings::Settings;
use crate::survey;
use crate::table::{Align, Table};
use crate::volume_file;
use crate::volume_name::VolumeName;
use crate::volume_status::{DriveStatus, VolumeStatus};

/// Show what goes to each drive of the volumes that are served
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal iostat              (since each server started)
  bimetal iostat vol0 1       (every second, until interrupted)
  bimetal iostat vol0 1 10    (ten times)")]
pub struct IostatArguments {
    /// The volume (every served one when left out), seconds between reports, number of reports
    #[arg(num_args = 0..=3, value_name = "NAME|INTERVAL|COUNT")]
    words: Vec<String>,
    /// The fast drive, instead of a name; needs --slow too
    #[arg(long, value_name = "DEV", requires = "slow")]
    fast: Option<PathBuf>,
    /// The slow drive, instead of a name; needs --fast too
    #[arg(long, value_name = "DEV", requires = "fast")]
    slow: Option<PathBuf>,
}

/// What the words mean.
#[derive(Debug, PartialEq)]
struct Plan {
    name: Option<VolumeName>,
    interval: Option<Duration>,
    count: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Report {
    /// Seconds that the numbers cover; `None` for the first report, which covers all time since
    /// each server started.
    interval_s: Option<f64>,
    volumes: Vec<VolumeReport>,
}

#[derive(Debug, Serialize)]
struct VolumeReport {
    name: String,
    drives: DriveReports,
    log_used_bytes: u64,
    promoted_bytes: u64,
    demoted_bytes: u64,
    destaged_bytes: u64,
}

#[derive(Debug, Serialize)]
struct DriveReports {
    fast: DriveReport,
    slow: DriveReport,
}

#[derive(Debug, Serialize)]
struct DriveReport {
    reads: u64,
    read_bytes: u64,
    writes: u64,
    write_bytes: u64,
    flushes: u64,
    errors: u64,
}

/// Runs the command.
pub fn run(arguments: &IostatArguments, settings: &Settings) -> Outcome {
    let mut plan = plan(&arguments.words)?;
    if arguments.fast.is_some() {
        if plan.name.is_some() {
            return Err(Failure::usage("give either a name or --fast and --slow"));
        }
        let (fast, slow) = (arguments.fast.clone(), arguments.slow.clone());
        plan.name = Some(VolumeArgument { name: None, fast, slow }.select(settings)?.name);
    }
    let mut before: Vec<VolumeStatus> = Vec::new();
    let mut looked_at = None;
    let mut reports = 0;
    loop {
        let now = Instant::now();
        let volumes = look(settings, plan.name.as_ref())?;
        let interval_s = looked_at.map(|then: Instant| now.duration_since(then).as_secs_f64());
        let report = Report {
            interval_s,
            volumes: volumes.iter().map(|volume| compare(volume, &before)).collect(),
        };
        settings.output.show("iostat", &report, text)?;
        (before, looked_at) = (volumes, Some(now));
        reports += 1;
        let Some(interval) = plan.interval else { return Ok(Exit::Done) };
        if plan.count.is_some_and(|count| reports >= count) {
            return Ok(Exit::Done);
        }
        // Counted from the look, so that reports do not drift.
        std::thread::sleep(interval.saturating_sub(now.elapsed()));
    }
}

fn plan(words: &[String]) -> Result<Plan, Failure> {
    let is_number = |word: &&String| word.parse::<f64>().is_ok();
    let (name, numbers) = match words.split_first() {
        Some((first, rest)) if !is_number(&first) => {
            (Some(first.parse().map_err(Failure::usage)?), rest)
        }
        _ => (None, words),
    };
    let interval = numbers.first().map(|word| {
        let seconds = word.parse().ok();
        let valid = seconds.filter(|seconds: &f64| (0.01..=86_400.0).contains(seconds));
        valid.map(Duration::from_secs_f64).ok_or_else(|| {
            Failure::usage(format!("'{word}' is not an interval in seconds (0.01 to 86400)"))
        })
    });
    let count = numbers.get(1).map(|word| {
        let valid = word.parse().ok().filter(|count| *count > 0);
        valid.ok_or_else(|| Failure::usage(format!("'{word}' is not a number of reports")))
    });
    if let Some(extra) = numbers.get(2) {
        return Err(Failure::usage(format!("what does '{extra}' mean after interval and count?")));
    }
    Ok(Plan { name, interval: interval.transpose()?, count: count.transpose()? })
}

fn look(settings: &Settings, name: Option<&VolumeName>) -> Result<Vec<VolumeStatus>, Failure> {
    match name {
        Some(name) => Ok(vec![survey::live(settings, name).map_err(|failure| {
            failure
                .within(format!("volume '{name}'"))
                .hint("only a volume that is served has live numbers; see 'bimetal status'")
        })?]),
        None => Ok(volume_file::names(&settings.config_dir)?
            .iter()
            .filter_map(|name| survey::live(settings, name).ok())
            .collect()),
    }
}

/// What happened since `before`, or since the start when the volume was not seen then (or its
/// server was started anew).
fn compare(now: &VolumeStatus, before: &[VolumeStatus]) -> VolumeReport {
    let same = |then: &&VolumeStatus| {
        let pid = |volume: &VolumeStatus| volume.server.as_ref().map(|server| server.pid);
        then.name == now.name && pid(then) == pid(now)
    };
    let then = before.iter().find(same);
    let drive = |now: &DriveStatus, then: Option<&DriveStatus>| {
        let since = |count: fn(&DriveStatus) -> u64| count(now) - then.map_or(0, count);
        DriveReport {
            reads: since(|drive| drive.reads),
            read_bytes: since(|drive| drive.read_bytes),
            writes: since(|drive| drive.writes),
            write_bytes: since(|drive| drive.write_bytes),
            flushes: since(|drive| drive.flushes),
            errors: since(|drive| drive.errors),
        }
    };
    let moved = |volume: &VolumeStatus| {
        volume.moves.map_or([0; 3], |m| [m.promoted_bytes, m.demoted_bytes, m.destaged_bytes])
    };
    let (moves, moves_then) = (moved(now), then.map_or([0; 3], moved));
    VolumeReport {
        name: now.name.clone(),
        drives: DriveReports {
            fast: drive(&now.drives.fast, then.map(|then| &then.drives.fast)),
            slow: drive(&now.drives.slow, then.map(|then| &then.drives.slow)),
        },
        log_used_bytes: now.log.map_or(0, |log| log.used_bytes),
        promoted_bytes: moves[0] - moves_then[0],
        demoted_bytes: moves[1] - moves_then[1],
        destaged_bytes: moves[2] - moves_then[2],
    }
}

fn text(report: &Report) -> String {
    if report.volumes.is_empty() {
        return "no volume is being served\n".to_owned();
    }
    let per = if report.interval_s.is_some() { "/s" } else { "" };
    let head = |name: &str| format!("{name}{per}");
    let (reads, read, writes, written, flushes) =
        (head("READS"), head("READ"), head("WRITES"), head("WRITTEN"), head("FLUSHES"));
    let mut table = Table::new(&[
        ("VOLUME", Align::Left),
        ("DRIVE", Align::Left),
        (reads.as_str(), Align::Right),
        (read.as_str(), Align::Right),
        (writes.as_str(), Align::Right),
        (written.as_str(), Align::Right),
        (flushes.as_str(), Align::Right),
        ("ERRORS", Align::Right),
        ("LOG", Align::Right),
        ("MOVED", Align::Right),
    ]);
    let rate = |count: u64| match report.interval_s {
        // An interval is at least ten milliseconds, so the quotient is sane.
        Some(seconds) => (count as f64 / seconds.max(0.01)).round() as u64,
        None => count,
    };
    for volume in &report.volumes {
        let moved = volume.promoted_bytes + volume.demoted_bytes + volume.destaged_bytes;
        for (role, drive) in [("fast", &volume.drives.fast), ("slow", &volume.drives.slow)] {
            let fast = role == "fast";
            table.row([
                if fast { volume.name.clone() } else { String::new() },
                role.to_owned(),
                rate(drive.reads).to_string(),
                human_bytes(rate(drive.read_bytes)),
                rate(drive.writes).to_string(),
                human_bytes(rate(drive.write_bytes)),
                rate(drive.flushes).to_string(),
                drive.errors.to_string(),
                if fast { human_bytes(volume.log_used_bytes) } else { String::new() },
                if fast { human_bytes(moved) } else { String::new() },
            ]);
        }
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Plan, Failure> {
        plan(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_words_are_a_name_an_interval_and_a_count() {
        let name = Some("vol0".parse().unwrap());
        let second = Some(Duration::from_secs(1));
        assert_eq!(read(&[]), Ok(Plan { name: None, interval: None, count: None }));
        assert_eq!(read(&["1"]), Ok(Plan { name: None, interval: second, count: None }));
        assert_eq!(read(&["vol0", "1", "5"]), Ok(Plan { name, interval: second, count: Some(5) }));
        for bad in
            [&["vol0", "x"][..], &["0"], &["1", "0"], &["1", "-2"], &["1", "2", "3"], &["-1"]]
        {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
