//! Deferred mode: flushes that end when their order is fixed, and the task that makes everything
//! durable within the bound.
//!
//! Recovery always brings up a prefix of the log, whatever the mode. What deferred mode adds is
//! that *everything* goes through the log: nothing is written in place by clients, so a prefix of the
//! log is a prefix of the writes. `docs/durability.md` has the argument.
//!
//! * While something older than the bound is not durable, or more than it in bytes, nothing is
//!   acknowledged, and a write that would exceed the bytes waits before it is ordered: a slow or hanging drive
//!   stops clients, it does not stretch the bound.
//! * Changing the mode makes everything durable that came before, and returns after that.

use std::rc::Rc;

use crate::behind;
use crate::canary::canary;
use crate::checkpoint::write_superblock;
use crate::error::Error;
use crate::exposure::Alarm;
use crate::flush::flush_all;
use crate::flush_mode::FlushMode;
use crate::homing::flush_through;
use crate::marks::{self, Mark};
use crate::shared::Shared;
use crate::state::State;

impl State {
    /// Says that what was appended so far includes a client's change of so many bytes, made now.
    pub fn note_client(&mut self, now_ns: u64, bytes: u64) -> Alarm {
        self.log.note_client();
        self.lull.landed(now_ns);
        let end = self.log.end();
        self.exposure.note(end, now_ns, bytes)
    }
}

impl Shared {
    /// Has the flusher look, if it must.
    pub fn raise(&self, alarm: Alarm) {
        if alarm == Alarm::Flush {
            self.flush_work.wake_all();
        }
    }

    /// Waits until nothing is exposed for longer than the bound allows. What is acknowledged
    /// after that keeps the bound.
    pub async fn within_bound(&self) -> Result<(), Error> {
        if canary!(BoundForgotten) {
            return Ok(());
        }
        self.until_flushed(|state, now_ns| !state.exposure.is_beyond_bound(now_ns)).await
    }

    /// Waits until a change of so many bytes may be ordered.
    pub async fn exposable(&self, bytes: u64) -> Result<(), Error> {
        self.until_flushed(|state, now_ns| !state.exposure.must_wait(now_ns, bytes)).await
    }

    async fn until_flushed(&self, enough: impl Fn(&State, u64) -> bool) -> Result<(), Error> {
        let mut waits = false;
        self.flushed
            .until(|| {
                let mut state = self.state.borrow_mut();
                if let Some(cause) = state.stopped() {
                    return Some(Err(Error::Poisoned(cause.clone())));
                }
                if enough(&state, self.io.now_ns()) {
                    return Some(Ok(()));
                }
                if !waits {
                    waits = true;
                    marks::hit(Mark::BoundReached);
                }
                state.exposure.want_flush();
                drop(state);
                self.flush_work.wake_all();
                None
            })
            .await
    }
}

/// Flushes within the bound until the volume is closed.
pub(crate) async fn run(shared: Rc<Shared>) {
    loop {
        let now_ns = shared.io.now_ns();
        let due_ns = {
            let state = shared.state.borrow();
            if state.closed || state.poisoned.is_some() {
                return;
            }
            state.exposure.flush_due_ns(now_ns)
        };
        if due_ns.is_some_and(|due_ns| due_ns <= now_ns) && !canary!(BoundForgotten) {
            shared.state.borrow_mut().exposure.flushing();
            marks::hit(Mark::BoundFlushed);
            // A failure poisons the volume, and the next round ends.
            let _ = flush_all(&shared).await;
        } else {
            let due_ns = due_ns.filter(|_| !canary!(BoundForgotten));
            shared.woken_or_at(&shared.flush_work, due_ns).await;
        }
    }
}

/// Changes what flushes promise. Everything before the call is durable when it returns.
pub(crate) async fn set_mode(shared: &Rc<Shared>, mode: FlushMode) -> Result<(), Error> {
    let _alone = shared.mode_turn.enter(1).await;
    shared.unpoisoned()?;
    if mode != FlushMode::Strict && shared.state.borrow().homeward {
        let text = "a write-through cache brings home what a flush covers, which deferred durability \
                    does not: set mode=writeback first";
        return Err(Error::Unsuitable(text.into()));
    }
    let was = shared.state.borrow().exposure.mode();
    if mode == FlushMode::Strict {
        // Flushes are true from now on, but order must be kept until what was only ordered is
        // durable: a home written in place could outlive an earlier write.
        shared.state.borrow_mut().exposure.set_mode(mode);
        if canary!(InPlaceTooEarly) {
            shared.state.borrow_mut().exposure.keep_order(false);
        }
        if !canary!(BehindStrictAgain) {
            // Nothing is behind in deferred mode, but the mode may have been strict already.
            behind::all_written(shared).await;
        }
        if !canary!(StrictWithoutFlush) {
            let through = shared.state.borrow().through;
            match through {
                // As for any flush there: what it covers is at home.
                true => flush_through(shared).await?,
                false => flush_all(shared).await?,
            }
        }
    } else if was == FlushMode::Strict {
        // What was written in place has no order: it must be durable before anything is only
        // ordered after it.
        shared.state.borrow_mut().exposure.keep_order(!canary!(OrderKeptLate));
        if !canary!(BehindIntoDeferred) {
            // Or it would be ordered after what is acknowledged later.
            behind::all_written(shared).await;
        }
        if !canary!(DeferredOverUnflushed) {
            shared
                .released
                .until(|| {
                    let state = shared.state.borrow();
                    let writing = state.guards.any_home_written();
                    let over = !writing || canary!(DeferredOverWriters);
                    (state.poisoned.is_some() || over).then_some(())
                })
                .await;
            flush_all(shared).await?;
        }
        if canary!(OrderKeptLate) {
            shared.state.borrow_mut().exposure.keep_order(true);
        }
        shared.state.borrow_mut().exposure.set_mode(mode);
    } else {
        shared.state.borrow_mut().exposure.set_mode(mode);
        flush_all(shared).await?;
    }
    // Those who waited within the old bound look at the new one.
    shared.flushed.wake_all();
    shared.flush_work.wake_all();
    marks::hit(Mark::FlushModeChanged);
    write_superblock(shared, |superblock| superblock.flush_mode = mode).await?;
    if mode == FlushMode::Strict {
        // What a power cut leaves is judged by what the superblock says: as long as that is deferred, a home
        // written in place could outlive an earlier write.
        shared.state.borrow_mut().exposure.keep_order(false);
    }
    Ok(())
}
