//! What must be true of a drive before an experiment overwrites it.

use crate::drive::{Drive, DriveKind};
use crate::failure::Failure;
use crate::holdings::Holdings;

/// Refuses a drive that is in use, and one that holds something unless that may be destroyed; `flag`
/// says so.
pub fn refuse_unless_free(drive: &Drive, yes: bool, flag: &str) -> Result<(), Failure> {
    let mut holdings = Holdings::look(drive)?;
    match drive.kind {
        DriveKind::File => holdings.look_for_data(&drive.path)?,
        // A whole disk cannot be read for this. Without a flag it is never overwritten.
        DriveKind::Block { .. } if holdings.words.is_empty() => {
            holdings.words.push("nothing that is known, and perhaps data".into());
        }
        DriveKind::Block { .. } => {}
    }
    if holdings.words.is_empty() || yes {
        return Ok(());
    }
    let (path, held) = (drive.path.display(), holdings.words.join("; "));
    Err(Failure::refused(format!("{path} holds {held}"))
        .hint(format!("{flag} overwrites it; what it holds is lost")))
}
