//! What must be true of a drive before an experiment overwrites it.

use std::fs::File;
use std::path::Path;

use engine::Inspection;

use crate::blank_file;
use crate::drive::{Drive, DriveKind};
use crate::failure::{Failure, OnPath};
use crate::in_use;
use crate::members;
use crate::signatures;

/// Refuses a drive that is in use, and one that holds something unless that may be destroyed; `flag`
/// says so.
pub fn refuse_unless_free(drive: &Drive, yes: bool, flag: &str) -> Result<(), Failure> {
    let path = drive.path.display();
    let users = in_use::users(drive);
    if !users.is_empty() {
        return Err(Failure::refused(format!("{path} is in use: {}", users.join("; ")))
            .hint("unmount or stop what uses it; no flag overrides this"));
    }
    let held = holdings(drive, &drive.path)?;
    if held.is_empty() || yes {
        return Ok(());
    }
    Err(Failure::refused(format!("{path} holds {}", held.join("; ")))
        .hint(format!("{flag} overwrites it; what it holds is lost")))
}

fn holdings(drive: &Drive, path: &Path) -> Result<Vec<String>, Failure> {
    let file = File::open(path).on_path("open", path)?;
    let findings = signatures::find(&file, drive.size_bytes).on_path("read", path)?;
    let mut held = Vec::new();
    if !findings.is_empty() {
        held.push(signatures::describe(&findings));
    }
    match members::read(path) {
        Ok(Inspection::Member(superblock)) => held.push(format!(
            "the {} drive of the bimetal volume '{}'",
            superblock.role, superblock.name
        )),
        Ok(Inspection::NotAMember) => {}
        Err(failure) => held.push(failure.message),
    }
    if held.is_empty() {
        match drive.kind {
            DriveKind::File => {
                if let Some(at) = blank_file::first_content(&file).on_path("read", path)? {
                    held.push(format!("data (at byte {at})"));
                }
            }
            // A whole disk cannot be read for this. Without a flag it is never overwritten.
            DriveKind::Block { .. } => held.push("nothing that is known, and perhaps data".into()),
        }
    }
    Ok(held)
}
