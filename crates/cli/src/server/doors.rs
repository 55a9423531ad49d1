//! The doors of a running server: opened together, closed together.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use engine::Engine;
use export::Metered;
use export::fuse::{self, FuseDoor, FuseOptions, Unmount, loop_device};
use export::nbd::{self, ClientCertificates, NbdOptions, NbdServer, Tls};
use export::ublk::{Ended, UblkDoor, UblkOptions};
use export::vhost_user::{VhostUserDoor, VhostUserOptions};
use io::{Io, Listener, mailbox};
use listenfd::ListenFd;
use uring::Kernel;

use super::nbd_address::{NbdAddress, tcp_uri, unix_uri};
use crate::failure::{Failure, OnPath};

/// Which doors to open.
#[derive(Debug, Clone, Default)]
pub struct DoorOptions {
    /// Where the NBD door listens.
    pub nbd: Vec<NbdAddress>,
    /// Where the volume's file is mounted.
    pub fuse: Option<PathBuf>,
    /// Where virtual machines connect.
    pub vhost_user: Option<PathBuf>,
    /// A block device through the kernel's ublk driver.
    pub ublk: bool,
    /// TLS for NBD clients.
    pub tls: TlsOptions,
    /// Serve plain NBD beyond this machine.
    pub allow_remote_plain_tcp: bool,
}

/// How NBD clients are recognised and encrypted.
#[derive(Debug, Clone, Default)]
pub struct TlsOptions {
    /// Directory with `ca-cert.pem`, `server-cert.pem` and `server-key.pem`.
    pub certificates: Option<PathBuf>,
    /// Clients must show a certificate too.
    pub verify_peer: bool,
    /// File with `USER:KEY` lines.
    pub psk: Option<PathBuf>,
    /// Clients may also connect without TLS.
    pub optional: bool,
}

impl TlsOptions {
    /// Loads keys and certificates; `None` when TLS is not asked for.
    fn load(&self) -> Result<Option<Tls>, Failure> {
        let tls = match (&self.certificates, &self.psk) {
            (Some(dir), _) => {
                let clients = match self.verify_peer {
                    true => ClientCertificates::Required,
                    false => ClientCertificates::NotAsked,
                };
                Tls::from_certificates(dir, clients)?
            }
            (None, Some(file)) => load_psk(file)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(if self.optional { tls.offered() } else { tls }))
    }

    /// Whether every client is encrypted.
    fn is_required(&self) -> bool {
        (self.certificates.is_some() || self.psk.is_some()) && !self.optional
    }
}

/// Keeps this process able to answer the kernel when memory is short.
///
/// # Errors
/// What to tell the user, once there is something to answer for.
pub fn become_io_flusher() -> Result<(), String> {
    fuse::become_io_flusher()
        .map_err(|error| format!("{error}; under memory pressure the kernel may wait for us"))
}

/// Tells it.
pub fn tell_unless_flusher(outcome: Result<(), String>) {
    if let Err(warning) = outcome {
        eprintln!("bimetal: {warning}");
    }
}

/// What a block device of this volume is known by.
fn mark_of(engine: &Engine) -> u64 {
    let id = engine.status().volume_id.0;
    let [front, back] = [&id[..8], &id[8..]]
        .map(|half| u64::from_le_bytes(half.try_into().expect("half of sixteen bytes")));
    front ^ back
}

#[cfg(feature = "tls-psk")]
fn load_psk(file: &Path) -> Result<Tls, Failure> {
    Ok(Tls::from_psk_file(file)?)
}

#[cfg(not(feature = "tls-psk"))]
fn load_psk(_: &Path) -> Result<Tls, Failure> {
    Err(Failure::failed("this bimetal was built without shared keys for TLS")
        .hint("build it with the feature 'tls-psk', or use --tls-certificates"))
}

/// What goes through every door.
pub type Served = Metered<Engine>;

/// The open doors.
pub struct Doors {
    nbd: Option<NbdServer<Served>>,
    /// NBD addresses for clients.
    pub uris: Vec<String>,
    /// Socket files to remove at the end.
    sockets: Vec<PathBuf>,
    fuse: Option<FuseDoor>,
    vhost_user: Option<VhostUserDoor>,
    ublk: Option<UblkDoor>,
}

impl DoorOptions {
    /// Whether no door is asked for.
    pub fn is_empty(&self) -> bool {
        self.nbd.is_empty() && self.fuse.is_none() && self.vhost_user.is_none() && !self.ublk
    }

    /// Whether there are doors whose users go on with the next server, as if nothing had happened.
    pub fn outlive_server(&self) -> bool {
        self.vhost_user.is_some() || self.ublk
    }

    /// Refuses what would offer the volume to the network unprotected.
    pub fn verify(&self) -> Result<(), Failure> {
        for address in &self.nbd {
            if let NbdAddress::Tcp(address) = address
                && !nbd::is_loopback(address)
                && !self.tls.is_required()
                && !self.allow_remote_plain_tcp
            {
                return Err(Failure::refused(format!(
                    "tcp:{address} would offer the volume to the network without encryption or \
                     authentication"
                ))
                .hint(
                    "require TLS (--tls-certificates DIR or --tls-psk FILE), or listen on \
                     tcp:127.0.0.1:PORT or a unix socket; --allow-remote-plain-tcp overrides this",
                ));
            }
        }
        Ok(())
    }
}

impl Doors {
    /// Opens all of them; `handed_over` are the sockets that a service manager listens on for us.
    pub async fn open(
        world: (&Io, &Kernel),
        volume: Rc<Served>,
        mut nbd_options: NbdOptions,
        options: &DoorOptions,
        handed_over: ListenFd,
    ) -> Result<Doors, Failure> {
        let (io, kernel) = world;
        let mut doors = Doors {
            nbd: None,
            uris: Vec::new(),
            sockets: Vec::new(),
            fuse: None,
            vhost_user: None,
            ublk: None,
        };
        let name = nbd_options.export_name.clone();
        let rotational = nbd_options.rotational;
        if !options.nbd.is_empty() || handed_over.len() > 0 {
            nbd_options.tls = options.tls.load()?;
            let server = NbdServer::new(io.clone(), volume.clone(), nbd_options);
            let mut listeners = doors.listen(kernel, &name, options)?;
            let tls = options.tls.is_required();
            listeners.append(&mut doors.adopt(kernel, (&name, tls), handed_over)?);
            for listener in listeners {
                let server = server.clone();
                io.spawn(async move { server.serve(listener).await });
            }
            doors.nbd = Some(server);
        }
        if let Some(path) = &options.vhost_user {
            let path = std::path::absolute(path).on_path("find", path)?;
            let (shown, serial) = (path.clone(), name.clone());
            let report = move |what: &str| {
                eprintln!("bimetal: vhost-user {}: {what}", shown.display());
            };
            let options = VhostUserOptions { path, serial, report: Arc::new(report) };
            doors.vhost_user = Some(VhostUserDoor::open(io.clone(), volume.clone(), options)?);
        }
        if let Some(dir) = &options.fuse {
            // Not when anything is there: what a killed server left mounted there answers no
            // question, and is cleared away by the door.
            if matches!(dir.symlink_metadata(), Err(e) if e.kind() == ErrorKind::NotFound) {
                std::fs::create_dir_all(dir).on_path("make directory", dir)?;
            }
            let fuse_options =
                FuseOptions { mount_dir: dir.clone(), file_name: name, read_only: false };
            let door = FuseDoor::mount(io.clone(), volume.clone(), fuse_options)?;
            if let Some(recovered) = door.recovered() {
                eprintln!("bimetal: {recovered}");
            }
            // Only root can put a file system on it, and only then the kernel may wait for us.
            if rustix::process::geteuid().is_root() {
                tell_unless_flusher(become_io_flusher());
            }
            doors.fuse = Some(door);
        }
        // Last: a device with a file system on it asks at once.
        if options.ublk {
            // Before the door: threads inherit it.
            let flusher = become_io_flusher();
            let mark = mark_of(volume.volume());
            let ublk_options = UblkOptions { mark: Some(mark), rotational };
            let door = UblkDoor::open(io.clone(), volume, ublk_options).await?;
            tell_unless_flusher(flusher);
            if door.recovered() {
                let device = door.path().display();
                eprintln!("bimetal: took over {device}, which an earlier server had left");
            }
            doors.ublk = Some(door);
        }
        Ok(doors)
    }

    fn listen(
        &mut self,
        kernel: &Kernel,
        name: &str,
        options: &DoorOptions,
    ) -> Result<Vec<Listener>, Failure> {
        let tls = options.tls.is_required();
        let mut listeners = Vec::new();
        for address in &options.nbd {
            let (listener, uri) = match address {
                NbdAddress::Unix(path) => {
                    let path = std::path::absolute(path).on_path("find", path)?;
                    let listener = kernel.listen_unix(&path)?;
                    let uri = unix_uri(&path, name, tls);
                    self.sockets.push(path);
                    (listener, uri)
                }
                NbdAddress::Tcp(address) => {
                    let (listener, bound) = kernel.listen_tcp(*address)?;
                    (listener, tcp_uri(bound, name, tls))
                }
            };
            listeners.push(listener);
            self.uris.push(uri);
        }
        Ok(listeners)
    }

    fn adopt(
        &mut self,
        kernel: &Kernel,
        (name, tls): (&str, bool),
        mut handed_over: ListenFd,
    ) -> Result<Vec<Listener>, Failure> {
        let refused = |error: std::io::Error| {
            Failure::failed(format!("a socket handed over by the service manager: {error}"))
        };
        let mut listeners = Vec::new();
        for index in 0..handed_over.len() {
            let (fd, uri) = match handed_over.take_unix_listener(index) {
                Ok(Some(listener)) => {
                    let address = listener.local_addr().map_err(refused)?;
                    let uri = address.as_pathname().map(|path| unix_uri(path, name, tls));
                    (listener.into(), uri)
                }
                Ok(None) => continue,
                // Not a unix socket: it stays where it was and is looked at once more.
                Err(_) => {
                    let listener = handed_over.take_tcp_listener(index).map_err(refused)?;
                    let Some(listener) = listener else { continue };
                    let address = listener.local_addr().map_err(refused)?;
                    (listener.into(), Some(tcp_uri(address, name, tls)))
                }
            };
            listeners.push(kernel.adopt_listener(fd)?);
            self.uris.extend(uri);
        }
        Ok(listeners)
    }

    /// The volume as a file.
    pub fn fuse_file(&self) -> Option<PathBuf> {
        self.fuse.as_ref().map(FuseDoor::file_path)
    }

    /// Where virtual machines connect.
    pub fn vhost_user(&self) -> Option<PathBuf> {
        self.vhost_user.as_ref().map(|door| door.path().to_owned())
    }

    /// The block device.
    pub fn ublk(&self) -> Option<PathBuf> {
        self.ublk.as_ref().map(|door| door.path().to_owned())
    }

    /// Whether there are doors whose users go on with the next server.
    pub fn outlive_server(&self) -> bool {
        self.vhost_user.is_some() || self.ublk.is_some()
    }

    /// Reads of the block device without a copy; `None` where there are none such.
    pub fn uncopied_reads(&self) -> Option<u64> {
        self.ublk.as_ref().and_then(UblkDoor::uncopied_reads)
    }

    /// NBD connections now.
    pub fn nbd_connections(&self) -> usize {
        self.nbd.as_ref().map_or(0, NbdServer::connections)
    }

    /// Lets requests under way end and closes the NBD door; nothing when there is none.
    pub async fn close_nbd(&self) {
        if let Some(server) = &self.nbd {
            server.shutdown().await;
        }
        for socket in &self.sockets {
            // It may be gone already; the next server replaces what stays.
            let _ = std::fs::remove_file(socket);
        }
    }

    /// Lets requests under way end and leaves the virtual machine to the next server.
    pub async fn close_vhost_user(&self) {
        if let Some(door) = &self.vhost_user {
            door.shutdown().await;
        }
    }

    /// Takes the block device away, or leaves it to the next server if somebody uses it.
    pub async fn close_ublk(&self) {
        let Some(door) = &self.ublk else { return };
        let device = door.path().display();
        match door.shutdown().await {
            Ok(Ended::Removed) => {}
            Ok(Ended::Left) => {
                eprintln!("bimetal: {device} is in use and waits for the next server");
            }
            Err(error) => eprintln!("bimetal: {device} stays: {error}"),
        }
    }

    /// Ends when the file cannot be reached any more; never where there is none.
    pub fn fuse_ended(&self) -> Option<impl Future<Output = ()> + use<>> {
        self.fuse.as_ref().map(FuseDoor::ended)
    }

    /// Whether the file is the only way to the volume.
    pub fn only_fuse(&self) -> bool {
        self.nbd.is_none() && self.vhost_user.is_none() && self.ublk.is_none()
    }

    /// Why the file cannot be used any more, if so.
    pub fn fuse_failure(&self) -> Option<String> {
        let door = self.fuse.as_ref()?;
        door.failure().map(|why| format!("{}: {why}", door.file_path().display()))
    }

    /// Unmounts the file, with the loop devices over it, if nobody uses them.
    ///
    /// # Errors
    /// Somebody does: the message says who. The door stays open.
    pub async fn close_fuse(&self) -> Result<(), Failure> {
        let Some(door) = &self.fuse else { return Ok(()) };
        let file = door.file_path();
        let (sender, mut receiver) = mailbox(1);
        // On a thread of its own: the kernel reads and flushes the file while a loop device goes,
        // and it is us who must answer.
        std::thread::spawn(move || {
            let detached = loop_device::find_by_backing(&file).and_then(|devices| {
                devices.iter().try_for_each(|device| loop_device::detach_from(&file, device))
            });
            // Nobody to tell when the server is gone meanwhile.
            drop(sender.send(detached));
        });
        match receiver.receive().await {
            Some(detached) => detached?,
            None => return Err(Failure::failed("the detaching thread died")),
        }
        door.unmount(Unmount::WhenUnused).await?;
        Ok(())
    }

    /// Unmounts the file although somebody uses it: their next access fails.
    pub async fn abandon_fuse(&self) {
        if let Some(door) = &self.fuse {
            // The process ends right after; what stays is cleared by the next one.
            let _ = door.unmount(Unmount::Detach).await;
        }
    }
}
