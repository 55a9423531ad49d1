//! `bimetal export`: forgets where a volume's drives are, so that they can move to another
//! machine.

use std::path::PathBuf;

use clap::Args;
use engine::State;
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::selection;
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::volume_file::VolumeFile;
use crate::volume_name::VolumeName;

/// Forget a volume here; its drives keep everything and can be imported elsewhere
#[derive(Debug, Args)]
#[command(after_help = "Example:
  bimetal export vol0    (then, where the drives are now: bimetal import vol0)")]
pub struct ExportArguments {
    /// Name of the volume
    name: VolumeName,
    /// Also when it was not closed in order
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Serialize)]
struct Exported {
    name: VolumeName,
    fast: PathBuf,
    slow: PathBuf,
}

/// Runs the command.
pub fn run(arguments: &ExportArguments, settings: &Settings) -> Outcome {
    let name = &arguments.name;
    let selection = selection::by_name(settings, name)?;
    if let Some(server) = ServerRecord::serving(settings, &selection)? {
        return Err(Failure::refused(format!("volume '{name}' is served by {server}"))
            .hint(format!("'bimetal detach {name}', or end that process")));
    }
    let clean = selection
        .read()
        .iter()
        .all(|found| found.as_ref().is_ok_and(|superblock| superblock.state == State::Clean));
    if !clean && !arguments.force {
        return Err(Failure::refused(format!("volume '{name}' was not closed in order")).hint(
            format!(
                "serve it once and stop it ('bimetal serve {name} --run true'); or --force: \
                 nothing is lost as long as both drives move together"
            ),
        ));
    }
    VolumeFile::remove(&settings.config_dir, name)?;
    let exported = Exported { name: name.clone(), fast: selection.fast, slow: selection.slow };
    settings.output.show("export", &exported, |exported| {
        format!(
            "exported volume '{}'; its drives are\nfast: {}\nslow: {}\n",
            exported.name,
            exported.fast.display(),
            exported.slow.display()
        )
    })?;
    Ok(Exit::Done)
}
