//! The servers side by side: how each is found, accounted for and ended (`launch.rs` starts it).
//!
//! A server that is dropped is ended by its process id; nothing outlives a run that fails.

use std::fs::{self, File};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};

use super::backing::Backing;
use super::door::Door;
use super::launch;
use super::load::Clients;
use super::paced_disk::{self, PacedDisk};
use super::steps::SPAN_BYTES;

/// A server that is not there after this long will not come.
const START_MAX: Duration = Duration::from_secs(30);
/// A server that has not ended after this long is killed.
const END_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Bimetal,
    /// bimetal with write-behind.
    BimetalBehind,
    NbdkitNoCache,
    QemuNoCache,
    /// Without the page cache, too.
    QemuStorage,
    Nbdkit,
    Qemu,
    /// bimetal's NBD door with an array behind it and no engine.
    DoorAlone,
    NbdkitMemory,
}

impl Kind {
    /// What tables call it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bimetal => "bimetal",
            Kind::BimetalBehind => "bimetal, behind",
            Kind::NbdkitNoCache => "nbdkit cache=none",
            Kind::QemuNoCache => "qemu-nbd cache=none",
            Kind::QemuStorage => "qemu-storage-daemon",
            Kind::Nbdkit => "nbdkit",
            Kind::Qemu => "qemu-nbd",
            Kind::DoorAlone => "the door alone",
            Kind::NbdkitMemory => "nbdkit memory",
        }
    }

    /// Whether it is bimetal.
    pub fn ours(self) -> bool {
        matches!(self, Kind::Bimetal | Kind::BimetalBehind)
    }

    /// Whether it works with the page cache and leaves there what it has read.
    pub fn uses_page_cache(self) -> bool {
        matches!(self, Kind::Nbdkit | Kind::Qemu)
    }

    /// Whether a write may be acknowledged before the drive has it. nbdkit's `cache=none` writes to
    /// the page cache, has the kernel begin, and waits for the eighth write before that one.
    pub fn keeps_writes(self) -> bool {
        self.uses_page_cache() || matches!(self, Kind::BimetalBehind | Kind::NbdkitNoCache)
    }
}

/// One that runs.
pub struct Server {
    pub kind: Kind,
    pub door: Door,
    /// Where clients find it: a socket, or a file.
    pub entrance: PathBuf,
    backing: PathBuf,
    child: Child,
    /// What it stands on, ended behind it.
    disk: Option<PacedDisk>,
    tick_us: u64,
}

impl Server {
    /// Makes its backing file, starts it and waits until it can be used.
    pub fn start(kind: Kind, door: Door, files: &Backing, clients: &Clients) -> Result<Server> {
        let launch = launch::of(kind, door, files, clients)?;
        let log = files.beside_sockets(&format!("{}.log", launch.label));
        let output = File::create(&log)?;
        let mut command = launch.command;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        // Ctrl-C is for the bench, which ends them in order.
        command.process_group(0);
        let child = command.spawn().with_context(|| format!("starting {}", kind.name()))?;
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second();
        let (entrance, backing, disk) = (launch.entrance, launch.backing, launch.disk);
        let mut server = Server { kind, door, entrance, backing, child, disk, tick_us };
        server.await_entrance(&log)?;
        Ok(server)
    }

    fn await_entrance(&mut self, log: &Path) -> Result<()> {
        let end = Instant::now() + START_MAX;
        while !self.is_open() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("{} does not come up: {}", self.kind.name(), said.trim());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    fn is_open(&self) -> bool {
        match self.door {
            Door::NbdTcp => {
                let address = self.door.address(&self.entrance);
                address.is_some_and(|address| TcpStream::connect(address).is_ok())
            }
            Door::Nbd | Door::VhostUser | Door::PacedDisk | Door::Memory => {
                UnixStream::connect(&self.entrance).is_ok()
            }
            Door::Fuse => fs::metadata(&self.entrance).is_ok_and(|file| file.len() >= SPAN_BYTES),
        }
    }

    /// CPU time of the process since its start, user and system, with all threads it has or had, in
    /// µs, in steps of a clock tick.
    pub fn cpu_us(&self) -> Result<u64> {
        let path = format!("/proc/{}/stat", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let ticks = cpu_ticks(&text).with_context(|| format!("{path} says: {text}"))?;
        Ok(ticks * self.tick_us)
    }

    /// Bytes that the process has had read from drives so far, by itself or into the page cache.
    pub fn drive_read_bytes(&self) -> Result<u64> {
        let path = format!("/proc/{}/io", self.child.id());
        let text = fs::read_to_string(&path).with_context(|| path.clone())?;
        let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
        line.and_then(|bytes| bytes.parse().ok()).with_context(|| format!("{path} says: {text}"))
    }

    /// What the page cache still holds goes to the drive.
    pub fn sync_backing(&self) -> Result<()> {
        File::open(&self.backing)?.sync_data().context("syncing a backing file")
    }

    /// Nothing of the file stays in the page cache.
    pub fn forget_cached(&self) -> Result<()> {
        let file = File::open(&self.backing)?;
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed).context("dropping cached pages")
    }

    /// Ends it in order, and takes its backing file away.
    pub fn end(mut self) -> Result<()> {
        self.stop()?;
        drop(self.disk.take());
        fs::remove_file(&self.backing).context("removing a backing file")
    }

    fn mount_point(&self) -> &Path {
        match self.kind.ours() {
            true => self.entrance.parent().unwrap_or(&self.entrance),
            false => &self.entrance,
        }
    }

    fn stop(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_some() {
            return Ok(());
        }
        kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        let end = Instant::now() + END_MAX;
        while self.child.try_wait()?.is_none() {
            if Instant::now() > end {
                self.child.kill()?;
                self.child.wait()?;
                if self.door == Door::Fuse {
                    paced_disk::unmount(self.mount_point());
                }
                bail!("{} did not end within {END_MAX:?}", self.kind.name());
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{error:#}");
        }
    }
}

/// User and system time in a `/proc/PID/stat`, in clock ticks.
fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name in parentheses may hold anything, so fields are counted from its end: the state is
    // the first, utime the twelfth, stime the thirteenth.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_name() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 250 31 5 6 20 0 3 0 12345";
        assert_eq!(cpu_ticks(stat), Some(281));
    }

    #[test]
    fn a_stat_that_ends_early_has_no_cpu_time() {
        assert_eq!(cpu_ticks("7 (name) S 1 7 7 0 -1 4194560 100 0 0 0 250"), None);
        assert_eq!(cpu_ticks(""), None);
    }
}
