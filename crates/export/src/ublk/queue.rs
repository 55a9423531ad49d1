//! The queues of a device: each place of each queue is a task that fetches a request, carries it
//! out, and ends it with the same command that fetches the next.
//!
//! What all tasks submit in a round reaches the kernel in one call, and data is copied by one call
//! a request (it only copies: nothing waits in it).

use std::cell::Cell;
use std::fs::File;
use std::ptr::NonNull;
use std::rc::Rc;

use io::units::MIB;
use io::{Buf, Driver, Durability, Gate, Io, IoError, Lent, Place, Volume, WaitList, ZeroMode};
use rustix::mm::{MapFlags, ProtFlags};

use super::uapi::{self, DeviceInfo, Request, SECTOR_BYTES, feature, flag, kind, place};

/// Reads of so much are worth the two commands of a loan; what is smaller is copied faster. (docs/ublk.md)
const LENT_BYTES_MIN: u64 = 16 << 10;

/// Bytes in buffers at a time, of all queues: 64 of the largest requests, enough for any drive's queue. Beyond it
/// requests wait.
const IN_FLIGHT_BYTES_MAX: u64 = 64 * MIB;

/// The requests of one queue, in memory that the driver writes and we read.
struct Requests {
    base: NonNull<Request>,
    bytes: usize,
}

impl Requests {
    fn map(file: &File, queue: u16, depth: u16) -> Result<Requests, IoError> {
        let page_bytes = page_bytes();
        let bytes = (usize::from(depth) * size_of::<Request>()).next_multiple_of(page_bytes);
        let at = uapi::requests_at(queue, page_bytes);
        // SAFETY: a new mapping of the driver's memory, at no address of ours.
        let base = unsafe {
            let (read, shared) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::POPULATE);
            rustix::mm::mmap(std::ptr::null_mut(), bytes, read, shared, file, at)
        };
        let base = base.map_err(|e| {
            IoError::from_errno(e.raw_os_error(), format!("the requests of ublk queue {queue}"))
        })?;
        let base = NonNull::new(base.cast()).expect("a mapping is nowhere at zero");
        Ok(Requests { base, bytes })
    }

    fn get(&self, tag: u16) -> Request {
        assert!(usize::from(tag) * size_of::<Request>() < self.bytes);
        // SAFETY: inside the mapping, and aligned like an array. The driver writes a request before
        // it answers the fetch, and not again before the request has ended; volatile, because it
        // writes behind the compiler's back.
        unsafe { self.base.add(usize::from(tag)).read_volatile() }
    }
}

impl Drop for Requests {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with the same length; copies of requests do not refer to it.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// What the queues of a device share.
pub(super) struct Queues<V> {
    io: Io,
    volume: Rc<V>,
    driver: Driver,
    file: File,
    depth: u16,
    requests: Vec<Requests>,
    /// Where the memory of the first place goes when it is lent; `None` where it cannot be.
    first_slot: Cell<Option<u16>>,
    crowd: Rc<Crowd>,
    /// Whoever takes a buffer passes it.
    gate: Gate,
}

/// How many places are served, and how many of them have a request.
#[derive(Default)]
pub(super) struct Crowd {
    places: Cell<usize>,
    busy: Cell<usize>,
    /// Requests that come are left to the next server.
    leaving: Cell<bool>,
    /// Reads that needed no copy, where the driver lends what they need.
    uncopied: Cell<Option<u64>>,
    changed: WaitList,
}

impl Crowd {
    /// Waits until all places have ended, which the driver brings about.
    pub(super) async fn ended(&self) {
        self.changed.until(|| (self.places.get() == 0).then_some(())).await;
    }

    /// Begins no request any more and waits for those under way.
    pub(super) async fn leave(&self) {
        self.leaving.set(true);
        self.changed.until(|| (self.busy.get() == 0).then_some(())).await;
    }

    pub(super) fn uncopied_reads(&self) -> Option<u64> {
        self.uncopied.get()
    }

    fn count(&self, counter: &Cell<usize>, more: bool) {
        counter.set(if more { counter.get() + 1 } else { counter.get() - 1 });
        if !more {
            self.changed.wake_all();
        }
    }
}

impl<V: Volume> Queues<V> {
    /// Maps the requests of every queue.
    pub(super) fn new(
        io: Io,
        volume: Rc<V>,
        file: File,
        device: &DeviceInfo,
    ) -> Result<Queues<V>, IoError> {
        let (queues, depth) = (device.queues, device.queue_depth);
        let requests = (0..queues).map(|queue| Requests::map(&file, queue, depth));
        let requests = requests.collect::<Result<Vec<_>, IoError>>()?;
        let clone = file.try_clone();
        let clone = clone.map_err(|e| {
            IoError::from_errno(e.raw_os_error().unwrap_or(0), "a second handle of a ublk device")
        })?;
        let driver = Driver::adopt(&io, clone.into())?;
        let slots = io.lent_slots();
        let lends = device.features & feature::LENDS != 0
            && slots.len() >= usize::from(queues) * usize::from(depth);
        let first_slot = Cell::new(lends.then_some(slots.start));
        let gate = Gate::new(IN_FLIGHT_BYTES_MAX);
        let crowd = Crowd { uncopied: Cell::new(lends.then_some(0)), ..Crowd::default() };
        Ok(Queues {
            io,
            volume,
            driver,
            file,
            depth,
            requests,
            first_slot,
            crowd: Rc::new(crowd),
            gate,
        })
    }

    /// Serves every place of every queue, each in a task.
    pub(super) fn serve(self) -> Rc<Crowd> {
        let queues = Rc::new(self);
        let crowd = queues.crowd.clone();
        for queue in 0..queues.requests.len() as u16 {
            for tag in 0..queues.depth {
                crowd.count(&crowd.places, true);
                let (queues, crowd) = (queues.clone(), crowd.clone());
                let io = queues.io.clone();
                io.spawn(async move {
                    queues.serve_place(queue, tag).await;
                    // The last one closes the device's file.
                    drop(queues);
                    crowd.count(&crowd.places, false);
                });
            }
        }
        crowd
    }

    async fn serve_place(&self, queue: u16, tag: u16) {
        let mut command = self.driver.command(place::FETCH, place::command(queue, tag, 0));
        // Ends when the driver takes the device away.
        while let Ok(0) = command.await {
            if self.crowd.leaving.get() {
                return;
            }
            self.crowd.count(&self.crowd.busy, true);
            let request = self.requests[usize::from(queue)].get(tag);
            let result = match self.carry_out(request, queue, tag).await {
                Ok(bytes) => bytes as i32,
                Err(error) => -errno(&error),
            };
            let answer = place::command(queue, tag, result);
            command = self.driver.command(place::COMMIT_AND_FETCH, answer);
            self.crowd.count(&self.crowd.busy, false);
        }
    }

    /// Gives the bytes that were moved.
    async fn carry_out(&self, request: Request, queue: u16, tag: u16) -> Result<u64, IoError> {
        let data_at = uapi::data_at(queue, tag);
        // A flush has no place, and says so with the largest number there is.
        let at = request.first_sector.saturating_mul(SECTOR_BYTES);
        let length = u64::from(request.sectors) * SECTOR_BYTES;
        let durability = match request.what & flag::FORCE_UNIT_ACCESS {
            0 => Durability::Volatile,
            _ => Durability::Durable,
        };
        match request.what & kind::MASK {
            kind::READ => {
                if self.read_lent(queue, tag, at, length).await {
                    return Ok(length);
                }
                let _pass = self.gate.enter(length).await;
                let buf = self.io.pool().take(length as usize);
                let (buf, outcome) = self.volume.read(at, buf).await;
                outcome?;
                self.give(&buf, data_at)?;
            }
            kind::WRITE => {
                let _pass = self.gate.enter(length).await;
                let mut buf = self.io.pool().take(length as usize);
                self.take(&mut buf, data_at)?;
                self.volume.write(at, buf, durability).await.1?;
            }
            kind::FLUSH => self.volume.flush().await?,
            kind::DISCARD => self.volume.trim(at, length, durability).await?,
            kind::WRITE_ZEROES => {
                let mode = match request.what & flag::NO_UNMAP {
                    0 => ZeroMode::Deallocate,
                    _ => ZeroMode::Allocate,
                };
                self.volume.write_zeroes(at, length, mode, durability).await?;
            }
            other => {
                let message = format!("a request of kind {other}");
                return Err(IoError::new(io::ErrorKind::Unsupported, message));
            }
        }
        Ok(length)
    }

    /// Has a drive write straight into the request's memory, where that can be and is worth while. False:
    /// the request is to be read and copied.
    async fn read_lent(&self, queue: u16, tag: u16, at: u64, length: u64) -> bool {
        let Some(first) = self.first_slot.get().filter(|_| length >= LENT_BYTES_MIN) else {
            return false;
        };
        // Else what is lent is handed back unused, mostly.
        let on_fast = self.volume.places(at, length, 1);
        if !on_fast.first().is_some_and(|span| span.place == Place::Fast && span.length >= length) {
            return false;
        }
        let slot = first + queue * self.depth + tag;
        let command = place::memory(queue, tag, slot);
        if let Err(error) = self.driver.command(place::LEND, command).await {
            // What is short of memory now may lend later; any other driver knows no loans after all.
            if !matches!(error.errno, libc::ENOMEM | libc::EAGAIN | libc::EBUSY | libc::EINTR) {
                self.first_slot.set(None);
                self.crowd.uncopied.set(None);
            }
            return false;
        }
        let served = self.volume.read_lent(at, Lent { slot, bytes: length as u32 }).await;
        let taken_back = self.driver.command(place::TAKE_BACK, command).await;
        let served = served && taken_back.is_ok();
        let counted = self.crowd.uncopied.get().map(|count| count + u64::from(served));
        self.crowd.uncopied.set(counted);
        served
    }

    /// Copies data out of a request.
    fn take(&self, buf: &mut Buf, data_at: u64) -> Result<(), IoError> {
        let mut done = 0;
        while done < buf.len() {
            let count = rustix::io::pread(&self.file, &mut buf[done..], data_at + done as u64);
            done += moved(count)?;
        }
        Ok(())
    }

    /// Copies data into a request.
    fn give(&self, buf: &Buf, data_at: u64) -> Result<(), IoError> {
        let mut done = 0;
        while done < buf.len() {
            let count = rustix::io::pwrite(&self.file, &buf[done..], data_at + done as u64);
            done += moved(count)?;
        }
        Ok(())
    }
}

fn moved(count: rustix::io::Result<usize>) -> Result<usize, IoError> {
    match count {
        Ok(0) => Err(IoError::new(io::ErrorKind::Io, "a ublk request has less data than it says")),
        Ok(count) => Ok(count),
        Err(e) => Err(IoError::from_errno(e.raw_os_error(), "the data of a ublk request")),
    }
}

/// What the kernel is told; the numbers of the drives stay inside.
fn errno(error: &IoError) -> i32 {
    match error.kind {
        io::ErrorKind::NoSpace => libc::ENOSPC,
        io::ErrorKind::Unsupported => libc::EOPNOTSUPP,
        _ => libc::EIO,
    }
}

fn page_bytes() -> usize {
    // SAFETY: asks for a number and touches no memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).expect("every kernel has pages")
}
