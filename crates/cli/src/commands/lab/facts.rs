//! What the kernel says of a drive that an experiment is made on.

use std::fs;
use std::path::PathBuf;

use lab::flush::DriveFacts;

use crate::drive::{Drive, DriveKind, disk_of, sysfs_of};

/// Drivers behind which other hardware may be: what they say of themselves says nothing of it.
const VEILS: &[(&str, &str)] = &[
    ("loop", "a loop device"),
    ("dm-", "a mapped device"),
    ("md", "a software RAID"),
    ("nbd", "a network block device"),
    ("vd", "a virtual machine"),
    ("xvd", "a virtual machine"),
    ("zram", "memory"),
    ("ram", "memory"),
];

/// Looks at sysfs; what cannot be found stays unknown.
pub fn of(drive: &Drive) -> DriveFacts {
    let DriveKind::Block { number } = drive.kind else {
        let hidden_by = Some("a file system".to_owned());
        return DriveFacts { hidden_by, ..DriveFacts::default() };
    };
    let sysfs = sysfs_of(disk_of(number).unwrap_or(number));
    let read = |name: &str| {
        let text = fs::read_to_string(sysfs.join(name)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    DriveFacts {
        model: read("device/model"),
        rotational: read("queue/rotational").map(|value| value != "0"),
        volatile_cache: read("queue/write_cache").map(|value| value == "write back"),
        hidden_by: veil(&sysfs),
    }
}

fn veil(sysfs: &std::path::Path) -> Option<String> {
    let name: PathBuf = fs::canonicalize(sysfs).ok()?;
    let name = name.file_name()?.to_str()?.to_owned();
    let (_, what) = VEILS.iter().find(|(prefix, _)| {
        // "md0" is one, "mdisk" is not; "dm-" ends in no digit itself.
        name.strip_prefix(prefix).is_some_and(|rest| {
            rest.starts_with(|c: char| c.is_ascii_digit())
                || prefix.ends_with('d') && rest.len() == 1
        })
    })?;
    Some((*what).to_owned())
}
