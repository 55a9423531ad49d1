//! What clients ask, kept for a while for somebody who fetches it.
//!
//! Off unless somebody records; then one entry per request, in a buffer that is bounded and loses the
//! newest when nobody empties it ([`Batch::lost`] says how many). It ends by itself when nobody has fetched
//! anything for [`PATIENCE_NS`], so that a recording that was left behind costs nothing.

use std::cell::{Cell, RefCell};

use io::Io;
use io::units::SECOND_NS;
use serde::{Deserialize, Serialize};

/// Entries that wait to be fetched: 24 MiB.
const ENTRIES_MAX: usize = 1 << 20;
/// Entries of one batch.
const BATCH_MAX: usize = 16 << 10;
/// Who has not fetched for so long has gone.
const PATIENCE_NS: u64 = 30 * SECOND_NS;

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum AskedKind {
    /// Data from the volume.
    #[serde(rename = "R")]
    Read,
    /// Data to it.
    #[serde(rename = "W")]
    Write,
    /// To make durable.
    #[serde(rename = "F")]
    Flush,
    /// To forget a range, or make it zeros.
    #[serde(rename = "D")]
    Discard,
}

/// A request: microseconds since the recording began, what, first byte, bytes.
pub type Asked = (u64, AskedKind, u64, u64);

/// Some of what was recorded.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Batch {
    /// In the order of the asking.
    pub requests: Vec<Asked>,
    /// Requests that found the buffer full, since the recording began.
    pub lost: u64,
    /// More is there to be fetched.
    pub more: bool,
}

/// See the head of the file.
pub(crate) struct Recorder {
    io: Io,
    is_on: Cell<bool>,
    recording: RefCell<Option<Recording>>,
}

struct Recording {
    began_ns: u64,
    fetched_ns: u64,
    requests: Vec<Asked>,
    lost: u64,
}

impl Recorder {
    pub(crate) fn new(io: Io) -> Recorder {
        Recorder { io, is_on: Cell::new(false), recording: RefCell::default() }
    }

    /// Begins, unless somebody else is at it.
    pub(crate) fn start(&self) -> bool {
        let now_ns = self.io.now_ns();
        self.end_if_forgotten(now_ns);
        let mut recording = self.recording.borrow_mut();
        if recording.is_some() {
            return false;
        }
        let (requests, lost) = (Vec::new(), 0);
        *recording = Some(Recording { began_ns: now_ns, fetched_ns: now_ns, requests, lost });
        self.is_on.set(true);
        true
    }

    /// What has come since the last time; `None` when nothing is recorded.
    pub(crate) fn fetch(&self) -> Option<Batch> {
        let mut recording = self.recording.borrow_mut();
        let recording = recording.as_mut()?;
        recording.fetched_ns = self.io.now_ns();
        let count = recording.requests.len().min(BATCH_MAX);
        let requests = recording.requests.drain(..count).collect();
        Some(Batch { requests, lost: recording.lost, more: !recording.requests.is_empty() })
    }

    /// Ends.
    pub(crate) fn stop(&self) {
        self.is_on.set(false);
        self.recording.take();
    }

    /// A request arrives.
    #[inline]
    pub(crate) fn note(&self, kind: AskedKind, at: u64, length: u64) {
        if self.is_on.get() {
            self.keep(kind, at, length);
        }
    }

    #[cold]
    fn keep(&self, kind: AskedKind, at: u64, length: u64) {
        let now_ns = self.io.now_ns();
        self.end_if_forgotten(now_ns);
        let mut recording = self.recording.borrow_mut();
        let Some(recording) = recording.as_mut() else { return };
        if recording.requests.len() < ENTRIES_MAX {
            let at_us = (now_ns - recording.began_ns) / 1000;
            recording.requests.push((at_us, kind, at, length));
        } else {
            recording.lost += 1;
        }
    }

    fn end_if_forgotten(&self, now_ns: u64) {
        let forgotten = self
            .recording
            .borrow()
            .as_ref()
            .is_some_and(|recording| now_ns > recording.fetched_ns + PATIENCE_NS);
        if forgotten {
            self.stop();
        }
    }
}
