//! A kernel block device made of a file, by the loop driver.
//!
//! * [`attach`] makes one with direct I/O, so that the kernel keeps no second copy of the data
//!   and a flush of the device is a flush of the file; discards become holes in the file.
//! * [`detach`] undoes it and returns when the device is really gone; [`detach_from`] only if it is
//!   still the device of that file.
//! * [`find_by_backing`] tells which devices a file is behind.
//!
//! All of it blocks, and the kernel reads the file meanwhile: never call it on the thread of the
//! executor that serves the file. Root is needed throughout.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use io::{ErrorKind, IoError};

use super::mount_table;

/// How often a free device is looked for when others are faster to take it.
const ATTEMPTS: usize = 16;

/// How long a device's file in `/dev` may take to appear.
const NODE_PATIENCE: Duration = Duration::from_secs(5);

/// How long a detached device may take to go. Programs that look at every block device
/// (udev, blkid) hold it for moments; anything longer is a user.
const DETACH_PATIENCE: Duration = Duration::from_secs(10);

/// Pause between looks while waiting.
const PAUSE: Duration = Duration::from_millis(5);

/// How the device is to appear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopOptions {
    /// Logical block size: 512, or 4096 to spare the volume rewriting parts of blocks.
    pub sector_bytes: u32,
    /// Refuse writes.
    pub read_only: bool,
    /// Look for a partition table and make devices of its partitions.
    pub partitions: bool,
}

impl Default for LoopOptions {
    fn default() -> LoopOptions {
        LoopOptions { sector_bytes: 512, read_only: false, partitions: false }
    }
}

/// A device that was made. It stays until [`detach`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopDevice {
    /// Its file, such as `/dev/loop3`.
    pub path: PathBuf,
    /// The kernel agreed to direct I/O. Without it the kernel caches the data once more: flushes
    /// still hold, but it costs memory and may serve old data when another door writes.
    pub direct_io: bool,
}

/// Makes a loop device of `file`.
///
/// # Errors
/// Not root, no loop driver in the kernel (`modprobe loop`), the file cannot be opened, or the
/// kernel refuses the options.
pub fn attach(file: &Path, options: LoopOptions) -> Result<LoopDevice, IoError> {
    let backing = OpenOptions::new()
        .read(true)
        .write(!options.read_only)
        .open(file)
        .map_err(|cause| failed(&cause, format!("open {}", file.display())))?;
    let control = open_control()?;
    let config = LoopConfig::new(&backing, file, options);
    for _ in 0..ATTEMPTS {
        let number = free_number(&control)?;
        let path = PathBuf::from(format!("/dev/loop{number}"));
        let device = open_node(&path)?;
        // SAFETY: the device is open, and the kernel reads one `LoopConfig` of the layout its
        // interface prescribes; `backing` stays open until after the call.
        let outcome = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &config) };
        if outcome == 0 {
            let direct_io = sysfs(&path, "loop/dio").is_some_and(|text| text == "1");
            return Ok(LoopDevice { path, direct_io });
        }
        let cause = std::io::Error::last_os_error();
        // Somebody else took it between the two calls.
        if cause.raw_os_error() != Some(libc::EBUSY) {
            let what = format!("make loop device {} of {}", path.display(), file.display());
            return Err(failed(&cause, what));
        }
    }
    Err(IoError::new(ErrorKind::Io, "every free loop device was taken by others; try again"))
}

/// How a loop device in use is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopFacts {
    /// Logical block size.
    pub sector_bytes: u32,
    /// It refuses writes.
    pub read_only: bool,
    /// It bypasses the kernel's cache of the file.
    pub direct_io: bool,
}

/// How the loop device at `path` is set up, as the kernel says; `None` when it is gone.
pub fn facts(path: &Path) -> Option<LoopFacts> {
    Some(LoopFacts {
        sector_bytes: sysfs(path, "queue/logical_block_size")?.parse().ok()?,
        read_only: sysfs(path, "ro")? == "1",
        direct_io: sysfs(path, "loop/dio")? == "1",
    })
}

/// Takes the loop device at `path` away from its file and waits until it is gone.
///
/// # Errors
/// It is no loop device in use, or somebody uses it: the message says where it is mounted or what
/// is stacked on it, and nothing has changed then. When a program merely has it open the kernel
/// takes the device away as soon as it is closed; the error says so.
pub fn detach(path: &Path) -> Result<(), IoError> {
    detach_if(path, |_| true)
}

/// As [`detach`], and only from `file`: a number that was found a moment ago may have gone to
/// somebody else's file since.
///
/// # Errors
/// As [`detach`]; a device of another file is left alone.
pub fn detach_from(file: &Path, path: &Path) -> Result<(), IoError> {
    detach_if(path, |backing| backing == file)
}

fn detach_if(path: &Path, is_meant: impl Fn(&Path) -> bool) -> Result<(), IoError> {
    let name = path.display();
    // While it is open here nobody else can have the number.
    let device = File::open(path).map_err(|cause| failed(&cause, format!("open {name}")))?;
    let Some(backing) = backing_file(path).filter(|backing| is_meant(backing)) else {
        let message = format!("{name} is not a loop device in use");
        return Err(IoError::new(ErrorKind::Range, message));
    };
    let users = users(path)?;
    if !users.is_empty() {
        let message = format!("{name} is in use: {}; end that first", users.join(", "));
        return Err(IoError { errno: libc::EBUSY, ..IoError::new(ErrorKind::Io, message) });
    }
    // SAFETY: the device is open; this request takes no argument.
    let outcome = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CLR_FD as _, 0) };
    if outcome != 0 {
        return Err(failed(&std::io::Error::last_os_error(), format!("detach {name}")));
    }
    // The kernel lets go when the last one closes it; we are one.
    drop(device);
    let gone = wait_until(DETACH_PATIENCE, || backing_file(path).is_none_or(|now| now != backing));
    if gone {
        return Ok(());
    }
    let message = format!("{name} is still open somewhere; it goes away when it is closed");
    Err(IoError { errno: libc::EBUSY, ..IoError::new(ErrorKind::Io, message) })
}

/// The loop devices that `file` is behind. Does not touch the file: works when its server is dead.
///
/// # Errors
/// The kernel's list of block devices cannot be read.
pub fn find_by_backing(file: &Path) -> Result<Vec<PathBuf>, IoError> {
    let list = "/sys/block";
    let entries =
        std::fs::read_dir(list).map_err(|cause| failed(&cause, format!("read {list}")))?;
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.file_name())
        .filter(|name| name.as_bytes().starts_with(b"loop"))
        .map(|name| Path::new("/dev").join(name))
        .filter(|device| backing_file(device).is_some_and(|backing| backing == file))
        .collect();
    found.sort();
    Ok(found)
}

/// The file behind a loop device in use, as the kernel names it.
fn backing_file(device: &Path) -> Option<PathBuf> {
    let path = sysfs_path(device)?.join("loop/backing_file");
    let mut text = std::fs::read(path).ok()?;
    while text.last() == Some(&b'\n') {
        text.pop();
    }
    let text = mount_table::unescape(&text);
    (!text.is_empty()).then(|| PathBuf::from(std::ffi::OsString::from_vec(text)))
}

/// Mounts, swap and devices that stand on `device` or its partitions, in words.
fn users(device: &Path) -> Result<Vec<String>, IoError> {
    let Some(directory) = sysfs_path(device) else { return Ok(Vec::new()) };
    let name = device.file_name().unwrap_or_default().as_bytes();
    // The device and its partitions: a name in /dev, and a directory that describes it.
    let mut members = vec![(device.to_owned(), directory.clone())];
    for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(name) {
            members.push((Path::new("/dev").join(entry.file_name()), entry.path()));
        }
    }
    let mounts = mount_table::read()?;
    let swaps = std::fs::read_to_string("/proc/swaps").unwrap_or_default();
    let mut users = Vec::new();
    for (node, directory) in members {
        let number = std::fs::read_to_string(directory.join("dev")).unwrap_or_default();
        for mount in &mounts {
            // Some file systems (btrfs) mount under a number of their own: compare names as well.
            if mount.device == number.trim() || Path::new(&mount.source) == node {
                users.push(format!("mounted on {}", mount.mount_point.display()));
            }
        }
        if swaps.lines().any(|line| line.split_whitespace().next() == node.to_str()) {
            users.push("swap".to_owned());
        }
        for holder in std::fs::read_dir(directory.join("holders")).into_iter().flatten().flatten() {
            users.push(format!("part of /dev/{}", holder.file_name().display()));
        }
    }
    Ok(users)
}

fn sysfs_path(device: &Path) -> Option<PathBuf> {
    let name = device.file_name()?;
    name.as_bytes().starts_with(b"loop").then(|| Path::new("/sys/block").join(name))
}

fn sysfs(device: &Path, attribute: impl AsRef<OsStr>) -> Option<String> {
    let path = sysfs_path(device)?.join(attribute.as_ref());
    Some(std::fs::read_to_string(path).ok()?.trim().to_owned())
}

fn open_control() -> Result<File, IoError> {
    let path = "/dev/loop-control";
    OpenOptions::new().read(true).write(true).open(path).map_err(|cause| {
        let hint = match cause.kind() {
            std::io::ErrorKind::NotFound => " (load the kernel's loop driver: 'modprobe loop')",
            std::io::ErrorKind::PermissionDenied => " (making loop devices needs root)",
            _ => "",
        };
        failed(&cause, format!("open {path}{hint}"))
    })
}

fn free_number(control: &File) -> Result<i32, IoError> {
    // SAFETY: the control device is open; this request takes no argument.
    let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _, 0) };
    if number < 0 {
        return Err(failed(&std::io::Error::last_os_error(), "find a free loop device"));
    }
    Ok(number)
}

/// Opens a device whose file in `/dev` may have yet to appear.
fn open_node(path: &Path) -> Result<File, IoError> {
    wait_until(NODE_PATIENCE, || path.exists());
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(|cause| failed(&cause, format!("open {}", path.display())))
}

fn wait_until(patience: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

fn failed(cause: &std::io::Error, context: impl std::fmt::Display) -> IoError {
    match cause.raw_os_error() {
        Some(errno) => IoError::from_errno(errno, context),
        None => IoError::new(ErrorKind::Io, format!("{context}: {cause}")),
    }
}

// The kernel's interface, from <linux/loop.h>.

const LOOP_CLR_FD: u32 = 0x4c01;
const LOOP_CONFIGURE: u32 = 0x4c0a;
const LOOP_CTL_GET_FREE: u32 = 0x4c82;
const LO_FLAGS_READ_ONLY: u32 = 1;
const LO_FLAGS_PARTSCAN: u32 = 8;
const LO_FLAGS_DIRECT_IO: u32 = 16;
const LO_NAME_SIZE: usize = 64;

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; LO_NAME_SIZE],
    crypt_name: [u8; LO_NAME_SIZE],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);
const _: () = assert!(size_of::<LoopConfig>() == 304);

impl LoopConfig {
    fn new(backing: &File, file: &Path, options: LoopOptions) -> LoopConfig {
        let fd: RawFd = backing.as_raw_fd();
        let mut flags = LO_FLAGS_DIRECT_IO;
        if options.read_only {
            flags |= LO_FLAGS_READ_ONLY;
        }
        if options.partitions {
            flags |= LO_FLAGS_PARTSCAN;
        }
        let mut file_name = [0; LO_NAME_SIZE];
        // For people to read in `losetup`; the last byte stays 0.
        for (to, from) in file_name[..LO_NAME_SIZE - 1].iter_mut().zip(file.as_os_str().as_bytes())
        {
            *to = *from;
        }
        LoopConfig {
            fd: fd as u32,
            block_size: options.sector_bytes,
            info: LoopInfo {
                device: 0,
                inode: 0,
                rdevice: 0,
                offset: 0,
                size_limit: 0,
                number: 0,
                encrypt_type: 0,
                encrypt_key_size: 0,
                flags,
                file_name,
                crypt_name: [0; LO_NAME_SIZE],
                encrypt_key: [0; 32],
                init: [0; 2],
            },
            reserved: [0; 8],
        }
    }
}
