//! The vhost-user-blk door: a virtio disk for a virtual machine, over memory shared with it.
//!
//! A front-end (QEMU, cloud-hypervisor) connects to a socket and hands over the guest's memory and
//! its queues. From then on requests take no system call of anybody's but a kick and a call, and
//! one copy between the guest's memory and our buffers.
//!
//! * [`VhostUserDoor`] listens, serves on the executor, closes in order.
//! * The protocol is spoken on a thread of its own (`session`), by the library of rust-vmm; the
//!   queues run on the executor (`queue`), which hears kicks and gives calls through its world.
//! * What is under way is noted in memory that the front-end keeps (`in_flight`): after this
//!   process was killed and started again the front-end connects again, what was not answered is
//!   done again, and the guest notices nothing but the delay.
//!
//! A flush here is [`io::Volume::flush`]. A guest that does not know flushes gets every write
//! durable before its answer. Everything that the guest or the front-end says is foreign: what is
//! wrong with it is reported and ends the queue or the connection, nothing else.

mod chain;
mod guest_memory;
mod in_flight;
mod protocol;
mod queue;
mod request;
mod session;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use io::{Event, Io, IoError, Receiver, Sender, Volume, WaitList, mailbox};
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::control::bind_as;
use protocol::IDENTITY_BYTES;
use queue::{Budget, Change, Events, Reins, Server};
use session::{Fds, Offer, Order, Outcome, Session};

/// Orders that wait for the executor. A session gives one at a time.
const MAILBOX_ORDERS: usize = 4;

/// Pause after a connection that could not be taken.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Says what a front-end or guest did wrong, in a sentence; from any thread.
pub type Report = Arc<dyn Fn(&str) + Send + Sync>;

/// How a volume is offered.
pub struct VhostUserOptions {
    /// Where to listen. The socket is for its owner only: who connects gives us memory to work on.
    pub path: PathBuf,
    /// What a guest sees as the disk's serial number; its first 20 bytes.
    pub serial: String,
    /// Told what goes wrong.
    pub report: Report,
}

/// A volume as a virtio disk. One front-end at a time; the next waits until the first has gone.
/// Dropping it ends the connection at once: requests under way are done again by the next server.
pub struct VhostUserDoor {
    path: PathBuf,
    listener: OwnedFd,
    line: Arc<Mutex<Line>>,
    state: Rc<State>,
}

/// The connection of now, shared with the thread that listens to it.
#[derive(Default)]
struct Line {
    closing: bool,
    stream: Option<UnixStream>,
}

#[derive(Default)]
struct State {
    closing: Cell<bool>,
    queues: RefCell<BTreeMap<u16, Rc<Reins>>>,
    /// Shared by all queues.
    budget: Rc<Budget>,
    /// The listening thread has ended, and all its orders are carried out.
    ended: Cell<bool>,
    changed: WaitList,
}

impl VhostUserDoor {
    /// Listens, and serves from now on whenever the executor runs.
    ///
    /// # Errors
    /// The socket cannot be made: somebody listens there, or something else is in the way.
    pub fn open<V: Volume>(
        io: Io,
        volume: Rc<V>,
        options: VhostUserOptions,
    ) -> Result<VhostUserDoor, IoError> {
        let path = options.path;
        let listener = bind_as("vhost-user socket", &path)?;
        let failed = |e: std::io::Error| {
            let context = format!("vhost-user socket {}", path.display());
            IoError::from_errno(e.raw_os_error().unwrap_or(0), context)
        };
        let listening = UnixListener::from(listener.try_clone().map_err(failed)?);
        let info = volume.info();
        let offer = Arc::new(Offer {
            features: protocol::offered(&info),
            config: protocol::config(&info).to_vec(),
        });
        let line = Arc::<Mutex<Line>>::default();
        let (orders, ordered) = mailbox(MAILBOX_ORDERS);
        let (its_line, its_report) = (line.clone(), options.report.clone());
        std::thread::Builder::new()
            .name("bimetal-vhost".into())
            .spawn(move || listen(&listening, &its_line, &offer, &orders, &its_report))
            .map_err(failed)?;
        let state = Rc::new(State::default());
        let mut identity = [0; IDENTITY_BYTES];
        let serial = options.serial.as_bytes();
        let length = serial.len().min(IDENTITY_BYTES);
        identity[..length].copy_from_slice(&serial[..length]);
        let desk =
            Desk { io: io.clone(), volume, identity, report: options.report, state: state.clone() };
        io.spawn(async move { desk.run(ordered).await });
        Ok(VhostUserDoor { path, listener, line, state })
    }

    /// Where front-ends connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Queues that run now.
    pub fn queues(&self) -> usize {
        self.state.queues.borrow().len()
    }

    /// Lets requests under way end, closes the connection and takes the socket away. The front-end
    /// keeps what the guest asks from now on for who listens there next.
    pub async fn shutdown(&self) {
        self.state.closing.set(true);
        stop_all(&self.state).await;
        self.hang_up();
        self.state.changed.until(|| self.state.ended.get().then_some(())).await;
        // It is in nobody's way if it stays: the next server replaces it.
        let _ = std::fs::remove_file(&self.path);
    }

    /// Ends the connection, and the thread's waiting for the next.
    fn hang_up(&self) {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.closing = true;
        if let Some(stream) = line.stream.take() {
            // It may have gone by itself.
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(line);
        let _ = rustix::net::shutdown(self.listener.as_fd(), rustix::net::Shutdown::Both);
    }
}

impl Drop for VhostUserDoor {
    fn drop(&mut self) {
        self.hang_up();
    }
}

/// The thread: one front-end after the other.
fn listen(
    listener: &UnixListener,
    line: &Mutex<Line>,
    offer: &Arc<Offer>,
    orders: &Sender<Order>,
    report: &Report,
) {
    loop {
        let accepted = listener.accept();
        {
            let mut line = line.lock().unwrap_or_else(PoisonError::into_inner);
            if line.closing {
                return;
            }
            // Without a second handle the door could not end this connection: it does not begin.
            line.stream = accepted.as_ref().ok().and_then(|(stream, _)| stream.try_clone().ok());
            if line.stream.is_none() {
                drop(line);
                // For want of descriptors or memory, which others will give back.
                std::thread::sleep(ACCEPT_PAUSE);
                continue;
            }
        }
        let Ok((stream, _)) = accepted else { continue };
        let session = Session::new(offer.clone(), orders.clone(), report.clone());
        let session = Arc::new(Mutex::new(session));
        let mut handler = BackendReqHandler::from_stream(stream, session.clone());
        let end = loop {
            match handler.handle_request() {
                Ok(()) | Err(Error::SocketRetry(_)) => {}
                Err(error) => break error,
            }
        };
        if !matches!(end, Error::Disconnected | Error::SocketBroken(_)) {
            report(&format!("the connection ends: {end}"));
        }
        session.lock().unwrap_or_else(PoisonError::into_inner).leave();
        line.lock().unwrap_or_else(PoisonError::into_inner).stream = None;
    }
}

/// The executor's side: has the queues, carries orders out.
struct Desk<V> {
    io: Io,
    volume: Rc<V>,
    identity: [u8; IDENTITY_BYTES],
    report: Report,
    state: Rc<State>,
}

impl<V: Volume> Desk<V> {
    async fn run(self, mut orders: Receiver<Order>) {
        while let Some(order) = orders.receive().await {
            // Nobody waits for an answer whose session has ended.
            match order {
                Order::Start { layout, fds, enabled, answer } => {
                    let _ = answer.send(self.start(*layout, fds, enabled));
                }
                Order::Stop { index, answer } => {
                    let reins = self.state.queues.borrow_mut().remove(&index);
                    if let Some(reins) = reins {
                        let _ = answer.send(reins.stop().await);
                    }
                }
                Order::Enable { index, enabled, answer } => {
                    let _ = answer.send(self.change(index, Change::Enabled(enabled)));
                }
                Order::Call { index, call, answer } => {
                    let call = call.map(|fd| Event::adopt(&self.io, fd)).transpose();
                    let outcome = call
                        .map_err(|error| format!("queue {index}: {error}"))
                        .and_then(|call| self.change(index, Change::Call(call)));
                    let _ = answer.send(outcome);
                }
                Order::Memory { memory, answer } => {
                    for reins in self.state.queues.borrow().values() {
                        reins.change(Change::Memory(memory.clone()));
                    }
                    let _ = answer.send(Ok(()));
                }
                Order::Leave { answer } => {
                    stop_all(&self.state).await;
                    self.state.queues.borrow_mut().clear();
                    let _ = answer.send(Ok(()));
                }
            }
        }
        self.state.ended.set(true);
        self.state.changed.wake_all();
    }

    fn start(&self, layout: queue::Layout, fds: Fds, enabled: bool) -> Outcome {
        let index = layout.index;
        if self.state.closing.get() {
            return Err(format!("queue {index}: the server is ending"));
        }
        let adopt = |fd: OwnedFd| {
            Event::adopt(&self.io, fd).map_err(|error| format!("queue {index}: {error}"))
        };
        let events = Events {
            kick: adopt(fds.kick)?,
            call: fds.call.map(adopt).transpose()?,
            error: fds.error.map(adopt).transpose()?,
        };
        let (io, volume) = (self.io.clone(), self.volume.clone());
        let budget = self.state.budget.clone();
        let (server, reins) = Server::new(io, volume, self.identity, layout, events, budget)
            .map_err(|why| format!("queue {index}: {why}"))?;
        reins.change(Change::Enabled(enabled));
        self.state.queues.borrow_mut().insert(index, reins);
        let report = self.report.clone();
        self.io.spawn(async move {
            let broken = |why: &str| {
                report(&format!("queue {index} is broken and serves no more: {why}"));
            };
            server.run(broken).await;
        });
        Ok(())
    }

    fn change(&self, index: u16, change: Change) -> Outcome {
        // A queue that the closing door has stopped needs nothing any more.
        if let Some(reins) = self.state.queues.borrow().get(&index) {
            reins.change(change);
        }
        Ok(())
    }
}

/// Stops the queues. They stay known: who asks for one hears where it stopped.
async fn stop_all(state: &State) {
    let running: Vec<Rc<Reins>> = state.queues.borrow().values().cloned().collect();
    for reins in &running {
        reins.change(Change::Stop);
    }
    for reins in running {
        reins.stop().await;
    }
}
