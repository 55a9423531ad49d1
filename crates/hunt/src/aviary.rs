//! Canaries: engines that are wrong on purpose, and how soon the hunt finds each out. First in the
//! stories that are about the place that is wrong (`haunts.rs`), then by the swarm, then in all stories.
//! Each canary is hunted by one thread, so that where it is caught does not depend on the machine, but
//! for the time that it is given.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::canary::{Canary, release};
use engine::{CacheMode, Engine};

use crate::allowed::Allowed;
use crate::bimetal::{Bimetal, Cached};
use crate::enumerate::enumerate;
use crate::failure::Failure;
use crate::haunts::{haunts, runs};
use crate::report::{Effort, Report};
use crate::scenario::Scenario;
use crate::stories::{MISSED, cache_stories, stories};
use crate::swarm::run;

/// So many runs of the swarm come before all stories: most canaries are caught in the first few.
const RUNS_BEFORE_STORIES: u64 = 40;

/// Seeds of the stories in which a canary is expected.
const HAUNT_SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// So many cases of such a story are tried before the next one.
const HAUNT_CASES: u64 = 600;

/// So many of any other.
const CASES: u64 = 150;

/// Where a canary was caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// In the run of this seed.
    Run(u64),
    /// In the story of this name.
    Story(&'static str),
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ground::Run(seed) => write!(f, "run {seed}"),
            Ground::Story(name) => write!(f, "story '{name}'"),
        }
    }
}

/// How a canary was found out.
#[derive(Debug, Clone)]
pub struct Caught {
    /// Where.
    pub ground: Ground,
    /// What was wrong.
    pub message: String,
}

/// What came of the hunt for one canary.
#[derive(Debug, Clone)]
pub struct Chase {
    /// Which.
    pub canary: Canary,
    /// How it was found out, if it was.
    pub caught: Option<Caught>,
    /// How long that took.
    pub took: Duration,
}

impl fmt::Display for Chase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chase { canary, took, .. } = self;
        match &self.caught {
            Some(Caught { ground, message }) => {
                let first = message.lines().next().unwrap_or_default();
                let short: String = first.chars().take(110).collect();
                write!(
                    f,
                    "{canary:?}: caught in {ground} after {:.1} s: {short}",
                    took.as_secs_f64()
                )
            }
            None => write!(f, "{canary:?}: NOT caught in {:.0} s", took.as_secs_f64()),
        }
    }
}

/// Hunts canaries for at most `budget` each, several at a time, and tells of each as it is done.
pub fn hunt_canaries(
    canaries: &[Canary],
    budget: Duration,
    threads: usize,
    tell: &(dyn Fn(&Chase) + Sync),
) -> Vec<Chase> {
    let next = AtomicUsize::new(0);
    let chases = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while let Some(canary) = canaries.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let begun = Instant::now();
                    let caught = hunt_canary(*canary, budget);
                    let chase = Chase { canary: *canary, caught, took: begun.elapsed() };
                    tell(&chase);
                    chases.lock().expect("no panic").push(chase);
                }
            });
        }
    });
    let mut chases = chases.into_inner().expect("no panic");
    chases.sort_by_key(|chase| chase.canary);
    chases
}

/// Hunts one canary on this thread, until it is caught or the time is over.
pub fn hunt_canary(canary: Canary, budget: Duration) -> Option<Caught> {
    release(Some(canary));
    let deadline = Instant::now() + budget;
    let swarm = |seeds: &mut dyn Iterator<Item = u64>| {
        for seed in seeds.take_while(|_| Instant::now() < deadline) {
            if let (_, Some(found)) = run(seed, Allowed::ALL) {
                return Some(Caught { ground: Ground::Run(seed), message: found.wrong.message });
            }
        }
        None
    };
    let caught = swarm(&mut runs(canary).iter().copied())
        .or_else(|| play_haunts(canary, deadline))
        .or_else(|| swarm(&mut (1..=RUNS_BEFORE_STORIES)))
        .or_else(|| play_all(deadline))
        .or_else(|| swarm(&mut (RUNS_BEFORE_STORIES + 1..)));
    release(None);
    caught
}

/// Each for a while, then again with other seeds.
fn play_haunts(canary: Canary, deadline: Instant) -> Option<Caught> {
    let effort = Effort { cases_max: HAUNT_CASES, ..Effort::exhausting(deadline) };
    for seed in HAUNT_SEEDS {
        for atomic_write_bytes in [4096, 512] {
            for name in haunts(canary) {
                let all = tales(seed, atomic_write_bytes);
                let tale = all.into_iter().find(|tale| tale.name() == *name);
                let tale = tale.unwrap_or_else(|| panic!("there is no story '{name}'"));
                let caught = tale.play(&effort);
                if caught.is_some() {
                    return caught;
                }
            }
        }
    }
    None
}

fn play_all(deadline: Instant) -> Option<Caught> {
    let effort = Effort { cases_max: CASES, ..Effort::exhausting(deadline) };
    let tales = [512, 4096].into_iter().flat_map(|atomic_write_bytes| tales(1, atomic_write_bytes));
    tales.into_iter().find_map(|tale| tale.play(&effort))
}

impl Effort {
    /// All that can be done at a cut point, for one failure.
    pub fn exhausting(deadline: Instant) -> Effort {
        Effort {
            seeds: 1,
            recut_every: 20,
            relive_every: 3,
            alone_every: 1,
            rot_every: 3,
            death_every: 1,
            after_opening: true,
            failures_max: 1,
            threads: 1,
            until: Some(deadline),
            ..Effort::default()
        }
    }
}

/// A story, and the class of volume that it is told of.
pub struct Tale {
    cache: Option<CacheMode>,
    story: Scenario<Engine>,
}

/// All stories: of volumes that span both drives, then of those of class cache.
pub fn tales(seed: u64, atomic_write_bytes: u32) -> Vec<Tale> {
    let span =
        stories(seed, atomic_write_bytes).into_iter().map(|story| Tale { cache: None, story });
    let cache = cache_stories(seed, atomic_write_bytes)
        .into_iter()
        .map(|(mode, story)| Tale { cache: Some(mode), story });
    span.chain(cache).collect()
}

impl Tale {
    /// The story's name.
    pub fn name(&self) -> &'static str {
        self.story.name
    }

    /// Plays it; gives what was found first.
    pub fn play(&self, effort: &Effort) -> Option<Caught> {
        let report = self.report(effort);
        // What a story missed because of the canary is no proof.
        let told = |failure: &Failure| !failure.message.contains(MISSED);
        let failure = report.failures.into_iter().find(told)?;
        Some(Caught { ground: Ground::Story(self.story.name), message: failure.message })
    }

    /// Plays it.
    pub fn report(&self, effort: &Effort) -> Report {
        match self.cache {
            None => enumerate(&Bimetal, &self.story, &Effort { death_every: 0, ..effort.clone() }),
            Some(mode) => {
                // Only where the volume is in write-through all the time it goes on without the fast drive.
                let dies = self.story.name.starts_with("through");
                // What only the slow drive has of unflushed writes is as whole as that drive writes it.
                let whole =
                    mode == CacheMode::WriteBack || self.story.slow.atomic_write_bytes >= 4096;
                let effort = Effort {
                    death_every: if dies { effort.death_every } else { 0 },
                    alone_every: if whole { effort.alone_every } else { 0 },
                    ..effort.clone()
                };
                enumerate(&Cached(mode), &self.story, &effort)
            }
        }
    }
}
