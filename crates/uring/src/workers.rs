//! Threads that carry out blocking calls for a world.
//!
//! * A job is a copy of a [`Call`]: its buffer stays with the desk until the job's outcome has
//!   been collected, so the memory it points to outlives it.
//! * Threads are started when the first job comes, up to the number given.
//! * Dropping the workers lets started jobs end, forgets the others, and joins the threads.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use io::{IoError, OpId, Unpark};

use crate::blocking;
use crate::desk::Call;
use crate::wakeup::Wakeup;

struct Job {
    id: OpId,
    call: Call,
}

// SAFETY: the pointers in a call are used by one thread at a time: the desk does not touch the
// buffer between handing the job out and collecting its outcome.
unsafe impl Send for Job {}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    finished: Vec<(OpId, i64)>,
    ending: bool,
}

struct Shared {
    queue: Mutex<Queue>,
    work: Condvar,
    wakeup: Arc<Wakeup>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // The queue is plain data, consistent at every step: a panic elsewhere leaves it usable.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool of threads; see the head of the file.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    threads_max: usize,
    /// Jobs whose outcome has not been collected.
    outstanding: usize,
}

impl Workers {
    pub(crate) fn new(threads_max: usize, wakeup: Arc<Wakeup>) -> Workers {
        let shared = Shared { queue: Mutex::default(), work: Condvar::new(), wakeup };
        Workers { shared: Arc::new(shared), threads: Vec::new(), threads_max, outstanding: 0 }
    }

    /// Queues a call. On failure no thread could be started and the call was not queued.
    pub(crate) fn start(&mut self, id: OpId, call: Call) -> Result<(), IoError> {
        if self.threads.len() < self.threads_max && self.threads.len() <= self.outstanding {
            let shared = self.shared.clone();
            let spawned =
                std::thread::Builder::new().name("bimetal-io".into()).spawn(move || serve(&shared));
            match spawned {
                Ok(thread) => self.threads.push(thread),
                // Fewer threads than hoped for will do.
                Err(_) if !self.threads.is_empty() => {}
                Err(e) => {
                    let errno = e.raw_os_error().unwrap_or(0);
                    return Err(IoError::from_errno(errno, "starting a thread for I/O"));
                }
            }
        }
        self.outstanding += 1;
        self.shared.lock().jobs.push_back(Job { id, call });
        self.shared.work.notify_one();
        Ok(())
    }

    /// Moves the outcomes that have arrived to `outcomes`.
    pub(crate) fn collect(&mut self, outcomes: &mut Vec<(OpId, i64)>) {
        if self.outstanding > 0 {
            let before = outcomes.len();
            outcomes.append(&mut self.shared.lock().finished);
            self.outstanding -= outcomes.len() - before;
        }
    }

    /// Lets the threads go instead of waiting for them: one of them is stuck in the kernel.
    pub(crate) fn detach(&mut self) {
        self.threads.clear();
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.ending = true;
        queue.jobs.clear();
        drop(queue);
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // A worker does not panic; if it did, there is nothing left to save here.
            let _ = thread.join();
        }
    }
}

fn serve(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        if queue.ending {
            return;
        }
        let Some(job) = queue.jobs.pop_front() else {
            queue = shared.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        drop(queue);
        // SAFETY: drives stay open and buffers stay with the desk until the outcome is collected,
        // and dropping the workers waits for this thread.
        let outcome = unsafe { blocking::carry_out(&job.call) };
        queue = shared.lock();
        queue.finished.push((job.id, outcome));
        // One wake for what piles up meanwhile: the flag in `Wakeup` sees to that.
        shared.wakeup.unpark();
    }
}
