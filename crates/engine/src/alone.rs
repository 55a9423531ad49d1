//! Class cache, write-through: the slow drive alone, after the fast one is gone. Every flushed block
//! is at home, and what was not flushed is kept in memory: so the volume goes on, for writes too.
//!
//! * From the moment the fast drive fails on, the rest of the engine counts as poisoned: whatever
//!   was under way ends with an error, and its client's request is done again here.
//! * Before anything is written here: all that was on the way to the slow drive has ended, and the
//!   slow drive's superblock says that it went on alone. A fast drive that returns is refused then,
//!   because its copies and its log are old.
//! * There is no log here. A block is as whole after a cut as the drive writes it.
//! * A flush makes data durable first, then the map pages that have become untrue, both copies one
//!   after the other: so one copy of a page that is torn tells nothing, and the other is right.

use std::rc::Rc;

use io::Buf;

use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Lsn, Tier};
use crate::cache_mode::CacheMode;
use crate::canary::canary;
use crate::error::{Error, Poison};
use crate::format::map_page::{PAGE_BYTES, Residence, encode};
use crate::format::superblock::{State as Left, Superblock};
use crate::guards::Hold;
use crate::log::Logged;
use crate::marks::{self, Mark};
use crate::shared::{AccessPass, GuardPass, Looks, Shared};
use crate::state::State;
use crate::superblocks;

const BLOCK: usize = BLOCK_BYTES as usize;
/// Extents that a trim handles at once.
const EXTENTS_PER_STEP: u64 = 1024;

/// How far the slow drive is on its own.
#[derive(Debug, Default)]
pub(crate) struct Alone {
    /// It says so itself, and has all that was kept in memory.
    ready: bool,
    /// Why it takes no writes any more either.
    failed: Option<Poison>,
    /// Counts page writes, as LSNs do where there is a log.
    lsn: Lsn,
}

impl State {
    /// The fast drive is out of the volume from now on.
    pub fn go_alone(&mut self, why: String) {
        let lsn = self.log.end();
        self.alone = Some(Alone { lsn, ..Alone::default() });
        for extent in (0..self.map.extents()).map(ExtentId) {
            self.map.mark_moving(extent, false);
            if self.map.get(extent).is_clean() {
                let own = self.geometry.own_slot(extent);
                self.map.load(extent, Residence::at(own));
            }
        }
        self.bad_copies.clear();
        self.stage.close();
        self.lose_drive(Tier::Fast, why);
    }

    /// As [`State::go_alone`] when the volume is opened so; the pages on the drive are older than
    /// this LSN.
    pub fn begin_alone(&mut self, lsn: Lsn) {
        self.alone = Some(Alone { lsn, ..Alone::default() });
    }

    /// Where a log would begin that comes after all pages of the slow drive.
    pub fn alone_end(&self) -> Lsn {
        self.alone.as_ref().map_or(self.log.end(), |alone| alone.lsn)
    }

    pub fn is_alone(&self) -> bool {
        self.alone.is_some()
    }

    /// Why the volume takes no writes, if it does not.
    pub fn stopped(&self) -> Option<&Poison> {
        match &self.alone {
            Some(alone) => alone.failed.as_ref(),
            None => self.poisoned.as_ref(),
        }
    }

    /// The extent is mapped to its own slot, or a hole; the slow drive's page is to say so.
    fn map_alone(&mut self, extent: ExtentId, mapped: bool) {
        if self.map.get(extent).home().is_some() == mapped {
            return;
        }
        let lsn = self.alone.as_ref().expect("alone").lsn;
        let own = self.geometry.own_slot(extent).filter(|_| mapped);
        self.map.set(extent, Residence::at(own), lsn);
        if !canary!(AloneUnmirrored) {
            self.note_unmirrored(extent, lsn);
        }
    }
}

impl Shared {
    pub fn is_alone(&self) -> bool {
        self.state.borrow().is_alone()
    }
}

/// Waits until the slow drive may be written by what follows.
pub(crate) async fn ready(shared: &Rc<Shared>) -> Result<(), Error> {
    let _turn = shared.alone_turn.enter(1).await;
    let epoch = {
        let mut state = shared.state.borrow_mut();
        let alone = state.alone.as_ref().expect("alone");
        if let Some(failed) = &alone.failed {
            return Err(Error::Poisoned(failed.clone()));
        }
        if alone.ready {
            return Ok(());
        }
        state.home_accesses.close_epoch()
    };
    // A write that is still on its way, of data or of a map page, could land on top of a later one.
    shared.home_accesses_ended(epoch).await;
    let _background = match canary!(AloneOverPages) {
        true => None,
        false => Some(shared.background.enter(1).await),
    };
    let outcome = async {
        if !canary!(AloneUntold) {
            write_superblock(shared, Left::Open, true).await?;
        }
        if canary!(KeptLeftBehind) {
            return Ok(());
        }
        bring_kept_home(shared).await
    }
    .await;
    let outcome = keep_failure(shared, "going on without the fast drive failed", outcome);
    if outcome.is_ok() {
        marks::hit(Mark::WentAlone);
        shared.state.borrow_mut().alone.as_mut().expect("alone").ready = true;
    }
    outcome
}

/// A write that had been acknowledged did not reach the slow drive: no flush may succeed over that.
pub(crate) fn lose_write(shared: &Shared, what: &str, error: Error) {
    // The error is kept; there is nobody to give it to.
    let _ = keep_failure(shared, what, Err(error));
}

/// After a failed flush, or metadata that was not written, nothing more is acknowledged.
fn keep_failure(shared: &Shared, deed: &str, outcome: Result<(), Error>) -> Result<(), Error> {
    if let Err(error) = &outcome {
        let poison = Poison::by(deed, error.clone());
        let mut state = shared.state.borrow_mut();
        state.alone.as_mut().expect("alone").failed.get_or_insert(poison);
    }
    outcome
}

async fn write_superblock(shared: &Shared, left: Left, begins: bool) -> Result<(), Error> {
    let _turn = shared.superblock_turn.enter(1).await;
    let old = shared.superblock.borrow().clone();
    let superblock = Superblock {
        role: Tier::Slow,
        generation: old.generation + u64::from(begins),
        session: if begins { shared.io.random() } else { old.session },
        sequence: old.sequence + 1,
        state: left,
        alone: true,
        // Also when write-through was about to be left: all that there is, is here.
        cache_mode: if old.brings_home() { old.cache_mode } else { CacheMode::WriteThrough },
        ..old
    };
    superblocks::write(&shared.io, &shared.slow, &superblock).await?;
    *shared.superblock.borrow_mut() = superblock;
    Ok(())
}

/// Writes to their homes the blocks that only the landing log had.
async fn bring_kept_home(shared: &Rc<Shared>) -> Result<(), Error> {
    let extents = shared.geometry.extents();
    for extent in (0..extents).map(ExtentId) {
        if !shared.state.borrow().map.get(extent).in_log() {
            continue;
        }
        let writes = overlay(shared, extent);
        for (position, buf) in writes {
            shared.slow.write(position, buf).await.1?;
        }
        let mut state = shared.state.borrow_mut();
        let state = &mut *state;
        let mut left = false;
        for block in state.blocks_of(extent) {
            match state.log.lookup(block) {
                // Damaged before the fast drive was lost: an error until it is overwritten.
                Some(Logged::Lost { .. }) => left = true,
                Some(Logged::Data { .. }) if state.kept.get(block).is_none() => left = true,
                Some(_) => state.forget_block(block),
                None => {}
            }
        }
        state.map.mark_in_log(extent, left);
        state.home_dirty[Tier::Slow.index()] = true;
    }
    shared.state.borrow_mut().kept.clear();
    Ok(())
}

/// What must be written to the extent's home, and where. A hole becomes an extent as a whole.
fn overlay(shared: &Shared, extent: ExtentId) -> Vec<(u64, Buf)> {
    let mut state = shared.state.borrow_mut();
    let state = &mut *state;
    let pool = shared.io.pool();
    let own = state.geometry.own_slot(extent).expect("class cache");
    let position = state.geometry.position(own);
    let hole = state.map.get(extent).home().is_none();
    let mut writes = Vec::new();
    let mut image = hole.then(|| pool.take_zeroed(state.geometry.extent_bytes as usize));
    let mut any_data = false;
    for (n, block) in (0..).zip(state.blocks_of(extent)) {
        let data = match state.log.lookup(block) {
            Some(Logged::Data { .. }) => state.kept.get(block),
            Some(Logged::Zero { .. }) => Some(&[0; BLOCK][..]),
            Some(Logged::Lost { .. }) | None => None,
        };
        let Some(data) = data else { continue };
        match &mut image {
            Some(image) => {
                any_data |= data.iter().any(|byte| *byte != 0);
                image[n * BLOCK..][..BLOCK].copy_from_slice(data);
            }
            None => {
                let mut buf = pool.take(BLOCK);
                buf.copy_from_slice(data);
                writes.push((position + (n * BLOCK) as u64, buf));
            }
        }
    }
    if let Some(image) = image
        && any_data
    {
        writes.push((position, image));
        state.map_alone(extent, true);
    }
    writes
}

/// Holds the extents of a byte range alone.
async fn hold(shared: &Rc<Shared>, at: u64, length: u64) -> GuardPass {
    let extent_bytes = shared.geometry.extent_bytes;
    let first = ExtentId(at / extent_bytes);
    let count = (at + length).div_ceil(extent_bytes) - first.0;
    shared
        .released
        .until(|| {
            let mut state = shared.state.borrow_mut();
            let free =
                !state.guards.any_alone(first, count) && !state.guards.any_writer(first, count);
            free.then(|| state.guards.enter(first, count, Hold::Alone))
        })
        .await;
    GuardPass::entered(shared, first, count, Hold::Alone)
}

/// Byte offset on the slow drive: neighbours in the volume are neighbours there.
fn position(shared: &Shared, at: u64) -> u64 {
    shared.geometry.layouts[Tier::Slow.index()].slots_at + at
}

/// A client's write, of any 512-byte alignment.
pub(crate) async fn write(shared: &Rc<Shared>, at: u64, buf: Buf) -> (Buf, Result<(), Error>) {
    if let Err(error) = ready(shared).await {
        return (buf, Err(error));
    }
    let length = buf.len() as u64;
    let _hold = hold(shared, at, length).await;
    let _access = AccessPass::begin(shared, Looks::AtHomes);
    let (start, end) = widened(&shared.state.borrow(), at, at + length);
    let (buf, outcome) = if (start, end) == (at, at + length) {
        let (buf, outcome) = shared.slow.write(position(shared, at), buf).await;
        (buf, outcome.map_err(Error::from))
    } else {
        let outcome = write_wider(shared, at, &buf, start, end).await;
        (buf, outcome)
    };
    if outcome.is_ok() {
        let mut state = shared.state.borrow_mut();
        let state = &mut *state;
        let (first, last) = (state.extent_of(start), state.extent_of(end - 1));
        for extent in (first.0..=last.0).map(ExtentId) {
            state.map_alone(extent, true);
            forget_written(state, extent, at, at + length);
        }
        state.home_dirty[Tier::Slow.index()] = true;
    }
    (buf, outcome)
}

/// Blocks that were damaged are what was just written.
fn forget_written(state: &mut State, extent: ExtentId, at: u64, end: u64) {
    if !state.map.get(extent).in_log() {
        return;
    }
    let mut left = false;
    for block in state.blocks_of(extent) {
        let start = block.0 * BLOCK_BYTES;
        if state.log.lookup(block).is_some() {
            if at <= start && start + BLOCK_BYTES <= end {
                state.forget_block(block);
            } else {
                left = true;
            }
        }
    }
    state.map.mark_in_log(extent, left);
}

/// What is written for the bytes from `at` to `end`: whole blocks, and of holes the whole extent,
/// whose slot holds whatever was there before.
fn widened(state: &State, at: u64, end: u64) -> (u64, u64) {
    let extent_bytes = state.geometry.extent_bytes;
    let is_hole = |at: u64| state.map.get(state.extent_of(at)).home().is_none();
    let unit =
        |at: u64| if is_hole(at) && !canary!(HoleOverGarbage) { extent_bytes } else { BLOCK_BYTES };
    let start = at / unit(at) * unit(at);
    (start, end.next_multiple_of(unit(end - 1)))
}

async fn write_wider(
    shared: &Rc<Shared>,
    at: u64,
    data: &[u8],
    start: u64,
    end: u64,
) -> Result<(), Error> {
    let mut whole = shared.io.pool().take_zeroed((end - start) as usize);
    // Blocks that are written in part keep the rest of what they hold.
    for edge in [at, at + data.len() as u64] {
        let block = edge / BLOCK_BYTES * BLOCK_BYTES;
        let partly = !edge.is_multiple_of(BLOCK_BYTES);
        if partly {
            let buf = shared.io.pool().take(BLOCK);
            let (buf, outcome) = crate::read::read_blocks(shared, block, buf).await;
            outcome?;
            whole[(block - start) as usize..][..BLOCK].copy_from_slice(&buf);
        }
    }
    whole[(at - start) as usize..][..data.len()].copy_from_slice(data);
    Ok(shared.slow.write(position(shared, start), whole).await.1?)
}

/// Zeroes whole blocks: whole extents become holes.
pub(crate) async fn zero_blocks(shared: &Rc<Shared>, start: u64, end: u64) -> Result<(), Error> {
    ready(shared).await?;
    let extent_bytes = shared.geometry.extent_bytes;
    let mut at = start;
    while at < end {
        let step_end = ((at / extent_bytes + EXTENTS_PER_STEP) * extent_bytes).min(end);
        let _hold = hold(shared, at, step_end - at).await;
        let _access = AccessPass::begin(shared, Looks::AtHomes);
        let mut cursor = at;
        while cursor < step_end {
            let extent = ExtentId(cursor / extent_bytes);
            let piece_end = ((extent.0 + 1) * extent_bytes).min(step_end);
            let whole = piece_end - cursor == extent_bytes;
            let mapped = shared.state.borrow().map.get(extent).home().is_some();
            if mapped && !whole {
                let zeros = shared.io.pool().take_zeroed((piece_end - cursor) as usize);
                shared.slow.write(position(shared, cursor), zeros).await.1?;
            }
            let mut state = shared.state.borrow_mut();
            if whole {
                state.map_alone(extent, false);
            }
            forget_written(&mut state, extent, cursor, piece_end);
            state.home_dirty[Tier::Slow.index()] = true;
            cursor = piece_end;
        }
        at = step_end;
        shared.io.yield_now().await;
    }
    Ok(())
}

/// A client's flush.
pub(crate) async fn flush(shared: &Rc<Shared>) -> Result<(), Error> {
    ready(shared).await?;
    let _turn = shared.background.enter(1).await;
    if let Some(failed) = shared.state.borrow().stopped() {
        return Err(Error::Poisoned(failed.clone()));
    }
    let pages = {
        let mut state = shared.state.borrow_mut();
        if std::mem::take(&mut state.home_dirty) == [false; 2] && state.unmirrored.is_empty() {
            return Ok(());
        }
        take_pages(shared, &mut state)
    };
    let outcome = async {
        // Pages were encoded before: what they call data is durable before they are.
        if !canary!(AloneNotFlushed) {
            shared.slow.flush().await?;
        }
        if pages.is_empty() {
            return Ok(());
        }
        write_pages(shared, &pages).await
    }
    .await;
    keep_failure(shared, "a flush failed", outcome)
}

/// The pages that have become untrue on the slow drive, as they are to be.
fn take_pages(shared: &Shared, state: &mut State) -> Vec<(u64, Buf)> {
    let alone = state.alone.as_mut().expect("alone");
    alone.lsn = Lsn(alone.lsn.0 + 1);
    let lsn = alone.lsn;
    let tag = shared.superblock.borrow().volume_tag();
    let mut entries = Vec::new();
    std::mem::take(&mut state.unmirrored)
        .into_keys()
        .map(|page| {
            let mut buf = shared.io.pool().take(PAGE_BYTES);
            state.map.page_entries(page, &mut entries);
            encode(&mut buf, tag, page, lsn, &entries);
            (page, buf)
        })
        .collect()
}

async fn write_pages(shared: &Shared, pages: &[(u64, Buf)]) -> Result<(), Error> {
    for round in 0..2 {
        let mut writes = Vec::with_capacity(pages.len());
        for (page, encoded) in pages {
            let older = shared.state.borrow().map.older_copy(*page);
            let copy = if round == 0 { older } else { 1 - older };
            let mut buf = shared.io.pool().take(PAGE_BYTES);
            buf.copy_from_slice(encoded);
            let at = shared.geometry.map_page_position(Tier::Slow, *page, copy);
            writes.push(shared.slow.write(at, buf));
        }
        let mut outcome = Ok(());
        for write in writes {
            outcome = outcome.and(write.await.1);
        }
        outcome?;
        if round == 1 || !canary!(AloneCopiesTogether) {
            shared.slow.flush().await?;
        }
    }
    Ok(())
}

/// Everything durable, and the slow drive marked clean.
pub(crate) async fn close(shared: &Rc<Shared>) -> Result<(), Error> {
    flush(shared).await?;
    let outcome = write_superblock(shared, Left::Clean, false).await;
    keep_failure(shared, "writing the superblock failed", outcome)
}

/// Whether the block's newest data is in memory.
pub(crate) fn is_kept(state: &State, block: BlockId) -> bool {
    state.kept.get(block).is_some()
}
