//! Carries calls out without io_uring: drives through worker threads, sockets through `poll(2)`.
//!
//! Slower than the ring (a thread switch each way for every transfer, a scan of the waiting
//! sockets every round) and meant for kernels and containers that refuse it.
//!
//! Listeners must be non-blocking. Connections need not be: each call on them says so itself.

use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::{OpId, Park};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};

use crate::desk::{Call, Desk};
use crate::foreign;
use crate::kernel::now_ns;
use crate::wakeup::Wakeup;
use crate::workers::Workers;

/// Threads for the drives: as many requests as a disk orders well and a small machine can carry.
pub(crate) const WORKERS_MAX: usize = 8;

/// See the head of the file.
pub(crate) struct Threads {
    workers: Workers,
    wakeup: Arc<Wakeup>,
    /// Calls on sockets, in the order they came.
    waiting: Vec<(OpId, Call)>,
    /// Those of them that came since the last round and have not been tried.
    untried: bool,
    outcomes: Vec<(OpId, i64)>,
}

impl Threads {
    pub(crate) fn new(wakeup: Arc<Wakeup>) -> Threads {
        Threads {
            workers: Workers::new(WORKERS_MAX, wakeup.clone()),
            wakeup,
            waiting: Vec::new(),
            untried: false,
            outcomes: Vec::new(),
        }
    }

    pub(crate) fn start(&mut self, desk: &mut Desk, id: OpId, call: Call) {
        if socket_of(&call).is_some() {
            self.waiting.push((id, call));
            self.untried = true;
        } else if let Err(error) = self.workers.start(id, call) {
            desk.fail(id, error);
        }
    }

    /// Makes a waiting accept end.
    pub(crate) fn cancel(&mut self, desk: &mut Desk, id: OpId) {
        if let Some(index) = self.waiting.iter().position(|(waiting, _)| *waiting == id) {
            self.waiting.remove(index);
            let next = desk.settle(id, -i64::from(libc::ECANCELED));
            assert!(next.is_none(), "a cancelled operation asks for nothing more");
        }
    }

    pub(crate) fn poll(&mut self, desk: &mut Desk, park: Park) {
        if std::mem::take(&mut self.untried) {
            self.try_sockets(desk, |_| true);
        }
        self.collect(desk);
        let time = match park {
            _ if !desk.ended.is_empty() || self.untried => Some(0),
            Park::Never => Some(0),
            Park::Until(deadline_ns) => Some(deadline_ns.saturating_sub(now_ns())),
            Park::Forever => None,
        };
        let ready = self.wait(time);
        if ready.iter().any(|flag| *flag) {
            let mut ready = ready.into_iter();
            self.try_sockets(desk, |_| ready.next().unwrap_or(true));
        }
        self.collect(desk);
    }

    /// Ends what is under way, for at most `patience`; false when something still is.
    pub(crate) fn wind_down(&mut self, desk: &mut Desk, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while desk.holding() > 0 && Instant::now() < deadline {
            desk.ended.clear();
            self.poll(desk, Park::Until(now_ns() + 10 * io::units::MILLISECOND_NS));
        }
        let ended = desk.holding() == 0;
        if !ended {
            self.workers.detach();
        }
        ended
    }

    /// Waits until a socket is ready, a worker is done or somebody wakes us, for at most `time`
    /// nanoseconds. Tells of each waiting call whether its socket is ready.
    fn wait(&mut self, time_ns: Option<u64>) -> Vec<bool> {
        let mut watched = Vec::with_capacity(self.waiting.len() + 1);
        for (_, call) in &self.waiting {
            let (fd, events) = socket_of(call).expect("only calls on sockets wait here");
            // SAFETY: the desk keeps the socket open while an operation on it is under way.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            watched.push(PollFd::from_borrowed_fd(fd, events));
        }
        watched.push(PollFd::from_borrowed_fd(self.wakeup.as_fd(), PollFlags::IN));
        let time = time_ns.map(|ns| Timespec {
            tv_sec: (ns / io::units::SECOND_NS) as i64,
            tv_nsec: (ns % io::units::SECOND_NS) as _,
        });
        match poll(&mut watched, time.as_ref()) {
            Ok(_) => {}
            // Memory for a long list may be short for a moment; the next round asks again.
            Err(Errno::INTR | Errno::NOMEM | Errno::AGAIN) => return Vec::new(),
            Err(e) => panic!("poll of our own descriptors failed: {e}"),
        }
        let woken = watched.pop().is_some_and(|event| !event.revents().is_empty());
        let ready = watched.iter().map(|socket| !socket.revents().is_empty()).collect();
        if woken {
            let mut count = [0; 8];
            // It is readable, so this does not wait.
            let _ = rustix::io::read(&*self.wakeup, &mut count);
            self.wakeup.acknowledge();
        }
        ready
    }

    /// Tries the waiting calls that `chosen` picks, by their place, in order.
    fn try_sockets(&mut self, desk: &mut Desk, mut chosen: impl FnMut(usize) -> bool) {
        let waiting = std::mem::take(&mut self.waiting);
        for (index, (id, mut call)) in waiting.into_iter().enumerate() {
            let mut waits = !chosen(index);
            while !waits {
                match attempt(&call) {
                    // Not ready, or not ready for the rest.
                    Err(Errno::AGAIN) => waits = true,
                    outcome => {
                        let outcome = match outcome {
                            Ok(count) => count as i64,
                            Err(errno) => -i64::from(errno.raw_os_error()),
                        };
                        match desk.settle(id, outcome) {
                            Some(next) => call = next,
                            None => break,
                        }
                    }
                }
            }
            if waits {
                self.waiting.push((id, call));
            }
        }
    }

    fn collect(&mut self, desk: &mut Desk) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.workers.collect(&mut outcomes);
        for (id, outcome) in outcomes.drain(..) {
            if let Some(call) = desk.settle(id, outcome) {
                self.start(desk, id, call);
            }
        }
        self.outcomes = outcomes;
    }
}

/// The socket a call needs, and what it waits for; `None` for calls on drives.
fn socket_of(call: &Call) -> Option<(RawFd, PollFlags)> {
    match *call {
        Call::Accept { fd } | Call::Receive { fd, .. } | Call::Wait { fd } => {
            Some((fd, PollFlags::IN))
        }
        Call::Send { fd, .. } | Call::Raise { fd } => Some((fd, PollFlags::OUT)),
        _ => None,
    }
}

/// Tries a call on a socket without waiting.
fn attempt(call: &Call) -> Result<usize, Errno> {
    let (fd, events) = socket_of(call).expect("only calls on sockets come here");
    // SAFETY: the desk keeps the socket open while an operation on it is under way.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    match *call {
        Call::Accept { .. } => {
            let accepted = rustix::net::accept_with(fd, SocketFlags::CLOEXEC)?;
            Ok(std::os::fd::IntoRawFd::into_raw_fd(accepted) as usize)
        }
        Call::Receive { memory, length, .. } => {
            // SAFETY: the memory is the buffer of an operation under way, which the desk keeps.
            let buf = unsafe { std::slice::from_raw_parts_mut(memory, length) };
            rustix::net::recv(fd, buf, RecvFlags::DONTWAIT).map(|(count, _)| count)
        }
        Call::Send { memory, length, .. } => {
            // SAFETY: as for receiving.
            let buf = unsafe { std::slice::from_raw_parts(memory, length) };
            rustix::net::send(fd, buf, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
        }
        Call::Wait { .. } => foreign::ready(fd, events).map(|()| 0),
        // Others choose whether an event's writes wait, so this asks before it writes.
        Call::Raise { .. } => {
            foreign::ready(fd, events)?;
            rustix::io::write(fd, &foreign::ONE)
        }
        _ => unreachable!("calls on drives have no socket"),
    }
}
