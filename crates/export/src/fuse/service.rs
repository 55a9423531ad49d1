//! Answers the file's requests on the executor.
//!
//! * Requests run at the same time, each in a task of its own; the bytes they hold in buffers are
//!   bounded by [`IN_FLIGHT_BYTES_MAX`], and beyond it the session threads wait.
//! * Byte ranges become whole sectors here: reads take the sectors around a range, changes
//!   rewrite the sectors at its edges (see [`Sectors`] for what keeps that safe).
//! * The end of the file is the end of the volume: reads stop there, writes that begin there fail
//!   with `ENOSPC` like on a block device, and writes across it are cut.

use std::collections::VecDeque;
use std::rc::Rc;

use fuser::Errno;
use io::units::{GIB, MIB};
use io::{
    Buf, Durability, ErrorKind, Gate, Io, IoError, Place, Receiver, Volume, VolumeInfo, ZeroMode,
};

use super::request::{Request, SeekTarget};
use super::sectors::Sectors;

/// Bytes of requests under way: 64 of the largest, enough for any drive's queue.
const IN_FLIGHT_BYTES_MAX: u64 = 64 * MIB;

/// What one look at the map covers while seeking, in bytes and runs; other tasks run in between.
const SEEK_WINDOW_BYTES: u64 = GIB;
const SEEK_SPANS: usize = 64;

/// The executor's side of the file.
pub(super) struct Service<V> {
    io: Io,
    volume: Rc<V>,
    info: VolumeInfo,
    sectors: Sectors,
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
    pub(super) fn new(io: Io, volume: Rc<V>) -> Service<V> {
        let info = volume.info();
        Service { io, volume, info, sectors: Sectors::default() }
    }

    /// Serves until the session has ended and everything is answered.
    pub(super) async fn run(self: Rc<Self>, mut requests: Receiver<Request>) {
        let gate = Gate::new(IN_FLIGHT_BYTES_MAX);
        let mut batch = VecDeque::new();
        while requests.receive_all(&mut batch).await {
            for request in batch.drain(..) {
                // Waiting here leaves the rest in the mailbox, whose bound stops the threads.
                let pass = gate.enter(request.buffer_bytes()).await;
                let service = self.clone();
                self.io.spawn(async move {
                    service.serve(request).await;
                    drop(pass);
                });
            }
        }
    }

    async fn serve(&self, request: Request) {
        match request {
            Request::Read { at, length, reply } => match self.read(at, length).await {
                Ok((buf, range)) => reply.data(&buf[range]),
                Err(error) => reply.error(errno(&error)),
            },
            Request::Write { at, data, durability, reply } => {
                match self.write(at, &data, durability).await {
                    Ok(count) => reply.written(count as u32),
                    Err(error) => reply.error(errno(&error)),
                }
            }
            Request::Flush { reply } => match self.volume.flush().await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            },
            Request::Zero { at, length, mode, reply } => match self.zero(at, length, mode).await {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(errno(&error)),
            },
            Request::Seek { at, target, reply } => match self.seek(at, target).await {
                Some(found) => reply.offset(found as i64),
                None => reply.error(Errno::ENXIO),
            },
        }
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
    async fn write(&self, at: u64, data: &[u8], durability: Durability) -> Result<usize, IoError> {
        let range = self.frame(at, data.len() as u64);
        let count = (range.end - range.at) as usize;
        if count == 0 {
            let beyond = IoError::new(ErrorKind::NoSpace, "write behind the end of the volume");
            return if data.is_empty() { Ok(0) } else { Err(beyond) };
        }
        let whole = range.is_whole();
        let _changing = self.sectors.change(range.frame_at, range.frame_end, !whole).await;
        let mut buf = self.io.pool().take(range.frame_bytes());
        if !whole {
            buf = self.read_edges(range, buf).await?;
        }
        buf[range.inner()].copy_from_slice(&data[..count]);
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
fn errno(error: &IoError) -> Errno {
    match error.kind {
        ErrorKind::Io | ErrorKind::Disconnected => Errno::EIO,
        ErrorKind::NoSpace => Errno::ENOSPC,
        ErrorKind::ReadOnly => Errno::EROFS,
        ErrorKind::Range => Errno::EINVAL,
        ErrorKind::Unsupported => Errno::EOPNOTSUPP,
    }
}
