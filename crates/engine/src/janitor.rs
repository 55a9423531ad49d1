//! The one background task: destages, moves, checkpoints. It does one bounded thing at a time and
//! then looks again, so that what it does follows what clients need now.

use std::future::Future;
use std::rc::Rc;

use io::units::{MILLISECOND_NS, SECOND_NS};

use crate::address::Tier;
use crate::checkpoint::{checkpoint, vouch};
use crate::cleaning;
use crate::demise::look_at_suspects;
use crate::destage::{Below, Progress, destage};
use crate::doubts::Vouch;
use crate::error::{Error, Poison};
use crate::flush::durable_point;
use crate::inclusion;
use crate::lasting_heat;
use crate::marks::{self, Mark};
use crate::mover::{Effort, leaves_for_free, move_some};
use crate::quiet::WakeCause;
use crate::shared::Shared;
use crate::state::{Rest, State};

/// No client request for so long: the drives are idle.
const IDLE_NS: u64 = 100 * MILLISECOND_NS;
/// No client request for so long: the slow drive is made to vouch for what it has. Much longer than
/// file systems wait between commits, each of which would then have to mark its regions anew.
const VOUCH_IDLE_NS: u64 = 8 * SECOND_NS;
/// From this fill on the log is destaged whether clients are busy or not; slowly while none of them writes (`lull.rs`).
const FILL_BUSY: f64 = 0.5;
/// Dead records worth a checkpoint when clients are busy: a sixteenth of the ring.
const RECLAIM_SHARE: u64 = 16;
/// Youth is ended when so many extents have it, and slots are freed when so many wait: bounds
/// memory, and what recovery must verify.
const YOUNG_MAX: usize = 8192;
/// Room in the log that records of a batch of moves take at most: beside a full log they wait.
const MOVE_BLOCKS: u64 = 8;
/// So many slots that were given up are worth a durable record when slots are short.
const SLOTS_WORTH_A_RECORD: u64 = 8;
/// Destage could do nothing because requests hold the extents: look again after so long.
const HELD_UP_NS: u64 = 5 * MILLISECOND_NS;
/// Clients are busy, and something waits to be moved: look again after so long.
const BUSY_MOVE_NS: u64 = 20 * MILLISECOND_NS;
/// What is hot is written down beside clients who never rest, when it should have been so long ago.
const REMEMBERED_LATE_NS: u64 = 3600 * SECOND_NS;
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
    Move(Effort),
    /// Originals that are kept below are given back.
    GiveBack,
    /// What is hot is written down.
    Remember,
    /// Nothing before this time, or a full log.
    Rest(u64),
    /// Nothing before this time, if any, unless clients make work.
    Doze(Option<u64>),
    Stop,
}

/// Runs until the engine closes.
pub(crate) async fn run(shared: Rc<Shared>) {
    let mut failed_at = None;
    let mut moved_in_vain = false;
    loop {
        if suspects(&shared) {
            look_at_suspects(&shared).await;
        }
        let now_ns = shared.io.now_ns();
        let slow_is_idle = shared.slow.is_idle();
        let mut work = choose(&mut shared.state.borrow_mut(), now_ns, slow_is_idle, !moved_in_vain);
        if let Some(failed_at) = failed_at
            && now_ns < failed_at + RETRY_NS
            && !matches!(work, Work::Stop)
        {
            work = Work::Rest(failed_at + RETRY_NS);
        }
        note_use(&shared, work, now_ns);
        let turn = match work {
            Work::Stop | Work::Rest(_) | Work::Doze(_) => None,
            _ => Some(shared.background.enter(1).await),
        };
        if !matches!(work, Work::Rest(_)) {
            moved_in_vain = false;
        }
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
            Work::Destage => match drain(&shared, destage_politely(&shared)).await {
                Ok(Progress::None) => {
                    // Held up by requests under way: let them end.
                    drop(turn);
                    let soon = shared.io.now_ns() + HELD_UP_NS;
                    rest(&shared, Some(soon), Rest::UntilIdle).await;
                    Ok(())
                }
                Ok(Progress::Carried) => {
                    // Nothing was emptied in that time.
                    shared.state.borrow_mut().pace.carried();
                    Ok(())
                }
                outcome => outcome.map(|_| ()),
            },
            Work::Checkpoint => drain(&shared, checkpoint(&shared)).await,
            Work::DurablePoint => durable_point(&shared).await,
            Work::Vouch => vouch(&shared, Vouch::Settled).await,
            Work::GiveBack => {
                inclusion::give_back(&shared).await;
                Ok(())
            }
            Work::Remember => {
                lasting_heat::save(&shared).await;
                Ok(())
            }
            Work::Move(effort) => match move_some(&shared, effort).await {
                Ok(false) if effort != Effort::All => {
                    moved_in_vain = true;
                    drop(turn);
                    let soon = shared.io.now_ns() + BUSY_MOVE_NS;
                    rest(&shared, Some(soon), Rest::UntilIdle).await;
                    Ok(())
                }
                Ok(false) => {
                    // Everything that could move stays better where it is, until clients change
                    // something.
                    shared.state.borrow_mut().stage.give_up_entering();
                    let now_ns = shared.io.now_ns();
                    let doze_until = alarm_ns(&shared.state.borrow(), now_ns);
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
                if !matches!(work, Work::Move(_)) {
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

/// Says what the slow drive is used for, in case it sleeps.
fn note_use(shared: &Shared, work: Work, now_ns: u64) {
    let mut state = shared.state.borrow_mut();
    let urgent = presses(&state, now_ns);
    let cause = if urgent { WakeCause::LogFull } else { WakeCause::Upkeep };
    state.quiet.begin_work(cause);
    match work {
        // Destage and checkpoint say themselves whether they do.
        Work::Vouch => state.quiet.used(cause, now_ns),
        Work::Move(Effort::FewBelow | Effort::All) => state.quiet.used(cause, now_ns),
        _ => {}
    }
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

/// Destages; while that could wait it counts as being in the way.
async fn destage_politely(shared: &Rc<Shared>) -> Result<Progress, Error> {
    let could_wait = {
        let state = shared.state.borrow();
        state.room_line.is_empty() && state.log_fill() < FILL_BUSY
    };
    shared.state.borrow_mut().courtesy.work(could_wait);
    let begun_ns = shared.io.now_ns();
    let below = {
        let state = shared.state.borrow();
        // What is alive would go round for ever beside a drive that has nothing to do.
        let is_spared = state.quiet.is_wanted() || state.quiet.is_in_use(begun_ns);
        match presses(&state, begun_ns) && is_spared {
            true => Below::WhatMust,
            false => Below::Everything,
        }
    };
    let outcome = destage(shared, below).await;
    let now_ns = shared.io.now_ns();
    let mut state = shared.state.borrow_mut();
    state.courtesy.work(false);
    state.lull.emptied(now_ns, now_ns - begun_ns);
    outcome
}

/// Whether the log is to be emptied although clients are busy.
fn presses(state: &State, now_ns: u64) -> bool {
    let fills = state.log_fill() >= FILL_BUSY && !state.lull.lets_wait(now_ns);
    fills || !state.room_line.is_empty()
}

/// What can be moved and costs the slow drive nothing: clean copies leave, what is staged enters, and slots come
/// back for it.
fn choose_free_move(state: &State) -> Option<Work> {
    let enters = state.stage.entering() > 0;
    let is_short = state.slots[0].free() <= state.slots_kept();
    if enters && !is_short {
        return Some(Work::Move(Effort::Above));
    }
    if state.placer.any_leaving(|extent| leaves_for_free(&state.map, extent)) {
        return Some(Work::Move(Effort::Above));
    }
    let many_wait = is_short && state.quarantine.waiting_on(Tier::Fast) >= SLOTS_WORTH_A_RECORD;
    ((enters || many_wait) && state.quarantine_waits_for_record()).then_some(Work::DurablePoint)
}

/// What can be moved while clients are busy.
fn choose_busy_move(state: &State, slow_is_idle: bool) -> Option<Work> {
    if let Some(work) = choose_free_move(state) {
        return Some(work);
    }
    let waits = state.placer.has_leaving() || state.stage.entering() > 0;
    let leaves = waits && !state.quiet.is_wanted() && state.courtesy.allows(slow_is_idle);
    leaves.then(|| {
        marks::hit(Mark::MovedBelowWhileBusy);
        Work::Move(Effort::FewBelow)
    })
}

/// `tries_moves`: the last that were tried were not in vain.
fn choose(state: &mut State, now_ns: u64, slow_is_idle: bool, tries_moves: bool) -> Work {
    // Requests under way may still need room in the log.
    if state.poisoned.is_some() || (state.closing && state.requests_ended()) {
        return Work::Stop;
    }
    state.reclaim();
    if inclusion::is_pressed(state) {
        // Before the log is emptied: that may wait for slots.
        return Work::GiveBack;
    }
    let oldest_live = state.log.oldest_live();
    // What is lost stays in the log for good.
    let destageable = state.log.live_blocks() > state.log.lost_blocks();
    let reclaimable = oldest_live.0 - state.log.tail().0;
    let worth = state.log.ring_blocks() / RECLAIM_SHARE;
    let urgent = presses(state, now_ns);
    // Emptying the log has less to do afterwards, but must never wait for room that moves took.
    let may_move = tries_moves && state.room_line.is_empty() && state.has_room_for(MOVE_BLOCKS);
    if urgent
        && may_move
        && let Some(work) = choose_free_move(state)
    {
        return work;
    }
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
    if inclusion::waits_for_record(state) {
        return Work::DurablePoint;
    }
    if state.young.len() > YOUNG_MAX || (slots_wait && state.quarantine_waits_for_record()) {
        return Work::DurablePoint;
    }
    let idle_at = state.last_request_ns + IDLE_NS * state.courtesy.patience();
    let idle = state.requests_under_way == 0 && now_ns >= idle_at;
    let vouch_due = idle
        && !state.quiet.is_wanted()
        && vouch_ns(state, now_ns).is_some_and(|due| now_ns >= due);
    let moves_due = has_moves(state) || later_moves_ns(state).is_some_and(|due| now_ns >= due);
    let leaving = inclusion::is_leaving(state);
    let remember_due = remember_ns(state).is_some_and(|due| now_ns >= due);
    let has_work = destageable
        || vouch_due
        || reclaimable >= worth
        || state.waits_for_record()
        || moves_due
        || leaving
        || remember_due;
    if !has_work {
        return Work::Doze(alarm_ns(state, now_ns));
    }
    if !idle && remember_ns(state).is_some_and(|due| now_ns >= due + REMEMBERED_LATE_NS) {
        return Work::Remember;
    }
    if !idle && let Some(work) = choose_busy_move(state, slow_is_idle) {
        return work;
    }
    if !idle && (state.placer.has_leaving() || state.stage.entering() > 0) {
        return Work::Rest(now_ns + BUSY_MOVE_NS);
    }
    if !idle {
        let busy = state.requests_under_way > 0;
        return Work::Rest(if busy { now_ns + IDLE_NS } else { idle_at });
    }
    if remember_due {
        return Work::Remember;
    }
    if state.quiet.waits(now_ns) {
        // All else needs the slow drive, which may be asleep.
        if state.waits_for_record() {
            return Work::DurablePoint;
        }
        marks::hit(Mark::SlowDriveSpared);
        return Work::Doze(None);
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
    if leaving {
        return Work::GiveBack;
    }
    if vouch_due {
        return Work::Vouch;
    }
    if moves_due {
        return Work::Move(Effort::All);
    }
    Work::Doze(alarm_ns(state, now_ns))
}

/// Whether something waits to be moved.
fn has_moves(state: &State) -> bool {
    state.placer.has_candidates()
        || state.placer.has_leaving()
        || state.stage.entering() > 0
        || state.stage.has_unconsidered()
        || !state.bad_copies.is_empty()
        || state.slots[0].free() < state.fast_reserve()
}

/// When something is to be moved that may not be yet: dirty copies home, and what could not be granted.
fn later_moves_ns(state: &State) -> Option<u64> {
    [cleaning::due_ns(state), state.wish_hand.due_ns()].into_iter().flatten().min()
}

/// When the slow drive is made to vouch for what has changed, if anything has.
/// While requests are under way, as they are for minutes on a drive that hangs, that moment may
/// have come, and nothing can be done: a later one is given.
fn vouch_ns(state: &State, now_ns: u64) -> Option<u64> {
    if state.quiet.is_wanted() {
        // A mark that is taken away has to be made again by the next write, and wakes the drive.
        return None;
    }
    let busy_until_ns = if state.requests_under_way > 0 { now_ns } else { state.last_request_ns };
    let due_ns = (busy_until_ns + VOUCH_IDLE_NS).max(state.cleaning.tells_from_ns());
    state.doubts.any_touched().then_some(due_ns)
}

/// When what is hot is to be written down again.
fn remember_ns(state: &State) -> Option<u64> {
    state.lasting_heat.due_ns(state.placer.requests())
}

/// When there will be something to do for a janitor who has nothing to do now.
fn alarm_ns(state: &State, now_ns: u64) -> Option<u64> {
    // What could be moved by now, and was not, waits for clients to change something.
    let moves_ns = later_moves_ns(state).filter(|due| *due > now_ns);
    [vouch_ns(state, now_ns), moves_ns, remember_ns(state)].into_iter().flatten().min()
}

/// Whether something waits for a moment, and the alarm is not set for it.
fn waits_for_alarm(state: &State) -> bool {
    let vouches = state.doubts.any_touched() && !state.quiet.is_wanted();
    let later = [later_moves_ns(state), remember_ns(state)].into_iter().flatten().min();
    let sooner = later.is_some_and(|due| state.alarm_ns.is_none_or(|it| it > due));
    vouches && state.alarm_ns.is_none() || sooner
}

fn suspects(shared: &Shared) -> bool {
    Tier::BOTH.iter().any(|tier| shared.drive(*tier).is_suspect())
}

/// Has the janitor look, if it sleeps through what has changed. Called after client requests.
pub(crate) fn wake_if_needed(shared: &Shared) {
    let state = shared.state.borrow();
    let wake = match state.janitor {
        Rest::Awake => false,
        Rest::UntilIdle => {
            let enters = state.stage.entering() > 0 && state.slots[0].free() > state.slots_kept();
            enters
                || presses(&state, shared.io.now_ns())
                || state.young.len() > YOUNG_MAX
                || inclusion::is_pressed(&state)
        }
        // What waits for the slow drive to be awake is looked at when it is.
        Rest::UntilWoken if state.quiet.waits(shared.io.now_ns()) => {
            presses(&state, shared.io.now_ns())
                || state.waits_for_record()
                || state.young.len() > YOUNG_MAX
                || inclusion::is_pressed(&state)
        }
        Rest::UntilWoken => {
            state.log.live_blocks() > state.log.lost_blocks()
                || state.waits_for_record()
                || has_moves(&state)
                || waits_for_alarm(&state)
                || state.young.len() > YOUNG_MAX
                || inclusion::is_pressed(&state)
                || inclusion::is_leaving(&state)
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
        state.alarm_ns = until_ns;
    }
    shared.woken_or_at(&shared.janitor_work, until_ns).await;
    shared.state.borrow_mut().janitor = Rest::Awake;
}
