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
use crate::interrupt::Interrupt;
use crate::progress;
use crate::selection;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;
use crate::tally::Tally;
use crate::unplaced::Unplaced;
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
slow drive's time: it is done as its other work allows. Exit code 1: not all of it came, or its place is not
known. Ctrl-C: no more is asked for; what was asked for last, at most 256M, may still come.")]
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
    /// Bytes that are data on the volume.
    data_bytes: u64,
    /// Bytes that nothing could be done for.
    #[serde(flatten)]
    unplaced: Unplaced,
    /// By Ctrl-C.
    interrupted: bool,
}

impl FileReport {
    /// Whether all of it that is data is on the fast drive.
    fn is_warm(&self) -> bool {
        self.slow_bytes == 0 && self.unplaced.bytes() == 0 && !self.interrupted
    }
}

/// Runs the command.
pub fn run(arguments: &WarmArguments, settings: &Settings) -> Outcome {
    let mut files = Vec::new();
    let mut finder = FileFinder::new(settings);
    let interrupt = Interrupt::listen()?;
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
            interrupt: &interrupt,
        };
        let ranges: Vec<(u64, u64)> =
            extents.pieces.iter().flat_map(|piece| cut(piece.at, piece.length)).collect();
        let warmed = warming.warm(&ranges)?;
        files.push(FileReport {
            path: path.clone(),
            volume: name.to_string(),
            moved_bytes: warmed.moved_bytes,
            slow_bytes: warmed.now.slow_bytes,
            data_bytes: warmed.now.data_bytes(),
            unplaced: extents.unplaced,
            interrupted: interrupt.is_asked(),
        });
        if interrupt.is_asked() {
            break;
        }
    }
    let report = Report { files };
    settings.output.show("warm", &report, text)?;
    Ok(if report.files.iter().all(FileReport::is_warm) { Exit::Done } else { Exit::Failed })
}

fn cut(at: u64, length: u64) -> impl Iterator<Item = (u64, u64)> {
    (0..length.div_ceil(PIECE_BYTES)).map(move |piece| {
        let done = piece * PIECE_BYTES;
        (at + done, PIECE_BYTES.min(length - done))
    })
}

struct Warming<'a> {
    atlas: Atlas,
    socket: PathBuf,
    interrupt: &'a Interrupt,
}

/// What became of it.
struct Warmed {
    moved_bytes: u64,
    now: Tally,
}

impl Warming<'_> {
    fn warm(&self, ranges: &[(u64, u64)]) -> Result<Warmed, Failure> {
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
        let mut now = Tally::default();
        self.atlas.tallies(ranges)?.iter().for_each(|tally| now += *tally);
        Ok(Warmed { moved_bytes: wanted.saturating_sub(now.slow_bytes), now })
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
        while left > 0 && progressed.elapsed() < PATIENCE && !self.interrupt.is_asked() {
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
    report.files.iter().map(line).collect()
}

fn line(file: &FileReport) -> String {
    let moved = human_bytes(file.moved_bytes);
    let mut parts = Vec::new();
    if file.interrupted {
        let slow = human_bytes(file.slow_bytes);
        parts.push(format!(
            "ended by Ctrl-C: {moved} moved, {slow} on the slow drive; of that what was asked for last, at most \
             {}, may still come when clients rest",
            human_bytes(WINDOW_BYTES)
        ));
    } else if file.slow_bytes > 0 {
        parts.push(format!(
            "{moved} moved, {} stayed on the slow drive: the fast drive has no room for it, or what is there is \
             hotter",
            human_bytes(file.slow_bytes)
        ));
    } else if file.data_bytes > 0 {
        parts.push(match file.unplaced.bytes() {
            0 => format!("warm ({moved} moved)"),
            _ => format!("{} of it warm ({moved} moved)", human_bytes(file.data_bytes)),
        });
    }
    match file.unplaced.bytes() {
        0 if parts.is_empty() => parts.push("nothing to warm: it is empty, or a hole".to_owned()),
        0 => {}
        _ => {
            let why = file.unplaced.words();
            let hint = file.unplaced.hint(&file.path);
            parts.push(format!(
                "not warmed: {why}{}",
                hint.map_or_else(String::new, |hint| format!(" ({hint})"))
            ));
        }
    }
    format!("{}: {}\n", file.path.display(), parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_warmed_is_not_called_warm() {
        let report = |data_bytes, slow_bytes, compressed_bytes, interrupted| FileReport {
            path: "film".into(),
            volume: "v".to_owned(),
            moved_bytes: 4096,
            slow_bytes,
            data_bytes,
            unplaced: Unplaced { compressed_bytes, ..Unplaced::default() },
            interrupted,
        };
        let said = |data, slow, compressed, interrupted| {
            let file = report(data, slow, compressed, interrupted);
            (file.is_warm(), line(&file))
        };
        assert_eq!(said(8192, 0, 0, false), (true, "film: warm (4K moved)\n".to_owned()));
        assert_eq!(said(0, 0, 0, false).1, "film: nothing to warm: it is empty, or a hole\n");
        for (file, word) in [
            (said(8192, 4096, 0, false), "4K stayed on the slow drive"),
            (said(0, 0, 8192, false), "film: not warmed: 8K is compressed"),
            (said(8192, 0, 8192, false), "8K of it warm (4K moved); not warmed: 8K is compressed"),
            (said(8192, 4096, 0, true), "ended by Ctrl-C: 4K moved, 4K on the slow drive"),
        ] {
            assert!(!file.0 && file.1.contains(word), "{file:?}");
        }
    }
}
