//! What is attacked: anything that makes a volume of two drives.

use engine::{CacheMode, FlushMode, Tier};
use io::{Device, ErrorKind, Io, IoError, Volume};
use twin::Simulation;

/// A volume under attack. Clones are the same volume.
#[allow(async_fn_in_trait)] // One thread per machine: futures need not be Send.
pub trait Prey: Volume + Clone {
    /// Reads from a drive so far, its own work included.
    fn drive_reads(&self, _tier: Tier) -> u64 {
        0
    }

    /// Whether what has ended may be in its memory alone, so that it dies with the process.
    fn writes_behind(&self) -> bool {
        true
    }

    /// What flushes promise.
    fn flush_mode(&self) -> FlushMode {
        FlushMode::Strict
    }

    /// Changes what flushes promise.
    async fn set_flush_mode(&self, _mode: FlushMode) -> Result<(), IoError> {
        Err(IoError::new(ErrorKind::Unsupported, "flushes promise what they promise"))
    }

    /// Class cache: changes when writes are on the slow drive.
    async fn set_cache_mode(&self, _mode: CacheMode) -> Result<(), IoError> {
        Err(IoError::new(ErrorKind::Unsupported, "it is no cache"))
    }

    /// Class span: what goes up keeps its slot below from now on, or does not.
    async fn set_inclusion(&self, _on: bool) -> Result<(), IoError> {
        Err(IoError::new(ErrorKind::Unsupported, "it has one place for everything"))
    }
}

/// Makes, opens, closes and checks volumes. Errors are sentences.
#[allow(async_fn_in_trait)] // One thread per machine: futures need not be Send.
pub trait Subject: Sync {
    /// The volume it serves.
    type Volume: Prey;

    /// Makes a volume of two drives; what they held is lost. Done means durable.
    async fn create(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String>;

    /// Opens the volume, after whatever has happened to its drives.
    async fn open(&self, io: &Io, fast: &Device, slow: &Device) -> Result<Self::Volume, String>;

    /// Opens the volume with what is on one drive, the other one lost; `None` when it cannot.
    async fn open_alone(
        &self,
        _io: &Io,
        _survivor: Tier,
        _drive: &Device,
    ) -> Result<Option<Self::Volume>, String> {
        Ok(None)
    }

    /// Lets the map rot on one drive of a machine at rest, where the other drive or the log has what is
    /// lost; `false`: there is nothing to rot.
    fn spoil_map(&self, _simulation: &Simulation, _tier: Tier) -> bool {
        false
    }

    /// Lets the newer copies of the map rot on one drive of a machine at rest; `false`: there are none,
    /// or they are promised to be more than their older ones. `closed`: the volume was closed in order.
    fn spoil_newer_copies(&self, _simulation: &Simulation, _tier: Tier, _closed: bool) -> bool {
        false
    }

    /// Whether one drive of a machine at rest says that the volume goes on with it alone.
    fn goes_on(&self, _simulation: &Simulation, _survivor: Tier) -> bool {
        false
    }

    /// Ends it well. Everything written is durable then.
    async fn close(&self, volume: Self::Volume) -> Result<(), String>;

    /// Verifies the invariants of what is on the drives; nothing is open.
    async fn check(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String>;
}
