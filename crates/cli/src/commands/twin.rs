//! `bimetal twin`: models of real drives.

mod fit;
mod list;
mod serve;
mod show;

use std::path::Path;

use clap::{Args, Subcommand};
use twin::Profile;

use crate::failure::{Failure, Outcome};
use crate::settings::Settings;

pub use fit::text as fitted_text;

/// Look at models of real drives, and use one as a drive
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal twin list
  bimetal twin show wd5002abys                 (its numbers, and where each is from)
  bimetal twin serve wd5002abys,cache=off --nbd unix:/tmp/twin.sock --scale 1/64
  bimetal twin serve wd5002abys --ublk         (as a block device, /dev/ublkbN)
  bimetal twin fit --from sdb.json --out sdb.toml    (of what 'bimetal probe' measured)

A condition may follow the name: cache=on, cache=off, fresh, used. A name with a slash or ending in .toml is
a file of your own in the format of the built-in ones. docs/twins.md has the models.")]
pub struct TwinArguments {
    #[command(subcommand)]
    verb: TwinVerb,
}

#[derive(Debug, Subcommand)]
enum TwinVerb {
    List(list::ListArguments),
    Show(show::ShowArguments),
    Serve(serve::ServeArguments),
    Fit(fit::FitArguments),
}

/// Runs the command.
pub fn run(arguments: &TwinArguments, settings: &Settings) -> Outcome {
    match &arguments.verb {
        TwinVerb::List(arguments) => list::run(arguments, settings),
        TwinVerb::Show(arguments) => show::run(arguments, settings),
        TwinVerb::Serve(arguments) => serve::run(arguments, settings),
        TwinVerb::Fit(arguments) => fit::run(arguments, settings),
    }
}

/// The profile that a user means: a built-in one, or a file.
fn profile(choice: &str) -> Result<Profile, Failure> {
    Profile::find(choice)
        .map_err(|error| Failure::usage(error).hint("'bimetal twin list' lists those built in"))
}

/// A twin's name from that of its file.
pub fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    stem.chars()
        .map(|c| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' })
        .collect()
}
