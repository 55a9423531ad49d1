//! The FUSE door with the real kernel on its other side, and a program that reads and writes the file. That
//! program is this one again, in a process of its own: what it costs is not counted, and neither is the kernel.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::Command;
use std::rc::Rc;
use std::sync::Arc;

use export::fuse::{FuseDoor, FuseOptions, Unmount};
use io::{Completed, Foreign, Io, IoError, Op, OpId, Park, Pool, SocketId, Unpark, World, mailbox};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use crate::allocations::uncounted;
use crate::wire::Asked;
use crate::{Passed, wire};

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

/// Wakes the executor's thread.
struct Bell(OwnedFd);

impl Unpark for Bell {
    fn unpark(&self) {
        rustix::io::write(&self.0, &1_u64.to_ne_bytes()).expect("a counter has room");
    }
}

/// A world of one drive, which has everything done in the next round, and of one descriptor to watch, which is real.
struct Window {
    now_ns: u64,
    bell: Arc<Bell>,
    watched: Option<OwnedFd>,
    /// Who waits for what is watched.
    waiting: Option<OpId>,
    submitted: bool,
    done: Vec<Completed>,
    asked: Rc<RefCell<Asked>>,
}

fn window() -> (Io, Rc<RefCell<Asked>>) {
    let asked = Rc::new(RefCell::default());
    let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an eventfd");
    let window = Window {
        now_ns: 0,
        bell: Arc::new(Bell(bell)),
        watched: None,
        waiting: None,
        submitted: false,
        done: Vec::new(),
        asked: Rc::clone(&asked),
    };
    (Io::new(Box::new(window), Pool::new(16 << 20)), asked)
}

impl Window {
    fn look(&mut self, park: Park, done: &mut Vec<Completed>) {
        self.now_ns += 1000;
        if std::mem::take(&mut self.submitted) {
            self.asked.borrow_mut().rounds += 1;
        }
        let mut looked_at = vec![PollFd::new(&self.bell.0, PollFlags::IN)];
        let watched = self.watched.as_ref().filter(|_| self.waiting.is_some());
        looked_at.extend(watched.map(|watched| PollFd::new(watched, PollFlags::IN)));
        let patience_ns = match park {
            _ if !self.done.is_empty() => Some(0),
            Park::Never => Some(0),
            // Its clock is not the kernel's: a moment is waited, and then it is so late.
            Park::Until(_) => Some(1_000_000),
            Park::Forever => None,
        };
        let patience = patience_ns.map(|tv_nsec| Timespec { tv_sec: 0, tv_nsec });
        let ready = poll(&mut looked_at, patience.as_ref()).expect("descriptors that are open");
        if let (Park::Until(then_ns), 0) = (park, ready) {
            self.now_ns = self.now_ns.max(then_ns);
        }
        let readable = looked_at.get(1).is_some_and(|watched| !watched.revents().is_empty());
        if !looked_at[0].revents().is_empty() {
            rustix::io::read(&self.bell.0, &mut [0; 8]).expect("a counter that was raised");
        }
        if readable {
            let id = self.waiting.take().expect("watched for somebody only");
            self.done.push(Completed { id, buf: None, result: Ok(0) });
        }
        done.append(&mut self.done);
    }
}

impl World for Window {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, id: OpId, op: Op) {
        self.submitted = true;
        let buf = match op {
            Op::Wait { .. } => {
                self.waiting = Some(id);
                return;
            }
            Op::Read { buf, .. } | Op::Write { buf, .. } => buf,
            other => panic!("nobody asks for this here: {other:?}"),
        };
        self.done.push(Completed { id, buf: Some(buf), result: Ok(0) });
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        uncounted(|| self.look(park, done));
    }

    fn adopt(&mut self, fd: OwnedFd, what: Foreign) -> Result<SocketId, IoError> {
        assert_eq!(what, Foreign::Watched);
        assert!(self.watched.replace(fd).is_none(), "one mount has one descriptor");
        Ok(SocketId(0))
    }

    fn shutdown(&mut self, _: SocketId) {}

    fn close(&mut self, _: SocketId) {
        self.watched = None;
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        Some(self.bell.clone())
    }
}

/// Mounts the file and lets it be used.
pub fn send(kind: &str, count: u64, depth: u64) -> Asked {
    let (io, asked) = window();
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
    asked.take()
}
