//! What a drive is told to do wrong.

use std::ops::Range;

use io::{ErrorKind, IoError};

use crate::model::{Kind, Request};

/// Misbehaviour of one drive, set by tests.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Kind of request, how many of them still fail, and how.
    next: Vec<(Kind, u64, ErrorKind)>,
    /// Byte ranges that cannot be read until they are written whole.
    unreadable: Vec<Range<u64>>,
    /// Storage behind the drive ends after this many bytes (thin or sparse drives).
    pub(crate) space_bytes: Option<u64>,
    /// Writes are refused.
    pub(crate) read_only: bool,
    /// Nothing works any more.
    pub(crate) dead: bool,
    /// Flushes say they are done and do nothing.
    pub(crate) lying_flush: bool,
}

impl Faults {
    pub(crate) fn fail_next(&mut self, kind: Kind, count: u64, error: ErrorKind) {
        self.next.push((kind, count, error));
    }

    pub(crate) fn unreadable(&mut self, range: Range<u64>) {
        self.unreadable.push(range);
    }

    /// The error this request ends with, if any. `allocated_bytes` would be in use after it.
    pub(crate) fn strike(
        &mut self,
        path: &str,
        request: &Request,
        allocated_bytes: u64,
    ) -> Option<IoError> {
        let Request { kind, at, length } = *request;
        let what = format_args!("{kind:?} of {length} bytes at {at} on {path}");
        if self.dead {
            let message = format!("{what}: the drive does not answer");
            return Some(IoError::new(ErrorKind::Disconnected, message));
        }
        let changes = matches!(kind, Kind::Write | Kind::Trim | Kind::WriteZeroes);
        if self.read_only && changes {
            return Some(IoError::new(
                ErrorKind::ReadOnly,
                format!("{what}: the drive is read-only"),
            ));
        }
        if let Some(index) = self.next.iter().position(|(next, ..)| *next == kind) {
            let (_, left, error) = &mut self.next[index];
            let error = IoError::new(*error, format!("{what}: made to fail"));
            *left = left.saturating_sub(1);
            if *left == 0 {
                self.next.remove(index);
            }
            return Some(error);
        }
        if kind == Kind::Write && self.space_bytes.is_some_and(|limit| allocated_bytes > limit) {
            let message = format!("{what}: no space left behind the drive");
            return Some(IoError::new(ErrorKind::NoSpace, message));
        }
        let touches = |bad: &Range<u64>| bad.start < at + length && at < bad.end;
        if kind == Kind::Read && self.unreadable.iter().any(touches) {
            return Some(IoError::new(ErrorKind::Io, format!("{what}: the medium cannot be read")));
        }
        if kind == Kind::Write {
            // A drive replaces a bad sector when it is written.
            self.unreadable.retain(|bad| !(at <= bad.start && bad.end <= at + length));
        }
        None
    }
}
