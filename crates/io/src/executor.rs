//! One thread, one queue of ready tasks, one world.
//!
//! Deterministic: tasks run in the order they were woken, timers fire in the order of their
//! deadlines (ties in the order they were set), and completions wake tasks in the order the world
//! reports them. With a deterministic world the same seed gives the same run.
//!
//! A round is: run every task that was ready when the round began, then poll the world. So all
//! submissions of a round reach the world together, and a task woken last in a round (such as a
//! group commit) sees everything the earlier ones did.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;

use crate::{
    Buf, Completed, Foreign, IoError, Lent, Op, OpId, Park, Pool, SocketId, Unpark, World,
};

/// Handle to the executor and its world. Clones are the same executor.
#[derive(Clone)]
pub struct Io(Rc<Core>);

struct Core {
    world: RefCell<Box<dyn World>>,
    pool: Pool,
    ops: RefCell<OpTable>,
    tasks: RefCell<TaskTable>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    timer_sequence: Cell<u64>,
    ready: Arc<Ready>,
    /// Kept between rounds for its allocation.
    completions: RefCell<Vec<Completed>>,
}

/// Task numbers that are ready to run. Shared with wakers, which may be on other threads.
struct Ready {
    queue: Mutex<Vec<u32>>,
    home: ThreadId,
    unparker: Option<Arc<dyn Unpark>>,
}

impl Ready {
    fn push(&self, task: u32) {
        self.queue.lock().expect("no panic while queued").push(task);
        // On the home thread the executor is running, not parked; it looks before it parks.
        if let Some(unparker) = &self.unparker
            && std::thread::current().id() != self.home
        {
            unparker.unpark();
        }
    }
}

struct TaskWaker {
    ready: Arc<Ready>,
    task: u32,
    queued: AtomicBool,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.task);
        }
    }
}

type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// A place for one task after another.
struct Task {
    /// `None` while it is being polled, and while there is none.
    future: Option<TaskFuture>,
    /// Belongs to the place: a wake of a task that has ended finds its successor, which merely looks once more than
    /// needed.
    waker: Waker,
    shared: Arc<TaskWaker>,
}

#[derive(Default)]
struct TaskTable {
    slots: Vec<Task>,
    free: Vec<u32>,
}

/// The task that `block_on` drives has this number; spawned ones count from 0.
const MAIN_TASK: u32 = u32::MAX;

enum OpState {
    Waiting(Option<Waker>),
    Done(Completed),
    /// Nobody waits any more; the buffer is dropped on completion.
    Forgotten,
    /// Nobody waits for the connection any more; it is closed as soon as it is there.
    ForgottenAccept,
    Free,
}

#[derive(Default)]
struct OpTable {
    slots: Vec<OpState>,
    free: Vec<u32>,
    in_flight: usize,
}

impl Io {
    /// An executor over `world` with buffers from `pool`.
    pub fn new(world: Box<dyn World>, pool: Pool) -> Io {
        let ready = Arc::new(Ready {
            queue: Mutex::new(Vec::new()),
            home: std::thread::current().id(),
            unparker: world.unparker(),
        });
        Io(Rc::new(Core {
            world: RefCell::new(world),
            pool,
            ops: RefCell::default(),
            tasks: RefCell::default(),
            timers: RefCell::default(),
            timer_sequence: Cell::new(0),
            ready,
            completions: RefCell::default(),
        }))
    }

    /// Buffers.
    pub fn pool(&self) -> &Pool {
        &self.0.pool
    }

    /// Nanoseconds on the world's monotonic clock.
    pub fn now_ns(&self) -> u64 {
        self.0.world.borrow().now_ns()
    }

    /// Random bits from the world.
    pub fn random(&self) -> u64 {
        self.0.world.borrow_mut().random()
    }

    /// Operations submitted and not yet completed.
    pub fn in_flight(&self) -> usize {
        self.0.ops.borrow().in_flight
    }

    /// Runs `future` as a task of its own. It starts in the next round.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        let mut tasks = self.0.tasks.borrow_mut();
        let index = tasks.free.pop().unwrap_or_else(|| {
            let index = tasks.slots.len() as u32;
            let shared = Arc::new(TaskWaker {
                ready: self.0.ready.clone(),
                task: index,
                queued: AtomicBool::new(false),
            });
            tasks.slots.push(Task { future: None, waker: shared.clone().into(), shared });
            index
        });
        let task = &mut tasks.slots[index as usize];
        task.future = Some(Box::pin(future));
        task.waker.wake_by_ref();
    }

    /// Ends after `duration_ns`.
    pub fn sleep(&self, duration_ns: u64) -> Sleep {
        let deadline_ns = self.now_ns().saturating_add(duration_ns);
        Sleep { io: self.clone(), deadline_ns, key: None }
    }

    /// Lets every other ready task run once.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|context| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Runs everything until `future` is done. Other tasks stay as they are and go on with the
    /// next call.
    ///
    /// # Panics
    /// When every task waits and the world has nothing under way: that is a lost wake-up, and
    /// hanging would hide it. (With an unparker, another thread may still wake us: then it waits.)
    /// Also when the world loses power, which only a simulation does: see [`Io::run_until_cut`].
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.run_until_cut(future).expect("the world lost power: nothing completes any more")
    }

    /// Like [`Io::block_on`], but ends with `None` as soon as the world has no power: no task
    /// runs after that moment. `future` is dropped; spawned tasks are left for
    /// [`Io::drop_tasks`].
    ///
    /// # Panics
    /// As [`Io::block_on`] does on a lost wake-up.
    pub fn run_until_cut<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let shared = Arc::new(TaskWaker {
            ready: self.0.ready.clone(),
            task: MAIN_TASK,
            queued: AtomicBool::new(false),
        });
        let waker = Waker::from(shared.clone());
        waker.wake_by_ref();
        let mut round = Vec::new();
        loop {
            std::mem::swap(&mut round, &mut *self.0.ready.queue.lock().expect("not poisoned"));
            let mut tasks = round.drain(..);
            while let Some(task) = tasks.next() {
                // Looked at before each task: a submission of the one before may have been the
                // moment of the cut, and what ran after it could not have happened.
                if !self.0.world.borrow().powered() {
                    return None;
                }
                if task != MAIN_TASK {
                    self.run_task(task);
                    continue;
                }
                shared.queued.store(false, Ordering::Release);
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    // The rest of this round belongs to the next call.
                    let rest = tasks.collect::<Vec<_>>();
                    self.0.ready.queue.lock().expect("not poisoned").splice(0..0, rest);
                    return Some(value);
                }
            }
            drop(tasks);
            if !self.0.world.borrow().powered() {
                return None;
            }
            self.turn();
        }
    }

    /// Lets the world work for one round without running any task: used to drain operations
    /// after every task has been dropped. Ends early when the world loses power.
    pub fn drain(&self) {
        while self.in_flight() > 0 && self.0.world.borrow().powered() {
            self.turn();
        }
    }

    /// Drops every spawned task, as a crash of the process would. Operations in flight stay with
    /// the world.
    pub fn drop_tasks(&self) {
        loop {
            let mut tasks = self.0.tasks.borrow_mut();
            let doomed = std::mem::take(&mut tasks.slots);
            tasks.free.clear();
            drop(tasks);
            self.0.ready.queue.lock().expect("not poisoned").clear();
            self.0.timers.borrow_mut().clear();
            if doomed.is_empty() {
                return;
            }
            // Dropped outside the borrow: a task's destructor may spawn or wake.
            drop(doomed);
        }
    }

    fn run_task(&self, index: u32) {
        let taken = {
            let mut tasks = self.0.tasks.borrow_mut();
            // None when all have been dropped meanwhile.
            let Some(task) = tasks.slots.get_mut(index as usize) else { return };
            task.shared.queued.store(false, Ordering::Release);
            task.future.take().map(|future| (future, task.waker.clone()))
        };
        let Some((mut future, waker)) = taken else { return };
        let outcome = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut tasks = self.0.tasks.borrow_mut();
        match outcome {
            Poll::Pending => {
                if let Some(task) = tasks.slots.get_mut(index as usize) {
                    task.future = Some(future);
                }
            }
            Poll::Ready(()) => {
                if tasks.slots.get(index as usize).is_some_and(|task| task.future.is_none()) {
                    tasks.free.push(index);
                }
                drop(tasks);
                drop(future);
            }
        }
    }

    /// Polls the world once and wakes what that readied.
    fn turn(&self) {
        let next_timer = self.0.timers.borrow().keys().next().map(|(deadline, _)| *deadline);
        let idle = self.0.ready.queue.lock().expect("not poisoned").is_empty();
        let park = match next_timer {
            _ if !idle => Park::Never,
            Some(deadline) => Park::Until(deadline),
            None => Park::Forever,
        };
        if park == Park::Forever && self.in_flight() == 0 && self.0.ready.unparker.is_none() {
            panic!("every task waits, and nothing is under way that could wake one");
        }
        let mut done = std::mem::take(&mut *self.0.completions.borrow_mut());
        self.0.world.borrow_mut().poll(park, &mut done);
        for completed in done.drain(..) {
            self.settle(completed);
        }
        *self.0.completions.borrow_mut() = done;
        self.fire_timers();
    }

    fn settle(&self, completed: Completed) {
        let mut ops = self.0.ops.borrow_mut();
        ops.in_flight -= 1;
        let index = completed.id.0;
        let state = std::mem::replace(&mut ops.slots[index as usize], OpState::Free);
        match state {
            OpState::Waiting(waker) => {
                ops.slots[index as usize] = OpState::Done(completed);
                drop(ops);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            OpState::Forgotten => ops.free.push(index),
            OpState::ForgottenAccept => {
                ops.free.push(index);
                drop(ops);
                self.close_unclaimed(&completed);
            }
            OpState::Done(_) | OpState::Free => panic!("the world completed an operation twice"),
        }
    }

    fn fire_timers(&self) {
        let now_ns = self.now_ns();
        loop {
            let mut timers = self.0.timers.borrow_mut();
            match timers.first_entry() {
                Some(entry) if entry.key().0 <= now_ns => {
                    let waker = entry.remove();
                    drop(timers);
                    waker.wake();
                }
                _ => return,
            }
        }
    }

    pub(crate) fn submit(&self, op: Op) -> OpId {
        let id = {
            let mut ops = self.0.ops.borrow_mut();
            ops.in_flight += 1;
            let index = ops.free.pop().unwrap_or_else(|| {
                ops.slots.push(OpState::Free);
                (ops.slots.len() - 1) as u32
            });
            ops.slots[index as usize] = OpState::Waiting(None);
            OpId(index)
        };
        self.0.world.borrow_mut().submit(id, op);
        id
    }

    pub(crate) fn poll_op(&self, id: OpId, context: &mut Context<'_>) -> Poll<Completed> {
        let mut ops = self.0.ops.borrow_mut();
        let slot = &mut ops.slots[id.0 as usize];
        match slot {
            OpState::Waiting(waker) => {
                match waker {
                    Some(known) => known.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            OpState::Done(_) => {
                // Stays allocated as `Free` until the future is dropped: `forget_op` recycles it.
                let OpState::Done(done) = std::mem::replace(slot, OpState::Free) else {
                    unreachable!("matched above")
                };
                Poll::Ready(done)
            }
            OpState::Forgotten | OpState::ForgottenAccept | OpState::Free => {
                panic!("polled after completion")
            }
        }
    }

    /// Called once by each operation's future when it is dropped.
    pub(crate) fn forget_op(&self, id: OpId) {
        let mut ops = self.0.ops.borrow_mut();
        let slot = &mut ops.slots[id.0 as usize];
        match std::mem::replace(slot, OpState::Free) {
            OpState::Waiting(_) => *slot = OpState::Forgotten,
            OpState::Free => ops.free.push(id.0),
            OpState::Done(done) => {
                ops.free.push(id.0);
                drop(ops);
                drop(done);
            }
            OpState::Forgotten | OpState::ForgottenAccept => {
                unreachable!("a future is dropped once")
            }
        }
    }

    /// As [`Io::forget_op`], for an accept: a connection that it has brought or will bring has no
    /// handle to close it, so it is closed here.
    pub(crate) fn forget_accept(&self, id: OpId) {
        let mut ops = self.0.ops.borrow_mut();
        let slot = &mut ops.slots[id.0 as usize];
        match std::mem::replace(slot, OpState::Free) {
            OpState::Waiting(_) => *slot = OpState::ForgottenAccept,
            OpState::Done(done) => {
                ops.free.push(id.0);
                drop(ops);
                self.close_unclaimed(&done);
            }
            other => {
                *slot = other;
                drop(ops);
                self.forget_op(id);
            }
        }
    }

    fn close_unclaimed(&self, accept: &Completed) {
        if let Ok(socket) = accept.result {
            self.close_socket(SocketId(socket as u32));
        }
    }

    /// Numbers under which drivers may lend memory (see [`crate::Lent`]); none where that is not to be had.
    pub fn lent_slots(&self) -> Range<u16> {
        self.0.world.borrow().lent_slots()
    }

    /// Lends memory as a driver does, where there are none (in a simulation); elsewhere it comes back.
    ///
    /// # Errors
    /// The memory, if nobody takes it.
    pub fn lend(&self, memory: Buf) -> Result<Lent, Buf> {
        self.0.world.borrow_mut().lend(memory)
    }

    /// Ends such a loan: what the memory holds now. `None` if nobody had lent it so.
    pub fn take_back(&self, memory: Lent) -> Option<Buf> {
        self.0.world.borrow_mut().take_back(memory)
    }

    pub(crate) fn adopt(&self, fd: OwnedFd, what: Foreign) -> Result<SocketId, IoError> {
        self.0.world.borrow_mut().adopt(fd, what)
    }

    pub(crate) fn close_socket(&self, id: SocketId) {
        self.0.world.borrow_mut().close(id);
    }

    pub(crate) fn shutdown_socket(&self, id: SocketId) {
        self.0.world.borrow_mut().shutdown(id);
    }
}

/// Waits for a moment on the world's clock.
pub struct Sleep {
    io: Io,
    deadline_ns: u64,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.io.now_ns() >= self.deadline_ns {
            return Poll::Ready(());
        }
        let key = self.key.unwrap_or_else(|| {
            let sequence = self.io.0.timer_sequence.get();
            self.io.0.timer_sequence.set(sequence + 1);
            (self.deadline_ns, sequence)
        });
        self.io.0.timers.borrow_mut().insert(key, context.waker().clone());
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.io.0.timers.borrow_mut().remove(&key);
        }
    }
}

#[cfg(test)]
mod tests;
