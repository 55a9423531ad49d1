//! What a hunt has done, in numbers.

use std::collections::BTreeMap;

use engine::marks::Marks;
use twin::CacheLoss;

use crate::failure::Fall;

/// The numbers.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Seeds that were played to their end.
    pub runs: u64,
    /// Requests of clients.
    pub steps: u64,
    /// Time on the drives' clocks.
    pub virtual_ns: u128,
    /// Each was followed by a recovery and a comparison with the oracle.
    pub power_cuts: u64,
    /// Deaths of the process.
    pub kills: u64,
    /// Volumes closed in order.
    pub closes: u64,
    /// By kind: how power cuts fell, what happened to drives at rest, and what they did wrong by
    /// themselves, under the names that the simulation has for it.
    pub faults: BTreeMap<&'static str, u64>,
    /// Branches of the engine that were taken.
    pub marks: Marks,
}

impl Tally {
    pub(crate) fn count(&mut self, fault: &'static str, times: u64) {
        if times > 0 {
            *self.faults.entry(fault).or_default() += times;
        }
    }

    pub(crate) fn count_cut(&mut self, loss: CacheLoss) {
        self.power_cuts += 1;
        let how = match loss {
            CacheLoss::KeepAll => "cut-keeps-all",
            CacheLoss::LoseAll => "cut-loses-all",
            CacheLoss::Subset(_) => "cut-keeps-some",
            CacheLoss::Reordered(_) => "cut-reorders",
            CacheLoss::Torn(_) => "cut-tears",
            CacheLoss::Bounded(..) => "cut-keeps-order-within-bounds",
        };
        self.count(how, 1);
    }

    pub(crate) fn count_fall(&mut self, fall: Fall) {
        match fall {
            Fall::Power(loss) => self.count_cut(loss),
            Fall::Process => self.kills += 1,
        }
    }

    /// Adds another's.
    pub fn add(&mut self, other: &Tally) {
        self.runs += other.runs;
        self.steps += other.steps;
        self.virtual_ns += other.virtual_ns;
        self.power_cuts += other.power_cuts;
        self.kills += other.kills;
        self.closes += other.closes;
        for (fault, count) in &other.faults {
            self.count(fault, *count);
        }
        self.marks.add(&other.marks);
    }

    /// Hours on the drives' clocks.
    pub fn virtual_hours(&self) -> f64 {
        self.virtual_ns as f64 / 3.6e12
    }
}
