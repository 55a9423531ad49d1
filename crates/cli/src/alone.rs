//! A cache that goes on without its fast drive, told to whoever brings it up.
//!
//! It takes writes and says so to nobody else; and from then on the fast drive is not taken back, which whoever has
//! one that is only late should hear now.

use engine::{Inspection, Tier};

use crate::members;
use crate::selection::Selection;

/// Whether the slow drive says that it was written without the fast one. A server makes it say so before
/// it is ready.
pub fn is_alone(selection: &Selection) -> bool {
    matches!(members::read(selection.path(Tier::Slow)), Ok(Inspection::Member(superblock)) if superblock.alone)
}

/// What has happened, and what to do.
pub fn warning(selection: &Selection) -> String {
    let (name, fast) = (&selection.name, selection.path(Tier::Fast).display());
    format!(
        "'{name}' goes on without its fast drive, {fast}: nothing is lost, everything is on the slow one, and as \
         slow. That fast drive is not taken back any more, even if it was only late. To give the volume one again, \
         that one or another: end this server, then 'bimetal attach-cache {name} --fast DEV' (--force for the old one)"
    )
}
