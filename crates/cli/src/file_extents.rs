//! Where on a volume a file lies.
//!
//! The kernel is asked twice: which block device the file system is on, and where on it the file lies
//! (FIEMAP). A loop device's backing file says which volume it is. Btrfs answers FIEMAP with addresses of
//! its own, which its chunk tree turns into places; `btrfs inspect-internal` reads that.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::block_device::BlockDevice;
use crate::btrfs_chunks::BtrfsChunks;
use crate::failure::{Failure, OnPath};
use crate::settings::Settings;
use crate::unplaced::Unplaced;
use crate::volume_name::VolumeName;

/// FIEMAP: the extent has no place on the device yet, or none that can be told.
pub const FLAGS_WITHOUT_PLACE: u32 = 0x2 | 0x4;
/// FIEMAP: compressed, so that its length on the device is another one than in the file.
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
    /// What has no place that can be told. Of what is left of the file there is nothing anywhere: holes.
    pub unplaced: Unplaced,
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

/// Finds out where files lie.
pub struct FileFinder<'a> {
    settings: &'a Settings,
    /// Of each Btrfs that was met, by its device: asked for once, however many files are on it.
    chunks: BTreeMap<PathBuf, BtrfsChunks>,
}

impl FileFinder<'_> {
    pub fn new(settings: &Settings) -> FileFinder<'_> {
        FileFinder { settings, chunks: BTreeMap::new() }
    }

    /// Where the file at `path` lies; `volume` says on which volume, where that cannot be found out.
    pub fn find(&mut self, path: &Path, volume: Option<&VolumeName>) -> Result<Extents, Failure> {
        let facts = fs::metadata(path).on_path("look at", path)?;
        if !facts.is_file() {
            return Err(Failure::failed(format!("{} is no regular file", path.display())));
        }
        let system = rustix::fs::statfs(path).on_path("look at", path)?;
        let is_btrfs = system.f_type as i64 == BTRFS_MAGIC;
        let device =
            if is_btrfs { btrfs_device(path)? } else { BlockDevice::of_number(facts.dev())? };
        let (found, offset) = device.start_on(volume, path, self.settings)?;
        let chunks = match is_btrfs {
            true => Some(self.chunks_on(&device.node)?),
            false => None,
        };
        let mut extents = Extents {
            volume: found,
            size_bytes: facts.len(),
            pieces: Vec::new(),
            unplaced: Unplaced::default(),
        };
        for extent in fiemap::fiemap(path).on_path("ask for the places of", path)? {
            let extent = extent.on_path("ask for the places of", path)?;
            let flags = extent.fe_flags.bits();
            // In this order: what is compressed may lie inside the metadata, or have no place yet.
            let unplaced = &mut extents.unplaced;
            let reason = match flags {
                _ if flags & FLAG_INLINE != 0 => Some(&mut unplaced.inline_bytes),
                _ if flags & FLAGS_WITHOUT_PLACE != 0 => Some(&mut unplaced.pending_bytes),
                _ if flags & FLAG_ENCODED != 0 => Some(&mut unplaced.compressed_bytes),
                _ => None,
            };
            if let Some(bytes) = reason {
                *bytes += extent.fe_length;
                continue;
            }
            let (file_offset, length) = (extent.fe_logical, extent.fe_length);
            match chunks {
                None => {
                    let at = offset + extent.fe_physical;
                    extents.pieces.push(Piece { file_offset, at, length });
                }
                Some(chunks) => {
                    let mut done = 0;
                    while done < length {
                        let (at, whole) = chunks
                            .place_of(extent.fe_physical + done)
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

    fn chunks_on(&mut self, device: &Path) -> Result<&BtrfsChunks, Failure> {
        Ok(match self.chunks.entry(device.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(BtrfsChunks::read(device)?),
        })
    }
}

/// Btrfs mounts under a number of its own; the table of mounts names the device.
fn btrfs_device(path: &Path) -> Result<BlockDevice, Failure> {
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
    BlockDevice::of_number(number)
}
