//! Carrying: what of the log's oldest records is still alive, and would have to go down to the slow drive, is written
//! again at the log's end. Clients write the same places again and again, so a log that has filled is mostly
//! dead; then a block stays in it for many turns of the ring at the price of a write to the fast drive for each.
//!
//! A block that is carried is what it would be if a client had written it once more, but that it is nobody's
//! change: the older version stays in the ring until a checkpoint has made the newer one durable.

use std::rc::Rc;

use crate::address::{BLOCK_BYTES, BlockId, Lsn};
use crate::canary::canary;
use crate::checksum::crc32c;
use crate::destage::mark_lost;
use crate::error::Error;
use crate::log::Logged;
use crate::marks::{self, Mark};
use crate::shared::Shared;
use crate::state::State;

/// Blocks carried at once: 1 MiB, and of a small ring a sixteenth.
const BLOCKS_MAX: u64 = 256;
const RING_PART: u64 = 16;
/// While at most this part of the ring is alive. It is emptied from half a ring on, so that 1.3 ring blocks are carried for
/// each that clients' records take at worst: 2.8 for each block that a client writes alone, which takes two.
const LIVE_PART: u64 = 4;
const BLOCK: usize = BLOCK_BYTES as usize;

/// A block of the log.
#[derive(Debug, Clone, Copy)]
struct Carried {
    block: BlockId,
    lsn: Lsn,
    crc: u32,
}

/// Blocks on their way to the log's end.
#[derive(Debug, Default)]
pub(crate) struct Load {
    blocks: Vec<Carried>,
    /// So many of them, the oldest; the others wait for the next load.
    blocks_max: u64,
    /// The oldest live block when they were chosen.
    oldest: Option<Lsn>,
}

impl Load {
    /// One for which nothing is chosen: all goes home.
    pub fn none() -> Load {
        Load::default()
    }

    /// One for which blocks are chosen, if the log is better off with that and the fast drive may be written so often.
    /// `written`: bytes written to it so far, and the time.
    pub fn for_busy(state: &mut State, (fast_written, now_ns): (u64, u64)) -> Load {
        let ring_blocks = state.log.ring_blocks();
        let oldest = state.log.oldest_live_block();
        let blocks_max = BLOCKS_MAX.min(ring_blocks / RING_PART);
        // If the last load has not moved it on, something else holds the tail, and no room comes of carrying.
        let takes = state.carried_from != oldest
            && state.log.live_blocks() * LIVE_PART <= ring_blocks
            && !state.homeward
            && !state.placer.overwrites_below()
            && state.has_room_to_carry(blocks_max)
            && state.placer.wear_covers(blocks_max * BLOCK_BYTES, fast_written, now_ns);
        Load { blocks: Vec::new(), blocks_max: if takes { blocks_max } else { 0 }, oldest }
    }

    /// Whether these versions of blocks may stay in the log. Not zeros, which take no room in the ring.
    pub fn takes(&self, blocks: &[(u64, Logged)]) -> bool {
        self.blocks_max > 0
            && blocks.iter().all(|(_, version)| matches!(version, Logged::Data { .. }))
    }

    /// Takes blocks of the extent that begins with block `start`: number inside the extent and version.
    pub fn add(&mut self, start: BlockId, blocks: &[(u64, Logged)]) {
        self.blocks.extend(blocks.iter().filter_map(|(n, version)| match *version {
            Logged::Data { lsn, crc } => Some(Carried { block: BlockId(start.0 + n), lsn, crc }),
            _ => None,
        }));
    }

    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }
}

/// Writes them again at the log's end, where they are still the newest versions. Gives how many, and what kept it
/// from reading the others.
pub(crate) async fn carry(shared: &Rc<Shared>, load: Load) -> (u64, Result<(), Error>) {
    shared.state.borrow_mut().carried_from = load.oldest;
    let mut blocks = load.blocks;
    blocks.sort_unstable_by_key(|carried| carried.lsn);
    blocks.truncate(load.blocks_max as usize);
    // Neighbours in LSN are neighbours on the drive: across the end of the ring there is a header between.
    let reads: Vec<_> = blocks
        .chunk_by(|one, next| one.lsn.0 + 1 == next.lsn.0)
        .map(|run| {
            let position = shared.state.borrow().log.position(run[0].lsn);
            (run, shared.fast.read(position, shared.io.pool().take(run.len() * BLOCK)))
        })
        .collect();
    let mut carried_blocks = 0;
    let mut outcome = Ok(());
    for (run, transfer) in reads {
        let (data, read) = transfer.await;
        if let Err(error) = read {
            // It may succeed another time; what is unharmed must not be given up.
            outcome = Err(error.into());
            continue;
        }
        for (carried, bytes) in run.iter().zip(data.chunks_exact(BLOCK)) {
            if crc32c(bytes) == carried.crc || canary!(CarriedUnchecked) {
                carried_blocks += u64::from(append(shared, *carried, bytes));
            } else {
                mark_lost(shared, carried.block, carried.lsn);
            }
        }
    }
    shared.log_work.wake_all();
    (carried_blocks, outcome)
}

/// Says whether it was.
fn append(shared: &Shared, carried: Carried, bytes: &[u8]) -> bool {
    let mut state = shared.state.borrow_mut();
    let newest = state.log.lookup(carried.block);
    if newest.is_none_or(|version| version.lsn() != carried.lsn) && !canary!(CarriedOverNewer) {
        marks::hit(Mark::CarryOvertaken);
        return false;
    }
    // On the way to the slow drive alone what is logged is kept in memory, and goes home.
    if state.homeward || state.poisoned.is_some() || !state.has_room_to_carry(1) {
        return false;
    }
    marks::hit(Mark::Carried);
    state.log.append_carried(shared.io.pool(), carried.block, bytes, newest);
    state.mark_logged(carried.block.0 * BLOCK_BYTES, BLOCK_BYTES);
    state.counters.moves.carried_bytes += BLOCK_BYTES;
    true
}
