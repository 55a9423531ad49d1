//! Writing. One function chooses the route of each part of a request:
//! * *home*: in place, when the extent lives in a slot whose drive writes blocks atomically,
//!   the log has no version of these blocks, it is not in motion, and recovery would not verify its data; of a
//!   copy in part only what that has, and nothing while destage waits for the extent. On the slow
//!   drive only whole extents, and only when the fast drive has no slot to spare (a stream), unless
//!   the placement says that overwrites stay below;
//! * *fresh*: whole extents, to a newly taken slot; the mapping and the data's CRC go to the log;
//! * *log*: everything else. So too what is written to a clean copy: with its first
//!   change in place the slow drive's slot would be old and pass for current.

use std::rc::Rc;

use io::{Buf, Transfer};
use smallvec::SmallVec;

use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Home, Lsn, Tier};
use crate::alone;
use crate::canary::canary;
use crate::checksum::crc32c;
use crate::drive::Watched;
use crate::error::{Error, Poison};
use crate::flush::{self, Owed};
use crate::guards::Hold;
use crate::line::Place;
use crate::log::Log;
use crate::marks::{self, Mark};
use crate::pace::PACED_FROM_FILL;
use crate::placer::Access;
use crate::quiet::WakeCause;
use crate::read::read_blocks;
use crate::shared::{AccessPass, GuardPass, Looks, RoomTurn, Shared};
use crate::state::{FRESH_RECORD_BLOCKS, State};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Log,
    Home(Home),
    Fresh,
}

/// A stretch of a request that takes one route to one place.
struct Run {
    at: u64,
    bytes: usize,
    target: Target,
}

/// The runs of a request: one, mostly, which needs no memory of its own.
type Runs = SmallVec<[Run; 1]>;

impl Run {
    /// Whether its data goes to the slow drive at once.
    fn goes_below(&self) -> bool {
        matches!(
            self.target,
            Target::Home { tier: Tier::Slow, .. } | Target::Fresh { tier: Tier::Slow, .. }
        )
    }

    /// Log blocks kept free for what is appended when the data has arrived.
    fn promised_blocks(&self) -> u64 {
        match self.target {
            Target::Fresh { .. } => FRESH_RECORD_BLOCKS,
            Target::LogWithRest => Log::worst_case_blocks(self.bytes as u64 / BLOCK_BYTES),
            Target::Log | Target::Home { .. } => 0,
        }
    }
}

enum Target {
    Log,
    /// The log, together with what the rest of the request puts there once its data has arrived:
    /// the parts of a request are ordered as its blocks are.
    LogWithRest,
    /// Byte offset on the drive; homes of consecutive extents that are neighbours.
    Home {
        tier: Tier,
        position: u64,
    },
    Fresh {
        tier: Tier,
        position: u64,
        extents: Vec<Allocation>,
    },
}

struct Allocation {
    extent: ExtentId,
    home: Home,
    crc: u32,
}

/// A client's write, of any 512-byte alignment.
pub(crate) async fn write(
    shared: &Rc<Shared>,
    at: u64,
    buf: Buf,
    owed: Owed,
) -> (Buf, Result<(), Error>) {
    let aligned = at.is_multiple_of(BLOCK_BYTES) && (buf.len() as u64).is_multiple_of(BLOCK_BYTES);
    let (buf, outcome) = match shared.is_alone() {
        true => Box::pin(alone::write(shared, at, buf)).await,
        false => {
            let (buf, outcome) = if aligned {
                write_blocks(shared, at, buf, false).await
            } else {
                Box::pin(write_unaligned(shared, at, buf)).await
            };
            match outcome {
                // The fast drive has died meanwhile, and the slow one goes on.
                Err(_) if shared.is_alone() => Box::pin(alone::write(shared, at, buf)).await,
                outcome => (buf, outcome),
            }
        }
    };
    let owed = if canary!(ForcedNotFlushed) { Owed::Bound } else { owed };
    let outcome = match outcome {
        Ok(()) if owed == Owed::Bound => shared.within_bound().await,
        // Boxed as all that few requests wait for: see `read.rs`.
        Ok(()) => Box::pin(flush::settle(shared, owed)).await,
        failed => failed,
    };
    (buf, outcome)
}

/// Reads the blocks around the request, changes them, and writes them, alone on their extents: a
/// block's other sectors may be written by another request at the same time, and neither may
/// bring back what the other replaced.
async fn write_unaligned(shared: &Rc<Shared>, at: u64, buf: Buf) -> (Buf, Result<(), Error>) {
    let start = at / BLOCK_BYTES * BLOCK_BYTES;
    let end = (at + buf.len() as u64).next_multiple_of(BLOCK_BYTES);
    let (first, count) = extents_of(shared, start, end - start);
    // The hold first, so that no new writer comes, then the wait for those who are there: waiting
    // for a moment without writers could take for ever.
    let held = shared
        .released
        .until(|| {
            let mut state = shared.state.borrow_mut();
            let free = !state.guards.any_alone(first, count);
            if free && !canary!(UnalignedTogether) {
                state.guards.enter(first, count, Hold::Alone);
            }
            (free || state.poisoned.is_some()).then_some(free)
        })
        .await;
    if !held {
        return (buf, shared.unpoisoned());
    }
    let _alone = (!canary!(UnalignedTogether))
        .then(|| GuardPass::entered(shared, first, count, Hold::Alone));
    if shared.state.borrow().guards.any_writer(first, count) {
        marks::hit(Mark::UnalignedWaited);
    }
    shared
        .released
        .until(|| {
            let state = shared.state.borrow();
            let waits = !canary!(UnalignedTogether) && !canary!(UnalignedIgnoresWriters);
            let busy = waits && state.guards.any_writer(first, count);
            let over = state.poisoned.is_some() || !busy;
            over.then_some(())
        })
        .await;
    if let Err(error) = shared.unpoisoned() {
        return (buf, Err(error));
    }
    let blocks = shared.io.pool().take((end - start) as usize);
    let (mut blocks, outcome) = read_blocks(shared, start, blocks).await;
    if let Err(error) = outcome {
        return (buf, Err(error));
    }
    let offset = (at - start) as usize;
    blocks[offset..offset + buf.len()].copy_from_slice(&buf);
    let (_, outcome) = write_blocks(shared, start, blocks, true).await;
    (buf, outcome)
}

fn extents_of(shared: &Shared, at: u64, length: u64) -> (ExtentId, u64) {
    let extent_bytes = shared.geometry.extent_bytes;
    let first = at / extent_bytes;
    (ExtentId(first), (at + length).div_ceil(extent_bytes) - first)
}

/// Writes whole blocks. `alone`: the caller holds the extents.
pub(crate) async fn write_blocks(
    shared: &Rc<Shared>,
    at: u64,
    mut buf: Buf,
    alone: bool,
) -> (Buf, Result<(), Error>) {
    let turn = match admitted(shared, at, buf.len() as u64, alone).await {
        Ok(turn) => turn,
        Err(error) => return (buf, Err(error)),
    };
    // From here to the submissions nothing waits: routes, slots, LSNs and holds are one decision.
    let _access = AccessPass::begin(shared, Looks::AtHomes);
    let whole = at..at + buf.len() as u64;
    let (mut runs, large) = plan(shared, at, &mut buf);
    drop(turn);
    let _holds: SmallVec<[GuardPass; 1]> = runs
        .iter()
        .map(|run| {
            let (first, count) = extents_of(shared, run.at, run.bytes as u64);
            let hold = match run.target {
                Target::Home { .. } => Hold::Home,
                _ => Hold::Shared,
            };
            GuardPass::begin(shared, first, count, hold)
        })
        .collect();
    count(shared, &runs, whole);
    if let Some((lsn, position, end)) = large {
        marks::hit(Mark::RecordOfOneRequest);
        return Box::pin(write_large(shared, buf, lsn, position, end)).await;
    }
    // A home may be one that a record tells of which is not written yet: without it recovery would find what the
    // home, or the log, had before.
    let in_place = runs.iter().any(|run| matches!(run.target, Target::Home { .. }));
    let mut log_end = in_place.then(|| shared.state.borrow().log.unwritten_end()).flatten();
    let settled;
    if runs.len() == 1 {
        let run = runs.pop().expect("one run");
        let part = arrived(submit(shared, &run.target, buf), run, &mut log_end).await;
        settled = settle(shared, std::slice::from_ref(&part)).await;
        buf = part.data;
    } else {
        let under_way: Vec<(Submitted, Run)> = runs
            .into_iter()
            .map(|run| (submit(shared, &run.target, buf.split_to(run.bytes)), run))
            .collect();
        (buf, settled) = Box::pin(all_arrived(shared, under_way, buf, &mut log_end)).await;
    }
    let mut result = settled.map(|end| log_end = log_end.max(end));
    if let Some(end) = log_end {
        result = result.and(shared.log_written(end).await);
    }
    (buf, result)
}

/// Waits until the request may be planned: nobody alone on its extents, and room in the log if
/// some of it may go there.
///
/// Gives the place in the line for room, if it had to wait there, to be kept until it has appended.
async fn admitted(
    shared: &Rc<Shared>,
    at: u64,
    length: u64,
    alone: bool,
) -> Result<Option<RoomTurn>, Error> {
    let (first, count) = extents_of(shared, at, length);
    let mut turn: Option<RoomTurn> = None;
    let mut paced = false;
    loop {
        // Looked at in the same breath as the plan that follows, so that many cannot pass at once.
        if shared.state.borrow().exposure.must_wait(shared.io.now_ns(), length) {
            turn = None;
            shared.exposable(length).await?;
            continue;
        }
        let delay_ns = {
            let mut state = shared.state.borrow_mut();
            if let Some(cause) = &state.poisoned {
                return Err(Error::Poisoned(cause.clone()));
            }
            let free = !state.is_taken(first, count, alone) || canary!(WriterIgnoresAlone);
            let place = turn.as_ref().map(RoomTurn::place);
            let fits = free && fits(&state, at, length, place);
            if free && !fits && turn.is_none() {
                state.counters.full_waits += 1;
                marks::hit(Mark::LogFull);
            }
            if fits && !paced {
                Some(pace(&mut state, shared, at, length))
            } else {
                fits.then_some(0)
            }
        };
        match delay_ns {
            Some(0) => return Ok(turn),
            Some(delay_ns) => {
                marks::hit(Mark::WritePaced);
                paced = true;
                shared.io.sleep(delay_ns).await;
                continue;
            }
            None => {}
        }
        let conflict = || shared.state.borrow().is_taken(first, count, alone);
        // The place is given up before anything else is waited for: those who are waited for may
        // stand behind it.
        turn = None;
        if conflict() {
            shared
                .released
                .until(|| (shared.state.borrow().poisoned.is_some() || !conflict()).then_some(()))
                .await;
        } else {
            turn = Some(shared.wait_for_room(|state| has_room(state, at, length)).await);
            // It has waited enough.
            paced = true;
        }
    }
}

/// How long the request should wait because the log fills faster than it empties.
fn pace(state: &mut State, shared: &Shared, at: u64, length: u64) -> u64 {
    let fill = state.log_fill();
    if fill < PACED_FROM_FILL {
        return 0;
    }
    let logs = pieces(state, at, length).any(|piece| route(state, piece) == Route::Log);
    if !logs {
        return 0;
    }
    // A lone request's record has a header block too.
    state.pace.delay_ns(shared.io.now_ns(), length / BLOCK_BYTES + 1, fill)
}

/// Whether the request may be planned now, as far as room in the log goes. `place`: its place in
/// the line of those who wait for room; without one it stands behind them, unless it needs none.
fn fits(state: &State, at: u64, length: u64, place: Option<Place>) -> bool {
    if state.room_line.is_turn(place) {
        has_room(state, at, length)
    } else {
        demand(state, at, length) == Demand::Nothing
    }
}

/// What a request needs of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Demand {
    Nothing,
    /// Records for fresh slots. `sure`: there are slots for all, whatever is taken first.
    Fresh {
        sure: bool,
    },
    Data,
}

fn demand(state: &State, at: u64, length: u64) -> Demand {
    let mut slots_fast = 0;
    let mut slots_any = 0;
    // Whether those that may go to either drive find a slot when the fast one has none.
    let mut fits_slow = true;
    for piece @ (extent, ..) in pieces(state, at, length) {
        match route(state, piece) {
            Route::Log => return Demand::Data,
            Route::Home(_) => {}
            Route::Fresh => match state.map.get(extent).home() {
                Some(Home { tier: Tier::Fast, .. }) => slots_fast += 1,
                _ => {
                    slots_any += 1;
                    let free = state.slow_slots_for(extent);
                    fits_slow &= match state.geometry.own_slot(extent) {
                        Some(_) => free > 0,
                        None => slots_any <= state.slots[0].free() + free,
                    };
                }
            },
        }
    }
    let free = if state.homeward { 0 } else { state.slots[0].free() };
    let sure = slots_fast + slots_any <= free || slots_fast == 0 && fits_slow;
    if slots_fast + slots_any == 0 { Demand::Nothing } else { Demand::Fresh { sure } }
}

/// Whether the log has room for what the request puts there.
fn has_room(state: &State, at: u64, length: u64) -> bool {
    state.has_room_for(length / BLOCK_BYTES)
        || match demand(state, at, length) {
            Demand::Nothing => true,
            // If the slots ran out while the request takes them, the rest would go to the log.
            Demand::Fresh { sure } => sure && state.has_room_for_fresh(),
            Demand::Data => false,
        }
}

/// The part of a request that is in one extent: which, offset in the volume, bytes.
type Piece = (ExtentId, u64, u64);

/// The parts of a request by extent.
fn pieces(state: &State, at: u64, length: u64) -> impl Iterator<Item = Piece> + use<> {
    let extent_bytes = state.geometry.extent_bytes;
    let end = at + length;
    (at / extent_bytes..end.div_ceil(extent_bytes)).map(move |extent| {
        let start = at.max(extent * extent_bytes);
        let stop = end.min((extent + 1) * extent_bytes);
        (ExtentId(extent), start, stop - start)
    })
}

fn route(state: &State, piece: Piece) -> Route {
    let (extent, _, bytes) = piece;
    let mapping = state.map.get(extent);
    let whole = bytes == state.geometry.extent_bytes;
    if state.homeward {
        return route_home(state, extent, whole);
    }
    // What the slow drive has of a clean copy would go on passing for current.
    let believed = mapping.is_clean() && !canary!(CopyWrittenClean);
    let settled = (!mapping.in_log() || is_apart(state, piece) || canary!(InPlaceUnderLog))
        && !believed
        && (has_all(state, piece) || canary!(PartWrittenInPlace))
        && (!mapping.moving() || canary!(InPlaceWhileMoving))
        && (!state.is_young(extent) || canary!(YoungIgnored));
    let fast_to_spare = state.slots[0].free() > state.fast_reserve();
    let in_place = settled && (!state.exposure.ordered() || canary!(DeferredInPlace));
    match mapping.home() {
        Some(home)
            if in_place && (state.in_place[home.tier.index()] || canary!(InPlaceThoughTorn)) =>
        {
            match home.tier {
                Tier::Fast => Route::Home(home),
                Tier::Slow if state.placer.overwrites_below() => Route::Home(home),
                Tier::Slow if whole && !fast_to_spare => Route::Home(home),
                Tier::Slow if whole => Route::Fresh,
                Tier::Slow => Route::Log,
            }
        }
        _ if whole && state.slots[0].free() + state.slow_slots_for(extent) > 0 => Route::Fresh,
        _ => Route::Log,
    }
}

/// Whether what the log has of the extent is elsewhere in it, and destage does not wait for its home to be
/// left alone: else one that is written all the time would never leave the log.
fn is_apart(state: &State, (extent, start, bytes): Piece) -> bool {
    let blocks = start / BLOCK_BYTES..(start + bytes) / BLOCK_BYTES;
    let waited_for = state.destage_waits.contains(&extent);
    !waited_for && blocks.map(BlockId).all(|block| state.log.lookup(block).is_none())
}

/// Whether the extent's home has all of the piece: a copy in part need not, and what it has stays the same
/// when that is overwritten.
fn has_all(state: &State, (extent, start, bytes): Piece) -> bool {
    let Some((part, _)) = state.map.get(extent).part() else { return true };
    let from = start % state.geometry.extent_bytes / BLOCK_BYTES;
    (from..from + bytes / BLOCK_BYTES).all(|block| part.has(block))
}

/// The route in write-through: to the slow drive at once, where that can be done in place.
fn route_home(state: &State, extent: ExtentId, whole: bool) -> Route {
    let mapping = state.map.get(extent);
    let settled = (!mapping.in_log() || canary!(ThroughUnderLog))
        && !mapping.moving()
        && !state.is_young(extent);
    match mapping.home() {
        Some(home @ Home { tier: Tier::Slow, .. }) if settled && state.in_place[1] => {
            Route::Home(home)
        }
        None if whole && state.slow_slots_for(extent) > 0 => Route::Fresh,
        // Also what there is a copy of: it and its home must not differ after a cut, so the log has
        // it first.
        _ => Route::Log,
    }
}

/// A large record: LSN, byte offset on the fast drive, end.
type Large = (Lsn, u64, Lsn);

/// Decides the runs, takes slots, and appends what goes to the log.
fn plan(shared: &Shared, at: u64, buf: &mut Buf) -> (Runs, Option<Large>) {
    let mut state = shared.state.borrow_mut();
    let state = &mut *state;
    let mut runs = Runs::new();
    for (extent, start, bytes) in pieces(state, at, buf.len() as u64) {
        let mut target = match route(state, (extent, start, bytes)) {
            Route::Log => {
                mark_spared(state, extent);
                Target::Log
            }
            Route::Home(home) => {
                if home.tier == Tier::Slow {
                    marks::hit(Mark::SlowHomeOverwritten);
                }
                let mapping = state.map.get(extent);
                if mapping.part().is_some() {
                    marks::hit(Mark::PartOverwritten);
                }
                if mapping.in_log() {
                    marks::hit(Mark::HomeOverwrittenBesideLog);
                }
                Target::Home {
                    tier: home.tier,
                    position: state.geometry.position(home) + start % state.geometry.extent_bytes,
                }
            }
            Route::Fresh => match take_slot(state, extent) {
                Some(home) => {
                    marks::hit(match home.tier {
                        Tier::Fast => Mark::FreshOnFast,
                        Tier::Slow => Mark::FreshOnSlow,
                    });
                    let from = (start - at) as usize;
                    let crc = crc32c(&buf[from..from + bytes as usize]);
                    let position = state.geometry.position(home);
                    let extents = vec![Allocation { extent, home, crc }];
                    Target::Fresh { tier: home.tier, position, extents }
                }
                None => {
                    marks::hit(Mark::SlotsRanOut);
                    Target::Log
                }
            },
        };
        if let Some(last) = runs.last_mut()
            && joins(last, &mut target)
        {
            last.bytes += bytes as usize;
        } else {
            runs.push(Run { at: start, bytes: bytes as usize, target });
        }
    }
    let pool = shared.io.pool();
    let mut large = None;
    if let [Run { target: Target::Log, .. }] = runs[..] {
        large = state.log.append_large(BlockId(at / BLOCK_BYTES), buf);
        if large.is_some() {
            state.keep(at, &buf[BLOCK_BYTES as usize..]);
        }
    }
    let later = runs.iter().any(|run| matches!(run.target, Target::Fresh { .. }));
    let mut logged_bytes = 0;
    for run in &mut runs {
        if matches!(run.target, Target::Log) && later && !canary!(PartsOutOfOrder) {
            run.target = Target::LogWithRest;
        }
        state.promised_blocks += run.promised_blocks() * u64::from(!canary!(RoomNotPromised));
        if matches!(run.target, Target::Log) {
            if large.is_none() {
                let from = (run.at - at) as usize;
                let data = &buf[from..from + run.bytes];
                state.log.append_data(pool, BlockId(run.at / BLOCK_BYTES), data);
                state.keep(run.at, data);
            }
            state.mark_logged(run.at, run.bytes as u64);
            logged_bytes += run.bytes as u64;
        }
    }
    if logged_bytes > 0 {
        let alarm = state.note_client(shared.io.now_ns(), logged_bytes);
        shared.raise(alarm);
    }
    (runs, large)
}

/// Says why a write that could have gone home goes to the log.
fn mark_spared(state: &State, extent: ExtentId) {
    let mapping = state.map.get(extent);
    if mapping.moving() {
        marks::hit(Mark::MovingHomeSpared);
    } else if mapping.home().is_some() && state.is_young(extent) {
        marks::hit(Mark::YoungHomeSpared);
    }
}

/// A slot for the fresh copy of an extent. One that lives on the fast drive stays there, also when
/// only the reserve is left: its old slot comes back.
fn take_slot(state: &mut State, extent: ExtentId) -> Option<Home> {
    match state.map.get(extent).home() {
        Some(Home { tier: Tier::Fast, .. }) => {
            state.reclaim();
            state.take_slot(Tier::Fast, extent)
        }
        _ => state.take_slot_for_new(extent),
    }
}

/// Takes `next` into `last` if it goes on where that ends.
fn joins(last: &mut Run, next: &mut Target) -> bool {
    let end = last.bytes as u64;
    match (&mut last.target, next) {
        (Target::Log, Target::Log) => true,
        (Target::Home { tier, position }, Target::Home { tier: tier2, position: position2 }) => {
            tier == tier2 && (*position + end == *position2 || canary!(RunsJoined))
        }
        (
            Target::Fresh { tier, position, extents },
            Target::Fresh { tier: tier2, position: position2, extents: extents2 },
        ) if tier == tier2 && *position + end == *position2 => {
            extents.append(extents2);
            true
        }
        _ => false,
    }
}

fn count(shared: &Shared, runs: &[Run], whole: std::ops::Range<u64>) {
    let mut state = shared.state.borrow_mut();
    let state = &mut *state;
    let below = runs.iter().any(Run::goes_below);
    state.courtesy.request(below);
    if below {
        state.quiet.used(WakeCause::Write, shared.io.now_ns());
    }
    for run in runs {
        if let Target::Home { tier: Tier::Slow, .. } = run.target {
            let first = state.extent_of(run.at).0;
            for extent in first..=state.extent_of(run.at + run.bytes as u64 - 1).0 {
                state.stage.drop_image(ExtentId(extent));
            }
        }
        let served = &mut state.counters.served;
        let bytes = run.bytes as u64;
        match &run.target {
            Target::Log | Target::LogWithRest => served.log_bytes += bytes,
            Target::Home { tier: Tier::Fast, .. } | Target::Fresh { tier: Tier::Fast, .. } => {
                served.fast_bytes += bytes;
            }
            Target::Home { .. } | Target::Fresh { .. } => served.slow_bytes += bytes,
        }
    }
    let map = &state.map;
    state.placer.observe(Access::Write, whole.start, whole.end - whole.start, |extent| {
        map.get(extent).home().map(|home| home.tier)
    });
}

/// Writes a request that is a record of its own. Its buffer has the header in front.
async fn write_large(
    shared: &Shared,
    buf: Buf,
    lsn: Lsn,
    position: u64,
    end: Lsn,
) -> (Buf, Result<(), Error>) {
    // Records sealed before this one must not wait for a later wake-up.
    shared.log_work.wake_all();
    let (mut buf, outcome) = shared.fast.write(position, buf).await;
    buf.shrink_front(BLOCK_BYTES as usize);
    match outcome {
        Ok(()) => {
            let written = {
                let mut state = shared.state.borrow_mut();
                state.log.settle_written(lsn);
                state.log.written()
            };
            shared.written.wake_until(written);
        }
        Err(_) if canary!(LargeFailureIgnored) => {
            shared.state.borrow_mut().log.settle_written(lsn);
            let written = shared.state.borrow().log.written();
            shared.written.wake_until(written);
        }
        Err(error) => shared.poison(Poison::by("writing the landing log failed", error)),
    }
    (buf, shared.log_written(end).await)
}

enum Submitted {
    Logged(Buf, Lsn),
    Kept(Buf),
    UnderWay(Watched<Transfer>),
}

fn submit(shared: &Shared, target: &Target, buf: Buf) -> Submitted {
    match target {
        Target::Log => {
            shared.log_work.wake_all();
            let end = shared.state.borrow().log.end();
            Submitted::Logged(buf, end)
        }
        Target::LogWithRest => Submitted::Kept(buf),
        Target::Home { tier, position } | Target::Fresh { tier, position, .. } => {
            Submitted::UnderWay(shared.drive(*tier).write(*position, buf))
        }
    }
}

/// A run whose data has reached its drive, or not.
struct Part {
    run: Run,
    data: Buf,
    outcome: Result<(), io::IoError>,
}

async fn arrived(submitted: Submitted, run: Run, log_end: &mut Option<Lsn>) -> Part {
    let (data, outcome) = match submitted {
        Submitted::Logged(data, end) => {
            *log_end = (*log_end).max(Some(end));
            (data, Ok(()))
        }
        Submitted::Kept(data) => (data, Ok(())),
        Submitted::UnderWay(transfer) => transfer.await,
    };
    Part { run, data, outcome }
}

/// The same of a request of several runs: their data joined again, and what is settled.
async fn all_arrived(
    shared: &Shared,
    under_way: Vec<(Submitted, Run)>,
    rest: Buf,
    log_end: &mut Option<Lsn>,
) -> (Buf, Result<Option<Lsn>, Error>) {
    let mut parts = Vec::with_capacity(under_way.len());
    for (submitted, run) in under_way {
        parts.push(arrived(submitted, run, log_end).await);
    }
    let settled = settle(shared, &parts).await;
    let joined = parts.into_iter().map(|part| part.data).reduce(|mut joined, piece| {
        joined.unsplit(piece);
        joined
    });
    let mut joined = joined.expect("a request has runs");
    joined.unsplit(rest);
    (joined, settled)
}

/// All data of a request has reached the drives, or not: appends what was left for now, in the
/// order of the blocks. Gives how far the log must be written before the request has ended.
async fn settle(shared: &Shared, parts: &[Part]) -> Result<Option<Lsn>, Error> {
    let mut failed = None;
    let mut promised = 0;
    for Part { run, outcome, .. } in parts {
        promised += run.promised_blocks();
        match (&run.target, outcome) {
            (_, Err(_)) if canary!(FreshFailureIgnored) => {}
            (_, Err(error)) => {
                failed.get_or_insert_with(|| error.clone());
            }
            (Target::Home { .. }, Ok(())) if canary!(HomeNotNoted) => {}
            (Target::Home { tier, .. }, Ok(())) => {
                shared.state.borrow_mut().home_dirty[tier.index()] = true;
            }
            _ => {}
        }
    }
    if promised == 0 {
        return failed.map_or(Ok(None), |error| Err(error.into()));
    }
    if let Some(error) = failed {
        give_up(shared, parts, promised);
        return Err(error.into());
    }
    // Promised at planning, so this does not wait; it fails when the volume is poisoned.
    shared.internal_room(promised).await?;
    let logged = {
        let mut state = shared.state.borrow_mut();
        let state = &mut *state;
        state.promised_blocks -= promised * u64::from(!canary!(RoomNotPromised));
        let pool = shared.io.pool();
        let mut data_logged = false;
        let mut bytes = 0;
        for Part { run, data, .. } in parts {
            match &run.target {
                Target::LogWithRest => {
                    state.log.append_data(pool, BlockId(run.at / BLOCK_BYTES), data);
                    state.keep(run.at, data);
                    state.mark_logged(run.at, run.bytes as u64);
                    data_logged = true;
                }
                Target::Fresh { tier, extents, .. } => {
                    if *tier == Tier::Slow && !canary!(FreshOnSlowNotNoted) {
                        state.home_dirty[tier.index()] = true;
                    }
                    for Allocation { extent, home, crc } in extents {
                        state.settle_allocated(pool, *extent, *home, *crc);
                    }
                }
                Target::Log | Target::Home { .. } => continue,
            }
            bytes += run.bytes as u64;
        }
        let alarm = state.note_client(shared.io.now_ns(), bytes);
        shared.raise(alarm);
        let waits = data_logged || !canary!(FreshNotAwaited);
        waits.then(|| state.log.end())
    };
    // Others may have waited for what was promised to this one.
    shared.wake_room();
    // Also where slots alone were taken, whose data is in place: a client that outlives this process (of a block
    // device, say) sees what it was told is written, and flushes no more than what it wrote to the next one.
    shared.log_work.wake_all();
    Ok(logged)
}

/// Some part has failed, so nothing of what was left for later is appended.
fn give_up(shared: &Shared, parts: &[Part], promised: u64) {
    marks::hit(Mark::FreshFailed);
    let mut state = shared.state.borrow_mut();
    state.promised_blocks -= promised * u64::from(!canary!(RoomNotPromised));
    for Part { run, .. } in parts {
        if let Target::Fresh { extents, .. } = &run.target {
            // Nothing points at the slots: they are free at once.
            for Allocation { home, .. } in extents {
                state.slots[home.tier.index()].give_back(home.slot);
            }
        }
    }
    drop(state);
    shared.wake_room();
}
