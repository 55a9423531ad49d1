//! What the kernel sees: a directory with one file of fixed size.
//!
//! Names and attributes never change, so they are answered here; whatever touches data is the service's.
//!
//! * The file is opened with direct I/O: the kernel keeps no copy of its data. A copy would go
//!   stale as soon as another door writes, and would need write-back before a flush means
//!   anything. Memory mapping the file is therefore not possible.
//! * Several direct writes may be under way at once; the volume allows any overlap.
//! * The size cannot be changed: truncating to any other size is refused (`EPERM`).

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

use super::protocol::{Answer, Attributes, ROOT, opened};
use super::request::Request;

/// How long the kernel may remember names and attributes, in seconds. Nothing about them changes but the time
/// of the last write, which the kernel asks for again after its own writes.
const REMEMBER_S: u64 = 3600;

/// The file's node.
pub(super) const FILE: u64 = 2;

/// The file and the directory it is in.
pub(super) struct FileSystem {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) preferred_bytes: u32,
    pub(super) read_only: bool,
    /// User and group.
    pub(super) owner: (u32, u32),
    /// Nanoseconds since 1970.
    pub(super) mounted_ns: u64,
    /// Of the last write through this door; 0: none yet.
    pub(super) written_ns: Cell<u64>,
}

/// Nanoseconds since 1970.
pub(super) fn now_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64
}

impl FileSystem {
    pub(super) fn note_write(&self) {
        self.written_ns.set(now_ns());
    }

    /// Answers what needs no data; an errno refuses.
    pub(super) fn answer(&self, request: Request<'_>) -> Result<Answer, i32> {
        let mut answer = Answer::default();
        match request {
            Request::Lookup { parent, name } => {
                if parent != ROOT || name != self.name.as_bytes() {
                    return Err(libc::ENOENT);
                }
                // Its first and only generation.
                answer.u64(FILE).u64(0).u64(REMEMBER_S).u64(REMEMBER_S).u32(0).u32(0);
                self.attributes(FILE)?.put(&mut answer);
            }
            Request::Attributes { node } => self.put_attributes(node, &mut answer)?,
            Request::SetAttributes { node, size_bytes, others } => {
                let old = self.attributes(node)?.size_bytes;
                if others || size_bytes.is_some_and(|size| size != old) {
                    return Err(libc::EPERM);
                }
                // Setting times is allowed and without effect, for copying tools that insist on it.
                self.put_attributes(node, &mut answer)?;
            }
            // The kernel checks permissions itself (`default_permissions`).
            Request::Access { node } => drop(self.attributes(node)?),
            Request::Open { node, flags } => {
                if node != FILE {
                    return Err(libc::EISDIR);
                }
                if self.read_only && flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
                    return Err(libc::EROFS);
                }
                let how = opened::DIRECT_IO | opened::PARALLEL_DIRECT_WRITES;
                answer.u64(0).u32(how).u32(0);
            }
            Request::OpenDirectory { node: ROOT } => drop(answer.u64(0).u64(0)),
            Request::OpenDirectory { .. } => return Err(libc::ENOTDIR),
            Request::List { node: ROOT, from, room_bytes } => {
                self.list(from, room_bytes as usize, &mut answer);
            }
            Request::List { .. } => return Err(libc::ENOTDIR),
            Request::FileSystem => {
                // One file that fills everything: no free space, no free names.
                let (block_bytes, name_bytes_max) = (4096, 255);
                let blocks = self.size_bytes / u64::from(block_bytes);
                answer.u64(blocks).u64(0).u64(0).u64(1).u64(0);
                answer.u32(block_bytes).u32(name_bytes_max).u32(block_bytes).u32(0);
                answer.u64(0).u64(0).u64(0);
            }
            Request::Release | Request::Destroy => {}
            Request::Refused(errno) => return Err(errno),
            Request::Read { .. }
            | Request::Write { .. }
            | Request::Flush
            | Request::Zero { .. }
            | Request::Seek { .. }
            | Request::Forget => {
                unreachable!("data is the service's, and who forgets is not answered")
            }
        }
        Ok(answer)
    }

    fn put_attributes(&self, node: u64, answer: &mut Answer) -> Result<(), i32> {
        let attributes = self.attributes(node)?;
        answer.u64(REMEMBER_S).u32(0).u32(0);
        attributes.put(answer);
        Ok(())
    }

    fn attributes(&self, node: u64) -> Result<Attributes, i32> {
        let is_file = match node {
            FILE => true,
            ROOT => false,
            _ => return Err(libc::ENOENT),
        };
        let size_bytes = if is_file { self.size_bytes } else { 0 };
        let kind = if is_file { libc::S_IFREG | 0o400 } else { libc::S_IFDIR | 0o500 };
        let writable = is_file && !self.read_only;
        Ok(Attributes {
            node,
            size_bytes,
            // A block less than the size. Tools that copy sparse files ask for holes only when
            // a file claims to have some, and counting the true number would walk the map.
            blocks: (size_bytes / 512).saturating_sub(8),
            modified_ns: match self.written_ns.get() {
                written if is_file && written > 0 => written,
                _ => self.mounted_ns,
            },
            mode: kind | if writable { 0o200 } else { 0 },
            links: if is_file { 1 } else { 2 },
            user: self.owner.0,
            group: self.owner.1,
            preferred_bytes: self.preferred_bytes,
        })
    }

    /// The names from a place on, as many as there is room for.
    fn list(&self, from: u64, room_bytes: usize, answer: &mut Answer) {
        // Kinds as in `st_mode`, without the permissions' bits.
        let (directory, file) = (libc::S_IFDIR >> 12, libc::S_IFREG >> 12);
        let entries = [(ROOT, directory, "."), (ROOT, directory, ".."), (FILE, file, &self.name)];
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        for (index, (node, kind, name)) in entries.into_iter().enumerate().skip(from) {
            let bytes = (24 + name.len()).next_multiple_of(8);
            if answer.0.len() + bytes > room_bytes {
                break;
            }
            let end = answer.0.len() + bytes;
            // The place given is where a later call goes on: behind this entry.
            answer.u64(node).u64(index as u64 + 1).u32(name.len() as u32).u32(kind);
            answer.0.extend_from_slice(name.as_bytes());
            answer.0.resize(end, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_system(read_only: bool) -> FileSystem {
        FileSystem {
            name: "vol".into(),
            size_bytes: 1 << 20,
            preferred_bytes: 4096,
            read_only,
            owner: (7, 8),
            mounted_ns: 1_500_000_000_000_000_001,
            written_ns: Cell::new(0),
        }
    }

    /// Lengths are those of the structures in the kernel's description.
    #[test]
    fn answers_are_as_long_as_the_kernel_wants_them() {
        let system = file_system(false);
        let length = |request| system.answer(request).unwrap().0.len();
        assert_eq!(length(Request::Lookup { parent: ROOT, name: b"vol" }), 128);
        assert_eq!(length(Request::Attributes { node: FILE }), 104);
        assert_eq!(length(Request::Attributes { node: ROOT }), 104);
        assert_eq!(length(Request::Open { node: FILE, flags: libc::O_RDWR as u32 }), 16);
        assert_eq!(length(Request::OpenDirectory { node: ROOT }), 16);
        assert_eq!(length(Request::FileSystem), 80);
        assert_eq!(length(Request::Release), 0);
    }

    #[test]
    fn what_is_not_there_or_cannot_change_is_refused() {
        let refusal = |read_only, request| file_system(read_only).answer(request).err();
        let node = FILE;
        assert_eq!(
            refusal(false, Request::Lookup { parent: ROOT, name: b"volume" }),
            Some(libc::ENOENT)
        );
        assert_eq!(
            refusal(false, Request::Lookup { parent: FILE, name: b"vol" }),
            Some(libc::ENOENT)
        );
        assert_eq!(refusal(false, Request::Attributes { node: 3 }), Some(libc::ENOENT));
        assert_eq!(refusal(false, Request::Open { node: ROOT, flags: 0 }), Some(libc::EISDIR));
        assert_eq!(
            refusal(true, Request::Open { node, flags: libc::O_RDWR as u32 }),
            Some(libc::EROFS)
        );
        assert_eq!(refusal(true, Request::Open { node, flags: libc::O_RDONLY as u32 }), None);
        let resize = |size| Request::SetAttributes { node, size_bytes: size, others: false };
        assert_eq!(refusal(false, resize(Some(5))), Some(libc::EPERM));
        assert_eq!(refusal(false, resize(Some(1 << 20))), None);
        assert_eq!(refusal(false, resize(None)), None);
        let owner = Request::SetAttributes { node, size_bytes: None, others: true };
        assert_eq!(refusal(false, owner), Some(libc::EPERM));
    }

    #[test]
    fn a_listing_goes_on_where_its_room_ended() {
        let system = file_system(false);
        let list = |from, room_bytes| {
            system.answer(Request::List { node: ROOT, from, room_bytes }).unwrap().0
        };
        let whole = list(0, 4096);
        assert_eq!(whole.len(), 3 * 32);
        assert_eq!([list(0, 95), list(2, 4096)].concat(), whole);
        assert!(list(3, 4096).is_empty());
        assert!(list(u64::MAX, 4096).is_empty());
        assert!(list(0, 31).is_empty());
    }
}
