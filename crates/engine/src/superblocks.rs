//! Reading, judging and writing the superblocks of a pair of drives.

use io::{Device, DeviceInfo, Io};

use crate::address::Tier;
use crate::canary::canary;
use crate::drive::{Drive, Flushed};
use crate::error::Error;
use crate::format::superblock::{
    COPY_POSITIONS, SUPERBLOCK_BYTES, State, Superblock, SuperblockProblem,
};
use crate::marks::{self, Mark};

/// What to do with a drive that has been truncated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shorter {
    Refused,
    /// What is left of it is wanted: beyond its end it gives errors.
    Taken,
}

/// What was found on a drive.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    /// The newest whole copy.
    pub superblock: Superblock,
    /// The other copy: damaged, older, or the same.
    pub stale_copy: usize,
}

/// Writes both copies, the stale one first, each made durable before the next is touched: a cut at
/// any moment leaves one whole copy, the old or the new.
pub(crate) async fn write(
    io: &Io,
    drive: &Drive,
    superblock: &Superblock,
) -> Result<Flushed, Error> {
    let stale_last = canary!(StaleCopyLast);
    let first = if stale_last { 1 - drive.stale_copy() } else { drive.stale_copy() };
    let mut flushed = None;
    for copy in [first, 1 - first] {
        let mut buf = io.pool().take(SUPERBLOCK_BYTES);
        superblock.encode(&mut buf, copy);
        if copy != drive.stale_copy() && canary!(OneSuperblock) {
            continue;
        }
        // The other copy may be the only one that is whole.
        if let Some(error) = drive.failed_flush() {
            return Err(error.into());
        }
        drive.write(COPY_POSITIONS[copy], buf).await.1?;
        if copy != drive.stale_copy() || !canary!(SuperblocksAtOnce) {
            flushed = Some(drive.flush().await?);
        }
    }
    Ok(flushed.expect("one copy is not the stale one"))
}

/// Reads the newest valid copy. `Ok(None)`: the drive is not ours.
///
/// # Errors
/// When a superblock is there but cannot be used, or the drive cannot be read.
pub(crate) async fn read(io: &Io, device: &Device) -> Result<Option<Found>, Error> {
    let info = device.info();
    let last = COPY_POSITIONS[1] + SUPERBLOCK_BYTES as u64;
    if info.size_bytes < last {
        return Ok(None);
    }
    let mut best: Option<Found> = None;
    let mut damaged = false;
    let mut too_new = None;
    let mut unreadable = None;
    for (copy, position) in COPY_POSITIONS.into_iter().enumerate() {
        let (buf, outcome) = device.read(position, io.pool().take(SUPERBLOCK_BYTES)).await;
        if let Err(error) = outcome {
            unreadable = Some(error);
            continue;
        }
        match Superblock::decode(&buf, copy) {
            Ok(superblock) => {
                if best.as_ref().is_some_and(|best| best.superblock.sequence != superblock.sequence)
                {
                    marks::hit(Mark::SuperblockCopiesDiffered);
                }
                let newer = |best: &Found| superblock.sequence >= best.superblock.sequence;
                if best.as_ref().is_none_or(newer) {
                    best = Some(Found { superblock, stale_copy: 1 - copy });
                }
            }
            Err(SuperblockProblem::Absent) => {}
            Err(SuperblockProblem::Damaged) => damaged = true,
            Err(SuperblockProblem::TooNew(text)) => too_new = Some(text),
        }
    }
    let problem = |problem: String| Err(Error::Superblock { path: info.path.clone(), problem });
    let unreadable_copy = unreadable.is_some();
    match (best, too_new, unreadable) {
        (_, Some(text), _) => problem(format!("{text}. Use a newer bimetal")),
        (Some(best), ..) => {
            if damaged || unreadable_copy {
                marks::hit(Mark::SuperblockRepaired);
            }
            Ok(Some(best))
        }
        (None, None, Some(error)) => Err(error.within("reading the superblock").into()),
        (None, None, None) if damaged => problem(
            "both copies are damaged (at 4 KiB and 512 KiB). Do not write to this drive; if you \
             have an image of it, restore the first MiB"
                .into(),
        ),
        (None, None, None) => Ok(None),
    }
}

/// Judges whether two drives, given as fast and slow, are one volume of the same moment.
///
/// # Errors
/// `NotAMember`, `Mismatch` or `Unfit` with which drive is wrong, and what to do.
pub(crate) fn judge_pair(
    fast: (&Device, Option<Found>),
    slow: (&Device, Option<Found>),
    shorter: Shorter,
) -> Result<[Superblock; 2], Error> {
    let infos = [fast.0.info(), slow.0.info()];
    let member = |tier: Tier, found: &Option<Found>| {
        found.as_ref().map(|found| found.superblock.clone()).ok_or_else(|| Error::NotAMember {
            path: infos[tier.index()].path.clone(),
            found: "no bimetal superblock at 4 KiB or 512 KiB. 'bimetal scan' lists the drives \
                    that have one"
                .into(),
        })
    };
    let mut pair = [member(Tier::Fast, &fast.1)?, member(Tier::Slow, &slow.1)?];
    let size_bytes = |info: &DeviceInfo| match shorter {
        Shorter::Refused => info.size_bytes,
        Shorter::Taken => u64::MAX,
    };
    judge(pair.each_ref(), infos.map(|info| (info.path.as_str(), size_bytes(info))))?;
    if pair[0].generation == pair[1].generation {
        // What the slow drive says of the log is mostly older, but not when the fast drive is a
        // copy from earlier in the session: then its log must not pass for a whole one.
        pair[0].log_durable = pair[0].log_durable.max(pair[1].log_durable);
    }
    Ok(pair)
}

/// Judges whether two superblocks, of drives with these paths and sizes given as fast and slow, are
/// one volume of the same moment.
///
/// # Errors
/// `Mismatch` or `Unfit` with which drive is wrong, and what to do.
pub fn judge(pair: [&Superblock; 2], drives: [(&str, u64); 2]) -> Result<(), Error> {
    let path = |tier: Tier| drives[tier.index()].0;
    let refuse = |text: String| Err(Error::Mismatch(text));
    if pair[0].role == Tier::Slow && pair[1].role == Tier::Fast {
        return refuse(format!(
            "the drives are swapped: {} is the slow drive of '{}' and {} is a fast drive. Give \
             them the other way round",
            path(Tier::Fast),
            pair[0].name,
            path(Tier::Slow)
        ));
    }
    for tier in Tier::BOTH {
        let superblock = pair[tier.index()];
        if superblock.role != tier {
            return refuse(format!(
                "{} was given as the {tier} drive, but is the {} drive of volume '{}'",
                path(tier),
                superblock.role,
                superblock.name
            ));
        }
    }
    if pair[0].volume_id == pair[1].volume_id && pair[0].drive_ids != pair[1].drive_ids {
        if attaching_was_cut(pair) {
            return refuse(format!(
                "{} was being made the cache of volume '{}', which was interrupted. {} has everything; do it again: \
                 bimetal attach-cache {} --fast {} --force",
                path(Tier::Fast),
                pair[1].name,
                path(Tier::Slow),
                pair[1].name,
                path(Tier::Fast),
            ));
        }
        let moment = |superblock: &Superblock| (superblock.generation, superblock.sequence);
        let older = Tier::BOTH[usize::from(moment(pair[1]) < moment(pair[0]))];
        return refuse(format!(
            "both drives are of volume '{}', but one of them was replaced since they were together, and {} is \
             a {older} drive of before that. Give the one that has been in use since",
            pair[0].name,
            path(older),
        ));
    }
    if pair[0].volume_id != pair[1].volume_id {
        return refuse(format!(
            "the drives belong to different volumes: {} to '{}' ({}), {} to '{}' ({})",
            path(Tier::Fast),
            pair[0].name,
            pair[0].volume_id,
            path(Tier::Slow),
            pair[1].name,
            pair[1].volume_id
        ));
    }
    if pair.iter().any(|superblock| superblock.state == State::Creating) {
        return refuse(format!(
            "creating volume '{}' was interrupted before it held any data. Create it again with \
             --force",
            pair[0].name
        ));
    }
    if pair[0].geometry != pair[1].geometry {
        return refuse("the drives describe the volume's shape differently".into());
    }
    for tier in Tier::BOTH {
        let expected = pair[0].geometry.layouts[tier.index()].drive_bytes;
        let found = drives[tier.index()].1;
        if found < expected {
            let problem = format!(
                "{} has been truncated: it is {found} bytes long and was {expected}. Restore its \
                 full length (nothing was changed)",
                path(tier)
            );
            return Err(Error::Unfit { tier, problem });
        }
    }
    judge_generations(pair, path(Tier::Fast), path(Tier::Slow))
}

/// Whether the slow drive was about to take this fast one as its partner (`attach_cache.rs`).
fn attaching_was_cut([fast, slow]: [&Superblock; 2]) -> bool {
    let unused = matches!(fast.state, State::Creating | State::Clean);
    slow.alone
        && unused
        && fast.generation == slow.generation + 1
        && fast.drive_ids[1] == slow.drive_ids[1]
}

/// How far a session has come.
fn progress(state: State) -> u32 {
    match state {
        State::Creating => 0,
        State::Opening => 1,
        State::Open => 2,
        State::Clean => 3,
    }
}

/// Judges a drive whose partner is gone; gives its superblock for both.
///
/// # Errors
/// `NotAMember`, `Mismatch` or `Unfit` with what is wrong.
pub(crate) fn judge_alone(
    tier: Tier,
    device: &Device,
    found: Option<Found>,
    shorter: Shorter,
) -> Result<[Superblock; 2], Error> {
    let info = device.info();
    let Some(Found { superblock, .. }) = found else {
        return Err(Error::NotAMember {
            path: info.path.clone(),
            found: "no bimetal superblock at 4 KiB or 512 KiB. 'bimetal scan' lists the drives \
                    that have one"
                .into(),
        });
    };
    let refuse = |text: String| Err(Error::Mismatch(text));
    if superblock.role != tier {
        return refuse(format!(
            "{} was given as the {tier} drive, but is the {} drive of volume '{}'",
            info.path, superblock.role, superblock.name
        ));
    }
    if superblock.state == State::Creating {
        return refuse(format!("volume '{}' never held any data", superblock.name));
    }
    let expected = superblock.geometry.layouts[tier.index()].drive_bytes;
    if info.size_bytes < expected && shorter == Shorter::Refused {
        let problem = format!(
            "{} has been truncated: it is {} bytes long and was {expected}",
            info.path, info.size_bytes
        );
        return Err(Error::Unfit { tier, problem });
    }
    Ok([superblock.clone(), superblock])
}

fn judge_generations(pair: [&Superblock; 2], fast: &str, slow: &str) -> Result<(), Error> {
    let [one, other] = pair;
    if one.generation == other.generation {
        // An opening gives both the same mark; one that was interrupted before the second drive had
        // it leaves that drive a generation behind.
        if one.session != other.session {
            return Err(Error::Mismatch(format!(
                "{fast} and {slow} were written apart from each other (copies of the drives have \
                 been in use separately). Take both from the same copy"
            )));
        }
        // Every step of opening and closing is on the slow drive before it is on the fast one.
        if progress(one.state) > progress(other.state) && !canary!(ProgressUncompared) {
            let problem = format!(
                "{slow} is older than {fast}: it is a copy from before the volume was closed. \
                 Give the drive that was in use"
            );
            return Err(Error::Unfit { tier: Tier::Slow, problem });
        }
        return Ok(());
    }
    let (newer, older, older_path, newer_path, tier) = if one.generation > other.generation {
        (one, other, slow, fast, Tier::Slow)
    } else {
        (other, one, fast, slow, Tier::Fast)
    };
    // A cut between the two writes of an opening's first step leaves exactly this.
    let cut = newer.state == State::Opening && newer.generation == older.generation + 1;
    if cut || canary!(GenerationsUncompared) {
        marks::hit(Mark::OpeningWasCut);
        return Ok(());
    }
    if newer.alone && tier == Tier::Fast {
        let problem = format!(
            "volume '{}' went on without its fast drive, so what {older_path} holds is old. Serve \
             the volume without it, or make it an empty cache of the volume: bimetal attach-cache \
             {} --fast {older_path}",
            newer.name, newer.name
        );
        return Err(Error::Unfit { tier, problem });
    }
    let problem = format!(
        "{older_path} is older than {newer_path} (generation {} against {}): it is an earlier copy \
         of the drive, or was missing while the volume was in use. Give the drive that was in use",
        older.generation, newer.generation
    );
    Err(Error::Unfit { tier, problem })
}
