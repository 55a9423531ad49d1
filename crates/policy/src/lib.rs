//! Which extents should be on the fast drive: decisions and nothing else.
//!
//! The engine runs `Heat` on real drives and the laboratory on traces. Both tell it what happens and ask it
//! what should through [`Policy`], so that what was measured is what ships; the engine holds a `Heat`
//! and no other policy, because it asks it more: which extents are hot or coldest, what to keep over a restart, and
//! why something stayed. No clocks, no drives, no waiting: what happens is told (`observe`, `took`,
//! `left_stage`), and what should happen is asked (`reads_around`, `admit`).

mod around;
mod budget;
mod coldest;
mod costs;
mod counts;
mod decisions;
mod ghosts;
mod heat;
mod interface;
mod sample;
mod stays;
mod streams;
mod verdicts;
mod wear;

pub use costs::{Costs, Measured};
pub use counts::HeatLevel;
pub use decisions::Decisions;
pub use ghosts::{GHOST_QUARTERS, Ghosts};
pub use heat::Heat;
pub use interface::{ExtentId, FastDrive, NotAround, Occasion, Policy, Refusal, Touch};
pub use sample::{Sums, spread};
pub use streams::{Standing, Streams};
pub use verdicts::{Verdict, Verdicts};
pub use wear::WearBudget;
