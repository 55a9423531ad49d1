//! Destage: blocks move from the log to their homes, oldest records first, extent by extent,
//! sorted by address.
//!
//! * Only durable blocks are destaged: a home must never hold data whose record a cut could take
//!   back, torn at that.
//! * The homes are flushed before the record that says so is appended; until that record is
//!   durable, replay brings the blocks back from the log.
//! * A trim or a fresh write of an extent meanwhile takes its moving mark away; what was written for
//!   it is then dropped. A small write meanwhile goes to the log with a later LSN and stays there.

use std::collections::BTreeSet;
use std::rc::Rc;

use io::Buf;
use policy::{Occasion, Verdict};

use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Home, Lsn, Tier};
use crate::canary::canary;
use crate::carry::{Load, carry};
use crate::checksum::crc32c;
use crate::error::Error;
use crate::flush::{durable_point, flush_all};
use crate::format::map_page::{EntryForm, Part, Residence};
use crate::format::record::Entry;
use crate::log::Logged;
use crate::marks::{self, Mark};
use crate::shared::{AccessPass, Looks, Shared};
use crate::staging;
use crate::state::State;

/// Bytes of extents per batch (64 of 128 KiB): enough for sorting to pay, and short enough that the
/// janitor looks up often. At least one extent is taken.
const BATCH_BYTES: u64 = 8 << 20;
/// Extents per batch at most: their entries fit three records.
const EXTENTS_PER_BATCH_MAX: u64 = 128;
/// Log blocks that the entries of one extent take at worst.
const LOST_ROOM_BLOCKS: u64 = 2;
const BLOCK: usize = BLOCK_BYTES as usize;

/// Where an extent's blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Into the home it has, block by block.
    InPlace(Home),
    /// Into a new home as a whole, over what `base` holds (nothing: zeros).
    Whole { home: Home, base: Option<Home> },
    /// Into the clean copy and what it was made of, which stays so.
    Both { copy: Home, own: Home },
    /// Into a copy that has these blocks then (`None`: all), while the original keeps the others. `fresh`:
    /// the copy's slot was taken for this.
    Part { copy: Home, original: Home, part: Option<Part>, fresh: bool },
    /// Into the original of a copy in part, which has these blocks then (`None`: it is given up).
    Below { copy: Home, original: Home, part: Option<Part> },
    /// Nowhere: all of it is zeros.
    Hole,
}

/// Why an extent's blocks do not go home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// The log has room for them, at its end.
    Carried,
    NoSlot,
}

struct Job {
    extent: ExtentId,
    target: Target,
    /// The home when the job was planned.
    planned: Option<Home>,
    /// Block number inside the extent and its version in the log.
    blocks: Vec<(u64, Logged)>,
}

impl Job {
    fn uses_slow(&self) -> bool {
        let homes = match self.target {
            Target::InPlace(home) => [Some(home), None],
            Target::Whole { home, base } => [Some(home), base],
            Target::Both { copy, own } => [Some(copy), Some(own)],
            Target::Part { copy, .. } => [Some(copy), None],
            Target::Below { original, .. } => [Some(original), None],
            Target::Hole => [None, None],
        };
        homes.into_iter().flatten().any(|home| home.tier == Tier::Slow)
    }
}

/// What goes down to the slow drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Below {
    Everything,
    /// What the log has no room for.
    WhatMust,
}

/// What a batch achieved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Extents were destaged.
    Some,
    /// None was, but blocks were carried.
    Carried,
    /// Nothing could be done now.
    None,
}

/// Destages the oldest extents of the log.
pub(crate) async fn destage(shared: &Rc<Shared>, below: Below) -> Result<Progress, Error> {
    let nothing_durable = {
        let mut state = shared.state.borrow_mut();
        state.log.oldest_live() >= state.log.durable()
    };
    if nothing_durable {
        flush_all(shared).await?;
    }
    renew_lost(shared);
    let _pass = AccessPass::begin(shared, Looks::AtHomes);
    let written = (shared.fast.traffic().write_bytes, shared.io.now_ns());
    let Plan { jobs, load, before, young, starved } =
        plan(&mut shared.state.borrow_mut(), written, below);
    let starved = starved && shared.state.borrow().quarantine_waits_for_record();
    if jobs.iter().any(Job::uses_slow) {
        shared.state.borrow_mut().quiet.used_by_work(shared.io.now_ns());
    }
    if starved {
        marks::hit(Mark::DestageStarved);
    }
    if young {
        marks::hit(Mark::DestageMetYoung);
    }
    if (young && !canary!(YoungIgnored)) || starved {
        // Some home may not be changed until recovery no longer verifies it, or the free slots
        // are still waiting for that.
        durable_point(shared).await?;
    }
    let (carried_blocks, carried) = match load.is_empty() {
        true => (0, Ok(())),
        false => carry(shared, load).await,
    };
    // As of what is destaged: an error is told if nothing else came of the batch.
    if jobs.is_empty() {
        return match carried {
            _ if carried_blocks > 0 => Ok(Progress::Carried),
            carried => carried.map(|()| Progress::None),
        };
    }
    let outcome = copy(shared, &jobs).await;
    let done = match outcome {
        Ok(done) => done,
        Err(error) => {
            abandon(shared, jobs.iter());
            return Err(error);
        }
    };
    // A header block takes 62 destage entries.
    shared.internal_room(5).await?;
    settle(shared, &jobs, &done, before);
    shared.log_work.wake_all();
    Ok(if carried_blocks > 0 || done.contains(&true) { Progress::Some } else { Progress::None })
}

struct Plan {
    jobs: Vec<Job>,
    /// What stays in the log.
    load: Load,
    /// Blocks logged before this are destaged.
    before: Lsn,
    /// Some in-place target is still verified by its data at recovery.
    young: bool,
    /// There was no free slot for some extent.
    starved: bool,
}

/// Chooses the extents and their targets. `written`: bytes written to the fast drive so far, and the
/// time.
fn plan(state: &mut State, written: (u64, u64), below: Below) -> Plan {
    let mut load = match below {
        Below::Everything => Load::none(),
        Below::WhatMust => Load::for_busy(state, written),
    };
    let before = if canary!(DestageNotDurable) { state.log.written() } else { state.log.durable() };
    let extent_blocks = state.geometry.extent_blocks();
    let mut extents = BTreeSet::new();
    let batch =
        (BATCH_BYTES / state.geometry.extent_bytes).clamp(1, EXTENTS_PER_BATCH_MAX) as usize;
    state.log.visit_live(before, |live| {
        extents.insert(ExtentId(live.block.0 / extent_blocks));
        extents.len() < batch
    });
    state.destage_waits.clear();
    let mut starved = false;
    let mut young = false;
    let mut jobs = Vec::with_capacity(extents.len());
    for extent in extents {
        let mapping = state.map.get(extent);
        let in_use = state.guards.home_written(extent) && !canary!(DestageUnderWriter);
        if mapping.moving() || in_use {
            if in_use {
                state.destage_waits.insert(extent);
            }
            continue;
        }
        let mut blocks = Vec::new();
        for (n, block) in (0..).zip(state.blocks_of(extent)) {
            match state.log.lookup(block) {
                Some(Logged::Lost { .. }) | None => {}
                Some(version) if version.lsn() < before || canary!(DestageTakesNewer) => {
                    blocks.push((n, version));
                }
                Some(_) => {}
            }
        }
        if blocks.is_empty() {
            continue;
        }
        let target = match choose(state, extent, &blocks, load.takes(&blocks), written) {
            Ok(target) => target,
            Err(Stays::Carried) => {
                load.add(BlockId(extent.0 * extent_blocks), &blocks);
                continue;
            }
            Err(Stays::NoSlot) => {
                starved = true;
                continue;
            }
        };
        let over =
            matches!(target, Target::InPlace(_) | Target::Both { .. } | Target::Below { .. });
        young |= over && state.is_young(extent);
        state.stage.drop_image(extent);
        state.map.mark_moving(extent, true);
        jobs.push(Job { extent, target, planned: mapping.home(), blocks });
    }
    jobs.sort_by_key(|job| match job.target {
        Target::InPlace(home)
        | Target::Whole { home, .. }
        | Target::Both { own: home, .. }
        | Target::Part { copy: home, .. }
        | Target::Below { original: home, .. } => (Some(home), job.extent),
        Target::Hole => (None, job.extent),
    });
    Plan { jobs, load, before, young, starved }
}

fn choose(
    state: &mut State,
    extent: ExtentId,
    blocks: &[(u64, Logged)],
    may_stay: bool,
    written: (u64, u64),
) -> Result<Target, Stays> {
    let mapping = state.map.get(extent);
    let home = mapping.home();
    let all = blocks.len() as u64 == state.geometry.extent_blocks();
    let zeros = blocks.iter().all(|(_, version)| matches!(version, Logged::Zero { .. }));
    if let (Some(copy), Some((part, original)), false) = (home, mapping.part(), zeros && all) {
        return Ok(change_part(state, (copy, original, part), blocks));
    }
    Ok(match home {
        _ if zeros && (all || home.is_none()) => Target::Hole,
        None => {
            let home = state.take_slot_for_new(extent).ok_or(Stays::NoSlot)?;
            Target::Whole { home, base: None }
        }
        // A hot extent takes the occasion to move up: its data passes through here anyway.
        Some(base) if base.tier == Tier::Slow && goes_up(state, extent, blocks, written) => {
            let home = state.take_slot(Tier::Fast, extent).ok_or(Stays::NoSlot)?;
            match part_above(state, blocks) {
                Some(part) => {
                    Target::Part { copy: home, original: base, part: Some(part), fresh: true }
                }
                None => Target::Whole { home, base: Some(base) },
            }
        }
        Some(base) if base.tier == Tier::Slow && may_stay => return Err(Stays::Carried),
        // Others go up in part, which costs the slow drive nothing now.
        Some(base) if base.tier == Tier::Slow => match part_above(state, blocks) {
            Some(part) if goes_up_in_part(state, extent, written) => {
                let copy = state.take_slot(Tier::Fast, extent).ok_or(Stays::NoSlot)?;
                Target::Part { copy, original: base, part: Some(part), fresh: true }
            }
            _ => Target::InPlace(base),
        },
        // A copy with a bad sector is given up for the slow drive's own; in write-around every one.
        Some(_) if gives_up_copy(state, extent) => {
            Target::InPlace(state.map.get(extent).original().ok_or(Stays::NoSlot)?)
        }
        Some(copy) if state.homeward && state.map.get(extent).is_clean() => {
            let own = state.map.get(extent).original().ok_or(Stays::NoSlot)?;
            Target::Both { copy, own }
        }
        Some(home) => Target::InPlace(home),
    })
}

/// Where blocks of an extent go that is on the fast drive in part: there too, or home, all of them.
fn change_part(
    state: &State,
    (copy, original, part): (Home, Home, Part),
    blocks: &[(u64, Logged)],
) -> Target {
    let extent_blocks = state.geometry.extent_blocks();
    let known = part.blocks(extent_blocks);
    let numbers = || blocks.iter().map(|(n, _)| *n);
    if state.homeward {
        let goes = |n: u64| numbers().any(|number| number == n);
        let stays = |n: &u64| !goes(*n) || canary!(PartStaysAbove);
        return Target::Below {
            copy,
            original,
            part: Part::of(known.filter(stays), extent_blocks),
        };
    }
    let known = known.filter(|_| !canary!(PartForgotten));
    let part = Part::of(known.chain(numbers()), extent_blocks);
    Target::Part { copy, original, part, fresh: false }
}

/// The blocks, if the extent may live on the fast drive with these alone. Not most of it: then the rest
/// is worth reading.
fn part_above(state: &State, blocks: &[(u64, Logged)]) -> Option<Part> {
    let extent_blocks = state.geometry.extent_blocks();
    let few = blocks.len() as u64 * 4 <= extent_blocks * 3;
    let may = state.map.form() == EntryForm::OwnSlotInParts && !state.homeward && few;
    may.then(|| Part::of(blocks.iter().map(|(n, _)| *n), extent_blocks)).flatten()
}

/// Whether the blocks alone go up.
fn goes_up_in_part(
    state: &mut State,
    extent: ExtentId,
    (fast_written, now_ns): (u64, u64),
) -> bool {
    let slots = state.slots[Tier::Fast.index()].free() > state.slots_kept();
    slots
        && !state.placer.overwrites_below()
        && staging::admit(state, extent, Occasion::DestagedInPart, fast_written, now_ns)
}

fn gives_up_copy(state: &State, extent: ExtentId) -> bool {
    let around = state.homeward && state.around;
    state.map.get(extent).is_clean() && (around || state.bad_copies.contains(&extent))
}

fn goes_up(
    state: &mut State,
    extent: ExtentId,
    blocks: &[(u64, Logged)],
    (fast_written, now_ns): (u64, u64),
) -> bool {
    let occasion = Occasion::Destaged { pieces: block_runs(blocks).len() };
    let slots = state.slots[Tier::Fast.index()].free() > state.slots_kept();
    slots
        && !state.homeward
        && !state.unreadable.contains(&extent)
        && staging::admit(state, extent, occasion, fast_written, now_ns)
}

/// Reads the blocks, writes them to their targets and flushes those. Says per job whether it is
/// done; one whose log data is damaged is not, and stays in the log.
async fn copy(shared: &Rc<Shared>, jobs: &[Job]) -> Result<Vec<bool>, Error> {
    let extent_bytes = shared.geometry.extent_bytes as usize;
    // All reads are under way before the first is awaited.
    let mut bases = Vec::with_capacity(jobs.len());
    let mut reads = Vec::new();
    let mut in_memory = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let image = shared.io.pool().take(extent_bytes);
        bases.push(match job.target {
            Target::Whole { base: Some(base), .. } => {
                (None, Some(shared.drive(base.tier).read(shared.position(base), image)))
            }
            Target::Hole => (None, None),
            _ => (Some(image), None),
        });
        if job.target == Target::Hole {
            continue;
        }
        let to_read = take_kept(&shared.state.borrow(), (index, job), &mut in_memory);
        for (first, run) in log_runs(&to_read) {
            let position = shared.state.borrow().log.position(run[0].0);
            let buf = shared.io.pool().take(run.len() * BLOCK);
            reads.push((index, first, run, shared.fast.read(position, buf)));
        }
    }
    let mut done = vec![true; jobs.len()];
    let mut images: Vec<Option<Buf>> = Vec::with_capacity(jobs.len());
    for (index, (job, (ready, base))) in jobs.iter().zip(bases).enumerate() {
        images.push(match base {
            Some(transfer) => {
                let (image, outcome) = transfer.await;
                if outcome.is_err() {
                    // The next attempt writes the blocks in place, without reading the rest.
                    done[index] = false;
                    shared.state.borrow_mut().unreadable.insert(job.extent);
                }
                Some(image)
            }
            None => ready.map(|mut image| {
                if matches!(job.target, Target::Whole { .. }) && !canary!(DestageOverGarbage) {
                    image.fill(0);
                }
                image
            }),
        });
    }
    let mut failed = None;
    for (index, first, run, transfer) in reads {
        let (data, outcome) = transfer.await;
        let blocks = data.chunks_exact(BLOCK).zip(&run).zip(first..);
        for ((_, (lsn, _)), n) in blocks.filter(|((block, (_, crc)), _)| {
            outcome.is_ok() && crc32c(block) != *crc && !canary!(DestageUnchecked)
        }) {
            done[index] = false;
            let start = jobs[index].extent.0 * shared.geometry.extent_blocks();
            mark_lost(shared, BlockId(start + n), *lsn);
        }
        if let Err(error) = outcome {
            // It may succeed another time; what is unharmed must not be given up.
            done[index] = false;
            failed = Some(error);
        }
        if !done[index] {
            continue;
        }
        let image = images[index].as_mut().expect("jobs with reads have an image");
        image[first as usize * BLOCK..][..data.len()].copy_from_slice(&data);
    }
    for (index, n, bytes) in in_memory {
        let block = BlockId(jobs[index].extent.0 * shared.geometry.extent_blocks() + n);
        if canary!(KeptTakenLate) && shared.state.borrow().kept.get(block).is_none() {
            continue;
        }
        if let Some(image) = &mut images[index] {
            image[n as usize * BLOCK..][..BLOCK].copy_from_slice(&bytes);
        }
    }
    for (job, image) in jobs.iter().zip(&mut images) {
        for (n, version) in &job.blocks {
            if let (Logged::Zero { .. }, Some(image)) = (version, image.as_mut())
                && !canary!(DestageSkipsZeros)
            {
                image[*n as usize * BLOCK..][..BLOCK].fill(0);
            }
        }
    }
    if let Some(error) = failed
        && !done.contains(&true)
    {
        return Err(error.into());
    }
    write_targets(shared, jobs, images, &done).await?;
    Ok(done)
}

/// A block of a job whose data is in memory: the job, the block in its extent, the data.
type InMemory = (usize, u64, Box<[u8]>);

/// Takes what is in memory of a job's blocks; gives those that must be read from the log.
fn take_kept(
    state: &State,
    (index, job): (usize, &Job),
    in_memory: &mut Vec<InMemory>,
) -> Vec<(u64, Logged)> {
    let start = job.extent.0 * state.geometry.extent_blocks();
    let mut to_read = Vec::new();
    for (n, version) in &job.blocks {
        match (version, state.kept.get(BlockId(start + n))) {
            (Logged::Data { .. }, Some(bytes)) => in_memory.push((index, *n, bytes.into())),
            _ => to_read.push((*n, *version)),
        }
    }
    to_read
}

/// The block's data in the log is damaged. A mark takes its place, so that the rest of its record
/// can leave the log; reading it is an error until it is overwritten.
pub(crate) fn mark_lost(shared: &Shared, block: BlockId, lsn: Lsn) {
    let mut state = shared.state.borrow_mut();
    let newest = state.log.lookup(block).is_some_and(|version| version.lsn() == lsn);
    if newest && state.log.room_blocks() > 2 {
        marks::hit(Mark::LogBlockLost);
        state.log.append_entry(shared.io.pool(), &Entry::Lost { start: block, count: 1 });
        shared.log_work.wake_all();
    }
}

/// Marks anew what is lost, when its marks hold the tail back: those in the older half of the ring.
fn renew_lost(shared: &Shared) {
    let mut state = shared.state.borrow_mut();
    let half = state.log.ring_blocks() / 2;
    let until = Lsn(state.log.end().0.saturating_sub(half));
    for block in state.log.lost_before(until) {
        marks::hit(Mark::LostMarkRenewed);
        if state.log.room_blocks() > 2 {
            state.log.append_entry(shared.io.pool(), &Entry::Lost { start: block, count: 1 });
        }
    }
    drop(state);
    shared.log_work.wake_all();
}

/// Runs of blocks that are neighbours in the extent and in the log: first block in the extent, and
/// LSN and CRC of each.
fn log_runs(blocks: &[(u64, Logged)]) -> Vec<(u64, Vec<(Lsn, u32)>)> {
    let mut runs: Vec<(u64, Vec<(Lsn, u32)>)> = Vec::new();
    for (n, version) in blocks {
        let Logged::Data { lsn, crc } = *version else { continue };
        if let Some((first, run)) = runs.last_mut()
            && *first + run.len() as u64 == *n
            // A record never crosses the end of the ring, so neighbours in LSN within a record are
            // neighbours on the drive; across the end there is always a header between.
            && run.last().is_some_and(|(last, _)| last.0 + 1 == lsn.0)
        {
            run.push((lsn, crc));
        } else {
            runs.push((*n, vec![(lsn, crc)]));
        }
    }
    runs
}

async fn write_targets(
    shared: &Rc<Shared>,
    jobs: &[Job],
    images: Vec<Option<Buf>>,
    done: &[bool],
) -> Result<(), Error> {
    let mut writes = Vec::new();
    let mut touched = [false; 2];
    for ((job, image), done) in jobs.iter().zip(images).zip(done) {
        let (Some(mut image), true) = (image, *done) else { continue };
        match job.target {
            Target::Whole { home, .. } => {
                touched[home.tier.index()] = true;
                writes.push(shared.drive(home.tier).write(shared.position(home), image));
            }
            Target::InPlace(home)
            | Target::Part { copy: home, .. }
            | Target::Below { original: home, .. } => {
                touched[home.tier.index()] = true;
                let position = shared.position(home);
                let mut offset = 0;
                for (first, count) in block_runs(&job.blocks) {
                    let start = first as usize * BLOCK;
                    drop(image.split_to(start - offset));
                    let piece = image.split_to(count as usize * BLOCK);
                    offset = start + piece.len();
                    let at = position + start as u64;
                    writes.push(shared.drive(home.tier).write(at, piece));
                }
            }
            Target::Both { copy, own } => {
                for home in [own, copy] {
                    if home == own && canary!(OriginalNotDestaged) {
                        continue;
                    }
                    touched[home.tier.index()] = true;
                    for (first, count) in block_runs(&job.blocks) {
                        let start = first as usize * BLOCK;
                        let bytes = &image[start..start + count as usize * BLOCK];
                        let mut piece = shared.io.pool().take(bytes.len());
                        piece.copy_from_slice(bytes);
                        let at = shared.position(home) + start as u64;
                        writes.push(shared.drive(home.tier).write(at, piece));
                    }
                }
            }
            Target::Hole => {}
        }
    }
    let mut outcome = Ok(());
    for transfer in writes {
        outcome = outcome.and(transfer.await.1);
        if canary!(DestageEndsAtFirst) {
            outcome.clone()?;
        }
    }
    if !canary!(DestageFailureIgnored) {
        outcome?;
    }
    for tier in Tier::BOTH {
        let forgotten = tier == Tier::Slow && canary!(DestageForgetsSlow);
        if touched[tier.index()] && !forgotten && !canary!(DestageNotFlushed) {
            shared.flush_drive(tier).await?;
        }
    }
    Ok(())
}

/// Runs of consecutive blocks: first and count.
fn block_runs(blocks: &[(u64, Logged)]) -> Vec<(u64, u64)> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for (n, _) in blocks {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == *n => *count += 1,
            _ => runs.push((*n, 1)),
        }
    }
    runs
}

/// Records what was destaged and forgets it in the log.
fn settle(shared: &Shared, jobs: &[Job], done: &[bool], before: Lsn) {
    let mut state = shared.state.borrow_mut();
    let state = &mut *state;
    let before_blocks = state.log.live_blocks();
    for (job, done) in jobs.iter().zip(done) {
        let mapping = state.map.get(job.extent);
        let replaced =
            !mapping.moving() && !canary!(DestageTrustsHome) || mapping.home() != job.planned;
        // What is lost of it is marked anew behind it.
        let room = state.log.room_blocks() > LOST_ROOM_BLOCKS;
        if !*done || !room || replaced && !canary!(DestageOverReplaced) {
            if replaced {
                marks::hit(Mark::DestageDropped);
            }
            release(state, job);
            continue;
        }
        let residence = match job.target {
            Target::InPlace(_) if mapping.is_clean() && canary!(CopyLeftBehind) => {
                mapping.residence()
            }
            Target::InPlace(copy) if job.planned == Some(copy) && canary!(DirtyKeepsBelow) => {
                Residence { original: mapping.original(), ..Residence::at(copy) }
            }
            Target::InPlace(home) | Target::Whole { home, .. } => Residence::at(home),
            Target::Both { copy, own } => Residence::copy(copy, own),
            Target::Part { copy, original, part: Some(part), .. }
            | Target::Below { copy, original, part: Some(part) } => {
                Residence::in_part(copy, original, part)
            }
            Target::Part { copy: home, .. } | Target::Below { original: home, .. } => {
                Residence::at(home)
            }
            Target::Hole => Residence::default(),
        };
        let extent = job.extent;
        let before = if canary!(DestagedUntilEnd) { state.log.end() } else { before };
        let entry = Entry::Destaged { extent, entry: state.map.form().encode(residence), before };
        let lsn = state.log.append_entry(shared.io.pool(), &entry);
        if residence != mapping.residence() {
            state.replace_home(extent, residence, lsn);
        }
        // The mover would have, and counted it, but for these blocks in the log.
        let given_up = mapping.is_clean() && residence.home == mapping.original();
        if given_up && state.bad_copies.remove(&extent) {
            state.placer.heat.overrule(extent, Verdict::BadCopy);
        }
        state.map.mark_moving(extent, false);
        let mut left = false;
        for block in state.blocks_of(extent) {
            match state.log.lookup(block) {
                Some(Logged::Lost { .. }) => left = true,
                Some(version) if version.lsn() < before || canary!(DestageForgetsNewer) => {
                    state.forget_block(block);
                }
                Some(_) => {
                    marks::hit(Mark::DestageOvertaken);
                    left = true;
                }
                None => {}
            }
        }
        state.map.mark_in_log(extent, left && !canary!(DestageUnmarksNewer));
        if left {
            mark_lost_again(shared, state, extent);
        }
        marks::hit(match job.target {
            Target::InPlace(_) => Mark::DestagedInPlace,
            Target::Both { .. } => Mark::DestagedToBoth,
            Target::Part { part: None, .. } => Mark::PartMadeWhole,
            Target::Part { fresh: true, .. } => Mark::DestagedInPart,
            Target::Part { .. } => Mark::PartGrown,
            Target::Below { .. } => Mark::PartDestagedBelow,
            Target::Whole { base: None, .. } => Mark::DestagedToNewHome,
            Target::Whole { .. } => Mark::DestagedUp,
            Target::Hole => Mark::DestagedToHole,
        });
        state.counters.moves.destaged_bytes += job.blocks.len() as u64 * BLOCK_BYTES;
        if let Target::Whole { base: Some(_), .. } = job.target {
            state.counters.moves.promoted_bytes += state.geometry.extent_bytes;
        }
    }
    state.pace.emptied(before_blocks.saturating_sub(state.log.live_blocks()));
}

/// Says behind the record that the extent was destaged what of it was not: else nothing would, if
/// the records with the older marks were damaged (`rescue.rs`).
fn mark_lost_again(shared: &Shared, state: &mut State, extent: ExtentId) {
    for block in state.blocks_of(extent) {
        if let Some(Logged::Lost { .. }) = state.log.lookup(block) {
            state.log.append_entry(shared.io.pool(), &Entry::Lost { start: block, count: 1 });
        }
    }
}

fn abandon<'a>(shared: &Shared, jobs: impl Iterator<Item = &'a Job>) {
    let mut state = shared.state.borrow_mut();
    for job in jobs {
        release(&mut state, job);
    }
}

/// Undoes a job's plan: the extent stays where it was.
fn release(state: &mut State, job: &Job) {
    let mapping = state.map.get(job.extent);
    if mapping.moving() && mapping.home() == job.planned {
        state.map.mark_moving(job.extent, false);
    }
    if let Target::Whole { home, .. } | Target::Part { copy: home, fresh: true, .. } = job.target {
        // Never mapped: nobody can have looked it up, and the write to it has ended.
        state.slots[home.tier.index()].give_back(home.slot);
    }
}
