//! Opening a volume: who its drives are, what state they left, and the session that begins on them.

use std::rc::Rc;

use io::{Device, Io};

use crate::address::Tier;
use crate::behind::{self, Behind};
use crate::cache_mode::CacheMode;
use crate::canary::canary;
use crate::cleaning::Cleaning;
use crate::doubts;
use crate::drive::Drive;
use crate::error::{Error, Poison};
use crate::exposure::Exposure;
use crate::format::superblock::{DOUBT_PAGE, State as Left, Superblock};
use crate::inclusion::Inclusion;
use crate::lasting_heat::{self, LastingHeat};
use crate::log::writer;
use crate::loss::Loss;
use crate::map_repair::repair;
use crate::marks::{self, Mark};
use crate::placer::Placement;
use crate::quiet::Quiet;
use crate::recover::{Source, recover};
use crate::shared::Shared;
use crate::stage::Stage;
use crate::state::State;
use crate::superblocks::{self, Found, Shorter, judge_alone, judge_pair};
use crate::{alone, deferred, homing, janitor};

/// How to open a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenOptions {
    /// Nothing is written to the drives; writes by clients are refused.
    pub read_only: bool,
    /// When a drive is gone, go on without it: read-only, with what the other one has.
    pub degraded: bool,
    /// When the volume is damaged, or a drive is gone, give what is certain and nothing else:
    /// read-only.
    pub rescue: bool,
    /// Where what clients write goes.
    pub placement: Placement,
    /// RAM for extents that were read whole; `None`: as set for the volume.
    pub stage_bytes: Option<u64>,
    /// The most that is acknowledged before it is written; `None`: as set for the volume.
    pub behind_bytes: Option<u64>,
}

/// A drive of a volume to be opened.
#[derive(Clone)]
pub enum Member {
    /// It is here.
    Here(Device),
    /// It cannot be used.
    Gone {
        /// Where it should be.
        path: String,
        /// Why.
        why: String,
    },
}

/// Two drives that belong together, or one that is left.
struct Members {
    drives: [Drive; 2],
    /// The fast and the slow drive's; the survivor's for both if one is gone.
    pair: [Superblock; 2],
    /// What is wrong with drives that are used all the same.
    damage: Option<String>,
}

/// Opens the volume that lies on these drives, replays its log, and starts its background work. Errors: see
/// `Engine::open_members`.
pub(crate) async fn open(
    io: &Io,
    members: [Member; 2],
    options: OpenOptions,
) -> Result<Rc<Shared>, Error> {
    let started_ns = io.now_ns();
    let identified = identify(io, members, options).await?;
    let Members { drives: [fast, slow], mut pair, damage } = identified;
    if pair[1].brings_home() {
        // A change of the mode was cut when only the slow drive knew of it. Everything was home
        // then, and it must not pass for whole and be left behind.
        pair[0].cache_mode = pair[1].cache_mode;
    }
    let gone = [&fast, &slow].into_iter().find(|drive| drive.gone().is_some());
    // In write-through the slow drive has everything, and goes on for writing too.
    let through = pair[0].brings_home();
    let lone = through && fast.gone().is_some() && slow.gone().is_none();
    let read_only = options.read_only || options.rescue || gone.is_some() && !lone;
    if !read_only && !pair[0].may_write() {
        return Err(Error::Superblock {
            path: fast.info().path.clone(),
            problem: "it uses features that this version can read but not write. Use \
                      --read-only or a newer bimetal"
                .into(),
        });
    }
    let doubt_page = pair[1].has_doubt_page();
    let (superblock, rescue) = (&pair[0], options.rescue);
    let source = Source { io, fast: &fast, slow: &slow, superblock, doubt_page, rescue };
    let mut state = recover(&source).await?;
    // Unless its map is damaged: what is unknown must not be taken for a hole and overwritten.
    let knows_all = state.loss.as_ref().is_none_or(Loss::knows_all);
    let goes_on = lone && knows_all && state.map.on_fast_alone() == 0;
    let read_only = read_only || lone && !goes_on;
    state.recovery.unclean = pair.iter().any(|superblock| superblock.state != Left::Clean);
    if state.recovery.unclean {
        marks::hit(Mark::UncleanOpened);
    }
    state.last_request_ns = io.now_ns();
    state.placer.set_placement(options.placement);
    // Of the slow drive alone nothing is staged: it is written in place (`alone.rs`).
    if !read_only && !state.is_alone() {
        take_settings(io, &fast, &pair[0], options, &mut state).await;
    } else if fast.gone().is_none() {
        // Nothing is placed by it; whoever looks at the volume is told what was hot.
        lasting_heat::recall(io, &fast, pair[0].volume_tag(), &mut state).await;
    }
    if let Some(damage) = damage {
        state.loss.get_or_insert_default().damage.insert(0, damage);
    }
    if state.loss.is_some() {
        state.count_loss();
    }
    if let Some(drive) = gone {
        let loss = state.loss.as_ref().map(|loss| loss.summary.clone()).unwrap_or_default();
        if !options.degraded && !options.rescue && !goes_on {
            let (tier, path) = (drive.tier(), &drive.info().path);
            let why = drive.gone().unwrap_or_default();
            let problem =
                format!("the {tier} drive of volume '{}' is gone ({path}: {why})", pair[0].name);
            return Err(Error::DriveGone { problem, loss: Box::new(loss) });
        }
    }
    let mut superblock = pair[0].clone();
    if gone.is_some() && canary!(WrittenAlone) {
        let survivor = if fast.gone().is_some() { &slow } else { &fast };
        superblocks::write(io, survivor, &superblock).await?;
    }
    let alone = state.is_alone();
    if alone && !read_only {
        // All that needs the fast drive stands still.
        let why = fast.gone().unwrap_or_default();
        state.poisoned = Some(why.into());
    } else if !read_only {
        superblock = begin_session(io, &fast, &slow, &pair, &mut state).await?;
    }
    state.recovery.duration_ns = io.now_ns() - started_ns;
    state.exposure = Exposure::new(superblock.flush_mode);
    state.homeward = through;
    state.around = pair[0].cache_mode == CacheMode::WriteAround;
    let shared = Rc::new(Shared::new(io, [fast, slow], superblock, state, read_only));
    if read_only {
        return Ok(shared);
    }
    if alone {
        alone::ready(&shared).await?;
        return Ok(shared);
    }
    io.spawn(writer::run(shared.clone()));
    io.spawn(janitor::run(shared.clone()));
    io.spawn(deferred::run(shared.clone()));
    io.spawn(behind::run(shared.clone()));
    if through && let Err(error) = homing::begin(&shared).await {
        shared.poison(Poison::by("bringing home what the log has failed", error.clone()));
        shared.state.borrow_mut().closed = true;
        shared.log_work.wake_all();
        return Err(error);
    }
    Ok(shared)
}

/// What is set for the volume, or wanted of it this time, and what it knew when it was closed.
async fn take_settings(
    io: &Io,
    fast: &Drive,
    superblock: &Superblock,
    options: OpenOptions,
    state: &mut State,
) {
    let tuning = superblock.tuning;
    let default = Stage::bytes_by_default(&state.geometry);
    let stage_bytes = options.stage_bytes.or(tuning.stage_bytes).unwrap_or(default);
    state.stage = Stage::new(stage_bytes, &state.geometry);
    let behind_bytes = options.behind_bytes.or(tuning.behind_bytes).unwrap_or(0);
    state.behind = Behind::new(behind_bytes);
    let now_ns = io.now_ns();
    let written = fast.traffic().write_bytes;
    state.placer.limit_wear(tuning.wear_bytes_per_day.unwrap_or(0), written, now_ns);
    state.quiet = Quiet::new(tuning.quiet, now_ns);
    state.cleaning = Cleaning::opened(now_ns);
    state.inclusion = Inclusion::new(tuning.inclusion);
    state.lasting_heat = LastingHeat::opened(now_ns);
    lasting_heat::recall(io, fast, superblock.volume_tag(), state).await;
    state.wishes = superblock.wishes.clone();
    if !state.wishes.ranges().is_empty() {
        state.wish_hand.begin();
    }
}

/// Finds out who the drives are and whether they belong together.
async fn identify(io: &Io, members: [Member; 2], options: OpenOptions) -> Result<Members, Error> {
    let mut found: [Result<Option<Found>, String>; 2] = [Ok(None), Ok(None)];
    let one_will_do = options.degraded || options.rescue;
    for (member, found) in members.iter().zip(&mut found) {
        *found = match member {
            Member::Gone { why, .. } => Err(why.clone()),
            Member::Here(device) => match superblocks::read(io, device).await {
                Ok(None) if one_will_do => Err("it carries no bimetal superblock".into()),
                Ok(found) => Ok(found),
                Err(error) if one_will_do => Err(error.to_string()),
                Err(error) => return Err(error),
            },
        };
    }
    let mut shorter = Shorter::Refused;
    let mut damage = None;
    if options.rescue
        && let [Member::Here(fast), Member::Here(slow)] = &members
        && let [Ok(fast_found), Ok(slow_found)] = found.clone()
        && let Err(Error::Unfit { problem, .. }) =
            judge_pair((fast, fast_found.clone()), (slow, slow_found.clone()), shorter)
    {
        // A truncated drive gives what is left of it; an older copy gives nothing that is certain.
        shorter = Shorter::Taken;
        match judge_pair((fast, fast_found), (slow, slow_found), shorter) {
            Err(Error::Unfit { tier, problem }) => found[tier.index()] = Err(problem),
            _ => damage = Some(problem),
        }
    }
    let [fast, slow] = members;
    let drive = |tier: Tier, member: &Member, found: &Result<Option<Found>, String>| {
        let path = match member {
            Member::Here(device) => device.info().path.clone(),
            Member::Gone { path, .. } => path.clone(),
        };
        match (member, found) {
            (Member::Here(device), Ok(found)) => {
                let stale_copy = found.as_ref().map_or(0, |found| found.stale_copy);
                Drive::new(tier, device.clone(), stale_copy)
            }
            (_, Err(why)) => Drive::absent(tier, path, why.clone()),
            (Member::Gone { why, .. }, Ok(_)) => Drive::absent(tier, path, why.clone()),
        }
    };
    let drives = [drive(Tier::Fast, &fast, &found[0]), drive(Tier::Slow, &slow, &found[1])];
    let pair = match (&fast, &slow, found) {
        (Member::Here(fast), Member::Here(slow), [Ok(fast_found), Ok(slow_found)]) => {
            judge_pair((fast, fast_found), (slow, slow_found), shorter)?
        }
        (Member::Here(fast), _, [Ok(found), Err(_)]) => {
            judge_alone(Tier::Fast, fast, found, shorter)?
        }
        (_, Member::Here(slow), [Err(_), Ok(found)]) => {
            judge_alone(Tier::Slow, slow, found, shorter)?
        }
        (.., [one, other]) => {
            let [one, other] = [one, other].map(|why| why.err().unwrap_or_default());
            return Err(Error::Mismatch(format!("neither drive can be used: {one}; {other}")));
        }
    };
    Ok(Members { drives, pair, damage })
}

/// Makes what recovery read durable, and marks both drives as in use by a new session.
///
/// `Opening` is on both drives before `Open` is on either, and no data is written before `Open` is
/// on both: so an older copy of one drive can never pass for a cut between two of these writes.
async fn begin_session(
    io: &Io,
    fast: &Drive,
    slow: &Drive,
    pair: &[Superblock; 2],
    state: &mut State,
) -> Result<Superblock, Error> {
    // What was read may still be in a volatile cache, from before a crash of the process.
    if !canary!(RecoveryNotFlushed) {
        let flushes = [fast.flush(), slow.flush()];
        for flush in flushes {
            flush.await?;
        }
    }
    // What the slow drive does not vouch for covers everything that was recovered, before the first
    // flush is acknowledged on top of it.
    state.doubts.begin_session(&state.map);
    let page = state.doubts.take_all();
    let copies = state.doubts.copies(io.pool(), pair[0].volume_tag(), &page);
    doubts::write(slow, copies).await?;
    slow.flush().await?;
    state.doubts.settle(page);
    let mut superblock = pair[0].clone();
    superblock.read_only_compatible |= DOUBT_PAGE;
    superblock.in_parts |= superblock.geometry.fits_parts();
    superblock.generation = pair[0].generation + 1;
    if canary!(GenerationNotBumped) && pair[0].generation > 0 {
        superblock.generation = pair[0].generation;
    }
    superblock.session = io.random();
    superblock.sequence = pair[0].sequence.max(pair[1].sequence);
    if !canary!(SessionStartForgotten) {
        superblock.log_session_start = state.log.end();
    }
    superblock.log_durable = state.log.end();
    for left in [Left::Opening, Left::Open] {
        superblock.state = left;
        superblock.sequence += 1;
        for drive in if canary!(FastOpensFirst) { [fast, slow] } else { [slow, fast] } {
            superblock.role = drive.tier();
            superblocks::write(io, drive, &superblock).await?;
        }
    }
    if superblock.in_parts {
        state.map.allow_parts();
    }
    state.log.begin_session(superblock.generation);
    repair(io, [fast, slow], state, superblock.volume_tag()).await?;
    Ok(superblock)
}
