//! Verifying by their data those extents whose slots were written last: nobody says that they arrived.

use std::collections::VecDeque;

use super::Source;
use super::replay::nonsense;
use crate::address::{ExtentId, Home, Lsn, Tier};
use crate::canary::canary;
use crate::checksum::crc32c;
use crate::error::Error;
use crate::marks::{self, Mark};
use crate::state::State;

/// Extents verified at once.
const VERIFY_AHEAD: usize = 8;

/// An allocation that must be verified by its data.
pub(super) struct Pending {
    pub lsn: Lsn,
    pub extent: ExtentId,
    pub home: Home,
    pub crc: u32,
}

/// Verifies allocations that nobody claimed durable; gives the LSN of the first whose data did
/// not arrive.
pub(super) async fn verify(
    source: &Source<'_>,
    state: &mut State,
    pending: Vec<Pending>,
) -> Result<Option<Lsn>, Error> {
    let geometry = &source.superblock.geometry;
    let mut under_way = VecDeque::new();
    let mut pending = pending.into_iter();
    loop {
        while under_way.len() < VERIFY_AHEAD
            && let Some(allocation) = pending.next()
        {
            let home = allocation.home;
            if home.slot.0 >= geometry.layouts[home.tier.index()].slots {
                give_up(state, &allocation, nonsense(allocation.lsn))?;
                continue;
            }
            let drive = if home.tier == Tier::Fast { source.fast } else { source.slow };
            if drive.gone().is_some() {
                // Whether it arrived or not, the extent is lost.
                continue;
            }
            let buf = source.io.pool().take(geometry.extent_bytes as usize);
            under_way.push_back((allocation, drive.read(geometry.position(home), buf)));
        }
        let Some((allocation, transfer)) = under_way.pop_front() else { return Ok(None) };
        let (buf, outcome) = transfer.await;
        // Whether the data arrived before the crash cannot be known: to take it for missing could
        // lose flushed writes, to take it for present could show what was never written.
        if let Err(error) = outcome {
            let at = allocation.extent.0 * geometry.extent_bytes;
            let refusal = error.within(format!(
                "the volume's bytes {at} to {} were written shortly before the crash, to byte {} \
                 of the {} drive, which cannot be read now. Nothing was changed and nothing is \
                 given up: make the drive readable again (cable, power, controller), or restore \
                 that range from an image, and open the volume again",
                at + geometry.extent_bytes,
                geometry.position(allocation.home),
                allocation.home.tier,
            ));
            give_up(state, &allocation, refusal.into())?;
            continue;
        }
        if crc32c(&buf) != allocation.crc && !canary!(FreshUnchecked) {
            return Ok(Some(allocation.lsn));
        }
        marks::hit(Mark::FreshVerified);
    }
}

/// An allocation of which nobody knows whether it happened.
fn give_up(state: &mut State, allocation: &Pending, refusal: Error) -> Result<(), Error> {
    let Some(rescue) = &mut state.rescue else { return Err(refusal) };
    rescue.note(refusal.to_string());
    rescue.lose(allocation.extent);
    Ok(())
}
