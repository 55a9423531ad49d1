//! One run of the hunt: what a seed stands for. Three of four are of the swarm (`swarm.rs`), which meets
//! what nobody thought of; each fourth tells a story (`stories.rs`) with a seed of its own and is cut in it
//! at random, which goes where chance seldom does.

use twin::mix;

use crate::allowed::Allowed;
use crate::failure::Failure;
use crate::player::Wrong;
use crate::report::Effort;
use crate::stories::MISSED;
use crate::swarm::{self, Trail};
use crate::tale::tales;
use crate::tally::Tally;

/// One of so many seeds tells a story.
const STORY_EVERY: u64 = 4;
/// Which of them.
const STORY_AT: u64 = 3;
/// Cuts of a story, with what follows them: about as long as a run of the swarm.
const CASES: u64 = 100;
/// Seeds of stories are small numbers: they are multiplied in them.
const STORY_SEEDS: u64 = 1_000_000;

/// Something found.
#[derive(Debug, Clone)]
pub enum Found {
    /// By the swarm.
    Trail(Box<Trail>),
    /// In a story.
    Story(Box<Failure>),
}

impl Found {
    /// What is wrong.
    pub fn wrong(&self) -> Wrong {
        match self {
            Found::Trail(trail) => trail.wrong.clone(),
            Found::Story(failure) => {
                Wrong { stage: failure.stage, message: failure.message.clone() }
            }
        }
    }
}

/// Plays the run of `seed`. Gives what was done, and what was found. Stories take for granted that
/// everything may go wrong; where it may not, all runs are of the swarm.
pub fn run(seed: u64, allowed: Allowed) -> (Tally, Option<Found>) {
    if allowed == Allowed::ALL && seed % STORY_EVERY == STORY_AT {
        return tell(seed / STORY_EVERY);
    }
    let (tally, found) = swarm::run(seed, allowed);
    (tally, found.map(|trail| Found::Trail(Box::new(trail))))
}

/// Each story comes before any comes again.
fn tell(number: u64) -> (Tally, Option<Found>) {
    let story_seed = mix(number) % STORY_SEEDS;
    let atomic_write_bytes = if mix(story_seed).is_multiple_of(2) { 512 } else { 4096 };
    let all = tales(story_seed, atomic_write_bytes);
    // A step that shares no factor with how many there are passes all of them, far from each other.
    let place = number.wrapping_mul(37) % all.len() as u64;
    let effort = Effort { cases_max: CASES, ..Effort::exhausting(None) };
    let report = all[place as usize].report(&effort);
    // What a story of this seed did not come to do is no failure.
    let told = |failure: &Failure| !failure.message.contains(MISSED);
    let found = report.failures.into_iter().find(told);
    let tally = Tally { runs: 1, ..report.tally };
    (tally, found.map(|failure| Found::Story(Box::new(failure))))
}
