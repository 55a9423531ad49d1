//! Values handed from other threads to a task.
//!
//! The executor has one thread; a door whose protocol library brings threads of its own (FUSE)
//! posts its requests here, and a task takes them out in the order they were posted.
//!
//! * [`Sender`] goes to any thread and can be cloned; [`Receiver`] stays with one task.
//! * At most `limit` values wait. A sender that finds the mailbox full blocks its thread until
//!   the task has caught up: back-pressure reaches whoever produces the values.
//! * When every sender is gone the receiver still gets what was posted, then the end.
//! * When the receiver is gone a send gives the value back.
//!
//! It carries nothing back: a value that wants an answer brings the means to give one.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// Makes a mailbox in which at most `limit` values wait (at least one).
///
/// The executor's world must have an unparker for a send from another thread to be noticed while
/// every task waits.
pub fn mailbox<T: Send>(limit: usize) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State {
            queue: VecDeque::new(),
            waiting: None,
            senders: 1,
            receiving: true,
        }),
        room: Condvar::new(),
        limit: limit.max(1),
    });
    (Sender(shared.clone()), Receiver(shared))
}

/// Posts values from any thread.
pub struct Sender<T: Send>(Arc<Shared<T>>);

/// Takes values out, on the executor.
pub struct Receiver<T: Send>(Arc<Shared<T>>);

/// The receiver is gone; here is the value back.
pub struct Undelivered<T>(pub T);

struct Shared<T> {
    state: Mutex<State<T>>,
    /// Signalled when values were taken out, and when the receiver goes.
    room: Condvar,
    limit: usize,
}

struct State<T> {
    queue: VecDeque<T>,
    /// The task that found the mailbox empty.
    waiting: Option<Waker>,
    senders: usize,
    receiving: bool,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        // Nothing panics while the lock is held, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl<T: Send> Sender<T> {
    /// Posts `value`. Blocks the calling thread while the mailbox is full, so never call it on
    /// the thread of the receiving executor: nobody would ever make room.
    ///
    /// # Errors
    /// The receiver is gone; the value comes back.
    pub fn send(&self, value: T) -> Result<(), Undelivered<T>> {
        let mut state = self.0.state();
        while state.receiving && state.queue.len() >= self.0.limit {
            state = self.0.room.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
        }
        if !state.receiving {
            return Err(Undelivered(value));
        }
        state.queue.push_back(value);
        let waker = state.waiting.take();
        // Woken after the lock is released: the task will want it at once.
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }
}

impl<T: Send> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.0.state().senders += 1;
        Sender(self.0.clone())
    }
}

impl<T: Send> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.senders -= 1;
        let waker = if state.senders == 0 { state.waiting.take() } else { None };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T: Send> Receiver<T> {
    /// The oldest value; `None` when every sender is gone and nothing is left.
    pub async fn receive(&mut self) -> Option<T> {
        poll_fn(|context| {
            let mut state = self.0.state();
            if let Some(value) = state.queue.pop_front() {
                drop(state);
                self.0.room.notify_one();
                return Poll::Ready(Some(value));
            }
            Self::wait(&mut state, context.waker()).map(|()| None)
        })
        .await
    }

    /// Moves everything posted so far behind what `batch` holds, at least one value; one lock for
    /// all of it. `false` when every sender is gone and nothing is left.
    pub async fn receive_all(&mut self, batch: &mut VecDeque<T>) -> bool {
        poll_fn(|context| {
            let mut state = self.0.state();
            if state.queue.is_empty() {
                return Self::wait(&mut state, context.waker()).map(|()| false);
            }
            batch.append(&mut state.queue);
            drop(state);
            self.0.room.notify_all();
            Poll::Ready(true)
        })
        .await
    }

    /// Ready when there is nothing more to wait for.
    fn wait(state: &mut State<T>, waker: &Waker) -> Poll<()> {
        if state.senders == 0 {
            return Poll::Ready(());
        }
        match &mut state.waiting {
            Some(known) => known.clone_from(waker),
            None => state.waiting = Some(waker.clone()),
        }
        Poll::Pending
    }
}

impl<T: Send> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.receiving = false;
        let rest = std::mem::take(&mut state.queue);
        drop(state);
        self.0.room.notify_all();
        // Outside the lock: a value may answer its sender as it is dropped.
        drop(rest);
    }
}

impl<T> fmt::Debug for Undelivered<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Undelivered(the receiver is gone)")
    }
}

#[cfg(test)]
mod tests;
