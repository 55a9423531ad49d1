//! What a world must do, run on the ring and on the threads.
//!
//! Every test here takes a backend; `on_both!` makes two tests of each.

use uring::{Backend, Kernel, KernelOptions};

mod world {
    mod drives;
    mod sockets;
    mod time;
}

/// A started world with a small arena, so that buffers from the heap are used as well.
fn start(backend: Backend) -> (io::Io, Kernel) {
    let options = KernelOptions { backend, arena_bytes: 4 << 20, ring_entries: 16 };
    Kernel::start(options).expect("this machine offers both backends")
}

/// A file of `bytes` zero bytes in a directory of its own, and the directory.
fn file(bytes: u64) -> (tempfile::TempDir, std::path::PathBuf) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("drive.img");
    let made = std::fs::File::create(&path).and_then(|file| file.set_len(bytes));
    made.expect("a file in the temporary directory");
    (directory, path)
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
