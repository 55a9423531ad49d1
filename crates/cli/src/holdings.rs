//! What a drive holds that writing to it would destroy.

use std::fs::File;
use std::path::Path;

use engine::Inspection;

use crate::blank_file;
use crate::drive::Drive;
use crate::failure::{Failure, OnPath};
use crate::in_use;
use crate::members;
use crate::signatures::{self, Finding};

/// What was found on a drive when it was looked at.
#[derive(Debug, Default)]
pub struct Holdings {
    /// Each thing, in words.
    pub words: Vec<String>,
    /// Marks of file systems, partition tables and the like.
    pub findings: Vec<Finding>,
    /// The volume it belonged to.
    membership: Option<String>,
}

impl Holdings {
    /// Looks at a drive that nobody uses.
    ///
    /// # Errors
    /// It is in use, or cannot be read.
    pub fn look(drive: &Drive) -> Result<Holdings, Failure> {
        let path = &drive.path;
        let users = in_use::users(drive);
        if !users.is_empty() {
            let users = users.join("; ");
            return Err(Failure::refused(format!("{} is in use: {users}", path.display()))
                .hint("unmount, detach or stop what uses it; no flag overrides this"));
        }
        let file = File::open(path).on_path("open", path)?;
        let findings = signatures::find(&file, drive.size_bytes).on_path("read", path)?;
        let mut words = Vec::new();
        if !findings.is_empty() {
            words.push(signatures::describe(&findings));
        }
        match members::read(path) {
            Ok(Inspection::Member(superblock)) => words.push(format!(
                "the {} drive of the bimetal volume '{}' ({})",
                superblock.role, superblock.name, superblock.volume_id
            )),
            Ok(Inspection::NotAMember) => {}
            Err(failure) => words.push(failure.message),
        }
        Ok(Holdings { words, findings, membership: membership(path) })
    }

    /// Of a drive that is to stay what it is: nothing that would be destroyed.
    pub fn of_member(path: &Path) -> Holdings {
        Holdings { membership: membership(path), ..Holdings::default() }
    }

    /// Adds what else a file holds, if nothing is known of it yet.
    pub fn look_for_data(&mut self, path: &Path) -> Result<(), Failure> {
        if !self.words.is_empty() {
            return Ok(());
        }
        let file = File::open(path).on_path("open", path)?;
        if let Some(at) = blank_file::first_content(&file).on_path("read", path)? {
            self.words.push(format!("data (at byte {at})"));
        }
        Ok(())
    }

    /// Refuses when somebody made a volume of the drive since it was looked at. Called while the
    /// drive is locked, so that this stays true.
    pub fn verify_unchanged(&self, path: &Path) -> Result<(), Failure> {
        if membership(path) == self.membership {
            return Ok(());
        }
        let path = path.display();
        Err(Failure::refused(format!("{path} was changed by another program just now"))
            .hint("nothing was written to it; look again with 'bimetal scan'"))
    }
}

/// Which volume a drive belongs to, in words to compare; `None` when to none.
pub fn membership(path: &Path) -> Option<String> {
    match members::read(path) {
        Ok(Inspection::Member(superblock)) => Some(superblock.volume_id.to_string()),
        Ok(Inspection::NotAMember) => None,
        Err(failure) => Some(failure.message),
    }
}
