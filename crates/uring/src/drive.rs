//! Opens a drive (a regular file or a block device), claims it, and finds its facts.
//!
//! * Exclusive: a file is locked with `flock` (shared for reading), a block device is opened with
//!   `O_EXCL` and locked too, which also keeps udev from probing a disk in use. The kernel does not
//!   tell a loop device from its file, so what is below a loop device is locked as well.
//! * Direct: `O_DIRECT` where the file system allows it with sectors of at most 4096 bytes, else
//!   through the page cache. Durability is the same; only the copy and the memory differ.
//! * The size is fixed when it is opened and rounded down to whole sectors.
//!
//! A fact that cannot be found gets the cautious value, never an error.

use std::fs::{File, Metadata, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

use io::{DeviceInfo, ErrorKind, IoError};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use crate::desk::FileRef;
use crate::sysfs;

/// Largest sector and largest atomic write we count on, in bytes: the engine's block.
const SECTOR_BYTES_MAX: u32 = 4096;

/// How often a drive in use is tried again, and how long between: two seconds in all. udev holds a
/// disk while it probes what something has just written to it. And the kernel takes a killed
/// process's ring apart, with the drives in it, only after the process has ended: a server that is
/// started again at once must not be refused for that moment.
const LOCK_TRIES_MAX: u32 = 80;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// Loop devices upon loop devices that are looked through: more than anybody stacks.
const LOOPS_MAX: usize = 8;

/// What a drive is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Reading and writing; nobody else may have it open through bimetal.
    ReadWrite,
    /// Reading; other readers of a file are welcome, writers are not.
    ReadOnly,
}

/// An open drive. Closed, and its claim given up, when dropped.
pub(crate) struct Drive {
    fd: OwnedFd,
    /// What the drive stands on, locked like itself.
    below: Vec<File>,
    pub(crate) file: FileRef,
    pub(crate) info: DeviceInfo,
    /// What the address of a buffer must be a multiple of, in bytes.
    pub(crate) memory_align_bytes: u32,
}

impl Drop for Drive {
    fn drop(&mut self) {
        // Said, not left to the closing: a ring that is being torn down may hold the file open
        // for a moment longer, and the next opener should not find it locked.
        let _ = flock(&self.fd, FlockOperation::Unlock);
        for file in &self.below {
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

/// How the drive takes its transfers.
#[derive(Clone, Copy)]
struct Grain {
    sector_bytes: u32,
    memory_align_bytes: u32,
}

impl Drive {
    pub(crate) fn open(path: &Path, access: Access) -> Result<Drive, IoError> {
        let shown = path.display();
        let context = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::NotFound => IoError::from_errno(
                libc::ENOENT,
                format_args!("{shown} is not there (check the name; for a file, create it first)"),
            ),
            _ => failed(&e, format_args!("opening {shown}")),
        };
        // Looked at before it is opened: opening a pipe waits, opening a character device acts.
        let metadata = std::fs::metadata(path).map_err(context)?;
        let block = kind_of(path, &metadata)?;
        if !block && metadata.mode() & 0o666 == 0 {
            let message = format!("nobody may read or write {shown} (mode 000): chmod u+rw");
            return Err(IoError::new(ErrorKind::ReadOnly, message));
        }
        if access == Access::ReadWrite && !block && metadata.mode() & 0o222 == 0 {
            let message = format!("{shown} is marked read-only (chmod u+w, or open it read-only)");
            return Err(IoError::new(ErrorKind::ReadOnly, message));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(access == Access::ReadWrite);
        let exclusive = if block { OFlags::EXCL } else { OFlags::empty() };
        options.custom_flags(exclusive.bits() as i32);
        let file = open_patiently(&options, path).map_err(|e| match e.raw_os_error() {
            Some(libc::EBUSY) => in_use(path),
            Some(libc::EROFS | libc::EACCES | libc::EPERM) if access == Access::ReadWrite => {
                failed(&e, format_args!("opening {shown} for writing"))
            }
            _ => context(e),
        })?;
        let metadata = file.metadata().map_err(context)?;
        if kind_of(path, &metadata)? != block {
            let message = format!("{shown} was replaced while it was being opened");
            return Err(IoError::new(ErrorKind::Io, message));
        }
        claim(&file, path, access)?;
        let below = if block { claim_below(&metadata, path, access)? } else { Vec::new() };
        if block && access == Access::ReadWrite && is_read_only(&file) {
            let message = format!("{shown} is set read-only (blockdev --setrw, or open read-only)");
            return Err(IoError::new(ErrorKind::ReadOnly, message));
        }
        let size_bytes = if block { block_bytes(&file, path)? } else { metadata.len() };
        let grain = grain(&file, block, &metadata);
        let sector_bytes = grain.sector_bytes;
        let size_bytes = size_bytes - size_bytes % u64::from(sector_bytes);
        if size_bytes == 0 {
            let message = format!("{shown} is empty (give it a size: truncate -s 1G {shown})");
            return Err(IoError::new(ErrorKind::Range, message));
        }
        let (atomic_write_bytes, rotational) = medium(&file, block, &metadata);
        let fd = OwnedFd::from(file);
        Ok(Drive {
            file: FileRef { fd: fd.as_raw_fd(), registered: None, block },
            fd,
            below,
            info: DeviceInfo {
                path: shown.to_string(),
                size_bytes,
                sector_bytes,
                atomic_write_bytes,
                rotational,
                read_only: access == Access::ReadOnly,
            },
            memory_align_bytes: grain.memory_align_bytes,
        })
    }
}

/// An error of the standard library, with what was tried.
pub(crate) fn failed(error: &std::io::Error, context: impl std::fmt::Display) -> IoError {
    match error.raw_os_error() {
        Some(errno) => IoError::from_errno(errno, context),
        None => IoError::new(ErrorKind::Io, format!("{context}: {error}")),
    }
}

/// Whether it is a block device; an error for what is neither that nor a file.
fn kind_of(path: &Path, metadata: &Metadata) -> Result<bool, IoError> {
    let kind = metadata.file_type();
    if kind.is_block_device() {
        return Ok(true);
    }
    if kind.is_file() {
        return Ok(false);
    }
    let what = if kind.is_dir() {
        "a directory"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a pipe"
    };
    let message =
        format!("{} is {what}; a drive must be a regular file or a block device", path.display());
    Err(IoError::new(ErrorKind::Unsupported, message))
}

fn in_use(path: &Path) -> IoError {
    let context = format_args!(
        "{} is in use by another program (mounted, part of another volume, or served already)",
        path.display()
    )
    .to_string();
    IoError::from_errno(libc::EBUSY, context)
}

/// Opens, trying again for a while when somebody else has the drive for himself.
fn open_patiently(options: &OpenOptions, path: &Path) -> std::io::Result<File> {
    let busy = |outcome: &std::io::Result<File>| {
        outcome.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EBUSY))
    };
    let mut outcome = options.open(path);
    for _ in 1..LOCK_TRIES_MAX {
        if !busy(&outcome) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        outcome = options.open(path);
    }
    outcome
}

fn claim(file: &File, path: &Path, access: Access) -> Result<(), IoError> {
    let lock = match access {
        Access::ReadWrite => FlockOperation::NonBlockingLockExclusive,
        Access::ReadOnly => FlockOperation::NonBlockingLockShared,
    };
    let mut outcome = flock(file, lock);
    for _ in 1..LOCK_TRIES_MAX {
        if outcome != Err(Errno::WOULDBLOCK) {
            break;
        }
        std::thread::sleep(LOCK_PAUSE);
        outcome = flock(file, lock);
    }
    match outcome {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(in_use(path)),
        // Some network file systems have no locks; refusing to work on them would help nobody.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        Err(e) => {
            let context = format_args!("locking {}", path.display()).to_string();
            Err(IoError::from_errno(e.raw_os_error(), context))
        }
    }
}

/// Locks what a loop device stands on, and what that stands on. Two servers, one on the file and
/// one on a loop device of it, would destroy the volume, and neither `O_EXCL` nor a lock on the
/// device itself keeps them apart.
fn claim_below(device: &Metadata, path: &Path, access: Access) -> Result<Vec<File>, IoError> {
    let mut below = Vec::new();
    let mut device = device.clone();
    while below.len() < LOOPS_MAX && device.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(device.rdev()), rustix::fs::minor(device.rdev()));
        let Some(backing) = sysfs::loop_backing(major, minor) else { break };
        let file = match File::open(&backing) {
            Ok(file) => file,
            // Deleted: nobody can open it by its name any more. (Or out of sight in another mount
            // namespace, whose servers are not kept apart from this one.)
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => break,
            Err(error) => {
                let (shown, backing) = (path.display(), backing.display());
                let context = format_args!("locking {backing}, on which {shown} stands");
                return Err(failed(&error, context));
            }
        };
        let facts = file.metadata().map_err(|error| failed(&error, path.display()))?;
        claim(&file, path, access)?;
        device = facts;
        below.push(file);
    }
    Ok(below)
}

fn is_read_only(file: &File) -> bool {
    const BLKROGET: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 94);
    // SAFETY: BLKROGET writes one int to its argument.
    let value = unsafe {
        rustix::ioctl::ioctl(file, rustix::ioctl::Getter::<BLKROGET, std::ffi::c_int>::new())
    };
    value.is_ok_and(|value| value != 0)
}

fn block_bytes(file: &File, path: &Path) -> Result<u64, IoError> {
    // Declared with size_t, filled with a u64: the number depends on the pointer's width.
    const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);
    // SAFETY: BLKGETSIZE64 writes one u64 to its argument.
    let bytes =
        unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Getter::<BLKGETSIZE64, u64>::new()) };
    bytes.map_err(|e| {
        let context = format_args!("asking {} for its size", path.display()).to_string();
        IoError::from_errno(e.raw_os_error(), context)
    })
}

/// Turns `O_DIRECT` on where it works, and says in which units the drive is then accessed.
fn grain(file: &File, block: bool, metadata: &Metadata) -> Grain {
    let buffered = Grain { sector_bytes: 512, memory_align_bytes: 1 };
    let found = if block {
        let sector_bytes = rustix::fs::ioctl_blksszget(file).unwrap_or(512);
        // The kernel wants less from the memory of most drives, but none wants more.
        Grain { sector_bytes, memory_align_bytes: 512 }
    } else {
        match direct_alignment(file) {
            // The file system knows, and says no.
            Some((_, 0)) => return buffered,
            Some((memory_align_bytes, offset_align_bytes)) => Grain {
                sector_bytes: offset_align_bytes.max(512),
                memory_align_bytes: memory_align_bytes.max(1),
            },
            // Its page cache is its medium: direct access would only be stricter.
            None if lies_in_memory(file) => return buffered,
            // It does not say. The sector of the disk below is what disk file systems want;
            // without a disk (network file systems, pools of disks) 4096 is enough everywhere.
            None => {
                let (major, minor) = numbers(metadata.dev());
                let below = sysfs::logical_block_bytes(major, minor);
                let bytes = below.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(4096);
                Grain { sector_bytes: bytes, memory_align_bytes: bytes }
            }
        }
    };
    if found.sector_bytes > SECTOR_BYTES_MAX
        || found.memory_align_bytes > SECTOR_BYTES_MAX
        || !found.sector_bytes.is_power_of_two()
    {
        return buffered;
    }
    if set_direct(file).is_ok() { found } else { buffered }
}

/// Alignment of memory and of offsets for direct access; `None` when the kernel does not tell.
fn direct_alignment(file: &File) -> Option<(u32, u32)> {
    const DIOALIGN: rustix::fs::StatxFlags = rustix::fs::StatxFlags::from_bits_retain(0x2000);
    let found = rustix::fs::statx(file, "", rustix::fs::AtFlags::EMPTY_PATH, DIOALIGN).ok()?;
    (found.stx_mask & DIOALIGN.bits() != 0)
        .then_some((found.stx_dio_mem_align, found.stx_dio_offset_align))
}

/// Whether the file lies on a file system in memory.
fn lies_in_memory(file: &File) -> bool {
    const TMPFS_MAGIC: rustix::fs::FsWord = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type == TMPFS_MAGIC)
}

/// The major and minor number of a device, as sysfs names it.
fn numbers(device: u64) -> (u32, u32) {
    (rustix::fs::major(device), rustix::fs::minor(device))
}

fn set_direct(file: &File) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(file.as_fd())?;
    rustix::fs::fcntl_setfl(file.as_fd(), flags | OFlags::DIRECT)
}

/// The physical sector of the medium below, at most 4096 bytes (512 when unknown), and whether it
/// spins.
fn medium(file: &File, block: bool, metadata: &Metadata) -> (u32, Option<bool>) {
    let device = if block { metadata.rdev() } else { metadata.dev() };
    let (major, minor) = numbers(device);
    let asked = if block { rustix::fs::ioctl_blkpbszget(file).ok().map(u64::from) } else { None };
    let physical = asked.or_else(|| sysfs::physical_block_bytes(major, minor));
    let atomic = physical.filter(|bytes| bytes.is_power_of_two()).unwrap_or(512);
    let atomic = atomic.clamp(512, u64::from(SECTOR_BYTES_MAX)) as u32;
    (atomic, sysfs::rotational(major, minor))
}
