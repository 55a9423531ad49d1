//! Where an experiment is made: a twin, two twins fused by the engine, or, through fio, a real drive.
//!
//! A bench keeps its condition from one step to the next, as a drive does: what was written is
//! written, and a rest lets it tidy up.

mod fused;
mod measurer;
mod outside;
mod page_cache;
mod plug;
mod twins;

use serde::{Deserialize, Serialize};

use crate::fio::{Direction, JobFile, JobReport, Limits, Report};
use crate::powercut::Verdict;

pub use fused::{FusedBench, FusedKind};
pub use outside::{FioBench, FioTarget};
pub use page_cache::Memory;
pub use plug::Cut;
pub(crate) use plug::WRITTEN_BYTES_MAX;
pub use twins::TwinBench;

/// One second of a drive's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Traffic {
    /// Requests to read.
    pub reads: u64,
    /// Requests to write.
    pub writes: u64,
    /// Bytes asked for.
    pub read_bytes: u64,
    /// Bytes given.
    pub write_bytes: u64,
}

/// What the drives of a bench did within one second.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Moment {
    /// The end of it, in seconds from the beginning of the step.
    pub at_s: u64,
    /// Each drive, in the order of [`Bench::drives`].
    pub drives: Vec<Traffic>,
}

/// What came of one step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// In fio's layout.
    pub report: Report,
    /// Second by second, where the bench can see its drives.
    pub moments: Vec<Moment>,
    /// Each job's logs in fio's layout: name of the file, content.
    #[serde(skip)]
    pub logs: Vec<(String, String)>,
    /// Seconds it took on the bench's clock.
    pub seconds: f64,
    /// What was left after a power cut, of a step that was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

impl Outcome {
    /// Jobs that did something in that direction.
    fn jobs(&self, direction: Direction) -> impl Iterator<Item = &JobReport> {
        self.report.jobs.iter().filter(move |job| job.direction(direction).total_ios > 0)
    }

    /// Requests per second of all jobs that ran together.
    pub fn iops(&self, direction: Direction) -> Option<f64> {
        self.jobs(direction)
            .map(|job| job.direction(direction).iops)
            .reduce(|one, other| one + other)
    }

    /// Bytes per second of all jobs that ran together.
    pub fn bytes_per_s(&self, direction: Direction) -> Option<f64> {
        let each = self.jobs(direction).map(|job| job.direction(direction).bw_bytes as f64);
        each.reduce(|one, other| one + other)
    }

    /// Mean response time of the first job (ms).
    pub fn mean_ms(&self, direction: Direction) -> Option<f64> {
        self.jobs(direction).next().map(|job| {
            let report = job.direction(direction);
            let ns = if report.lat_ns.count > 0 { report.lat_ns.mean } else { report.clat_ns.mean };
            ns / 1e6
        })
    }

    /// What a drive did during the whole step.
    pub fn total(&self, drive: usize) -> Traffic {
        self.moments.iter().filter_map(|moment| moment.drives.get(drive)).fold(
            Traffic::default(),
            |sum, traffic| Traffic {
                reads: sum.reads + traffic.reads,
                writes: sum.writes + traffic.writes,
                read_bytes: sum.read_bytes + traffic.read_bytes,
                write_bytes: sum.write_bytes + traffic.write_bytes,
            },
        )
    }
}

/// See the head of the file.
pub trait Bench {
    /// What it is, as the command line says it.
    fn name(&self) -> &str;

    /// Size of what jobs are played on.
    fn size_bytes(&self) -> u64;

    /// Time is simulated: hours cost moments, and the same seed gives the same figures.
    fn is_virtual(&self) -> bool;

    /// It is a file, which whatever lies behind its end would make longer.
    fn is_file(&self) -> bool {
        false
    }

    /// Drives whose activity can be seen.
    fn drives(&self) -> Vec<String>;

    /// Brings it to the condition it was in at first, where that is possible.
    ///
    /// # Errors
    /// A sentence.
    fn renew(&mut self) -> Result<(), String>;

    /// Plays a job file; through the operating system's page cache, if such is given. What that holds
    /// stays until it is brought to its first condition or started again.
    ///
    /// # Errors
    /// A sentence.
    fn play(
        &mut self,
        file: &JobFile,
        text: &str,
        limits: Limits,
        memory: Option<Memory>,
    ) -> Result<Outcome, String>;

    /// Does nothing for so long (ns), and says what the drives did meanwhile.
    ///
    /// # Errors
    /// A sentence.
    fn rest(&mut self, duration_ns: u64) -> Result<Vec<Moment>, String>;

    /// Shuts the machine down properly and starts it again: what was in memory is gone, what the
    /// drives hold is there.
    ///
    /// # Errors
    /// A sentence; also where this cannot be done by a program.
    fn restart(&mut self) -> Result<(), String>;

    /// Writes and flushes to a new drive of this kind until the plug is pulled, and looks at what
    /// is left.
    ///
    /// # Errors
    /// A sentence; also where this cannot be done by a program.
    fn pull_plug(&mut self, _: &Cut) -> Result<Outcome, String> {
        Err("nobody can pull a real plug from here: 'bimetal lab powercut' is for that".to_owned())
    }
}
