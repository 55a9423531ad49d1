//! Who uses a disk.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Whether a file system, another device or a program holds the disk for itself, or a program has it open for
/// writing. Who merely reads, as whatever looks at new disks does, is not counted.
pub fn is_used(path: &Path) -> bool {
    is_claimed(path) || is_open_for_writing(path)
}

fn is_claimed(path: &Path) -> bool {
    let alone = OpenOptions::new().read(true).custom_flags(libc::O_EXCL).open(path);
    alone.is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
}

/// By what `/proc` tells: as root of all programs, else of the user's own.
fn is_open_for_writing(path: &Path) -> bool {
    let Ok(disk) = fs::metadata(path) else { return false };
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let processes = entries(Path::new("/proc")).filter(|process| {
        process.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())
    });
    processes.into_iter().any(|process| {
        entries(&process.path().join("fd")).any(|descriptor| {
            // Follows the link to the open file; asks nothing of the disk.
            let is_ours =
                fs::metadata(descriptor.path()).is_ok_and(|file| is_same_device(&file, &disk));
            let info = process.path().join("fdinfo").join(descriptor.file_name());
            is_ours && fs::read_to_string(info).is_ok_and(|info| writes(&info))
        })
    })
}

/// The same disk, by whatever name; or the same file.
fn is_same_device(one: &fs::Metadata, other: &fs::Metadata) -> bool {
    let disk = |file: &fs::Metadata| file.file_type().is_block_device().then(|| file.rdev());
    match (disk(one), disk(other)) {
        (None, None) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        (one, other) => one == other,
    }
}

/// What a descriptor was opened for, as in "flags:\t0100002": octal.
fn writes(info: &str) -> bool {
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_is_found_and_who_reads_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let other = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_owned();
        // Made by opening it for writing.
        assert!(is_open_for_writing(&path));
        let path = file.into_temp_path();
        assert!(!is_open_for_writing(&path));
        let reader = fs::File::open(&path).unwrap();
        assert!(!is_open_for_writing(&path));
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        assert!(is_open_for_writing(&path) && is_open_for_writing(other.path()));
        drop((reader, writer));
        assert!(!is_open_for_writing(&path));
        assert!(!is_open_for_writing(Path::new("/nowhere")));
    }
}
