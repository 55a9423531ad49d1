//! Serves a volume in memory as a FUSE file, for measurements and for tests that kill the server.
//!
//! `fuse_memory DIRECTORY SIZE`: mounts `DIRECTORY/volume` of SIZE (as in `64M`), prints the
//! file's path, and serves until standard input ends; then unmounts.

use std::io::Read;
use std::path::PathBuf;
use std::rc::Rc;

use export::fuse::{FuseDoor, FuseOptions, Unmount};
use io::{IoError, mailbox};
use memory::MemoryVolume;
use uring::{Kernel, KernelOptions};

#[path = "../tests/memory/mod.rs"]
mod memory;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(size)) = (arguments.next(), arguments.next()) else {
        return Err("usage: fuse_memory DIRECTORY SIZE".into());
    };
    let size_bytes = io::units::parse_bytes(&size)?;
    if let Err(error) = export::fuse::become_io_flusher() {
        eprintln!("{error}");
    }
    let (io, _kernel) = Kernel::start(KernelOptions::default())?;
    let volume = Rc::new(MemoryVolume::new(io.clone(), size_bytes));
    let options = FuseOptions {
        mount_dir: PathBuf::from(directory),
        file_name: "volume".into(),
        read_only: false,
    };
    let door = FuseDoor::mount(io.clone(), volume.clone(), options)?;
    if let Some(what) = door.recovered() {
        eprintln!("{what}");
    }
    println!("{}", door.file_path().display());

    let (sender, mut receiver) = mailbox(1);
    std::thread::spawn(move || {
        // Ends or fails: either way nobody holds the other side any more.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        drop(sender.send(()));
    });
    io.block_on(async {
        receiver.receive().await;
        door.unmount(Unmount::WhenUnused).await
    })
    .or_else(|error: IoError| {
        eprintln!("{error}");
        io.block_on(door.unmount(Unmount::Detach))
    })?;
    eprintln!("{:?}", volume.counts());
    Ok(())
}
