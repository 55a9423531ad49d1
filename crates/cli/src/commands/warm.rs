//! `bimetal warm`: brings files to the fast drive now, and says when they are there.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use export::control::ControlRequest;
use io::units::{MIB, human_bytes};
use serde::Serialize;

use crate::atlas::Atlas;
use crate::failure::{Exit, Failure, Outcome};
use crate::file_extents::FileFinder;
use crate::progress;
use crate::selection;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::tally::Tally;
use crate::volume_name::VolumeName;

/// What is asked for at once: as much as a server keeps in mind.
const WINDOW_BYTES: u64 = 256 * MIB;
/// Ranges are asked about in pieces of this size.
const PIECE_BYTES: u64 = MIB;
/// How often it is looked whether it has come.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Nothing has come for so long: the fast drive has no room for it, or others keep the drives busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// Nothing has come for so long: it is asked for again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Bring files to the fast drive, and wait until they are there
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal warm /mnt/vm.qcow2
  bimetal --json warm /mnt/projects/a /mnt/projects/b

Files are found as by 'bimetal where'. What is warm may be displaced by what is hotter. Moving takes the
slow drive's time: it is done as its other work allows. Exit code 1: not all of it came.")]
pub struct WarmArguments {
    /// Files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The volume they are on, where that cannot be found out
    #[arg(long, value_name = "NAME")]
    volume: Option<VolumeName>,
}

#[derive(Debug, Serialize)]
struct Report {
    files: Vec<FileReport>,
}

#[derive(Debug, Serialize)]
struct FileReport {
    path: PathBuf,
    volume: String,
    /// Bytes that came.
    moved_bytes: u64,
    /// Bytes that are still on the slow drive.
    slow_bytes: u64,
}

/// Runs the command.
pub fn run(arguments: &WarmArguments, settings: &Settings) -> Outcome {
    let mut files = Vec::new();
    let mut finder = FileFinder::new(settings);
    for path in &arguments.files {
        let extents = finder.find(path, arguments.volume.as_ref())?;
        let name = &extents.volume;
        ServerRecord::alive(settings, name)?.filter(|server| server.ready).ok_or_else(|| {
            Failure::failed(format!("volume '{name}' is not served"))
                .hint(format!("bimetal attach {name}"))
        })?;
        let selection = selection::by_name(settings, name)?;
        let warming = Warming {
            atlas: Atlas::open(settings, &selection)?,
            socket: settings.control_socket(name),
        };
        let ranges: Vec<(u64, u64)> =
            extents.pieces.iter().flat_map(|piece| cut(piece.at, piece.length)).collect();
        let (moved_bytes, slow_bytes) = warming.warm(&ranges)?;
        let volume = name.to_string();
        files.push(FileReport { path: path.clone(), volume, moved_bytes, slow_bytes });
    }
    let report = Report { files };
    settings.output.show("warm", &report, text)?;
    let whole = report.files.iter().all(|file| file.slow_bytes == 0);
    Ok(if whole { Exit::Done } else { Exit::Failed })
}

fn cut(at: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..length.div_ceil(PIECE_BYTES)).map(move |piece| {
        let done = piece * PIECE_BYTES;
        (at + done, PIECE_BYTES.min(length - done))
    })
}

struct Warming {
    atlas: Atlas,
    socket: PathBuf,
}

impl Warming {
    /// Gives the bytes that came, and those that did not.
    fn warm(&self, ranges: &[(u64, u64)]) -> Result<(u64, u64), Failure> {
        let slow: Vec<((u64, u64), u64)> = ranges
            .iter()
            .copied()
            .zip(self.atlas.tallies(ranges)?.iter().map(|tally| tally.slow_bytes))
            .filter(|(_, slow_bytes)| *slow_bytes > 0)
            .collect();
        let wanted: u64 = slow.iter().map(|(_, bytes)| bytes).sum();
        let bar = progress::bar("warming");
        bar.set_length(wanted);
        for window in slow.chunks((WINDOW_BYTES / PIECE_BYTES) as usize) {
            let ranges: Vec<(u64, u64)> = window.iter().map(|(range, _)| *range).collect();
            let expected: u64 = window.iter().map(|(_, bytes)| bytes).sum();
            let still = self.bring(&ranges, expected, &|moved| bar.inc(moved))?;
            if still > 0 {
                // What comes after it would not come either, or instead of what has.
                break;
            }
        }
        bar.finish_and_clear();
        // What came first may have been displaced by what came last.
        let left = slow_bytes(&self.atlas.tallies(ranges)?);
        Ok((wanted - left.min(wanted), left))
    }

    /// Asks for ranges until they are there or nothing comes any more; gives what did not come.
    fn bring(
        &self,
        ranges: &[(u64, u64)],
        expected: u64,
        moved: &dyn Fn(u64),
    ) -> Result<u64, Failure> {
        let mut left = expected;
        let mut progressed = Instant::now();
        let mut asked: Option<Instant> = None;
        while left > 0 && progressed.elapsed() < PATIENCE {
            // Candidates may have been displaced by others. Not often: each time counts as a use.
            if asked.is_none_or(|asked| asked.max(progressed).elapsed() > ASK_AGAIN) {
                asked = Some(Instant::now());
                let ranges = serde_json::to_value(ranges).map_err(Failure::failed)?;
                survey::ask(&self.socket, &ControlRequest::new("warm").with("ranges", ranges))?;
            }
            thread::sleep(LOOK_EVERY);
            let now = slow_bytes(&self.atlas.tallies(ranges)?);
            // What comes and goes, pieces of one window in each other's place, is no progress.
            if now < left {
                moved(left - now);
                progressed = Instant::now();
                left = now;
            }
        }
        Ok(left)
    }
}

fn slow_bytes(tallies: &[Tally]) -> u64 {
    tallies.iter().map(|tally| tally.slow_bytes).sum()
}

fn text(report: &Report) -> String {
    let line = |file: &FileReport| {
        let path = file.path.display();
        let moved = human_bytes(file.moved_bytes);
        match file.slow_bytes {
            0 => format!("{path}: warm ({moved} moved)\n"),
            slow => format!(
                "{path}: {moved} moved, {} stayed on the slow drive: the fast drive has no room for it, or \
                 what is there is hotter\n",
                human_bytes(slow)
            ),
        }
    };
    report.files.iter().map(line).collect()
}
