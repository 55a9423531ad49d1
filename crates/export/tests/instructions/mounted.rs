//! The FUSE door with the real kernel on its other side, and a program that reads and writes the file. That
//! program is this one again, in a process of its own: what it costs is not counted, and neither is the kernel.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use export::fuse::{FuseDoor, FuseOptions, Unmount};
use io::mailbox;

use crate::wire::Asked;
use crate::{Passed, ring, wire};

/// What the program that uses the file is told first.
const CLIENT: &str = "use-the-file";

/// Why nothing can be mounted here, if so.
pub fn hindrance() -> Option<&'static str> {
    let root = rustix::process::geteuid().is_root();
    let device = Path::new("/dev/fuse").exists();
    match (root, device) {
        (_, false) => Some("/dev/fuse is missing"),
        (false, true) => Some("only root may mount"),
        (true, true) => None,
    }
}

/// Plays the program, if this process was started for that.
pub fn use_file() -> bool {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [client, path, kind, count, depth] = &words[..] else { return false };
    if client != CLIENT {
        return false;
    }
    let [count, depth] = [count, depth].map(|number| number.parse::<u64>().expect("a number"));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path);
    let file = file.expect("the file opens");
    std::thread::scope(|scope| {
        for _ in 0..depth {
            scope.spawn(|| ask(&file, kind == "write", count / depth).expect("the file answers"));
        }
    });
    true
}

fn ask(file: &File, writes: bool, count: u64) -> std::io::Result<()> {
    // Of whole pages, as direct requests must be.
    let mut pages = vec![0; 3 << 12];
    let start = pages.as_ptr().align_offset(1 << 12);
    let block = &mut pages[start..start + (1 << 12)];
    for _ in 0..count {
        match writes {
            true => file.write_all_at(block, 9 << 12)?,
            false => file.read_exact_at(block, 9 << 12)?,
        }
    }
    Ok(())
}

/// Mounts the file and lets it be used.
pub fn send(kind: &str, count: u64, depth: u64) -> Asked {
    let (io, board) = ring::hall(ring::Script { writes: false, count: 0, depth: 0 });
    let directory = tempfile::tempdir().expect("a directory");
    let options = FuseOptions {
        mount_dir: directory.path().to_owned(),
        file_name: "vol".into(),
        read_only: false,
    };
    let volume = Rc::new(Passed(wire::drive(&io)));
    let door = FuseDoor::mount(io.clone(), volume, options).expect("a mount");
    let mut client = Command::new(std::env::current_exe().expect("a test has a program"));
    client.arg(CLIENT).arg(door.file_path()).args([kind, &count.to_string(), &depth.to_string()]);
    let (hand_over, mut handed_over) = mailbox(1);
    let waiting = std::thread::spawn(move || {
        let status = client.status().expect("the program runs");
        assert!(hand_over.send(status).is_ok(), "somebody waits for it");
    });
    let status = io.block_on(handed_over.receive()).expect("the program ends");
    waiting.join().expect("the program was waited for");
    assert!(status.success(), "the program that uses the file failed");
    io.block_on(door.unmount(Unmount::WhenUnused)).expect("nobody uses the file");
    io.drop_tasks();
    board.asked.take()
}
