//! Reading superblocks without taking the drive: for looking, also while a server holds it.
//!
//! Whether two drives fit together is the engine's to judge when it opens them; here they are
//! only shown and matched by identity.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use engine::format::superblock::{COPY_POSITIONS, SUPERBLOCK_BYTES, SuperblockProblem};
use engine::{Inspection, Superblock};

use crate::failure::{Failure, OnPath};

/// The newest superblock on the drive at `path`.
///
/// # Errors
/// The drive cannot be read, or carries a superblock that cannot be used.
pub fn read(path: &Path) -> Result<Inspection, Failure> {
    let drive = File::open(path).on_path("open", path)?;
    let mut newest: Option<Superblock> = None;
    let mut problem = None;
    for (copy, position) in COPY_POSITIONS.into_iter().enumerate() {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        match drive.read_exact_at(&mut bytes, position) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => continue,
            Err(error) => return Err(error).on_path("read the superblock of", path),
        }
        match Superblock::decode(&bytes, copy) {
            Ok(found) if newest.as_ref().is_none_or(|n| found.sequence > n.sequence) => {
                newest = Some(found);
            }
            Ok(_) | Err(SuperblockProblem::Absent) => {}
            Err(SuperblockProblem::Damaged) => problem = Some("is damaged".to_owned()),
            Err(SuperblockProblem::TooNew(text)) => problem = Some(format!("is too new: {text}")),
        }
    }
    match (newest, problem) {
        (Some(superblock), _) => Ok(Inspection::Member(Box::new(superblock))),
        (None, None) => Ok(Inspection::NotAMember),
        (None, Some(problem)) => {
            Err(Failure::failed(format!("the bimetal superblock of {} {problem}", path.display())))
        }
    }
}
