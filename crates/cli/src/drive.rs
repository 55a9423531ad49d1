//! Drives as the command line names them: which file or block device it is, how big, and whether
//! two of them are the same or overlap.
//!
//! Reads facts from the file system and sysfs; opens drives read-only at most.

use std::fs::{self, File};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use io::units::parse_bytes;

use crate::failure::{Failure, OnPath};

/// A drive on the command line: `PATH`, or `PATH:SIZE` for a file to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveArgument {
    /// Where it is.
    pub path: PathBuf,
    /// Size of the file to make, in bytes.
    pub create_bytes: Option<u64>,
}

impl FromStr for DriveArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<DriveArgument, String> {
        if text.is_empty() {
            return Err("a drive needs a path".to_owned());
        }
        let whole = || DriveArgument { path: text.into(), create_bytes: None };
        // Device names contain colons too (/dev/disk/by-path/pci-0000:00:1f.2-ata-1): what exists
        // under the whole text is meant.
        if Path::new(text).symlink_metadata().is_ok() {
            return Ok(whole());
        }
        match text.rsplit_once(':') {
            None => Ok(whole()),
            Some((path, size)) if !path.is_empty() && !path.ends_with('/') => {
                let bytes = parse_bytes(size)?;
                if bytes == 0 {
                    return Err(format!("'{text}' asks for a drive of no bytes"));
                }
                Ok(DriveArgument { path: path.into(), create_bytes: Some(bytes) })
            }
            Some(_) => Err(format!("'{text}' is neither PATH nor PATH:SIZE")),
        }
    }
}

/// What kind of thing a drive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DriveKind {
    /// A regular file.
    File,
    /// A block device with this major and minor number.
    Block {
        /// Both numbers, as the kernel packs them.
        number: u64,
    },
}

/// A drive that exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// Absolute, symbolic links resolved.
    pub path: PathBuf,
    /// File or block device.
    pub kind: DriveKind,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The file itself: device and inode (of the device node for a block device).
    identity: (u64, u64),
}

impl Drive {
    /// Looks at what is at `path`.
    pub fn look(path: &Path) -> Result<Drive, Failure> {
        let resolved = fs::canonicalize(path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                Failure::failed(format!("there is no drive at {}", path.display()))
            }
            _ => Failure::failed(format!("cannot find {}: {error}", path.display())),
        })?;
        let facts = fs::metadata(&resolved).on_path("look at", &resolved)?;
        let file_type = facts.file_type();
        let kind = if file_type.is_file() {
            DriveKind::File
        } else if file_type.is_block_device() {
            DriveKind::Block { number: facts.rdev() }
        } else {
            let what = if file_type.is_dir() { "a directory" } else { "a special file" };
            return Err(Failure::failed(format!(
                "{} is {what}: a drive is a block device or a regular file",
                path.display()
            )));
        };
        let size_bytes = match kind {
            DriveKind::File => facts.len(),
            // The end of a block device is its size; no ioctl needed.
            DriveKind::Block { .. } => File::open(&resolved)
                .and_then(|mut device| device.seek(SeekFrom::End(0)))
                .on_path("open", &resolved)?,
        };
        if size_bytes == 0 {
            return Err(Failure::failed(format!("{} is empty (0 bytes)", path.display())));
        }
        Ok(Drive { path: resolved, kind, size_bytes, identity: (facts.dev(), facts.ino()) })
    }

    /// A path that names the same drive after a reboot: `/dev/disk/by-id/…` where there is one.
    pub fn stable_path(&self) -> PathBuf {
        if self.kind == DriveKind::File {
            return self.path.clone();
        }
        let links = fs::read_dir("/dev/disk/by-id")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|link| fs::canonicalize(link).is_ok_and(|target| target == self.path));
        stable_link(links).unwrap_or_else(|| self.path.clone())
    }

    /// Why the two cannot be drives of one volume: the same file, the same device, or a device
    /// and a part of it.
    pub fn overlap(&self, other: &Drive) -> Option<String> {
        let (one, two) = (self.path.display(), other.path.display());
        if self.kind == other.kind && self.kind != DriveKind::File
            || self.identity == other.identity
        {
            return Some(if self.path == other.path {
                format!("the fast and the slow drive are both {one}")
            } else {
                format!("{one} and {two} are the same drive under two names")
            });
        }
        let (DriveKind::Block { number: mine }, DriveKind::Block { number: theirs }) =
            (self.kind, other.kind)
        else {
            return self.file_behind(other).or_else(|| other.file_behind(self));
        };
        let contains = |whole: u64, part: u64| disk_of(part).is_some_and(|disk| disk == whole);
        if contains(mine, theirs) {
            return Some(format!("{two} is a partition of {one}"));
        }
        contains(theirs, mine).then(|| format!("{one} is a partition of {two}"))
    }

    /// Whether `self` is a loop device over the file `other`.
    fn file_behind(&self, other: &Drive) -> Option<String> {
        let DriveKind::Block { number } = self.kind else { return None };
        let backing = fs::read_to_string(sysfs_of(number).join("loop/backing_file")).ok()?;
        (fs::canonicalize(backing.trim_end()).ok()? == other.path).then(|| {
            format!("{} is a loop device over {}", self.path.display(), other.path.display())
        })
    }

    /// Whether both lie on one physical disk, so that its heads travel between them.
    pub fn shares_disk(&self, other: &Drive) -> bool {
        match (self.kind, other.kind) {
            (DriveKind::Block { number: mine }, DriveKind::Block { number: theirs }) => {
                disk_of(mine).is_some() && disk_of(mine) == disk_of(theirs)
            }
            _ => false,
        }
    }
}

/// The link that names the hardware best.
fn stable_link(links: impl Iterator<Item = PathBuf>) -> Option<PathBuf> {
    let is = |link: &PathBuf, mark: &str| link.to_string_lossy().contains(mark);
    // What names a drive by the LVM label on it is gone when that is wiped, as 'create --force' does.
    // World-wide names last: a model and a serial number say more to a reader.
    links
        .filter(|link| !is(link, "/lvm-pv-uuid-"))
        .min_by_key(|link| (is(link, "/wwn-"), link.clone()))
}

/// The sysfs directory of a block device.
pub fn sysfs_of(number: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)).into()
}

/// The number of the whole disk that a partition belongs to; `None` for a whole disk.
pub fn disk_of(number: u64) -> Option<u64> {
    let sysfs = fs::canonicalize(sysfs_of(number)).ok()?;
    sysfs.join("partition").exists().then_some(())?;
    device_number(&fs::read_to_string(sysfs.parent()?.join("dev")).ok()?)
}

/// Reads `MAJOR:MINOR`.
pub fn device_number(text: &str) -> Option<u64> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drives_are_read_as_people_write_them() {
        let parse = |text: &str| text.parse::<DriveArgument>();
        let plain = DriveArgument { path: "/nowhere/x".into(), create_bytes: None };
        assert_eq!(parse("/nowhere/x"), Ok(plain));
        let sized = DriveArgument { path: "fast.img".into(), create_bytes: Some(1 << 30) };
        assert_eq!(parse("fast.img:1G"), Ok(sized));
        for bad in ["", ":1G", "dir/:1G", "x:", "x:1Q", "x:0", "x:-1", "x:99999999999999999999"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_existing_path_with_a_colon_is_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pci-0000:00:1f");
        fs::write(&path, "x").unwrap();
        let argument: DriveArgument = path.to_str().unwrap().parse().unwrap();
        assert_eq!(argument, DriveArgument { path, create_bytes: None });
    }

    #[test]
    fn a_drive_is_named_by_its_hardware_and_not_by_what_is_on_it() {
        let best = |names: &[&str]| {
            let links = names.iter().map(|name| Path::new("/dev/disk/by-id").join(name));
            stable_link(links).map(|link| link.file_name().unwrap().to_str().unwrap().to_owned())
        };
        let all = ["wwn-0x5000c500a", "scsi-SATA_ST1", "lvm-pv-uuid-x1y2"];
        assert_eq!(best(&all).as_deref(), Some("scsi-SATA_ST1"));
        assert_eq!(best(&["lvm-pv-uuid-x1y2", "wwn-0x5"]).as_deref(), Some("wwn-0x5"));
        assert_eq!(best(&["lvm-pv-uuid-x1y2"]), None);
    }

    #[test]
    fn the_same_file_is_noticed_under_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("a"), "x").unwrap();
        fs::write(at("b"), "x").unwrap();
        fs::hard_link(at("a"), at("hard")).unwrap();
        std::os::unix::fs::symlink(at("a"), at("soft")).unwrap();
        let look = |name: &str| Drive::look(&at(name)).unwrap();
        for same in ["a", "hard", "soft"] {
            assert!(look("a").overlap(&look(same)).is_some(), "{same}");
        }
        assert_eq!(look("a").overlap(&look("b")), None);
    }

    #[test]
    fn what_is_no_drive_is_said_to_be_none() {
        let dir = tempfile::tempdir().unwrap();
        let message = |path: &Path| Drive::look(path).unwrap_err().message;
        assert!(message(dir.path()).contains("is a directory"));
        assert!(message(Path::new("/dev/null")).contains("special file"));
        assert!(message(&dir.path().join("x")).contains("no drive at"));
        fs::write(dir.path().join("empty"), "").unwrap();
        assert!(message(&dir.path().join("empty")).contains("empty"));
    }
}
