//! Twins in virtual time.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use io::units::SECOND_NS;
use io::{Device, Io};
use twin::{DriveCounters, DriveId, DriveSpec, Profile, Simulation};

use super::page_cache::PageCache;
use super::plug::{Cut, pull};
use super::{Bench, Memory, Moment, Outcome, Traffic};
use crate::fio::{JobFile, Limits, Played, Report, Target, play};

/// One twin.
pub struct TwinBench {
    name: String,
    spec: DriveSpec,
    seed: u64,
    running: Running,
    /// What the operating system keeps in memory.
    cache: Option<PageCache>,
}

struct Running {
    simulation: Simulation,
    drive: DriveId,
    io: Io,
    device: Device,
}

impl TwinBench {
    /// The twin of that name or file, with choices behind commas: `wd5002abys,cache=off`.
    ///
    /// # Errors
    /// A sentence that lists what there is.
    pub fn new(choice: &str, seed: u64) -> Result<TwinBench, String> {
        let profile = Profile::find(choice).map_err(|error| error.to_string())?;
        let spec = DriveSpec { keeps_content: false, ..profile.spec(choice) };
        let running = Running::start(&spec, seed);
        Ok(TwinBench { name: format!("twin:{choice}"), spec, seed, running, cache: None })
    }
}

impl Running {
    fn start(spec: &DriveSpec, seed: u64) -> Running {
        let simulation = Simulation::new(seed);
        let drive = simulation.add_drive(spec.clone());
        let io = simulation.boot();
        let device = simulation.device(&io, drive);
        Running { simulation, drive, io, device }
    }
}

impl Bench for TwinBench {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.spec.size_bytes
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn drives(&self) -> Vec<String> {
        vec![self.spec.path.clone()]
    }

    fn renew(&mut self) -> Result<(), String> {
        self.running = Running::start(&self.spec, self.seed);
        self.cache = None;
        Ok(())
    }

    fn play(
        &mut self,
        file: &JobFile,
        _: &str,
        limits: Limits,
        memory: Option<Memory>,
    ) -> Result<Outcome, String> {
        if let Some(memory) = memory {
            self.cache.get_or_insert_with(|| PageCache::new(memory));
        }
        let cache = self.cache.as_ref().filter(|_| memory.is_some());
        let Running { simulation, drive, io, device } = &self.running;
        let watched = [*drive];
        let work = play_through(cache, device, file, limits);
        let (played, moments) = simulation.run(io, watch(simulation, io, &watched, work)).done();
        Ok(outcome(file, &played, moments))
    }

    fn rest(&mut self, duration_ns: u64) -> Result<Vec<Moment>, String> {
        let Running { simulation, drive, io, .. } = &self.running;
        let watched = [*drive];
        let rest = io.sleep(duration_ns);
        Ok(simulation.run(io, watch(simulation, io, &watched, rest)).done().1)
    }

    fn restart(&mut self) -> Result<(), String> {
        self.cache = None;
        let Running { simulation, drive, io, device } = &mut self.running;
        io.drop_tasks();
        *io = simulation.boot();
        *device = simulation.device(io, *drive);
        Ok(())
    }

    fn pull_plug(&mut self, cut: &Cut) -> Result<Outcome, String> {
        pull(&self.spec, self.seed, cut)
    }
}

/// Plays on `target`, behind a page cache if there is one.
pub(super) async fn play_through<T: Target>(
    cache: Option<&PageCache>,
    target: &T,
    file: &JobFile,
    limits: Limits,
) -> Played {
    match cache {
        Some(cache) => play(&cache.before(target), file, limits).await,
        None => play(target, file, limits).await,
    }
}

/// What was played, as an outcome.
pub(super) fn outcome(file: &JobFile, played: &Played, moments: Vec<Moment>) -> Outcome {
    let mut logs = Vec::new();
    for (number, job) in played.jobs.iter().enumerate() {
        let name = |kind: &str| format!("{}_{kind}.{}.log", job.job.name, number + 1);
        logs.push((name("bw"), job.track.bandwidth_log()));
        logs.push((name("iops"), job.track.iops_log()));
        logs.push((name("clat"), job.track.latency_log()));
    }
    let seconds = (played.ended_ns - played.began_ns) as f64 / 1e9;
    Outcome { report: Report::of(file, played), moments, logs, seconds, verdict: None }
}

/// Runs `work` and notes each second what the drives do.
pub(super) async fn watch<T>(
    simulation: &Simulation,
    io: &Io,
    drives: &[DriveId],
    work: impl Future<Output = T>,
) -> (T, Vec<Moment>) {
    let began_ns = io.now_ns();
    let watched = RefCell::new(Watched::new(simulation, drives));
    let watching = async {
        let mut at_s = 1;
        loop {
            io.sleep((began_ns + at_s * SECOND_NS).saturating_sub(io.now_ns())).await;
            watched.borrow_mut().note(at_s);
            at_s += 1;
        }
    };
    let (mut work, mut watching) = (pin!(work), pin!(watching));
    let value = poll_fn(|context| {
        let done = work.as_mut().poll(context);
        if done.is_pending() {
            let never: Poll<()> = watching.as_mut().poll(context);
            debug_assert!(never.is_pending());
        }
        done
    })
    .await;
    // The second that had begun.
    let mut watched = watched.borrow_mut();
    if watched.counters() != watched.before {
        watched.note((io.now_ns() - began_ns) / SECOND_NS + 1);
    }
    (value, std::mem::take(&mut watched.moments))
}

/// What drives have done since they were looked at last.
struct Watched<'a> {
    simulation: &'a Simulation,
    drives: &'a [DriveId],
    before: Vec<DriveCounters>,
    moments: Vec<Moment>,
}

impl<'a> Watched<'a> {
    fn new(simulation: &'a Simulation, drives: &'a [DriveId]) -> Watched<'a> {
        let mut watched = Watched { simulation, drives, before: Vec::new(), moments: Vec::new() };
        watched.before = watched.counters();
        watched
    }

    fn counters(&self) -> Vec<DriveCounters> {
        self.drives.iter().map(|drive| self.simulation.counters(*drive)).collect()
    }

    fn note(&mut self, at_s: u64) {
        let now = self.counters();
        let drives = now.iter().zip(&self.before).map(|(now, then)| since(now, then)).collect();
        self.moments.push(Moment { at_s, drives });
        self.before = now;
    }
}

fn since(now: &DriveCounters, then: &DriveCounters) -> Traffic {
    Traffic {
        reads: now.reads - then.reads,
        writes: now.writes - then.writes,
        read_bytes: now.read_bytes - then.read_bytes,
        write_bytes: now.write_bytes - then.write_bytes,
    }
}
