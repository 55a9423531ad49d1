//! `bimetal flush`: everything of a cache goes home, to its slow drive.

use clap::Args;

use crate::failure::Outcome;
use crate::homecoming::{self, Goal};
use crate::settings::Settings;
use crate::volume_name::VolumeName;

/// Bring everything of a cache home, to its slow drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal flush vol0             (waits until the slow drive has everything written before)
  bimetal flush vol0 --cancel    (ends a flush or an evacuation that is under way)

Clients go on meanwhile; what they write goes home at once, so that the end always comes. Ctrl-C ends it as
--cancel does, with exit code 1; what has come home stays there.")]
pub struct FlushArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// End what is under way; nothing is lost by that
    #[arg(long)]
    cancel: bool,
}

/// Runs the command.
pub fn run(arguments: &FlushArguments, settings: &Settings) -> Outcome {
    if arguments.cancel {
        return homecoming::cancel(settings, "flush", &arguments.name);
    }
    homecoming::bring(settings, "flush", &arguments.name, Goal::Flushed)
}
