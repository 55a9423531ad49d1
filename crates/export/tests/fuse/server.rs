//! A volume in memory served through FUSE on a thread of its own, and what cleans up after tests.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::rc::Rc;
use std::sync::mpsc;
use std::thread::JoinHandle;

use export::fuse::{FuseDoor, FuseOptions, Unmount, loop_device};
use io::{IoError, Sender, mailbox};
use tempfile::TempDir;
use uring::{Kernel, KernelOptions};

use crate::memory::{Counts, MemoryVolume};

pub const SIZE_BYTES: u64 = 64 << 20;

/// What the tests ask of the serving thread.
enum Order {
    Counts(mpsc::Sender<Counts>),
    BlocksUsed(mpsc::Sender<usize>),
    Fail(Option<IoError>, mpsc::Sender<()>),
    Delay(u64, mpsc::Sender<()>),
    Unmount(Unmount, mpsc::Sender<Result<(), IoError>>),
}

/// A running server. Dropping it detaches the mount and ends the thread.
pub struct Server {
    pub file: PathBuf,
    pub directory: PathBuf,
    pub recovered: Option<String>,
    orders: Option<Sender<Order>>,
    thread: Option<JoinHandle<()>>,
    _own_directory: Option<TempDir>,
}

impl Server {
    /// Serves a fresh volume in a directory of its own.
    pub fn start() -> Server {
        Server::with(|volume| volume, false)
    }

    /// Likewise, with another volume or a read-only mount.
    pub fn with(
        change: impl FnOnce(MemoryVolume) -> MemoryVolume + Send + 'static,
        read_only: bool,
    ) -> Server {
        let directory = tempfile::tempdir().unwrap();
        let mut server = Server::at(directory.path(), change, read_only).unwrap();
        server._own_directory = Some(directory);
        server
    }

    pub fn at(
        directory: &Path,
        change: impl FnOnce(MemoryVolume) -> MemoryVolume + Send + 'static,
        read_only: bool,
    ) -> Result<Server, IoError> {
        let options =
            FuseOptions { mount_dir: directory.to_owned(), file_name: "volume".into(), read_only };
        let (started, start) = mpsc::channel();
        let (orders, mut received) = mailbox(8);
        let thread = std::thread::spawn(move || {
            let (io, _kernel) = Kernel::start(KernelOptions::default()).unwrap();
            let volume = Rc::new(change(MemoryVolume::new(io.clone(), SIZE_BYTES)));
            let door = match FuseDoor::mount(io.clone(), volume.clone(), options) {
                Ok(door) => door,
                Err(error) => return started.send(Err(error)).unwrap(),
            };
            let facts = (door.file_path(), door.recovered().map(str::to_owned));
            started.send(Ok(facts)).unwrap();
            io.block_on(async {
                while let Some(order) = received.receive().await {
                    match order {
                        Order::Counts(reply) => reply.send(volume.counts()).unwrap(),
                        Order::BlocksUsed(reply) => reply.send(volume.blocks_used()).unwrap(),
                        Order::Fail(failure, reply) => {
                            *volume.failure.borrow_mut() = failure;
                            reply.send(()).unwrap();
                        }
                        Order::Delay(delay_ns, reply) => {
                            volume.delay_ns.set(delay_ns);
                            reply.send(()).unwrap();
                        }
                        Order::Unmount(how, reply) => {
                            reply.send(door.unmount(how).await).unwrap();
                        }
                    }
                }
                door.unmount(Unmount::Detach).await.unwrap();
            });
            // A child that another test has just forked may still have the file open: closing it is a request,
            // which must end, and the executor that would answer it does not run any more.
            io.drop_tasks();
        });
        match start.recv().unwrap() {
            Ok((file, recovered)) => Ok(Server {
                directory: file.parent().unwrap().to_owned(),
                file,
                recovered,
                orders: Some(orders),
                thread: Some(thread),
                _own_directory: None,
            }),
            Err(error) => {
                thread.join().unwrap();
                Err(error)
            }
        }
    }

    fn order<T>(&self, order: impl FnOnce(mpsc::Sender<T>) -> Order) -> T {
        let (reply, answer) = mpsc::channel();
        self.orders.as_ref().unwrap().send(order(reply)).unwrap();
        answer.recv().unwrap()
    }

    pub fn counts(&self) -> Counts {
        self.order(Order::Counts)
    }

    pub fn blocks_used(&self) -> usize {
        self.order(Order::BlocksUsed)
    }

    pub fn fail_with(&self, failure: Option<IoError>) {
        self.order(|reply| Order::Fail(failure, reply));
    }

    /// Each request takes this long from now on.
    pub fn delay(&self, delay_ns: u64) {
        self.order(|reply| Order::Delay(delay_ns, reply));
    }

    pub fn unmount(&self, how: Unmount) -> Result<(), IoError> {
        self.order(|reply| Order::Unmount(how, reply))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        let ended = self.thread.take().is_none_or(|thread| thread.join().is_ok());
        assert!(ended || std::thread::panicking(), "the serving thread panicked");
    }
}

/// A loop device that is taken away when the test ends, however it ends.
pub struct LoopGuard(pub PathBuf, PathBuf);

impl LoopGuard {
    pub fn attach(file: &Path, sector_bytes: u32) -> LoopGuard {
        let options = loop_device::LoopOptions { sector_bytes, ..Default::default() };
        let device = loop_device::attach(file, options).unwrap();
        assert!(device.direct_io, "{device:?}");
        LoopGuard(device.path, file.to_owned())
    }
}

impl Drop for LoopGuard {
    fn drop(&mut self) {
        // It may be gone already, by the test's own doing, and its number be another test's.
        let _ = loop_device::detach_from(&self.1, &self.0);
    }
}

/// A mount that is undone when the test ends.
pub struct MountGuard(pub TempDir);

impl MountGuard {
    pub fn mount(device: &Path) -> MountGuard {
        let directory = tempfile::tempdir().unwrap();
        run("mount", &[device.to_str().unwrap(), directory.path().to_str().unwrap()]);
        MountGuard(directory)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for MountGuard {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH);
    }
}

/// Whether this machine has what the test needs; says on the terminal what is skipped and why.
pub fn possible(test: &str, needs: &[&str]) -> bool {
    let missing: Vec<&str> = needs.iter().copied().filter(|need| !is_there(need)).collect();
    if missing.is_empty() {
        return true;
    }
    // Straight to the descriptor: the test harness hides what a passing test prints.
    let line = format!("SKIPPED {test}: this machine has no {}\n", missing.join(", no "));
    std::io::stderr().write_all(line.as_bytes()).unwrap();
    false
}

fn is_there(need: &str) -> bool {
    let root = rustix::process::geteuid().is_root();
    match need {
        "FUSE" => {
            let open = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse");
            open.is_ok() && (root || is_there("fusermount3"))
        }
        "root" => root,
        "loop driver" => Path::new("/dev/loop-control").exists(),
        tool => {
            let asked = format!("command -v {tool}");
            let found = Command::new("sh").args(["-c", &asked]).stdout(Stdio::null()).status();
            found.is_ok_and(|status| status.success())
        }
    }
}

/// Runs a program that must succeed.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

/// fio with data verified by checksum, mixed sizes, many requests in flight.
pub fn fio_verify(file: &Path) {
    run(
        "fio",
        &[
            "--name=verify",
            &format!("--filename={}", file.display()),
            "--rw=randwrite",
            "--bsrange=4k-128k",
            "--blockalign=4k",
            "--size=48M",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=32",
            "--verify=crc32c",
            "--verify_fatal=1",
            // Otherwise it leaves a file in the working directory.
            "--verify_state_save=0",
            "--fsync=64",
            "--randseed=7",
        ],
    );
}
