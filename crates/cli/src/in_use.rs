//! Who uses a drive now: mounts, swap, kernel devices stacked on it, and servers of ours.
//!
//! Reads what the kernel publishes. It can say no more than that nothing was found; the lock
//! taken when a drive is opened is what keeps two servers apart.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use io::IoError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::drive::{Drive, DriveKind, device_number, sysfs_of};
use crate::failure::Failure;

/// How long the lock of a process that has ended may stay.
const LEAVING: Duration = Duration::from_secs(1);
const LEAVING_STEP: Duration = Duration::from_millis(20);

/// Everything that is known to use `drive`, in words.
pub fn users(drive: &Drive) -> Vec<String> {
    let mut users = Vec::new();
    // Writing beside a server destroys its volume, and it overwrites what was written.
    look_at_lock(&drive.path, &mut users);
    match drive.kind {
        DriveKind::Block { number } => {
            look_at_device(&drive.path, number, &mut users);
            for (path, part) in partitions(number) {
                look_at_device(&path, part, &mut users);
                look_at_lock(&path, &mut users);
            }
        }
        DriveKind::File => {
            for (path, number, backing) in loop_devices() {
                if fs::canonicalize(backing).is_ok_and(|backing| backing == drive.path) {
                    users.push(format!("it is behind the loop device {}", path.display()));
                    look_at_device(&path, number, &mut users);
                }
            }
            swaps(|swap| {
                if fs::canonicalize(swap).is_ok_and(|swap| swap == drive.path) {
                    users.push("it is swap space in use".to_owned());
                }
            });
        }
    }
    users
}

/// What to say of a drive that somebody else has locked.
pub fn refusal(path: &Path) -> Failure {
    let holder = match lock_holder(path) {
        Some(pid) => format!("process {pid}"),
        None => "another program".to_owned(),
    };
    Failure::refused(format!("{} is in use by {holder}", path.display()))
        .hint("it may be served under another configuration directory or name; end that first")
}

/// What an opening that failed because of `error` is refused with: who has the drive, if somebody has.
pub fn opening_failed(path: &Path, error: IoError) -> Failure {
    let busy = error.errno == Errno::BUSY.raw_os_error();
    if busy && lock_holder(path).is_some() { refusal(path) } else { error.into() }
}

/// The process that holds the lock which every bimetal server takes on its drives, and on what is
/// behind them where they are loop devices.
pub fn lock_holder(path: &Path) -> Option<u32> {
    let facts = fs::metadata(path).ok()?;
    holder_of_lock(&facts).or_else(|| {
        let (_, _, backing) =
            loop_devices().into_iter().find(|(_, number, _)| *number == facts.rdev())?;
        holder_of_lock(&fs::metadata(backing).ok()?)
    })
}

fn holder_of_lock(facts: &fs::Metadata) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(facts.dev()), rustix::fs::minor(facts.dev()));
    let file = format!("{major:02x}:{minor:02x}:{}", facts.ino());
    let locks = fs::read_to_string("/proc/locks").ok()?;
    // 1: FLOCK  ADVISORY  WRITE 4321 fe:00:12345 0 EOF
    let mut held = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    held.find(|fields| fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&file.as_str()))
        .and_then(|fields| fields.get(4)?.parse().ok())
}

/// Who has the lock that every bimetal server takes on its drives, in words; `None`: nobody. Takes it
/// for a moment where the kernel does not tell.
pub fn locked_by(path: &Path) -> Option<String> {
    let deadline = Instant::now() + LEAVING;
    loop {
        let holder = lock_holder(path);
        match holder {
            Some(pid) if Path::new("/proc").join(pid.to_string()).exists() => {
                return Some(format!("process {pid}"));
            }
            None if !is_locked(path) => return None,
            // One that was killed keeps its files until the kernel has ended what it had under way.
            _ if Instant::now() < deadline => std::thread::sleep(LEAVING_STEP),
            _ => return Some("another process".to_owned()),
        }
    }
}

fn is_locked(path: &Path) -> bool {
    let Ok(file) = fs::File::open(path) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

fn look_at_lock(path: &Path, users: &mut Vec<String>) {
    if let Some(holder) = locked_by(path) {
        users.push(format!(
            "{} is locked by {holder}, as by a server of its volume",
            path.display()
        ));
    }
}

fn look_at_device(path: &Path, number: u64, users: &mut Vec<String>) {
    let name = path.display();
    for line in fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines() {
        // 36 35 98:0 /root /mount/point options - type source options
        let mut fields = line.split(' ').skip(2);
        let mounted = fields.next().and_then(device_number) == Some(number);
        let mount_point = fields.nth(1).unwrap_or("?");
        // Some file systems (Btrfs) mount under a number of their own: compare names as well.
        let source = line.split(" - ").nth(1).and_then(|rest| rest.split(' ').nth(1));
        if mounted || source.is_some_and(|source| Path::new(source) == path) {
            users.push(format!("{name} is mounted at {}", mount_point.replace("\\040", " ")));
        }
    }
    swaps(|swap| {
        if fs::metadata(swap).is_ok_and(|facts| facts.rdev() == number) {
            users.push(format!("{name} is swap space in use"));
        }
    });
    for holder in fs::read_dir(sysfs_of(number).join("holders")).into_iter().flatten().flatten() {
        users.push(format!("{name} is held by /dev/{}", holder.file_name().to_string_lossy()));
    }
}

/// Tells each active swap area's path.
fn swaps(mut tell: impl FnMut(&str)) {
    let table = fs::read_to_string("/proc/swaps").unwrap_or_default();
    table.lines().skip(1).filter_map(|line| line.split_whitespace().next()).for_each(&mut tell);
}

/// The partitions of a whole disk.
fn partitions(number: u64) -> Vec<(std::path::PathBuf, u64)> {
    let children = fs::read_dir(sysfs_of(number)).into_iter().flatten().flatten();
    children
        .filter(|child| child.path().join("partition").exists())
        .filter_map(|child| {
            let number = device_number(&fs::read_to_string(child.path().join("dev")).ok()?)?;
            Some((Path::new("/dev").join(child.file_name()), number))
        })
        .collect()
}

/// Loop devices in use: device, number, backing file.
fn loop_devices() -> Vec<(std::path::PathBuf, u64, String)> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices
        .filter_map(|device| {
            let backing = fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
            let number = device_number(&fs::read_to_string(device.path().join("dev")).ok()?)?;
            Some((
                Path::new("/dev").join(device.file_name()),
                number,
                backing.trim_end().to_owned(),
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_fresh_file_is_used_by_nobody() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        assert_eq!(users(&Drive::look(file.path()).unwrap()), Vec::<String>::new());
    }

    #[test]
    fn a_locked_drive_is_used() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(4096).unwrap();
        flock(file.as_file(), FlockOperation::LockExclusive).unwrap();
        let users = users(&Drive::look(file.path()).unwrap());
        assert!(users.iter().any(|user| user.contains("is locked by")), "{users:?}");
    }

    #[test]
    fn the_holder_of_a_lock_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(lock_holder(file.path()), None);
        rustix::fs::flock(file.as_file(), rustix::fs::FlockOperation::LockExclusive).unwrap();
        // Not every file system numbers its files in /proc/locks as it does elsewhere (Btrfs).
        if let Some(holder) = lock_holder(file.path()) {
            assert_eq!(holder, std::process::id());
        } else {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED: /proc/locks does not name this file system's files"
            );
        }
    }

    #[test]
    fn a_mounted_device_is_used() {
        // The root file system is on a block device almost everywhere; in a container it is not.
        let root = fs::metadata("/").unwrap().dev();
        let sysfs = fs::canonicalize(sysfs_of(root));
        let Ok(name) = sysfs.as_ref().map(|sysfs| sysfs.file_name().unwrap()) else {
            let _ =
                writeln!(std::io::stderr(), "SKIPPED: the root file system is on no block device");
            return;
        };
        let mut users = Vec::new();
        look_at_device(&Path::new("/dev").join(name), root, &mut users);
        assert!(users.iter().any(|user| user.contains("mounted at /")), "{users:?}");
    }
}
