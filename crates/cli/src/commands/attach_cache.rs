//! `bimetal attach-cache`: a new fast drive for a volume of class cache that has lost its own.

use std::path::PathBuf;

use clap::Args;
use engine::{Inspection, State, Superblock, Tier};
use io::units::human_bytes;
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use super::create::{Candidate, compare, examine};
use crate::drive::{Drive, DriveArgument};
use crate::failure::{Exit, Failure, Outcome};
use crate::in_use;
use crate::members;
use crate::selection::{self, Selection};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::volume_file::VolumeFile;
use crate::volume_name::VolumeName;

/// Give a write-through cache whose fast drive is gone a new, empty one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal attach-cache vol0 --fast /dev/nvme1n1
  bimetal attach-cache vol0 --fast fast2.img:1G           (makes a sparse file)
  bimetal attach-cache vol0 --fast /dev/nvme0n1 --force   (the old one came back: its copies are old)

The slow drive has everything; the volume is not served meanwhile. A drive that holds something is
refused (exit code 4) unless --force is given, one that is in use always.")]
pub struct AttachCacheArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// The new fast drive: a block device, a file, or PATH:SIZE to make a sparse file
    #[arg(long, value_name = "DEV")]
    fast: DriveArgument,
    /// Overwrite what the drive holds
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Attached {
    name: VolumeName,
    fast: PathBuf,
    /// Bytes of it that hold copies.
    data_bytes: u64,
    landing_bytes: u64,
    warnings: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &AttachCacheArguments, settings: &Settings) -> Outcome {
    let _lock = settings.lock_config_dir()?;
    let selection = selection::by_name(settings, &arguments.name)?;
    let name = &selection.name;
    if let Some(server) = ServerRecord::serving(settings, &selection)? {
        return Err(Failure::refused(format!("volume '{name}' is served by {server}"))
            .hint(format!("'bimetal detach {name}', or end that process")));
    }
    // Before anything of the new drive is touched.
    let superblock = slow_member(&selection)?;
    let fast = examine(Tier::Fast, &arguments.fast, arguments.force)?;
    let slow = Candidate::member(Drive::look(&selection.slow)?);
    let warnings = compare(&fast, &slow)?;
    verify_room(&superblock, &fast, &slow)?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let slow_device = kernel
        .open_device(&slow.path, Access::ReadWrite)
        .map_err(|error| in_use::opening_failed(&slow.path, error))?;
    fast.prepare()?;
    let fast_device = fast.open(&kernel)?;
    fast.wipe()?;
    let geometry = io.block_on(engine::attach_cache(&io, &fast_device, &slow_device));
    io.drop_tasks();
    let geometry = geometry.map_err(Failure::from)?;
    let path = Drive::look(&fast.path)?.stable_path();
    let volume = selection.volume.clone().unwrap_or_default();
    let file =
        VolumeFile { name: name.clone(), volume, fast: path.clone(), slow: selection.slow.clone() };
    file.save(&settings.config_dir)?;
    let layout = geometry.layouts[Tier::Fast.index()];
    let attached = Attached {
        name: name.clone(),
        fast: path,
        data_bytes: layout.slots * geometry.extent_bytes,
        landing_bytes: layout.log_bytes,
        warnings,
    };
    settings.output.show("attach-cache", &attached, |attached| {
        let warnings: String =
            attached.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        format!(
            "volume '{}': {} is its cache now ({} for copies)\n{warnings}",
            attached.name,
            attached.fast.display(),
            human_bytes(attached.data_bytes)
        )
    })?;
    Ok(Exit::Done)
}

/// The superblock of the slow drive, which must have everything of this very volume. The fast drive's
/// path may lead anywhere by now: it is about to be another.
fn slow_member(selection: &Selection) -> Result<Superblock, Failure> {
    selection.refuse_stranger(Tier::Slow)?;
    let path = selection.slow.display();
    let Inspection::Member(superblock) = members::read(&selection.slow)? else {
        return Err(Failure::refused(format!("{path} carries no bimetal superblock")).hint(
            "'bimetal scan' lists the drives that do, 'bimetal import' finds the volume there",
        ));
    };
    if superblock.role != Tier::Slow {
        let name = &selection.name;
        return Err(Failure::refused(format!(
            "{path} is the fast drive of '{name}', not the slow one"
        ))
        .hint("'bimetal import --force' writes down which is which"));
    }
    if superblock.state == State::Creating {
        return Err(Failure::refused(format!("{path} is half made: its creation was interrupted"))
            .hint("it holds no data; 'bimetal create --force' makes the volume again"));
    }
    engine::can_attach_cache(&superblock).map_err(Failure::refused)?;
    Ok(*superblock)
}

/// Refuses a new drive with which the volume cannot be: what it holds is lost once it is prepared.
fn verify_room(old: &Superblock, fast: &Candidate, slow: &Candidate) -> Result<(), Failure> {
    let planned = engine::with_new_fast(old, &fast.info(), &slow.info());
    planned.map(|_| ()).map_err(|error| {
        Failure::usage(format!("{} does not do: {error}", fast.path.display()))
            .hint("give a larger drive")
    })
}
