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
use crate::volume_file::VolumeFile;

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
    let selection = arguments.volume.select(settings)?;
    let name = &selection.name;
    if let Some(server) = ServerRecord::alive(settings, name)? {
        return Err(Failure::refused(format!("volume '{name}' is served by {server}"))
            .hint(format!("'bimetal detach {name}', or end that process")));
    }
    if !arguments.yes && !confirmed(&selection)? {
        return Err(Failure::refused(format!("volume '{name}' was not destroyed"))
            .hint("--yes destroys it without asking"));
    }
    let destroyed = wipe(&selection)?;
    VolumeFile::remove(&settings.config_dir, name)?;
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
fn wipe(selection: &Selection) -> Result<Destroyed, Failure> {
    let mut destroyed =
        Destroyed { name: selection.name.to_string(), wiped: Vec::new(), left: Vec::new() };
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let mut ours = Vec::with_capacity(2);
    for path in [&selection.fast, &selection.slow] {
        match members::read(path) {
            Ok(Inspection::Member(superblock))
                if selection
                    .volume
                    .as_ref()
                    .is_none_or(|volume| *volume == superblock.volume_id.to_string()) =>
            {
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
            Err(failure) => destroyed.left.push(failure.message),
        }
    }
    // Only now that nobody else has any of them.
    for (path, device) in ours {
        io.block_on(engine::destroy(&io, &device))?;
        destroyed.wiped.push(path.clone());
    }
    Ok(destroyed)
}
