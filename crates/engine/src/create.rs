//! Making a volume of two drives, recognising one, and ending one.

use io::units::MIB;
use io::{Device, Io};

use crate::address::Tier;
use crate::doubts::{self, Doubts};
use crate::drive::Drive;
use crate::error::Error;
use crate::format::superblock::{
    COPY_POSITIONS, DOUBT_PAGE, FIRST_LSN, SUPERBLOCK_BYTES, State, Superblock, Uuid,
};
use crate::geometry::{CreateOptions, Geometry, plan};
use crate::superblocks;
use crate::wishes::Wishes;

/// Metadata is zeroed in pieces of this size, so that progress can be shown.
const ZERO_STEP_BYTES: u64 = 64 * MIB;

/// Who a volume is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Name given at `create`.
    pub name: String,
    /// Identity of the volume.
    pub volume_id: Uuid,
    /// Identities of the fast and slow drive.
    pub drive_ids: [Uuid; 2],
    /// Shape of the volume.
    pub geometry: Geometry,
}

/// What `inspect` found on a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inspection {
    /// A drive of a bimetal volume.
    Member(Box<Superblock>),
    /// No bimetal superblock.
    NotAMember,
}

/// Makes a volume of two drives; whatever they held is lost. `progress` is told bytes done and
/// total.
///
/// A crash in between leaves drives that are recognised as half-made.
///
/// # Errors
/// `Error::Geometry` before anything is touched, or a device's error.
pub async fn create(
    io: &Io,
    fast: &Device,
    slow: &Device,
    options: CreateOptions,
    progress: &dyn Fn(u64, u64),
) -> Result<Identity, Error> {
    let geometry = plan(fast.info(), slow.info(), &options)?;
    let in_parts = geometry.fits_parts();
    let mut superblock = Superblock {
        role: Tier::Fast,
        volume_id: Uuid::from_random(io.random(), io.random()),
        drive_ids: [(); 2].map(|()| Uuid::from_random(io.random(), io.random())),
        name: options.name,
        state: State::Creating,
        geometry,
        generation: 0,
        session: 0,
        sequence: 1,
        log_tail: FIRST_LSN,
        log_session_start: FIRST_LSN,
        log_durable: FIRST_LSN,
        flush_mode: options.flush_mode,
        cache_mode: options.cache_mode,
        alone: false,
        tuning: options.tuning,
        wishes: Wishes::default(),
        two_places: options.tuning.inclusion,
        in_parts,
        read_only_compatible: DOUBT_PAGE,
    };
    let devices = [fast, slow];
    let drives = Tier::BOTH.map(|tier| Drive::new(tier, devices[tier.index()].clone(), 0));
    for drive in &drives {
        superblock.role = drive.tier();
        superblocks::write(io, drive, &superblock).await?;
    }
    let total = superblock.geometry.layouts.iter().map(|layout| layout.map_bytes).sum();
    let mut done = 0;
    for drive in &drives {
        let layout = superblock.geometry.layouts[drive.tier().index()];
        let device = devices[drive.tier().index()];
        // Blank pages mean holes, so the map must not keep what the drive held before. The log
        // needs no zeroing: its records carry the volume's identity.
        let end = layout.map_at + layout.map_bytes;
        let mut at = layout.map_at;
        while at < end {
            let length = ZERO_STEP_BYTES.min(end - at);
            device.write_zeroes(at, length).await?;
            at += length;
            done += length;
            progress(done, total);
        }
        // The first 4 KiB stay zero: no foreign signature may survive there.
        let first = io.pool().take_zeroed(COPY_POSITIONS[0] as usize);
        device.write(0, first).await.1?;
        if drive.tier() == Tier::Slow {
            // Nothing was ever written: the slow drive may vouch for every hole.
            let doubts = Doubts::new(&superblock.geometry);
            let nothing = doubts.nothing();
            let copies = doubts.copies(io.pool(), superblock.volume_tag(), &nothing);
            doubts::write(drive, copies).await?;
        }
        device.flush().await?;
    }
    superblock.state = State::Clean;
    superblock.sequence += 1;
    // Slow first: a volume whose fast drive is still `Creating` is refused as half-made.
    for drive in drives.iter().rev() {
        superblock.role = drive.tier();
        superblocks::write(io, drive, &superblock).await?;
    }
    Ok(Identity {
        name: superblock.name,
        volume_id: superblock.volume_id,
        drive_ids: superblock.drive_ids,
        geometry: superblock.geometry,
    })
}

/// Says whether a drive belongs to a bimetal volume, and to which.
///
/// # Errors
/// When the drive cannot be read, or holds a superblock that cannot be used.
pub async fn inspect(io: &Io, device: &Device) -> Result<Inspection, Error> {
    Ok(match superblocks::read(io, device).await? {
        Some(found) => Inspection::Member(Box::new(found.superblock)),
        None => Inspection::NotAMember,
    })
}

/// Wipes the superblocks of one drive, so that it is no longer part of a volume. The data is not
/// erased, but cannot be found again.
///
/// # Errors
/// A device's error.
pub async fn destroy(io: &Io, device: &Device) -> Result<(), Error> {
    for position in COPY_POSITIONS {
        if position + SUPERBLOCK_BYTES as u64 > device.info().size_bytes {
            continue;
        }
        device.write(position, io.pool().take_zeroed(SUPERBLOCK_BYTES)).await.1?;
    }
    device.flush().await?;
    Ok(())
}
