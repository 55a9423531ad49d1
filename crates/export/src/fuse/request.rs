//! What the file's readers and writers ask of the volume, as it travels from a session thread to
//! the executor. Each carries the means to answer it; one that is dropped answers `EIO`.

use fuser::{ReplyData, ReplyEmpty, ReplyLseek, ReplyWrite};
use io::{Durability, ZeroMode};

use super::spare::Copied;

/// One request. Offsets and lengths are bytes, any alignment, not yet checked against the size.
pub(super) enum Request {
    Read { at: u64, length: u32, reply: ReplyData },
    Write { at: u64, data: Copied, durability: Durability, reply: ReplyWrite },
    Flush { reply: ReplyEmpty },
    Zero { at: u64, length: u64, mode: ZeroMode, reply: ReplyEmpty },
    Seek { at: u64, target: SeekTarget, reply: ReplyLseek },
}

/// What `lseek` looks for from an offset on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SeekTarget {
    Hole,
    Data,
}

impl Request {
    /// Bytes of buffer it needs while it is served.
    pub(super) fn buffer_bytes(&self) -> u64 {
        match self {
            Request::Read { length, .. } => u64::from(*length),
            Request::Write { data, .. } => data.len() as u64,
            Request::Flush { .. } | Request::Zero { .. } | Request::Seek { .. } => 0,
        }
    }
}
