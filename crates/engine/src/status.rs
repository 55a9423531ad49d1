//! What can be seen of a running volume: plain numbers, copied out of the state.

use io::IoError;
use policy::{Decisions, GHOST_QUARTERS};

use crate::address::Tier;
use crate::cache_mode::CacheMode;
use crate::error::Poison;
use crate::flush_mode::FlushMode;
use crate::format::superblock::Uuid;
use crate::geometry::Geometry;
use crate::loss::LossSummary;
use crate::quiet::Wakes;
use crate::tuning::Tuning;

/// Operations and bytes that went to one drive since the volume was opened, background included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DriveUse {
    /// Read operations.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write operations.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes sent.
    pub flushes: u64,
    /// Operations that failed.
    pub errors: u64,
}

/// One drive of a running volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveStatus {
    /// Fast or slow.
    pub tier: Tier,
    /// How the drive was named when it was opened.
    pub path: String,
    /// Identity in its superblock.
    pub drive_id: Uuid,
    /// Slots for extents.
    pub slots: u64,
    /// Slots that hold nothing.
    pub slots_free: u64,
    /// What went to the drive.
    pub traffic: DriveUse,
    /// The first error it gave.
    pub first_error: Option<IoError>,
    /// Why it is not used any more, if it is gone.
    pub gone: Option<String>,
}

/// Requests of one kind from clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestUse {
    /// Requests.
    pub count: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Where bytes that clients read or wrote were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Served {
    /// From and into the landing log.
    pub log_bytes: u64,
    /// From and into slots of the fast drive.
    pub fast_bytes: u64,
    /// From and into slots of the slow drive.
    pub slow_bytes: u64,
    /// Read from the stage: extents of the slow drive in RAM.
    pub stage_bytes: u64,
    /// Read from holes (zeros, no drive involved).
    pub hole_bytes: u64,
}

/// What a power cut could take now: changes that are ordered and not durable. Counted in deferred
/// mode only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Exposed {
    /// Their bytes.
    pub bytes: u64,
    /// Time since the oldest was made, in nanoseconds.
    pub age_ns: u64,
}

/// Write-behind: what is acknowledged and on its way to a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BehindStatus {
    /// The most that may be; 0: it is off.
    pub bytes_max: u64,
    /// Bytes now.
    pub bytes: u64,
    /// Time since the oldest was acknowledged, in nanoseconds.
    pub age_ns: u64,
}

/// The landing log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogStatus {
    /// Size of the ring.
    pub size_bytes: u64,
    /// Between tail and head: live data and what waits for a checkpoint.
    pub used_bytes: u64,
    /// Data that only the log holds (not destaged yet).
    pub dirty_bytes: u64,
    /// Times a write had to wait because the log was full.
    pub full_waits: u64,
    /// Checkpoints since the volume was opened.
    pub checkpoints: u64,
    /// Time they took, in nanoseconds.
    pub checkpoint_ns: u64,
    /// Map pages written since then, to each of both drives.
    pub map_pages_written: u64,
}

/// Bytes moved in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moves {
    /// From slow to fast slots.
    pub promoted_bytes: u64,
    /// From fast to slow slots.
    pub demoted_bytes: u64,
    /// From the log to slots.
    pub destaged_bytes: u64,
    /// Written again at the log's end, instead of to the slow drive.
    pub carried_bytes: u64,
    /// Class cache: written home of what only the fast drive had, where it stays as a clean copy.
    pub cleaned_bytes: u64,
}

/// What the placement policy does.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PolicyStatus {
    /// What was decided, by reason.
    pub decisions: Decisions,
    /// Size of the stage.
    pub stage_bytes_max: u64,
    /// What is in it.
    pub stage_bytes: u64,
    /// What a small read costs on the slow drive, as measured, in microseconds.
    pub read_us: f64,
    /// What the read of a whole extent costs there, in microseconds.
    pub around_us: f64,
    /// What is set.
    pub tuning: Tuning,
    /// How often the slow drive of a quiet volume was woken.
    pub wakes: Wakes,
    /// For each of [`policy::GHOST_QUARTERS`] the share of the reads, streams left out, that a fast
    /// drive of so many quarters of its size would have served lately.
    pub ghosts: Option<[f64; GHOST_QUARTERS.len()]>,
    /// Clients' requests to the slow drive that met background work which could have waited.
    pub met: u64,
}

/// How the volume came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovery {
    /// It had not been closed in order.
    pub unclean: bool,
    /// Log records replayed.
    pub records: u64,
    /// Bytes of log read.
    pub log_bytes: u64,
    /// Time from opening to ready, in nanoseconds.
    pub duration_ns: u64,
    /// Map pages taken from another copy because the newest was damaged.
    pub pages_repaired: u64,
    /// Log blocks whose data is damaged; reading them gives an error.
    pub blocks_damaged: u64,
}

/// A running volume.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// Name given at `create`.
    pub name: String,
    /// Identity.
    pub volume_id: Uuid,
    /// Opening for writing, counted from 1.
    pub generation: u64,
    /// Shape.
    pub geometry: Geometry,
    /// Opened read-only.
    pub read_only: bool,
    /// Why the volume stopped taking writes, if it did.
    pub poisoned: Option<Poison>,
    /// What cannot be read because a drive is gone, or because of damage.
    pub loss: Option<LossSummary>,
    /// The fast and the slow drive.
    pub drives: [DriveStatus; 2],
    /// Read requests.
    pub reads: RequestUse,
    /// Write requests.
    pub writes: RequestUse,
    /// Trim and write-zeroes requests.
    pub trims: RequestUse,
    /// Flushes that clients asked for (forced unit access included).
    pub flushes_asked: u64,
    /// Where requests were served.
    pub served: Served,
    /// Of that, reads.
    pub served_reads: Served,
    /// Class cache: when writes are on the slow drive.
    pub cache_mode: Option<CacheMode>,
    /// Class cache: the fast drive is gone, and the volume goes on without it.
    pub alone: bool,
    /// Class cache: bytes that the slow drive does not have. In any class, at least what only the
    /// landing log has.
    pub dirty_bytes: u64,
    /// What clients' flushes promise.
    pub flush_mode: FlushMode,
    /// What a power cut could take now.
    pub exposed: Exposed,
    /// Write-behind.
    pub behind: BehindStatus,
    /// The landing log.
    pub log: LogStatus,
    /// Background moves.
    pub moves: Moves,
    /// Placement.
    pub policy: PolicyStatus,
    /// Extents that hold data.
    pub extents_mapped: u64,
    /// Of these, those on the fast drive of which the slow drive has the same: their originals take
    /// slots there.
    pub extents_clean: u64,
    /// Class cache: extents of which only some blocks are on the fast drive, all of them dirty.
    pub extents_in_part: u64,
    /// What of them is there.
    pub part_bytes: u64,
    /// RAM for map, heat, bitmaps and the log index, as allocated now, in bytes.
    pub memory_bytes: u64,
    /// How the volume came up.
    pub recovery: Recovery,
}
