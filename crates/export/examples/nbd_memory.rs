//! An NBD server of a volume in memory, to try clients against and to measure the door with.
//!
//! ```text
//! nbd_memory SOCKET [SIZE] [read-only]
//! ```
//!
//! SIZE is like `64M` (the default). Runs until it is killed.

use std::path::Path;
use std::rc::Rc;

use export::nbd::{NbdOptions, NbdServer};
use uring::{Kernel, KernelOptions};

#[path = "../tests/memory/mod.rs"]
mod memory;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let socket = arguments.first().ok_or("which socket? nbd_memory SOCKET [SIZE] [read-only]")?;
    let size = arguments.get(1).map_or("64M", String::as_str);
    let size_bytes = io::units::parse_bytes(size)?.next_multiple_of(4096);

    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let listener = kernel.listen_unix(Path::new(socket))?;
    let volume = Rc::new(memory::MemoryVolume::new(io.clone(), size_bytes));
    let options = NbdOptions {
        export_name: "memory".into(),
        description: "a volume in memory".into(),
        read_only: arguments.iter().any(|argument| argument == "read-only"),
        ..NbdOptions::default()
    };
    let server = NbdServer::new(io.clone(), volume, options);
    eprintln!("{} on {socket}, {}", size, kernel.describe());
    io.block_on(server.serve(listener));
    Ok(())
}
