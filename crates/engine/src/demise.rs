//! Noticing that a drive is gone while the volume is up.
//!
//! A failed operation may be a bad sector or a passing fault. Only a drive that gives neither copy
//! of its superblock any more, in several attempts, is gone. From then on it is not used, also
//! if it comes back: what its cache held may be missing, and nobody could tell. The volume takes no
//! more writes; what the other drive has can be read on.

use io::units::MILLISECOND_NS;

use crate::address::Tier;
use crate::drive::Drive;
use crate::format::superblock::{COPY_POSITIONS, SUPERBLOCK_BYTES};
use crate::shared::Shared;

/// Attempts before a drive counts as gone, and the pause between them: longer than a bus reset.
const ATTEMPTS: u32 = 3;
const PAUSE_NS: u64 = 200 * MILLISECOND_NS;

/// Looks at the drives that gave errors.
pub(crate) async fn look_at_suspects(shared: &Shared) {
    for tier in Tier::BOTH {
        let drive = shared.drive(tier);
        if !drive.is_suspect() || drive.gone().is_some() {
            continue;
        }
        let answer = answers(shared, drive).await;
        drive.clear_suspicion();
        if let Err(error) = answer {
            let why = format!("it stopped answering: {error}");
            drive.declare_gone(why.clone());
            // In write-through the slow drive goes on; then this is said there.
            let goes_on = tier == Tier::Fast && shared.state.borrow().through;
            if !goes_on {
                shared.state.borrow_mut().lose_drive(tier, why.clone());
            }
            let path = &drive.info().path;
            shared.poison(format!("the {tier} drive {path} is gone: {why}"));
        }
    }
}

/// Whether the drive gives a copy of its superblock, whatever stands in it.
async fn answers(shared: &Shared, drive: &Drive) -> Result<(), io::IoError> {
    let mut outcome = Ok(());
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            shared.io.sleep(PAUSE_NS).await;
        }
        for position in COPY_POSITIONS {
            let buf = shared.io.pool().take(SUPERBLOCK_BYTES);
            outcome = drive.read(position, buf).await.1;
            if outcome.is_ok() {
                return Ok(());
            }
        }
    }
    outcome
}
