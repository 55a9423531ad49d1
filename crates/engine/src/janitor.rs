//! The one background task: destages, moves, checkpoints. It does one bounded thing at a time and
//! then looks again, so that what it does follows what clients need now.

use std::future::Future;
use std::rc::Rc;

use io::units::{MILLISECOND_NS, SECOND_NS};

use crate::address::Tier;
use crate::checkpoint::{checkpoint, vouch};
use crate::demise::look_at_suspects;
use crate::destage::{Progress, destage};
use crate::doubts::Vouch;
use crate::error::{Error, Poison};
use crate::flush::durable_point;
use crate::mover::move_some;
use crate::shared::Shared;
use crate::state::{Rest, State};

/// No client request for so long: the drives are idle.
const IDLE_NS: u64 = 100 * MILLISECOND_NS;
/// No client request for so long: the slow drive is made to vouch for what it has. Much longer than
/// file systems wait between commits, each of which would then have to mark its regions anew.
const VOUCH_IDLE_NS: u64 = 8 * SECOND_NS;
/// From this fill on the log is destaged whether clients are busy or not.
const FILL_BUSY: f64 = 0.5;
/// Dead records worth a checkpoint when clients are busy: a sixteenth of the ring.
const RECLAIM_SHARE: u64 = 16;
/// Youth is ended when so many extents have it, and slots are freed when so many wait: bounds
/// memory, and what recovery must verify.
const YOUNG_MAX: usize = 8192;
/// Destage could do nothing because requests hold the extents: look again after so long.
const HELD_UP_NS: u64 = 5 * MILLISECOND_NS;
/// After a failed destage or move the drive is left alone for so long.
const RETRY_NS: u64 = 1000 * MILLISECOND_NS;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Destage,
    Checkpoint,
    DurablePoint,
    /// The slow drive is made to vouch for what it has.
    Vouch,
    Move,
    /// Nothing before this time, or a full log.
    Rest(u64),
    /// Nothing before this time, if any, unless clients make work.
    Doze(Option<u64>),
    Stop,
}

/// Runs until the engine closes.
pub(crate) async fn run(shared: Rc<Shared>) {
    let mut failed_at = None;
    loop {
        if suspects(&shared) {
            look_at_suspects(&shared).await;
        }
        let now_ns = shared.io.now_ns();
        let mut work = choose(&mut shared.state.borrow_mut(), now_ns);
        if let Some(failed_at) = failed_at
            && now_ns < failed_at + RETRY_NS
            && !matches!(work, Work::Stop)
        {
            work = Work::Rest(failed_at + RETRY_NS);
        }
        let turn = match work {
            Work::Stop | Work::Rest(_) | Work::Doze(_) => None,
            _ => Some(shared.background.enter(1).await),
        };
        let outcome = match work {
            Work::Stop => break,
            Work::Rest(until_ns) => {
                rest(&shared, Some(until_ns), Rest::UntilIdle).await;
                continue;
            }
            Work::Doze(until_ns) => {
                rest(&shared, until_ns, Rest::UntilWoken).await;
                continue;
            }
            Work::Destage => match drain(&shared, destage(&shared)).await {
                Ok(Progress::None) => {
                    // Held up by requests under way: let them end.
                    drop(turn);
                    let soon = shared.io.now_ns() + HELD_UP_NS;
                    rest(&shared, Some(soon), Rest::UntilIdle).await;
                    Ok(())
                }
                outcome => outcome.map(|_| ()),
            },
            Work::Checkpoint => drain(&shared, checkpoint(&shared)).await,
            Work::DurablePoint => durable_point(&shared).await,
            Work::Vouch => vouch(&shared, Vouch::Settled).await,
            Work::Move => match move_some(&shared).await {
                Ok(false) => {
                    // Everything that could move stays better where it is, until clients change
                    // something.
                    let now_ns = shared.io.now_ns();
                    let doze_until = doze_until(&shared.state.borrow(), now_ns);
                    drop(turn);
                    rest(&shared, doze_until, Rest::UntilWoken).await;
                    Ok(())
                }
                outcome => outcome.map(|_| ()),
            },
        };
        match outcome {
            Ok(()) => failed_at = None,
            Err(error) => {
                shared.leave_failed_fast();
                if work != Work::Move {
                    note_failure(&shared, error);
                }
                failed_at = Some(shared.io.now_ns());
            }
        }
        shared.wake_room();
    }
    shared.janitor_ended.set(true);
    shared.janitor_work.wake_all();
}

/// Measures how long emptying the log takes.
async fn drain<T>(shared: &Shared, work: impl Future<Output = T>) -> T {
    let started_ns = shared.io.now_ns();
    let value = work.await;
    let duration_ns = shared.io.now_ns() - started_ns;
    shared.state.borrow_mut().pace.worked(duration_ns);
    value
}

/// A failed destage loses nothing: the data stays where it was. But when the log is full
/// because of it, clients must hear of it instead of waiting for ever.
fn note_failure(shared: &Shared, error: Error) {
    let waiting = !shared.state.borrow().room_line.is_empty();
    if waiting {
        shared.poison(Poison::by("the landing log is full and cannot be emptied", error));
    }
}

fn choose(state: &mut State, now_ns: u64) -> Work {
    // Requests under way may still need room in the log.
    if state.poisoned.is_some() || (state.closing && state.requests_under_way == 0) {
        return Work::Stop;
    }
    state.reclaim();
    let oldest_live = state.log.oldest_live();
    // What is lost stays in the log for good.
    let destageable = state.log.live_blocks() > state.log.lost_blocks();
    let reclaimable = oldest_live.0 - state.log.tail().0;
    let worth = state.log.ring_blocks() / RECLAIM_SHARE;
    let urgent = !state.room_line.is_empty() || state.log_fill() >= FILL_BUSY;
    if urgent && reclaimable >= worth {
        return Work::Checkpoint;
    }
    if urgent && (destageable || state.log.lost_blocks() > 0) {
        return Work::Destage;
    }
    if !state.room_line.is_empty() && reclaimable > 0 {
        return Work::Checkpoint;
    }
    let slots_wait = state.slots_low() || state.quarantine.len() > YOUNG_MAX;
    if state.young.len() > YOUNG_MAX || (slots_wait && state.quarantine_waits_for_record()) {
        return Work::DurablePoint;
    }
    let idle_at = state.last_request_ns + IDLE_NS;
    let idle = state.requests_under_way == 0 && now_ns >= idle_at;
    let vouch_due = idle && doze_until(state, now_ns).is_some_and(|due| now_ns >= due);
    let has_work = destageable
        || vouch_due
        || reclaimable >= worth
        || state.waits_for_record()
        || state.placer.has_candidates()
        || !state.bad_copies.is_empty()
        || state.slots[0].free() < state.fast_reserve();
    if !has_work {
        return Work::Doze(doze_until(state, now_ns));
    }
    if !idle {
        let busy = state.requests_under_way > 0;
        return Work::Rest(if busy { now_ns + IDLE_NS } else { idle_at });
    }
    if destageable {
        return Work::Destage;
    }
    if reclaimable >= worth {
        return Work::Checkpoint;
    }
    if state.waits_for_record() {
        return Work::DurablePoint;
    }
    if vouch_due {
        return Work::Vouch;
    }
    if state.placer.has_candidates()
        || !state.bad_copies.is_empty()
        || state.slots[0].free() < state.fast_reserve()
    {
        return Work::Move;
    }
    Work::Doze(doze_until(state, now_ns))
}

/// When the slow drive is made to vouch for what has changed, if anything has.
/// While requests are under way, as they are for minutes on a drive that hangs, that moment may
/// have come, and nothing can be done: a later one is given.
fn doze_until(state: &State, now_ns: u64) -> Option<u64> {
    let busy_until_ns = if state.requests_under_way > 0 { now_ns } else { state.last_request_ns };
    state.doubts.any_touched().then_some(busy_until_ns + VOUCH_IDLE_NS)
}

fn suspects(shared: &Shared) -> bool {
    Tier::BOTH.iter().any(|tier| shared.drive(*tier).is_suspect())
}

/// Has the janitor look, if it sleeps through what has changed. Called after client requests.
pub(crate) fn wake_if_needed(shared: &Shared) {
    let state = shared.state.borrow();
    let wake = match state.janitor {
        Rest::Awake => false,
        Rest::UntilIdle => state.log_fill() >= FILL_BUSY || state.young.len() > YOUNG_MAX,
        Rest::UntilWoken => {
            state.log.live_blocks() > state.log.lost_blocks()
                || state.waits_for_record()
                || state.placer.has_candidates()
                || !state.bad_copies.is_empty()
                || state.doubts.any_touched() && !state.dozing
                || state.young.len() > YOUNG_MAX
                || state.slots[0].free() < state.fast_reserve()
        }
    };
    drop(state);
    if wake || suspects(shared) {
        shared.janitor_work.wake_all();
    }
}

/// Waits for a wake-up, or until a moment on the clock.
async fn rest(shared: &Rc<Shared>, until_ns: Option<u64>, how: Rest) {
    {
        let mut state = shared.state.borrow_mut();
        state.janitor = how;
        state.dozing = until_ns.is_some();
    }
    shared.woken_or_at(&shared.janitor_work, until_ns).await;
    shared.state.borrow_mut().janitor = Rest::Awake;
}
