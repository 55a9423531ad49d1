//! What the kernel sees: a directory with one file of fixed size.
//!
//! Runs on the session's threads. Names and attributes never change, so they are answered here;
//! whatever touches data is posted to the executor, which answers it.
//!
//! * The file is opened with direct I/O: the kernel keeps no copy of its data. A copy would go
//!   stale as soon as another door writes, and would need write-back before a flush means
//!   anything. Memory mapping the file is therefore not possible.
//! * Several direct writes may be under way at once; the volume allows any overlap.
//! * The size cannot be changed: truncating to any other size is refused (`EPERM`).

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    AccessFlags, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    TimeOrNow, WriteFlags,
};
use io::{Durability, Sender, ZeroMode};

use super::request::{Request, SeekTarget};
use super::spare::Spares;

/// Largest write and read the kernel sends at once: its own default limit (256 pages).
pub(super) const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// Background requests the kernel keeps under way. Asynchronous direct I/O, which the loop driver
/// and `io_uring` clients use, counts as background: less than their queue depth slows them down.
const BACKGROUND_MAX: u16 = 256;

/// How long the kernel may remember names and attributes. Nothing about them changes but the time
/// of the last write, which the kernel asks for again after its own writes.
const REMEMBER: Duration = Duration::from_secs(3600);

const FILE: INodeNo = INodeNo(2);

/// The file system's side towards the kernel.
pub(super) struct FileSystem {
    pub(super) name: OsString,
    pub(super) size_bytes: u64,
    pub(super) preferred_bytes: u32,
    pub(super) read_only: bool,
    pub(super) owner: (u32, u32),
    pub(super) mounted_at: SystemTime,
    /// Nanoseconds since 1970 of the last write through this door.
    pub(super) written_at: AtomicU64,
    pub(super) requests: Sender<Request>,
    pub(super) spares: Spares,
    /// Set when the kernel has let go of the mount.
    pub(super) over: Arc<AtomicBool>,
}

impl FileSystem {
    fn attributes(&self, node: INodeNo) -> Option<FileAttr> {
        let is_file = match node {
            FILE => true,
            INodeNo::ROOT => false,
            _ => return None,
        };
        let written = self.written_at.load(Ordering::Relaxed);
        let modified = if is_file && written > 0 {
            UNIX_EPOCH + Duration::from_nanos(written)
        } else {
            self.mounted_at
        };
        let writable = u16::from(!self.read_only);
        Some(FileAttr {
            ino: node,
            size: if is_file { self.size_bytes } else { 0 },
            // A block less than the size. Tools that copy sparse files ask for holes only when
            // a file claims to have some, and counting the true number would walk the map.
            blocks: if is_file { (self.size_bytes / 512).saturating_sub(8) } else { 0 },
            atime: modified,
            mtime: modified,
            ctime: modified,
            crtime: self.mounted_at,
            kind: if is_file { FileType::RegularFile } else { FileType::Directory },
            perm: if is_file { 0o400 | (0o200 * writable) } else { 0o500 },
            nlink: if is_file { 1 } else { 2 },
            uid: self.owner.0,
            gid: self.owner.1,
            rdev: 0,
            blksize: self.preferred_bytes,
            flags: 0,
        })
    }

    /// When the receiver is gone, dropping the request answers it with `EIO`.
    fn post(&self, request: Request) {
        drop(self.requests.send(request));
    }

    fn note_write(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.written_at.store(since.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> std::io::Result<()> {
        // Without it the loop driver's requests come one at a time; every kernel in use has it.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        // Refused values come back as the nearest possible one.
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        if let Err(most) = config.set_max_readahead(REQUEST_BYTES_MAX) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        Ok(())
    }

    fn destroy(&mut self) {
        self.over.store(true, Ordering::Release);
    }

    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(attributes) if parent == INodeNo::ROOT && name == self.name => {
                reply.entry(&REMEMBER, &attributes, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &fuser::Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(node) {
            Some(attributes) => reply.attr(&REMEMBER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &fuser::Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let Some(attributes) = self.attributes(node) else { return reply.error(Errno::ENOENT) };
        let resized = size.is_some_and(|size| size != attributes.size);
        if resized || mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(Errno::EPERM);
        }
        // Setting times is allowed and without effect, for copying tools that insist on it.
        reply.attr(&REMEMBER, &attributes);
    }

    fn access(&self, _: &fuser::Request, node: INodeNo, _: AccessFlags, reply: ReplyEmpty) {
        // The kernel checks permissions itself (`default_permissions`).
        if self.attributes(node).is_some() { reply.ok() } else { reply.error(Errno::ENOENT) }
    }

    fn open(&self, _: &fuser::Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if node != FILE {
            return reply.error(Errno::EISDIR);
        }
        if self.read_only && flags.acc_mode() != fuser::OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        let how = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), how);
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.post(Request::Read { at: offset, length: size, reply });
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.note_write();
        // O_SYNC contains O_DSYNC. The kernel leaves both to the file system.
        let durable = flags.0 & libc::O_DSYNC != 0;
        let durability = if durable { Durability::Durable } else { Durability::Volatile };
        let data = self.spares.copy_of(data);
        self.post(Request::Write { at: offset, data, durability, reply });
    }

    /// Each close of the file. Only `fsync` promises anything; doing it here too costs little
    /// and saves the data of programs that forget.
    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.post(Request::Flush { reply });
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.post(Request::Flush { reply });
    }

    fn fsyncdir(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.post(Request::Flush { reply });
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
        let zero_mode = match mode {
            PUNCH => ZeroMode::Deallocate,
            libc::FALLOC_FL_ZERO_RANGE | ZERO_KEEP => ZeroMode::Allocate,
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        let Some(end) = offset.checked_add(length) else { return reply.error(Errno::EFBIG) };
        if end > self.size_bytes && mode == libc::FALLOC_FL_ZERO_RANGE {
            // Without KEEP_SIZE the file would have to grow.
            return reply.error(Errno::ENOSPC);
        }
        self.note_write();
        self.post(Request::Zero { at: offset, length, mode: zero_mode, reply });
    }

    fn lseek(
        &self,
        _: &fuser::Request,
        node: INodeNo,
        _: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let target = match whence {
            _ if node != FILE => return reply.error(Errno::EINVAL),
            libc::SEEK_HOLE => SeekTarget::Hole,
            libc::SEEK_DATA => SeekTarget::Data,
            _ => return reply.error(Errno::EINVAL),
        };
        match u64::try_from(offset) {
            Ok(at) => self.post(Request::Seek { at, target, reply }),
            Err(_) => reply.error(Errno::ENXIO),
        }
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        if node != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        let entries = [
            (INodeNo::ROOT, FileType::Directory, OsStr::new(".")),
            (INodeNo::ROOT, FileType::Directory, OsStr::new("..")),
            (FILE, FileType::RegularFile, self.name.as_os_str()),
        ];
        for (index, (node, kind, name)) in entries.into_iter().enumerate().skip(offset as usize) {
            // The offset given is where a later call goes on: behind this entry.
            if reply.add(node, index as u64 + 1, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        // One file that fills everything: no free space, no free names.
        let (block_bytes, name_bytes_max) = (4096, 255);
        let blocks = self.size_bytes / u64::from(block_bytes);
        reply.statfs(blocks, 0, 0, 1, 0, block_bytes, name_bytes_max, block_bytes);
    }
}
