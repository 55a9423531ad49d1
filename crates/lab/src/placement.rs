//! Which extents should be on the fast drive: traces played through placement policies, with the
//! slow drive's time as the measure.
//!
//! This is the study in which policies are compared: a plain model of the slow drive
//! ([`SlowDrive`]), a landing log, a stage in RAM, slots, and every policy behind the same
//! interface: what the engine asks ([`Policy`]) and what a comparison asks on top ([`Contender`]). Everything starts on the slow drive, as on a volume that has been in
//! use with the fast drive emptied. What moves is counted and costs time.

mod contender;
mod ground;
mod landing;
pub mod policies;
mod replay;
mod rests;
mod slow_drive;
mod stage;
#[cfg(test)]
mod tests;

pub use contender::{Contender, Moment};
pub use ground::{Extent, Ground};
pub use policy::{Occasion, Policy, Refusal, Touch};
pub use replay::{Outcome, Setup, replay};
pub use slow_drive::SlowDrive;

use std::collections::BTreeMap;

use crate::trace::Event;

/// One policy on one trace at one size, as printed.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Row {
    /// The trace's name.
    pub trace: String,
    /// The policy's name.
    pub policy: String,
    /// The fast drive's size in percent of the extents that the trace touches.
    pub size_percent: f64,
    /// Share of read requests that did not need the slow drive.
    pub read_hit: f64,
    /// Time the slow drive was busy, moves included.
    pub slow_busy_s: f64,
    /// The same in percent of what it would be without a fast drive.
    pub slow_busy_percent: f64,
    /// Of that, the time it took to bring home what the log had.
    pub destage_s: f64,
    /// Bytes written to the fast drive by moves, for each byte that clients read or wrote.
    pub fast_written_per_byte: f64,
    /// Bytes moved up and down, for each byte that clients read or wrote.
    pub moved_per_byte: f64,
    /// Mean time of a request, nothing else going on, in microseconds.
    pub mean_us: f64,
    /// The time within which half of the requests ended.
    pub p50_us: f64,
    /// The time within which 99 of 100 did.
    pub p99_us: f64,
    /// The time within which 999 of 1000 did.
    pub p999_us: f64,
    /// How often the policy allowed or refused something, by reason.
    pub decisions: BTreeMap<&'static str, u64>,
}

/// How many policies [`compare`] plays.
pub const POLICIES: usize = 9;

/// All policies at one size, the offline ones included. `progress` is told each that is done.
pub fn compare(
    trace: &str,
    events: &[Event],
    percent: f64,
    mut progress: impl FnMut(&str),
) -> Vec<Row> {
    let ground = Ground::of(events, EXTENT_BYTES);
    let setup = Setup::percent_of(&ground, percent);
    let bare = replay(events, &ground, &Setup::bare(), &mut policies::Nothing);
    let mut rows = Vec::new();
    let mut add = |policy: &mut dyn Contender| {
        let outcome = replay(events, &ground, &setup, policy);
        progress(policy.name());
        rows.push(outcome.row(trace, policy.name(), percent, bare.slow_busy_s));
    };
    let slots = setup.slots;
    add(&mut policies::Nothing);
    add(&mut policies::Fixed::best(events, &ground, slots, &setup));
    add(&mut policies::Lru::new(&ground, slots));
    add(&mut policies::MultiQueue::new(&ground, slots));
    add(&mut policies::S3Fifo::new(&ground, slots));
    add(&mut policies::Fusion::new(&ground, slots));
    add(&mut heat(&ground, &setup));
    add(&mut policies::EpochOracle::new(events, &ground, slots));
    add(&mut policies::Clairvoyant::new(events, &ground, slots));
    assert_eq!(rows.len(), POLICIES, "the constant is what callers count with");
    rows
}

/// The policy that ships, for a replay.
pub fn heat(ground: &Ground, setup: &Setup) -> policies::Heat {
    let (extents, slots) = (ground.extents() as u64, setup.slots as u64);
    policies::Heat::new(extents, slots, ground.extent_bytes(), setup.log_bytes)
}

/// The unit of placement, as in a volume.
pub const EXTENT_BYTES: u64 = 128 << 10;
