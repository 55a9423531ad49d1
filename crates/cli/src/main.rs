//! The `bimetal` command: bonds a small fast drive and a large slow one into one block device.
//!
//! This crate holds flags and wiring. What it decides itself is what may be overwritten
//! ([`commands::create`]) and how volumes are found; the rest is done by the other rooms.

// Doc comments of arguments are their help text, where `[,BYTES]` is no link.
#![allow(rustdoc::broken_intra_doc_links)]

mod alone;
mod at_rest;
mod atlas;
mod blank_file;
mod block_device;
mod btrfs_chunks;
mod commands;
mod drive;
mod failure;
mod file_extents;
mod heat_scale;
mod help;
mod holdings;
mod homecoming;
mod in_use;
mod interrupt;
mod loss_status;
mod lost_files;
mod machine_memory;
mod members;
mod new_file;
mod opinions;
mod output;
mod part_heat;
mod progress;
mod selection;
mod server;
mod settings;
mod signatures;
mod survey;
mod switch;
mod table;
mod tally;
mod unplaced;
mod volume_file;
mod volume_name;
mod volume_status;
mod wishing;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::settings::{SYSTEM_CONFIG_DIR, Settings};

/// Bond a small fast drive and a large slow one into one crash-safe block device
#[derive(Debug, Parser)]
#[command(
    version,
    after_help = "Examples:
  bimetal create demo --fast fast.img:1G --slow slow.img:8G
  bimetal attach demo          (prints a block device; as root)
  bimetal serve demo --run 'nbdinfo $uri'
  bimetal status demo

Exit codes: 0 ok, 1 failed, 2 usage, 3 degraded, 4 refused for safety."
)]
struct CommandLine {
    /// Where NAME.toml files are; made when missing
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "BIMETAL_CONFIG_DIR",
        default_value = SYSTEM_CONFIG_DIR
    )]
    config_dir: PathBuf,
    /// Print JSON with a versioned header instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Create(commands::create::CreateArguments),
    Serve(commands::serve::ServeArguments),
    Attach(commands::attach::AttachArguments),
    AttachCache(commands::attach_cache::AttachCacheArguments),
    Detach(commands::detach::DetachArguments),
    List(commands::list::ListArguments),
    Status(commands::status::StatusArguments),
    Set(commands::set::SetArguments),
    Flush(commands::flush::FlushArguments),
    Evacuate(commands::evacuate::EvacuateArguments),
    Pin(commands::pin::PinArguments),
    Unpin(commands::unpin::UnpinArguments),
    Advise(commands::advise::AdviseArguments),
    Iostat(commands::iostat::IostatArguments),
    Map(commands::map::MapArguments),
    Where(commands::r#where::WhereArguments),
    Why(commands::why::WhyArguments),
    Warm(commands::warm::WarmArguments),
    Trace(commands::trace::TraceArguments),
    Check(commands::check::CheckArguments),
    Lost(commands::lost::LostArguments),
    Export(commands::export::ExportArguments),
    Import(commands::import::ImportArguments),
    Scan(commands::scan::ScanArguments),
    Hunt(commands::hunt::HuntArguments),
    Destroy(commands::destroy::DestroyArguments),
    Lab(commands::lab::LabArguments),
    Twin(commands::twin::TwinArguments),
    Probe(commands::probe::ProbeArguments),
}

impl Verb {
    fn name(&self) -> &'static str {
        match self {
            Verb::Create(_) => "create",
            Verb::Serve(_) => "serve",
            Verb::Attach(_) => "attach",
            Verb::AttachCache(_) => "attach-cache",
            Verb::Detach(_) => "detach",
            Verb::List(_) => "list",
            Verb::Status(_) => "status",
            Verb::Set(_) => "set",
            Verb::Flush(_) => "flush",
            Verb::Evacuate(_) => "evacuate",
            Verb::Pin(_) => "pin",
            Verb::Unpin(_) => "unpin",
            Verb::Advise(_) => "advise",
            Verb::Iostat(_) => "iostat",
            Verb::Map(_) => "map",
            Verb::Where(_) => "where",
            Verb::Why(_) => "why",
            Verb::Warm(_) => "warm",
            Verb::Trace(_) => "trace",
            Verb::Check(_) => "check",
            Verb::Lost(_) => "lost",
            Verb::Export(_) => "export",
            Verb::Import(_) => "import",
            Verb::Scan(_) => "scan",
            Verb::Hunt(_) => "hunt",
            Verb::Destroy(_) => "destroy",
            Verb::Lab(_) => "lab",
            Verb::Twin(_) => "twin",
            Verb::Probe(_) => "probe",
        }
    }

    fn run(&self, settings: &Settings) -> Outcome {
        match self {
            Verb::Create(arguments) => commands::create::run(arguments, settings),
            Verb::Serve(arguments) => commands::serve::run(arguments, settings),
            Verb::Attach(arguments) => commands::attach::run(arguments, settings),
            Verb::AttachCache(arguments) => commands::attach_cache::run(arguments, settings),
            Verb::Detach(arguments) => commands::detach::run(arguments, settings),
            Verb::List(arguments) => commands::list::run(arguments, settings),
            Verb::Status(arguments) => commands::status::run(arguments, settings),
            Verb::Set(arguments) => commands::set::run(arguments, settings),
            Verb::Flush(arguments) => commands::flush::run(arguments, settings),
            Verb::Evacuate(arguments) => commands::evacuate::run(arguments, settings),
            Verb::Pin(arguments) => commands::pin::run(arguments, settings),
            Verb::Unpin(arguments) => commands::unpin::run(arguments, settings),
            Verb::Advise(arguments) => commands::advise::run(arguments, settings),
            Verb::Iostat(arguments) => commands::iostat::run(arguments, settings),
            Verb::Map(arguments) => commands::map::run(arguments, settings),
            Verb::Where(arguments) => commands::r#where::run(arguments, settings),
            Verb::Why(arguments) => commands::why::run(arguments, settings),
            Verb::Warm(arguments) => commands::warm::run(arguments, settings),
            Verb::Trace(arguments) => commands::trace::run(arguments, settings),
            Verb::Check(arguments) => commands::check::run(arguments, settings),
            Verb::Lost(arguments) => commands::lost::run(arguments, settings),
            Verb::Export(arguments) => commands::export::run(arguments, settings),
            Verb::Import(arguments) => commands::import::run(arguments, settings),
            Verb::Scan(arguments) => commands::scan::run(arguments, settings),
            Verb::Hunt(arguments) => commands::hunt::run(arguments, settings),
            Verb::Destroy(arguments) => commands::destroy::run(arguments, settings),
            Verb::Lab(arguments) => commands::lab::run(arguments, settings),
            Verb::Twin(arguments) => commands::twin::run(arguments, settings),
            Verb::Probe(arguments) => commands::probe::run(arguments, settings),
        }
    }
}

fn main() -> ExitCode {
    let mut command = help::flowing(CommandLine::command());
    let line = command.try_get_matches_from_mut(std::env::args_os()).and_then(|matches| {
        CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
    });
    let line = match line {
        Ok(line) => line,
        Err(error) => return wrong_line(&error),
    };
    let outcome =
        Settings::new(&line.config_dir, line.json).and_then(|settings| line.verb.run(&settings));
    match outcome {
        Ok(exit) => exit.into(),
        Err(failure) => {
            Output { json: line.json }.complain(line.verb.name(), &failure);
            failure.exit.into()
        }
    }
}

/// Ends as clap would: with code 2 for a wrong command line, 0 for --help and --version. Whoever asks
/// for JSON gets the error as JSON too.
fn wrong_line(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().skip(1).take_while(|word| word != "--").any(|w| w == "--json");
    if !json || !error.use_stderr() {
        error.exit()
    }
    let text = error.to_string();
    let failure = Failure::usage(text.trim_start_matches("error: ").trim_end());
    Output { json }.complain("bimetal", &failure);
    failure.exit.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn the_help_of_every_command_has_an_example() {
        for command in CommandLine::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let example = format!("bimetal {}", command.get_name());
            assert!(help.contains("Example"), "{}", command.get_name());
            let json = format!("bimetal --json {}", command.get_name());
            assert!(help.contains(&example) || help.contains(&json), "{}", command.get_name());
        }
    }
}
