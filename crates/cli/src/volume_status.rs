//! What `status` shows of a volume: one value, made by the server from the running engine or from
//! the superblocks when the volume is not served, and rendered as text here.
//!
//! The field names are part of the interface: scripts rely on them.

use std::path::PathBuf;

use engine::{Class, Superblock, Tier};
use export::{KindMeter, Meter};
use io::PoolUse;
use serde::{Deserialize, Serialize};

use crate::loss_status::LossStatus;

use judgement::{judge_at_rest, judge_live};

pub use durability::DurabilityStatus;
pub use policy::PolicyStatus;
pub use risk::RiskStatus;
pub use tuning::TuningStatus;

/// How a volume is, in a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    /// Served, and all is well.
    Online,
    /// Served, and something is wrong.
    Degraded,
    /// Not served, closed in order.
    Offline,
    /// Not served, and not closed in order: the next `serve` replays the log.
    Unclean,
    /// Not served, and cannot be as it is.
    Unavailable,
    /// Another process has its drives.
    InUse,
    /// Served by a process that does not answer.
    NotAnswering,
}

impl Health {
    /// The word as people read it.
    pub fn word(self) -> &'static str {
        match self {
            Health::Online => "ONLINE",
            Health::Degraded => "DEGRADED",
            Health::Offline => "OFFLINE",
            Health::Unclean => "UNCLEAN",
            Health::Unavailable => "UNAVAILABLE",
            Health::InUse => "IN USE",
            Health::NotAnswering => "NOT ANSWERING",
        }
    }

    /// Whether someone should look at it.
    pub fn is_degraded(self) -> bool {
        matches!(self, Health::Degraded | Health::Unavailable | Health::NotAnswering)
    }
}

/// One volume. Counters count since the server started; sizes are bytes, times microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct VolumeStatus {
    /// Its name.
    pub name: String,
    /// Its identity; `None` when no superblock could be read.
    pub volume: Option<String>,
    /// How it is.
    pub state: Health,
    /// What that means, a sentence.
    pub status: String,
    /// What to do, a sentence; `None` when there is nothing to do.
    pub action: Option<String>,
    /// Safety class.
    pub class: Option<String>,
    /// What clients see.
    pub size_bytes: Option<u64>,
    /// Unit of placement.
    pub extent_bytes: Option<u64>,
    /// Class cache: `writethrough`, `writearound` or `writeback`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Class cache: bytes that the slow drive does not have yet; `None` when not served.
    #[serde(default)]
    pub dirty_bytes: Option<u64>,
    /// What else is set; `None` when no superblock could be read.
    #[serde(default)]
    pub settings: Option<TuningStatus>,
    /// What flushes promise, and what a power cut could take now.
    pub durability: Option<DurabilityStatus>,
    /// RAM: for map, heat, log index and buffers now while served, else what the map will take when
    /// full.
    pub memory_bytes: Option<u64>,
    /// What of it is buffers.
    #[serde(default)]
    pub buffer_bytes: Option<u64>,
    /// Extents that hold data.
    pub extents_mapped: Option<u64>,
    /// Of these, those on the fast drive of which the slow drive has the same.
    #[serde(default)]
    pub extents_clean: Option<u64>,
    /// Of the mapped ones, those of which only some blocks are on the fast drive, and the others on the slow one.
    #[serde(default)]
    pub extents_in_part: Option<u64>,
    /// Who serves it; `None` when nobody does.
    pub server: Option<ServerStatus>,
    /// What cannot be read because a drive is gone or of damage; `None` while all is well.
    #[serde(default)]
    pub loss: Option<LossStatus>,
    /// What clients asked.
    pub requests: Option<RequestStatus>,
    /// Where clients' bytes were served.
    pub served: Option<ServedStatus>,
    /// Both drives.
    pub drives: DrivesStatus,
    /// What would be lost with a drive; `None` when not served.
    #[serde(default)]
    pub at_risk: Option<RiskStatus>,
    /// The landing log.
    pub log: Option<LogStatus>,
    /// Background moves.
    pub moves: Option<MoveStatus>,
    /// Placement; `None` when not served.
    #[serde(default)]
    pub policy: Option<PolicyStatus>,
    /// How the volume came up.
    pub recovery: Option<RecoveryStatus>,
}

/// The process that serves a volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    /// Its process number.
    pub pid: u32,
    /// Seconds since it was ready.
    pub uptime_s: u64,
    /// How it reaches the kernel.
    pub io: String,
    /// Writes are refused.
    pub read_only: bool,
    /// NBD addresses.
    pub uris: Vec<String>,
    /// NBD connections now.
    pub nbd_connections: usize,
    /// The volume as a file.
    pub fuse_file: Option<PathBuf>,
    /// The socket for virtual machines.
    pub vhost_user: Option<PathBuf>,
    /// The block device.
    pub ublk: Option<PathBuf>,
    /// Its reads that went from a drive straight into the client's memory; none where the kernel does not lend
    /// that (before Linux 6.15).
    #[serde(default)]
    pub ublk_uncopied_reads: Option<u64>,
    /// Openings for writing, counted from `create`.
    pub generation: u64,
}

/// Requests by kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestStatus {
    /// Reads.
    pub read: RequestKind,
    /// Writes.
    pub write: RequestKind,
    /// Trims.
    pub trim: RequestKind,
    /// Writes of zeros.
    pub zero: RequestKind,
    /// Flushes that clients asked for.
    pub flush: RequestKind,
}

/// Requests of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestKind {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many failed.
    pub errors: u64,
    /// Median latency.
    pub p50_us: u64,
    /// 99th percentile of latency.
    pub p99_us: u64,
    /// Longest latency.
    pub max_us: u64,
}

/// Where bytes that clients read or wrote were served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedStatus {
    /// The landing log.
    pub log_bytes: u64,
    /// Slots of the fast drive.
    pub fast_bytes: u64,
    /// Slots of the slow drive.
    pub slow_bytes: u64,
    /// The stage: extents of the slow drive in RAM.
    #[serde(default)]
    pub stage_bytes: u64,
    /// Holes: no drive was involved.
    pub hole_bytes: u64,
}

/// Both drives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrivesStatus {
    /// The fast one.
    pub fast: DriveStatus,
    /// The slow one.
    pub slow: DriveStatus,
}

/// How a drive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// In use or ready.
    Online,
    /// It gave errors, or is damaged, truncated or older than the other one.
    Faulty,
    /// It is not there, or is not a drive of this volume.
    Missing,
}

/// Why a drive cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unusable {
    /// Missing or faulty.
    pub state: DriveState,
    /// It is there, and as long as it is the volume is not served without it either: it is of another volume,
    /// an older copy, or truncated.
    pub is_in_the_way: bool,
    /// In words, without a full stop.
    pub problem: String,
}

impl Unusable {
    /// It is not there, or is not a drive of this volume.
    pub fn missing(problem: String) -> Unusable {
        Unusable { state: DriveState::Missing, is_in_the_way: false, problem }
    }

    /// It is another volume's.
    pub fn foreign(problem: String) -> Unusable {
        Unusable { is_in_the_way: true, ..Unusable::missing(problem) }
    }

    /// It is the volume's drive, and damaged.
    pub fn faulty(problem: String) -> Unusable {
        Unusable { state: DriveState::Faulty, is_in_the_way: false, problem }
    }

    /// It is the volume's drive, of another moment, or not all of it.
    pub fn unfit(problem: String) -> Unusable {
        Unusable { is_in_the_way: true, ..Unusable::faulty(problem) }
    }
}

impl DriveState {
    fn word(self) -> &'static str {
        match self {
            DriveState::Online => "ONLINE",
            DriveState::Faulty => "FAULTY",
            DriveState::Missing => "MISSING",
        }
    }
}

/// One drive. Operations and bytes are those sent to it, background work included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveStatus {
    /// Where it is.
    pub path: PathBuf,
    /// How it is.
    pub state: DriveState,
    /// Its size when it joined; `None` when its superblock could not be read.
    pub size_bytes: Option<u64>,
    /// Bytes of its slots that hold nothing; `None` when not served.
    pub free_bytes: Option<u64>,
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
    /// Failed operations.
    pub errors: u64,
    /// The first error, or what is wrong with the drive.
    pub problem: Option<String>,
}

/// The landing log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogStatus {
    /// Its size.
    pub size_bytes: u64,
    /// Used, dead records included.
    pub used_bytes: u64,
    /// Data that only the log holds.
    pub dirty_bytes: u64,
    /// Times a write waited because it was full.
    pub full_waits: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Time they took.
    #[serde(default)]
    pub checkpoint_us: u64,
    /// Map pages written, to each of both drives.
    #[serde(default)]
    pub map_pages_written: u64,
}

/// Bytes moved in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveStatus {
    /// Slow to fast.
    pub promoted_bytes: u64,
    /// Fast to slow.
    pub demoted_bytes: u64,
    /// Log to slots.
    pub destaged_bytes: u64,
    /// Written again at the log's end, instead of to slots.
    #[serde(default)]
    pub carried_bytes: u64,
    /// Class cache: fast to slow, and kept on the fast drive.
    #[serde(default)]
    pub cleaned_bytes: u64,
}

/// How a volume came up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryStatus {
    /// It had not been closed in order.
    pub unclean: bool,
    /// Log records replayed.
    pub records: u64,
    /// Log bytes read.
    pub log_bytes: u64,
    /// How long it took.
    pub duration_us: u64,
    /// Map pages taken from another copy.
    pub pages_repaired: u64,
    /// Log blocks that are damaged.
    pub blocks_damaged: u64,
}

impl From<KindMeter> for RequestKind {
    fn from(meter: KindMeter) -> RequestKind {
        let KindMeter { count, bytes, errors, p50_us, p99_us, max_us } = meter;
        RequestKind { count, bytes, errors, p50_us, p99_us, max_us }
    }
}

impl From<engine::DriveStatus> for DriveStatus {
    fn from(drive: engine::DriveStatus) -> DriveStatus {
        let faulty = drive.traffic.errors > 0;
        DriveStatus {
            path: drive.path.into(),
            state: match (&drive.gone, faulty) {
                (Some(_), _) => DriveState::Missing,
                (None, true) => DriveState::Faulty,
                (None, false) => DriveState::Online,
            },
            size_bytes: None,
            free_bytes: None,
            reads: drive.traffic.reads,
            read_bytes: drive.traffic.read_bytes,
            writes: drive.traffic.writes,
            write_bytes: drive.traffic.write_bytes,
            flushes: drive.traffic.flushes,
            errors: drive.traffic.errors,
            problem: drive.gone.or(drive.first_error.map(|error| error.to_string())),
        }
    }
}

impl VolumeStatus {
    /// A volume that is being served.
    pub fn live(
        engine: engine::Status,
        buffers: PoolUse,
        meter: Meter,
        server: ServerStatus,
    ) -> VolumeStatus {
        let geometry = &engine.geometry;
        let drives = engine.drives.clone().map(|drive| {
            let layout = &geometry.layouts[drive.tier.index()];
            let free_bytes = drive.slots_free * geometry.extent_bytes;
            DriveStatus {
                size_bytes: Some(layout.drive_bytes),
                free_bytes: Some(free_bytes),
                ..DriveStatus::from(drive)
            }
        });
        let [fast, slow] = drives;
        let (state, status, action) = judge_live(&engine, &fast, &slow);
        let durability = DurabilityStatus::of(&engine);
        let at_risk = RiskStatus::of(&engine);
        VolumeStatus {
            name: engine.name,
            volume: Some(engine.volume_id.to_string()),
            state,
            status,
            action,
            class: Some(geometry.class.name().to_owned()),
            size_bytes: Some(geometry.volume_bytes),
            extent_bytes: Some(geometry.extent_bytes),
            mode: engine.cache_mode.map(|mode| mode.to_string()),
            dirty_bytes: engine.cache_mode.map(|_| engine.dirty_bytes),
            settings: Some(engine.policy.tuning.into()),
            durability: Some(durability),
            at_risk: Some(at_risk),
            memory_bytes: Some(engine.memory_bytes + buffers.held_bytes as u64),
            buffer_bytes: Some(buffers.held_bytes as u64),
            extents_mapped: Some(engine.extents_mapped),
            extents_clean: Some(engine.extents_clean),
            extents_in_part: Some(engine.extents_in_part),
            server: Some(server),
            loss: engine.loss.map(LossStatus::from),
            requests: Some(RequestStatus {
                read: meter.read.into(),
                write: meter.write.into(),
                trim: meter.trim.into(),
                zero: meter.zero.into(),
                flush: meter.flush.into(),
            }),
            served: Some(ServedStatus {
                log_bytes: engine.served.log_bytes,
                fast_bytes: engine.served.fast_bytes,
                slow_bytes: engine.served.slow_bytes,
                stage_bytes: engine.served.stage_bytes,
                hole_bytes: engine.served.hole_bytes,
            }),
            drives: DrivesStatus { fast, slow },
            log: Some(LogStatus {
                size_bytes: engine.log.size_bytes,
                used_bytes: engine.log.used_bytes,
                dirty_bytes: engine.log.dirty_bytes,
                full_waits: engine.log.full_waits,
                checkpoints: engine.log.checkpoints,
                checkpoint_us: engine.log.checkpoint_ns / 1000,
                map_pages_written: engine.log.map_pages_written,
            }),
            moves: Some(MoveStatus {
                promoted_bytes: engine.moves.promoted_bytes,
                demoted_bytes: engine.moves.demoted_bytes,
                destaged_bytes: engine.moves.destaged_bytes,
                carried_bytes: engine.moves.carried_bytes,
                cleaned_bytes: engine.moves.cleaned_bytes,
            }),
            policy: Some(engine.policy.into()),
            recovery: Some(RecoveryStatus {
                unclean: engine.recovery.unclean,
                records: engine.recovery.records,
                log_bytes: engine.recovery.log_bytes,
                duration_us: engine.recovery.duration_ns / io::units::MICROSECOND_NS,
                pages_repaired: engine.recovery.pages_repaired,
                blocks_damaged: engine.recovery.blocks_damaged,
            }),
        }
    }

    /// A volume that is not served, from what could be read of its drives: a superblock, or what
    /// is wrong.
    pub fn at_rest(
        name: &str,
        fast: (PathBuf, Result<Superblock, Unusable>),
        slow: (PathBuf, Result<Superblock, Unusable>),
    ) -> VolumeStatus {
        let any = fast.1.as_ref().or(slow.1.as_ref()).ok().cloned();
        let fast_mode = fast.1.as_ref().ok().map(|superblock| superblock.flush_mode);
        let (state, status, action) = judge_at_rest(name, &fast.1, &slow.1);
        let drive =
            |tier: Tier, (path, found): (PathBuf, Result<Superblock, Unusable>)| DriveStatus {
                path,
                state: found
                    .as_ref()
                    .map_or_else(|unusable| unusable.state, |_| DriveState::Online),
                size_bytes: any.as_ref().map(|any| any.geometry.layouts[tier.index()].drive_bytes),
                free_bytes: None,
                reads: 0,
                read_bytes: 0,
                writes: 0,
                write_bytes: 0,
                flushes: 0,
                errors: 0,
                problem: found.err().map(|unusable| unusable.problem),
            };
        let geometry = any.as_ref().map(|any| &any.geometry);
        VolumeStatus {
            name: name.to_owned(),
            volume: any.as_ref().map(|any| any.volume_id.to_string()),
            state,
            status,
            action,
            class: geometry.map(|geometry| geometry.class.name().to_owned()),
            size_bytes: geometry.map(|geometry| geometry.volume_bytes),
            extent_bytes: geometry.map(|geometry| geometry.extent_bytes),
            mode: any
                .as_ref()
                .filter(|any| any.geometry.class == Class::Cache)
                .map(|any| any.cache_mode.to_string()),
            dirty_bytes: None,
            settings: any.as_ref().map(|any| any.tuning.into()),
            durability: fast_mode.map(DurabilityStatus::at_rest),
            at_risk: None,
            memory_bytes: geometry.map(|geometry| geometry.map_memory_bytes()),
            buffer_bytes: None,
            extents_mapped: None,
            extents_clean: None,
            extents_in_part: None,
            server: None,
            loss: None,
            requests: None,
            served: None,
            log: None,
            moves: None,
            policy: None,
            recovery: None,
            drives: DrivesStatus { fast: drive(Tier::Fast, fast), slow: drive(Tier::Slow, slow) },
        }
    }

    /// The same volume, whose drives `user` has: what its superblocks say is not the whole truth.
    #[must_use]
    pub fn used_by(self, user: &str) -> VolumeStatus {
        if !matches!(self.state, Health::Offline | Health::Unclean) {
            return self;
        }
        VolumeStatus {
            state: Health::InUse,
            status: format!("The volume's drives are in use by {user}."),
            action: Some(
                "If it is a server, ask it with the --config-dir it was started with, or end it."
                    .to_owned(),
            ),
            ..self
        }
    }

    /// The same volume, whose server `pid` does not answer.
    #[must_use]
    pub fn not_answered(self, pid: u32, why: &str) -> VolumeStatus {
        VolumeStatus {
            state: Health::NotAnswering,
            status: format!("The volume is served by process {pid}, which does not answer: {why}."),
            action: Some(format!(
                "Let it go on if it was stopped (kill -CONT {pid}), look at what its drives do, or \
                 end it: nothing that was flushed is lost."
            )),
            ..self
        }
    }
}

mod advice;
mod durability;
mod judgement;
mod policy;
mod risk;
mod text;
mod tuning;

#[cfg(test)]
mod tests;
