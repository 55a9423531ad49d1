//! Owned, aligned buffers from one arena.
//!
//! * The arena is one allocation, so that a kernel ring can register it once. Buffers beyond it
//!   come from the heap and work everywhere, only without registration.
//! * Every buffer starts 4 KiB-aligned and has [`HEADROOM_BYTES`] before it, so that a log record's
//!   header or a protocol's reply header can be put in front of data without copying the data.
//! * A [`Buf`] is an exclusive range of a chunk. [`Buf::split_to`] gives disjoint ranges, which is
//!   how the parts of one request are read in parallel into one buffer. The chunk goes back to
//!   its pool when the last range of it is dropped.
//! * Content after [`Pool::take`] is unspecified (initialised, but stale): fill it or zero it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::rc::{Rc, Weak};

/// Room in front of each buffer's data: one block, the size of a log record's header.
pub const HEADROOM_BYTES: usize = 4096;

/// Alignment of every chunk: O_DIRECT on any drive.
const ALIGN_BYTES: usize = 4096;

/// Data sizes kept ready for reuse. Larger buffers are allocated and freed one by one; nothing
/// on the request path needs them. Powers of four keep the waste per buffer below 4 while few
/// enough classes share the arena.
const CLASS_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Heap chunks kept per class after use; more are freed. Bounds what a burst leaves behind.
const HEAP_KEPT_MAX: usize = 64;

/// One piece of memory: headroom, then data.
struct Chunk {
    base: NonNull<u8>,
    /// Headroom included.
    bytes: usize,
    class: Option<usize>,
    pool: Weak<PoolInner>,
    /// The arena it lies in, which owns the memory; `None`: this chunk owns it.
    arena: Option<Rc<Arena>>,
}

impl Drop for Chunk {
    fn drop(&mut self) {
        if self.arena.is_none() {
            if let Some(pool) = self.pool.upgrade() {
                pool.heap.set(pool.heap.get() - self.bytes);
            }
            // SAFETY: allocated in `heap_chunk` with the same layout, and no `Buf` refers to it:
            // they hold the `Rc` whose last drop runs this.
            unsafe { dealloc(self.base.as_ptr(), layout(self.bytes)) }
        }
    }
}

struct Arena {
    base: NonNull<u8>,
    bytes: usize,
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: allocated in `Pool::new` with the same layout; every chunk of it holds an `Rc`
        // to it, so none is left.
        unsafe { dealloc(self.base.as_ptr(), layout(self.bytes)) }
    }
}

fn layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes, ALIGN_BYTES).expect("buffer sizes are far below isize::MAX")
}

fn allocate(bytes: usize) -> NonNull<u8> {
    let layout = layout(bytes);
    // SAFETY: the size is never 0, every caller adds headroom or asserts.
    let base = unsafe { alloc_zeroed(layout) };
    NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout))
}

struct PoolInner {
    arena: Option<Rc<Arena>>,
    /// Bytes of the arena handed out to chunks so far; chunks return to `free`, never to the arena.
    carved: Cell<usize>,
    free: RefCell<[Vec<Rc<Chunk>>; CLASS_BYTES.len()]>,
    in_use: Cell<usize>,
    in_use_peak: Cell<usize>,
    /// Bytes of the heap in buffers, those kept for use included.
    heap: Cell<usize>,
    heap_taken: Cell<u64>,
}

/// Hands out buffers. Clones share the arena.
#[derive(Clone)]
pub struct Pool(Rc<PoolInner>);

/// How a pool is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolUse {
    /// Size of the arena in bytes.
    pub arena_bytes: usize,
    /// Bytes in buffers now, headroom included.
    pub in_use_bytes: usize,
    /// The most that ever were.
    pub in_use_peak_bytes: usize,
    /// Bytes of memory that buffers have taken so far, those that wait to be used again included.
    pub held_bytes: usize,
    /// How often a buffer had to come from the heap because the arena was used up.
    pub heap_taken: u64,
}

impl Pool {
    /// A pool whose arena has `arena_bytes` (0: everything comes from the heap). The memory is
    /// touched only as it is used.
    pub fn new(arena_bytes: usize) -> Pool {
        let arena = (arena_bytes >= ALIGN_BYTES).then(|| {
            let bytes = arena_bytes.next_multiple_of(ALIGN_BYTES);
            Rc::new(Arena { base: allocate(bytes), bytes })
        });
        Pool(Rc::new(PoolInner {
            arena,
            carved: Cell::new(0),
            free: RefCell::new(Default::default()),
            in_use: Cell::new(0),
            in_use_peak: Cell::new(0),
            heap: Cell::new(0),
            heap_taken: Cell::new(0),
        }))
    }

    /// A buffer of `len` bytes (any length, 0 included) with unspecified content.
    pub fn take(&self, len: usize) -> Buf {
        let inner = &self.0;
        let class = CLASS_BYTES.iter().position(|bytes| len <= *bytes);
        let reused = class.and_then(|class| inner.free.borrow_mut()[class].pop());
        let chunk = reused.unwrap_or_else(|| {
            let bytes = HEADROOM_BYTES
                + class.map_or(len.next_multiple_of(ALIGN_BYTES), |class| CLASS_BYTES[class]);
            self.carve(bytes, class).unwrap_or_else(|| self.heap_chunk(bytes, class))
        });
        let in_use = inner.in_use.get() + chunk.bytes;
        inner.in_use.set(in_use);
        inner.in_use_peak.set(inner.in_use_peak.get().max(in_use));
        Buf { chunk: Some(chunk), start: HEADROOM_BYTES, len }
    }

    /// A buffer of `len` zero bytes.
    pub fn take_zeroed(&self, len: usize) -> Buf {
        let mut buf = self.take(len);
        buf.fill(0);
        buf
    }

    /// Where the arena lies, for a kernel to register: address and bytes.
    pub fn arena(&self) -> Option<(*mut u8, usize)> {
        self.0.arena.as_ref().map(|arena| (arena.base.as_ptr(), arena.bytes))
    }

    /// How the pool is used now.
    pub fn usage(&self) -> PoolUse {
        PoolUse {
            arena_bytes: self.0.arena.as_ref().map_or(0, |arena| arena.bytes),
            in_use_bytes: self.0.in_use.get(),
            in_use_peak_bytes: self.0.in_use_peak.get(),
            held_bytes: self.0.carved.get() + self.0.heap.get(),
            heap_taken: self.0.heap_taken.get(),
        }
    }

    fn carve(&self, bytes: usize, class: Option<usize>) -> Option<Rc<Chunk>> {
        let (arena, class) = (self.0.arena.as_ref()?, class?);
        let at = self.0.carved.get();
        if at + bytes > arena.bytes {
            return None;
        }
        self.0.carved.set(at + bytes);
        // SAFETY: `at + bytes` lies inside the arena's allocation.
        let base = unsafe { arena.base.add(at) };
        Some(Rc::new(Chunk {
            base,
            bytes,
            class: Some(class),
            pool: Rc::downgrade(&self.0),
            arena: Some(arena.clone()),
        }))
    }

    fn heap_chunk(&self, bytes: usize, class: Option<usize>) -> Rc<Chunk> {
        self.0.heap_taken.set(self.0.heap_taken.get() + 1);
        self.0.heap.set(self.0.heap.get() + bytes);
        Rc::new(Chunk {
            base: allocate(bytes),
            bytes,
            class,
            pool: Rc::downgrade(&self.0),
            arena: None,
        })
    }
}

/// An exclusive range of bytes, as a slice through `Deref`.
pub struct Buf {
    /// `None` only while being dropped or merged.
    chunk: Option<Rc<Chunk>>,
    start: usize,
    len: usize,
}

impl Buf {
    fn chunk(&self) -> &Chunk {
        self.chunk.as_deref().expect("a live Buf has its chunk")
    }

    /// Cuts off the first `at` bytes as a buffer of their own; `self` keeps the rest.
    ///
    /// # Panics
    /// When `at` is beyond the end.
    #[must_use]
    pub fn split_to(&mut self, at: usize) -> Buf {
        assert!(at <= self.len, "split at {at} of {} bytes", self.len);
        let front = Buf { chunk: self.chunk.clone(), start: self.start, len: at };
        self.start += at;
        self.len -= at;
        front
    }

    /// Joins `back`, which must follow `self` directly in the same chunk.
    ///
    /// # Panics
    /// When it does not: that would be a mix-up of requests.
    pub fn unsplit(&mut self, mut back: Buf) {
        let same =
            Rc::ptr_eq(self.chunk.as_ref().expect("live"), back.chunk.as_ref().expect("live"));
        assert!(same && self.start + self.len == back.start, "buffers are not neighbours");
        self.len += back.len;
        // Both hold the chunk; dropping one share here must not return it to the pool.
        back.chunk = None;
    }

    /// Keeps the first `len` bytes. The rest stays reachable through [`Buf::restore`] only when
    /// nothing was split off behind it.
    pub fn truncate(&mut self, len: usize) {
        assert!(len <= self.len, "truncate to {len} of {} bytes", self.len);
        self.len = len;
    }

    /// Makes the whole chunk available again: `len` bytes from the standard start.
    ///
    /// # Panics
    /// When another range of the chunk is still alive, or `len` does not fit.
    pub fn restore(&mut self, len: usize) {
        assert!(self.is_whole(), "another part of this buffer is in use");
        assert!(HEADROOM_BYTES + len <= self.chunk().bytes, "restore beyond the chunk");
        self.start = HEADROOM_BYTES;
        self.len = len;
    }

    /// Extends the buffer to the front by `bytes` of its headroom.
    ///
    /// # Panics
    /// When that much headroom is not there, or belongs to another range.
    pub fn grow_front(&mut self, bytes: usize) {
        assert!(bytes <= self.headroom(), "headroom is {}, not {bytes}", self.headroom());
        self.start -= bytes;
        self.len += bytes;
    }

    /// Cuts `bytes` off the front (the opposite of [`Buf::grow_front`]).
    pub fn shrink_front(&mut self, bytes: usize) {
        assert!(bytes <= self.len, "shrink by {bytes} of {} bytes", self.len);
        self.start += bytes;
        self.len -= bytes;
    }

    /// Bytes that [`Buf::grow_front`] may take: those in front of the data, if this range is the
    /// foremost of its chunk; else 0.
    pub fn headroom(&self) -> usize {
        if self.start <= HEADROOM_BYTES || self.is_whole() { self.start } else { 0 }
    }

    /// Whether this is the only range of its chunk.
    pub fn is_whole(&self) -> bool {
        self.chunk.as_ref().is_some_and(|chunk| Rc::strong_count(chunk) == 1)
    }

    /// Whether the memory lies in the pool's arena (and so may be registered with a kernel).
    pub fn in_arena(&self) -> bool {
        self.chunk().arena.is_some()
    }
}

impl Deref for Buf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let chunk = self.chunk();
        debug_assert!(self.start + self.len <= chunk.bytes);
        // SAFETY: the range lies inside the chunk, which is initialised (zeroed at allocation)
        // and kept alive by the `Rc`; ranges of one chunk never overlap, so no `&mut` aliases.
        unsafe { std::slice::from_raw_parts(chunk.base.as_ptr().add(self.start), self.len) }
    }
}

impl DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        let (start, len) = (self.start, self.len);
        let chunk = self.chunk();
        debug_assert!(start + len <= chunk.bytes);
        // SAFETY: as in `deref`; `&mut self` makes this the only access to the exclusive range.
        unsafe { std::slice::from_raw_parts_mut(chunk.base.as_ptr().add(start), len) }
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        let Some(chunk) = self.chunk.take() else { return };
        if Rc::strong_count(&chunk) != 1 {
            return;
        }
        let Some(pool) = chunk.pool.upgrade() else { return };
        pool.in_use.set(pool.in_use.get() - chunk.bytes);
        if let Some(class) = chunk.class {
            let free = &mut pool.free.borrow_mut()[class];
            if chunk.arena.is_some() || free.len() < HEAP_KEPT_MAX {
                free.push(chunk);
            }
        }
    }
}

impl Drop for PoolInner {
    fn drop(&mut self) {
        // Chunks point back weakly; nothing to undo. Arena chunks in `free` release the arena.
        self.free.get_mut().iter_mut().for_each(Vec::clear);
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_comes_back_for_reuse() {
        let pool = Pool::new(1 << 20);
        let mut buf = pool.take(4096);
        assert_eq!(buf.as_ptr() as usize % 4096, 0);
        assert!(buf.in_arena());
        buf.fill(7);
        let address = buf.as_ptr();
        drop(buf);
        assert_eq!(pool.usage().in_use_bytes, 0);
        let again = pool.take(100);
        assert_eq!(again.as_ptr(), address);
        assert_eq!(again.len(), 100);
    }

    #[test]
    fn an_exhausted_arena_falls_back_to_the_heap() {
        let pool = Pool::new(16 << 10);
        let first = pool.take(4096);
        let second = pool.take(4096);
        let third = pool.take(4096);
        assert!(first.in_arena() && second.in_arena() && !third.in_arena());
        let huge = pool.take(3 << 20);
        assert_eq!(huge.len(), 3 << 20);
        assert_eq!(pool.usage().heap_taken, 2);
    }

    #[test]
    fn parts_are_disjoint_and_join_again() {
        let pool = Pool::new(1 << 20);
        let mut whole = pool.take_zeroed(12 << 10);
        let mut front = whole.split_to(4096);
        let mut middle = whole.split_to(4096);
        front.fill(1);
        middle.fill(2);
        whole.fill(3);
        assert_eq!(middle.headroom(), 0, "what lies before belongs to another part");
        front.unsplit(middle);
        front.unsplit(whole);
        assert!(front.is_whole());
        assert_eq!((front[0], front[4096], front[8192], front.len()), (1, 2, 3, 12 << 10));
    }

    #[test]
    fn a_header_goes_in_front_without_moving_the_data() {
        let pool = Pool::new(1 << 20);
        let mut buf = pool.take_zeroed(4096);
        buf[0] = 9;
        let data = buf.as_ptr();
        buf.grow_front(HEADROOM_BYTES);
        assert_eq!(buf.len(), 8192);
        assert_eq!(buf[4096..].as_ptr(), data);
        buf.shrink_front(HEADROOM_BYTES);
        assert_eq!(buf[0], 9);
    }

    #[test]
    fn a_buffer_outlives_its_pool() {
        let pool = Pool::new(1 << 20);
        let mut buf = pool.take(4096);
        drop(pool);
        buf.fill(5);
        assert_eq!(buf[4095], 5);
    }

    #[test]
    #[should_panic(expected = "not neighbours")]
    fn joining_strangers_is_refused() {
        let pool = Pool::new(1 << 20);
        let mut one = pool.take(4096);
        one.unsplit(pool.take(4096));
    }
}
