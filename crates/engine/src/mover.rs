//! Moves extents between the drives when nobody is waiting: hot ones up, cold ones down.
//!
//! An extent in motion is marked: foreground writes to it go to the log and never wait. The copy
//! is made durable, then the move is recorded, then the old home is given up. If the extent was
//! trimmed or written afresh meanwhile, the copy is dropped.

use std::rc::Rc;

use crate::address::{ExtentId, Home, Tier};
use crate::canary::canary;
use crate::error::Error;
use crate::format::map_page::encode_entry;
use crate::format::record::Entry;
use crate::marks::{self, Mark};
use crate::shared::{AccessPass, Looks, Shared};
use crate::state::State;

/// Bytes moved per batch: a disk's 10 ms, so that a foreground request that arrives meanwhile waits
/// no longer than behind one large neighbour. At least one extent is moved.
const BATCH_BYTES: u64 = 1 << 20;

struct Move {
    extent: ExtentId,
    source: Home,
    target: Home,
    /// The target is empty, and the data is copied there. Otherwise it has the data already: a
    /// clean copy is given up for the slow drive's own.
    copies: bool,
    /// Class cache: what is on the slow drive stays there, or gets there, and the extent lives on
    /// the fast drive.
    clean: bool,
}

impl Move {
    /// Where the extent lives afterwards.
    fn home(&self) -> Home {
        let home = if self.source.tier == Tier::Fast { self.source } else { self.target };
        if self.clean { home } else { self.target }
    }
}

/// Makes one batch of moves. `false`: there is nothing to move.
pub(crate) async fn move_some(shared: &Rc<Shared>) -> Result<bool, Error> {
    let _pass = AccessPass::begin(shared, Looks::AtHomes);
    let moves = plan(&mut shared.state.borrow_mut());
    carry_out(shared, &moves).await
}

async fn carry_out(shared: &Rc<Shared>, moves: &[Move]) -> Result<bool, Error> {
    if moves.is_empty() {
        return Ok(false);
    }
    let outcome = copy(shared, moves).await;
    if let Err(error) = outcome {
        let mut state = shared.state.borrow_mut();
        for one in moves {
            drop_copy(&mut state, one);
        }
        return Err(error);
    }
    // A header block takes 83 entries.
    shared.internal_room(3).await?;
    let mut state = shared.state.borrow_mut();
    for one in moves {
        settle(shared, &mut state, one);
    }
    drop(state);
    shared.log_work.wake_all();
    Ok(true)
}

fn plan(state: &mut State) -> Vec<Move> {
    state.reclaim();
    let batch = (BATCH_BYTES / state.geometry.extent_bytes).max(1) as usize;
    let mut moves = Vec::new();
    give_up_bad_copies(state, &mut moves);
    // Room first: new data should find the reserve, and promotions a slot.
    let wanted = state.fast_reserve() + batch as u64;
    while state.slots[0].free() + (moves.len() as u64) < wanted && moves.len() < batch {
        let candidate = state.placer.first_candidate();
        let short = state.slots[0].free() + (moves.len() as u64) < state.fast_reserve();
        if candidate.is_none() && !short {
            break;
        }
        let (placer, view) = state.placer_and_view();
        let Some(victim) = placer.heat.coldest(&view) else { break };
        let displaced = candidate.is_some_and(|hot| placer.heat.should_displace(hot, victim));
        if !(displaced || short && !placer.heat.is_hot(victim))
            || !push_move(state, &mut moves, victim, Tier::Slow)
        {
            break;
        }
    }
    while moves.len() < batch && state.slots[0].free() > state.fast_reserve() {
        let Some(candidate) = state.placer.next_candidate() else { break };
        let slow = state.map.get(candidate).home().is_some_and(|home| home.tier == Tier::Slow);
        if slow && state.placer.heat.is_hot(candidate) {
            push_move(state, &mut moves, candidate, Tier::Fast);
        }
    }
    moves.sort_by_key(|one| match one.source.tier {
        Tier::Slow => one.source,
        Tier::Fast => one.target,
    });
    moves
}

fn push_move(state: &mut State, moves: &mut Vec<Move>, extent: ExtentId, to: Tier) -> bool {
    let mapping = state.map.get(extent);
    let Some(source) = mapping.home() else { return false };
    if mapping.moving() || state.guards.home_written(extent) || source.tier == to {
        return false;
    }
    let own = state.geometry.own_slot(extent);
    let (target, copies) = match own {
        Some(own) if mapping.is_clean() => (own, false),
        _ => {
            let Some(target) = state.take_slot(to, extent) else { return false };
            (target, true)
        }
    };
    state.map.mark_moving(extent, true);
    // What is copied up leaves its original behind, which is why giving it up again costs nothing.
    let clean = own.is_some() && to == Tier::Fast;
    moves.push(Move { extent, source, target, copies, clean });
    true
}

/// Copies that could not be read, while their originals are current.
fn give_up_bad_copies(state: &mut State, moves: &mut Vec<Move>) {
    let bad: Vec<ExtentId> = state.bad_copies.iter().copied().collect();
    for extent in bad {
        let mapping = state.map.get(extent);
        if !mapping.is_clean() {
            state.bad_copies.remove(&extent);
        } else if !mapping.in_log() {
            // What has blocks in the log is given up when they are destaged.
            push_move(state, moves, extent, Tier::Slow);
        }
    }
}

async fn copy(shared: &Rc<Shared>, moves: &[Move]) -> Result<(), Error> {
    let moves: Vec<&Move> = moves.iter().filter(|one| one.copies).collect();
    let reads: Vec<_> = moves
        .iter()
        .map(|one| {
            let buf = shared.io.pool().take(shared.geometry.extent_bytes as usize);
            shared.drive(one.source.tier).read(shared.position(one.source), buf)
        })
        .collect();
    let mut outcome = Ok(());
    let mut writes = Vec::with_capacity(moves.len());
    for (read, one) in reads.into_iter().zip(&moves) {
        let (buf, read_outcome) = read.await;
        if outcome.is_ok() && read_outcome.is_ok() {
            writes.push(shared.drive(one.target.tier).write(shared.position(one.target), buf));
        }
        outcome = outcome.and(read_outcome);
    }
    for write in writes {
        outcome = outcome.and(write.await.1);
    }
    outcome?;
    for tier in Tier::BOTH {
        let written = moves.iter().any(|one| one.target.tier == tier) && !canary!(MoveNotFlushed);
        // A copy and what it was made of are the same only when both are durable: what was copied
        // may have been written a moment ago.
        let read = moves.iter().any(|one| one.clean && one.source.tier == tier)
            && !canary!(OriginalNotFlushed);
        if written || read {
            shared.flush_drive(tier).await?;
        }
    }
    Ok(())
}

/// Writes the homes of some extents that only the fast drive has, which keeps them as clean copies.
/// `false`: there is none that can be written now.
pub(crate) async fn clean_some(shared: &Rc<Shared>) -> Result<bool, Error> {
    let _pass = AccessPass::begin(shared, Looks::AtHomes);
    let moves = {
        let mut state = shared.state.borrow_mut();
        state.reclaim();
        plan_cleaning(&mut state)
    };
    carry_out(shared, &moves).await
}

fn plan_cleaning(state: &mut State) -> Vec<Move> {
    let batch = (BATCH_BYTES / state.geometry.extent_bytes).max(1) as usize;
    let mut moves = Vec::new();
    for extent in (0..state.map.extents()).map(ExtentId) {
        let mapping = state.map.get(extent);
        let held = mapping.moving() || state.guards.home_written(extent);
        if held || !mapping.is_on_fast_alone() || state.is_young(extent) {
            continue;
        }
        let Some(source) = mapping.home() else { continue };
        let Some(target) = state.take_slot(Tier::Slow, extent) else { continue };
        state.map.mark_moving(extent, true);
        moves.push(Move { extent, source, target, copies: true, clean: true });
        if moves.len() == batch {
            break;
        }
    }
    moves
}

fn settle(shared: &Shared, state: &mut State, one: &Move) {
    let mapping = state.map.get(one.extent);
    let replaced = !mapping.moving() || mapping.home() != Some(one.source);
    if replaced && !canary!(MoveOverReplaced) {
        marks::hit(Mark::MoveDropped);
        drop_copy(state, one);
        return;
    }
    let home = Some(one.home());
    let entry = Entry::Relocate { extent: one.extent, entry: encode_entry(home, one.clean) };
    let lsn = state.log.append_entry(shared.io.pool(), &entry);
    state.replace_home(one.extent, home, one.clean, lsn);
    state.bad_copies.remove(&one.extent);
    if mapping.in_log() {
        marks::hit(Mark::MoveOvertaken);
    }
    let bytes = state.geometry.extent_bytes;
    match one.target.tier {
        Tier::Slow if one.clean => marks::hit(Mark::Cleaned),
        Tier::Fast => {
            marks::hit(Mark::Promoted);
            state.counters.moves.promoted_bytes += bytes;
        }
        Tier::Slow => {
            marks::hit(if one.copies { Mark::Demoted } else { Mark::CopyGivenUp });
            state.counters.moves.demoted_bytes += bytes;
        }
    }
}

fn drop_copy(state: &mut State, one: &Move) {
    let mapping = state.map.get(one.extent);
    if mapping.moving() && mapping.home() == Some(one.source) {
        state.map.mark_moving(one.extent, false);
    }
    if one.copies {
        state.slots[one.target.tier.index()].release(one.target.slot);
    }
}
