//! `bimetal unpin`: nothing is wished for a part of a volume any more.

use clap::Args;

use crate::failure::Outcome;
use crate::settings::Settings;
use crate::volume_name::VolumeName;
use crate::wishing::{self, Subject};

/// Take back what was wished for ranges or files
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal unpin vol0 0+1G
  bimetal unpin vol0 /mnt/vm.qcow2
  bimetal unpin vol0 1310848K+640K      (as 'bimetal pin vol0' lists it, of a file that is gone)
  bimetal unpin vol0 --all

Takes back what 'pin' and 'advise' said of the range. What is on the fast drive stays there as long as
it is used more than others.")]
pub struct UnpinArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// Which parts of it; rounded to whole extents
    #[arg(value_name = "OFFSET+LENGTH|FILE|DIR", required_unless_present = "all")]
    subjects: Vec<Subject>,
    /// Take back everything that is wished, advice too
    #[arg(long, conflicts_with = "subjects")]
    all: bool,
}

/// Runs the command.
pub fn run(arguments: &UnpinArguments, settings: &Settings) -> Outcome {
    if arguments.all {
        return wishing::forget(settings, "unpin", &arguments.name);
    }
    wishing::wish(settings, "unpin", &arguments.name, &arguments.subjects, None)
}
