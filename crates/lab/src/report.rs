//! One page of what runs showed: tables with published and measured side by side, pictures, and the
//! command of each figure. It needs nothing beside it: no network, no scripts, no fonts of its own.
//!
//! It is light or dark as its reader's system is, and narrow where the screen is.

mod axis;
mod drawing;
mod latency;
mod page;

use std::fs;
use std::path::Path;

use crate::experiment::RunRecord;

pub use page::page;

/// The runs that are kept in a directory, `DIR/run.json` and `DIR/*/run.json`, and what is wrong with those that
/// cannot be read.
///
/// # Errors
/// When the directory itself cannot be read.
pub fn runs(dir: &Path) -> Result<(Vec<RunRecord>, Vec<String>), String> {
    let entries =
        fs::read_dir(dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
    let mut dirs: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.sort();
    dirs.retain(|path| path.is_dir());
    let (mut runs, mut problems) = (Vec::new(), Vec::new());
    for place in std::iter::once(dir.to_owned()).chain(dirs) {
        match RunRecord::load(&place) {
            Ok(run) => runs.extend(run),
            Err(problem) => problems.push(problem),
        }
    }
    Ok((runs, problems))
}
