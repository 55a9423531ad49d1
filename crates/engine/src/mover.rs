//! Moves extents between the drives: hot ones up, cold ones down.
//!
//! What comes from the stage goes up at any time: it costs nothing of the slow drive. What needs the
//! slow drive waits until clients rest, or is done one by one as rarely as `courtesy.rs` says.
//!
//! An extent in motion is marked: foreground writes to it go to the log and never wait. The copy
//! is made durable, then the move is recorded, then the old home is given up. If the extent was
//! trimmed or written afresh meanwhile, the copy is dropped.

use std::rc::Rc;

use io::{Buf, Transfer};
use policy::{FastDrive, Occasion, Verdict};

use crate::address::{BLOCK_BYTES, ExtentId, Home, Tier};
use crate::canary::canary;
use crate::cleaning;
use crate::drive::Watched;
use crate::error::Error;
use crate::format::map_page::{Part, Residence};
use crate::format::record::Entry;
use crate::geometry::Class;
use crate::inclusion;
use crate::map::Map;
use crate::marks::{self, Mark};
use crate::shared::{AccessPass, Looks, Shared};
use crate::staging;
use crate::state::State;
use crate::wishes::Wish;

/// Bytes moved per batch: a disk's 10 ms, so that a foreground request that arrives meanwhile waits
/// no longer than behind one large neighbour. At least one extent is moved.
const BATCH_BYTES: u64 = 1 << 20;

/// Extents moved at once with the slow drive's help while clients are busy. Who meets them waits for
/// all of them; that it is few who do is what counts (`courtesy.rs`).
const FEW_BELOW: usize = 4;

/// What is copied from the source to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copied {
    /// All of the extent, into a slot that was taken for it.
    Whole,
    /// These blocks, into a slot of the extent that has the others.
    Blocks(Part),
    /// Nothing: a clean copy is given up for the slow drive's own.
    Nothing,
}

struct Move {
    extent: ExtentId,
    source: Home,
    target: Home,
    copied: Copied,
    /// What is on the slow drive stays there, or gets there, and the extent lives on the fast drive
    /// as a clean copy of it.
    original: Option<Home>,
    /// What the extent has at its home, if the stage had it.
    image: Option<Box<[u8]>>,
    /// Somebody wished for it (`wishes.rs`).
    wished: bool,
}

impl Move {
    fn new(extent: ExtentId, source: Home, target: Home, copied: Copied) -> Move {
        Move { extent, source, target, copied, original: None, image: None, wished: false }
    }

    /// The extent's home when the move was planned.
    fn planned(&self) -> Home {
        match self.copied {
            // What is missing of a copy in part comes to it.
            Copied::Blocks(_) if self.target.tier == Tier::Fast => self.target,
            _ => self.source,
        }
    }

    /// Whether it needs the slow drive.
    fn goes_below(&self) -> bool {
        self.copied != Copied::Nothing && (self.target.tier == Tier::Slow || self.image.is_none())
    }

    /// It writes the home of an extent that stays on the fast drive.
    fn cleans(&self) -> bool {
        self.original.is_some() && self.target.tier == Tier::Slow
    }

    /// It brings home what the slow drive's map is to be told of: a dirty copy, or one in part.
    fn comes_home(&self) -> bool {
        let in_part = matches!(self.copied, Copied::Blocks(_)) && self.target.tier == Tier::Slow;
        self.cleans() || in_part
    }

    /// Where the extent is afterwards.
    fn residence(&self) -> Residence {
        let home = if self.cleans() { self.source } else { self.target };
        Residence { original: self.original, ..Residence::at(home) }
    }

    /// Runs of the blocks that are copied: offset in the extent and bytes of each.
    fn runs(&self, extent_bytes: u64) -> Vec<(u64, u64)> {
        let part = match self.copied {
            Copied::Whole => return vec![(0, extent_bytes)],
            Copied::Nothing => return Vec::new(),
            Copied::Blocks(part) => part,
        };
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for block in part.blocks(extent_bytes / BLOCK_BYTES) {
            let at = block * BLOCK_BYTES;
            match runs.last_mut() {
                Some((first, bytes)) if *first + *bytes == at => *bytes += BLOCK_BYTES,
                _ => runs.push((at, BLOCK_BYTES)),
            }
        }
        runs
    }
}

/// How much may be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// What needs nothing of the slow drive.
    Above,
    /// And a few extents that do.
    FewBelow,
    /// Clients rest.
    All,
}

/// Makes one batch of moves. `false`: there is nothing to move.
pub(crate) async fn move_some(shared: &Rc<Shared>, effort: Effort) -> Result<bool, Error> {
    let _pass = AccessPass::begin(shared, Looks::AtHomes);
    let fast_written = shared.fast.traffic().write_bytes;
    let begun_ns = shared.io.now_ns();
    let moves = plan(&mut shared.state.borrow_mut(), effort, fast_written, begun_ns);
    let comes_home = moves.iter().any(Move::comes_home);
    let wished = moves.iter().any(|one| one.wished);
    let outcome = carry_out(shared, moves).await;
    let now_ns = shared.io.now_ns();
    let mut state = shared.state.borrow_mut();
    if comes_home {
        state.cleaning.ended(begun_ns, now_ns, outcome.is_ok());
    }
    if wished && outcome.is_err() {
        state.wish_hand.fail(now_ns);
    }
    outcome
}

async fn carry_out(shared: &Rc<Shared>, mut moves: Vec<Move>) -> Result<bool, Error> {
    if moves.is_empty() {
        return Ok(false);
    }
    let below = moves.iter().any(Move::goes_below);
    shared.state.borrow_mut().courtesy.work(below);
    let outcome = copy(shared, &mut moves).await;
    shared.state.borrow_mut().courtesy.work(false);
    if let Err(error) = outcome {
        let mut state = shared.state.borrow_mut();
        for one in &moves {
            drop_copy(&mut state, one);
        }
        return Err(error);
    }
    // A header block takes 83 entries.
    shared.internal_room(3).await?;
    let mut state = shared.state.borrow_mut();
    for one in &moves {
        settle(shared, &mut state, one);
    }
    drop(state);
    shared.log_work.wake_all();
    Ok(true)
}

fn plan(state: &mut State, effort: Effort, fast_written: u64, now_ns: u64) -> Vec<Move> {
    state.reclaim();
    let batch = (BATCH_BYTES / state.geometry.extent_bytes).max(1) as usize;
    let mut moves = Vec::new();
    give_up_bad_copies(state, &mut moves);
    let below = match effort {
        Effort::Above => 0,
        Effort::FewBelow => FEW_BELOW,
        Effort::All => batch,
    };
    // Room first: new data should find the reserve, and promotions a slot.
    demote(state, &mut moves, batch, below);
    if effort == Effort::All {
        restore_reserve(state, &mut moves, batch);
        enter_at_rest(state, batch, fast_written, now_ns);
    }
    promote_staged(state, &mut moves, batch);
    if effort == Effort::All {
        promote_candidates(state, &mut moves, batch, fast_written, now_ns);
        grant_wishes(state, &mut moves, batch, fast_written, now_ns);
        if moves.is_empty() {
            // Last, and by itself: the time that it takes is measured.
            cleaning::offer(state, now_ns, batch, |state, extent| {
                push_cleaning(state, &mut moves, extent)
            });
        }
        if moves.is_empty() {
            // Who was let in a moment ago waits for them: nobody would wake the janitor for that.
            demote(state, &mut moves, batch, below);
        }
    }
    moves.sort_by_key(|one| match one.source.tier {
        Tier::Slow => one.source,
        Tier::Fast => one.target,
    });
    moves
}

/// Those that leave for others; at most `below` of them need the slow drive. Who does and may not keeps its place
/// in the line, and nobody waits behind it.
fn demote(state: &mut State, moves: &mut Vec<Move>, batch: usize, mut below: usize) {
    while moves.len() < batch {
        let State { placer, map, .. } = state;
        let victim = match placer.next_leaving(|extent| below > 0 || leaves_for_free(map, extent)) {
            Some(victim) if state.placer_and_view().1.may_leave(victim) => victim,
            Some(_) => continue,
            // Who should have left could not.
            None if short_of_slots(state, moves.len() as u64) => {
                let (placer, mut view) = state.placer_and_view();
                view.for_free = below == 0;
                if view.for_free && view.map.clean() == 0 {
                    break;
                }
                let Some(coldest) = placer.heat.coldest(&view) else { break };
                placer.heat.overrule(coldest, Verdict::GivesWay);
                coldest
            }
            None => break,
        };
        below -= usize::from(!state.map.get(victim).is_clean());
        push_move(state, moves, victim, Tier::Slow);
    }
}

/// Whether the extent leaves the fast drive without a copy: what is below is current, or it has left already.
pub(crate) fn leaves_for_free(map: &Map, extent: ExtentId) -> bool {
    let mapping = map.get(extent);
    mapping.is_clean() || mapping.home().is_none_or(|home| home.tier == Tier::Slow)
}

/// Whether there are fewer slots than images that wait for one, with so many about to be given up.
fn short_of_slots(state: &State, coming: u64) -> bool {
    let coming = coming + state.quarantine.waiting_on(Tier::Fast);
    let free = state.slots[Tier::Fast.index()].free() + coming;
    state.stage.entering() > 0 && free < state.stage.entering() + state.slots_kept() + 1
}

/// Clients have used up what is kept free for new data.
fn restore_reserve(state: &mut State, moves: &mut Vec<Move>, batch: usize) {
    let reserve = state.fast_reserve();
    while moves.len() < batch && state.slots[0].free() + (moves.len() as u64) < reserve {
        let (placer, view) = state.placer_and_view();
        let Some(victim) = placer.heat.coldest(&view) else { break };
        if placer.heat.is_hot(victim) || !push_move(state, moves, victim, Tier::Slow) {
            break;
        }
        state.placer.heat.overrule(victim, Verdict::MakesRoom);
    }
}

/// What is worth it in the stage goes up without being pushed out: RAM forgets when the volume is closed.
fn enter_at_rest(state: &mut State, batch: usize, fast_written: u64, now_ns: u64) {
    while state.stage.entering() < batch as u64 {
        let Some(extent) = state.stage.consider() else { break };
        if staging::admit(state, extent, Occasion::StagedAtRest, fast_written, now_ns) {
            state.stage.enter(extent);
        }
    }
}

/// What has left the stage for the fast drive.
fn promote_staged(state: &mut State, moves: &mut Vec<Move>, batch: usize) {
    while moves.len() < batch && state.slots[0].free() > state.slots_kept() {
        let Some((extent, image)) = state.stage.take_entering() else { break };
        if is_below(state, extent) && push_up(state, moves, extent) {
            marks::hit(Mark::PromotedFromStage);
            moves.last_mut().expect("just pushed").image = Some(image);
        }
    }
}

fn promote_candidates(
    state: &mut State,
    moves: &mut Vec<Move>,
    batch: usize,
    fast_written: u64,
    now_ns: u64,
) {
    while moves.len() < batch && state.slots[0].free() > state.slots_kept() {
        let Some(extent) = state.placer.next_candidate() else { break };
        let free = !state.map.get(extent).moving() && !state.guards.home_written(extent);
        if is_below(state, extent)
            && free
            && staging::admit(state, extent, Occasion::Rest, fast_written, now_ns)
        {
            push_up(state, moves, extent);
        }
    }
}

/// What is pinned goes up, and what is to be cold goes down.
fn grant_wishes(
    state: &mut State,
    moves: &mut Vec<Move>,
    batch: usize,
    fast_written: u64,
    now_ns: u64,
) {
    state.wish_hand.look(now_ns);
    let batch = if state.wish_hand.is_careful() { batch.min(moves.len() + 1) } else { batch };
    while moves.len() < batch {
        let Some((extent, wish)) = next_wished(state, now_ns) else { break };
        let free = !state.map.get(extent).moving() && !state.guards.home_written(extent);
        let up = wish == Wish::Pinned;
        if !free || up && !staging::admit(state, extent, Occasion::Rest, fast_written, now_ns) {
            state.wish_hand.leave_some(now_ns);
            continue;
        }
        let needs_slot = up && state.map.get(extent).part().is_none();
        if needs_slot && state.slots[0].free() <= state.slots_kept() {
            // Who leaves for it must be gone first.
            state.wish_hand.go_to(extent.0);
            break;
        }
        let pushed = match up {
            true => push_up(state, moves, extent),
            false => push_move(state, moves, extent, Tier::Slow),
        };
        if pushed {
            moves.last_mut().expect("just pushed").wished = true;
            if !up {
                state.placer.heat.overrule(extent, Verdict::WishedDown);
            }
        } else {
            state.wish_hand.leave_some(now_ns);
        }
    }
}

/// The next extent that is not where it is wished to be.
fn next_wished(state: &mut State, now_ns: u64) -> Option<(ExtentId, Wish)> {
    let hand = state.wish_hand.at()?;
    for range in state.wishes.ranges() {
        let is_elsewhere = |extent| match range.wish {
            Wish::Pinned => is_below(state, extent),
            _ => state.map.get(extent).is_on_fast(),
        };
        if matches!(range.wish, Wish::Hot | Wish::Stream) {
            continue;
        }
        let end = range.first + range.count;
        let mut extents = state.map.worth_a_look(range.first.max(hand)..end);
        if let Some(extent) = extents.find(|extent| is_elsewhere(*extent)) {
            state.wish_hand.go_to(extent.0 + 1);
            return Some((extent, range.wish));
        }
    }
    state.wish_hand.end(now_ns);
    None
}

/// Whether the slow drive has the newest of it, or of a part.
fn is_below(state: &State, extent: ExtentId) -> bool {
    let mapping = state.map.get(extent);
    mapping.part().is_some() || mapping.home().is_some_and(|home| home.tier == Tier::Slow)
}

/// Has the extent copied up, or what of it is not there.
fn push_up(state: &mut State, moves: &mut Vec<Move>, extent: ExtentId) -> bool {
    match state.map.get(extent).part() {
        Some(_) => push_filling(state, moves, extent),
        None => push_move(state, moves, extent, Tier::Fast),
    }
}

fn push_move(state: &mut State, moves: &mut Vec<Move>, extent: ExtentId, to: Tier) -> bool {
    let mapping = state.map.get(extent);
    let Some(source) = mapping.home() else { return false };
    if mapping.moving() || state.guards.home_written(extent) || source.tier == to {
        return false;
    }
    if mapping.part().is_some() {
        return push_part(state, moves, extent);
    }
    let mut below = mapping.original();
    if canary!(DirtyCopyGivenUp) && to == Tier::Slow {
        below = below.or(state.geometry.own_slot(extent));
    }
    let (target, copied) = match below {
        Some(original) => (original, Copied::Nothing),
        None => {
            let Some(target) = state.take_slot(to, extent) else { return false };
            (target, Copied::Whole)
        }
    };
    state.map.mark_moving(extent, true);
    // What is copied up may leave its original behind; then giving it up again costs nothing.
    let keeps = to == Tier::Fast && inclusion::keeps_original(state);
    let original = keeps.then_some(source);
    moves.push(Move { original, ..Move::new(extent, source, target, copied) });
    true
}

/// Has the blocks of a copy in part written where the others are, and gives it up.
fn push_part(state: &mut State, moves: &mut Vec<Move>, extent: ExtentId) -> bool {
    let mapping = state.map.get(extent);
    let (Some(source), Some((part, target))) = (mapping.home(), mapping.part()) else {
        return false;
    };
    // Recovery might still verify what is there.
    if state.is_young(extent) && !canary!(YoungIgnored) {
        return false;
    }
    state.map.mark_moving(extent, true);
    let copied = if canary!(PartGivenUp) { Copied::Nothing } else { Copied::Blocks(part) };
    moves.push(Move::new(extent, source, target, copied));
    true
}

/// Has the rest of an extent that is on the fast drive in part copied there.
fn push_filling(state: &mut State, moves: &mut Vec<Move>, extent: ExtentId) -> bool {
    let mapping = state.map.get(extent);
    let (Some(target), Some((part, source))) = (mapping.home(), mapping.part()) else {
        return false;
    };
    if mapping.moving() || state.guards.home_written(extent) {
        return false;
    }
    let extent_blocks = state.geometry.extent_blocks();
    let rest = (0..extent_blocks).filter(|block| !part.has(*block));
    let over = part.blocks(extent_blocks).take(usize::from(canary!(PartFilledOver)));
    let Some(rest) = Part::of(rest.chain(over), extent_blocks) else { return false };
    state.map.mark_moving(extent, true);
    moves.push(Move::new(extent, source, target, Copied::Blocks(rest)));
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
            if push_move(state, moves, extent, Tier::Slow) {
                state.placer.heat.overrule(extent, Verdict::BadCopy);
            }
        }
    }
}

/// Where an extent's data comes from.
enum Content {
    Here(Buf),
    Read(Watched<Transfer>),
}

async fn copy(shared: &Rc<Shared>, moves: &mut [Move]) -> Result<(), Error> {
    let mut contents = Vec::with_capacity(moves.len());
    for one in moves.iter_mut() {
        let image = one.image.take();
        for (at, bytes) in one.runs(shared.geometry.extent_bytes) {
            let mut buf = shared.io.pool().take(bytes as usize);
            let content = match &image {
                Some(image) => {
                    buf.copy_from_slice(&image[at as usize..][..bytes as usize]);
                    Content::Here(buf)
                }
                None => {
                    let position = shared.position(one.source) + at;
                    Content::Read(shared.drive(one.source.tier).read(position, buf))
                }
            };
            contents.push((content, one.target.tier, shared.position(one.target) + at));
        }
    }
    let moves: Vec<&Move> = moves.iter().filter(|one| one.copied != Copied::Nothing).collect();
    let mut outcome = Ok(());
    let mut writes = Vec::with_capacity(contents.len());
    for (content, tier, position) in contents {
        let (buf, read_outcome) = match content {
            Content::Here(buf) => (buf, Ok(())),
            Content::Read(read) => read.await,
        };
        if outcome.is_ok() && (read_outcome.is_ok() || canary!(MoveOfUnreadable)) {
            writes.push(shared.drive(tier).write(position, buf));
        }
        if !canary!(MoveOfUnreadable) {
            outcome = outcome.and(read_outcome);
        }
    }
    for write in writes {
        outcome = outcome.and(write.await.1);
    }
    outcome?;
    for tier in Tier::BOTH {
        let in_parts = |one: &&Move| matches!(one.copied, Copied::Blocks(_));
        let forgotten = canary!(CleanedNotFlushed) && moves.iter().all(|one| one.cleans())
            || canary!(PartNotFlushed) && moves.iter().all(in_parts);
        let written = moves.iter().any(|one| one.target.tier == tier)
            && !canary!(MoveNotFlushed)
            && !forgotten;
        // A copy and what it was made of are the same only when both are durable: what was copied
        // may have been written a moment ago.
        let read = moves.iter().any(|one| one.original.is_some() && one.source.tier == tier)
            && shared.state.borrow().may_be_unflushed(tier)
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
    carry_out(shared, moves).await
}

fn plan_cleaning(state: &mut State) -> Vec<Move> {
    let batch = (BATCH_BYTES / state.geometry.extent_bytes).max(1) as usize;
    let mut moves = Vec::new();
    // Each once.
    for _ in 0..state.map.on_fast_alone() {
        let (cleaning, map) = (&mut state.cleaning, &state.map);
        let Some(extent) = cleaning.next(|from| map.next_on_fast_alone(from)) else { break };
        push_cleaning(state, &mut moves, extent);
        if moves.len() == batch {
            break;
        }
    }
    moves
}

/// Has the home of an extent written that only the fast drive has, if that can be done now.
fn push_cleaning(state: &mut State, moves: &mut Vec<Move>, extent: ExtentId) -> bool {
    let mapping = state.map.get(extent);
    let held = mapping.moving() || state.guards.home_written(extent);
    if held || !mapping.is_on_fast_alone() || state.is_young(extent) {
        return false;
    }
    if mapping.part().is_some() {
        return push_part(state, moves, extent);
    }
    let Some(source) = mapping.home() else { return false };
    let Some(target) = state.take_slot(Tier::Slow, extent) else { return false };
    state.map.mark_moving(extent, true);
    let original = Some(target);
    moves.push(Move { original, ..Move::new(extent, source, target, Copied::Whole) });
    true
}

fn settle(shared: &Shared, state: &mut State, one: &Move) {
    let mapping = state.map.get(one.extent);
    let replaced = !mapping.moving() || mapping.home() != Some(one.planned());
    if replaced && !canary!(MoveOverReplaced) {
        marks::hit(Mark::MoveDropped);
        drop_copy(state, one);
        return;
    }
    let residence = one.residence();
    let entry = state.map.form().encode(residence);
    let lsn =
        state.log.append_entry(shared.io.pool(), &Entry::Relocate { extent: one.extent, entry });
    state.replace_home(one.extent, residence, lsn);
    state.bad_copies.remove(&one.extent);
    if mapping.in_log() {
        marks::hit(Mark::MoveOvertaken);
    }
    let bytes: u64 = match one.copied {
        Copied::Nothing => state.geometry.extent_bytes,
        _ => one.runs(state.geometry.extent_bytes).iter().map(|(_, bytes)| *bytes).sum(),
    };
    if let Copied::Blocks(_) = one.copied {
        marks::hit(match one.target.tier {
            Tier::Fast => Mark::PartFilled,
            Tier::Slow => Mark::PartWentBelow,
        });
    }
    match one.target.tier {
        Tier::Slow if one.cleans() => {
            marks::hit(Mark::Cleaned);
            state.counters.moves.cleaned_bytes += bytes;
        }
        Tier::Fast => {
            marks::hit(Mark::Promoted);
            if one.original.is_some() && state.geometry.class == Class::Span {
                marks::hit(Mark::KeptBelow);
                if canary!(KeptSlotReused) {
                    state.retire(one.source, lsn);
                }
            }
            state.counters.moves.promoted_bytes += bytes;
        }
        Tier::Slow => {
            let given_up = one.copied == Copied::Nothing;
            marks::hit(if given_up { Mark::CopyGivenUp } else { Mark::Demoted });
            state.counters.moves.demoted_bytes += bytes;
        }
    }
}

fn drop_copy(state: &mut State, one: &Move) {
    let mapping = state.map.get(one.extent);
    if mapping.moving() && mapping.home() == Some(one.planned()) {
        state.map.mark_moving(one.extent, false);
    }
    if one.copied == Copied::Whole {
        state.slots[one.target.tier.index()].give_back(one.target.slot);
    }
}
