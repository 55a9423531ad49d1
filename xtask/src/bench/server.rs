//! The servers side by side: how each is started, found, accounted for and ended.
//!
//! A server that is dropped is ended by its process id; nothing outlives a run that fails.

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Signal, kill_process};

use super::backing::Backing;
use super::load::Clients;
use super::steps::SPAN_BYTES;

/// Size of bimetal's landing log: a quarter of the span, so that writes wrap around it and
/// destaging is part of what is measured.
pub const LANDING_BYTES: u64 = 256 << 20;
/// The fast drive holds the span, the log and the reserve with room to spare.
const FAST_BYTES: u64 = 2 * SPAN_BYTES;
/// Sparse, and not touched: all rows are hits of the fast drive.
const SLOW_BYTES: u64 = 8 * SPAN_BYTES;
/// So much is acknowledged before it is written, where it is.
const BEHIND: &str = "16M";
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
}

impl Kind {
    /// All of them: ours, then those that are asked to keep out of the page cache, then those that use it.
    pub const ALL: [Kind; 7] = [
        Kind::Bimetal,
        Kind::BimetalBehind,
        Kind::NbdkitNoCache,
        Kind::QemuNoCache,
        Kind::QemuStorage,
        Kind::Nbdkit,
        Kind::Qemu,
    ];

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
        }
    }

    /// Whether it is bimetal.
    pub fn ours(self) -> bool {
        matches!(self, Kind::Bimetal | Kind::BimetalBehind)
    }

    /// Whether a write may be acknowledged before the drive has it.
    pub fn keeps_writes(self) -> bool {
        matches!(self, Kind::BimetalBehind | Kind::Nbdkit | Kind::Qemu)
    }
}

/// One that runs.
pub struct Server {
    pub kind: Kind,
    pub socket: PathBuf,
    backing: PathBuf,
    child: Child,
    tick_us: u64,
}

impl Server {
    /// Makes its backing file, starts it and waits until it takes connections.
    pub fn start(kind: Kind, files: &Backing, clients: &Clients) -> Result<Server> {
        let label = kind.name().replace([' ', '=', ','], "-");
        let socket = files.beside_sockets(&format!("{label}.sock"));
        let log = files.beside_sockets(&format!("{label}.log"));
        let bytes = if kind.ours() { FAST_BYTES } else { SPAN_BYTES };
        let backing = files.file(&format!("{label}.img"), bytes)?;
        let mut command = match kind {
            Kind::Bimetal => bimetal(files, &clients.bimetal(), (&label, &backing), &socket, None)?,
            Kind::BimetalBehind => {
                let behind = Some(BEHIND);
                bimetal(files, &clients.bimetal(), (&label, &backing), &socket, behind)?
            }
            Kind::Nbdkit => nbdkit(&backing, &socket, &[]),
            Kind::NbdkitNoCache => nbdkit(&backing, &socket, &["cache=none"]),
            Kind::Qemu => qemu(&backing, &socket, &[]),
            Kind::QemuStorage => qemu_storage(&backing, &socket),
            Kind::QemuNoCache => qemu(&backing, &socket, &["--cache=none", "--aio=io_uring"]),
        };
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("starting {}", kind.name()))?;
        let tick_us = 1_000_000 / rustix::param::clock_ticks_per_second();
        let mut server = Server { kind, socket, backing, child, tick_us };
        server.await_socket(&log)?;
        Ok(server)
    }

    fn await_socket(&mut self, log: &Path) -> Result<()> {
        let end = Instant::now() + START_MAX;
        while UnixStream::connect(&self.socket).is_err() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || Instant::now() > end {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("{} does not come up: {}", self.kind.name(), said.trim());
            }
            thread::sleep(POLL);
        }
        Ok(())
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

    /// The fill leaves no one an advantage: nothing of the file stays in the page cache.
    pub fn forget_cached(&self) -> Result<()> {
        let file = File::open(&self.backing)?;
        file.sync_data()?;
        fadvise(&file, 0, None, Advice::DontNeed).context("dropping cached pages")
    }

    /// Ends it in order.
    pub fn end(mut self) -> Result<()> {
        self.stop()
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

/// Makes the volume; gives the command that serves it.
fn bimetal(
    files: &Backing,
    program: &Path,
    (name, fast): (&str, &Path),
    socket: &Path,
    behind: Option<&str>,
) -> Result<Command> {
    let configuration = files.beside_sockets("volumes");
    let mut slow = files.directory().join(format!("{name}-slow.img")).into_os_string();
    slow.push(format!(":{SLOW_BYTES}"));
    let mut create = Command::new(program);
    create.arg("--config-dir").arg(&configuration).args(["create", name, "--landing"]);
    create.arg(LANDING_BYTES.to_string()).arg("--fast").arg(fast).arg("--slow").arg(slow);
    succeed(&mut create)?;
    if let Some(behind) = behind {
        let mut set = Command::new(program);
        set.arg("--config-dir").arg(&configuration);
        succeed(set.args(["set", name, &format!("write_behind={behind}")]))?;
    }
    let mut command = Command::new(program);
    command.arg("--config-dir").arg(&configuration);
    command.args(["serve", name, "--exit-with-parent", "--nbd"]);
    command.arg(format!("unix:{}", socket.display()));
    Ok(command)
}

fn qemu_storage(backing: &Path, socket: &Path) -> Command {
    let node = format!(
        "driver=file,node-name=it,aio=io_uring,cache.direct=on,filename={}",
        backing.display()
    );
    let server = format!("addr.type=unix,addr.path={},max-connections=0", socket.display());
    let mut command = Command::new("qemu-storage-daemon");
    command.args(["--blockdev", &node, "--nbd-server", &server]);
    command.args(["--export", "type=nbd,id=it,node-name=it,name=,writable=on"]);
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

fn nbdkit(backing: &Path, socket: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exit-with-parent", "--unix"]).arg(socket);
    command.arg("file").arg(backing).args(more);
    command
}

fn qemu(backing: &Path, socket: &Path, more: &[&str]) -> Command {
    let mut command = Command::new("qemu-nbd");
    command.args(["--persistent", "--format=raw", "--shared=0"]).args(more);
    command.arg("--socket").arg(socket).arg(backing);
    command
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
