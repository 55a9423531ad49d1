//! The public face: starts the world, opens drives and sockets in it.
//!
//! The executor owns the world, this handle shares its state; both live on one thread, and the
//! handle must not be used from inside the world (nothing there could).

use std::cell::RefCell;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use io::units::human_bytes;
use io::{
    Completed, Device, DeviceId, ErrorKind, Foreign, Io, IoError, Listener, Op, OpId, Park, Pool,
    Socket, SocketId, Unpark, World,
};

use crate::desk::{Call, Desk};
use crate::drive::{Access, Drive};
use crate::foreign;
use crate::listen;
use crate::ring::{NoRing, Ring};
use crate::sockets::Role;
use crate::threads::{self, Threads};
use crate::wakeup::Wakeup;

/// How long the end of a world waits for operations under way. A drive that takes longer is
/// broken, and the buffers it may still write into are then given up instead of freed.
const PATIENCE: Duration = Duration::from_secs(5);

/// What carries operations out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The ring where the kernel allows it, else threads. The environment variable `BIMETAL_IO`
    /// (`ring` or `threads`) overrules it.
    #[default]
    Auto,
    /// io_uring, or an error.
    Ring,
    /// A pool of threads.
    Threads,
}

/// How a world is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelOptions {
    /// What carries operations out.
    pub backend: Backend,
    /// Memory for buffers, in bytes; registered with the ring if the limits allow it.
    pub arena_bytes: usize,
    /// Entries of the ring's submission queue: how many operations one round hands over in one
    /// system call. More of them work, in several.
    pub ring_entries: u32,
}

impl Default for KernelOptions {
    fn default() -> KernelOptions {
        KernelOptions { backend: Backend::Auto, arena_bytes: 64 << 20, ring_entries: 512 }
    }
}

/// Handle for opening things in the world; clones are the same world.
#[derive(Clone)]
pub struct Kernel {
    io: Io,
    machine: Rc<RefCell<Machine>>,
}

impl Kernel {
    /// Starts the world on this thread: the executor, and the handle to open things with.
    ///
    /// # Errors
    /// When the backend asked for is not to be had, or `BIMETAL_IO` names none.
    pub fn start(options: KernelOptions) -> Result<(Io, Kernel), IoError> {
        let pool = Pool::new(options.arena_bytes);
        let wakeup = Arc::new(Wakeup::new()?);
        let (carrier, description) = choose(&options, &pool, &wakeup)?;
        let machine = Machine { desk: Desk::default(), carrier, wakeup, description };
        let machine = Rc::new(RefCell::new(machine));
        let io = Io::new(Box::new(Running(machine.clone())), pool);
        Ok((io.clone(), Kernel { io, machine }))
    }

    /// One line that says which backend is in use, and why if it is not the ring.
    pub fn describe(&self) -> String {
        self.machine.borrow().description.clone()
    }

    /// Opens and claims a regular file or block device.
    ///
    /// # Errors
    /// What stands in the way and what to do: it is missing, in use, empty, read-only, or not a
    /// drive at all.
    pub fn open_device(&self, path: &Path, access: Access) -> Result<Device, IoError> {
        let mut drive = Drive::open(path, access)?;
        let machine = &mut *self.machine.borrow_mut();
        if let Carrier::Ring(ring) = &mut machine.carrier {
            drive.file.registered = ring.register(drive.file.fd);
        }
        let info = drive.info.clone();
        machine.desk.drives.push(drive);
        let id = DeviceId((machine.desk.drives.len() - 1) as u32);
        Ok(Device::new(self.io.clone(), id, info))
    }

    /// Listens on a unix socket. Replaces a socket file on which nobody listens any more.
    ///
    /// # Errors
    /// When somebody listens there, or the path is something else than a socket.
    pub fn listen_unix(&self, path: &Path) -> Result<Listener, IoError> {
        self.add_listener(listen::unix(path)?, Role::Listener, format!("unix:{}", path.display()))
    }

    /// Listens on a TCP port (0: any free one); gives the address as bound.
    ///
    /// # Errors
    /// As the kernel says: in use, not ours, not allowed.
    pub fn listen_tcp(&self, address: SocketAddr) -> Result<(Listener, SocketAddr), IoError> {
        let (fd, bound) = listen::tcp(address)?;
        Ok((self.add_listener(fd, Role::Listener, format!("tcp:{bound}"))?, bound))
    }

    /// Takes over a listening socket from whoever made it (a service manager). Shutting the
    /// listener down ends our accepts and leaves the socket itself alone.
    ///
    /// # Errors
    /// When it is not a listening stream socket.
    pub fn adopt_listener(&self, fd: OwnedFd) -> Result<Listener, IoError> {
        listen::check_listener(&fd)?;
        self.add_listener(fd, Role::AdoptedListener, "the socket handed over".into())
    }

    /// Takes over a connection.
    ///
    /// # Errors
    /// When it is not a stream socket.
    pub fn adopt_stream(&self, fd: OwnedFd) -> Result<Socket, IoError> {
        listen::check_stream(&fd)?;
        self.add_stream(fd, "the connection handed over".into())
    }

    /// Connects to a unix socket. Waits only if the other side's backlog is full.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect_unix(&self, path: &Path) -> Result<Socket, IoError> {
        self.add_stream(listen::connect(path)?, format!("unix:{}", path.display()))
    }

    fn add_listener(&self, fd: OwnedFd, role: Role, label: String) -> Result<Listener, IoError> {
        let machine = &mut *self.machine.borrow_mut();
        listen::set_nonblocking(&fd, matches!(machine.carrier, Carrier::Threads(_)))?;
        let id = machine.desk.sockets.add(fd, role, label.into());
        Ok(Listener::new(self.io.clone(), id))
    }

    fn add_stream(&self, fd: OwnedFd, label: String) -> Result<Socket, IoError> {
        listen::set_nonblocking(&fd, false)?;
        let machine = &mut *self.machine.borrow_mut();
        let id = machine.desk.sockets.add(fd, Role::Stream, label.into());
        Ok(Socket::new(self.io.clone(), id))
    }
}

/// Nanoseconds on the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * io::units::SECOND_NS + now.tv_nsec as u64
}

enum Carrier {
    Ring(Box<Ring>),
    Threads(Threads),
}

impl Carrier {
    fn start(&mut self, desk: &mut Desk, id: OpId, call: Call) {
        match self {
            Carrier::Ring(ring) => ring.start(desk, id, call),
            Carrier::Threads(threads) => threads.start(desk, id, call),
        }
    }
}

/// The state of a world.
struct Machine {
    /// Dropped before the desk, whose drives and buffers it uses.
    carrier: Carrier,
    desk: Desk,
    wakeup: Arc<Wakeup>,
    description: String,
}

impl Machine {
    fn shutdown(&mut self, socket: SocketId) {
        if !self.desk.sockets.shutdown(socket) {
            return;
        }
        for waiting in self.desk.waits_on(socket) {
            match &mut self.carrier {
                Carrier::Ring(ring) => ring.cancel(waiting),
                Carrier::Threads(threads) => threads.cancel(&mut self.desk, waiting),
            }
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        for socket in self.desk.sockets.ids() {
            self.shutdown(socket);
        }
        let ended = match &mut self.carrier {
            Carrier::Ring(ring) => ring.wind_down(&mut self.desk, PATIENCE),
            Carrier::Threads(threads) => threads.wind_down(&mut self.desk, PATIENCE),
        };
        if !ended {
            self.desk.abandon();
        }
    }
}

/// The world as the executor sees it.
struct Running(Rc<RefCell<Machine>>);

impl World for Running {
    fn now_ns(&self) -> u64 {
        now_ns()
    }

    fn random(&mut self) -> u64 {
        let mut bytes = [0; 8];
        // Eight bytes come in one piece once the kernel's generator is ready, and this waits for
        // that; only a signal can interrupt.
        while rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) != Ok(8) {}
        u64::from_ne_bytes(bytes)
    }

    fn submit(&mut self, id: OpId, op: Op) {
        let machine = &mut *self.0.borrow_mut();
        if let Some(call) = machine.desk.admit(id, op) {
            machine.carrier.start(&mut machine.desk, id, call);
        }
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        let machine = &mut *self.0.borrow_mut();
        match &mut machine.carrier {
            Carrier::Ring(ring) => ring.poll(&mut machine.desk, park),
            Carrier::Threads(threads) => threads.poll(&mut machine.desk, park),
        }
        done.append(&mut machine.desk.ended);
    }

    fn adopt(&mut self, fd: OwnedFd, what: Foreign) -> Result<SocketId, IoError> {
        let machine = &mut *self.0.borrow_mut();
        let (role, label) = match what {
            Foreign::Event => {
                foreign::check_event(fd.as_fd())?;
                (Role::Event, "an event".into())
            }
            Foreign::Driver if matches!(machine.carrier, Carrier::Threads(_)) => {
                let message = "commands to drivers need io_uring, which is not in use here";
                return Err(IoError::new(ErrorKind::Unsupported, message));
            }
            Foreign::Driver => (Role::Driver, foreign::name(fd.as_fd()).into()),
            Foreign::Watched => (Role::Watched, foreign::name(fd.as_fd()).into()),
        };
        Ok(machine.desk.sockets.add(fd, role, label))
    }

    fn lent_slots(&self) -> Range<u16> {
        match &self.0.borrow().carrier {
            Carrier::Ring(ring) => ring.lent_slots(),
            Carrier::Threads(_) => 0..0,
        }
    }

    fn shutdown(&mut self, socket: SocketId) {
        self.0.borrow_mut().shutdown(socket);
    }

    fn close(&mut self, socket: SocketId) {
        let machine = &mut *self.0.borrow_mut();
        machine.shutdown(socket);
        machine.desk.sockets.close(socket);
    }

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        Some(self.0.borrow().wakeup.clone())
    }
}

/// Picks the carrier, and says which and why.
fn choose(
    options: &KernelOptions,
    pool: &Pool,
    wakeup: &Arc<Wakeup>,
) -> Result<(Carrier, String), IoError> {
    let asked = match (options.backend, std::env::var("BIMETAL_IO").as_deref()) {
        (Backend::Auto, Ok("threads")) => (Backend::Threads, "BIMETAL_IO asks for it"),
        (Backend::Auto, Ok("ring")) => (Backend::Ring, "BIMETAL_IO asks for it"),
        (Backend::Auto, Ok(other)) if !other.is_empty() => {
            let message = format!("BIMETAL_IO is '{other}' (use 'ring' or 'threads')");
            return Err(IoError::new(ErrorKind::Unsupported, message));
        }
        (backend, _) => (backend, "as asked"),
    };
    let workers = threads::WORKERS_MAX;
    let threads = || Carrier::Threads(Threads::new(wakeup.clone()));
    if let (Backend::Threads, why) = asked {
        return Ok((threads(), format!("pool of {workers} threads: {why}")));
    }
    match Ring::new(options.ring_entries, pool, wakeup.clone()) {
        Ok(ring) => {
            let arena_bytes = pool.usage().arena_bytes as u64;
            let buffers = match ring.registered_bytes() as u64 {
                0 if arena_bytes == 0 => "no arena".to_owned(),
                0 => format!(
                    "{} of buffers, not registered (is RLIMIT_MEMLOCK too low?)",
                    human_bytes(arena_bytes)
                ),
                bytes => format!("{} of registered buffers", human_bytes(bytes)),
            };
            Ok((Carrier::Ring(Box::new(ring)), format!("io_uring, {buffers}")))
        }
        Err(NoRing(why)) if asked.0 == Backend::Auto => {
            Ok((threads(), format!("pool of {workers} threads: {why}")))
        }
        Err(NoRing(why)) => Err(IoError::new(ErrorKind::Unsupported, why)),
    }
}
