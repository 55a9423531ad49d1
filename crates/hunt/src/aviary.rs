//! Canaries: engines that are wrong on purpose, and how soon the hunt finds each out. First by the
//! swarm; what that has not met after a while is also taken through the stories.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use engine::canary::{Canary, release};

use crate::allowed::Allowed;
use crate::bimetal::Bimetal;
use crate::enumerate::enumerate;
use crate::report::Effort;
use crate::stories::stories;
use crate::swarm::run;

/// So long only the swarm hunts: most canaries are caught by then.
const SWARM_ALONE: Duration = Duration::from_secs(6);

/// The seed of the stories.
const STORIES_SEED: u64 = 1;

/// Canaries that have not been caught within half a minute: each breaks a promise where several rare
/// things meet, and is a hole in the hunt until it is. They are hunted when asked for by name.
pub const ELUSIVE: &[Canary] = &[
    Canary::RingFreedBeforeSuperblock,
    Canary::PageSharesOpenRecord,
    Canary::PagesNotFlushed,
    Canary::PageOverNewerCopy,
    Canary::FlushBesideIgnored,
    Canary::DeferredOverUnflushed,
    Canary::StrictWithoutFlush,
    Canary::PartsOutOfOrder,
    Canary::DoubtNotFlushed,
    Canary::DoubtSparedTooLong,
    Canary::DoubtForgottenAtMove,
    Canary::VouchedOverLog,
    Canary::VouchedOverDirtyPage,
    Canary::ReplayNotDoubted,
    Canary::TornPageBelieved,
];

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

struct Hunt {
    next: AtomicU64,
    deadline: Instant,
    caught: Mutex<Option<Caught>>,
    over: AtomicBool,
}

/// Hunts one canary with the seeds from `first` on, until it is caught or the time is over.
pub fn hunt_canary(canary: Canary, first: u64, budget: Duration, threads: usize) -> Option<Caught> {
    let begun = Instant::now();
    let hunt = Hunt {
        next: AtomicU64::new(first),
        deadline: begun + budget,
        caught: Mutex::new(None),
        over: AtomicBool::new(false),
    };
    std::thread::scope(|scope| {
        for number in 0..threads.max(1) {
            let hunt = &hunt;
            scope.spawn(move || {
                release(Some(canary));
                if number + 1 == threads.max(1) {
                    hunt.swarm(hunt.deadline.min(begun + SWARM_ALONE));
                    hunt.stories();
                }
                hunt.swarm(hunt.deadline);
                release(None);
            });
        }
    });
    hunt.caught.into_inner().expect("no panic")
}

impl Hunt {
    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed) || Instant::now() >= self.deadline
    }

    fn catch(&self, ground: Ground, message: String) {
        self.over.store(true, Ordering::Relaxed);
        self.caught.lock().expect("no panic").get_or_insert(Caught { ground, message });
    }

    fn swarm(&self, until: Instant) {
        while !self.is_over() && Instant::now() < until {
            let seed = self.next.fetch_add(1, Ordering::Relaxed);
            if let (_, Some(found)) = run(seed, Allowed::ALL) {
                self.catch(Ground::Run(seed), found.wrong.message);
            }
        }
    }

    fn stories(&self) {
        for atomic_write_bytes in [512, 4096] {
            for story in stories(STORIES_SEED, atomic_write_bytes) {
                if self.is_over() {
                    return;
                }
                let effort = Effort {
                    stride: 3,
                    seeds: 1,
                    recut_every: 50,
                    alone_every: 3,
                    threads: 1,
                    until: Some(self.deadline),
                    ..Effort::default()
                };
                let report = enumerate(&Bimetal, &story, &effort);
                if let Some(failure) = report.failures.into_iter().next() {
                    self.catch(Ground::Story(story.name), failure.message);
                }
            }
        }
    }
}
