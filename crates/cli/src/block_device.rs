//! The block device that a file system is on, and which part of which volume that is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, OnPath};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::volume_file;
use crate::volume_name::VolumeName;

/// A block device, or a partition of one.
pub struct BlockDevice {
    /// The device node.
    pub node: PathBuf,
    /// Name in `/sys/class/block` of the whole disk.
    disk: String,
    /// Where the partition begins on it; 0 for a whole disk.
    offset: u64,
}

impl BlockDevice {
    /// The device with this number, as a file on it has it.
    pub fn of_number(number: u64) -> Result<BlockDevice, Failure> {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let sysfs = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let sysfs = fs::canonicalize(&sysfs).map_err(|_| {
            Failure::failed("the file lies on no block device of this machine")
                .hint("ext2, ext3, ext4, XFS and Btrfs on a volume are understood")
        })?;
        let name = |path: &Path| {
            path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let node = PathBuf::from("/dev").join(name(&sysfs));
        if sysfs.join("partition").exists() {
            let start = fs::read_to_string(sysfs.join("start")).on_path("read", &sysfs)?;
            // Sysfs counts in 512 bytes, whatever the disk's sectors are.
            let sectors: u64 = start.trim().parse().map_err(Failure::failed)?;
            let disk = name(sysfs.parent().unwrap_or(&sysfs));
            return Ok(BlockDevice { node, disk, offset: sectors * 512 });
        }
        Ok(BlockDevice { disk: name(&sysfs), node, offset: 0 })
    }

    /// The volume behind it, and where on that it begins. `volume`: which one it is, where that cannot be found
    /// out; `path` is what lies on it.
    pub fn start_on(
        &self,
        volume: Option<&VolumeName>,
        path: &Path,
        settings: &Settings,
    ) -> Result<(VolumeName, u64), Failure> {
        match (self.volume(settings)?, volume) {
            (Some((found, _)), Some(volume)) if found != *volume => {
                let path = path.display();
                Err(Failure::failed(format!("{path} lies on volume '{found}', not on '{volume}'")))
            }
            (Some(found), _) => Ok(found),
            (None, Some(volume)) if self.may_be_volume() => Ok((volume.clone(), self.offset)),
            (None, Some(volume)) => Err(self.not_straight_on(volume, path)),
            (None, None) => Err(self.unknown(path)),
        }
    }

    fn volume(&self, settings: &Settings) -> Result<Option<(VolumeName, u64)>, Failure> {
        let sysfs = PathBuf::from("/sys/class/block").join(&self.disk).join("loop");
        let backing = fs::read_to_string(sysfs.join("backing_file")).ok();
        let backing = backing.as_ref().map(|backing| Path::new(backing.trim_end()));
        let start = fs::read_to_string(sysfs.join("offset")).unwrap_or_default();
        let start: u64 = start.trim().parse().unwrap_or(0);
        let disk = Path::new("/dev").join(&self.disk);
        let is_ublk = |server: &ServerRecord| server.ublk.as_ref() == Some(&disk);
        let is_loop =
            |server: &ServerRecord| backing.is_some() && server.fuse_file.as_deref() == backing;
        for name in volume_file::names(&settings.config_dir)? {
            if let Some(server) = ServerRecord::alive(settings, &name)? {
                if is_ublk(&server) {
                    return Ok(Some((name, self.offset)));
                }
                if is_loop(&server) {
                    return Ok(Some((name, self.offset + start)));
                }
            } else if let Some(server) = ServerRecord::last(settings, &name) {
                // It was killed: what is over its doors is in the way of the next one, or waits for it.
                if is_ublk(&server) {
                    return Err(self.left_behind(&name).hint(format!(
                        "'bimetal attach {name} --ublk' takes the device over, and its users go on"
                    )));
                }
                if is_loop(&server) {
                    return Err(self.left_behind(&name).hint(format!(
                        "unmount what is on {}, then 'bimetal attach {name}' clears up and brings it back; \
                         what was flushed is safe",
                        self.node.display()
                    )));
                }
            }
        }
        Ok(None)
    }

    fn left_behind(&self, name: &VolumeName) -> Failure {
        let node = self.node.display();
        Failure::failed(format!(
            "{node} is of volume '{name}', whose server is gone: it was killed"
        ))
    }

    /// Whether a volume may be behind it of which the kernel cannot tell: a client of a network, or a
    /// virtual machine's disk.
    fn may_be_volume(&self) -> bool {
        ["nbd", "ublkb", "vd"].iter().any(|kind| self.disk.starts_with(kind))
    }

    fn not_straight_on(&self, volume: &VolumeName, path: &Path) -> Failure {
        Failure::failed(format!(
            "{} lies on {}, and where that is on volume '{volume}' cannot be told",
            path.display(),
            self.node.display()
        ))
        .hint("a file system straight on a volume, or on a partition of it, is understood; LVM, LUKS and RAID are not")
    }

    fn unknown(&self, path: &Path) -> Failure {
        Failure::failed(format!(
            "{} lies on {}, which is no volume that is known here",
            path.display(),
            self.node.display()
        ))
        .hint("if a volume is behind it, say so: --volume NAME")
    }
}
