//! `bimetal create`: makes a volume of two drives.
//!
//! Looks at everything first and touches nothing until both drives have passed; what it made
//! itself it takes away again when it fails.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use engine::{CacheMode, Class, CreateOptions, FlushMode, Geometry, Tier};
use io::units::{human_bytes, parse_bytes};
use io::{Device, DeviceInfo};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use crate::blank_file;
use crate::drive::{Drive, DriveArgument, DriveKind};
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::holdings::{Holdings, membership};
use crate::in_use;
use crate::progress;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::switch::Switch;
use crate::table::{Align, Table};
use crate::volume_file::{self, VolumeFile};
use crate::volume_name::VolumeName;

/// Make a volume of a fast and a slow drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal create vol0 --fast /dev/nvme0n1p3 --slow /dev/sdb
  bimetal create demo --fast fast.img:1G --slow slow.img:8G    (makes sparse files)
  bimetal create vol0 --fast /dev/nvme0n1p3 --slow /dev/sdb --class cache
  bimetal create vol0 --fast /dev/nvme0n1p3 --slow /dev/sdb --dry-run

A drive that is mounted or otherwise in use is always refused. A drive that holds a file system,
a partition table or another volume is refused (exit code 4) unless --force is given.")]
pub struct CreateArguments {
    /// Name of the volume
    name: VolumeName,
    /// The fast drive: a block device, a file, or PATH:SIZE to make a sparse file
    #[arg(long, value_name = "DEV")]
    fast: DriveArgument,
    /// The slow drive, likewise
    #[arg(long, value_name = "DEV")]
    slow: DriveArgument,
    /// What losing a drive means: in 'span' the capacities add up; in 'cache' everything has its place
    /// on the slow drive, and the fast one holds copies
    #[arg(long, value_enum, default_value = "span")]
    class: ClassArgument,
    /// Class cache: 'writethrough' (a flush has everything on the slow drive, so that losing the fast
    /// one loses nothing; the default), 'writearound' (the same, and the fast drive holds what was
    /// read, not what was written) or 'writeback' (a flush costs no more than the fast drive's)
    #[arg(long, value_name = "MODE")]
    mode: Option<CacheMode>,
    /// Unit of placement: a power of two from 64K to 4M
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "128K")]
    extent: u64,
    /// Size of the landing log [default: 1/32 of the fast drive, 4M to 4G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    landing: Option<u64>,
    /// What a flush promises: strict, or deferred=MS[,BYTES] to lose up to so much at a power cut
    #[arg(long, value_name = "MODE", default_value = "strict")]
    durability: FlushMode,
    /// Class span: whether what goes up keeps its slot on the slow drive while there is room, so that
    /// losing the fast drive loses less
    #[arg(long, value_enum, default_value = "off")]
    inclusion: Switch,
    /// Show what would be done and touch nothing
    #[arg(long)]
    dry_run: bool,
    /// Overwrite what the drives hold, and an existing volume file of this name
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClassArgument {
    Span,
    Cache,
}

/// What is, or would be, created.
#[derive(Debug, Serialize)]
struct Creation {
    name: VolumeName,
    /// `None` in a dry run.
    volume: Option<String>,
    dry_run: bool,
    class: &'static str,
    /// Of class cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    size_bytes: u64,
    extent_bytes: u64,
    landing_bytes: u64,
    /// RAM for the map and heat when the volume is full.
    memory_bytes: u64,
    /// At most this much more RAM for the log's index.
    log_memory_bytes_max: u64,
    drives: CreationDrives,
    warnings: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CreationDrives {
    fast: CreationDrive,
    slow: CreationDrive,
}

#[derive(Debug, Serialize)]
struct CreationDrive {
    path: PathBuf,
    size_bytes: u64,
    /// Bytes that hold data of the volume.
    data_bytes: u64,
    /// The file was, or would be, made.
    made: bool,
}

/// A drive that has passed the checks.
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    size_bytes: u64,
    /// The file must be made.
    make: bool,
    /// The file must be emptied and brought to its size.
    empty: bool,
    /// What it holds, which is to be wiped.
    holdings: Holdings,
    drive: Option<Drive>,
}

/// Runs the command.
pub fn run(arguments: &CreateArguments, settings: &Settings) -> Outcome {
    // Before the drives: a directory that cannot be made is the commonest failure. And two that
    // create at once would each find the drives and the name free.
    let _lock = match arguments.dry_run {
        true => None,
        false => Some(settings.lock_config_dir()?),
    };
    check_name(arguments, settings)?;
    let fast = examine(Tier::Fast, &arguments.fast, arguments.force)?;
    let slow = examine(Tier::Slow, &arguments.slow, arguments.force)?;
    let warnings = compare(&fast, &slow)?;
    let class = match (arguments.class, arguments.mode) {
        (ClassArgument::Span, Some(_)) => {
            return Err(Failure::usage("--mode is for --class cache; this is class span"));
        }
        (ClassArgument::Span, None) => Class::Span,
        (ClassArgument::Cache, _) => Class::Cache,
    };
    let options = CreateOptions {
        name: arguments.name.to_string(),
        class,
        extent_bytes: arguments.extent,
        landing_bytes: arguments.landing,
        flush_mode: arguments.durability,
        cache_mode: arguments.mode.unwrap_or_default(),
        tuning: engine::Tuning {
            inclusion: arguments.inclusion == Switch::On,
            ..engine::Tuning::default()
        },
    };
    let geometry = engine::plan(&fast.info(), &slow.info(), &options)
        .map_err(|error| Failure::usage(error.to_string()))?;
    let mut creation = describe(arguments, &geometry, &fast, &slow, warnings);
    if !arguments.dry_run {
        creation.volume = Some(carry_out(arguments, settings, options, &fast, &slow)?);
    }
    settings.output.show("create", &creation, text)?;
    Ok(Exit::Done)
}

fn check_name(arguments: &CreateArguments, settings: &Settings) -> Result<(), Failure> {
    let name = &arguments.name;
    // Now, and not when it is served the first time.
    settings.verify_socket_paths(name)?;
    if let Some(server) = ServerRecord::alive(settings, name)? {
        return Err(Failure::refused(format!("volume '{name}' is served by {server}"))
            .hint(format!("stop it first, or choose another name than '{name}'")));
    }
    let path = volume_file::path_of(&settings.config_dir, name);
    if path.exists() && !arguments.force {
        return Err(Failure::refused(format!("volume '{name}' exists: {}", path.display()))
            .hint("choose another name, 'bimetal destroy' it, or overwrite it with --force"));
    }
    Ok(())
}

/// Looks at one drive and refuses what must not be overwritten.
pub(super) fn examine(
    tier: Tier,
    argument: &DriveArgument,
    force: bool,
) -> Result<Candidate, Failure> {
    let path = &argument.path;
    if !path.exists() {
        let Some(size_bytes) = argument.create_bytes else {
            return Err(Failure::failed(format!("there is no drive at {}", path.display()))
                .hint(format!("to make a sparse file there, say how big: {}:1G", path.display())));
        };
        return Ok(Candidate {
            path: resolved(path)?,
            size_bytes,
            make: true,
            empty: false,
            holdings: Holdings::default(),
            drive: None,
        });
    }
    let mut drive = match (Drive::look(path), argument.create_bytes) {
        // An empty file holds nothing that a size could hurt.
        (Err(_), Some(size_bytes))
            if path.metadata().is_ok_and(|m| m.is_file() && m.len() == 0) =>
        {
            return Ok(Candidate {
                path: path.canonicalize().on_path("find", path)?,
                size_bytes,
                make: false,
                empty: true,
                holdings: Holdings::default(),
                drive: None,
            });
        }
        (Err(failure), None) if path.metadata().is_ok_and(|m| m.is_file() && m.len() == 0) => {
            return Err(failure.hint(format!("say how big it is to be: {}:1G", path.display())));
        }
        (drive, _) => drive?,
    };
    let mut holdings = Holdings::look(&drive)?;
    let mut empty = false;
    if let Some(size_bytes) = argument.create_bytes {
        if drive.kind != DriveKind::File {
            return Err(Failure::usage(format!(
                "{} is a block device: it has its size, and cannot be made with another",
                path.display()
            )));
        }
        if size_bytes != drive.size_bytes {
            let found_bytes = drive.size_bytes;
            holdings.words.push(format!("{found_bytes} bytes, and not {size_bytes}"));
        } else {
            holdings.look_for_data(&drive.path)?;
        }
        empty = !holdings.words.is_empty();
        drive.size_bytes = size_bytes;
    }
    if !holdings.words.is_empty() && !force {
        let held = holdings.words.join("; ");
        let refusal = format!("the {tier} drive {} holds {held}", path.display());
        return Err(Failure::refused(refusal).hint("--force overwrites it; what it holds is lost"));
    }
    Ok(Candidate {
        path: drive.path.clone(),
        size_bytes: drive.size_bytes,
        make: false,
        empty,
        holdings,
        drive: Some(drive),
    })
}

/// The one path of a file that is to be made: the same file by another way is the same drive.
fn resolved(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).on_path("find", path)?;
    let dir = path.parent().and_then(|dir| dir.canonicalize().ok());
    Ok(dir.zip(path.file_name()).map_or_else(|| path.clone(), |(dir, name)| dir.join(name)))
}

/// Refuses drives that cannot go together, and says what is unwise.
pub(super) fn compare(fast: &Candidate, slow: &Candidate) -> Result<Vec<String>, Failure> {
    let refuse = |why: String| {
        Err(Failure::refused(why)
            .hint("a volume needs two different drives; no flag overrides this"))
    };
    let mut warnings = Vec::new();
    match (&fast.drive, &slow.drive) {
        (Some(one), Some(two)) => {
            if let Some(overlap) = one.overlap(two) {
                return refuse(overlap);
            }
            if one.shares_disk(two) {
                warnings.push(
                    "both drives are partitions of one disk: nothing will be faster".to_owned(),
                );
            }
        }
        _ if fast.path == slow.path => {
            return refuse(format!("the fast and the slow drive are both {}", fast.path.display()));
        }
        _ => {}
    }
    if fast.size_bytes > slow.size_bytes {
        warnings.push(format!(
            "the fast drive ({}) is larger than the slow one ({}): are they swapped?",
            human_bytes(fast.size_bytes),
            human_bytes(slow.size_bytes)
        ));
    }
    Ok(warnings)
}

impl Candidate {
    /// A drive that stays what it is.
    pub(super) fn member(drive: Drive) -> Candidate {
        Candidate {
            path: drive.path.clone(),
            size_bytes: drive.size_bytes,
            make: false,
            empty: false,
            holdings: Holdings::of_member(&drive.path),
            drive: Some(drive),
        }
    }

    /// What `plan` needs to know; the rest is settled when the drive is opened.
    pub(super) fn info(&self) -> DeviceInfo {
        DeviceInfo {
            path: self.path.display().to_string(),
            size_bytes: self.size_bytes,
            sector_bytes: 512,
            atomic_write_bytes: 512,
            rotational: None,
            read_only: false,
        }
    }

    /// Brings a file to its size. What is on a drive that has its size is wiped later, when the
    /// drive is locked.
    pub(super) fn prepare(&self) -> Result<(), Failure> {
        let path = &self.path;
        if self.make {
            return blank_file::make(path, self.size_bytes);
        }
        if !self.empty {
            return Ok(());
        }
        let file = OpenOptions::new().write(true).open(path).on_path("open for writing", path)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            return Err(in_use::refusal(path));
        }
        self.holdings.verify_unchanged(path)?;
        file.set_len(0).on_path("empty", path)?;
        file.set_len(self.size_bytes).on_path("resize", path)?;
        file.sync_all().on_path("write to", path)
    }

    /// Opens and locks the drive, if it still is what was examined.
    pub(super) fn open(&self, kernel: &Kernel) -> Result<Device, Failure> {
        let device =
            kernel.open_device(&self.path, Access::ReadWrite).map_err(|error| {
                match error.errno == Errno::BUSY.raw_os_error() {
                    true => in_use::refusal(&self.path),
                    false => error.into(),
                }
            })?;
        match self.empty {
            // Emptied, so it is a member of nothing; if it is, it was made one since.
            true if membership(&self.path).is_some() => Err(in_use::refusal(&self.path)),
            true => Ok(device),
            // Made just now, and by nobody else: `make` takes no file that is there.
            false if self.make => Ok(device),
            false => self.holdings.verify_unchanged(&self.path).map(|()| device),
        }
    }

    /// Overwrites what was found.
    pub(super) fn wipe(&self) -> Result<(), Failure> {
        if self.holdings.findings.is_empty() || self.empty {
            return Ok(());
        }
        let path = &self.path;
        let file = OpenOptions::new().write(true).open(path).on_path("open for writing", path)?;
        for finding in &self.holdings.findings {
            file.write_all_at(&vec![0; finding.length as usize], finding.at)
                .on_path("wipe what was found on", path)?;
        }
        file.sync_all().on_path("write to", path)
    }
}

/// Does it; gives the new volume's identity.
fn carry_out(
    arguments: &CreateArguments,
    settings: &Settings,
    options: CreateOptions,
    fast: &Candidate,
    slow: &Candidate,
) -> Result<String, Failure> {
    let mut made = Vec::new();
    let created = prepare_all([fast, slow], &mut made)
        .and_then(|()| format_drives(options, fast, slow))
        .and_then(|volume| {
            let file = VolumeFile {
                name: arguments.name.clone(),
                volume: volume.clone(),
                fast: Drive::look(&fast.path)?.stable_path(),
                slow: Drive::look(&slow.path)?.stable_path(),
            };
            file.save(&settings.config_dir)?;
            Ok(volume)
        });
    created.inspect_err(|_| {
        for path in made {
            // It was not there before; if it cannot be removed the failure itself says more.
            let _ = std::fs::remove_file(path);
        }
    })
}

/// Makes, empties or wipes what the checks have allowed; `made` gets the files that are new.
fn prepare_all<'a>(drives: [&'a Candidate; 2], made: &mut Vec<&'a Path>) -> Result<(), Failure> {
    for drive in drives {
        drive.prepare()?;
        if drive.make {
            made.push(&drive.path);
        }
    }
    Ok(())
}

fn format_drives(
    options: CreateOptions,
    fast: &Candidate,
    slow: &Candidate,
) -> Result<String, Failure> {
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let (fast_device, slow_device) = (fast.open(&kernel)?, slow.open(&kernel)?);
    fast.wipe()?;
    slow.wipe()?;
    let (fast, slow) = (fast_device, slow_device);
    let bar = progress::bar("creating");
    let tell = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let identity = io.block_on(engine::create(&io, &fast, &slow, options, &tell));
    bar.finish_and_clear();
    Ok(identity.map_err(Failure::failed)?.volume_id.to_string())
}

fn describe(
    arguments: &CreateArguments,
    geometry: &Geometry,
    fast: &Candidate,
    slow: &Candidate,
    warnings: Vec<String>,
) -> Creation {
    let drive = |tier: Tier, candidate: &Candidate| CreationDrive {
        path: candidate.path.clone(),
        size_bytes: candidate.size_bytes,
        data_bytes: geometry.layouts[tier.index()].slots * geometry.extent_bytes,
        made: candidate.make,
    };
    Creation {
        name: arguments.name.clone(),
        volume: None,
        dry_run: arguments.dry_run,
        class: geometry.class.name(),
        mode: (geometry.class == Class::Cache).then(|| arguments.mode.unwrap_or_default().name()),
        size_bytes: geometry.volume_bytes,
        extent_bytes: geometry.extent_bytes,
        landing_bytes: geometry.layouts[Tier::Fast.index()].log_bytes,
        memory_bytes: geometry.map_memory_bytes(),
        log_memory_bytes_max: geometry.log_memory_bytes_max(),
        drives: CreationDrives { fast: drive(Tier::Fast, fast), slow: drive(Tier::Slow, slow) },
        warnings,
    }
}

fn text(creation: &Creation) -> String {
    let mut table = Table::new(&[
        ("DRIVE", Align::Left),
        ("SIZE", Align::Right),
        ("FOR DATA", Align::Right),
        ("PATH", Align::Left),
    ]);
    for (role, drive) in [("fast", &creation.drives.fast), ("slow", &creation.drives.slow)] {
        let made = match (drive.made, creation.dry_run) {
            (true, true) => "  (would be made)",
            (true, false) => "  (made)",
            (false, _) => "",
        };
        table.row([
            role.to_owned(),
            human_bytes(drive.size_bytes),
            human_bytes(drive.data_bytes),
            format!("{}{made}", drive.path.display()),
        ]);
    }
    let name = &creation.name;
    let [size, extent, landing, memory, log_memory] = [
        creation.size_bytes,
        creation.extent_bytes,
        creation.landing_bytes,
        creation.memory_bytes,
        creation.log_memory_bytes_max,
    ]
    .map(human_bytes);
    let begin = match &creation.volume {
        Some(volume) => format!("created volume '{name}' ({volume})"),
        None => format!("would create volume '{name}' (dry run: nothing was touched)"),
    };
    let warnings: String =
        creation.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
    let mode = creation.mode.map(|mode| format!(" ({mode})")).unwrap_or_default();
    let next = match &creation.volume {
        Some(_) => {
            format!("next: bimetal attach {name}    (or: bimetal serve {name} --print-uri)\n")
        }
        None => String::new(),
    };
    format!(
        "{begin}\n{size} in class {}{mode}, extents of {extent}, landing log of {landing}\n\
         RAM when full: {memory} for the map, at most {log_memory} more for the log\n\n\
         {}{warnings}{next}",
        creation.class,
        table.render()
    )
}
