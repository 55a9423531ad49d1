//! `bimetal lost`: what of a volume cannot be read because a drive is gone or it is damaged: ranges,
//! and files.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use engine::{Engine, OpenOptions};
use export::control::ControlRequest;
use io::units::human_bytes;
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use crate::failure::{Exit, Failure, Outcome};
use crate::loss_status::{LossStatus, LostPart, LostRange};
use crate::lost_files::{self, LostFiles};
use crate::selection::{Selection, VolumeArgument};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::survey;

/// Ranges shown as text; `--json` has all.
const LINES_MAX: usize = 40;
/// Volume looked at without letting others run, in bytes.
const STEP_BYTES: u64 = 1 << 30;
/// Ranges in one answer of a server, about.
const RANGES_PER_PART: usize = 4096;

/// List what cannot be read because a drive is gone or the volume is damaged
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lost vol0
  bimetal --json lost vol0 | jq '.ranges[]'
  bimetal lost vol0 --files /mnt/vol0         (where its file system is mounted, read-only)

Asks the server if the volume is served, otherwise reads the drives, or the one that is left; nothing
is written. --files takes the mount point of an ext4 or XFS file system on the volume (serve --degraded
or --rescue, then mount -o ro,noload or -o ro,norecovery), or a file or device with an ext4 file system: the served
file, the attached device, an NBD device. Ends with exit code 3 when something is lost.")]
pub struct LostArguments {
    #[command(flatten)]
    volume: VolumeArgument,
    /// Also list the files that are hit: a mount point, or a file or device with an ext4 file system
    #[arg(long, value_name = "MOUNT_OR_IMAGE")]
    files: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Lost {
    name: String,
    loss: Option<LossStatus>,
    alone: bool,
    ranges: Vec<LostRange>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<LostFiles>,
}

/// Runs the command.
pub fn run(arguments: &LostArguments, settings: &Settings) -> Outcome {
    let selection = arguments.volume.select(settings)?;
    let served = ServerRecord::serving(settings, &selection)?.is_some_and(|server| server.ready);
    let LostPart { loss, alone, ranges, .. } =
        if served { ask_server(settings, &selection)? } else { read_drives(&selection)? };
    let files = match &arguments.files {
        Some(place) => Some(lost_files::find(place, &selection.name, &ranges, settings)?),
        None => None,
    };
    let lost = Lost { name: selection.name.to_string(), loss, alone, ranges, files };
    settings.output.show("lost", &lost, text)?;
    let whole = lost.ranges.is_empty() && lost.loss.is_none();
    Ok(if whole { Exit::Done } else { Exit::Degraded })
}

fn ask_server(settings: &Settings, selection: &Selection) -> Result<LostPart, Failure> {
    let socket = settings.control_socket(&selection.name);
    whole(|at| {
        let value = survey::ask(&socket, &ControlRequest::new("lost").with("at", at))?;
        serde_json::from_value(value).map_err(|error| {
            Failure::failed(format!("the server gave an answer of another version: {error}"))
        })
    })
}

fn read_drives(selection: &Selection) -> Result<LostPart, Failure> {
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let members = selection.open(&kernel, Access::ReadOnly)?;
    let options =
        OpenOptions { read_only: true, degraded: true, rescue: true, ..OpenOptions::default() };
    let opened = io.block_on(Engine::open_members(&io, members, options));
    let found =
        opened.map_err(Failure::failed).and_then(|engine| whole(|at| Ok(part(&engine, at))));
    io.drop_tasks();
    found
}

/// All parts in one.
fn whole(mut part: impl FnMut(u64) -> Result<LostPart, Failure>) -> Result<LostPart, Failure> {
    let mut all = part(0)?;
    let mut ranges = Vec::new();
    loop {
        all.ranges.drain(..).for_each(|range| join(&mut ranges, range));
        match all.next {
            Some(next) => all = part(next)?,
            None => return Ok(LostPart { ranges, ..all }),
        }
    }
}

/// The part of the list that begins at `at`.
pub fn part(engine: &Engine, at: u64) -> LostPart {
    let status = engine.status();
    let end = status.geometry.volume_bytes;
    let mut ranges: Vec<LostRange> = Vec::new();
    let mut next = at;
    while next < end && ranges.len() < RANGES_PER_PART {
        let step = engine.lost_ranges(next, STEP_BYTES);
        step.into_iter().for_each(|range| join(&mut ranges, range.into()));
        next = next.saturating_add(STEP_BYTES);
    }
    LostPart {
        loss: status.loss.map(LossStatus::from),
        alone: status.alone,
        ranges,
        next: (next < end).then_some(next),
    }
}

fn join(ranges: &mut Vec<LostRange>, range: LostRange) {
    match ranges.last_mut() {
        Some(last) if last.cause == range.cause && last.at + last.length == range.at => {
            last.length += range.length;
        }
        _ => ranges.push(range),
    }
}

fn text(lost: &Lost) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes any text");
    match lost.loss.as_ref().and_then(LossStatus::gone) {
        None if lost.alone => line(format!(
            "volume '{}': it goes on without its fast drive, with the slow one, which has everything",
            lost.name
        )),
        None => line(format!("volume '{}': both drives are here", lost.name)),
        Some((tier, why)) => {
            line(format!("volume '{}': the {tier} drive is gone: {why}", lost.name))
        }
    }
    lost.loss.iter().flat_map(|loss| &loss.damage).for_each(|damage| line(damage.clone()));
    lost.loss.iter().flat_map(LossStatus::lines).for_each(&mut line);
    for range in lost.ranges.iter().take(LINES_MAX) {
        let LostRange { at, length, cause } = range;
        line(format!("  {at} + {length} ({}): {}", human_bytes(*length), cause.words()));
    }
    if lost.ranges.len() > LINES_MAX {
        line(format!("  and {} more ranges; --json lists all", lost.ranges.len() - LINES_MAX));
    }
    if let Some(files) = &lost.files {
        files.lines().into_iter().for_each(&mut line);
    }
    if lost.ranges.is_empty() {
        line("nothing is lost".to_owned());
    }
    text
}
