//! Workloads as fio job files: read, played in any world, reported in fio's own JSON.
//!
//! * [`JobFile::parse`] takes a documented subset of fio's format (docs/fio-jobs.md) and refuses
//!   everything else by file, line and option: a job that is played must mean what fio means by it.
//! * [`play`] runs the jobs against a [`Target`]: a twin in virtual time, a volume over two twins,
//!   or a device of the kernel. Real drives are measured by fio itself, with the same job file.
//! * [`Report`] is the result in the layout of `fio --output-format=json`, and [`Track`] what
//!   happened second by second, in the layout of fio's logs.

mod amount;
mod blocks;
mod distribution;
mod job;
mod job_file;
mod options;
mod order;
mod play;
mod rate;
mod report;
mod tally;
mod target;
mod track;

pub use amount::Amount;
pub use blocks::Blocks;
pub use distribution::Distribution;
pub use job::{Access, Direction, Job, PerDirection};
pub use job_file::{JobFile, Refusal};
pub use play::{Limits, Played, PlayedJob, play};
pub use report::{DirectionReport, JobReport, LatencyReport, Report};
pub(crate) use tally::Latencies;
pub use target::{Served, Target};
pub use track::{Slice, Track};
