//! What can go wrong in the world, said once: what was tried, where, and how it failed.

use std::fmt;

/// The kinds of failure the layers above treat differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The medium or the path to it failed (EIO and relatives).
    Io,
    /// No space was left behind a sparse file or thin device (ENOSPC, EDQUOT).
    NoSpace,
    /// The target refuses writes: a read-only file, or a volume that stopped itself.
    ReadOnly,
    /// The request lies outside the device or is not aligned as it must be.
    Range,
    /// The device or kernel cannot do this operation.
    Unsupported,
    /// The other end went away (end of a device, reset connection).
    Disconnected,
}

/// One failed operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IoError {
    /// How to treat it.
    pub kind: ErrorKind,
    /// Errno as the kernel gave it, 0 where there was none.
    pub errno: i32,
    /// What happened, where and, where known, what to do.
    pub message: String,
}

impl IoError {
    /// An error that did not come from the kernel.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> IoError {
        IoError { kind, errno: 0, message: message.into() }
    }

    /// Classifies a kernel error number; `context` says what was tried and where.
    pub fn from_errno(errno: i32, context: impl fmt::Display) -> IoError {
        let cause = std::io::Error::from_raw_os_error(errno);
        IoError { kind: kind_of(errno), errno, message: format!("{context}: {cause}") }
    }

    /// The same error with more said about where it happened.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> IoError {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

fn kind_of(errno: i32) -> ErrorKind {
    // Numbers are those of Linux on every architecture bimetal builds for; std has no names.
    match errno {
        28 | 122 => ErrorKind::NoSpace,            // ENOSPC, EDQUOT
        30 | 1 | 13 | 9 => ErrorKind::ReadOnly,    // EROFS, EPERM, EACCES, EBADF
        22 | 27 => ErrorKind::Range,               // EINVAL, EFBIG
        38 | 95 | 25 => ErrorKind::Unsupported,    // ENOSYS, EOPNOTSUPP, ENOTTY
        32 | 104 | 107 => ErrorKind::Disconnected, // EPIPE, ECONNRESET, ENOTCONN
        _ => ErrorKind::Io,
    }
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for IoError {}
