//! The calls a connection has under way in its volume.
//!
//! * A member carries out one job at a time and is used again for the next: after the first few
//!   requests of a connection, a request costs neither an allocation nor a task.
//! * A job is begun at once when it is handed out; what the volume can answer without waiting is
//!   done before [`Crew::start`] returns.
//! * A member that waits has a waker of its own. It marks the member's bit and wakes the
//!   connection once, however many members became ready.
//! * The crew is never dropped half-way by a connection: it ends when all are idle.

use std::cell::Cell;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use io::{Buf, Durability, IoError, Volume, ZeroMode};

/// One call of the volume.
pub(crate) enum Deed {
    Read { at: u64, buf: Buf },
    Write { at: u64, buf: Buf, durability: Durability },
    Flush,
    Trim { at: u64, length: u64, durability: Durability },
    WriteZeroes { at: u64, length: u64, mode: ZeroMode, durability: Durability },
    Cache { at: u64, length: u64 },
}

/// A deed, and whose it is.
pub(crate) struct Job {
    pub(crate) ticket: Ticket,
    pub(crate) deed: Deed,
}

/// Names a part of a request in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// Index of the request.
    pub(crate) request: u32,
    /// Which part of it.
    pub(crate) part: u32,
    /// Where the part begins on the volume, in bytes.
    pub(crate) at: u64,
}

/// A job that has ended.
pub(crate) struct Done {
    pub(crate) ticket: Ticket,
    /// The buffer of a read, filled if the result is good.
    pub(crate) buf: Option<Buf>,
    pub(crate) result: Result<(), IoError>,
}

/// Where a job is laid for a member, and where the member lays what came of it.
#[derive(Default)]
struct Desk {
    job: Cell<Option<Job>>,
    done: Cell<Option<Done>>,
}

struct Member {
    desk: Rc<Desk>,
    work: Pin<Box<dyn Future<Output = Infallible>>>,
    waker: Waker,
}

impl Member {
    fn poll(&mut self) -> Option<Done> {
        let Poll::Pending = self.work.as_mut().poll(&mut Context::from_waker(&self.waker));
        self.desk.done.take()
    }
}

/// Which members are ready, as bits. Shared with wakers, which may be on other threads.
struct Bell {
    ready: Box<[AtomicU64]>,
    /// Set from the first ring until the connection looks.
    rung: AtomicBool,
    connection: Mutex<Option<Waker>>,
}

struct MemberWaker {
    bell: Arc<Bell>,
    index: usize,
}

impl Wake for MemberWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.bell.ready[self.index / 64].fetch_or(1 << (self.index % 64), Ordering::AcqRel);
        if !self.bell.rung.swap(true, Ordering::AcqRel)
            && let Some(waker) = &*self.bell.connection.lock().expect("no panic while held")
        {
            waker.wake_by_ref();
        }
    }
}

/// The members of one connection.
pub(crate) struct Crew<V> {
    volume: Rc<V>,
    members: Vec<Member>,
    idle: Vec<u32>,
    members_max: usize,
    bell: Arc<Bell>,
}

impl<V: Volume> Crew<V> {
    /// A crew of at most `members_max`; each comes to be when it is first needed.
    pub(crate) fn new(volume: Rc<V>, members_max: usize) -> Crew<V> {
        let words = members_max.div_ceil(64);
        Crew {
            volume,
            members: Vec::new(),
            idle: Vec::new(),
            members_max,
            bell: Arc::new(Bell {
                ready: (0..words).map(|_| AtomicU64::new(0)).collect(),
                rung: AtomicBool::new(false),
                connection: Mutex::new(None),
            }),
        }
    }

    /// Whether [`Crew::start`] may be called.
    pub(crate) fn has_room(&self) -> bool {
        !self.idle.is_empty() || self.members.len() < self.members_max
    }

    /// Whether no job is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.len() == self.members.len()
    }

    /// Begins a job; gives its end if it needs no waiting.
    ///
    /// # Panics
    /// When there is no room.
    pub(crate) fn start(&mut self, job: Job) -> Option<Done> {
        let index = self.idle.pop().unwrap_or_else(|| self.hire());
        let member = &mut self.members[index as usize];
        member.desk.job.set(Some(job));
        let done = member.poll();
        if done.is_some() {
            self.idle.push(index);
        }
        done
    }

    /// Lets ready members go on and appends what they finished: no more than `most` at a time. Who is left
    /// over is ready the next time.
    pub(crate) fn collect(&mut self, context: &mut Context<'_>, done: &mut Vec<Done>, most: usize) {
        {
            let mut known = self.bell.connection.lock().expect("no panic while held");
            if !known.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
                *known = Some(context.waker().clone());
            }
        }
        // Before the bits are read: a ring after this wakes the connection again.
        if !self.bell.rung.swap(false, Ordering::AcqRel) {
            return;
        }
        for (word, bits) in self.bell.ready.iter().enumerate() {
            let mut taken = bits.swap(0, Ordering::AcqRel);
            while taken != 0 {
                if done.len() == most {
                    bits.fetch_or(taken, Ordering::AcqRel);
                    self.bell.rung.store(true, Ordering::Release);
                    return;
                }
                let index = word * 64 + taken.trailing_zeros() as usize;
                taken &= taken - 1;
                // A late wake finds an idle member: polling it does nothing.
                if let Some(finished) = self.members[index].poll() {
                    self.idle.push(index as u32);
                    done.push(finished);
                }
            }
        }
    }

    fn hire(&mut self) -> u32 {
        let index = self.members.len();
        assert!(index < self.members_max, "the crew is complete");
        let desk = Rc::new(Desk::default());
        self.members.push(Member {
            desk: desk.clone(),
            work: Box::pin(labour(self.volume.clone(), desk)),
            waker: Waker::from(Arc::new(MemberWaker { bell: self.bell.clone(), index })),
        });
        index as u32
    }
}

async fn labour<V: Volume>(volume: Rc<V>, desk: Rc<Desk>) -> Infallible {
    loop {
        let job = poll_fn(|_| desk.job.take().map_or(Poll::Pending, Poll::Ready)).await;
        let (buf, result) = carry_out(&*volume, job.deed).await;
        desk.done.set(Some(Done { ticket: job.ticket, buf, result }));
    }
}

async fn carry_out<V: Volume>(volume: &V, deed: Deed) -> (Option<Buf>, Result<(), IoError>) {
    match deed {
        Deed::Read { at, buf } => {
            let (buf, result) = volume.read(at, buf).await;
            (Some(buf), result)
        }
        Deed::Write { at, buf, durability } => (None, volume.write(at, buf, durability).await.1),
        Deed::Flush => (None, volume.flush().await),
        Deed::Trim { at, length, durability } => (None, volume.trim(at, length, durability).await),
        Deed::WriteZeroes { at, length, mode, durability } => {
            (None, volume.write_zeroes(at, length, mode, durability).await)
        }
        Deed::Cache { at, length } => (None, volume.cache(at, length).await),
    }
}
