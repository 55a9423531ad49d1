//! `bimetal why`: why data is where it is.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use io::units::{human_bytes, parse_bytes};
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::file_extents::FileFinder;
use crate::opinions::{self, OpinionReport};
use crate::selection;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::table::{Align, Table};
use crate::volume_name::VolumeName;

/// Extents that are shown by themselves.
const LINES_MAX: usize = 10;

/// Say why data is on the drive it is on
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal why /mnt/vm.qcow2
  bimetal why vol0 10G
  bimetal --json why vol0 /mnt/vm.qcow2

For a file, or for the extent at a byte of a volume: where it lives, how often it was read lately (older
reads count less) and how much of the slow drive's time these reads take there, when it was asked for last,
and the last decision about it with its reason. The volume must be served: what it knows of the past it
knows since its server started.")]
pub struct WhyArguments {
    /// FILE, NAME OFFSET, or NAME FILE
    #[arg(num_args = 1..=2, required = true, value_name = "NAME|OFFSET|FILE")]
    words: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    volume: String,
    file: Option<PathBuf>,
    extent_bytes: u64,
    extents: Vec<OpinionReport>,
}

/// Runs the command.
pub fn run(arguments: &WhyArguments, settings: &Settings) -> Outcome {
    let (volume, file, ranges) = match &arguments.words[..] {
        [name] if is_volume(name, settings) => {
            let text = "give what of the volume: an offset such as 10G, or a file on it";
            return Err(Failure::usage(text).hint(format!("bimetal why {name} 10G")));
        }
        [file] => of_file(Path::new(file), None, settings)?,
        [name, what] => {
            let name: VolumeName = name.parse().map_err(Failure::usage)?;
            match parse_bytes(what) {
                Ok(at) => (name, None, vec![(at, 1)]),
                Err(_) if !Path::new(what).exists() => {
                    let text =
                        format!("'{what}' is no offset such as 10G, and there is no such file");
                    return Err(Failure::usage(text));
                }
                Err(_) => of_file(Path::new(what), Some(&name), settings)?,
            }
        }
        _ => return Err(Failure::usage("give a file, or a volume and an offset")),
    };
    let selection = selection::by_name(settings, &volume)?;
    let server = ServerRecord::serving(settings, &selection)?;
    server.filter(|server| server.ready).ok_or_else(|| {
        Failure::failed(format!("volume '{volume}' is not served: nobody knows what was used"))
            .hint(format!("bimetal serve {volume}"))
    })?;
    let socket = settings.control_socket(&selection.name);
    let mut extent_bytes = 0;
    // By place: pieces of a file may share an extent.
    let mut extents: BTreeMap<u64, OpinionReport> = BTreeMap::new();
    for range in ranges {
        let (bytes, opinions) = opinions::ask(&socket, range)?;
        if opinions.is_empty() {
            return Err(Failure::usage(format!("volume '{volume}' ends before {}", range.0)));
        }
        extent_bytes = bytes;
        extents.extend(opinions.into_iter().map(|opinion| (opinion.at, opinion)));
    }
    let extents = extents.into_values().collect();
    let report = Report { volume: volume.to_string(), file, extent_bytes, extents };
    settings.output.show("why", &report, text)?;
    Ok(Exit::Done)
}

/// Whether somebody named a volume alone, and no file.
fn is_volume(word: &str, settings: &Settings) -> bool {
    let known = |name: VolumeName| selection::by_name(settings, &name).is_ok();
    !Path::new(word).exists() && word.parse().is_ok_and(known)
}

type Subject = (VolumeName, Option<PathBuf>, Vec<(u64, u64)>);

fn of_file(
    path: &Path,
    volume: Option<&VolumeName>,
    settings: &Settings,
) -> Result<Subject, Failure> {
    let extents = FileFinder::new(settings).find(path, volume)?;
    if extents.pieces.is_empty() {
        let (file, volume) = (path.display(), &extents.volume);
        let failure =
            Failure::failed(format!("nothing of {file} has a place on volume '{volume}'"));
        let hint = match extents.unplaced.words() {
            words if words.is_empty() => "it is empty, or a hole throughout".to_owned(),
            words => words,
        };
        let advice =
            extents.unplaced.hint(path).map_or_else(String::new, |advice| format!("; {advice}"));
        return Err(failure.hint(hint + &advice));
    }
    let ranges = extents.pieces.iter().map(|piece| (piece.at, piece.length)).collect();
    Ok((extents.volume, Some(path.to_owned()), ranges))
}

fn text(report: &Report) -> String {
    let mut text = match &report.file {
        Some(file) => format!("{} on volume '{}'", file.display(), report.volume),
        None => format!("volume '{}'", report.volume),
    };
    text += &format!(", in extents of {}\n\n", human_bytes(report.extent_bytes));
    if report.extents.len() > LINES_MAX {
        text += &summary(report);
        text += "\nthose that take most of the slow drive's time, or would:\n\n";
    }
    let mut shown: Vec<&OpinionReport> = report.extents.iter().collect();
    shown.sort_by(|one, other| other.saved_ms.total_cmp(&one.saved_ms));
    let mut table = Table::new(&[
        ("EXTENT AT", Align::Right),
        ("LIVES", Align::Left),
        ("READ LATELY", Align::Right),
        ("WORTH", Align::Right),
        ("ASKED FOR", Align::Right),
        ("WISHED", Align::Left),
        ("LAST DECISION", Align::Left),
    ]);
    for extent in shown.into_iter().take(LINES_MAX) {
        let verdict = match (&extent.verdict, extent.verdict_s_ago) {
            (Some(words), Some(ago)) => format!("{} ago: {words}", time(ago)),
            _ => unremembered(extent).to_owned(),
        };
        table.row([
            extent.at.to_string(),
            place(extent),
            format!("{:.1} times", extent.reads_lately),
            format!("{:.1} ms", extent.saved_ms),
            extent.asked_s_ago.map_or_else(|| "not lately".to_owned(), |ago| time(ago) + " ago"),
            extent.wish.clone().unwrap_or_else(|| "-".to_owned()),
            verdict,
        ]);
    }
    text + &table.render()
}

/// What may be said where no decision is remembered: of new data none is kept, as it goes by one rule.
fn unremembered(extent: &OpinionReport) -> &'static str {
    match extent.home.as_str() {
        "fast" => "none is remembered; new data goes to the fast drive while it has room",
        "hole" => "none: nothing is there",
        _ => "none is remembered",
    }
}

fn place(extent: &OpinionReport) -> String {
    let log = if extent.in_log { " + log" } else { "" };
    format!("{}{log}", extent.home)
}

/// How many extents are where, for which reason.
fn summary(report: &Report) -> String {
    let mut groups: BTreeMap<(String, &str, &str), u64> = BTreeMap::new();
    for extent in &report.extents {
        let verdict = extent.verdict.as_deref().unwrap_or_else(|| unremembered(extent));
        let wish = extent.wish.as_deref().unwrap_or("-");
        *groups.entry((place(extent), wish, verdict)).or_default() += 1;
    }
    let mut table = Table::new(&[
        ("LIVES", Align::Left),
        ("DATA", Align::Right),
        ("WISHED", Align::Left),
        ("LAST DECISION", Align::Left),
    ]);
    for ((place, wish, verdict), count) in groups {
        let bytes = human_bytes(count * report.extent_bytes);
        table.row([place, bytes, wish.to_owned(), verdict.to_owned()]);
    }
    table.render()
}

/// Seconds as people say them.
fn time(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}
