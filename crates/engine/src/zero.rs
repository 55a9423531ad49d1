//! Trim and write-zeroes: whole extents become holes and give their slots back; parts of extents
//! become zero marks in the log, which destage turns into zeros at home.

use std::rc::Rc;

use io::ZeroMode;

use crate::address::{BLOCK_BYTES, BlockId, ExtentId};
use crate::alone;
use crate::canary::canary;
use crate::error::Error;
use crate::flush::{self, Owed};
use crate::format::map_page::Residence;
use crate::format::record::Entry;
use crate::shared::{RoomTurn, Shared};
use crate::state::State;
use crate::write;

/// Extents handled without letting others run: some tens of microseconds.
const EXTENTS_PER_STEP: u64 = 8192;
/// Zeros are written in pieces of this size when the range must stay allocated.
const WRITE_STEP_BYTES: u64 = 1 << 20;

/// Trims the whole blocks of a range; its ragged edges stay as they are.
pub(crate) async fn trim(
    shared: &Rc<Shared>,
    at: u64,
    length: u64,
    owed: Owed,
) -> Result<(), Error> {
    let start = at.next_multiple_of(BLOCK_BYTES);
    let end = (at + length) / BLOCK_BYTES * BLOCK_BYTES;
    if start < end {
        zero_blocks(shared, start, end).await?;
    }
    settle(shared, owed).await
}

/// Makes a range read as zeros, to the byte.
pub(crate) async fn write_zeroes(
    shared: &Rc<Shared>,
    at: u64,
    length: u64,
    mode: ZeroMode,
    owed: Owed,
) -> Result<(), Error> {
    let end = at + length;
    let start_blocks = at.next_multiple_of(BLOCK_BYTES).min(end);
    let end_blocks = (end / BLOCK_BYTES * BLOCK_BYTES).max(start_blocks);
    write_zero_bytes(shared, at, start_blocks).await?;
    match mode {
        ZeroMode::Deallocate if start_blocks < end_blocks => {
            zero_blocks(shared, start_blocks, end_blocks).await?;
        }
        ZeroMode::Deallocate => {}
        ZeroMode::Allocate => write_zero_bytes(shared, start_blocks, end_blocks).await?,
    }
    write_zero_bytes(shared, end_blocks, end).await?;
    settle(shared, owed).await
}

async fn settle(shared: &Rc<Shared>, owed: Owed) -> Result<(), Error> {
    match owed {
        Owed::Flush | Owed::StrictFlush if canary!(ForcedTrimNotFlushed) => Ok(()),
        owed => flush::settle(shared, owed).await,
    }
}

async fn write_zero_bytes(shared: &Rc<Shared>, start: u64, end: u64) -> Result<(), Error> {
    let mut at = start;
    while at < end {
        let length = (WRITE_STEP_BYTES - at % WRITE_STEP_BYTES).min(end - at);
        let zeros = shared.io.pool().take_zeroed(length as usize);
        write::write(shared, at, zeros, Owed::Bound).await.1?;
        at += length;
    }
    Ok(())
}

/// Zeroes whole blocks.
async fn zero_blocks(shared: &Rc<Shared>, start: u64, end: u64) -> Result<(), Error> {
    if !shared.is_alone() {
        let outcome = zero_in_log(shared, start, end).await;
        if outcome.is_ok() || !shared.is_alone() {
            return outcome;
        }
    }
    alone::zero_blocks(shared, start, end).await
}

/// Zeroes whole blocks by changing the map and the log.
async fn zero_in_log(shared: &Rc<Shared>, start: u64, end: u64) -> Result<(), Error> {
    let extent_bytes = shared.geometry.extent_bytes;
    let mut at = start;
    // Also where nothing changes: another request's record may be what has made it zeros.
    let mut written_until = shared.state.borrow().log.unwritten_end();
    while at < end {
        let step_end = ((at / extent_bytes + EXTENTS_PER_STEP) * extent_bytes).min(end);
        let turn = admitted(shared, at, step_end).await?;
        let until = zero_step(shared, at, step_end);
        drop(turn);
        if let Some(until) = until {
            written_until = Some(until);
            shared.log_work.wake_all();
        } else {
            shared.io.yield_now().await;
        }
        at = step_end;
    }
    match written_until {
        Some(until) => shared.log_written(until).await,
        None => Ok(()),
    }
}

async fn admitted(shared: &Rc<Shared>, at: u64, end: u64) -> Result<Option<RoomTurn>, Error> {
    let extent_bytes = shared.geometry.extent_bytes;
    let first = ExtentId(at / extent_bytes);
    let count = end.div_ceil(extent_bytes) - first.0;
    let mut turn: Option<RoomTurn> = None;
    loop {
        let (room, conflict, exposed) = {
            let state = shared.state.borrow();
            if let Some(cause) = &state.poisoned {
                return Err(Error::Poisoned(cause.clone()));
            }
            let place = turn.as_ref().map(RoomTurn::place);
            let room = state.room_line.is_turn(place) && state.has_room_for(0);
            let exposed = state.exposure.must_wait(shared.io.now_ns(), BLOCK_BYTES);
            (room, state.is_taken(first, count, false), exposed)
        };
        if room && !conflict && !exposed {
            return Ok(turn);
        }
        // The place is given up before anything else is waited for: those who are waited for may
        // stand behind it.
        turn = None;
        if exposed {
            shared.exposable(BLOCK_BYTES).await?;
        } else if conflict {
            let conflict_over = || {
                let state = shared.state.borrow();
                state.poisoned.is_some() || !state.is_taken(first, count, false)
            };
            shared.released.until(|| conflict_over().then_some(())).await;
        } else {
            turn = Some(shared.wait_for_room(|state| state.has_room_for(0)).await);
        }
    }
}

/// Zeroes up to [`EXTENTS_PER_STEP`] extents. Gives how far the log must be written, if anything
/// changed.
fn zero_step(shared: &Shared, at: u64, end: u64) -> Option<crate::Lsn> {
    let mut state = shared.state.borrow_mut();
    let state = &mut *state;
    let pool = shared.io.pool();
    let extent_bytes = state.geometry.extent_bytes;
    let first_whole = at.div_ceil(extent_bytes);
    let end_whole = end / extent_bytes;
    let mut changed = false;
    let zero_part = |state: &mut State, from: u64, to: u64| {
        let extent = state.extent_of(from);
        let occupied = from < to && !state.map.get(extent).is_empty();
        if occupied {
            let count = ((to - from) / BLOCK_BYTES) as u32;
            let start = BlockId(from / BLOCK_BYTES);
            state.log.append_entry(pool, &Entry::Zero { start, count });
            if !canary!(ZeroNotMarked) {
                state.mark_in_log(extent);
            }
        }
        occupied
    };
    // In the order of the blocks: a power cut may leave a front part of the request.
    if first_whole > end_whole {
        // All inside one extent.
        changed |= zero_part(state, at, end);
    } else {
        changed |= zero_part(state, at, first_whole * extent_bytes);
    }
    let occupied = |state: &State, extent: &u64| !state.map.get(ExtentId(*extent)).is_empty();
    let mut whole = first_whole..end_whole.max(first_whole);
    if let Some(first) = whole.find(|extent| occupied(state, extent)) {
        let last = whole.rfind(|extent| occupied(state, extent)).unwrap_or(first);
        let count = (last - first + 1) as u32;
        let entry = Entry::Unmap { first: ExtentId(first), count };
        let lsn = state.log.append_entry(pool, &entry);
        for extent in (first..=last).map(ExtentId) {
            if !state.map.get(extent).is_empty() {
                state.replace_home(extent, Residence::default(), lsn);
                if !canary!(TrimForgetsLog) {
                    state.forget_logged(extent);
                }
            }
        }
        changed = true;
    }
    if first_whole <= end_whole {
        changed |= zero_part(state, end_whole * extent_bytes, end);
    }
    if changed {
        if canary!(TrimsNotExposed) {
            state.log.note_client();
        } else {
            let alarm = state.note_client(shared.io.now_ns(), BLOCK_BYTES);
            shared.raise(alarm);
        }
    }
    changed.then(|| state.log.end())
}
