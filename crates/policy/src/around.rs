//! Whether reading around pays: whether extents that were read whole are asked for again while they
//! are in the stage.

use crate::costs::Costs;

/// Weight of the latest extent in the share of those asked for again.
const SMOOTHING: f64 = 1.0 / 256.0;
/// It must pay with a margin.
const MARGIN: f64 = 1.13;
/// While it does not pay, one miss in so many tries again.
const PROBE_EVERY: u64 = 16;

pub(crate) struct Around {
    /// Of those that left the stage, the share that was asked for again.
    share: f64,
    misses: u64,
}

impl Around {
    pub fn new() -> Around {
        Around { share: 1.0, misses: 0 }
    }

    /// A read missed: whether it should bring the whole extent.
    pub fn pays(&mut self, costs: &Costs) -> bool {
        self.misses += 1;
        self.share >= costs.around_share_min() * MARGIN || self.misses.is_multiple_of(PROBE_EVERY)
    }

    pub fn left_stage(&mut self, touched: bool) {
        let new = if touched { 1.0 } else { 0.0 };
        self.share += (new - self.share) * SMOOTHING;
    }
}
