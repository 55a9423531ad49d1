//! The FUSE door: the volume as one file in a directory, and that file as a loop device.
//!
//! * [`FuseDoor`] mounts, serves on the executor, unmounts.
//! * [`loop_device`] makes a block device of the file, and undoes it.
//! * [`become_io_flusher`] and [`lock_memory`] keep the serving process able to make progress
//!   when memory runs out; see there why that matters.
//!
//! Reads and writes of any alignment work. What a flush promises here is what it promises in the
//! volume: `fsync` on the file (and a flush of a loop device over it) is [`io::Volume::flush`].
//!
//! A server that is killed leaves its mount behind; every access then fails with `ENOTCONN`. The
//! next [`FuseDoor::mount`] at the same place takes the remains away.

mod connection;
mod file_system;
pub mod loop_device;
mod mount_point;
mod mount_table;
mod pressure;
mod protocol;
mod request;
mod sectors;
mod service;

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use fuser::{Config, MountOption, Session};
use io::units::SECOND_NS;
use io::{ErrorKind, Io, IoError, Volume, WaitList, mailbox};

use connection::{Connection, Greeting};
use file_system::FileSystem;
pub use pressure::{become_io_flusher, lock_memory};
use service::Service;

/// How long the kernel may take to end a connection whose mount is gone and whose file nobody has open.
const END_PATIENCE_NS: u64 = 2 * SECOND_NS;

/// How the file is to appear.
#[derive(Debug, Clone)]
pub struct FuseOptions {
    /// An existing directory. It must be empty of mounts other than a dead one of ours.
    pub mount_dir: PathBuf,
    /// Name of the file in it, such as the volume's name.
    pub file_name: String,
    /// Refuse writes even if the volume takes them.
    pub read_only: bool,
}

/// How to unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if nobody uses the file.
    WhenUnused,
    /// At once: the directory is free, and whoever has the file open keeps it until closing it.
    Detach,
}

/// A mounted volume. Dropping it detaches the mount.
pub struct FuseDoor {
    file_name: String,
    recovered: Option<String>,
    /// Never dropped: its destructor (fuser 0.18) unmounts whatever lies on the directory by then,
    /// which may be another server's. What leaks is one descriptor of nothing.
    _session: ManuallyDrop<Session<Greeting>>,
    mount: Rc<Mounted>,
    io: Io,
    state: Rc<State>,
}

/// Where our mount is, and what it is known by: something else may come to lie there.
struct Mounted {
    directory: PathBuf,
    /// Device number of the file system.
    device: Option<String>,
}

impl Mounted {
    fn at(directory: PathBuf) -> Mounted {
        let mount = mount_table::at(&directory).ok().flatten();
        Mounted { directory, device: mount.map(|mount| mount.device) }
    }

    /// Whether it is on top there now.
    fn is_there(&self) -> bool {
        match mount_table::at(&self.directory) {
            Ok(mount) if self.device.is_none() => mount.is_some(),
            Ok(mount) => mount.is_some_and(|mount| Some(mount.device) == self.device),
            // Better tried in vain than left behind.
            Err(_) => true,
        }
    }
}

#[derive(Default)]
struct State {
    /// We have unmounted; after a detach the session may still be going on.
    unmounted: Cell<bool>,
    /// There is no mount left, whoever removed it. From then on its device number may be another's.
    gone: Cell<bool>,
    /// Why messages are not taken any more, if they should be.
    failure: RefCell<Option<IoError>>,
    /// No message is taken any more.
    ended: Cell<bool>,
    changed: WaitList,
}

impl FuseDoor {
    /// Mounts the file. Requests are served from now on, whenever the executor runs; never touch
    /// the file from the executor's own thread.
    ///
    /// # Errors
    /// The directory is missing, used by another mount, or not ours to mount on; `/dev/fuse` or
    /// `fusermount3` is missing (the message says what to install); the name cannot be a file's.
    pub fn mount<V: Volume>(
        io: Io,
        volume: Rc<V>,
        options: FuseOptions,
    ) -> Result<FuseDoor, IoError> {
        check_name(&options.file_name)?;
        let mount_dir = mount_point::canonical(&options.mount_dir)?;
        let recovered = mount_point::clear(&mount_dir, &options.file_name)?;

        let info = volume.info();
        let read_only = options.read_only || info.read_only;
        let file_system = FileSystem {
            name: options.file_name.clone(),
            size_bytes: info.size_bytes,
            preferred_bytes: info.preferred_bytes,
            read_only,
            owner: (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()),
            mounted_ns: file_system::now_ns(),
            written_ns: Cell::new(0),
        };
        let session = Session::new(Greeting, &mount_dir, &config(&options, read_only))
            .map_err(|cause| mount_point::explain(&mount_dir, &cause))?;
        let connection = Connection::of(&io, &session)?;
        let mount = Rc::new(Mounted::at(mount_dir));

        let state = Rc::new(State::default());
        let service = Rc::new(Service::new(io.clone(), volume, connection, file_system));
        let (serving, served) = (state.clone(), mount.clone());
        io.spawn(async move {
            *serving.failure.borrow_mut() = service.run().await.err();
            // A connection also ends when somebody breaks it off; the mount is there until it is taken away.
            serving.gone.set(!served.is_there());
            serving.ended.set(true);
            serving.changed.wake_all();
        });
        let file_name = options.file_name;
        let _session = ManuallyDrop::new(session);
        Ok(FuseDoor { file_name, recovered, _session, mount, io, state })
    }

    /// Where the file is.
    pub fn file_path(&self) -> PathBuf {
        self.mount.directory.join(&self.file_name)
    }

    /// Why the file cannot be used any more although it is mounted: somebody broke the connection off, or the kernel said
    /// what is not understood.
    pub fn failure(&self) -> Option<String> {
        let failure = self.state.failure.borrow().as_ref().map(IoError::to_string);
        let broken_off = self.state.ended.get() && self.is_mounted();
        failure.or_else(|| broken_off.then(|| "its connection was broken off".to_owned()))
    }

    /// Ends when the file cannot be reached any more, whoever has unmounted it.
    pub fn ended(&self) -> impl Future<Output = ()> + use<> {
        let state = self.state.clone();
        async move { state.changed.until(|| state.ended.get().then_some(())).await }
    }

    /// What a killed server had left at this place and was taken away, as a sentence.
    pub fn recovered(&self) -> Option<&str> {
        self.recovered.as_deref()
    }

    /// Unmounts. After [`Unmount::WhenUnused`] has succeeded everything is answered; after
    /// [`Unmount::Detach`] programs that have the file open are still served until they close it.
    ///
    /// # Errors
    /// Someone uses the file (the message names them as far as can be seen): the door stays open.
    pub async fn unmount(&self, how: Unmount) -> Result<(), IoError> {
        if self.is_mounted() {
            let (sender, mut receiver) = mailbox(1);
            let (mount_dir, file_path) = (self.mount.directory.clone(), self.file_path());
            // On a thread of its own: the kernel may want answers from us before it lets go.
            std::thread::spawn(move || {
                let outcome = mount_point::unmount(&mount_dir, how == Unmount::Detach)
                    .map_err(|error| mount_point::name_users(error, &mount_dir, &file_path));
                // Nobody to tell when the door was dropped meanwhile.
                drop(sender.send(outcome));
            });
            match receiver.receive().await {
                Some(outcome) => outcome?,
                None => return Err(IoError::new(ErrorKind::Io, "the unmounting thread died")),
            }
            self.state.unmounted.set(true);
        }
        if how == Unmount::Detach {
            return Ok(());
        }
        let deadline_ns = self.io.now_ns() + END_PATIENCE_NS;
        let (io, state) = (self.io.clone(), self.state.clone());
        self.io.spawn(async move {
            io.sleep(END_PATIENCE_NS).await;
            state.changed.wake_all();
        });
        let over = || self.state.ended.get() || self.io.now_ns() >= deadline_ns;
        self.state.changed.until(|| over().then_some(())).await;
        if self.state.ended.get() {
            return Ok(());
        }
        // Taken away by somebody else, or by us, while a program had it open.
        let path = self.file_path();
        let message =
            format!("{} is still open, though it is not mounted any more", path.display());
        Err(IoError { errno: libc::EBUSY, ..IoError::new(ErrorKind::Io, message) })
    }

    /// Asked before each unmount: by then something else may lie on the directory.
    fn is_mounted(&self) -> bool {
        !self.state.unmounted.get() && !self.state.gone.get() && self.mount.is_there()
    }
}

impl Drop for FuseDoor {
    fn drop(&mut self) {
        if self.is_mounted() {
            // Detaching asks nothing of us, so it may be done on the executor's thread. Nobody is
            // left to be told of a failure; the next mount clears what stays.
            let _ = mount_point::unmount(&self.mount.directory, true);
        }
    }
}

fn check_name(name: &str) -> Result<(), IoError> {
    let usable = !name.is_empty()
        && name.len() <= 255
        && name != "."
        && name != ".."
        && !name.contains(['/', '\0']);
    if usable {
        return Ok(());
    }
    Err(IoError::new(ErrorKind::Range, format!("{name:?} cannot be the name of a file")))
}

fn config(options: &FuseOptions, read_only: bool) -> Config {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(mount_point::source(&options.file_name)),
        MountOption::DefaultPermissions,
        MountOption::NoExec,
        MountOption::NoAtime,
        MountOption::CUSTOM(format!("max_read={}", connection::REQUEST_BYTES_MAX)),
    ];
    if read_only {
        config.mount_options.push(MountOption::RO);
    }
    config
}

/// Takes away what a killed server left mounted at `directory`, with the loop devices over its
/// file that nobody uses. Says what was there; `None` when nothing was.
///
/// # Errors
/// Something that is not a dead mount of ours is mounted there.
pub fn clear_dead_mount(directory: &Path, file_name: &str) -> Result<Option<String>, IoError> {
    match std::fs::symlink_metadata(directory) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        _ => mount_point::clear(&mount_point::canonical(directory)?, file_name),
    }
}

/// Whether the file's directory is a mount of ours (living or dead): its server's name for it.
pub fn mounted_at(directory: &Path) -> Result<Option<String>, IoError> {
    mount_point::ours(directory)
}
