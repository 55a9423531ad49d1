//! A file system on an attached volume, through kills: mounted, orphaned, cleared away, attached
//! again, its journal replayed by the kernel, and checked by its own tool.
//!
//! Whatever happens, dropping it unmounts (lazily if need be) and detaches.

use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::support::{Attachment, Mount, Place, must, run, tool};

/// Shared while a mounted device has no server; exclusive for btrfs's tools, which look behind
/// every mounted loop device and refuse any device when one of those does not answer.
static ORPHANS: RwLock<()> = RwLock::new(());

/// Kinds that are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Ext4,
    Xfs,
    Btrfs,
}

impl Kind {
    /// Tools that must be there.
    pub fn tools(self) -> [&'static str; 2] {
        [self.make()[0], self.verify()[0]]
    }

    fn make(self) -> &'static [&'static str] {
        match self {
            Kind::Ext4 => &["mkfs.ext4", "-q"],
            Kind::Xfs => &["mkfs.xfs", "-q"],
            Kind::Btrfs => &["mkfs.btrfs", "-q"],
        }
    }

    /// Verifies without repairing; fails when anything is wrong.
    fn verify(self) -> &'static [&'static str] {
        match self {
            Kind::Ext4 => &["e2fsck", "-fn"],
            Kind::Xfs => &["xfs_repair", "-n"],
            Kind::Btrfs => &["btrfs", "check", "--readonly"],
        }
    }

    fn run(self, words: &[&str], device: &Path) {
        let btrfs = (self == Kind::Btrfs).then(|| ORPHANS.write());
        must(tool(words[0]).args(&words[1..]).arg(device));
        drop(btrfs);
    }
}

/// The file system of a place's volume "v", mounted at `mnt`.
pub struct FileSystem<'a> {
    // Dropped in this order: first the mount, then the device below it.
    mount: Option<Mount>,
    attachment: Option<Attachment<'a>>,
    place: &'a Place,
    kind: Kind,
    server: Option<Pid>,
    orphaned: Option<RwLockReadGuard<'static, ()>>,
}

impl<'a> FileSystem<'a> {
    /// Attaches, makes one and mounts it.
    pub fn make(place: &'a Place, kind: Kind) -> FileSystem<'a> {
        let (mount, attachment, server, orphaned) = (None, None, None, None);
        let mut made = FileSystem { mount, attachment, place, kind, server, orphaned };
        let device = made.attach();
        kind.run(kind.make(), &device);
        made.mount();
        made
    }

    /// Where it is mounted.
    pub fn dir(&self) -> PathBuf {
        self.place.path("mnt")
    }

    fn attach(&mut self) -> PathBuf {
        let attachment = self.place.attach("v");
        let device = attachment.device.clone();
        self.attachment = Some(attachment);
        let pid = self.place.status("v")["server"]["pid"].as_i64().expect("it is being served");
        self.server = Pid::from_raw(pid as i32);
        device
    }

    fn device(&self) -> &Path {
        &self.attachment.as_ref().expect("attached").device
    }

    fn mount(&mut self) {
        self.mount = Some(Mount::new(self.device(), self.dir()));
    }

    /// Kills the server below it.
    pub fn kill_server(&mut self) {
        let pid = self.server.take().expect("it is being served");
        self.orphaned = Some(ORPHANS.read().unwrap_or_else(PoisonError::into_inner));
        kill_process(pid, Signal::KILL).expect("it is ours");
        let deadline = Instant::now() + Duration::from_secs(60);
        while is_running(pid) {
            assert!(Instant::now() < deadline, "the killed server does not end");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// After a kill, when all its users have ended: away with mount and device.
    pub fn clear_away(&mut self) {
        if let Some(mount) = self.mount.take() {
            let unmounted = run(tool("umount").arg(&mount.dir));
            if unmounted.status.success() {
                std::mem::forget(mount);
            } // Otherwise dropping it unmounts lazily.
        }
        let said = self.place.bimetal(&["detach", "v"]);
        assert!(said.code == 0 && said.out.contains("killed server"), "{said:?}");
        std::mem::forget(self.attachment.take());
        self.orphaned = None;
        self.place.bimetal(&["check", "v"]).expect(0, &[]);
    }

    /// Attaches and mounts, which replays its journal.
    pub fn recover(&mut self) {
        self.attach();
        self.mount();
    }

    /// Unmounts, and has its own tool verify it.
    pub fn verify(&mut self) {
        if let Some(mount) = self.mount.take() {
            mount.unmount();
        }
        self.kind.run(self.kind.verify(), self.device());
    }

    /// Mounts it again after [`FileSystem::verify`].
    pub fn mount_again(&mut self) {
        self.mount();
    }

    /// Unmounts, verifies and detaches; the volume is closed in order, and whole.
    pub fn close(&mut self) {
        self.verify();
        self.place.bimetal(&["detach", "v"]).expect(0, &[]);
        std::mem::forget(self.attachment.take());
        self.server = None;
        self.place.bimetal(&["check", "v"]).expect(0, &[]);
    }
}

/// A zombie that nobody has collected yet runs no more.
fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    let ended = |stat: &String| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z'));
    test_kill_process(pid).is_ok() && !stat.as_ref().is_ok_and(ended)
}
