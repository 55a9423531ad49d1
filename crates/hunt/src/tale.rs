//! Every story that is told of the engine, each of the sort of volume that it is about.

use std::time::Instant;

use engine::{CacheMode, Engine};

use crate::bimetal::{Bimetal, Cached, Keeping, Remarried, Widowed};
use crate::enumerate::enumerate;
use crate::failure::Failure;
use crate::report::{Effort, Report};
use crate::scenario::Scenario;
use crate::stories::{
    MISSED, alone_stories, attach_stories, cache_stories, keeping_stories, stories,
};

/// What a story is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hero {
    Span,
    Keeping,
    Cache(CacheMode),
    Widowed,
    Remarried,
}

/// A story, and what it is told of: all that is told of the engine.
pub struct Tale {
    hero: Hero,
    story: Scenario<Engine>,
}

/// All stories: of volumes that span both drives, then of those of class cache, then of those that keep
/// below what goes up.
pub fn tales(seed: u64, atomic_write_bytes: u32) -> Vec<Tale> {
    let of = |hero| move |story| Tale { hero, story };
    let mut all: Vec<Tale> =
        stories(seed, atomic_write_bytes).into_iter().map(of(Hero::Span)).collect();
    let cache = cache_stories(seed, atomic_write_bytes).into_iter();
    all.extend(cache.map(|(mode, story)| Tale { hero: Hero::Cache(mode), story }));
    all.extend(alone_stories(seed, atomic_write_bytes).into_iter().map(of(Hero::Widowed)));
    if atomic_write_bytes >= 4096 {
        all.extend(attach_stories(seed).into_iter().map(of(Hero::Remarried)));
    }
    let keeping = keeping_stories(seed, atomic_write_bytes);
    all.extend(keeping.into_iter().map(of(Hero::Keeping)));
    all
}

impl Tale {
    /// The story's name.
    pub fn name(&self) -> &'static str {
        self.story.name
    }

    /// Plays it; gives what was found first.
    pub fn play(&self, effort: &Effort) -> Option<String> {
        let report = self.report(effort);
        // What a story missed because of the canary is no proof.
        let told = |failure: &Failure| !failure.message.contains(MISSED);
        report.failures.into_iter().find(told).map(|failure| failure.message)
    }

    /// Where time counts, cuts come at each so many-th operation.
    pub fn stride(&self) -> u64 {
        self.story.stride
    }

    /// Plays it.
    pub fn report(&self, effort: &Effort) -> Report {
        match self.hero {
            Hero::Span => {
                enumerate(&Bimetal, &self.story, &Effort { death_every: 0, ..effort.clone() })
            }
            Hero::Keeping => {
                enumerate(&Keeping, &self.story, &Effort { death_every: 0, ..effort.clone() })
            }
            Hero::Cache(mode) => {
                // Only where the volume is in write-through all the time it goes on without the fast drive.
                let dies = ["through", "around"].iter().any(|it| self.story.name.starts_with(it));
                let effort = Effort {
                    death_every: if dies { effort.death_every } else { 0 },
                    ..effort.clone()
                };
                enumerate(&Cached(mode), &self.story, &effort)
            }
            Hero::Widowed => {
                enumerate(&Widowed, &self.story, &Effort { death_every: 0, ..effort.clone() })
            }
            Hero::Remarried => {
                enumerate(&Remarried, &self.story, &Effort { death_every: 0, ..effort.clone() })
            }
        }
    }
}

impl Effort {
    /// All that can be done at a cut point, for one failure, on one thread.
    pub fn exhausting(deadline: Option<Instant>) -> Effort {
        Effort {
            seeds: 1,
            recut_every: 150,
            relive_every: 3,
            alone_every: 1,
            rot_every: 3,
            death_every: 1,
            after_opening: true,
            failures_max: 1,
            threads: 1,
            until: deadline,
            ..Effort::default()
        }
    }
}
