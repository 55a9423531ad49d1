//! `bimetal evacuate`: the fast drive of a cache can be taken away afterwards.

use clap::Args;

use crate::failure::Outcome;
use crate::homecoming::{self, Goal};
use crate::settings::Settings;
use crate::volume_name::VolumeName;

/// Make the fast drive of a cache one that can be taken away
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal evacuate vol0 --fast

Brings everything home and leaves the cache in write-through, where both drives have everything that was
flushed. Then end the server and take the drive away: the volume is served without it, and
'bimetal attach-cache' gives it a new one. Ctrl-C, or 'bimetal flush NAME --cancel', ends it before, and leaves
the mode as it was.")]
pub struct EvacuateArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// Which drive: the fast one is the only one that a cache can do without
    #[arg(long, required = true)]
    fast: bool,
}

/// Runs the command.
pub fn run(arguments: &EvacuateArguments, settings: &Settings) -> Outcome {
    debug_assert!(arguments.fast, "the parser requires it");
    homecoming::bring(settings, "evacuate", &arguments.name, Goal::Evacuated)
}
