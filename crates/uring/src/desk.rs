//! The operations under way: what each still needs from the kernel, and how it ended.
//!
//! The desk checks an operation, turns it into a [`Call`], judges each outcome, and asks for the
//! rest after a short one. Carriers (the ring, the threads) only carry calls out. So both have
//! the same checks, the same retries and the same words for what went wrong.
//!
//! Invariants:
//! * The buffer of an operation stays here, untouched, from its first call to its end; the
//!   pointers in calls lead into it.
//! * Operation numbers come from the executor's table: dense, and unique while under way.
//! * An admitted operation ends exactly once, in `ended`.

use std::os::fd::{FromRawFd, OwnedFd, RawFd};

use io::{Buf, Completed, DeviceId, ErrorKind, IoError, Op, OpId, SocketId};

use crate::drive::Drive;
use crate::foreign;
use crate::sockets::{Role, Sockets};

/// How often one operation is tried again after an interruption before its error is believed.
/// The kernel asks for a retry once or twice; a thousand in a row is a fault.
const RETRIES_MAX: u32 = 1000;

/// A drive's descriptor, as calls name it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FileRef {
    pub(crate) fd: RawFd,
    /// Its place in the ring's table of registered files, where it has one.
    pub(crate) registered: Option<u32>,
    /// A block device, not a file.
    pub(crate) block: bool,
}

/// One thing to ask of the kernel. Offsets and lengths are bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Read {
        file: FileRef,
        at: u64,
        memory: *mut u8,
        length: usize,
    },
    ReadLent {
        file: FileRef,
        at: u64,
        slot: u16,
        /// Where in the lent memory.
        from: usize,
        length: usize,
    },
    Write {
        file: FileRef,
        at: u64,
        memory: *mut u8,
        length: usize,
    },
    Flush {
        file: FileRef,
    },
    Trim {
        file: FileRef,
        at: u64,
        length: u64,
    },
    WriteZeroes {
        file: FileRef,
        at: u64,
        length: u64,
    },
    Accept {
        fd: RawFd,
    },
    Receive {
        fd: RawFd,
        memory: *mut u8,
        length: usize,
    },
    Send {
        fd: RawFd,
        memory: *mut u8,
        length: usize,
    },
    /// Until there is something to read; taking an event's count is the desk's part.
    Wait {
        fd: RawFd,
    },
    Raise {
        fd: RawFd,
    },
    Command {
        fd: RawFd,
        code: u32,
        payload: [u8; 16],
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Read,
    ReadLent,
    Write,
    Flush,
    Trim,
    WriteZeroes,
    Accept,
    Receive,
    Send,
    Wait,
    Raise,
    Command,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Verb::Read | Verb::ReadLent => "read",
            Verb::Write => "write",
            Verb::Flush => "flush",
            Verb::Trim => "trim",
            Verb::WriteZeroes => "zeroing",
            Verb::Accept => "accept",
            Verb::Receive => "receive",
            Verb::Send => "send",
            Verb::Wait => "wait",
            Verb::Raise => "raise",
            Verb::Command => "command",
        }
    }

    /// Or for other descriptors that are kept with them.
    fn is_for_sockets(self) -> bool {
        match self {
            Verb::Read | Verb::ReadLent => false,
            Verb::Write | Verb::Flush | Verb::Trim | Verb::WriteZeroes => false,
            Verb::Accept | Verb::Receive | Verb::Send => true,
            Verb::Wait | Verb::Raise | Verb::Command => true,
        }
    }

    /// Whether it moves a number of bytes, so that none of them means nothing to do.
    fn is_sized(self) -> bool {
        !matches!(self, Verb::Flush | Verb::Accept | Verb::Wait | Verb::Raise | Verb::Command)
    }

    /// Whether it waits for what others do, and ends when its descriptor is shut down.
    fn is_patient(self) -> bool {
        matches!(self, Verb::Accept | Verb::Wait)
    }
}

/// One operation under way.
struct Flight {
    verb: Verb,
    /// The device's or socket's number, as `verb` says.
    target: u32,
    at: u64,
    length: u64,
    /// Bytes of `length` done so far.
    moved: u64,
    retries: u32,
    buf: Option<Buf>,
    /// Of lent memory, its number.
    slot: u16,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Desk {
    pub(crate) drives: Vec<Drive>,
    pub(crate) sockets: Sockets,
    /// By operation number.
    flights: Vec<Option<Flight>>,
    /// Operations on drives under way.
    on_drives: usize,
    /// Ended, and not yet handed to the executor.
    pub(crate) ended: Vec<Completed>,
}

impl Desk {
    /// Takes an operation: gives its first call, or none when it has ended already.
    pub(crate) fn admit(&mut self, id: OpId, op: Op) -> Option<Call> {
        // Commands are given once: what they say need not be kept.
        let mut order = None;
        let flight = match op {
            Op::Read { device, at, buf } => transfer(Verb::Read, device.0, at, buf),
            Op::ReadLent { device, at, memory } => {
                let length = u64::from(memory.bytes);
                Flight { slot: memory.slot, ..command(Verb::ReadLent, device, at, length) }
            }
            Op::Write { device, at, buf } => transfer(Verb::Write, device.0, at, buf),
            Op::Flush { device } => command(Verb::Flush, device, 0, 0),
            Op::Trim { device, at, length } => command(Verb::Trim, device, at, length),
            Op::WriteZeroes { device, at, length } => {
                command(Verb::WriteZeroes, device, at, length)
            }
            Op::Accept { listener } => command(Verb::Accept, DeviceId(listener.0), 0, 0),
            Op::Receive { socket, buf } => transfer(Verb::Receive, socket.0, 0, buf),
            Op::Send { socket, buf } => transfer(Verb::Send, socket.0, 0, buf),
            Op::Wait { event } => command(Verb::Wait, DeviceId(event.0), 0, 0),
            Op::Raise { event } => command(Verb::Raise, DeviceId(event.0), 0, 0),
            Op::Command { driver, code, payload } => {
                order = Some((code, payload));
                command(Verb::Command, DeviceId(driver.0), 0, 0)
            }
        };
        let index = id.0 as usize;
        if index >= self.flights.len() {
            self.flights.resize_with(index + 1, || None);
        }
        if flight.verb.is_for_sockets() {
            self.sockets.enter(SocketId(flight.target));
        } else {
            self.on_drives += 1;
        }
        assert!(self.flights[index].is_none(), "operation {index} is under way already");
        let refusal = self.refusal(&flight);
        let trivial = flight.length == 0 && flight.verb.is_sized();
        let target = SocketId(flight.target);
        self.flights[index] = Some(flight);
        match refusal {
            Some(error) => self.end(id, Err(error)),
            None if trivial => self.end(id, Ok(0)),
            None => {
                return Some(match order {
                    Some((code, payload)) => {
                        Call::Command { fd: self.sockets.fd(target), code, payload }
                    }
                    None => self.call(id),
                });
            }
        }
        None
    }

    /// Judges the outcome of an operation's call, a count or a negative errno: gives the next
    /// call, or none when the operation has ended.
    pub(crate) fn settle(&mut self, id: OpId, outcome: i64) -> Option<Call> {
        let sector_bytes = self.sector_bytes(id);
        let flight = self.flight(id);
        let verb = flight.verb;
        if outcome < 0 {
            let errno = -outcome as i32;
            let again = match errno {
                // A flush that failed is never tried again: the kernel reports lost writes once,
                // and the second flush would call them safe.
                _ if verb == Verb::Flush => false,
                // The driver has its own idea of when a command may be given again.
                _ if verb == Verb::Command => false,
                // Its counter is full, so whoever waits for it is awake.
                libc::EAGAIN if verb == Verb::Raise => {
                    self.end(id, Ok(0));
                    return None;
                }
                libc::EINTR | libc::EAGAIN => true,
                // The client gave up while it waited in the backlog: no reason to stop listening.
                libc::ECONNABORTED => verb == Verb::Accept,
                _ => false,
            };
            if again && flight.retries < RETRIES_MAX && !self.is_shut(id) {
                self.flight(id).retries += 1;
                return Some(self.call(id));
            }
            let error = self.failure(id, errno);
            self.end(id, Err(error));
            return None;
        }
        let count = outcome as u64;
        match verb {
            Verb::Flush => self.end(id, Ok(0)),
            Verb::Receive | Verb::Command => self.end(id, Ok(count)),
            Verb::Raise => self.end(id, Ok(0)),
            Verb::Wait => match self.take_count(id) {
                Ok(count) => self.end(id, Ok(count)),
                // Somebody else was faster.
                Err(libc::EAGAIN | libc::EINTR) if !self.is_shut(id) => return Some(self.call(id)),
                Err(errno) => {
                    let error = self.failure(id, errno);
                    self.end(id, Err(error));
                }
            },
            Verb::Accept => {
                let result = self.accepted(id, outcome as RawFd);
                self.end(id, result);
            }
            Verb::Read
            | Verb::ReadLent
            | Verb::Write
            | Verb::Trim
            | Verb::WriteZeroes
            | Verb::Send => {
                // What a drive moved of a last, partial sector is moved again with the rest.
                let whole = flight.moved + count;
                let moved = if whole >= flight.length { whole } else { floor(whole, sector_bytes) };
                let progress = moved > flight.moved;
                flight.moved = moved;
                if moved >= flight.length {
                    let result = if verb == Verb::Send { Ok(moved) } else { Ok(flight.length) };
                    self.end(id, result);
                } else if progress {
                    return Some(self.call(id));
                } else {
                    let error = self.stuck(id);
                    self.end(id, Err(error));
                }
            }
        }
        None
    }

    /// Ends an operation that could not be carried out.
    pub(crate) fn fail(&mut self, id: OpId, error: IoError) {
        let place = self.place(id);
        self.end(id, Err(error.within(place)));
    }

    /// What waits for others on a listener or event.
    pub(crate) fn waits_on(&self, socket: SocketId) -> Vec<OpId> {
        let waits = |flight: &Flight| flight.verb.is_patient() && flight.target == socket.0;
        let taken = self.flights.iter().enumerate();
        taken
            .filter(|(_, flight)| flight.as_ref().is_some_and(waits))
            .map(|(index, _)| OpId(index as u32))
            .collect()
    }

    /// Operations whose end must be waited for before the world may go. Commands need not be: they
    /// hold no memory of ours, drivers answer them when it suits them, and learn from the end of
    /// the carrier that nobody waits.
    pub(crate) fn holding(&self) -> usize {
        let holds = |flight: &&Flight| flight.verb != Verb::Command;
        self.flights.iter().flatten().filter(holds).count()
    }

    /// How many of the operations under way are a drive's.
    pub(crate) fn drive_operations(&self) -> usize {
        self.on_drives
    }

    /// Gives up what is under way without freeing its buffers or closing its drives: the last
    /// resort when the kernel or a thread may still use them.
    pub(crate) fn abandon(&mut self) {
        std::mem::forget(std::mem::take(&mut self.flights));
        std::mem::forget(std::mem::take(&mut self.drives));
    }

    fn flight(&mut self, id: OpId) -> &mut Flight {
        self.flights[id.0 as usize].as_mut().expect("carriers settle operations under way only")
    }

    fn call(&mut self, id: OpId) -> Call {
        let flight =
            self.flights[id.0 as usize].as_mut().expect("carriers work on what is under way");
        let (at, rest) = (flight.at + flight.moved, flight.length - flight.moved);
        let memory = match &mut flight.buf {
            // In bounds: `moved` is below the length of the buffer.
            Some(buf) => buf[flight.moved as usize..].as_mut_ptr(),
            None => std::ptr::null_mut(),
        };
        let length = rest as usize;
        if flight.verb.is_for_sockets() {
            let fd = self.sockets.fd(SocketId(flight.target));
            return match flight.verb {
                Verb::Accept => Call::Accept { fd },
                Verb::Receive => Call::Receive { fd, memory, length },
                Verb::Wait => Call::Wait { fd },
                Verb::Raise => Call::Raise { fd },
                _ => Call::Send { fd, memory, length },
            };
        }
        let file = self.drives[flight.target as usize].file;
        match flight.verb {
            Verb::Read => Call::Read { file, at, memory, length },
            Verb::ReadLent => {
                Call::ReadLent { file, at, slot: flight.slot, from: flight.moved as usize, length }
            }
            Verb::Write => Call::Write { file, at, memory, length },
            Verb::Trim => Call::Trim { file, at, length: rest },
            Verb::WriteZeroes => Call::WriteZeroes { file, at, length: rest },
            _ => Call::Flush { file },
        }
    }

    /// Why an operation must not start, if so.
    fn refusal(&mut self, flight: &Flight) -> Option<IoError> {
        if flight.verb.is_patient() && self.sockets.is_shut(SocketId(flight.target)) {
            return Some(self.shut_error(flight.verb, SocketId(flight.target)));
        }
        if flight.verb.is_for_sockets() || flight.verb == Verb::Flush {
            return None;
        }
        let drive = &self.drives[flight.target as usize];
        let info = &drive.info;
        let place = || place_on_drive(flight, drive);
        let end = flight.at.checked_add(flight.length);
        if end.is_none_or(|end| end > info.size_bytes) {
            let message = format!("{} goes beyond its {} bytes", place(), info.size_bytes);
            return Some(IoError::new(ErrorKind::Range, message));
        }
        let sector_bytes = u64::from(info.sector_bytes);
        if !flight.at.is_multiple_of(sector_bytes) || !flight.length.is_multiple_of(sector_bytes) {
            let message = format!("{} is not in whole sectors of {sector_bytes} bytes", place());
            return Some(IoError::new(ErrorKind::Range, message));
        }
        let memory = flight.buf.as_ref().map_or(0, |buf| buf.as_ptr() as usize);
        if !memory.is_multiple_of(drive.memory_align_bytes as usize) {
            let align = drive.memory_align_bytes;
            let message = format!("{}: its buffer is not aligned to {align} bytes", place());
            return Some(IoError::new(ErrorKind::Range, message));
        }
        if info.read_only && !matches!(flight.verb, Verb::Read | Verb::ReadLent) {
            let message = format!("{}: it was opened for reading only", place());
            return Some(IoError::new(ErrorKind::ReadOnly, message));
        }
        None
    }

    /// What a call's progress is counted in: sectors on a drive, bytes elsewhere.
    fn sector_bytes(&mut self, id: OpId) -> u64 {
        let (verb, target) = (self.flight(id).verb, self.flight(id).target);
        if verb.is_for_sockets() {
            return 1;
        }
        u64::from(self.drives[target as usize].info.sector_bytes)
    }

    fn accepted(&mut self, id: OpId, fd: RawFd) -> Result<u64, IoError> {
        // SAFETY: the kernel has just made this descriptor for us; nobody else knows it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let listener = SocketId(self.flight(id).target);
        let label = match crate::listen::prepare_accepted(&fd) {
            Some(peer) => format!("connection from {peer}").into(),
            None => self.sockets.label(listener),
        };
        Ok(u64::from(self.sockets.add(fd, Role::Stream, label).0))
    }

    fn take_count(&mut self, id: OpId) -> Result<u64, i32> {
        let event = SocketId(self.flight(id).target);
        match self.sockets.role(event) {
            Role::Watched => Ok(0),
            _ => foreign::take_count(self.sockets.fd(event)),
        }
    }

    fn is_shut(&mut self, id: OpId) -> bool {
        let (verb, target) = (self.flight(id).verb, self.flight(id).target);
        verb.is_patient() && self.sockets.is_shut(SocketId(target))
    }

    fn shut_error(&mut self, verb: Verb, socket: SocketId) -> IoError {
        let (verb, label) = (verb.name(), self.sockets.label(socket));
        IoError::new(ErrorKind::Disconnected, format!("{verb} on {label}: it was shut down"))
    }

    #[cold]
    fn failure(&mut self, id: OpId, errno: i32) -> IoError {
        if self.is_shut(id) {
            let (verb, socket) = (self.flight(id).verb, SocketId(self.flight(id).target));
            return self.shut_error(verb, socket);
        }
        IoError::from_errno(errno, self.place(id))
    }

    /// No error, and no progress either.
    #[cold]
    fn stuck(&mut self, id: OpId) -> IoError {
        let (place, verb) = (self.place(id), self.flight(id).verb);
        let at = self.flight(id).at + self.flight(id).moved;
        match verb {
            Verb::Read | Verb::ReadLent => IoError::new(
                ErrorKind::Disconnected,
                format!("{place}: it ends at {at}, it has become shorter since it was opened"),
            ),
            _ => IoError::new(ErrorKind::Io, format!("{place}: no progress beyond {at}")),
        }
    }

    #[cold]
    fn place(&mut self, id: OpId) -> String {
        let (verb, target) = (self.flight(id).verb, self.flight(id).target);
        if verb.is_for_sockets() {
            return format!("{} on {}", verb.name(), self.sockets.label(SocketId(target)));
        }
        let drive = &self.drives[target as usize];
        let flight = self.flights[id.0 as usize].as_ref().expect("looked at above");
        place_on_drive(flight, drive)
    }

    fn end(&mut self, id: OpId, result: Result<u64, IoError>) {
        let flight = self.flights[id.0 as usize].take().expect("an operation ends once");
        match flight.verb.is_for_sockets() {
            true => self.sockets.leave(SocketId(flight.target)),
            false => self.on_drives -= 1,
        }
        self.ended.push(Completed { id, buf: flight.buf, result });
    }
}

fn transfer(verb: Verb, target: u32, at: u64, buf: Buf) -> Flight {
    Flight {
        verb,
        target,
        at,
        length: buf.len() as u64,
        moved: 0,
        retries: 0,
        buf: Some(buf),
        slot: 0,
    }
}

fn command(verb: Verb, target: DeviceId, at: u64, length: u64) -> Flight {
    Flight { verb, target: target.0, at, length, moved: 0, retries: 0, buf: None, slot: 0 }
}

/// `value` rounded down to a multiple of `unit`.
fn floor(value: u64, unit: u64) -> u64 {
    value - value % unit
}

#[cold]
fn place_on_drive(flight: &Flight, drive: &Drive) -> String {
    let (verb, path) = (flight.verb.name(), &drive.info.path);
    if flight.verb == Verb::Flush {
        return format!("{verb} of {path}");
    }
    format!("{verb} of {} bytes at {} on {path}", flight.length, flight.at)
}

#[cfg(test)]
mod tests;
