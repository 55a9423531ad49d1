//! `bimetal lab`: experiments on drives, real and simulated.

mod compare;
mod durability;
mod facts;
mod flush;
mod free;
mod jobs;
mod mrc;
pub mod place;
mod policies;
mod powercut;
mod replay;
mod report;
mod run;
mod size;

use clap::{Args, Subcommand};

use crate::failure::Outcome;
use crate::settings::Settings;

/// Find out what a drive does, before it is trusted
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab compare                         (published figures beside those of the twins)
  bimetal lab list                            (the published experiments)
  bimetal lab run working-set --on twin:wd5002abys
  bimetal lab run mine.fio --on /dev/sdb --out results
  bimetal lab report results                  (one page of them)
  bimetal lab size monday.csv --fast samsung-860-evo-500 --slow wd5002abys
  bimetal lab flush --drive /dev/sdb          (what a flush costs, and whether that can be true)
  bimetal lab flush --file /mnt/test.img
  bimetal lab durability                      (strict and deferred flushes, in virtual time)
  bimetal lab powercut witness --listen 0.0.0.0:7070 --record sdb.record
  bimetal lab powercut write --drive /dev/sdb --witness other:7070 --yes-destroy
  bimetal lab powercut verify --drive /dev/sdb --record sdb.record")]
pub struct LabArguments {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Debug, Subcommand)]
enum Experiment {
    Compare(compare::CompareArguments),
    Durability(durability::DurabilityArguments),
    List(jobs::ListArguments),
    Run(run::RunArguments),
    Fio(jobs::FioArguments),
    Report(report::ReportArguments),
    Flush(flush::FlushArguments),
    Mrc(mrc::MrcArguments),
    Policies(policies::PoliciesArguments),
    Powercut(powercut::PowercutArguments),
    Replay(replay::ReplayArguments),
    Size(size::SizeArguments),
}

/// Runs the command.
pub fn run(arguments: &LabArguments, settings: &Settings) -> Outcome {
    match &arguments.experiment {
        Experiment::Compare(arguments) => compare::run(arguments, settings),
        Experiment::Durability(arguments) => durability::run(arguments, settings),
        Experiment::List(arguments) => jobs::list(arguments, settings),
        Experiment::Run(arguments) => run::run(arguments, settings),
        Experiment::Fio(arguments) => jobs::run(arguments, settings),
        Experiment::Report(arguments) => report::run(arguments, settings),
        Experiment::Flush(arguments) => flush::run(arguments, settings),
        Experiment::Mrc(arguments) => mrc::run(arguments, settings),
        Experiment::Policies(arguments) => policies::run(arguments, settings),
        Experiment::Powercut(arguments) => powercut::run(arguments, settings),
        Experiment::Replay(arguments) => replay::run(arguments, settings),
        Experiment::Size(arguments) => size::run(arguments, settings),
    }
}
