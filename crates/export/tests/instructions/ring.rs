//! A world with one guest, its queue and one drive, all without cost: the guest keeps so many requests
//! under way, and the drive has everything done in the next round. Only what comes before the first request goes
//! through the kernel: the front-end is a real one, on a thread of its own.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::{self, Thread};

use io::{
    Completed, Foreign, Io, IoError, Op, OpId, Park, Pool, SocketId, Unpark, WaitList, World,
};

use crate::allocations::uncounted;
use crate::guest::{Guest, IN, OUT};
use crate::wire::Asked;

/// The door takes over a queue's events in this order: kick, call, error.
const KICK: SocketId = SocketId(0);
const BLOCK: usize = 4096;

/// What the guest does.
pub struct Script {
    pub writes: bool,
    pub count: u64,
    pub depth: u64,
}

/// What the world and the test share.
pub struct Board {
    /// There once the front-end has connected it.
    pub guest: RefCell<Option<Guest>>,
    /// All requests have been answered.
    pub over: Cell<bool>,
    pub changed: WaitList,
    pub asked: RefCell<Asked>,
}

/// The executor's thread, for the front-end's to wake.
struct Sleeper(Thread);

impl Unpark for Sleeper {
    fn unpark(&self) {
        self.0.unpark();
    }
}

struct Hall {
    now_ns: u64,
    script: Script,
    board: Rc<Board>,
    sleeper: Arc<Sleeper>,
    events: u32,
    /// The door's wait for a kick.
    waiting: Option<OpId>,
    kicked: bool,
    begun: u64,
    answered: u64,
    submitted: bool,
    done: Vec<Completed>,
}

/// An executor on such a world.
pub fn hall(script: Script) -> (Io, Rc<Board>) {
    let board = Rc::new(Board {
        guest: RefCell::new(None),
        over: Cell::new(false),
        changed: WaitList::new(),
        asked: RefCell::default(),
    });
    let hall = Hall {
        now_ns: 0,
        script,
        board: board.clone(),
        sleeper: Arc::new(Sleeper(thread::current())),
        events: 0,
        waiting: None,
        kicked: false,
        begun: 0,
        answered: 0,
        submitted: false,
        done: Vec::new(),
    };
    (Io::new(Box::new(hall), Pool::new(16 << 20)), board)
}

/// The guest takes its answers and asks for more; gives how much it has asked for and been answered. What it
/// costs is not the door's: by this name it is left out of what is counted.
#[inline(never)]
fn guest_works(guest: &mut Guest, script: &Script, begun: u64, answered: u64) -> (u64, u64) {
    let answers = guest.answers(0);
    assert!(answers.iter().all(|answer| answer.status == 0), "{answers:?}");
    let answered = answered + answers.len() as u64;
    let mut asked = begun;
    while asked < script.count && asked - answered < script.depth {
        match script.writes {
            true => guest.put(0, (OUT, 72), &[1; BLOCK], 0, BLOCK),
            false => guest.put(0, (IN, 72), &[], BLOCK, BLOCK),
        };
        asked += 1;
    }
    (asked, answered)
}

impl Hall {
    fn let_guest_work(&mut self) {
        let board = self.board.clone();
        let mut guest = board.guest.borrow_mut();
        let Some(guest) = guest.as_mut() else { return };
        let (begun, answered) = guest_works(guest, &self.script, self.begun, self.answered);
        self.kicked |= begun > self.begun;
        (self.begun, self.answered) = (begun, answered);
        if answered == self.script.count {
            board.over.set(true);
            board.changed.wake_all();
        }
        if self.kicked
            && let Some(id) = self.waiting.take()
        {
            self.kicked = false;
            self.done.push(Completed { id, buf: None, result: Ok(1) });
        }
    }
}

impl World for Hall {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn random(&mut self) -> u64 {
        4
    }

    fn submit(&mut self, id: OpId, op: Op) {
        self.submitted = true;
        let buf = match op {
            Op::Wait { event: KICK } => {
                self.waiting = Some(id);
                return;
            }
            Op::Raise { .. } => {
                self.board.asked.borrow_mut().sends += 1;
                None
            }
            Op::Read { buf, .. } | Op::Write { buf, .. } => Some(buf),
            other => panic!("nobody asks for this here: {other:?}"),
        };
        self.done.push(Completed { id, buf, result: Ok(0) });
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        self.now_ns += 1000;
        if std::mem::take(&mut self.submitted) {
            self.board.asked.borrow_mut().rounds += 1;
        }
        uncounted(|| self.let_guest_work());
        if self.done.is_empty() && park != Park::Never {
            let at_work = self.board.guest.borrow().is_some() && !self.board.over.get();
            assert!(!at_work, "the guest waits for ever");
            thread::park();
        }
        done.append(&mut self.done);
    }

    fn adopt(&mut self, _: OwnedFd, _: Foreign) -> Result<SocketId, IoError> {
        self.events += 1;
        Ok(SocketId(self.events - 1))
    }

    fn shutdown(&mut self, event: SocketId) {
        if event == KICK
            && let Some(id) = self.waiting.take()
        {
            self.done.push(Completed { id, buf: None, result: Ok(0) });
        }
    }

    fn close(&mut self, _: SocketId) {}

    fn unparker(&self) -> Option<Arc<dyn Unpark>> {
        Some(self.sleeper.clone())
    }
}
