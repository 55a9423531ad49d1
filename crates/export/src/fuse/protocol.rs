//! What the kernel and a server of its FUSE driver say to each other: numbers and layouts.
//!
//! From the description in the kernel's `include/uapi/linux/fuse.h`, as of protocol 7.9, the oldest that any kernel in
//! use speaks; what came later is only sent to servers that have asked for it. All in host byte order. Only what is
//! used here is named.

/// What every message to the server begins with.
pub(super) const HEADER_BYTES: usize = 40;

/// Header and arguments of a write: its data follows.
pub(super) const WRITE_HEAD_BYTES: usize = HEADER_BYTES + 40;

/// What every answer begins with.
pub(super) const ANSWER_HEADER_BYTES: usize = 16;

/// The directory's node.
pub(super) const ROOT: u64 = 1;

/// What is asked for.
pub(super) mod operation {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GET_ATTRIBUTES: u32 = 3;
    pub(crate) const SET_ATTRIBUTES: u32 = 4;
    pub(crate) const SYMLINK: u32 = 6;
    pub(crate) const MAKE_NODE: u32 = 8;
    pub(crate) const MAKE_DIRECTORY: u32 = 9;
    pub(crate) const UNLINK: u32 = 10;
    pub(crate) const REMOVE_DIRECTORY: u32 = 11;
    pub(crate) const RENAME: u32 = 12;
    pub(crate) const LINK: u32 = 13;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const FILE_SYSTEM: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const SYNC: u32 = 20;
    pub(crate) const CLOSE: u32 = 25;
    pub(crate) const OPEN_DIRECTORY: u32 = 27;
    pub(crate) const READ_DIRECTORY: u32 = 28;
    pub(crate) const RELEASE_DIRECTORY: u32 = 29;
    pub(crate) const SYNC_DIRECTORY: u32 = 30;
    pub(crate) const ACCESS: u32 = 34;
    pub(crate) const CREATE: u32 = 35;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const FORGET_SEVERAL: u32 = 42;
    pub(crate) const ALLOCATE: u32 = 43;
    pub(crate) const RENAME_2: u32 = 45;
    pub(crate) const SEEK: u32 = 46;
}

/// What of a file's attributes is to change.
pub(super) mod change {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const USER: u32 = 1 << 1;
    pub(crate) const GROUP: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
}

/// How a file is opened.
pub(super) mod opened {
    /// The kernel keeps no copy of the data.
    pub(crate) const DIRECT_IO: u32 = 1 << 0;
    /// Several direct writes at once.
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// What `lseek` looks for, as the kernel says it.
pub(super) mod seek {
    pub(crate) const DATA: u32 = 3;
    pub(crate) const HOLE: u32 = 4;
}

/// Reads numbers out of a message, in order. Whoever reads beyond its end gets `None`.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().expect("four were cut off")))
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.bytes(8).map(|bytes| u64::from_ne_bytes(bytes.try_into().expect("eight were cut off")))
    }

    /// Passes over so many bytes.
    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes(count).map(|_| ())
    }

    /// A name, up to the zero that ends it.
    pub(super) fn name(&mut self) -> Option<&'a [u8]> {
        let end = self.0.iter().position(|byte| *byte == 0)?;
        self.bytes(end)
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }
}

/// Writes the numbers of an answer, in order.
#[derive(Default)]
pub(super) struct Answer(pub(super) Vec<u8>);

impl Answer {
    pub(super) fn u32(&mut self, value: u32) -> &mut Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }

    pub(super) fn u64(&mut self, value: u64) -> &mut Answer {
        self.0.extend_from_slice(&value.to_ne_bytes());
        self
    }
}

/// A file's or directory's attributes. Times are nanoseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) node: u64,
    pub(super) size_bytes: u64,
    /// Of 512 bytes.
    pub(super) blocks: u64,
    pub(super) modified_ns: u64,
    /// Kind and permissions, as in `st_mode`.
    pub(super) mode: u32,
    pub(super) links: u32,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) preferred_bytes: u32,
}

impl Attributes {
    pub(super) fn put(&self, answer: &mut Answer) {
        let (seconds, rest) = (
            self.modified_ns / io::units::SECOND_NS,
            (self.modified_ns % io::units::SECOND_NS) as u32,
        );
        answer.u64(self.node).u64(self.size_bytes).u64(self.blocks);
        // Last read, written, changed.
        answer.u64(seconds).u64(seconds).u64(seconds).u32(rest).u32(rest).u32(rest);
        answer.u32(self.mode).u32(self.links).u32(self.user).u32(self.group);
        // It is no device, and has no flags.
        answer.u32(0).u32(self.preferred_bytes).u32(0);
    }
}
