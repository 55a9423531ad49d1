//! The published experiments: steps of workloads, the figures they give, and what was published.

mod boot;
mod caches;
mod chart;
mod flush_cost;
mod fusion;
mod io_size;
mod lottery;
mod matrix;
mod power_cut;
mod published;
mod record;
mod run;
mod ssd_spec;
mod thomas_krenn;
mod tiered;
mod working_set;
mod workload;

pub use chart::{Chart, Mark, Series, Shape};
pub use matrix::{Matrix, short};
pub use published::Published;
pub use record::{FigureRecord, RunRecord, StepRecord};
pub use run::{Progress, RunOptions, run};
pub use workload::Workload;

use crate::bench::{Bench, Cut, Memory, Moment, Outcome};

/// How long one step of a real drive may take at most, in seconds of the published sources.
pub(crate) const STEP_S: u64 = 60;

/// One workload of an experiment.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its name: letters, digits, dashes.
    pub name: String,
    /// The drive is brought to its first condition before, where that is possible.
    pub renew: bool,
    /// How long it rests before (s).
    pub rest_s: u64,
    /// The machine is shut down and started before, behind the rest.
    pub restart: bool,
    /// The plug is pulled from a drive that is written to; no job is played.
    pub cut: Option<Cut>,
    /// The operating system's page cache stands before it.
    pub memory: Option<Memory>,
    /// The job file.
    pub job: String,
    /// What it is to say.
    pub figures: Vec<Figure>,
    /// Its bound, beside its jobs' own (ns on the bench's clock).
    pub bound: Bound,
}

/// What ends a step that would go on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bound {
    /// Seconds.
    pub seconds: Option<u64>,
    /// Requests of each copy of a job, in virtual time: a published minute of a fast drive is millions,
    /// and its rate is known long before.
    pub requests: Option<u64>,
}

/// One number of an experiment.
#[derive(Clone)]
pub struct Figure {
    /// The published row it stands beside, if there is one.
    pub id: Option<String>,
    /// What it is: the row of its table.
    pub row: String,
    /// The column of its table.
    pub column: String,
    /// Its unit.
    pub unit: &'static str,
    /// How it is found.
    pub measure: Measure,
}

impl std::fmt::Debug for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Figure({}, {}, {})", self.row, self.column, self.unit)
    }
}

/// How a figure is found in what came of a step and of the rest before it.
pub type Measure = fn(&Outcome, &[Moment]) -> Option<f64>;

/// An experiment.
pub trait Experiment {
    /// Its name on the command line.
    fn name(&self) -> &str;

    /// What is asked, in a sentence.
    fn question(&self) -> &str;

    /// Which published source asked it.
    fn source(&self) -> &str;

    /// What it is made on.
    fn stage(&self) -> Stage;

    /// The steps on a bench of that name and size.
    fn steps(&self, bench: &str, size_bytes: u64) -> Vec<Step>;

    /// Pictures of what came of them.
    fn charts(&self, record: &RunRecord) -> Vec<Chart>;

    /// Numbers that follow from several steps.
    fn derived(&self, _record: &RunRecord) -> Vec<FigureRecord> {
        Vec::new()
    }

    /// What it says on this bench that figures do not.
    fn notes(&self, _bench: &str) -> Vec<String> {
        Vec::new()
    }

    /// Changes a step with what the bench knows before it is played, for experiments that decide as
    /// they go.
    fn before(&self, _bench: &dyn Bench, _step: &mut Step) {}
}

/// What an experiment is made on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// One drive, or anything that looks like one.
    Drive,
    /// A volume of two drives.
    Volume,
    /// One simulated drive: it asks for what nobody can do to a real one by command.
    Twin,
}

/// All experiments, in the order of their names.
pub fn all() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(boot::Boot),
        Box::new(caches::Caches),
        Box::new(flush_cost::FlushCost),
        Box::new(fusion::Fusion),
        Box::new(io_size::IoSize),
        Box::new(lottery::Lottery),
        Box::new(power_cut::PowerCut),
        Box::new(ssd_spec::SsdSpec),
        Box::new(thomas_krenn::ThomasKrenn),
        Box::new(tiered::Tiered),
        Box::new(working_set::WorkingSet),
    ]
}

/// The experiment of that name.
pub fn named(name: &str) -> Option<Box<dyn Experiment>> {
    all().into_iter().find(|experiment| experiment.name() == name)
}

/// Measures that several experiments take.
pub(crate) mod measures {
    use super::*;
    use crate::fio::Direction::{Read, Write};

    const MIB: f64 = 1_048_576.0;

    pub fn read_iops(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
        outcome.iops(Read)
    }

    pub fn write_iops(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
        outcome.iops(Write)
    }

    pub fn read_mib(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
        Some(outcome.bytes_per_s(Read)? / MIB)
    }

    pub fn write_mib(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
        Some(outcome.bytes_per_s(Write)? / MIB)
    }

    pub fn read_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
        Some(outcome.bytes_per_s(Read)? / 1e6)
    }

    pub fn write_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
        Some(outcome.bytes_per_s(Write)? / 1e6)
    }

    pub fn read_ms(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
        outcome.mean_ms(Read)
    }
}
