//! Making durable: one fast-drive flush for all that was written, shared by all who ask at once.

use std::rc::Rc;

use io::Durability;

use crate::address::Tier;
use crate::alone;
use crate::canary::canary;
use crate::doubts;
use crate::error::{Error, Poison};
use crate::homing::flush_through;
use crate::marks::{self, Mark};
use crate::quiet::WakeCause;
use crate::shared::Shared;

/// A shared flush waits for others for this part of the time that the last one took.
const GATHER_PART: u64 = 32;
/// Not where flushes are so quick that a timer would cost as much.
const GATHER_FROM_NS: u64 = 2_000_000;
/// And never longer: half a millisecond is ten writes of a drive that flushes as slowly.
const GATHER_NS_MAX: u64 = 500_000;

/// What a client's request owes when it ends. Decided when it begins: the volume may promise something
/// else by its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owed {
    /// Nothing but the bound of deferred mode.
    Bound,
    /// A flush, of whatever kind the volume promises at the end.
    Flush,
    /// A flush that is one: the volume was strict.
    StrictFlush,
}

impl Owed {
    /// Of a change that begins now.
    pub fn by(shared: &Shared, durability: Durability) -> Owed {
        match durability {
            Durability::Volatile => Owed::Bound,
            Durability::Durable => Owed::flush(shared),
        }
    }

    /// Of a flush that begins now.
    pub fn flush(shared: &Shared) -> Owed {
        let strict = shared.state.borrow().exposure.bound().is_none();
        if strict && !canary!(PromiseOfTheEnd) { Owed::StrictFlush } else { Owed::Flush }
    }
}

/// Gives what is owed.
pub(crate) async fn settle(shared: &Rc<Shared>, owed: Owed) -> Result<(), Error> {
    match owed {
        Owed::Bound => shared.within_bound().await,
        Owed::Flush => flush_for_client(shared, false).await,
        Owed::StrictFlush => flush_for_client(shared, true).await,
    }
}

/// A client's flush: everything its completed requests wrote is durable afterwards, if the volume is
/// strict or was when it began. Sends nothing when no client's write is unflushed.
async fn flush_for_client(shared: &Rc<Shared>, strict: bool) -> Result<(), Error> {
    if !shared.is_alone() {
        let through = {
            let state = shared.state.borrow();
            state.through || state.flushes_home
        };
        let outcome = match through {
            true => Box::pin(flush_through(shared)).await,
            false => flush_fast(shared, strict).await,
        };
        if outcome.is_ok() || !shared.is_alone() {
            return outcome;
        }
    }
    Box::pin(alone::flush(shared)).await
}

/// Makes everything durable that completed requests have written, wherever they wrote it.
async fn flush_fast(shared: &Shared, strict: bool) -> Result<(), Error> {
    shared.unpoisoned()?;
    if canary!(FlushNotSent) {
        return Ok(());
    }
    if !strict && shared.state.borrow().exposure.bound().is_some() {
        // What has ended is on the drive in its order, which the death of this process does not undo.
        return shared.within_bound().await;
    }
    let (dirty, running) = {
        let state = shared.state.borrow();
        let enough =
            if canary!(WrittenIsEnough) { state.log.written() } else { state.log.durable() };
        let unwritten = state.log.client_end() > enough;
        let dirty = unwritten || state.home_dirty != [false; 2];
        (dirty, state.flush.running.then_some(state.flush.next))
    };
    match running {
        _ if dirty => flush_all(shared).await,
        // The flush under way has taken the marks, but not yet done the work.
        Some(_) if canary!(RunningFlushIgnored) => Ok(()),
        Some(turn) => {
            marks::hit(Mark::FlushJoinedRunning);
            shared.flushed.until(|| (shared.state.borrow().flush.done >= turn).then_some(())).await;
            shared.unpoisoned()
        }
        None => Ok(()),
    }
}

/// Makes everything durable that was appended or written to homes before the call.
pub(crate) async fn flush_all(shared: &Shared) -> Result<(), Error> {
    let (mut turn, gathers) = {
        let mut state = shared.state.borrow_mut();
        state.flush.callers += 1;
        (state.flush.next, state.flush.running || state.flush.last_callers > 1)
    };
    if canary!(FlushJoinsRunning) && shared.state.borrow().flush.running {
        turn -= 1;
    }
    loop {
        // Either our turn has been done by someone, or nobody runs and we lead it.
        let lead = shared
            .flushed
            .until(|| {
                let state = shared.state.borrow();
                if let Some(cause) = &state.poisoned {
                    return Some(Err(Error::Poisoned(cause.clone())));
                }
                if state.flush.done > turn || canary!(TurnTooEarly) && state.flush.done == turn {
                    return Some(Ok(false));
                }
                (!state.flush.running).then_some(Ok(true))
            })
            .await?;
        if !lead {
            marks::hit(Mark::FlushShared);
            return Ok(());
        }
        let leading = {
            let mut state = shared.state.borrow_mut();
            let free = !state.flush.running;
            state.flush.running = true;
            free
        };
        if leading {
            if gathers {
                gather(shared).await;
            }
            let outcome = run_turn(shared).await;
            {
                let mut state = shared.state.borrow_mut();
                state.flush.running = false;
                state.flush.done = state.flush.next;
            }
            if let Err(error) = &outcome
                && !matches!(error, Error::Poisoned(_))
                && !canary!(FlushFailureForgotten)
            {
                // After a failed flush nobody knows which writes the drive has dropped.
                shared.poison(Poison::by("a flush failed", error.clone()));
            }
            shared.flushed.wake_all();
            return outcome;
        }
    }
}

/// Where flushes are slow and shared, a turn waits a moment for those whom the last one has just
/// served: in a loop of writes and flushes they come again within a few writes, and if the first of
/// them went ahead alone, the others would wait for two flushes. A lone client never waits here.
async fn gather(shared: &Shared) {
    let last_ns = shared.state.borrow().flush.last_ns;
    if last_ns < GATHER_FROM_NS {
        return;
    }
    shared.io.sleep((last_ns / GATHER_PART).min(GATHER_NS_MAX)).await;
}

async fn run_turn(shared: &Shared) -> Result<(), Error> {
    let begun_ns = shared.io.now_ns();
    let (end, mut home_dirty) = {
        let mut state = shared.state.borrow_mut();
        // Who comes from here on joins the next turn.
        state.flush.next += 1;
        state.flush.last_callers = std::mem::take(&mut state.flush.callers);
        // With the end of the log: a home that is written later may be one that a later record tells of, and
        // is not safe before that is.
        let home_dirty = state.home_dirty;
        if !canary!(NotesTakenLate) && !canary!(NotesTakenWhenWritten) {
            state.home_dirty = [false; 2];
        }
        // The turn ends between two records. If it ended inside the open one, and that one grew, destage would
        // wait for the rest to become durable, and nobody for that but a client's next flush.
        if !canary!(TurnEndsInsideRecord) {
            state.log.seal_now();
        }
        (state.log.end(), home_dirty)
    };
    if !canary!(FlushBeforeWritten) {
        let written = shared.log_written(end).await;
        if written.is_err() {
            // The slow drive may go on alone, and has them to flush.
            let state = &mut *shared.state.borrow_mut();
            for (now, taken) in state.home_dirty.iter_mut().zip(home_dirty) {
                *now |= taken;
            }
        }
        written?;
    }
    let (until, slow_dirty, doubts) = {
        let mut state = shared.state.borrow_mut();
        if canary!(NotesTakenWhenWritten) {
            home_dirty = std::mem::take(&mut state.home_dirty);
        }
        let slow_dirty = home_dirty[Tier::Slow.index()];
        let doubts = state.doubts.take_unwritten();
        // No further than the notes go: a later record may tell of data that is not flushed in this turn.
        let written = state.log.written();
        let until = if canary!(NotesTakenWhenWritten) { written } else { written.min(end) };
        (until, slow_dirty, doubts)
    };
    // Both at once: what a record names is verified by its data at recovery, so the order in
    // which the drives finish does not matter.
    let fast = shared.fast.flush();
    let marked = match &doubts {
        Some(page) => write_doubts(shared, page).await,
        None => Ok(()),
    };
    let marking = doubts.is_some() && !canary!(DoubtNotFlushed);
    let slow = (slow_dirty && !canary!(FlushForgetsSlow) || marking).then(|| {
        let cause = if slow_dirty { WakeCause::Write } else { WakeCause::Mark };
        shared.state.borrow_mut().quiet.used(cause, begun_ns);
        marks::hit(Mark::FlushOfBoth);
        shared.slow.flush()
    });
    let fast = fast.await;
    if let Some(slow) = slow {
        let slow = slow.await;
        if !canary!(SlowFailureIgnored) {
            slow?;
        }
    }
    let flushed = fast?;
    if !canary!(DoubtFailureIgnored) {
        marked?;
    }
    let mut state = shared.state.borrow_mut();
    let until = if canary!(FlushCoversLater) { state.log.written() } else { until };
    state.flush.last_ns = shared.io.now_ns() - begun_ns;
    if canary!(NotesTakenLate) {
        state.home_dirty = [false; 2];
    }
    if let Some(page) = doubts {
        state.doubts.settle(page);
    }
    state.log.settle_durable(until, &flushed);
    let durable = state.log.durable();
    state.exposure.settle(durable);
    state.settle_young();
    Ok(())
}

/// Writes the doubt page; the caller flushes the slow drive.
async fn write_doubts(shared: &Shared, page: &[u64]) -> Result<(), Error> {
    let tag = shared.superblock.borrow().volume_tag();
    let copies = shared.state.borrow().doubts.copies(shared.io.pool(), tag, page);
    doubts::write(&shared.slow, copies).await
}

/// Makes everything durable and has the log say so, which ends the youth of all extents and lets
/// every slot given up so far go free.
pub(crate) async fn durable_point(shared: &Shared) -> Result<(), Error> {
    marks::hit(Mark::DurablePoint);
    flush_all(shared).await?;
    shared.internal_room(1).await?;
    shared.state.borrow_mut().log.append_durable_point(shared.io.pool());
    flush_all(shared).await
}
