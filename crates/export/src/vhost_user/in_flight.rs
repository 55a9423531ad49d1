//! Which requests are under way, in memory that the front-end keeps when we die.
//!
//! The front-end asks for the area once and gives it back to each back-end that follows, so that
//! requests taken but not answered are done again instead of lost. The layout is that of the
//! vhost-user standard for split queues, version 1, in host byte order:
//!
//! ```text
//! queue   0 features (u64)   8 version (u16)   10 places (u16)   12 last head (u16)   14 used (u16)
//! place  16 + 16 n: 0 in flight (u8)   6 next head (u16)   8 counter (u64)
//! ```
//!
//! Each answer is three steps: the place becomes the last head; the queue's used index moves; the
//! place is free and `used` follows the index. After a death between the last two the index is
//! ahead of `used`, and the chain of last heads says which places were answered.
//!
//! Every byte may have been changed by the front-end: it is checked, and can only harm its own
//! guest.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use io::{ErrorKind, IoError};
use rustix::fs::{MemfdFlags, SealFlags};
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory, VolatileMemoryError};

use super::protocol::{QUEUE_SIZE_MAX, QUEUES_MAX};

const VERSION: u16 = 1;

const VERSION_AT: usize = 8;
const PLACES_AT: usize = 10;
const LAST_HEAD_AT: usize = 12;
const USED_AT: usize = 14;
const HEADER_BYTES: usize = 16;

const PLACE_BYTES: usize = 16;
const NEXT_AT: usize = 6;
const COUNTER_AT: usize = 8;

/// Each queue's part begins on a cache line of its own.
const ALIGN_BYTES: usize = 64;

/// The area of all queues.
pub(super) struct Area {
    mapping: MmapRegion<()>,
    queues: u16,
    queue_size: u16,
}

/// How large an area is and where it lies in its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) file_at: u64,
    pub(super) bytes: u64,
    pub(super) queues: u16,
    pub(super) queue_size: u16,
}

impl Shape {
    /// The shape of an area for so many queues.
    pub(super) fn of(queues: u16, queue_size: u16) -> Result<Shape, IoError> {
        let fits = (1..=QUEUES_MAX).contains(&queues) && (1..=QUEUE_SIZE_MAX).contains(&queue_size);
        if !fits {
            return Err(refused(format!("{queues} queues of {queue_size} places")));
        }
        let bytes = stride_bytes(queue_size) * usize::from(queues);
        Ok(Shape { file_at: 0, bytes: bytes as u64, queues, queue_size })
    }
}

/// Makes the file of a new area. Nobody can make it shorter, so that it can be mapped safely.
pub(super) fn create(shape: Shape) -> Result<File, IoError> {
    let failed = |e: rustix::io::Errno| IoError::from_errno(e.raw_os_error(), "in-flight memory");
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = rustix::fs::memfd_create("bimetal-in-flight", flags).map_err(failed)?;
    rustix::fs::ftruncate(&fd, shape.bytes).map_err(failed)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        .map_err(failed)?;
    Ok(fd.into())
}

impl Area {
    /// Maps an area that the front-end gives back.
    pub(super) fn map(shape: Shape, file: File) -> Result<Area, IoError> {
        let Shape { file_at, bytes, queues, queue_size } = shape;
        let sealed =
            rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        let length = file.metadata().map_or(0, |metadata| metadata.len());
        let needed = Shape::of(queues, queue_size)?.bytes;
        let end = file_at.checked_add(bytes);
        if !sealed || bytes < needed || end.is_none_or(|end| end > length) {
            let seals = if sealed { "" } else { ", and could become shorter" };
            return Err(refused(format!(
                "{bytes} bytes at {file_at} of a file that has {length}{seals}; {needed} are needed"
            )));
        }
        let mapping = MmapRegion::from_file(FileOffset::new(file, file_at), needed as usize)
            .map_err(|e| refused(e.to_string()))?;
        Ok(Area { mapping, queues, queue_size })
    }
}

/// The part of one queue.
pub(super) struct InFlight {
    area: Arc<Area>,
    at: usize,
    size: u16,
    next_counter: u64,
}

impl InFlight {
    /// Takes the part of queue `index` over. Gives the heads that were in flight when the last
    /// back-end ended, in the order they came. `used` is the queue's used index now.
    pub(super) fn begin(
        area: Arc<Area>,
        index: u16,
        size: u16,
        used: u16,
    ) -> Result<(InFlight, Vec<u16>), IoError> {
        if index >= area.queues || size > area.queue_size {
            return Err(refused(format!("queue {index} of {size} places has none of it")));
        }
        let at = usize::from(index) * stride_bytes(area.queue_size);
        let mut part = InFlight { area, at, size, next_counter: 0 };
        let heads = part.recover(used).map_err(|e| refused(e.to_string()))?;
        Ok((part, heads?))
    }

    fn recover(&mut self, used: u16) -> Result<Result<Vec<u16>, IoError>, VolatileMemoryError> {
        let places = self.load::<u16>(PLACES_AT)?;
        match self.load::<u16>(VERSION_AT)? {
            0 => {
                // Never used.
                self.store(self.size, PLACES_AT)?;
                self.store(used, USED_AT)?;
                self.store(VERSION, VERSION_AT)?;
                return Ok(Ok(Vec::new()));
            }
            VERSION if places == self.size => {}
            version => {
                return Ok(Err(refused(format!(
                    "version {version} for {places} places; {VERSION} for {} is wanted",
                    self.size
                ))));
            }
        }
        let answered = used.wrapping_sub(self.load::<u16>(USED_AT)?).min(self.size);
        let mut head: u16 = self.load(LAST_HEAD_AT)?;
        for _ in 0..answered {
            if head >= self.size {
                break;
            }
            self.store(0u8, self.place(head))?;
            head = self.load(self.place(head) + NEXT_AT)?;
        }
        self.store(used, USED_AT)?;
        let mut taken = Vec::new();
        for head in 0..self.size {
            if self.load::<u8>(self.place(head))? != 0 {
                let counter: u64 = self.load(self.place(head) + COUNTER_AT)?;
                taken.push((counter, head));
            }
        }
        taken.sort_unstable();
        self.next_counter = taken.last().map_or(0, |(counter, _)| counter.wrapping_add(1));
        Ok(Ok(taken.into_iter().map(|(_, head)| head).collect()))
    }

    /// A request was taken from the queue.
    pub(super) fn take(&mut self, head: u16) {
        let place = self.place(head);
        self.set(self.next_counter, place + COUNTER_AT);
        self.set(1u8, place);
        self.next_counter = self.next_counter.wrapping_add(1);
    }

    /// The answer is about to be put into the queue.
    pub(super) fn answer(&self, head: u16) {
        let last: u16 = self.load(LAST_HEAD_AT).unwrap_or(0);
        self.set(last, self.place(head) + NEXT_AT);
        self.set(head, LAST_HEAD_AT);
    }

    /// The answer is in the queue, whose used index is `used` now.
    pub(super) fn answered(&self, head: u16, used: u16) {
        self.set(0u8, self.place(head));
        self.set(used, USED_AT);
    }

    fn place(&self, head: u16) -> usize {
        HEADER_BYTES + usize::from(head) * PLACE_BYTES
    }

    fn load<T: vm_memory::AtomicAccess>(&self, at: usize) -> Result<T, VolatileMemoryError> {
        self.area.mapping.as_volatile_slice().load(self.at + at, Ordering::Acquire)
    }

    fn store<T: vm_memory::AtomicAccess>(
        &self,
        value: T,
        at: usize,
    ) -> Result<(), VolatileMemoryError> {
        self.area.mapping.as_volatile_slice().store(value, self.at + at, Ordering::Release)
    }

    /// As `store`, for places whose head has been checked against the size.
    fn set<T: vm_memory::AtomicAccess>(&self, value: T, at: usize) {
        self.store(value, at).expect("the part was mapped for as many places");
    }
}

fn stride_bytes(queue_size: u16) -> usize {
    (HEADER_BYTES + usize::from(queue_size) * PLACE_BYTES).next_multiple_of(ALIGN_BYTES)
}

fn refused(why: String) -> IoError {
    IoError::new(ErrorKind::Range, format!("in-flight memory: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn area() -> Arc<Area> {
        let shape = Shape::of(2, 8).unwrap();
        Arc::new(Area::map(shape, create(shape).unwrap()).unwrap())
    }

    fn begin(area: &Arc<Area>, used: u16) -> (InFlight, Vec<u16>) {
        InFlight::begin(area.clone(), 1, 8, used).unwrap()
    }

    #[test]
    fn what_was_taken_and_not_answered_comes_back_in_order() {
        let area = area();
        let (mut part, heads) = begin(&area, 100);
        assert!(heads.is_empty());
        for head in [5, 2, 7, 0] {
            part.take(head);
        }
        part.answer(2);
        part.answered(2, 101);
        let (mut part, heads) = begin(&area, 101);
        assert_eq!(heads, [5, 7, 0]);
        part.take(3);
        assert_eq!(begin(&area, 101).1, [5, 7, 0, 3]);
        let other = InFlight::begin(area, 0, 8, 0).unwrap();
        assert!(other.1.is_empty(), "queues have parts of their own");
    }

    #[test]
    fn a_death_at_any_step_of_an_answer_answers_once() {
        let area = area();
        let (mut part, _) = begin(&area, u16::MAX);
        part.take(1);
        part.take(6);
        part.answer(6);
        assert_eq!(begin(&area, u16::MAX).1, [1, 6], "the guest has not seen it");
        assert_eq!(begin(&area, 0).1, [1], "the guest has seen it");
        assert_eq!(begin(&area, 0).1, [1]);
        part.answer(1);
        part.answered(1, 1);
        assert!(begin(&area, 1).1.is_empty());
    }

    #[test]
    fn foreign_bytes_are_refused_or_harmless() {
        let shape = Shape::of(1, 8).unwrap();
        let short = Shape { bytes: shape.bytes - 1, ..shape };
        assert!(Area::map(short, create(shape).unwrap()).is_err());
        let beyond = Shape { file_at: 4096, ..shape };
        assert!(Area::map(beyond, create(shape).unwrap()).is_err());
        assert!(Area::map(shape, tempfile::tempfile().unwrap()).is_err(), "not sealed");
        assert!(Shape::of(0, 8).is_err() && Shape::of(1, u16::MAX).is_err());

        let area = Arc::new(Area::map(shape, create(shape).unwrap()).unwrap());
        assert!(InFlight::begin(area.clone(), 1, 8, 0).is_err());
        assert!(InFlight::begin(area.clone(), 0, 16, 0).is_err());
        // Every pattern of bytes is either refused or gives heads that exist, each once.
        for pattern in 0..=255u8 {
            let bytes = area.mapping.as_volatile_slice();
            for at in 0..shape.bytes as usize {
                bytes.write_obj(pattern.wrapping_mul(at as u8 | 1), at).unwrap();
            }
            bytes
                .store(if pattern % 3 == 0 { 2 } else { VERSION }, VERSION_AT, Ordering::SeqCst)
                .unwrap();
            bytes.store(8u16, PLACES_AT, Ordering::SeqCst).unwrap();
            match InFlight::begin(area.clone(), 0, 8, u16::from(pattern) * 257) {
                Ok((_, mut heads)) => {
                    let count = heads.len();
                    heads.sort_unstable();
                    heads.dedup();
                    assert!(heads.len() == count && heads.iter().all(|head| *head < 8));
                }
                Err(error) => assert!(pattern % 3 == 0, "{error}"),
            }
        }
    }
}
