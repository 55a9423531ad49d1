//! `bimetal attach`: the volume as a block device of this machine, through FUSE and loop or ublk.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use clap::Args;
use export::fuse::loop_device::{self, LoopFacts, LoopOptions};
use serde::{Deserialize, Serialize};

use crate::alone;
use crate::commands::detach;
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::selection::{Selection, VolumeArgument};
use crate::server::{Ready, ServerRecord};
use crate::settings::Settings;
use crate::volume_name::VolumeName;

/// Make a volume a block device of this machine and print its path
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal attach vol0                             (prints /dev/loop0)
  mkfs.ext4 $(bimetal attach vol0)
  bimetal attach --fast fast.img --slow slow.img
  bimetal attach vol0 --ublk                      (prints /dev/ublkb0)

Starts a server in the background that mounts the volume as a file, and makes a loop device of it.
With --ublk it is the kernel's ublk driver instead, which is faster, and whose device outlives a server
that was killed. Needs root. Where FUSE or loop is missing use 'bimetal serve' and NBD. Undone by 'bimetal detach'.
Exit code 3: the device is there, of a cache that goes on without its fast drive.")]
pub struct AttachArguments {
    #[command(flatten)]
    volume: VolumeArgument,
    /// Refuse writes
    #[arg(long)]
    read_only: bool,
    /// When a drive is gone, attach what the other one has, read-only
    #[arg(long)]
    degraded: bool,
    /// When the volume is damaged, attach what is certain, with errors for the rest, read-only
    #[arg(long)]
    rescue: bool,
    /// Through the kernel's ublk driver; takes over what a killed server has left
    #[arg(long, conflicts_with = "sector")]
    ublk: bool,
    /// Block size of the device: 512 (unless told otherwise), or 4096 to spare the volume rewriting
    /// parts of blocks
    #[arg(long, value_name = "BYTES", value_parser = ["512", "4096"])]
    sector: Option<String>,
}

#[derive(Debug, Serialize)]
struct Attached {
    name: String,
    device: PathBuf,
    /// The volume as a file, if the device is one of it.
    file: Option<PathBuf>,
    direct_io: bool,
    read_only: bool,
    sector_bytes: u32,
    /// It is a cache that goes on with its slow drive.
    without_fast_drive: bool,
}

impl AttachArguments {
    fn takes_read_only(&self) -> bool {
        self.read_only || self.degraded || self.rescue
    }
}

/// Runs the command.
pub fn run(arguments: &AttachArguments, settings: &Settings) -> Outcome {
    let selection = arguments.volume.select(settings)?;
    let name = &selection.name;
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::failed("a block device can only be made by root").hint(format!(
            "sudo bimetal attach {name}; or, without root: bimetal serve {name} --fuse DIR"
        )));
    }
    if arguments.ublk {
        return attach_ublk(arguments, settings, &selection);
    }
    let (file, started) = match ServerRecord::settled(settings, &selection)? {
        Some(server) => (file_of(&server, &selection)?, false),
        None => {
            detach::clear_remains(settings, name)?;
            let file = start_server(arguments, settings, &selection)?.fuse_file;
            (file.ok_or_else(|| Failure::failed("the server made no file"))?, true)
        }
    };
    let device = match make_device(arguments, &selection, &file) {
        Ok(device) => device,
        Err(failure) => {
            if started && let Some(server) = ServerRecord::alive(settings, name)? {
                detach::stop_server(settings, name, server.pid)?;
            }
            return Err(failure);
        }
    };
    show(settings, &selection, &device)
}

/// Prints the device, and says beside it what is not well.
fn show(settings: &Settings, selection: &Selection, attached: &Attached) -> Outcome {
    settings.output.show("attach", attached, |attached| attached.device.display().to_string())?;
    if !attached.without_fast_drive {
        return Ok(Exit::Done);
    }
    eprintln!("bimetal: {}", alone::warning(selection));
    Ok(Exit::Degraded)
}

/// The device of the kernel's ublk driver, of a server that runs or of a new one.
fn attach_ublk(arguments: &AttachArguments, settings: &Settings, selection: &Selection) -> Outcome {
    let name = &selection.name;
    let device = match ServerRecord::settled(settings, selection)? {
        Some(ServerRecord { ublk: Some(device), .. }) => device,
        Some(server) => {
            return Err(Failure::refused(format!(
                "volume '{name}' is served by {server}, but not through ublk"
            ))
            .hint("stop that server first, or serve the volume with --ublk there"));
        }
        None => {
            detach::clear_remains(settings, name)?;
            let device = start_server(arguments, settings, selection)?.ublk;
            device.ok_or_else(|| Failure::failed("the server made no device"))?
        }
    };
    let read_only = std::fs::read_to_string(format!(
        "/sys/class/block/{}/ro",
        device.file_name().unwrap_or_default().to_string_lossy()
    ))
    .is_ok_and(|text| text.trim() == "1");
    if !read_only && arguments.read_only || read_only && !arguments.takes_read_only() {
        let mode = if read_only { "read-only" } else { "read-write" };
        let device = device.display();
        return Err(Failure::refused(format!(
            "volume '{name}' is attached already, {mode}, as {device}"
        ))
        .hint(format!("to attach it otherwise: 'bimetal detach {name}' first")));
    }
    let attached = Attached {
        name: name.to_string(),
        device,
        file: None,
        direct_io: true,
        read_only,
        sector_bytes: 512,
        without_fast_drive: alone::is_alone(selection),
    };
    show(settings, selection, &attached)
}

/// The file of a server that runs already.
fn file_of(server: &ServerRecord, selection: &Selection) -> Result<PathBuf, Failure> {
    let name = &selection.name;
    let file = server.fuse_file.clone().ok_or_else(|| {
        Failure::refused(format!("volume '{name}' is served by {server}, but not as a file"))
            .hint("stop that server first, or serve the volume with --fuse DIR there")
    })?;
    if !file.exists() {
        let lost = format!(
            "the file of volume '{name}' is not mounted any more, and somebody holds it open"
        );
        return Err(Failure::failed(lost).hint(
            "its server waits for them: 'losetup -a' shows a loop device over it, and 'losetup -d DEVICE' lets it go",
        ));
    }
    Ok(file)
}

/// The loop device of the file: the one that is there, or a new one.
fn make_device(
    arguments: &AttachArguments,
    selection: &Selection,
    file: &Path,
) -> Result<Attached, Failure> {
    let name = &selection.name;
    let without_fast_drive = alone::is_alone(selection);
    let attached = |device: PathBuf, facts: LoopFacts| Attached {
        name: name.to_string(),
        device,
        file: Some(file.to_owned()),
        direct_io: facts.direct_io,
        read_only: facts.read_only,
        sector_bytes: facts.sector_bytes,
        without_fast_drive,
    };
    let there = loop_device::find_by_backing(file)?.into_iter();
    if let Some((device, facts)) =
        there.map(|device| (loop_device::facts(&device), device)).find_map(|(f, d)| Some((d, f?)))
    {
        judge_device(arguments, name, &device, facts)?;
        return Ok(attached(device, facts));
    }
    let served_read_only = is_read_only(file);
    if served_read_only && !arguments.takes_read_only() {
        return Err(Failure::refused(format!("volume '{name}' is served read-only"))
            .hint("--read-only attaches it like that; or end that server first"));
    }
    let options = LoopOptions {
        sector_bytes: if arguments.sector.as_deref() == Some("4096") { 4096 } else { 512 },
        read_only: arguments.read_only || served_read_only,
        partitions: true,
    };
    let device = loop_device::attach(file, options)?;
    if !device.direct_io {
        eprintln!(
            "bimetal: {} caches the volume once more (the kernel refused direct I/O)",
            device.path.display()
        );
    }
    let LoopOptions { sector_bytes, read_only, .. } = options;
    let facts = LoopFacts { sector_bytes, read_only, direct_io: device.direct_io };
    Ok(attached(device.path, facts))
}

/// Refuses a device that is there but not as it was asked for: whoever asks for a read-only device
/// must not be given one that takes writes.
fn judge_device(
    arguments: &AttachArguments,
    name: &VolumeName,
    device: &Path,
    facts: LoopFacts,
) -> Result<(), Failure> {
    let sector = facts.sector_bytes.to_string();
    let other_sector = arguments.sector.as_ref().is_some_and(|asked| *asked != sector);
    // Whoever asked for --degraded or --rescue takes what there is.
    let takes_both = arguments.degraded || arguments.rescue;
    let fits = takes_both || facts.read_only == arguments.read_only;
    if fits && !other_sector {
        return Ok(());
    }
    let mode = if facts.read_only { "read-only" } else { "read-write" };
    Err(Failure::refused(format!(
        "volume '{name}' is attached already, {mode} with sectors of {sector} bytes, as {}",
        device.display()
    ))
    .hint(format!("to attach it otherwise: 'bimetal detach {name}' first")))
}

/// Whether the server serves the file read-only, as it does while a drive is gone.
fn is_read_only(file: &Path) -> bool {
    let opened = OpenOptions::new().write(true).open(file);
    opened.is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
}

/// Starts a server in the background and waits until it is ready; gives what it says then.
fn start_server(
    arguments: &AttachArguments,
    settings: &Settings,
    selection: &Selection,
) -> Result<Ready, Failure> {
    settings.make_runtime_dir()?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::failed(format!("cannot find this program: {error}")))?;
    let log_path = settings.log_file(&selection.name);
    let log = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&log_path)
        .on_path("open", &log_path)?;
    let mut command = Command::new(program);
    command.arg("--json").arg("--config-dir").arg(&settings.config_dir).arg("serve");
    // By name where the volume has one here: then its identity is verified against its file.
    match &arguments.volume.name {
        Some(name) => command.arg(name.as_str()),
        None => command.arg("--fast").arg(&selection.fast).arg("--slow").arg(&selection.slow),
    };
    command.arg("--background");
    match arguments.ublk {
        true => command.arg("--ublk"),
        false => command.arg("--fuse").arg(settings.mount_dir(&selection.name)),
    };
    if arguments.read_only {
        command.arg("--read-only");
    }
    if arguments.degraded {
        command.arg("--degraded");
    }
    if arguments.rescue {
        command.arg("--rescue");
    }
    // The server works from the root directory, so that it keeps no file system busy.
    let mut child = command
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| Failure::failed(format!("cannot start the server: {error}")))?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout)
            .read_line(&mut line)
            .map_err(|error| Failure::failed(format!("cannot hear the server: {error}")))?;
    }
    match serde_json::from_str(&line) {
        Ok(Answer { ready: Some(ready), .. }) => Ok(ready),
        Ok(Answer { error: Some(error), .. }) => {
            // It ends by itself; waiting keeps it from staying as a zombie.
            let _ = child.wait();
            let exit = Exit::from_number(error.exit_code);
            Err(Failure { exit, message: error.message, hint: error.hint })
        }
        _ => {
            let ended = child.wait().map_or(String::new(), |status| format!(" ({status})"));
            Err(Failure::failed(format!("the server ended before it was ready{ended}"))
                .hint(format!("it may have said why in {}", log_path.display())))
        }
    }
}

/// What a background server says: that it is ready, or why it is not.
#[derive(Debug, Deserialize)]
struct Answer {
    #[serde(flatten)]
    ready: Option<Ready>,
    error: Option<AnswerError>,
}

#[derive(Debug, Deserialize)]
struct AnswerError {
    exit_code: u8,
    message: String,
    hint: Option<String>,
}
