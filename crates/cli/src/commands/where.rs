//! `bimetal where`: on which drive the parts of a file are.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;

use crate::atlas::{self, Atlas, Range};
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::file_extents::{Extents, FileFinder};
use crate::selection;
use crate::settings::Settings;
use crate::table::{Align, Table};
use crate::tally::Tally;
use crate::unplaced::Unplaced;
use crate::volume_name::VolumeName;

/// Files of a directory that are shown; --json has all.
const FILES_MAX: usize = 40;

/// Say which parts of files are on which drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal where /mnt/vm.qcow2
  bimetal where /mnt/vm.qcow2 --ranges
  bimetal --json where /mnt/projects

For files on ext2, ext3, ext4, XFS and Btrfs (one device) that lie on a volume through its FUSE file and a
loop device, as 'bimetal attach' makes them. Behind another way (a kernel NBD device) say which volume it is
with --volume. PENDING: written, and not yet given a place by the file system. INLINE: kept among its own data.
COMPRESSED: by Btrfs, which does not tell its place.")]
pub struct WhereArguments {
    /// Files and directories
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The volume they are on, where that cannot be found out
    #[arg(long, value_name = "NAME")]
    volume: Option<VolumeName>,
    /// Show each range of each file
    #[arg(long)]
    ranges: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    files: Vec<FileReport>,
    total: Tally,
    #[serde(flatten)]
    unplaced: Unplaced,
    /// Bytes that more than one of the files has, as clones do, or that were given twice: `total` has them once.
    shared_bytes: u64,
    /// What could not be looked at, and why.
    skipped: Vec<Skipped>,
}

#[derive(Debug, Serialize)]
struct FileReport {
    path: PathBuf,
    volume: String,
    size_bytes: u64,
    #[serde(flatten)]
    tally: Tally,
    #[serde(flatten)]
    unplaced: Unplaced,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranges: Vec<RangeReport>,
}

#[derive(Debug, Serialize)]
struct RangeReport {
    file_offset: u64,
    volume_offset: u64,
    length: u64,
    #[serde(flatten)]
    tally: Tally,
}

#[derive(Debug, Serialize)]
struct Skipped {
    path: PathBuf,
    why: String,
}

/// Runs the command.
pub fn run(arguments: &WhereArguments, settings: &Settings) -> Outcome {
    let mut report = Report {
        files: Vec::new(),
        total: Tally::default(),
        unplaced: Unplaced::default(),
        shared_bytes: 0,
        skipped: Vec::new(),
    };
    // What the files have of each volume.
    let mut seen: BTreeMap<VolumeName, Vec<Range>> = BTreeMap::new();
    let mut atlases: BTreeMap<VolumeName, Atlas> = BTreeMap::new();
    let mut finder = FileFinder::new(settings);
    for given in &arguments.files {
        for path in files_of(given, &mut report.skipped)? {
            let alone = path == *given;
            let extents = match finder.find(&path, arguments.volume.as_ref()) {
                Ok(extents) => extents,
                Err(failure) if alone => return Err(failure),
                Err(failure) => {
                    report.skipped.push(Skipped { path, why: failure.message });
                    continue;
                }
            };
            let pieces = extents.pieces.iter().map(|piece| (piece.at, piece.length));
            seen.entry(extents.volume.clone()).or_default().extend(pieces);
            // A volume that does not answer any more is the end of it, not one file less.
            let file = look(&path, extents, arguments.ranges, settings, &mut atlases)?;
            report.total += file.tally;
            report.unplaced += file.unplaced;
            report.files.push(file);
        }
    }
    count_shared_once(&mut report, seen, &atlases)?;
    settings.output.show("where", &report, |report| text(report, arguments.ranges))?;
    Ok(if report.total.lost_bytes > 0 { Exit::Degraded } else { Exit::Done })
}

/// Makes the total one of what the files have together.
fn count_shared_once(
    report: &mut Report,
    seen: BTreeMap<VolumeName, Vec<Range>>,
    atlases: &BTreeMap<VolumeName, Atlas>,
) -> Result<(), Failure> {
    let bytes = |ranges: &[Range]| ranges.iter().map(|(_, length)| length).sum::<u64>();
    let mut whole = Vec::new();
    for (volume, ranges) in seen {
        let all = bytes(&ranges);
        let once = atlas::joined(ranges);
        report.shared_bytes += all - bytes(&once);
        whole.push((volume, once));
    }
    // Each file was asked about already: again only where it makes a difference.
    if report.shared_bytes > 0 {
        report.total = Tally::default();
        for (volume, ranges) in whole {
            atlases[&volume].tallies(&ranges)?.iter().for_each(|part| report.total += *part);
        }
    }
    Ok(())
}

/// The file, or the files below a directory on the same file system.
fn files_of(given: &Path, skipped: &mut Vec<Skipped>) -> Result<Vec<PathBuf>, Failure> {
    let facts = fs::metadata(given).on_path("look at", given)?;
    if !facts.is_dir() {
        return Ok(vec![given.to_owned()]);
    }
    let mut files = Vec::new();
    let mut directories = vec![given.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) => {
                skipped.push(Skipped { path: directory, why: error.to_string() });
                continue;
            }
        };
        for path in entries.flatten().map(|entry| entry.path()) {
            match fs::symlink_metadata(&path) {
                Ok(known) if known.dev() != facts.dev() => {}
                Ok(known) if known.is_dir() => directories.push(path),
                Ok(known) if known.is_file() && known.len() > 0 => files.push(path),
                Ok(_) => {}
                Err(error) => skipped.push(Skipped { path, why: error.to_string() }),
            }
        }
    }
    files.sort();
    Ok(files)
}

fn look(
    path: &Path,
    extents: Extents,
    shows_ranges: bool,
    settings: &Settings,
    atlases: &mut BTreeMap<VolumeName, Atlas>,
) -> Result<FileReport, Failure> {
    let Extents { volume, size_bytes, pieces, unplaced } = extents;
    if !atlases.contains_key(&volume) {
        let selection = selection::by_name(settings, &volume)?;
        atlases.insert(volume.clone(), Atlas::open(settings, &selection)?);
    }
    let ranges: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.at, piece.length)).collect();
    let tallies = atlases[&volume].tallies(&ranges)?;
    let mut tally = Tally::default();
    tallies.iter().for_each(|part| tally += *part);
    let ranges = pieces.iter().zip(tallies).map(|(piece, tally)| RangeReport {
        file_offset: piece.file_offset,
        volume_offset: piece.at,
        length: piece.length,
        tally,
    });
    let ranges = if shows_ranges { ranges.collect() } else { Vec::new() };
    let volume = volume.to_string();
    Ok(FileReport { path: path.to_owned(), volume, size_bytes, tally, unplaced, ranges })
}

fn text(report: &Report, ranges: bool) -> String {
    // Seldom there: a column only where one is needed.
    let reasons = [
        ("PENDING", report.unplaced.pending_bytes),
        ("INLINE", report.unplaced.inline_bytes),
        ("COMPRESSED", report.unplaced.compressed_bytes),
    ];
    let shown = reasons.map(|(_, bytes)| bytes > 0);
    let mut heads = vec![
        ("FILE", Align::Left),
        ("SIZE", Align::Right),
        ("FAST", Align::Right),
        ("LOG", Align::Right),
        ("SLOW", Align::Right),
        ("LOST", Align::Right),
    ];
    heads.extend(
        reasons
            .iter()
            .zip(shown)
            .filter(|(_, shown)| *shown)
            .map(|((head, _), _)| (*head, Align::Right)),
    );
    let mut table = Table::new(&heads);
    let bytes = |bytes: u64| if bytes == 0 { String::new() } else { human_bytes(bytes) };
    let cells = |name: String, size: u64, tally: &Tally, unplaced: &Unplaced| {
        let Tally { fast_bytes, log_bytes, slow_bytes, lost_bytes, .. } = *tally;
        let Unplaced { pending_bytes, inline_bytes, compressed_bytes } = *unplaced;
        let parts = [size, fast_bytes, log_bytes, slow_bytes, lost_bytes].map(bytes);
        let reasons = [pending_bytes, inline_bytes, compressed_bytes].map(bytes);
        let reasons = reasons.into_iter().zip(shown).filter(|(_, shown)| *shown);
        std::iter::once(name).chain(parts).chain(reasons.map(|(reason, _)| reason))
    };
    for file in report.files.iter().take(if ranges { usize::MAX } else { FILES_MAX }) {
        let name = file.path.display().to_string();
        table.row(cells(name, file.size_bytes, &file.tally, &file.unplaced));
        for range in &file.ranges {
            let name = format!("  {} at {}", range.file_offset, range.volume_offset);
            table.row(cells(name, range.length, &range.tally, &Unplaced::default()));
        }
    }
    let mut text = table.render();
    if !ranges && report.files.len() > FILES_MAX {
        let more = report.files.len() - FILES_MAX;
        text += &format!("and {more} more files; --json lists all\n");
    }
    for Skipped { path, why } in report.skipped.iter().take(FILES_MAX) {
        text += &format!("{}: {why}\n", path.display());
    }
    text += &format!("{}\n", report.total.words());
    if report.unplaced.bytes() > 0 {
        text += &format!("{}\n", report.unplaced.words());
    }
    if report.shared_bytes > 0 {
        let shared = human_bytes(report.shared_bytes);
        text += &format!(
            "{shared} that files share, or that were given twice, are counted once here\n"
        );
    }
    text
}
