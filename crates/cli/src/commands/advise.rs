//! `bimetal advise`: how a part of a volume will be used.

use clap::Args;
use engine::Wish;

use crate::failure::Outcome;
use crate::settings::Settings;
use crate::volume_name::VolumeName;
use crate::wishing::{self, Subject};

/// Say how ranges or files will be used
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal advise vol0 hot 0+1G       (goes up when it is read, without having to prove itself)
  bimetal advise vol0 cold 20G+80G   (never goes up, and leaves the fast drive)
  bimetal advise vol0 stream 20G+80G (reads of it warm nothing)
  bimetal advise vol0 stream /mnt/films

Holds over restarts until 'bimetal unpin', for the places where files are now.")]
pub struct AdviseArguments {
    /// Name of the volume, as given at 'create'
    name: VolumeName,
    /// How it will be used
    #[arg(value_enum)]
    advice: Advice,
    /// Which parts of it; rounded to whole extents
    #[arg(value_name = "OFFSET+LENGTH|FILE|DIR", required = true)]
    subjects: Vec<Subject>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Advice {
    /// It goes to the fast drive when it is read
    Hot,
    /// It stays on the slow drive
    Cold,
    /// Its reads warm nothing
    Stream,
}

/// Runs the command.
pub fn run(arguments: &AdviseArguments, settings: &Settings) -> Outcome {
    let wish = match arguments.advice {
        Advice::Hot => Wish::Hot,
        Advice::Cold => Wish::Cold,
        Advice::Stream => Wish::Stream,
    };
    wishing::wish(settings, "advise", &arguments.name, &arguments.subjects, Some(wish))
}
