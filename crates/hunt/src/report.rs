//! How much of a scenario is tried, and what came of it.

use std::time::Instant;

use crate::alone::Alone;
use crate::failure::Failure;
use crate::tally::Tally;

/// How much is tried.
#[derive(Debug, Clone)]
pub struct Effort {
    /// Each `stride`-th operation is a cut point (1: all). Where the first lies is drawn.
    pub stride: u64,
    /// Of each seeded rule, so many seeds.
    pub seeds: u64,
    /// Each `relive_every`-th case does new work after its recovery and is cut again.
    pub relive_every: u64,
    /// Each `recut_every`-th case is also cut at every operation of its recovery; 0: none.
    pub recut_every: u64,
    /// After each `alone_every`-th case each drive is also read alone, the other one lost; 0: none.
    pub alone_every: u64,
    /// After each `rot_every`-th case each drive's map rots in turn, where it may; 0: none.
    pub rot_every: u64,
    /// At each `death_every`-th operation the fast drive dies instead, and the volume must go on; 0: none.
    /// For volumes that promise so.
    pub death_every: u64,
    /// Cuts begin when the volume of the act is open, and come in no order.
    pub after_opening: bool,
    /// Failures that are kept; more say nothing new.
    pub failures_max: usize,
    /// Threads; with one, the caller's own.
    pub threads: usize,
    /// So many cases are enough, however many are left.
    pub cases_max: u64,
    /// When it is enough, however much is left.
    pub until: Option<Instant>,
}

impl Default for Effort {
    fn default() -> Effort {
        Effort {
            stride: 1,
            seeds: 2,
            relive_every: 5,
            recut_every: 0,
            alone_every: 5,
            rot_every: 0,
            death_every: 0,
            after_opening: false,
            failures_max: 5,
            cases_max: u64::MAX,
            threads: 2,
            until: None,
        }
    }
}

/// What was tried and found.
#[derive(Debug, Clone)]
pub struct Report {
    /// The scenario's name.
    pub scenario: &'static str,
    /// Operations of the act.
    pub operations: u64,
    /// Recoveries compared with the oracle.
    pub cases: u64,
    /// What the fast and the slow drive gave alone.
    pub alone: [Alone; 2],
    /// The same in other numbers: falls by kind, time on the drives' clocks, branches of the engine.
    pub tally: Tally,
    /// What was found, first cut points first.
    pub failures: Vec<Failure>,
}

impl Report {
    /// Says what was tried.
    ///
    /// # Panics
    /// When something was found: with all of it in words.
    pub fn expect_clean(&self) {
        let text: Vec<String> = self.failures.iter().map(ToString::to_string).collect();
        assert!(text.is_empty(), "{} failures kept:\n{}", text.len(), text.join("\n"));
        println!("{}: {} operations, {} cases", self.scenario, self.operations, self.cases);
        for (tier, Alone { read, lost }) in ["fast", "slow"].into_iter().zip(self.alone) {
            println!("  the {tier} drive alone: {read} blocks read, {lost} lost");
        }
    }
}
