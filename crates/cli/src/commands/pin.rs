//! `bimetal pin`: a range of a volume goes to the fast drive and stays there.

use clap::Args;
use engine::Wish;

use crate::failure::Outcome;
use crate::settings::Settings;
use crate::volume_name::VolumeName;
use crate::wishing::{self, ByteRange};

/// Keep a range of a volume on the fast drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal pin vol0 0+1G            (the first gigabyte)
  bimetal pin vol0 20G+512M
  bimetal pin vol0                 (lists what is wished for which range)

Moves when clients rest, and stays over restarts until 'bimetal unpin'.")]
pub struct PinArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// Which part of it; rounded to whole extents
    #[arg(value_name = "OFFSET+LENGTH")]
    range: Option<ByteRange>,
}

/// Runs the command.
pub fn run(arguments: &PinArguments, settings: &Settings) -> Outcome {
    match arguments.range {
        Some(range) => wishing::wish(settings, "pin", &arguments.name, range, Some(Wish::Pinned)),
        None => wishing::list(settings, "pin", &arguments.name),
    }
}
