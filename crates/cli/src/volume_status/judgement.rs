//! How a volume is, what that means, and what to do about it.

use engine::{State, Superblock, Tier};

use super::{DriveState, DriveStatus, Health, Unusable, advice};
use crate::loss_status::LossStatus;

pub(super) type Judgement = (Health, String, Option<String>);

/// Of a volume that is served.
pub(super) fn judge_live(
    engine: &engine::Status,
    fast: &DriveStatus,
    slow: &DriveStatus,
) -> Judgement {
    let loss = engine.loss.clone().map(LossStatus::from);
    if let Some((loss, (tier, why))) = loss.as_ref().and_then(|loss| Some((loss, loss.gone()?))) {
        let name = &engine.name;
        return (
            Health::Degraded,
            format!(
                "The {tier} drive is gone ({why}). The volume is served read-only: {}.",
                loss.lines().join(", ")
            ),
            Some(format!(
                "Bring the drive back, then stop and serve the volume again. If it is lost for \
                 good, copy what can be read; 'bimetal lost {name}' lists what cannot."
            )),
        );
    }
    if engine.alone && engine.poisoned.is_none() {
        let why = fast.problem.as_deref().unwrap_or("it is not there");
        return (
            Health::Degraded,
            format!(
                "The fast drive is gone ({why}). Nothing is lost: the volume goes on with the slow \
                 drive, which has everything, at its speed."
            ),
            Some(format!(
                "Stop the volume and give it a fast drive again: bimetal attach-cache {} --fast DEV.",
                engine.name
            )),
        );
    }
    if let Some(loss) = loss.as_ref() {
        let name = &engine.name;
        return (
            Health::Degraded,
            format!(
                "The volume is damaged and served read-only, as far as it is certain: {}. {}.",
                loss.lines().join(", "),
                loss.damage.join(". ")
            ),
            Some(format!(
                "Copy what can be read, then restore the rest from a backup; 'bimetal lost {name}' \
                 lists what cannot be read."
            )),
        );
    }
    if let Some(cause) = &engine.poisoned {
        return (
            Health::Degraded,
            format!(
                "The volume has stopped taking writes: {cause}. Everything flushed before is safe."
            ),
            Some(advice::when_stopped(engine, cause, [fast, slow])),
        );
    }
    for (role, drive) in [(Tier::Fast, fast), (Tier::Slow, slow)] {
        if drive.errors > 0 {
            return (
                Health::Degraded,
                format!(
                    "The {role} drive gave {} errors; the first: {}.",
                    drive.errors,
                    drive.problem.as_deref().unwrap_or("unknown")
                ),
                Some(advice::on_errors(engine, drive, role)),
            );
        }
    }
    if engine.recovery.blocks_damaged > 0 {
        return (
            Health::Degraded,
            format!(
                "{} blocks in the landing log are damaged: reading them gives an error.",
                engine.recovery.blocks_damaged
            ),
            Some("Restore the files that cannot be read from a backup.".to_owned()),
        );
    }
    let mode = match (engine.read_only, engine.flush_mode.bound()) {
        (true, _) => "read-only",
        (false, None) => "a flush is a flush",
        (false, Some(_)) => "flushes are deferred",
    };
    (Health::Online, format!("The volume is served ({mode})."), None)
}

/// Of one that is not, from its superblocks.
pub(super) fn judge_at_rest(
    name: &str,
    fast: &Result<Superblock, Unusable>,
    slow: &Result<Superblock, Unusable>,
) -> Judgement {
    let unavailable = |status: String, action: &str| {
        (Health::Unavailable, status, Some(format!("{action} Nothing was changed.")))
    };
    let (fast, slow) = match (fast, slow) {
        (Ok(fast), Ok(slow)) => (fast, slow),
        (Err(problem), Ok(slow)) if slow.role == Tier::Slow && slow.brings_home() => {
            return (
                Health::Degraded,
                format!(
                    "The volume is not served, and its fast drive cannot be used: {}. The slow \
                     drive has everything that was flushed, and goes on without it.",
                    problem.problem
                ),
                Some(match problem.is_in_the_way {
                    true => advice::instead_of_unfit_fast(name),
                    false => advice::without_fast(name, slow.alone),
                }),
            );
        }
        (Err(problem), Ok(_)) | (Ok(_), Err(problem)) => {
            let action = match (problem.is_in_the_way, problem.state) {
                (true, DriveState::Faulty) => format!(
                    "Give the drive that was in use last, whole. If there is no such, 'bimetal serve {name} \
                     --rescue' serves what is certain."
                ),
                (true, _) => "Give the volume's own drive: 'bimetal scan' lists the drives that are here, and \
                              'bimetal import --force' corrects the volume's file."
                    .to_owned(),
                (false, _) => format!(
                    "Connect or restore that drive; 'bimetal scan' lists the drives that are \
                     here. 'bimetal lost {name}' says what could be read without it, and \
                     'bimetal serve {name} --degraded' serves that."
                ),
            };
            return unavailable(format!("One drive cannot be used: {}.", problem.problem), &action);
        }
        (Err(one), Err(two)) => {
            return unavailable(
                format!("Neither drive can be used: {}; {}.", one.problem, two.problem),
                "Connect the drives; 'bimetal scan' lists those that are here.",
            );
        }
    };
    if fast.volume_id != slow.volume_id || fast.role != Tier::Fast || slow.role != Tier::Slow {
        return unavailable(
            "The drives do not belong together as given.".to_owned(),
            "'bimetal scan' lists which drives belong together; 'bimetal import --force' corrects \
             the volume's file.",
        );
    }
    if fast.drive_ids != slow.drive_ids {
        return unavailable(
            "One of the drives is of before the other was replaced.".to_owned(),
            "Give the drive that has been in use since; 'bimetal scan' lists those that are here.",
        );
    }
    match (fast.state, slow.state) {
        (State::Creating, _) | (_, State::Creating) => unavailable(
            "Creating the volume was interrupted before it held any data.".to_owned(),
            "Create it again with --force.",
        ),
        (State::Clean, State::Clean) => (
            Health::Offline,
            "The volume is not served; it was closed in order.".to_owned(),
            Some(format!("'bimetal serve {name}' or 'bimetal attach {name}' brings it up.")),
        ),
        _ => (
            Health::Unclean,
            "The volume is not served and was not closed in order; everything flushed is safe."
                .to_owned(),
            Some(format!("'bimetal serve {name}' replays the landing log and brings it up.")),
        ),
    }
}
