//! `bimetal pin`: a part of a volume goes to the fast drive and stays there.

use clap::Args;
use engine::Wish;

use crate::failure::Outcome;
use crate::settings::Settings;
use crate::volume_name::VolumeName;
use crate::wishing::{self, Subject};

/// Keep ranges or files on the fast drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal pin vol0 0+1G                          (the first gigabyte)
  bimetal pin vol0 20G+512M
  bimetal pin vol0 /mnt/vm.qcow2 /mnt/projects   (where these files are now)
  bimetal pin vol0                               (lists what is wished for which range)

Moves when clients rest, and stays over restarts until 'bimetal unpin'. What is kept are places on the
volume: a file that is written anew elsewhere, or grows, must be pinned again; of one that is removed they stay
pinned until 'bimetal unpin NAME RANGE', as listed here, or --all.")]
pub struct PinArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// Which parts of it; rounded to whole extents
    #[arg(value_name = "OFFSET+LENGTH|FILE|DIR")]
    subjects: Vec<Subject>,
}

/// Runs the command.
pub fn run(arguments: &PinArguments, settings: &Settings) -> Outcome {
    let PinArguments { name, subjects } = arguments;
    match &subjects[..] {
        [] => wishing::list(settings, "pin", name),
        subjects => wishing::wish(settings, "pin", name, subjects, Some(Wish::Pinned)),
    }
}
