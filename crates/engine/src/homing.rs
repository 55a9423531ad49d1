//! Class cache: bringing home what only the fast drive has. In write-through that is what a flush
//! does, so that both drives have all that was flushed.
//!
//! * At home is: the newest data of each extent in its own slot of the slow drive, durably, and a
//!   map page on the slow drive that says whether the extent is a hole. Then the slow drive needs
//!   neither the log nor marks of doubt to be right.
//! * Only durable log blocks go home (`destage.rs`), so that a cut never leaves a home that is newer
//!   than the copy beside it.
//! * One at a time is at it (`Shared::background`): the janitor, a flush, or a change of mode.

use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;

use io::units::MILLISECOND_NS;

use crate::address::{BlockId, ExtentId, Lsn};
use crate::cache_mode::CacheMode;
use crate::canary::canary;
use crate::checkpoint::{checkpoint, write_all_pages, write_pages, write_superblocks};
use crate::destage::{Below, Progress, destage};
use crate::error::Error;
use crate::flush::{durable_point, flush_all};
use crate::flush_mode::FlushMode;
use crate::geometry::Class;
use crate::log::Logged;
use crate::marks::{self, Mark};
use crate::mover::clean_some;
use crate::quiet::WakeCause;
use crate::shared::Shared;
use crate::state::State;

/// Requests hold all extents that could go home: look again after so long.
const HELD_UP_NS: u64 = MILLISECOND_NS;

/// A client's flush in write-through.
pub(crate) async fn flush_through(shared: &Rc<Shared>) -> Result<(), Error> {
    // Also where nothing is owed: a write that was acknowledged before it was done may have failed.
    shared.unpoisoned()?;
    let owed = {
        let mut state = shared.state.borrow_mut();
        if !owes(&mut state) {
            return Ok(());
        }
        owed_blocks(&mut state)
    };
    let _turn = shared.background.enter(1).await;
    let outcome = async {
        shared.unpoisoned()?;
        if canary!(ThroughLikeBack) {
            return flush_all(shared).await;
        }
        logged_home(shared, owed).await?;
        // What went home may have filled holes just now.
        let end = shared.state.borrow().log.end();
        mirror(shared, end).await
    }
    .await;
    if outcome.is_err() {
        shared.leave_failed_fast();
    }
    outcome
}

/// Whether something that was acknowledged may not be on both drives.
fn owes(state: &mut State) -> bool {
    state.log.client_end() > state.log.durable()
        || state.home_dirty != [false; 2]
        || state.flush.running
        || !state.unmirrored.is_empty()
        || awaits_home(state, state.log.end())
}

/// Whether the log has a newest version from before `end` that is not lost.
fn awaits_home(state: &mut State, end: Lsn) -> bool {
    if state.log.live_blocks() == state.log.lost_blocks() {
        return false;
    }
    let mut oldest = None;
    let mut lost = Vec::new();
    state.log.visit_live(end, |live| {
        lost.push(live.block);
        oldest = Some(live.block);
        false
    });
    let Some(block) = oldest else { return false };
    if !matches!(state.log.lookup(block), Some(Logged::Lost { .. })) {
        return true;
    }
    // Rare: the oldest is damaged for good, and others may stand behind it.
    let mut blocks = Vec::new();
    state.log.visit_live(end, |live| {
        blocks.push(live.block);
        true
    });
    blocks.iter().any(|block| !matches!(state.log.lookup(*block), Some(Logged::Lost { .. }) | None))
}

/// The blocks of which the log has the newest version now, and that are not lost.
fn owed_blocks(state: &mut State) -> BTreeSet<BlockId> {
    let mut blocks = BTreeSet::new();
    let end = state.log.end();
    state.log.visit_live(end, |live| {
        blocks.insert(live.block);
        true
    });
    blocks.retain(|block| !matches!(state.log.lookup(*block), Some(Logged::Lost { .. }) | None));
    blocks
}

/// Makes everything durable, and brings home the blocks `owed`: whatever the log has of them by then.
/// A version that was overwritten meanwhile would be on the fast drive alone, and the newer one may
/// not survive. So that nobody can go on overwriting for ever, who comes to their extents waits.
async fn logged_home(shared: &Rc<Shared>, owed: BTreeSet<BlockId>) -> Result<(), Error> {
    {
        let mut state = shared.state.borrow_mut();
        let extent_blocks = state.geometry.extent_blocks();
        state.going_home = owed.iter().map(|block| ExtentId(block.0 / extent_blocks)).collect();
    }
    let outcome = bring_blocks_home(shared, owed).await;
    shared.state.borrow_mut().going_home.clear();
    shared.released.wake_all();
    outcome
}

async fn bring_blocks_home(shared: &Rc<Shared>, mut owed: BTreeSet<BlockId>) -> Result<(), Error> {
    shared.state.borrow_mut().quiet.begin_work(WakeCause::Write);
    flush_all(shared).await?;
    loop {
        let (short, volatile) = {
            let state = shared.state.borrow();
            let newest = |block: &BlockId| state.log.lookup(*block);
            owed.retain(|block| !matches!(newest(block), Some(Logged::Lost { .. }) | None));
            if owed.is_empty() {
                return Ok(());
            }
            let durable = state.log.durable();
            let is_volatile = |block: &BlockId| newest(block).is_some_and(|it| it.lsn() >= durable);
            let short = state.log.room_blocks() < state.log_reserve_blocks() / 2;
            (short, owed.iter().all(is_volatile))
        };
        if short {
            checkpoint(shared).await?;
        }
        if volatile {
            flush_all(shared).await?;
        }
        if destage(shared, Below::Everything).await? == Progress::None {
            shared.unpoisoned()?;
            shared.io.sleep(HELD_UP_NS).await;
        }
    }
}

/// Writes the pages of which the slow drive does not know that an extent is, or is not, a hole.
async fn mirror(shared: &Rc<Shared>, end: Lsn) -> Result<(), Error> {
    while !canary!(HolesNotMirrored)
        && shared.state.borrow().unmirrored.values().any(|changes| changes.begin_before(end))
    {
        write_pages(shared).await?;
    }
    Ok(())
}

/// Brings everything home, and cleans every copy. Nothing dirty is made meanwhile, because the
/// caller has had routes go home and waited for who was under way.
async fn all_home(shared: &Rc<Shared>) -> Result<(), Error> {
    shared.state.borrow_mut().quiet.begin_work(WakeCause::Upkeep);
    flush_all(shared).await?;
    loop {
        if shared.state.borrow().homecoming == Some(Homecoming::Cancelled) {
            let text = "it was ended before everything was home; nothing is lost by that";
            return Err(Error::Unsuitable(text.into()));
        }
        if needs_room(shared) {
            // Nobody else makes any: the background's turn is ours.
            checkpoint(shared).await?;
        }
        let owed = owed_blocks(&mut shared.state.borrow_mut());
        logged_home(shared, owed).await?;
        if shared.state.borrow().map.on_fast_alone() == 0 {
            return Ok(());
        }
        if !clean_some(shared).await? {
            // A slot that was given up waits for a record, or a client for its turn.
            durable_point(shared).await?;
            shared.io.sleep(HELD_UP_NS).await;
        }
    }
}

/// Whether somebody waits for room in the log, or soon will, and dead records are all that is in the way.
fn needs_room(shared: &Shared) -> bool {
    let mut state = shared.state.borrow_mut();
    let short = state.log.room_blocks() < state.log_reserve_blocks() / 2;
    let reclaimable = state.log.oldest_live() > state.log.tail();
    reclaimable && (short || !state.room_line.is_empty())
}

/// Brings home what the log had when the volume was opened in write-through: of that nothing is
/// kept in memory.
pub(crate) async fn begin(shared: &Rc<Shared>) -> Result<(), Error> {
    let _turn = shared.background.enter(1).await;
    all_home(shared).await?;
    write_all_pages(shared).await?;
    shared.state.borrow_mut().through = true;
    Ok(())
}

/// Everything home before the volume is closed.
pub(crate) async fn end(shared: &Rc<Shared>) -> Result<(), Error> {
    if !shared.state.borrow().through {
        return Ok(());
    }
    let _turn = shared.background.enter(1).await;
    all_home(shared).await
}

/// Changes when writes are home, now and for later openings.
pub(crate) async fn set_mode(shared: &Rc<Shared>, mode: CacheMode) -> Result<(), Error> {
    if shared.geometry.class != Class::Cache {
        let text =
            "a mode is something that volumes of class cache have; this one is of class span";
        return Err(Error::Unsuitable(text.into()));
    }
    let _alone = shared.mode_turn.enter(1).await;
    shared.unpoisoned()?;
    let now = shared.superblock.borrow().cache_mode;
    if now == mode {
        return Ok(());
    }
    let outcome = match mode {
        // Of both the same is promised; only what becomes of copies is different.
        CacheMode::WriteThrough | CacheMode::WriteAround if now.brings_home() => {
            write_superblocks(shared, |superblock| superblock.cache_mode = mode).await
        }
        CacheMode::WriteThrough | CacheMode::WriteAround => to_write_through(shared, mode).await,
        CacheMode::WriteBack => {
            // Nothing is on its way home from memory then.
            let _turn = match canary!(KeptTakenLate) {
                true => None,
                false => Some(shared.background.enter(1).await),
            };
            if canary!(BackBeforeTold) {
                leave_through(shared);
            }
            // On the drives first: the slow one must not pass for whole when it is not any more.
            let changed =
                write_superblocks(shared, |superblock| superblock.cache_mode = mode).await;
            if changed.is_ok() {
                leave_through(shared);
            }
            changed
        }
    };
    if outcome.is_ok() {
        shared.state.borrow_mut().around = mode == CacheMode::WriteAround;
        marks::hit(Mark::CacheModeChanged);
    }
    outcome
}

/// Nothing is kept for a way home any more.
fn leave_through(shared: &Shared) {
    let mut state = shared.state.borrow_mut();
    (state.homeward, state.through) = (false, false);
    state.kept.clear();
    state.unmirrored.clear();
}

/// Bringing everything home while clients go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Homecoming {
    UnderWay,
    /// Somebody wants it to end.
    Cancelled,
}

/// Brings home what only the fast drive has. What clients write meanwhile goes home at once, so that
/// the end comes.
pub(crate) async fn bring_home(shared: &Rc<Shared>) -> Result<(), Error> {
    if shared.geometry.class != Class::Cache {
        let text = "what lives on the fast drive of a volume of class span has no home below; \
                    this is for class cache";
        return Err(Error::Unsuitable(text.into()));
    }
    let _alone = shared.mode_turn.enter(1).await;
    shared.unpoisoned()?;
    if shared.state.borrow().homeward {
        return flush_through(shared).await;
    }
    let outcome = with_routes_home(shared, async { all_home(shared).await }).await;
    stop_homeward(shared);
    outcome
}

/// Has every route go home, waits for who was under way, and does something in the background's turn.
async fn with_routes_home(
    shared: &Rc<Shared>,
    deed: impl Future<Output = Result<(), Error>>,
) -> Result<(), Error> {
    refuse_deferred(shared)?;
    let epoch = {
        let mut state = shared.state.borrow_mut();
        state.homeward = true;
        state.homecoming = Some(Homecoming::UnderWay);
        state.home_accesses.close_epoch()
    };
    // Who chose another route before has arrived, and makes nothing dirty any more.
    if !canary!(SwitchedUnderWriters) {
        shared.home_accesses_ended(epoch).await;
    }
    let turn = shared.background.enter(1).await;
    let outcome = deed.await;
    drop(turn);
    shared.state.borrow_mut().homecoming = None;
    outcome
}

/// Routes are those of write-back again.
fn stop_homeward(shared: &Shared) {
    let mut state = shared.state.borrow_mut();
    state.homeward = false;
    state.kept.clear();
    state.unmirrored.clear();
}

fn refuse_deferred(shared: &Shared) -> Result<(), Error> {
    if shared.state.borrow().exposure.mode() == FlushMode::Strict {
        return Ok(());
    }
    let text = "write-through brings home what a flush covers, which deferred durability does not: \
                set durability=strict first";
    Err(Error::Unsuitable(text.into()))
}

/// Into write-through, or write-around.
async fn to_write_through(shared: &Rc<Shared>, mode: CacheMode) -> Result<(), Error> {
    refuse_deferred(shared)?;
    let deed = async {
        if !canary!(SwitchedBeforeHome) {
            all_home(shared).await?;
        }
        // From here on a flush brings home what it covers, and what a flush covered before comes now:
        // the superblocks must not say write-through over anything that is on the fast drive alone.
        let owed = {
            let mut state = shared.state.borrow_mut();
            state.flushes_home = !canary!(FlushesStayAbove);
            owed_blocks(&mut state)
        };
        logged_home(shared, owed).await?;
        // All pages, both copies of each: from now on either is believed when the other is torn.
        shared.state.borrow_mut().dirty_all_pages();
        write_all_pages(shared).await?;
        write_superblocks(shared, |superblock| superblock.cache_mode = mode).await
    };
    let outcome = with_routes_home(shared, deed).await;
    shared.state.borrow_mut().flushes_home = false;
    if outcome.is_ok() {
        shared.state.borrow_mut().through = true;
    } else {
        stop_homeward(shared);
    }
    outcome
}
