//! What to do about a drive that gave errors: it follows from their cause.

use engine::{Poison, Tier};
use io::ErrorKind;

use super::DriveStatus;

/// What to do when the volume has stopped itself.
pub(super) fn when_stopped(
    engine: &engine::Status,
    poison: &Poison,
    drives: [&DriveStatus; 2],
) -> String {
    let mut guilty = Tier::BOTH.into_iter().zip(drives).filter(|(_, drive)| drive.errors > 0);
    guilty
        .find_map(|(tier, drive)| by_cause(first_error(engine, tier).or(Some(poison.kind)), drive))
        .unwrap_or_else(|| "Mend the cause, then stop and serve the volume again.".to_owned())
}

/// What to do when a drive gave errors and the volume goes on.
pub(super) fn on_errors(engine: &engine::Status, drive: &DriveStatus, tier: Tier) -> String {
    by_cause(first_error(engine, tier), drive).unwrap_or_else(|| {
        format!(
            "Copy what matters, check the {tier} drive and its cables, then run 'bimetal check'."
        )
    })
}

/// What to do with a cache that is not served, whose slow drive has everything and whose fast one is gone.
/// `alone`: it has been served so already.
pub(super) fn without_fast(name: &str, alone: bool) -> String {
    let first = match alone {
        true => "",
        false => {
            "Bring the fast drive back first if it is only late: once the volume was served \
             without it, it is not taken back. "
        }
    };
    format!(
        "{first}'bimetal serve {name}' brings the volume up with the slow drive alone, for writing \
         too; 'bimetal attach-cache {name} --fast DEV' gives it a new fast drive."
    )
}

/// The same, where another drive, or one of another moment, lies in its place.
pub(super) fn instead_of_unfit_fast(name: &str) -> String {
    format!(
        "Give the fast drive that was in use last. If there is none, 'bimetal attach-cache {name} --fast DEV' \
         gives the volume a new one; or take that drive away, and 'bimetal serve {name}' brings the volume up with \
         the slow drive alone, for writing too."
    )
}

fn first_error(engine: &engine::Status, tier: Tier) -> Option<ErrorKind> {
    engine.drives[tier.index()].first_error.as_ref().map(|error| error.kind)
}

/// Advice where the cause is none of the drive's own.
fn by_cause(error: Option<ErrorKind>, drive: &DriveStatus) -> Option<String> {
    let path = drive.path.display();
    let facts = drive.path.metadata().ok().filter(std::fs::Metadata::is_file);
    if let (Some(facts), Some(size_bytes)) = (facts, drive.size_bytes)
        && facts.len() < size_bytes
    {
        return Some(format!(
            "{path} has been truncated: it has {} bytes instead of {size_bytes}. Restore its full \
             length, with what it held if there is a copy, then stop and serve the volume again.",
            facts.len()
        ));
    }
    (error == Some(ErrorKind::NoSpace)).then(|| {
        format!("Free space on what {path} lies on, then stop and serve the volume again.")
    })
}
