//! Moving the log's tail: dirty map pages go to both drives, then the superblock says where replay
//! begins, then the ring behind it may be reused.
//!
//! Order, and what each step prevents:
//! 1. Flush: a page may hold only changes whose records are durable, or a cut would leave a
//!    mapping without the data CRC that tells whether its data arrived.
//! 2. Pages to their older copies on both drives, and a flush: the newer copy stays whole until
//!    the older one is.
//! 3. Superblock on the fast drive, both copies, each flushed: only now replay begins later.
//! 4. Wait for accesses that looked up places in the log, then reuse the ring.

use std::rc::Rc;

use io::Buf;

use crate::address::{Lsn, Tier};
use crate::canary::canary;
use crate::doubts::Vouch;
use crate::drive::Flushed;
use crate::error::{Error, Poison};
use crate::flush::flush_all;
use crate::format::map_page::{PAGE_BYTES, encode};
use crate::format::superblock::Superblock;
use crate::marks::{self, Mark};
use crate::shared::Shared;
use crate::superblocks;

/// Pages written at once: 1 MiB on each drive.
const PAGES_PER_STEP: usize = 256;

/// Advances the tail as far as live data and unwritten map changes allow.
pub(crate) async fn checkpoint(shared: &Rc<Shared>) -> Result<(), Error> {
    let began_ns = shared.io.now_ns();
    let (target, epoch) = {
        let mut state = shared.state.borrow_mut();
        let live = state.log.oldest_live();
        let target = if canary!(TailPassesLive) { state.log.recorded() } else { live };
        (target, state.log_accesses.close_epoch())
    };
    // Pages first changed before the target hold the tail back; the others can wait.
    while !canary!(TailPassesDirtyPages)
        && shared.state.borrow().map.oldest_dirty().is_some_and(|lsn| lsn < target)
    {
        write_pages(shared).await?;
    }
    {
        let mut state = shared.state.borrow_mut();
        let state = &mut *state;
        state.doubts.look(&state.map, shared.io.now_ns());
    }
    flush_all(shared).await?;
    let target = {
        let state = shared.state.borrow();
        let dirty = state.map.oldest_dirty().filter(|_| !canary!(TailPassesDirtyPages));
        dirty.map_or(target, |dirty| dirty.min(target))
    };
    if canary!(RingFreedBeforeSuperblock) {
        let flushed = shared.fast.flush().await?;
        let mut state = shared.state.borrow_mut();
        let durable = state.log.durable();
        state.log.settle_recorded(durable, &flushed);
        state.log.advance_tail(target, &flushed);
        drop(state);
        shared.wake_room();
    }
    let told = write_superblock(shared, |superblock| superblock.log_tail = target).await?;
    if !canary!(RingFreedUnderReaders) {
        shared.log_accesses_ended(epoch).await;
    }
    {
        if target > shared.state.borrow().log.tail() {
            marks::hit(Mark::TailMoved);
        }
        let mut state = shared.state.borrow_mut();
        state.log.advance_tail(target, &told);
        state.counters.checkpoints += 1;
        state.counters.checkpoint_ns += shared.io.now_ns() - began_ns;
        state.reclaim();
    }
    shared.wake_room();
    Ok(())
}

/// Has the slow drive vouch for all it knows: every dirty page, then the marks that are left.
pub(crate) async fn vouch(shared: &Rc<Shared>, which: Vouch) -> Result<(), Error> {
    write_all_pages(shared).await?;
    shared.state.borrow_mut().cleaning.told();
    shared.state.borrow_mut().doubts.begin_round();
    loop {
        let over = {
            let mut state = shared.state.borrow_mut();
            let state = &mut *state;
            state.doubts.publish();
            state.doubts.vouch(&state.map, which)
        };
        if over {
            break;
        }
        shared.io.yield_now().await;
    }
    flush_all(shared).await
}

/// Writes every page that is dirty now. Clients may go on making pages dirty as fast as they are written: what
/// they change meanwhile is not waited for.
pub(crate) async fn write_all_pages(shared: &Rc<Shared>) -> Result<(), Error> {
    // With the end itself: pages that are to be written without a change are marked so.
    let end = shared.state.borrow().log.end();
    while shared.state.borrow().map.oldest_dirty().is_some_and(|lsn| lsn <= end) {
        write_pages(shared).await?;
    }
    Ok(())
}

/// Writes the fast drive's superblock, changed; also the slow one's when the state changes. Gives the proof
/// that the fast one's is durable.
pub(crate) async fn write_superblock(
    shared: &Shared,
    change: impl FnOnce(&mut Superblock),
) -> Result<Flushed, Error> {
    write_superblock_of(shared, false, change).await
}

/// Writes both superblocks, changed, the slow drive's first.
pub(crate) async fn write_superblocks(
    shared: &Shared,
    change: impl FnOnce(&mut Superblock),
) -> Result<(), Error> {
    write_superblock_of(shared, true, change).await?;
    Ok(())
}

async fn write_superblock_of(
    shared: &Shared,
    both: bool,
    change: impl FnOnce(&mut Superblock),
) -> Result<Flushed, Error> {
    // One writer at a time: the later one must know what the earlier one wrote.
    let _turn = shared.superblock_turn.enter(1).await;
    let mut superblock = shared.superblock.borrow().clone();
    let durable = shared.state.borrow().log.durable();
    superblock.log_durable = durable;
    superblock.sequence += 1;
    let before = superblock.state;
    change(&mut superblock);
    let both = both || superblock.state != before;
    let outcome = async {
        if both {
            superblock.role = Tier::Slow;
            superblocks::write(&shared.io, &shared.slow, &superblock).await?;
        }
        superblock.role = Tier::Fast;
        superblocks::write(&shared.io, &shared.fast, &superblock).await
    }
    .await;
    let flushed = outcome.inspect_err(|error| {
        shared.poison(Poison::by("writing the superblock failed", error.clone()));
    })?;
    *shared.superblock.borrow_mut() = superblock;
    let mut state = shared.state.borrow_mut();
    let now = state.log.durable();
    state.log.settle_recorded(if canary!(RecordedTooFar) { now } else { durable }, &flushed);
    state.settle_young();
    Ok(flushed)
}

/// Writes one step of dirty pages to both drives and makes them durable.
pub(crate) async fn write_pages(shared: &Rc<Shared>) -> Result<(), Error> {
    // Encoded before the flush, so that they hold exactly the changes before this LSN.
    let (lsn, encoded): (Lsn, Vec<_>) = {
        let mut state = shared.state.borrow_mut();
        // A change that joined the open record later would share an LSN with what the page holds,
        // and replay would take it for contained.
        if !canary!(PageSharesOpenRecord) {
            state.log.seal_now();
        }
        let lsn = state.log.end();
        let pages = state.map.take_dirty(PAGES_PER_STEP);
        let tag = shared.superblock.borrow().volume_tag();
        let mut entries = Vec::new();
        let encoded = pages
            .into_iter()
            .map(|page| {
                let mut buf = shared.io.pool().take(PAGE_BYTES);
                state.map.page_entries(page, &mut entries);
                encode(&mut buf, tag, page, lsn, &entries);
                let copy = state.map.older_copy(page);
                (page, if canary!(PageOverNewerCopy) { 1 - copy } else { copy }, buf)
            })
            .collect();
        (lsn, encoded)
    };
    if !canary!(PagesBeforeChanges) {
        flush_all(shared).await?;
    }
    marks::hit(Mark::MapPagesWritten);
    shared.state.borrow_mut().quiet.used_by_work(shared.io.now_ns());
    let mut under_way = Vec::with_capacity(encoded.len() * 2);
    let mut written = Vec::with_capacity(encoded.len());
    let homeward = shared.state.borrow().homeward;
    let mut third = Vec::new();
    for (page, copy, buf) in encoded {
        let mut second = shared.io.pool().take(PAGE_BYTES);
        second.copy_from_slice(&buf);
        if homeward {
            let mut again = shared.io.pool().take(PAGE_BYTES);
            again.copy_from_slice(&buf);
            third.push((page, 1 - copy, again));
        }
        for (drive, buf) in [(&shared.fast, buf), (&shared.slow, second)] {
            if drive.tier() == Tier::Slow && canary!(PagesNotOnSlow) {
                continue;
            }
            let position = shared.geometry.map_page_position(drive.tier(), page, copy);
            under_way.push(drive.write(position, buf));
        }
        written.push((page, copy));
    }
    let mut outcome = Ok(());
    for transfer in under_way {
        let written = transfer.await.1;
        if !canary!(PageFailureIgnored) {
            outcome = outcome.and(written);
        }
    }
    if canary!(OtherCopiesTogether) && !third.is_empty() {
        outcome = outcome.and(shared.fast.flush().await.map(drop));
    } else if !canary!(PagesNotFlushed) {
        let (fast, slow) = (shared.fast.flush(), shared.slow.flush());
        let (fast, slow) = (fast.await, slow.await);
        outcome = outcome.and(fast.and(slow).map(drop));
    }
    if let Err(error) = outcome {
        // The tail has not moved: the log still has every change. But it never will move again,
        // so this is the end of this session's writing.
        shared.poison(Poison::by("writing the map failed", error.clone()));
        return Err(error.into());
    }
    if let Err(error) = write_other_copies(shared, third).await {
        shared.poison(Poison::by("writing the map failed", error.clone()));
        return Err(error);
    }
    let mut state = shared.state.borrow_mut();
    state.counters.map_pages_written += written.len() as u64;
    for (page, copy) in written {
        state.map.set_newer_copy(page, if canary!(SameCopyAgain) { 1 - copy } else { copy });
        state.settle_mirrored(page, lsn);
    }
    Ok(())
}

/// In write-through the slow drive's other copies become the same, once the first are durable: if it
/// is all that is left, and one copy is torn, the other is right whichever it was.
async fn write_other_copies(shared: &Shared, pages: Vec<(u64, u64, Buf)>) -> Result<(), Error> {
    if pages.is_empty() || canary!(OtherCopiesNotWritten) {
        return Ok(());
    }
    let writes: Vec<_> = pages
        .into_iter()
        .map(|(page, copy, buf)| {
            shared.slow.write(shared.geometry.map_page_position(Tier::Slow, page, copy), buf)
        })
        .collect();
    let mut outcome = Ok(());
    for write in writes {
        outcome = outcome.and(write.await.1);
    }
    outcome?;
    shared.slow.flush().await?;
    Ok(())
}
