//! How each server is started at each door.

use std::ffi::OsString;
use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::backing::Backing;
use super::door::Door;
use super::load::Clients;
use super::paced_disk::PacedDisk;
use super::server::Kind;
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

/// Beside a paced disk the fast drive is a quarter of the span.
const PACED_FAST_BYTES: u64 = SPAN_BYTES / 4;

/// What is needed to start one.
pub struct Launch {
    /// Names its files.
    pub label: String,
    /// The server, to run in the foreground.
    pub command: Command,
    /// Where clients will find it.
    pub entrance: PathBuf,
    /// The file it serves, or that of its fast drive.
    pub backing: PathBuf,
    /// The simulated disk below.
    pub disk: Option<PacedDisk>,
}

/// Makes its backing file, and all else that it wants to be there.
pub fn of(kind: Kind, door: Door, files: &Backing, clients: &Clients) -> Result<Launch> {
    let bimetal = &clients.bimetal();
    let label = format!("{door}-{}", kind.name()).replace([' ', '=', ','], "-");
    let disk = match door {
        Door::PacedDisk => Some(PacedDisk::start(files, &label, bimetal)?),
        _ => None,
    };
    let file = |bytes| files.file(&format!("{label}.img"), bytes);
    let backing = match &disk {
        Some(_) if kind.ours() => file(PACED_FAST_BYTES)?,
        Some(disk) => disk.file.clone(),
        None if door == Door::Memory && !kind.ours() => file(0)?,
        None if kind.ours() => file(FAST_BYTES)?,
        None => file(SPAN_BYTES)?,
    };
    let entrance = match door {
        Door::Fuse if kind.ours() => files.beside_sockets(&format!("{label}.mnt")).join(&label),
        Door::Fuse => files.beside_sockets(&format!("{label}.file")),
        Door::NbdTcp => free_address()?.to_string().into(),
        _ => files.beside_sockets(&format!("{label}.sock")),
    };
    let command = match kind {
        Kind::Bimetal | Kind::BimetalBehind => {
            let slow = match &disk {
                Some(disk) => disk.file.clone().into_os_string(),
                None => {
                    let mut slow =
                        files.directory().join(format!("{label}-slow.img")).into_os_string();
                    slow.push(format!(":{SLOW_BYTES}"));
                    slow
                }
            };
            let landing = disk.is_none().then_some(LANDING_BYTES);
            let behind = (kind == Kind::BimetalBehind).then_some(BEHIND);
            let volume = Volume { name: &label, fast: &backing, slow, landing, behind };
            volume.served(files, bimetal, door, &entrance)?
        }
        Kind::QemuStorage => qemu_storage(&backing, door, &entrance)?,
        Kind::Nbdkit => nbdkit(&backing, door, &entrance, &[]),
        Kind::NbdkitNoCache => nbdkit(&backing, door, &entrance, &["cache=none"]),
        Kind::DoorAlone => {
            let mut command = ends_with_us(&clients.door_alone().display().to_string());
            command.arg(&entrance).arg(SPAN_BYTES.to_string());
            command
        }
        Kind::NbdkitMemory => {
            let mut command = nbdkit_of("memory", door, &entrance);
            command.arg(SPAN_BYTES.to_string());
            command
        }
        Kind::Qemu => qemu(&backing, door, &entrance, &[]),
        Kind::QemuNoCache => qemu(&backing, door, &entrance, &["--cache=none", "--aio=io_uring"]),
    };
    Ok(Launch { label, command, entrance, backing, disk })
}

/// A volume of bimetal.
struct Volume<'a> {
    name: &'a str,
    fast: &'a Path,
    slow: OsString,
    /// Bytes of the landing log, if not what it is by default.
    landing: Option<u64>,
    /// What is acknowledged before it is written, if anything.
    behind: Option<&'a str>,
}

impl Volume<'_> {
    /// Makes it; gives the command that serves it.
    fn served(
        self,
        files: &Backing,
        program: &Path,
        door: Door,
        entrance: &Path,
    ) -> Result<Command> {
        let configuration = files.beside_sockets("volumes");
        let command = || {
            let mut command = Command::new(program);
            command.arg("--config-dir").arg(&configuration);
            command
        };
        let mut create = command();
        create.args(["create", self.name, "--fast"]).arg(self.fast).arg("--slow").arg(self.slow);
        if let Some(bytes) = self.landing {
            create.args(["--landing", &bytes.to_string()]);
        }
        succeed(&mut create)?;
        if let Some(behind) = self.behind {
            succeed(command().args(["set", self.name, &format!("write_behind={behind}")]))?;
        }
        let mut serve = command();
        serve.args(["serve", self.name, "--exit-with-parent"]);
        match door {
            Door::Nbd | Door::PacedDisk | Door::Memory => {
                serve.arg("--nbd").arg(format!("unix:{}", entrance.display()))
            }
            Door::NbdTcp => serve.arg("--nbd").arg(format!("tcp:{}", entrance.display())),
            Door::Fuse => serve.arg("--fuse").args(entrance.parent()),
            Door::VhostUser => serve.arg("--vhost-user").arg(entrance),
        };
        Ok(serve)
    }
}

fn qemu_storage(backing: &Path, door: Door, entrance: &Path) -> Result<Command> {
    let node = format!(
        "driver=file,node-name=it,aio=io_uring,cache.direct=on,filename={}",
        backing.display()
    );
    let place = entrance.display();
    let mut command = ends_with_us("qemu-storage-daemon");
    command.args(["--blockdev", &node]);
    let export = match door {
        Door::Nbd | Door::NbdTcp | Door::PacedDisk | Door::Memory => {
            let address = match door.address(entrance) {
                Some(tcp) => format!("inet,addr.host={},addr.port={}", tcp.ip(), tcp.port()),
                None => format!("unix,addr.path={place}"),
            };
            let server = format!("addr.type={address},max-connections=0");
            command.args(["--nbd-server", &server]);
            "type=nbd,id=it,node-name=it,name=,writable=on".to_owned()
        }
        Door::Fuse => {
            // It is mounted over a file that is there.
            File::create(entrance)?;
            format!("type=fuse,id=it,node-name=it,mountpoint={place},writable=on")
        }
        Door::VhostUser => {
            let address = format!("addr.type=unix,addr.path={place}");
            format!("type=vhost-user-blk,id=it,node-name=it,{address},writable=on")
        }
    };
    command.args(["--export", &export]);
    Ok(command)
}

fn nbdkit(backing: &Path, door: Door, entrance: &Path, more: &[&str]) -> Command {
    let mut command = nbdkit_of("file", door, entrance);
    command.arg(backing).args(more);
    command
}

fn nbdkit_of(plugin: &str, door: Door, entrance: &Path) -> Command {
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exit-with-parent"]);
    match door.address(entrance) {
        Some(tcp) => {
            command.args(["--ipaddr", &tcp.ip().to_string(), "--port"]).arg(tcp.port().to_string())
        }
        None => command.arg("--unix").arg(entrance),
    };
    command.arg(plugin);
    command
}

fn qemu(backing: &Path, door: Door, entrance: &Path, more: &[&str]) -> Command {
    let mut command = ends_with_us("qemu-nbd");
    command.args(["--persistent", "--format=raw", "--shared=0"]).args(more);
    match door.address(entrance) {
        Some(tcp) => {
            command.args(["--bind", &tcp.ip().to_string(), "--port"]).arg(tcp.port().to_string())
        }
        None => command.arg("--socket").arg(entrance),
    };
    command.arg(backing);
    command
}

/// One of this machine's that nobody listens at now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(listener.local_addr()?)
}

/// A server that knows no option for it: the kernel ends it with this program, whatever ends that.
fn ends_with_us(server: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", server]);
    command
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
