//! Simulated drives under virtual time: the other world behind the seam.
//!
//! A [`Simulation`] owns drives that outlive executors: boot one, run, cut the power, boot
//! another. Everything in it is decided by its seed. docs/simulation.md has the rules and why
//! each is something a real drive may do.
//!
//! It knows nothing of what runs on it.

mod bench;
mod cache;
mod change;
mod controller;
mod disk;
mod drive;
mod fault;
mod flash;
mod life;
mod loss;
mod medium;
mod mischief;
mod model;
mod paced;
mod pool;
mod port;
mod profile;
mod raid5;
mod random;
mod simulation;
mod state;
mod trace;

pub use bench::{Bench, Load, Pattern, Rate};
pub use drive::{DriveCounters, DriveSpec};
pub use fault::{ALWAYS_PPM, Fault, FaultCounts, Faults, Harm};
pub use loss::{CacheLoss, ReorderBound};
pub use medium::{NumberHasher, NumberMap};
pub use model::{Finished, Kind, Latencies, Model, Request};
pub use paced::Paced;
pub use profile::{
    Condition, Number, PROFILE_SCHEMA, Part, Profile, ProfileError, ProfileFile, Setting,
};
pub use random::{Random, mix};
pub use simulation::{DriveId, DriveImage, Outcome, Simulation, Snapshot};
pub use state::{CutPoint, Moment};
