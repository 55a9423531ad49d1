//! Canaries: engines that are wrong on purpose, and how soon the hunt finds each out.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::canary::{Canary, release};

use crate::swarm::{Allowed, Found, run};

/// How a canary was found out.
#[derive(Debug)]
pub struct Caught {
    /// The seed with which.
    pub seed: u64,
    /// Seeds tried until then, one after the other from the first.
    pub runs: u64,
    /// What was wrong.
    pub found: Found,
}

/// Hunts one canary with the seeds from `first` on, until it is caught or the time is over.
pub fn hunt_canary(canary: Canary, first: u64, budget: Duration, threads: usize) -> Option<Caught> {
    let begun = Instant::now();
    let next = AtomicU64::new(first);
    let over = AtomicBool::new(false);
    let caught = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                release(Some(canary));
                while !over.load(Ordering::Relaxed) && begun.elapsed() < budget {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let (_, found) = run(seed, Allowed::ALL);
                    if let Some(found) = found {
                        over.store(true, Ordering::Relaxed);
                        let runs = seed - first + 1;
                        caught.lock().expect("no panic").get_or_insert(Caught {
                            seed,
                            runs,
                            found,
                        });
                    }
                }
                release(None);
            });
        }
    });
    caught.into_inner().expect("no panic")
}
