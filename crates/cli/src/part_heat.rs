//! How often a part of a volume was read lately.

use std::ops::AddAssign;

use engine::Engine;
use io::Volume;
use serde::{Deserialize, Serialize};

/// `Worth::heat` of one read.
const HEAT_STEPS: f64 = 16.0;

/// Reads of a part of a volume; older ones count less.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PartHeat {
    /// Of its extents together. One that is in it in part counts in part.
    pub reads: f64,
    /// Of the extent that was read most often.
    pub hottest_extent_reads: f64,
}

impl PartHeat {
    /// Of a range of a volume whose extents have so many bytes.
    pub fn of(engine: &Engine, at: u64, length: u64, extent_bytes: u64) -> PartHeat {
        let mut heat = PartHeat::default();
        for run in engine.worths(at, length, usize::MAX) {
            let reads = f64::from(run.heat) / HEAT_STEPS;
            heat += PartHeat {
                reads: reads * run.length as f64 / extent_bytes as f64,
                hottest_extent_reads: reads,
            };
        }
        heat
    }
}

impl AddAssign for PartHeat {
    fn add_assign(&mut self, other: PartHeat) {
        self.reads += other.reads;
        self.hottest_extent_reads = self.hottest_extent_reads.max(other.hottest_extent_reads);
    }
}
