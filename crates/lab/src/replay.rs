//! Block traces played again: on two twins fused by the engine that ships, on a twin alone, or on
//! anything else with blocks.
//!
//! * [`play`] asks any [`Target`](crate::fio::Target) what the trace asked, at its own pace or as fast as
//!   it goes.
//! * [`Pair`] is a volume of two twins in virtual time, on which what the trace touches lies before it
//!   begins; [`Sizing`] tries such volumes with fast drives of several sizes.
//! * [`Ground`] puts a trace on a volume that is smaller than the one it was recorded on.

mod ground;
mod latency;
mod pair;
mod play;
mod single;
mod sizing;
#[cfg(test)]
mod tests;

use serde::Serialize;

pub use ground::Ground;
pub use latency::Latency;
pub use pair::{Pair, PairClass, PairSpec};
pub use play::{Played, Speed, play};
pub use single::alone;
pub use sizing::{Advice, Goal, Size, Sizing, Try};

/// What came of a replay. Bytes and times are those after the warm-up.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Requests that ended.
    pub requests: u64,
    /// Of these.
    pub reads: u64,
    /// See `reads`.
    pub writes: u64,
    /// See `reads`.
    pub flushes: u64,
    /// See `reads`.
    pub discards: u64,
    /// Bytes that were read.
    pub read_bytes: u64,
    /// Bytes that were written.
    pub write_bytes: u64,
    /// How long it took on the clock of its world.
    pub seconds: f64,
    /// How far requests were behind the times of the trace at most (ms); 0 at full speed.
    pub behind_ms: f64,
    /// All reads and writes.
    pub latency: Latency,
    /// Reads alone.
    pub read_latency: Latency,
    /// Writes alone.
    pub write_latency: Latency,
    /// Flushes alone.
    pub flush_latency: Latency,
    /// What the two drives of a fused volume had to do; `None` elsewhere.
    pub volume: Option<VolumeOutcome>,
    /// What a twin alone had to do; `None` elsewhere.
    pub drive: Option<DriveOutcome>,
}

/// What a replay cost a drive that had all of it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct DriveOutcome {
    /// Seconds that it had a request under way.
    pub busy_s: f64,
    /// The same, as a share of the time.
    pub busy_share: f64,
}

/// What a replay cost the drives of a volume.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VolumeOutcome {
    /// Size of the fast drive, everything on it included.
    pub fast_bytes: u64,
    /// Share of the read bytes that came without the slow drive, 0 to 1.
    pub read_hit: f64,
    /// Seconds that the slow drive had a request under way.
    pub slow_busy_s: f64,
    /// The same, as a share of the time.
    pub slow_busy_share: f64,
    /// Flushes sent to the slow drive, for clients and for the volume itself.
    pub slow_flushes: u64,
    /// Bytes that moved up.
    pub promoted_bytes: u64,
    /// Bytes that moved down from slots.
    pub demoted_bytes: u64,
    /// Bytes that moved down from the log.
    pub destaged_bytes: u64,
    /// Bytes written to the fast drive, for whatever reason: log, in place, moved up, map.
    pub fast_written_bytes: u64,
    /// The same for each byte of clients.
    pub fast_received_per_byte: f64,
    /// Bytes promoted, and those alone, for each byte of clients: what a policy is compared by, under the
    /// name that it has in the rows of all policies.
    pub fast_written_per_byte: f64,
    /// Bytes promoted or demoted for each byte of clients.
    pub moved_per_byte: f64,
    /// Bytes that only the log has at the end.
    pub log_left_bytes: u64,
}
