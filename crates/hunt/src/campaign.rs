//! A hunt: the runs of seed, seed + 1, … on all threads, until the time is over, the seeds are used
//! up, or something is found.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::account::account;
use crate::allowed::Allowed;
use crate::player::Wrong;
use crate::run::{Found, run};
use crate::shrink::shrink;
use crate::tally::Tally;
use crate::trial::Trial;

/// Failures that are kept; more say nothing new.
const FAILURES_MAX: usize = 3;

/// What to hunt.
#[derive(Debug, Clone)]
pub struct Campaign {
    /// The first.
    pub seed: u64,
    /// How many seeds; `None`: as many as the time is enough for.
    pub runs: Option<u64>,
    /// How long.
    pub duration: Option<Duration>,
    /// What may go wrong.
    pub allowed: Allowed,
    /// Ends at the first failure.
    pub until_failure: bool,
    /// Simulations at the same time.
    pub jobs: usize,
    /// How long each failure may be shrunk.
    pub shrink: Duration,
}

/// A failure, with its account.
#[derive(Debug, Clone)]
pub struct Kill {
    /// The seed of the run.
    pub seed: u64,
    /// What is wrong.
    pub wrong: Wrong,
    /// How small it was made; a story is small as it is told.
    pub shrunk: Option<Smaller>,
    /// The account, in words.
    pub account: String,
    /// The command that finds it again.
    pub repeat: String,
}

/// What was left out of a failure.
#[derive(Debug, Clone)]
pub struct Smaller {
    /// Lives and requests as they were found.
    pub found_size: (usize, usize),
    /// The shrunk trial.
    pub trial: Trial,
    /// Trials played for that.
    pub played: u64,
    /// Nothing more could be left out.
    pub complete: bool,
}

/// What a campaign came to.
#[derive(Debug, Clone, Default)]
pub struct Bag {
    /// What was done.
    pub tally: Tally,
    /// What was found, smallest seed first.
    pub kills: Vec<Kill>,
}

impl Campaign {
    /// Hunts. `progress` is told now and then what was done so far.
    pub fn hunt(&self, progress: &(dyn Fn(&Tally) + Sync)) -> Bag {
        let begun = Instant::now();
        let next = AtomicU64::new(0);
        let over = AtomicBool::new(false);
        let bag = Mutex::new((Tally::default(), Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed)
                        && self.duration.is_none_or(|duration| begun.elapsed() < duration)
                    {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if self.runs.is_some_and(|runs| number >= runs) {
                            return;
                        }
                        let seed = self.seed.wrapping_add(number);
                        let (tally, found) = run(seed, self.allowed);
                        let mut bag = bag.lock().expect("no thread panicked");
                        bag.0.add(&tally);
                        if let Some(found) = found {
                            bag.1.push((seed, found));
                            if self.until_failure || bag.1.len() >= FAILURES_MAX {
                                over.store(true, Ordering::Relaxed);
                            }
                        }
                        progress(&bag.0);
                    }
                });
            }
        });
        let (tally, mut found) = bag.into_inner().expect("no thread panicked");
        found.sort_by_key(|(seed, _)| *seed);
        found.truncate(if self.until_failure { 1 } else { FAILURES_MAX });
        Bag {
            tally,
            kills: found.into_iter().map(|(seed, found)| self.kill(seed, &found)).collect(),
        }
    }

    fn kill(&self, seed: u64, found: &Found) -> Kill {
        let faults = self.allowed.names();
        let repeat = format!("bimetal hunt --seed {seed} --runs 1 --faults {faults}");
        let trail = match found {
            Found::Trail(trail) => trail,
            Found::Story(failure) => {
                let (wrong, account) = (found.wrong(), failure.to_string());
                return Kill { seed, wrong, shrunk: None, account, repeat };
            }
        };
        let shrunk = shrink(trail, self.shrink);
        let account = account(&shrunk.trial, &shrunk.wrong);
        let smaller = Smaller {
            found_size: (trail.trial.lives.len(), trail.trial.steps()),
            trial: shrunk.trial,
            played: shrunk.played,
            complete: shrunk.complete,
        };
        Kill { seed, wrong: shrunk.wrong, shrunk: Some(smaller), account, repeat }
    }
}
