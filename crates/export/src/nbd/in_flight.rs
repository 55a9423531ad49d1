//! Requests that are under way: what they still wait for, and the frames that answer them.
//!
//! * A request has one part per piece the volume takes in one call; most have one.
//! * Parts end in any order. A structured read sends each part as it ends. Everything else is
//!   answered when the last part has ended.
//! * The last frame of a request carries its [`Release`].

use io::{Buf, ErrorKind, IoError, Pool};

use super::crew::Done;
use super::outgoing::{Frame, Outgoing, Release};
use super::protocol::error;
use super::reply::{Head, error_payload};

/// How the data of a read leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// There is none: the reply is a head.
    Bare,
    /// One simple reply: nothing can be sent before everything has been read.
    Simple,
    /// One structured chunk.
    Whole,
    /// A structured chunk for each part.
    Chunks,
}

/// A request under way.
pub(super) struct Entry {
    pub(super) cookie: u64,
    pub(super) shape: Shape,
    /// Byte offset and length of the whole request.
    pub(super) at: u64,
    pub(super) length: u32,
    /// Parts that have not ended.
    pub(super) parts_left: u32,
    /// The first failure, if any.
    pub(super) failure: Option<IoError>,
    /// Parts of a read that must leave together, in order. Empty with a single part.
    pub(super) gathered: Vec<Option<Buf>>,
    pub(super) release: Release,
}

/// The requests of a connection, by index.
#[derive(Default)]
pub(super) struct InFlight {
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
}

impl InFlight {
    /// Files a request and gives its index.
    pub(super) fn insert(&mut self, entry: Entry) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some(entry);
            return index;
        }
        self.entries.push(Some(entry));
        (self.entries.len() - 1) as u32
    }

    /// Takes the end of one part and pushes the frames it makes possible.
    pub(super) fn end_part(
        &mut self,
        done: Done,
        structured: bool,
        pool: &Pool,
        out: &mut Outgoing,
    ) {
        let Done { ticket, buf, result } = done;
        let slot = &mut self.entries[ticket.request as usize];
        let entry = slot.as_mut().expect("a part ends while its request is under way");
        entry.parts_left -= 1;
        let last = entry.parts_left == 0;
        if entry.shape == Shape::Chunks {
            entry.send_chunk(ticket.at, buf, result, pool, out);
        } else {
            if let Err(failure) = result {
                entry.failure.get_or_insert(failure);
            }
            let lone = match entry.gathered.get_mut(ticket.part as usize) {
                Some(place) => {
                    *place = buf;
                    None
                }
                None => buf,
            };
            if last {
                entry.finish(lone, structured, pool, out);
            }
        }
        if last {
            *slot = None;
            self.free.push(ticket.request);
        }
    }
}

impl Entry {
    fn send_chunk(
        &mut self,
        at: u64,
        buf: Option<Buf>,
        result: Result<(), IoError>,
        pool: &Pool,
        out: &mut Outgoing,
    ) {
        let done = self.parts_left == 0;
        let release = if done { self.release } else { Release::default() };
        match (result, buf) {
            (Ok(()), Some(buf)) => {
                let head = Head::data(self.cookie, done, at, buf.len() as u32);
                out.push(Frame { head, body: Some(buf), release });
            }
            (result, _) => {
                let failure = result.err().unwrap_or_else(no_buffer);
                let error = error_number(&failure);
                let place = Some(at);
                let frame = error_frame(self.cookie, done, error, &failure.message, place, pool);
                out.push(Frame { release, ..frame });
            }
        }
    }

    fn finish(&mut self, lone: Option<Buf>, structured: bool, pool: &Pool, out: &mut Outgoing) {
        let release = self.release;
        if let Some(failure) = self.failure.take() {
            let error = error_number(&failure);
            let frame = if structured {
                error_frame(self.cookie, true, error, &failure.message, None, pool)
            } else {
                Frame { head: Head::simple(self.cookie, error), body: None, release }
            };
            out.push(Frame { release, ..frame });
            return;
        }
        let head = match self.shape {
            Shape::Whole => Head::data(self.cookie, true, self.at, self.length),
            _ => Head::simple(self.cookie, 0),
        };
        if self.gathered.is_empty() {
            out.push(Frame { head, body: lone, release });
            return;
        }
        let last = self.gathered.len() - 1;
        for (index, body) in self.gathered.drain(..).enumerate() {
            let head = if index == 0 { head } else { Head::EMPTY };
            let release = if index == last { release } else { Release::default() };
            out.push(Frame { head, body, release });
        }
    }
}

/// An error chunk, with the message for the client's log.
pub(super) fn error_frame(
    cookie: u64,
    done: bool,
    error: u32,
    message: &str,
    at: Option<u64>,
    pool: &Pool,
) -> Frame {
    let (kind, payload) = error_payload(error, message, at);
    payload_frame(cookie, done, kind, &payload, pool)
}

/// A chunk with a small payload.
pub(super) fn payload_frame(
    cookie: u64,
    done: bool,
    kind: u16,
    payload: &[u8],
    pool: &Pool,
) -> Frame {
    let mut body = pool.take(payload.len());
    body.copy_from_slice(payload);
    let head = Head::chunk(cookie, done, kind, payload.len() as u32);
    Frame { head, body: Some(body), release: Release::default() }
}

/// What the protocol calls a failure of the volume.
pub(super) fn error_number(failure: &IoError) -> u32 {
    match failure.kind {
        ErrorKind::Io | ErrorKind::Disconnected => error::EIO,
        ErrorKind::NoSpace => error::ENOSPC,
        ErrorKind::ReadOnly => error::EPERM,
        ErrorKind::Range => error::EINVAL,
        ErrorKind::Unsupported => error::ENOTSUP,
    }
}

fn no_buffer() -> IoError {
    IoError::new(ErrorKind::Io, "the volume kept the buffer of a read")
}
