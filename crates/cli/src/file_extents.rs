//! Where on a volume a file lies.
//!
//! The kernel is asked twice: which block device the file system is on, and where on it the file lies
//! (FIEMAP). A loop device's backing file says which volume it is. Btrfs answers FIEMAP with addresses of
//! its own, which its chunk tree turns into places; `btrfs inspect-internal` reads that.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, OnPath};
use crate::server::ServerRecord;
use crate::settings::Settings;
use crate::volume_file;
use crate::volume_name::VolumeName;

/// FIEMAP: the extent has no place on the device yet, or none that can be told.
pub const FLAGS_WITHOUT_PLACE: u32 = 0x2 | 0x4;
/// FIEMAP: compressed or encrypted, so that its length on the device is another one than in the file.
const FLAG_ENCODED: u32 = 0x8;
/// FIEMAP: data lies inside the metadata of the file system.
const FLAG_INLINE: u32 = 0x200;
/// Number of Btrfs in `statfs`, from linux/magic.h.
const BTRFS_MAGIC: i64 = 0x9123_683e;

/// Where a file lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extents {
    /// On which volume.
    pub volume: VolumeName,
    /// Size of the file.
    pub size_bytes: u64,
    /// Its parts, in the order of the file.
    pub pieces: Vec<Piece>,
    /// Bytes that have no place yet, lie among the file system's own, or are compressed: their places
    /// cannot be told.
    pub pending_bytes: u64,
}

/// A part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// First byte in the file.
    pub file_offset: u64,
    /// First byte on the volume.
    pub at: u64,
    /// Bytes.
    pub length: u64,
}

/// Where the file at `path` lies; `volume` says on which volume, where that cannot be found out.
pub fn find(
    path: &Path,
    volume: Option<&VolumeName>,
    settings: &Settings,
) -> Result<Extents, Failure> {
    let facts = fs::metadata(path).on_path("look at", path)?;
    if !facts.is_file() {
        return Err(Failure::failed(format!("{} is no regular file", path.display())));
    }
    let system = rustix::fs::statfs(path).on_path("look at", path)?;
    let is_btrfs = system.f_type as i64 == BTRFS_MAGIC;
    let device = if is_btrfs { btrfs_device(path)? } else { Device::of_number(facts.dev())? };
    let (found, offset) = match (device.volume(settings)?, volume) {
        (Some((found, _)), Some(volume)) if found != *volume => {
            let path = path.display();
            return Err(Failure::failed(format!(
                "{path} lies on volume '{found}', not on '{volume}'"
            )));
        }
        (Some(found), _) => found,
        (None, Some(volume)) if device.may_be_volume() => (volume.clone(), device.offset),
        (None, Some(volume)) => return Err(device.not_straight_on(volume, path)),
        (None, None) => return Err(device.unknown(path)),
    };
    let chunks = if is_btrfs { Some(btrfs_chunks(&device.node)?) } else { None };
    let mut extents =
        Extents { volume: found, size_bytes: facts.len(), pieces: Vec::new(), pending_bytes: 0 };
    for extent in fiemap::fiemap(path).on_path("ask for the places of", path)? {
        let extent = extent.on_path("ask for the places of", path)?;
        if extent.fe_flags.bits() & (FLAGS_WITHOUT_PLACE | FLAG_INLINE | FLAG_ENCODED) != 0 {
            extents.pending_bytes += extent.fe_length;
            continue;
        }
        let (file_offset, length) = (extent.fe_logical, extent.fe_length);
        match &chunks {
            None => {
                let at = offset + extent.fe_physical;
                extents.pieces.push(Piece { file_offset, at, length });
            }
            Some(chunks) => {
                let mut done = 0;
                while done < length {
                    let (at, whole) = place_in(chunks, extent.fe_physical + done)
                        .ok_or_else(|| Failure::failed("Btrfs names an address in no chunk"))?;
                    let piece = whole.min(length - done);
                    let file_offset = file_offset + done;
                    extents.pieces.push(Piece { file_offset, at: offset + at, length: piece });
                    done += piece;
                }
            }
        }
    }
    Ok(extents)
}

/// A block device, or a partition of one.
struct Device {
    /// The device node.
    node: PathBuf,
    /// Name in `/sys/class/block` of the whole disk.
    disk: String,
    /// Where the partition begins on it; 0 for a whole disk.
    offset: u64,
}

impl Device {
    fn of_number(number: u64) -> Result<Device, Failure> {
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
            return Ok(Device { node, disk, offset: sectors * 512 });
        }
        Ok(Device { disk: name(&sysfs), node, offset: 0 })
    }

    /// The volume behind it, and where on that it begins.
    fn volume(&self, settings: &Settings) -> Result<Option<(VolumeName, u64)>, Failure> {
        let sysfs = PathBuf::from("/sys/class/block").join(&self.disk).join("loop");
        let backing = fs::read_to_string(sysfs.join("backing_file")).ok();
        let start = fs::read_to_string(sysfs.join("offset")).unwrap_or_default();
        let start: u64 = start.trim().parse().unwrap_or(0);
        let disk = Path::new("/dev").join(&self.disk);
        for name in volume_file::names(&settings.config_dir)? {
            let Some(server) = ServerRecord::alive(settings, &name)? else { continue };
            if server.ublk.is_some_and(|device| device == disk) {
                return Ok(Some((name, self.offset)));
            }
            let backing = backing.as_ref().map(|backing| Path::new(backing.trim_end()));
            if backing.is_some() && server.fuse_file.as_deref() == backing {
                return Ok(Some((name, self.offset + start)));
            }
        }
        Ok(None)
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

/// Btrfs mounts under a number of its own; the table of mounts names the device.
fn btrfs_device(path: &Path) -> Result<Device, Failure> {
    let resolved = fs::canonicalize(path).on_path("find", path)?;
    let table = fs::read_to_string("/proc/self/mountinfo").map_err(Failure::failed)?;
    let mut best: Option<(usize, PathBuf)> = None;
    for line in table.lines() {
        // 36 35 0:41 /root /mount/point options - btrfs /dev/loop0 options
        let point = line.split(' ').nth(4).unwrap_or_default().replace("\\040", " ");
        let mut after = line.split(" - ").nth(1).unwrap_or_default().split(' ');
        let (kind, source) = (after.next(), after.next().unwrap_or_default());
        let is_longer = best.as_ref().is_none_or(|(length, _)| point.len() >= *length);
        if kind == Some("btrfs") && resolved.starts_with(&point) && is_longer {
            best = Some((point.len(), PathBuf::from(source)));
        }
    }
    let (_, node) =
        best.ok_or_else(|| Failure::failed(format!("{} is on no mounted Btrfs", path.display())))?;
    let number = fs::metadata(&node).on_path("look at", &node)?.rdev();
    Device::of_number(number)
}

/// A chunk of Btrfs: its own address, its length, its place on the device.
type Chunk = (u64, u64, u64);

fn btrfs_chunks(device: &Path) -> Result<Vec<Chunk>, Failure> {
    let told = Command::new("btrfs")
        .args(["inspect-internal", "dump-tree", "-t", "chunk"])
        .arg(device)
        .output()
        .map_err(|error| {
            Failure::failed(format!("btrfs does not start: {error}"))
                .hint("it is in the package btrfs-progs; Btrfs needs it to tell places")
        })?;
    if !told.status.success() {
        let said = String::from_utf8_lossy(&told.stderr);
        return Err(Failure::failed(format!("btrfs cannot read its chunks: {}", said.trim())));
    }
    parse_chunks(&String::from_utf8_lossy(&told.stdout)).map_err(Failure::failed)
}

fn parse_chunks(text: &str) -> Result<Vec<Chunk>, String> {
    let mut chunks: Vec<Chunk> = Vec::new();
    // The chunk that the lines are about: its address, its length, how many copies it has.
    let mut current: Option<(u64, u64, u64)> = None;
    let after = |words: &[&str], name: &str| {
        let place = words.iter().position(|word| *word == name)?;
        words.get(place + 1)?.parse::<u64>().ok()
    };
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let Some(place) = words.iter().position(|word| *word == "CHUNK_ITEM") {
            // item 2 key (FIRST_CHUNK_TREE CHUNK_ITEM 22020096) itemoff 15975 itemsize 112
            let address = words.get(place + 1).map(|word| word.trim_end_matches(')'));
            current = address.and_then(|word| word.parse().ok()).map(|address| (address, 0, 0));
        } else if words.contains(&"item") {
            current = None;
        } else if let Some((address, length, _)) = &mut current {
            if line.contains("RAID0")
                || line.contains("RAID10")
                || line.contains("RAID5")
                || line.contains("RAID6")
            {
                return Err("Btrfs that stripes over devices is not understood".to_owned());
            }
            if words.first() == Some(&"length") {
                *length = after(&words, "length").unwrap_or(0);
            }
            // stripe 0 devid 1 offset 22020096: the first copy, if there are two.
            if words.first() == Some(&"stripe") && words.get(1) == Some(&"0") {
                if after(&words, "devid") != Some(1) {
                    return Err("Btrfs on several devices is not understood".to_owned());
                }
                if let Some(at) = after(&words, "offset") {
                    chunks.push((*address, *length, at));
                }
            }
        }
    }
    chunks.sort_unstable();
    Ok(chunks)
}

/// Where an address is on the device, and how many bytes follow it there.
fn place_in(chunks: &[Chunk], address: u64) -> Option<(u64, u64)> {
    let last = chunks.partition_point(|(start, ..)| *start <= address).checked_sub(1)?;
    let (start, length, at) = chunks[last];
    let inside = address - start;
    (inside < length).then(|| (at + inside, length - inside))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TREE: &str = "btrfs-progs v6.2\nchunk tree\nleaf 22020096 items 3 free space 15781\n\
        \titem 0 key (DEV_ITEMS DEV_ITEM 1) itemoff 16185 itemsize 98\n\
        \t\tdevid 1 total_bytes 1073741824 bytes_used 239075328\n\
        \titem 1 key (FIRST_CHUNK_TREE CHUNK_ITEM 13631488) itemoff 16105 itemsize 80\n\
        \t\tlength 8388608 owner 2 stripe_len 65536 type DATA|single\n\
        \t\tio_align 65536 io_width 65536 sector_size 4096\n\
        \t\tnum_stripes 1 sub_stripes 1\n\
        \t\t\tstripe 0 devid 1 offset 13631488\n\
        \t\t\tdev_uuid 52cd\n\
        \titem 2 key (FIRST_CHUNK_TREE CHUNK_ITEM 22020096) itemoff 15993 itemsize 112\n\
        \t\tlength 8388608 owner 2 stripe_len 65536 type SYSTEM|DUP\n\
        \t\tnum_stripes 2 sub_stripes 1\n\
        \t\t\tstripe 0 devid 1 offset 32020096\n\
        \t\t\tstripe 1 devid 1 offset 40408704\n";

    #[test]
    fn addresses_of_btrfs_become_places() {
        let chunks = parse_chunks(TREE).unwrap();
        assert_eq!(chunks, [(13631488, 8388608, 13631488), (22020096, 8388608, 32020096)]);
        assert_eq!(place_in(&chunks, 22020096 + 4096), Some((32020096 + 4096, 8388608 - 4096)));
        assert_eq!(place_in(&chunks, 1), None);
        assert_eq!(place_in(&chunks, 22020096 + 8388608), None);
        assert!(parse_chunks(&TREE.replace("DATA|single", "DATA|RAID0")).is_err());
        assert!(parse_chunks(&TREE.replace("stripe 0 devid 1", "stripe 0 devid 2")).is_err());
    }
}
