//! What sysfs knows of a block device: `/sys/dev/block/MAJOR:MINOR/queue`.
//!
//! Everything here is a hint: what cannot be read is `None`.

use std::path::PathBuf;

/// The queue directory of a device; that of the whole disk for a partition, which has none.
fn queue(major: u32, minor: u32) -> Option<PathBuf> {
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    // Resolved first, because `..` of a symbolic link is not the parent of its target.
    let device = device.canonicalize().ok()?;
    [device.join("queue"), device.parent()?.join("queue")].into_iter().find(|path| path.is_dir())
}

fn number(major: u32, minor: u32, name: &str) -> Option<u64> {
    let text = std::fs::read_to_string(queue(major, minor)?.join(name)).ok()?;
    text.trim().parse().ok()
}

/// Whether the disk spins.
pub(crate) fn rotational(major: u32, minor: u32) -> Option<bool> {
    number(major, minor, "rotational").map(|value| value != 0)
}

/// The disk's physical sector in bytes.
pub(crate) fn physical_block_bytes(major: u32, minor: u32) -> Option<u64> {
    number(major, minor, "physical_block_size")
}

/// The disk's logical sector in bytes: the unit of direct access.
pub(crate) fn logical_block_bytes(major: u32, minor: u32) -> Option<u64> {
    number(major, minor, "logical_block_size")
}

/// What a loop device (or a partition of one) stands on: the path that it was given.
pub(crate) fn loop_backing(major: u32, minor: u32) -> Option<PathBuf> {
    let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}")).canonicalize().ok()?;
    let name = "loop/backing_file";
    let found = [device.join(name), device.parent()?.join(name)];
    let text = found.iter().find_map(|path| std::fs::read_to_string(path).ok())?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}
