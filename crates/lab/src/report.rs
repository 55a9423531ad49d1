//! One page of what runs showed: tables with published and measured side by side, pictures, and the
//! command of each figure. It needs nothing beside it: no network, no scripts, no fonts of its own.
//!
//! It is light or dark as its reader's system is, and narrow where the screen is.

mod axis;
mod drawing;
mod page;

use std::fs;
use std::path::Path;

use crate::experiment::RunRecord;

pub use page::page;

/// How deep below a directory runs are looked for: `DIR/run.json` and `DIR/*/run.json`.
pub fn runs(dir: &Path) -> Result<Vec<RunRecord>, String> {
    let mut runs: Vec<RunRecord> = RunRecord::load(dir)?.into_iter().collect();
    let entries =
        fs::read_dir(dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
    let mut dirs: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    dirs.sort();
    for below in dirs.iter().filter(|path| path.is_dir()) {
        runs.extend(RunRecord::load(below)?);
    }
    Ok(runs)
}
