//! The memory that an operating system keeps before a drive: what was read lately is read again from
//! there, and what nobody has read for longest makes room.
//!
//! What is read from the drive is read ahead of the program, which takes it from memory as any other:
//! so a read takes the time of the drive or of the program, whichever is longer.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use io::{Buf, Io, IoError};

use crate::fio::Target;

const PAGE_BYTES: u64 = 4096;

/// What an operating system's memory is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Memory {
    /// How much of it caches.
    pub bytes: u64,
    /// How fast a program takes in what is there (bytes/s).
    pub bytes_per_s: f64,
}

/// Which pages are in memory, and which of them was used least lately.
#[derive(Debug)]
struct Pages {
    pages_max: usize,
    /// By page: when it was used, as a number that counts uses.
    used: HashMap<u64, u64>,
    /// The reverse.
    order: BTreeMap<u64, u64>,
    uses: u64,
}

impl Pages {
    fn holds(&self, page: u64) -> bool {
        self.used.contains_key(&page)
    }

    fn touch(&mut self, page: u64) {
        self.uses += 1;
        if let Some(before) = self.used.insert(page, self.uses) {
            self.order.remove(&before);
        }
        self.order.insert(self.uses, page);
        while self.used.len() > self.pages_max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.used.remove(&oldest);
        }
    }
}

/// A page cache, to be put before something. Clones are the same memory.
#[derive(Debug, Clone)]
pub(super) struct PageCache {
    memory: Memory,
    pages: Rc<RefCell<Pages>>,
}

impl PageCache {
    /// An empty one.
    pub fn new(memory: Memory) -> PageCache {
        let pages_max = (memory.bytes / PAGE_BYTES) as usize;
        let pages = Pages { pages_max, used: HashMap::new(), order: BTreeMap::new(), uses: 0 };
        PageCache { memory, pages: Rc::new(RefCell::new(pages)) }
    }

    /// What reads and writes through it.
    pub fn before<T: Target>(&self, below: &T) -> Cached<T> {
        Cached { below: below.clone(), cache: self.clone() }
    }

    fn touch(&self, at: u64, length: u64) {
        let mut pages = self.pages.borrow_mut();
        (at / PAGE_BYTES..(at + length).div_ceil(PAGE_BYTES)).for_each(|page| pages.touch(page));
    }

    fn holds(&self, at: u64, length: u64) -> bool {
        let pages = self.pages.borrow();
        (at / PAGE_BYTES..(at + length).div_ceil(PAGE_BYTES)).all(|page| pages.holds(page))
    }

    fn taken_in_ns(&self, length: u64) -> u64 {
        (length as f64 * 1e9 / self.memory.bytes_per_s) as u64
    }
}

/// Something behind a page cache.
#[derive(Clone)]
pub(super) struct Cached<T> {
    below: T,
    cache: PageCache,
}

impl<T: Target> Target for Cached<T> {
    fn io(&self) -> &Io {
        self.below.io()
    }

    fn size_bytes(&self) -> u64 {
        self.below.size_bytes()
    }

    fn sector_bytes(&self) -> u64 {
        self.below.sector_bytes()
    }

    fn blank(&self, bytes: usize) -> Buf {
        self.below.blank(bytes)
    }

    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        let (io, length) = (self.io().clone(), buf.len() as u64);
        let taken_in_ns = io.now_ns() + self.cache.taken_in_ns(length);
        let (buf, outcome) = if self.cache.holds(at, length) {
            (buf, Ok(()))
        } else {
            self.below.read(at, buf).await
        };
        self.cache.touch(at, length);
        io.sleep(taken_in_ns.saturating_sub(io.now_ns())).await;
        (buf, outcome)
    }

    async fn write(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        // Written through: when an operating system writes back is none of a drive's business.
        self.cache.touch(at, buf.len() as u64);
        self.below.write(at, buf).await
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.below.flush().await
    }

    async fn trim(&self, at: u64, length: u64) -> Result<(), IoError> {
        self.below.trim(at, length).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_least_lately_makes_room() {
        let cache = PageCache::new(Memory { bytes: 3 * PAGE_BYTES, bytes_per_s: 1e9 });
        let at = |page: u64| page * PAGE_BYTES;
        for page in [0, 1, 2, 0, 3] {
            cache.touch(at(page), PAGE_BYTES);
        }
        let held: Vec<bool> = (0..4).map(|page| cache.holds(at(page), PAGE_BYTES)).collect();
        assert_eq!(held, [true, false, true, true]);
        assert!(!cache.holds(0, 2 * PAGE_BYTES), "a part is not the whole");
        assert_eq!(cache.taken_in_ns(1000), 1000);
    }
}
