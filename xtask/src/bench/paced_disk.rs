//! A simulated disk that takes the time of a real one, as a file: one of the twins, served over NBD, and
//! that as a file over FUSE.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use super::backing::Backing;

/// A disk of 7,200 rpm, so much smaller that what is written fits into memory: 500 GB / 128. All of it is a
/// short stroke then, as on a disk of which a part is used.
const TWIN: [&str; 3] = ["wd5002abys", "--scale", "1/128"];
const START_MAX: Duration = Duration::from_secs(30);
const END_MAX: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);

/// See the head of the file.
pub struct PacedDisk {
    /// Where it is.
    pub file: PathBuf,
    /// The one that serves it as a file, then the disk: in the order in which they are ended.
    processes: Vec<Child>,
}

impl PacedDisk {
    /// Starts it and waits until it is there.
    pub fn start(files: &Backing, label: &str, bimetal: &Path) -> Result<PacedDisk> {
        let socket = files.beside_sockets(&format!("{label}-disk.sock"));
        let file = files.beside_sockets(&format!("{label}-disk"));
        let mut disk = PacedDisk { file: file.clone(), processes: Vec::new() };
        let mut twin = Command::new(bimetal);
        twin.args(["twin", "serve"]).args(TWIN).arg("--nbd");
        twin.arg(format!("unix:{}", socket.display()));
        disk.add(&mut twin, "the twin", || UnixStream::connect(&socket).is_ok())?;
        // It is mounted over a file that is there.
        File::create(&file)?;
        let below = socket.display();
        let node = format!("driver=nbd,node-name=it,server.type=unix,server.path={below}");
        let place = file.display();
        let export = format!("type=fuse,id=it,node-name=it,mountpoint={place},writable=on");
        let mut daemon = Command::new("qemu-storage-daemon");
        daemon.args(["--blockdev", &node, "--export", &export]);
        let is_there = || fs::metadata(&file).is_ok_and(|file| file.len() > 0);
        disk.add(&mut daemon, "the twin's file", is_there)?;
        Ok(disk)
    }

    fn add(&mut self, command: &mut Command, what: &str, is_up: impl Fn() -> bool) -> Result<()> {
        let silent = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Ctrl-C is for the bench, which ends them in order.
        silent.process_group(0);
        self.processes.insert(0, silent.spawn().with_context(|| format!("starting {what}"))?);
        let end = Instant::now() + START_MAX;
        while !is_up() {
            if self.processes[0].try_wait()?.is_some() || Instant::now() > end {
                bail!("{what} does not come up");
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for PacedDisk {
    fn drop(&mut self) {
        for child in &mut self.processes {
            let asked = kill_process(Pid::from_child(child), Signal::TERM);
            let end = Instant::now() + END_MAX;
            while asked.is_ok() && matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(POLL);
            }
            // Of one that has ended nothing is left to kill.
            let _ = child.kill();
            let _ = child.wait();
        }
        unmount(&self.file);
    }
}

/// Takes away what a server that was killed has left mounted; where nothing is, nothing happens.
pub fn unmount(place: &Path) {
    let mut command = Command::new("umount");
    let silent = command.arg("--lazy").arg(place).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = silent.status();
}
