//! What a world must do, run on the ring and on the threads.
//!
//! Every test takes a backend; `on_both!` makes two tests of each. Tests that need root (mounts,
//! loop devices) say so and end early without it.

use uring::{Backend, Kernel, KernelOptions};

mod world {
    mod blocks;
    mod choice;
    mod drives;
    mod events;
    mod opening;
    mod scratch;
    mod sockets;
    mod time;
}

/// A started world with a small arena, so that buffers from the heap are used as well, and a
/// small ring, so that its queues run full.
fn start(backend: Backend) -> (io::Io, Kernel) {
    let options = KernelOptions { backend, arena_bytes: 4 << 20, ring_entries: 16 };
    Kernel::start(options).expect("this machine offers both backends")
}

/// Makes two tests of each function: one a backend.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod on_the_ring {
            $(#[test] fn $name() { super::$name(uring::Backend::Ring) })*
        }
        mod on_threads {
            $(#[test] fn $name() { super::$name(uring::Backend::Threads) })*
        }
    };
}
use on_both;
