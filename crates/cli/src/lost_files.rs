//! Which files lost ranges of a volume belong to.
//!
//! * A mounted file system is asked where its files lie (FIEMAP). That names places on the file
//!   system's own device, so only file systems that keep to one device are believed: ext2, ext3, ext4
//!   and XFS. Btrfs answers with addresses of its own, which are no places on the volume.
//! * A file or device with an ext4 file system that cannot be mounted is read through: each file
//!   whose content, or the way to it, cannot be read is hit.
//!
//! What cannot even be looked up, because the directory is lost, is listed as such.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ext4_view::{Ext4, Ext4Error, FileType};
use serde::Serialize;

use crate::block_device::BlockDevice;
use crate::failure::{Failure, OnPath};
use crate::file_extents::FLAGS_WITHOUT_PLACE;
use crate::loss_status::LostRange;
use crate::progress;
use crate::settings::Settings;
use crate::volume_name::VolumeName;

/// Files shown as text.
const LINES_MAX: usize = 40;
/// Bytes of a file read at once.
const READ_BYTES: usize = 1 << 20;
/// Numbers of file systems in `statfs`, from linux/magic.h.
const EXT_MAGIC: i64 = 0xef53;
const XFS_MAGIC: i64 = 0x5846_5342;

/// The files that are hit.
#[derive(Debug, Default, Serialize)]
pub struct LostFiles {
    /// Files looked at.
    pub examined: u64,
    /// Files that are hit.
    pub hit: Vec<LostFile>,
    /// Files and directories that could not be looked at, and why.
    pub unreadable: Vec<Unreadable>,
}

/// A file that is hit.
#[derive(Debug, Serialize)]
pub struct LostFile {
    /// Its path in the file system.
    pub path: PathBuf,
    /// Its size.
    pub size_bytes: u64,
    /// Bytes of it that are lost; `None` when only the first unreadable place is known.
    pub lost_bytes: Option<u64>,
}

/// Something that could not be looked at.
#[derive(Debug, Serialize)]
pub struct Unreadable {
    /// Its path.
    pub path: PathBuf,
    /// Why.
    pub why: String,
}

impl LostFiles {
    /// A line for each file.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{} of {} files are hit", self.hit.len(), self.examined)];
        for LostFile { path, size_bytes, lost_bytes } in self.hit.iter().take(LINES_MAX) {
            let lost = lost_bytes.map_or("a part".to_owned(), |bytes| bytes.to_string());
            lines.push(format!("  {}: {lost} of {size_bytes} bytes lost", path.display()));
        }
        if self.hit.len() > LINES_MAX {
            lines.push(format!("  and {} more; --json lists all", self.hit.len() - LINES_MAX));
        }
        for Unreadable { path, why } in self.unreadable.iter().take(LINES_MAX) {
            lines.push(format!("  {}: cannot be looked at: {why}", path.display()));
        }
        if self.unreadable.len() > LINES_MAX {
            let more = self.unreadable.len() - LINES_MAX;
            lines.push(format!("  and {more} more that cannot be looked at"));
        }
        lines
    }
}

/// Finds the files of the file system at `place`, which is on the volume, that lie in the ranges.
pub fn find(
    place: &Path,
    volume: &VolumeName,
    ranges: &[LostRange],
    settings: &Settings,
) -> Result<LostFiles, Failure> {
    let facts = fs::metadata(place).on_path("look at", place)?;
    match facts.is_dir() {
        true => in_mount(place, facts.dev(), volume, ranges, settings),
        false => in_image(place),
    }
}

/// Sorted ranges of bytes.
fn byte_ranges(ranges: &[LostRange]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.at, range.at + range.length)).collect()
}

/// Bytes of `start..end` in the sorted ranges.
fn overlap(ranges: &[(u64, u64)], start: u64, end: u64) -> u64 {
    let first = ranges.partition_point(|(_, range_end)| *range_end <= start);
    let hit = ranges[first..].iter().take_while(|(at, _)| *at < end);
    hit.map(|(at, range_end)| end.min(*range_end) - start.max(*at)).sum()
}

fn in_mount(
    mount: &Path,
    device_number: u64,
    volume: &VolumeName,
    ranges: &[LostRange],
    settings: &Settings,
) -> Result<LostFiles, Failure> {
    let system = rustix::fs::statfs(mount).on_path("look at", mount)?;
    let kind = system.f_type as i64;
    if kind != EXT_MAGIC && kind != XFS_MAGIC {
        return Err(Failure::failed(format!(
            "the file system at {} (type {kind:#x}) does not tell where its files lie on the volume",
            mount.display()
        ))
        .hint("ext2, ext3, ext4 and XFS do; others tell by read errors: find MOUNT -type f -exec cat"));
    }
    let device = BlockDevice::of_number(device_number)?;
    let (_, offset) = device.start_on(Some(volume), mount, settings)?;
    let ranges = byte_ranges(ranges);
    let mut found = LostFiles::default();
    let bar = progress::steps("looking at files");
    let mut directories = vec![mount.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(error) => {
                found.unreadable.push(Unreadable { path: directory, why: error.to_string() });
                continue;
            }
        };
        for entry in entries {
            let path = match entry {
                Ok(entry) => entry.path(),
                Err(error) => {
                    let path = directory.clone();
                    found.unreadable.push(Unreadable { path, why: error.to_string() });
                    break;
                }
            };
            match fs::symlink_metadata(&path) {
                Err(error) => {
                    found.unreadable.push(Unreadable { path, why: error.to_string() });
                }
                // Another file system is mounted there.
                Ok(known) if known.dev() != device_number => {}
                Ok(known) if known.is_dir() => directories.push(path),
                Ok(known) if known.is_file() => {
                    bar.inc(1);
                    look_at_file(path, known.len(), offset, &ranges, &mut found);
                }
                Ok(_) => {}
            }
        }
    }
    bar.finish_and_clear();
    Ok(found)
}

fn look_at_file(
    path: PathBuf,
    size_bytes: u64,
    offset: u64,
    ranges: &[(u64, u64)],
    found: &mut LostFiles,
) {
    found.examined += 1;
    let extents = fiemap::fiemap(&path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
    let extents = match extents {
        Ok(extents) => extents,
        Err(error) => return found.unreadable.push(Unreadable { path, why: error.to_string() }),
    };
    let lost_bytes: u64 = extents
        .iter()
        .filter(|extent| extent.fe_flags.bits() & FLAGS_WITHOUT_PLACE == 0)
        .map(|extent| {
            let start = offset + extent.fe_physical;
            overlap(ranges, start, start + extent.fe_length)
        })
        .sum();
    if lost_bytes > 0 {
        found.hit.push(LostFile { path, size_bytes, lost_bytes: Some(lost_bytes) });
    }
}

fn in_image(image: &Path) -> Result<LostFiles, Failure> {
    let cannot = |error: Ext4Error| {
        Failure::failed(format!("cannot read an ext4 file system on {}: {error}", image.display()))
            .hint(
                "its own metadata may be lost; other file systems are asked where they are mounted",
            )
    };
    let system = Ext4::load_from_path(image).map_err(cannot)?;
    let mut found = LostFiles::default();
    let bar = progress::steps("reading files");
    let mut directories = vec![PathBuf::from("/")];
    let mut buffer = vec![0; READ_BYTES];
    while let Some(directory) = directories.pop() {
        let unreadable =
            |error: Ext4Error| Unreadable { path: directory.clone(), why: error.to_string() };
        let entries = match system.read_dir(directory.as_path()) {
            Ok(entries) => entries,
            Err(error) => {
                found.unreadable.push(unreadable(error));
                continue;
            }
        };
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    found.unreadable.push(unreadable(error));
                    break;
                }
            };
            if entry.file_name() == "." || entry.file_name() == ".." {
                continue;
            }
            let path = PathBuf::from(entry.path());
            match entry.file_type() {
                Ok(FileType::Directory) => directories.push(path),
                Ok(FileType::Regular) => {
                    bar.inc(1);
                    found.examined += 1;
                    match read_through(&system, &path, &mut buffer) {
                        Ok(()) => {}
                        Err((Some(size_bytes), _)) => {
                            found.hit.push(LostFile { path, size_bytes, lost_bytes: None });
                        }
                        Err((None, error)) => {
                            found.unreadable.push(Unreadable { path, why: error.to_string() });
                        }
                    }
                }
                Ok(_) => {}
                Err(error) => found.unreadable.push(Unreadable { path, why: error.to_string() }),
            }
        }
    }
    bar.finish_and_clear();
    Ok(found)
}

/// Reads a file to its end. `Err`: its size, if the file could be opened, and what went wrong.
fn read_through(
    system: &Ext4,
    path: &Path,
    buffer: &mut [u8],
) -> Result<(), (Option<u64>, Ext4Error)> {
    let mut file = system.open(path).map_err(|error| (None, error))?;
    let size_bytes = file.metadata().len();
    while file.read_bytes(buffer).map_err(|error| (Some(size_bytes), error))? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_counts_each_lost_byte_once() {
        let ranges = [(100, 200), (300, 400), (400, 450)];
        assert_eq!(overlap(&ranges, 0, 100), 0);
        assert_eq!(overlap(&ranges, 150, 160), 10);
        assert_eq!(overlap(&ranges, 0, 1000), 250);
        assert_eq!(overlap(&ranges, 199, 301), 2);
        assert_eq!(overlap(&ranges, 450, 500), 0);
        assert_eq!(overlap(&[], 0, 500), 0);
    }
}
