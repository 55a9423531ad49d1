//! `bimetal destroy`: ends a volume by wiping its superblocks.

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;

use clap::Args;
use engine::Inspection;
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use crate::failure::{Exit, Failure, Outcome};
use crate::in_use;
use crate::members;
use crate::selection::{Selection, VolumeArgument};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::volume_file::{self, VolumeFile};

/// End a volume: its superblocks are wiped and its data cannot be found again
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal destroy vol0          (asks)
  bimetal destroy vol0 --yes    (does not ask)

Files that served as drives stay; remove them yourself.")]
pub struct DestroyArguments {
    #[command(flatten)]
    volume: VolumeArgument,
    /// Do not ask
    #[arg(long, alias = "force")]
    yes: bool,
}

#[derive(Debug, Serialize)]
struct Destroyed {
    name: String,
    wiped: Vec<PathBuf>,
    /// Drives that were not wiped, and why.
    left: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &DestroyArguments, settings: &Settings) -> Outcome {
    // Whose drives they are is known before anybody is asked: what is not of this volume stays.
    let selection = arguments.volume.select(settings)?.identified()?;
    let name = &selection.name;
    if let Some(server) = ServerRecord::serving(settings, &selection)? {
        return Err(Failure::refused(format!("volume '{name}' is served by {server}"))
            .hint(format!("'bimetal detach {name}', or end that process")));
    }
    if !arguments.yes && !confirmed(&selection)? {
        return Err(Failure::refused(format!("volume '{name}' was not destroyed"))
            .hint("--yes destroys it without asking"));
    }
    let mut destroyed = wipe(&selection)?;
    destroyed.left.extend(forget(settings, &selection));
    settings.output.show("destroy", &destroyed, |destroyed| {
        let mut text = format!("destroyed volume '{}'\n", destroyed.name);
        for path in &destroyed.wiped {
            text.push_str(&format!("wiped: {}\n", path.display()));
        }
        for problem in &destroyed.left {
            text.push_str(&format!("left as it is: {problem}\n"));
        }
        text
    })?;
    Ok(Exit::Done)
}

/// Asks a person to type the name; nobody there means no.
fn confirmed(selection: &Selection) -> Result<bool, Failure> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Ok(false);
    }
    let name = &selection.name;
    let asked = write!(
        std::io::stderr(),
        "Everything on volume '{name}' will be lost:\n  {}\n  {}\nType its name to go on: ",
        selection.fast.display(),
        selection.slow.display()
    );
    let mut answer = String::new();
    asked
        .and_then(|()| stdin.lock().read_line(&mut answer))
        .map_err(|error| Failure::failed(format!("cannot ask: {error}")))?;
    Ok(answer.trim() == name.as_str())
}

/// Wipes each drive that is a member of this volume; any other is left alone.
///
/// # Errors
/// None was wiped, or one that is there could not be: the volume's file stays then, so that it can be
/// done again.
fn wipe(selection: &Selection) -> Result<Destroyed, Failure> {
    let name = &selection.name;
    let mut destroyed = Destroyed { name: name.to_string(), wiped: Vec::new(), left: Vec::new() };
    let mut failed = Vec::new();
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let mut ours = Vec::with_capacity(2);
    for path in [&selection.fast, &selection.slow] {
        if matches!(path.try_exists(), Ok(false)) {
            destroyed.left.push(format!("there is no drive at {}", path.display()));
            continue;
        }
        match members::read(path) {
            Ok(Inspection::Member(superblock)) if selection.owns(&superblock) => {
                let device = kernel
                    .open_device(path, Access::ReadWrite)
                    .map_err(|error| in_use::opening_failed(path, error))?;
                ours.push((path, device));
            }
            Ok(Inspection::Member(superblock)) => destroyed.left.push(format!(
                "{} belongs to another volume, '{}'",
                path.display(),
                superblock.name
            )),
            Ok(Inspection::NotAMember) => {
                destroyed.left.push(format!("{} carries no bimetal superblock", path.display()))
            }
            Err(failure) => failed.push(failure.message),
        }
    }
    // Only now that nobody else has any of them.
    for (path, device) in ours {
        match io.block_on(engine::destroy(&io, &device)) {
            Ok(()) => destroyed.wiped.push(path.clone()),
            Err(error) => failed.push(format!("{} was not wiped: {error}", path.display())),
        }
    }
    if failed.is_empty() && !destroyed.wiped.is_empty() {
        return Ok(destroyed);
    }
    let what = match &destroyed.wiped[..] {
        [] => format!("nothing of volume '{name}' was wiped"),
        wiped => format!("of volume '{name}' only {} was wiped", wiped[0].display()),
    };
    let why = [failed, destroyed.left].concat().join("; ");
    Err(Failure::failed(format!("{what}: {why}")).hint(format!(
        "do it again when its drives can be read and written; 'bimetal export {name}' only forgets it"
    )))
}

/// Removes the volume's file, unless it leads to another volume or to other drives of this one, such
/// as those that the wiped ones were copies of; gives why it stays.
fn forget(settings: &Settings, selection: &Selection) -> Option<String> {
    let path = volume_file::path_of(&settings.config_dir, &selection.name);
    let file = match VolumeFile::load(&settings.config_dir, &selection.name) {
        Ok(file) => file?,
        Err(failure) => return Some(failure.message),
    };
    if selection.volume.as_ref() != Some(&file.volume) {
        return Some(format!("{} is of another volume", path.display()));
    }
    for drive in [&file.fast, &file.slow] {
        if let Ok(Inspection::Member(superblock)) = members::read(drive)
            && selection.owns(&superblock)
        {
            let (path, drive) = (path.display(), drive.display());
            return Some(format!("{path} leads to another drive of this volume, {drive}"));
        }
    }
    VolumeFile::remove(&settings.config_dir, &selection.name).err().map(|failure| failure.message)
}
