//! Files that a command makes and never overwrites.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use crate::failure::{Failure, OnPath};

/// Refuses what is there already, before anything is measured.
pub fn refuse_existing(path: &Path) -> Result<(), Failure> {
    if path.symlink_metadata().is_ok() {
        return Err(Failure::refused(format!("{} exists", path.display()))
            .hint("choose another name, or take it away"));
    }
    Ok(())
}

/// Makes an empty file.
pub fn make(path: &Path) -> Result<File, Failure> {
    refuse_existing(path)?;
    File::create_new(path).on_path("make", path)
}

/// Makes the file.
pub fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let mut file = make(path)?;
    let written = file.write_all(text.as_bytes());
    if written.is_err() {
        // Half of it would be in the way of the next try.
        let _ = std::fs::remove_file(path);
    }
    written.on_path("write", path)
}
