//! Plays the jobs of a file: groups one after the other, the jobs of a group and their copies at the
//! same time, each copy with as many requests under way as its depth says.
//!
//! As in fio: a job's clock starts when it does; what ends within `ramp_time` is not counted; a
//! request that fails ends its copy; thinking begins when nothing of the copy is under way.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use io::units::MILLISECOND_NS;
use io::{Io, IoError, WaitList};

use super::job::{Direction, Job, PerDirection};
use super::job_file::JobFile;
use super::order::{Next, Order};
use super::rate::Pacer;
use super::tally::{Latencies, Tally};
use super::target::Target;
use super::track::Track;

/// Of one copy of a job: a million a second then, which is what memory may do.
const REQUESTS_PER_MOMENT_MAX: u64 = 1000;

/// What bounds a run beside its jobs' own options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// No job runs longer than this on the world's clock (ns).
    pub run_ns: Option<u64>,
    /// No copy of a job begins more requests than this: a bound on the work of a simulation.
    pub requests: Option<u64>,
}

/// What came of a run.
#[derive(Debug, Clone)]
pub struct Played {
    /// Each copy of each job, in order.
    pub jobs: Vec<PlayedJob>,
    /// When the first began and the last ended, on the world's clock (ns).
    pub began_ns: u64,
    /// See `began_ns`.
    pub ended_ns: u64,
}

/// What came of one copy of a job.
#[derive(Debug, Clone)]
pub struct PlayedJob {
    /// The job.
    pub job: Rc<Job>,
    /// Which group of jobs that ran together it belonged to.
    pub group: u32,
    /// Why it ended early, if a request failed.
    pub error: Option<IoError>,
    /// A limit ended it, and nothing of its own.
    pub cut_short: bool,
    /// How long it ran, without its ramp (ns).
    pub runtime_ns: u64,
    /// What it did over time, from its beginning after the ramp.
    pub track: Track,
    pub(super) tallies: PerDirection<Tally>,
    pub(super) flushes: Latencies,
    pub(super) depth: u64,
}

impl PlayedJob {
    /// Requests of a direction that were counted.
    pub fn requests(&self, direction: Direction) -> u64 {
        self.tallies.get(direction).requests
    }

    /// Bytes they moved.
    pub fn bytes(&self, direction: Direction) -> u64 {
        self.tallies.get(direction).bytes
    }

    /// How long they took on average (ns).
    pub fn mean_ns(&self, direction: Direction) -> f64 {
        self.tallies.get(direction).latencies.mean()
    }
}

/// Plays all jobs of `file` on `target`.
pub async fn play<T: Target>(target: &T, file: &JobFile, limits: Limits) -> Played {
    let began_ns = target.io().now_ns();
    let mut jobs = Vec::new();
    let mut group = 0;
    let mut rest = &file.jobs[..];
    while let Some((_, others)) = rest.split_first() {
        let more = others.iter().take_while(|job| !job.barrier).count();
        let (together, after) = rest.split_at(more + 1);
        jobs.extend(play_together(target, together, group, limits).await);
        (rest, group) = (after, group + 1);
    }
    Played { jobs, began_ns, ended_ns: target.io().now_ns() }
}

async fn play_together<T: Target>(
    target: &T,
    jobs: &[Job],
    group: u32,
    limits: Limits,
) -> Vec<PlayedJob> {
    let ended = Rc::new(WaitList::new());
    let mut copies = Vec::new();
    for job in jobs {
        let job = Rc::new(job.clone());
        let mut pattern = None;
        for number in 0..job.copies {
            let order = Order::new(&job, number, target.size_bytes(), pattern.as_ref());
            if pattern.is_none() {
                pattern = order.as_ref().and_then(|order| order.pattern().cloned());
            }
            copies.push(Worker::start(target, &job, order, limits, &ended));
        }
    }
    ended.until(|| copies.iter().all(|copy| copy.lanes.get() == 0).then_some(())).await;
    copies.iter().map(|copy| copy.result(group)).collect()
}

/// One copy of a job at work.
struct Worker<T> {
    target: T,
    job: Rc<Job>,
    /// Lanes that have not ended.
    lanes: Cell<u64>,
    under_way: Cell<u64>,
    /// Requests that were taken from the order, and those that ended, to know when to think.
    taken: Cell<u64>,
    done: Cell<u64>,
    writes: Cell<u64>,
    /// A moment, and how many requests have ended in it.
    instant: Cell<(u64, u64)>,
    thinking: Cell<bool>,
    /// Woken while one thinks: when a request has ended, and when thinking is over.
    quiet: WaitList,
    /// When it begins to count, and when it must end (ns).
    counted_from_ns: u64,
    deadline_ns: u64,
    began_ns: u64,
    cut_short: Cell<bool>,
    requests_max: u64,
    /// The deadline is the caller's, not the job's.
    limited: bool,
    ended_ns: Cell<u64>,
    order: RefCell<Option<Order>>,
    pacer: RefCell<Pacer>,
    error: RefCell<Option<IoError>>,
    measured: RefCell<Measured>,
}

#[derive(Default)]
struct Measured {
    tallies: PerDirection<Tally>,
    flushes: Latencies,
    track: Track,
}

impl<T: Target> Worker<T> {
    fn start(
        target: &T,
        job: &Rc<Job>,
        order: Option<Order>,
        limits: Limits,
        ended: &Rc<WaitList>,
    ) -> Rc<Worker<T>> {
        let io = target.io();
        let began_ns = io.now_ns() + job.start_delay_ns;
        let counted_from_ns = began_ns + job.ramp_ns;
        let own_ns = job.runtime_ns.unwrap_or(u64::MAX);
        let most_ns = limits.run_ns.unwrap_or(u64::MAX);
        let worker = Rc::new(Worker {
            target: target.clone(),
            job: job.clone(),
            lanes: Cell::new(job.lanes()),
            under_way: Cell::new(0),
            taken: Cell::new(0),
            done: Cell::new(0),
            writes: Cell::new(0),
            instant: Cell::new((0, 0)),
            thinking: Cell::new(false),
            quiet: WaitList::new(),
            counted_from_ns,
            deadline_ns: counted_from_ns.saturating_add(own_ns.min(most_ns)),
            began_ns,
            cut_short: Cell::new(false),
            requests_max: limits.requests.unwrap_or(u64::MAX),
            limited: most_ns < own_ns,
            ended_ns: Cell::new(began_ns),
            order: RefCell::new(order),
            pacer: RefCell::default(),
            error: RefCell::default(),
            measured: RefCell::default(),
        });
        for _ in 0..job.lanes() {
            let (worker, ended) = (worker.clone(), ended.clone());
            io.spawn(async move {
                worker.run_lane().await;
                if worker.lanes.get() == 0 {
                    ended.wake_all();
                }
            });
        }
        worker
    }

    fn io(&self) -> &Io {
        self.target.io()
    }

    /// One request after the other until there is none; the last lane to end tidies up.
    async fn run_lane(&self) {
        let delay_ns = self.began_ns.saturating_sub(self.io().now_ns());
        if delay_ns > 0 {
            self.io().sleep(delay_ns).await;
        }
        while let Some(next) = self.next().await {
            let outcome = self.carry_out(next).await;
            self.under_way.set(self.under_way.get() - 1);
            if self.thinking.get() {
                self.quiet.wake_all();
            }
            if let Err(error) = outcome {
                self.error.borrow_mut().get_or_insert(error);
                break;
            }
            self.let_time_pass().await;
        }
        if self.lanes.get() == 1 && self.job.end_flush && self.error.borrow().is_none() {
            let flushed = self.flush().await;
            *self.error.borrow_mut() = flushed.err();
        }
        self.ended_ns.set(self.io().now_ns());
        self.lanes.set(self.lanes.get() - 1);
        self.quiet.wake_all();
    }

    /// Requests that are answered from memory take no virtual time. So that a job which is to run for a time has
    /// an end, many of them in one moment take a millisecond together.
    async fn let_time_pass(&self) {
        let now_ns = self.io().now_ns();
        let ended = match self.instant.get() {
            (moment_ns, ended) if moment_ns == now_ns => ended + 1,
            _ => 1,
        };
        self.instant.set((now_ns, ended));
        if ended >= REQUESTS_PER_MOMENT_MAX {
            self.io().sleep(MILLISECOND_NS).await;
        }
    }

    /// Waits until the next request may begin; `None` when there is none any more.
    async fn next(&self) -> Option<Next> {
        if self.thinking.get() {
            self.quiet.until(|| (!self.thinking.get()).then_some(())).await;
        }
        if self.error.borrow().is_some() || self.io().now_ns() >= self.deadline_ns {
            self.cut_short.set(self.limited && self.error.borrow().is_none());
            return None;
        }
        if self.taken.get() >= self.requests_max {
            self.cut_short.set(true);
            return None;
        }
        let next = self.order.borrow_mut().as_mut()?.next(&self.job)?;
        self.taken.set(self.taken.get() + 1);
        let due_ns = self.began_ns + self.pacer.borrow_mut().due_ns(&self.job, &next);
        let now_ns = self.io().now_ns();
        if due_ns > now_ns {
            self.io().sleep(due_ns.min(self.deadline_ns) - now_ns).await;
            if due_ns >= self.deadline_ns {
                self.cut_short.set(self.limited);
                return None;
            }
        }
        self.under_way.set(self.under_way.get() + 1);
        Some(next)
    }

    async fn carry_out(&self, next: Next) -> Result<(), IoError> {
        let Next { direction, at, bytes } = next;
        let io = self.io();
        let began_ns = io.now_ns();
        match direction {
            Direction::Read => {
                let buf = io.pool().take(bytes as usize);
                self.target.read(at, buf).await.1?;
            }
            Direction::Write => {
                let buf = self.target.blank(bytes as usize);
                self.target.write(at, buf).await.1?;
            }
            Direction::Trim => self.target.trim(at, bytes).await?,
        }
        let now_ns = io.now_ns();
        if now_ns >= self.counted_from_ns {
            let mut measured = self.measured.borrow_mut();
            let latency_ns = now_ns - began_ns;
            measured.tallies.get_mut(direction).note(bytes, latency_ns);
            let since_ns = now_ns - self.counted_from_ns;
            measured.track.note(direction, since_ns, bytes, latency_ns);
        }
        if direction == Direction::Write && self.job.flush_every > 0 {
            self.writes.set(self.writes.get() + 1);
            if self.writes.get().is_multiple_of(self.job.flush_every) {
                self.flush().await?;
            }
        }
        self.done.set(self.done.get() + 1);
        if self.job.think_ns > 0 && self.done.get().is_multiple_of(self.job.think_blocks) {
            self.think().await;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        let began_ns = self.io().now_ns();
        self.target.flush().await?;
        let now_ns = self.io().now_ns();
        if now_ns >= self.counted_from_ns {
            self.measured.borrow_mut().flushes.note(now_ns - began_ns);
        }
        Ok(())
    }

    /// The whole copy rests, from when nothing but the caller's request is under way.
    async fn think(&self) {
        if self.thinking.replace(true) {
            return;
        }
        self.quiet.until(|| (self.under_way.get() <= 1).then_some(())).await;
        let left_ns = self.deadline_ns.saturating_sub(self.io().now_ns());
        self.io().sleep(self.job.think_ns.min(left_ns)).await;
        self.thinking.set(false);
        self.quiet.wake_all();
    }

    fn result(&self, group: u32) -> PlayedJob {
        let measured = self.measured.take();
        PlayedJob {
            job: self.job.clone(),
            group,
            error: self.error.take(),
            cut_short: self.cut_short.get(),
            runtime_ns: self.ended_ns.get().saturating_sub(self.counted_from_ns),
            track: measured.track,
            tallies: measured.tallies,
            flushes: measured.flushes,
            depth: self.job.lanes(),
        }
    }
}

#[cfg(test)]
mod tests;
