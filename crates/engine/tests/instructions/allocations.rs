//! What a program's request takes from the allocator, counted by an allocator that counts: the same in every run, on
//! every machine.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Requests of the two runs that are compared.
const COUNTS: [u64; 2] = [320, 3520];

/// The system's allocator, which counts what each thread asks it for.
struct Counting;

// SAFETY: every call is the system allocator's, with what it was given.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as promised to us.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as promised to us.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        count();
        // SAFETY: as promised to us.
        unsafe { System.realloc(block, layout, bytes) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as promised to us.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    COUNT.set(COUNT.get() + 1);
}

/// What `work` does is nobody's.
#[allow(dead_code)]
pub fn uncounted<T>(work: impl FnOnce() -> T) -> T {
    let before = COUNT.get();
    let value = work();
    COUNT.set(before);
    value
}

/// Allocations of this thread per request, where `send` makes so many requests.
pub fn per_request(send: impl Fn(u64)) -> f64 {
    let [few, many] = COUNTS.map(|requests| {
        let before = COUNT.get();
        send(requests);
        COUNT.get() - before
    });
    (many as f64 - few as f64) / (COUNTS[1] - COUNTS[0]) as f64
}
