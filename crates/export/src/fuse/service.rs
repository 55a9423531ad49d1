//! Takes the kernel's messages and answers them, on the executor.
//!
//! * Requests run at the same time, each in a task that takes another when it has ended; the bytes they hold in buffers are
//!   bounded by [`IN_FLIGHT_BYTES_MAX`], and beyond it messages stay with the kernel.
//! * Byte ranges become whole sectors here: reads take the sectors around a range, changes
//!   rewrite the sectors at its edges (see [`Sectors`] for what keeps that safe).
//! * The end of the file is the end of the volume: reads stop there, writes that begin there fail
//!   with `ENOSPC` like on a block device, and writes across it are cut.

use std::rc::Rc;

use io::units::{GIB, MIB};
use io::{
    Buf, Durability, ErrorKind, Gate, Hands, Io, IoError, Pass, Place, Volume, VolumeInfo, ZeroMode,
};

use super::connection::{Connection, Head, REQUEST_BYTES_MAX, Received};
use super::file_system::{FILE, FileSystem};
use super::protocol::WRITE_HEAD_BYTES;
use super::request::{Message, Request, SeekTarget};
use super::sectors::Sectors;

/// Bytes of requests under way: 64 of the largest, enough for any drive's queue.
const IN_FLIGHT_BYTES_MAX: u64 = 64 * MIB;

/// Of a write of more than this, the memory it was received into goes on to the drives. What is smaller is
/// copied into a buffer of its size, of which the pool has none between this and the largest.
const COPIED_BYTES_MAX: u32 = 256 << 10;

/// Messages, and bytes of them, taken before others may run: the first of many should be on
/// its way to a drive while the last is received, and who asks for names without end is not alone.
const TAKEN_MAX: u32 = 16;
const TAKEN_BYTES_MAX: u64 = 256 << 10;

/// Answers of so much go out one a round: what comes in meanwhile should be on its way to a drive while the next is copied.
const LARGE_ANSWER_BYTES_MIN: usize = 256 << 10;

/// What one look at the map covers while seeking, in bytes and runs; other tasks run in between.
const SEEK_WINDOW_BYTES: u64 = GIB;
const SEEK_SPANS: usize = 64;

/// The executor's side of the file.
pub(super) struct Service<V> {
    io: Io,
    volume: Rc<V>,
    info: VolumeInfo,
    connection: Connection,
    file_system: FileSystem,
    sectors: Sectors,
    /// One passes at a time.
    large_answers: Gate,
}

/// What is done in a task of its own. Offsets and lengths are bytes.
enum Work {
    Read { at: u64, length: u32 },
    Write { at: u64, data: Buf, durability: Durability },
    Flush,
    Zero { at: u64, length: u64, mode: ZeroMode },
    Seek { at: u64, target: SeekTarget },
}

/// A request on its way.
struct Job {
    number: u64,
    work: Work,
    pass: Pass,
}

/// A byte range and the whole sectors around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Framed {
    at: u64,
    end: u64,
    frame_at: u64,
    frame_end: u64,
}

impl Framed {
    fn is_whole(&self) -> bool {
        self.at == self.frame_at && self.end == self.frame_end
    }

    fn frame_bytes(&self) -> usize {
        (self.frame_end - self.frame_at) as usize
    }

    /// Where the range lies within its frame.
    fn inner(&self) -> std::ops::Range<usize> {
        (self.at - self.frame_at) as usize..(self.end - self.frame_at) as usize
    }
}

impl<V: Volume> Service<V> {
    pub(super) fn new(
        io: Io,
        volume: Rc<V>,
        connection: Connection,
        file_system: FileSystem,
    ) -> Service<V> {
        let info = volume.info();
        let sectors = Sectors::default();
        let large_answers = Gate::new(1);
        Service { io, volume, info, connection, file_system, sectors, large_answers }
    }

    /// Serves until the mount is gone.
    ///
    /// # Errors
    /// The kernel's driver behaves as none that is known.
    pub(super) async fn run(self: Rc<Self>) -> Result<(), IoError> {
        let gate = Gate::new(IN_FLIGHT_BYTES_MAX);
        let hands = {
            let service = self.clone();
            Hands::new(&self.io, move |Job { number, work, pass }| {
                let service = service.clone();
                async move {
                    service.serve(number, work).await;
                    drop(pass);
                }
            })
        };
        let mut head: Head = [0; WRITE_HEAD_BYTES];
        let mut rest = self.io.pool().take(REQUEST_BYTES_MAX as usize);
        let (mut taken, mut taken_bytes) = (0, 0);
        loop {
            if taken >= TAKEN_MAX || taken_bytes >= TAKEN_BYTES_MAX {
                self.io.yield_now().await;
                (taken, taken_bytes) = (0, 0);
            }
            let bytes = match self.connection.receive(&mut head, &mut rest)? {
                Received::Message(bytes) => bytes,
                Received::Over => return Ok(()),
                Received::Nothing => {
                    self.connection.readable().await?;
                    (taken, taken_bytes) = (0, 0);
                    continue;
                }
            };
            taken += 1;
            taken_bytes += bytes as u64;
            let front = &head[..bytes.min(WRITE_HEAD_BYTES)];
            let behind = &rest[..bytes.saturating_sub(WRITE_HEAD_BYTES)];
            let message = Message::parse(front);
            let request = message.map(|message| message.request);
            let whole;
            let message = match request {
                // Its data is no part of what is taken apart.
                Some(Request::Write { .. }) => message,
                _ if behind.is_empty() => message,
                _ => {
                    whole = [front, behind].concat();
                    Message::parse(&whole)
                }
            };
            let Some(Message { number, request }) = message else {
                let told = format!("the FUSE driver sent {bytes} bytes that are no message");
                return Err(IoError::new(ErrorKind::Io, told));
            };
            let received_bytes = behind.len();
            let (work, held_bytes) = match self.work_of(request, received_bytes, &mut rest) {
                Ok(Some(work)) => work,
                Ok(None) if request == Request::Forget => continue,
                Ok(None) => {
                    let answer = self.file_system.answer(request);
                    let outcome = answer.as_ref().map(|answer| &answer.0[..]);
                    self.connection.answer(number, outcome.map_err(|errno| *errno));
                    if request == Request::Destroy {
                        return Ok(());
                    }
                    continue;
                }
                Err(errno) => {
                    self.connection.answer(number, Err(errno));
                    continue;
                }
            };
            // Waiting here leaves the rest with the kernel.
            let pass = gate.enter(u64::from(held_bytes)).await;
            hands.give(Job { number, work, pass });
        }
    }

    /// What a request asks of the volume, if anything, and the memory that holds; an errno refuses it. Of what was
    /// received behind its head a write takes its data.
    fn work_of(
        &self,
        request: Request<'_>,
        received_bytes: usize,
        received: &mut Buf,
    ) -> Result<Option<(Work, u32)>, i32> {
        Ok(Some(match request {
            Request::Read { at, length } => {
                let length = length.min(REQUEST_BYTES_MAX);
                (Work::Read { at, length }, length)
            }
            Request::Write { length, .. } if received_bytes != length as usize => {
                return Err(libc::EINVAL);
            }
            Request::Write { at, length, durability } => {
                let (data, held_bytes) = self.keep(received, length);
                (Work::Write { at, data, durability }, held_bytes)
            }
            Request::Flush => (Work::Flush, 0),
            // The file would have to grow.
            Request::Zero { at, length, keeps_size: false, .. }
                if at + length > self.info.size_bytes =>
            {
                return Err(libc::ENOSPC);
            }
            Request::Zero { at, length, mode, .. } => (Work::Zero { at, length, mode }, 0),
            Request::Seek { node: FILE, at, target } => (Work::Seek { at, target }, 0),
            Request::Seek { .. } => return Err(libc::EINVAL),
            _ => return Ok(None),
        }))
    }

    /// The front of what was received, as a buffer of its own, and how much memory that holds.
    fn keep(&self, received: &mut Buf, length: u32) -> (Buf, u32) {
        if length > COPIED_BYTES_MAX {
            let fresh = self.io.pool().take(REQUEST_BYTES_MAX as usize);
            let mut kept = std::mem::replace(received, fresh);
            kept.truncate(length as usize);
            return (kept, REQUEST_BYTES_MAX);
        }
        let mut copy = self.io.pool().take(length as usize);
        copy.copy_from_slice(&received[..length as usize]);
        (copy, length)
    }

    async fn serve(&self, number: u64, work: Work) {
        let connection = &self.connection;
        let done = match work {
            Work::Read { at, length } => match self.read(at, length).await {
                Ok((buf, range)) if range.len() < LARGE_ANSWER_BYTES_MIN => {
                    return connection.answer(number, Ok(&buf[range]));
                }
                Ok((buf, range)) => {
                    let _turn = self.large_answers.enter(1).await;
                    connection.answer(number, Ok(&buf[range]));
                    return self.io.yield_now().await;
                }
                Err(error) => Err(error),
            },
            Work::Write { at, data, durability } => {
                self.file_system.note_write();
                match self.write(at, data, durability).await {
                    Ok(count) => {
                        let mut answer = [0; 8];
                        answer[..4].copy_from_slice(&(count as u32).to_ne_bytes());
                        return connection.answer(number, Ok(&answer));
                    }
                    Err(error) => Err(error),
                }
            }
            Work::Flush => self.volume.flush().await,
            Work::Zero { at, length, mode } => {
                self.file_system.note_write();
                self.zero(at, length, mode).await
            }
            Work::Seek { at, target } => match self.seek(at, target).await {
                Some(found) => return connection.answer(number, Ok(&found.to_ne_bytes())),
                None => return connection.answer(number, Err(libc::ENXIO)),
            },
        };
        connection.answer(number, done.map(|()| &[][..]).map_err(|error| errno(&error)));
    }

    /// The range cut at the end of the volume, with the sectors around it.
    fn frame(&self, at: u64, length: u64) -> Framed {
        let size = self.info.size_bytes;
        let sector = u64::from(self.info.sector_bytes);
        let at = at.min(size);
        let end = at.saturating_add(length).min(size);
        let frame_at = at - at % sector;
        // The size is a multiple of the sector, so rounding up stays inside.
        Framed { at, end, frame_at, frame_end: end.next_multiple_of(sector) }
    }

    /// The bytes of the range, as a part of the buffer.
    async fn read(&self, at: u64, length: u32) -> Result<(Buf, std::ops::Range<usize>), IoError> {
        let range = self.frame(at, u64::from(length));
        if range.at == range.end {
            return Ok((self.io.pool().take(0), 0..0));
        }
        let buf = self.io.pool().take(range.frame_bytes());
        let (buf, outcome) = self.read_sectors(range.frame_at, buf).await;
        outcome.map(|()| (buf, range.inner()))
    }

    /// How many bytes were written: all, unless the end of the volume is in the way.
    async fn write(&self, at: u64, data: Buf, durability: Durability) -> Result<usize, IoError> {
        let range = self.frame(at, data.len() as u64);
        let count = (range.end - range.at) as usize;
        if count == 0 {
            let beyond = IoError::new(ErrorKind::NoSpace, "write behind the end of the volume");
            return if data.is_empty() { Ok(0) } else { Err(beyond) };
        }
        let whole = range.is_whole();
        let _changing = self.sectors.change(range.frame_at, range.frame_end, !whole).await;
        let mut buf = data;
        if whole {
            buf.truncate(count);
        } else {
            let frame = self.io.pool().take(range.frame_bytes());
            let mut frame = self.read_edges(range, frame).await?;
            frame[range.inner()].copy_from_slice(&buf[..count]);
            buf = frame;
        }
        self.write_sectors(range.frame_at, buf, durability).await.map(|()| count)
    }

    /// Fills the sectors of the frame that the range covers only in part.
    async fn read_edges(&self, range: Framed, mut buf: Buf) -> Result<Buf, IoError> {
        let sector = self.info.sector_bytes as usize;
        let last_at = range.frame_end - sector as u64;
        let front_cut = range.at != range.frame_at;
        let back_cut = range.end != range.frame_end;
        let mut edges = [front_cut.then_some(range.frame_at), back_cut.then_some(last_at)];
        if edges[0] == edges[1] {
            edges[1] = None;
        }
        for edge in edges.into_iter().flatten() {
            let (old, outcome) = self.volume.read(edge, self.io.pool().take(sector)).await;
            outcome?;
            let place = (edge - range.frame_at) as usize;
            buf[place..place + sector].copy_from_slice(&old);
        }
        Ok(buf)
    }

    async fn zero(&self, at: u64, length: u64, mode: ZeroMode) -> Result<(), IoError> {
        let range = self.frame(at, length);
        if range.at == range.end {
            return Ok(());
        }
        let sector = u64::from(self.info.sector_bytes);
        let whole = range.is_whole();
        let _changing = self.sectors.change(range.frame_at, range.frame_end, !whole).await;
        // Whole sectors first, then the cut ones at the edges.
        let inner_at = range.at.next_multiple_of(sector);
        let inner_end = range.end - range.end % sector;
        if inner_at < inner_end {
            let length = inner_end - inner_at;
            self.volume.write_zeroes(inner_at, length, mode, Durability::Volatile).await?;
        }
        let front =
            (range.at < inner_at).then(|| (range.frame_at, range.at, range.end.min(inner_at)));
        // A range inside one sector is all front.
        let back = (range.end > inner_end && inner_end >= inner_at)
            .then_some((inner_end, inner_end, range.end));
        for (sector_at, from, to) in [front, back].into_iter().flatten() {
            let (mut buf, outcome) =
                self.volume.read(sector_at, self.io.pool().take(sector as usize)).await;
            outcome?;
            buf[(from - sector_at) as usize..(to - sector_at) as usize].fill(0);
            self.volume.write(sector_at, buf, Durability::Volatile).await.1?;
        }
        Ok(())
    }

    /// The first byte from `at` on that is what is looked for; `None` when there is none.
    async fn seek(&self, at: u64, target: SeekTarget) -> Option<u64> {
        let size = self.info.size_bytes;
        if at >= size {
            return None;
        }
        let sector = u64::from(self.info.sector_bytes);
        let mut position = at - at % sector;
        while position < size {
            let window = SEEK_WINDOW_BYTES.min(size - position);
            let spans = self.volume.places(position, window, SEEK_SPANS);
            assert!(!spans.is_empty(), "places cover at least the front of what was asked");
            for span in spans {
                let is_hole = span.place == Place::Hole;
                if is_hole == (target == SeekTarget::Hole) {
                    return Some(position.max(at));
                }
                position += span.length;
            }
            self.io.yield_now().await;
        }
        // The end of a file counts as a hole.
        (target == SeekTarget::Hole).then_some(size)
    }

    /// Reads whole sectors, in as many calls as the volume's largest transfer asks for.
    async fn read_sectors(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        let most = self.info.transfer_bytes_max as usize;
        if buf.len() <= most {
            return self.volume.read(at, buf).await;
        }
        let mut rest = buf;
        let mut done: Option<Buf> = None;
        let mut position = at;
        while !rest.is_empty() {
            let part = rest.split_to(most.min(rest.len()));
            let length = part.len() as u64;
            let (part, outcome) = self.volume.read(position, part).await;
            if outcome.is_err() {
                return (part, outcome);
            }
            match &mut done {
                Some(front) => front.unsplit(part),
                None => done = Some(part),
            }
            position += length;
        }
        (done.unwrap_or(rest), Ok(()))
    }

    /// Writes whole sectors likewise.
    async fn write_sectors(
        &self,
        at: u64,
        buf: Buf,
        durability: Durability,
    ) -> Result<(), IoError> {
        let most = self.info.transfer_bytes_max as usize;
        let mut rest = buf;
        let mut position = at;
        while rest.len() > most {
            let part = rest.split_to(most);
            self.volume.write(position, part, durability).await.1?;
            position += most as u64;
        }
        self.volume.write(position, rest, durability).await.1
    }
}

/// What a client of the file is told. The numbers of the drives stay inside: a client could take
/// an `ENOTCONN` of a slow drive for the state of its own mount.
fn errno(error: &IoError) -> i32 {
    match error.kind {
        ErrorKind::Io | ErrorKind::Disconnected => libc::EIO,
        ErrorKind::NoSpace => libc::ENOSPC,
        ErrorKind::ReadOnly => libc::EROFS,
        ErrorKind::Range => libc::EINVAL,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
    }
}
