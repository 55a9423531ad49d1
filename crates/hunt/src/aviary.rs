//! Canaries: engines that are wrong on purpose, and how soon the hunt finds each out. First in the
//! stories that are about the place that is wrong (`haunts.rs`), then by the swarm, then in all stories.
//! Each canary is hunted by one thread, so that where it is caught does not depend on the machine, but
//! for the time that it is given.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use engine::canary::{Canary, release};

use crate::allowed::Allowed;
use crate::haunts::{haunts, runs, soonest, swarm_runs};
use crate::report::Effort;
use crate::run::run;
use crate::swarm;
use crate::tale::tales;

/// So many runs of the swarm come before all stories: most canaries are caught in the first few.
const RUNS_BEFORE_STORIES: u64 = 40;

/// Seeds of the stories in which a canary is expected.
const HAUNT_SEEDS: std::ops::RangeInclusive<u64> = 1..=3;

/// So many cases of such a story are tried before the next one.
const HAUNT_CASES: u64 = 600;

/// And of the one that is known to show it soon, wherever in it.
const SOONEST_CASES: u64 = 6_000;

/// So many of any other.
const CASES: u64 = 150;

/// Where a canary was caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ground {
    /// In the run of this seed.
    Run(u64),
    /// In the swarm, with this seed.
    Swarm(u64),
    /// In a story.
    Story {
        /// Its name.
        name: &'static str,
        /// What decided everything in it.
        seed: u64,
        /// What a power cut did not tear.
        atomic_write_bytes: u32,
    },
}

impl fmt::Display for Ground {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ground::Run(seed) => write!(f, "run {seed}"),
            Ground::Swarm(seed) => write!(f, "the swarm of seed {seed}"),
            Ground::Story { name, seed, atomic_write_bytes } => {
                write!(f, "story '{name}' (seed {seed}, atomic {atomic_write_bytes})")
            }
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
    hunter: Hunter,
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
                    let caught = hunt_canary(*canary, hunter, budget);
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

/// What the hunter knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hunter {
    /// Where each canary was seen before: soonest to say that all can be caught.
    Knowing,
    /// Nothing: hunts as `bimetal hunt` does, from seed 1. So soon an error is found that nobody has thought
    /// of.
    Blind,
}

/// Hunts one canary on this thread, until it is caught or the time is over.
pub fn hunt_canary(canary: Canary, hunter: Hunter, budget: Duration) -> Option<Caught> {
    release(Some(canary));
    let deadline = Instant::now() + budget;
    let hunt = |seeds: &mut dyn Iterator<Item = u64>| {
        seeds.take_while(|_| Instant::now() < deadline).find_map(play_run)
    };
    let caught = match hunter {
        Hunter::Knowing => known_runs(canary)
            .or_else(|| play_haunts(canary, deadline))
            .or_else(|| hunt(&mut (1..=RUNS_BEFORE_STORIES)))
            .or_else(|| play_all(deadline))
            .or_else(|| hunt(&mut (RUNS_BEFORE_STORIES + 1..))),
        Hunter::Blind => hunt(&mut (1..)),
    };
    release(None);
    caught
}

/// The runs that are known to catch it.
fn known_runs(canary: Canary) -> Option<Caught> {
    let swarm = swarm_runs(canary).iter().find_map(|&seed| {
        let (_, found) = swarm::run(seed, Allowed::ALL);
        found.map(|trail| Caught { ground: Ground::Swarm(seed), message: trail.wrong.message })
    });
    swarm.or_else(|| runs(canary).iter().find_map(|&seed| play_run(seed)))
}

fn play_run(seed: u64) -> Option<Caught> {
    let (_, found) = run(seed, Allowed::ALL);
    found.map(|found| Caught { ground: Ground::Run(seed), message: found.wrong().message })
}

/// Each to its end, for what needs no cut, then with cuts for a while, with several seeds.
fn play_haunts(canary: Canary, deadline: Instant) -> Option<Caught> {
    let worlds = || HAUNT_SEEDS.flat_map(|seed| [512, 4096].map(|atomic| (seed, atomic)));
    let soonest = soonest(canary);
    // What is known to take cuts is not told without.
    let to_the_end = worlds().filter(|_| soonest.is_none()).map(|world| (world, 1));
    let known = soonest.into_iter().map(|world| (world, SOONEST_CASES));
    let with_cuts = worlds().map(|world| (world, HAUNT_CASES));
    to_the_end.chain(known).chain(with_cuts).find_map(|((seed, atomic_write_bytes), cases_max)| {
        let effort = Effort { cases_max, ..Effort::exhausting(Some(deadline)) };
        haunts(canary).iter().find_map(|name| {
            let mut all = tales(seed, atomic_write_bytes).into_iter();
            // Some stories are told of drives only that do not tear.
            let message = all.find(|tale| tale.name() == *name)?.play(&effort)?;
            let ground = Ground::Story { name, seed, atomic_write_bytes };
            Some(Caught { ground, message })
        })
    })
}

fn play_all(deadline: Instant) -> Option<Caught> {
    let effort = Effort { cases_max: CASES, ..Effort::exhausting(Some(deadline)) };
    let seed = 1;
    [512, 4096].into_iter().find_map(|atomic_write_bytes| {
        tales(seed, atomic_write_bytes).into_iter().find_map(|tale| {
            let ground = Ground::Story { name: tale.name(), seed, atomic_write_bytes };
            tale.play(&effort).map(|message| Caught { ground, message })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_haunt_is_a_story() {
        let all = tales(1, 4096);
        for canary in Canary::ALL {
            for name in haunts(*canary) {
                assert!(all.iter().any(|tale| tale.name() == *name), "there is no story '{name}'");
            }
        }
    }
}
