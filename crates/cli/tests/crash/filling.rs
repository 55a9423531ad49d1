//! Files of known content that fill a file system until nothing fits any more.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::campaign::Dice;
use crate::support::{must, pattern, tool};

/// What was written and is still there.
#[derive(Default)]
pub struct Filling {
    /// Number, which is also the seed of the content, and length in bytes.
    files: Vec<(u64, usize)>,
    next: u64,
}

fn path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("fill.{number}"))
}

impl Filling {
    /// Writes files of very different sizes until the file system is full.
    pub fn fill(&mut self, dir: &Path, dice: &mut Dice) {
        // Only what was synchronised counts as having fitted: allocation may be delayed.
        for _ in 0..100_000 {
            let length = match dice.below(4) {
                0 => dice.below(20_000),
                1 => dice.below(1 << 20),
                _ => dice.below(12 << 20),
            } as usize;
            let number = self.next;
            self.next += 1;
            let written = fs::File::create(path(dir, number)).and_then(|mut file| {
                file.write_all(&pattern(number, length))?;
                file.sync_all()
            });
            match written {
                Ok(()) => self.files.push((number, length)),
                Err(error) if error.raw_os_error() == Some(28) => {
                    let _ = fs::remove_file(path(dir, number));
                    // A large one may not fit where a small one does.
                    if length < 1 << 20 {
                        return;
                    }
                }
                Err(error) => panic!("file {number} of {length} bytes: {error}"),
            }
        }
        panic!("the file system never filled up");
    }

    /// Deletes every second file.
    pub fn delete_half(&mut self, dir: &Path) {
        let mut odd = false;
        self.files.retain(|&(number, _)| {
            odd = !odd;
            if !odd {
                fs::remove_file(path(dir, number)).expect("a file that is there");
            }
            odd
        });
        must(tool("sync").arg("-f").arg(dir));
    }

    /// Reads every file and compares it; gives the sum of their lengths in bytes.
    pub fn verify(&self, dir: &Path) -> u64 {
        for &(number, length) in &self.files {
            let found = fs::read(path(dir, number)).expect("a file that is there");
            assert!(found == pattern(number, length), "file {number} has changed");
        }
        self.files.iter().map(|&(_, length)| length as u64).sum()
    }
}
