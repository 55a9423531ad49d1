//! Heat: our own policy. One decayed count an extent, evidence before a move, and what the head
//! passes anyway is read along.
//!
//! * The count is kept as the logarithm of the sum of `2^(t/H)` over the touches, with `t` counted in
//!   touches and not in time: two extents change places only when one is touched, and an idle night
//!   cools nothing.
//! * A read that misses brings the whole extent into the stage. When it leaves the stage it goes up
//!   if its count says that it will be asked for again and is well above the coldest one's.
//! * Reading around ends where nothing comes of it, and is tried again now and then.
//! * What moves is bounded by a share of what clients move.

use std::collections::BTreeSet;

use super::ground::{Extent, Ground};
use super::policy::{Occasion, Policy, Refusal, Touch};

/// Touches after which a count has halved, for each slot.
const HALF_LIFE_PER_SLOT: f64 = 16.0;
/// Streams hardly count: the disk is good at them.
const LIGHT: f64 = 0.1;
/// A write that begins a stay in the log: it will be brought home once, however often it is
/// rewritten meanwhile, for 5.5 ms where a read that misses takes 8.
const LANDING: f64 = 0.7;
/// The count from which an extent has proved itself.
const ENTER_COUNT: f64 = 1.5;
/// How much hotter than what leaves.
const HYSTERESIS: f64 = 2.0;
/// While this share of the slots is free, everything may come.
const FREE_SHARE: f64 = 0.1;
/// Bytes moved up for each byte of clients, and how far the account may fill.
const BUDGET_SHARE: f64 = 0.5;
const BUDGET_BYTES_MAX: f64 = (32u64 << 20) as f64;
/// Reading around must help for this share of the extents: 0.8 ms for each of them against the 8 ms
/// of a miss, with a margin.
const AROUND_SHARE_MIN: f64 = 0.12;
/// Weight of the latest extent in that share.
const AROUND_SMOOTHING: f64 = 1.0 / 256.0;
/// While it does not help, one miss in so many tries again.
const PROBE_EVERY: u64 = 16;

/// See the head of the file.
pub struct Heat {
    /// Base-2 logarithm of each extent's count at touch 0.
    log_count: Vec<f64>,
    touches: u64,
    half_life: f64,
    resident: BTreeSet<(u64, Extent)>,
    slots: usize,
    extent_bytes: f64,
    budget_bytes: f64,
    around_share: f64,
    misses: u64,
    /// Bytes that went to the log, and where each extent's last stay there began.
    landed_bytes: u64,
    landed_at: Vec<Option<u64>>,
    log_bytes: u64,
}

impl Heat {
    /// For so many slots behind a log of so many bytes.
    pub fn new(ground: &Ground, slots: usize, log_bytes: u64) -> Heat {
        Heat {
            log_count: vec![f64::NEG_INFINITY; ground.extents()],
            touches: 0,
            half_life: HALF_LIFE_PER_SLOT * slots as f64,
            resident: BTreeSet::new(),
            slots,
            extent_bytes: ground.extent_bytes() as f64,
            budget_bytes: BUDGET_BYTES_MAX,
            around_share: 1.0,
            misses: 0,
            landed_bytes: 0,
            landed_at: vec![None; ground.extents()],
            log_bytes,
        }
    }

    fn now(&self) -> f64 {
        self.touches as f64 / self.half_life
    }

    fn count(&self, extent: Extent) -> f64 {
        (self.log_count[extent.index()] - self.now()).exp2()
    }

    /// What a touch says about the time that the extent will cost on the slow drive.
    fn weight(&mut self, touch: &Touch) -> f64 {
        if touch.is_stream {
            return LIGHT;
        }
        if !touch.is_write {
            return 1.0;
        }
        if !touch.is_resident {
            self.landed_bytes += touch.bytes;
        }
        let landed_at = &mut self.landed_at[touch.extent.index()];
        let is_there = landed_at.is_some_and(|at| self.landed_bytes - at < self.log_bytes);
        if is_there {
            return 0.0;
        }
        *landed_at = Some(self.landed_bytes);
        LANDING
    }

    /// Orders residents as their counts do.
    fn rank(&self, extent: Extent) -> (u64, Extent) {
        // Logarithms of counts of touched extents are never negative enough to matter: the
        // first touch is at 0 with a tenth.
        let shifted = self.log_count[extent.index()] + 64.0;
        (shifted.max(0.0).to_bits(), extent)
    }
}

impl Policy for Heat {
    fn name(&self) -> &'static str {
        "heat"
    }

    fn reads_around(&mut self, _: Extent) -> bool {
        self.misses += 1;
        self.around_share >= AROUND_SHARE_MIN || self.misses.is_multiple_of(PROBE_EVERY)
    }

    fn observe(&mut self, touch: &Touch) {
        let was = touch.is_resident && self.resident.remove(&self.rank(touch.extent));
        let weight = self.weight(touch);
        self.touches += 1;
        let now = self.now();
        let log = &mut self.log_count[touch.extent.index()];
        *log = now + ((*log - now).exp2() + weight).log2();
        self.budget_bytes =
            (self.budget_bytes + BUDGET_SHARE * touch.bytes as f64).min(BUDGET_BYTES_MAX);
        if was {
            self.resident.insert(self.rank(touch.extent));
        }
    }

    fn admit(
        &mut self,
        extent: Extent,
        occasion: Occasion,
        free: usize,
    ) -> Result<Option<Extent>, Refusal> {
        let plenty = free as f64 > FREE_SHARE * self.slots as f64;
        // All of it passes through memory anyway: keeping it costs no time of the slow drive.
        let is_at_hand = match occasion {
            Occasion::LeavesStage { .. } | Occasion::Missed { is_stream: true } => true,
            Occasion::Missed { is_stream: false } | Occasion::Destaged => false,
        };
        let count = self.count(extent);
        if !(is_at_hand && plenty) {
            if let Occasion::Missed { is_stream: true } = occasion {
                return Err(Refusal::Stream);
            }
            if count < ENTER_COUNT {
                return Err(Refusal::NoEvidence);
            }
        }
        // Filling what is empty is done once. Bounding it would leave holes in streams, and each
        // hole costs the disk a positioning.
        if !plenty && self.budget_bytes < self.extent_bytes {
            return Err(Refusal::Budget);
        }
        let leaving = if free == 0 {
            let coldest = self.resident.first().copied().ok_or(Refusal::NotHotter)?;
            if count < HYSTERESIS * self.count(coldest.1) {
                return Err(Refusal::NotHotter);
            }
            self.resident.remove(&coldest);
            Some(coldest.1)
        } else {
            None
        };
        self.budget_bytes = (self.budget_bytes - self.extent_bytes).max(0.0);
        self.resident.insert(self.rank(extent));
        Ok(leaving)
    }

    fn left_stage(&mut self, touched: bool) {
        let new = if touched { 1.0 } else { 0.0 };
        self.around_share += (new - self.around_share) * AROUND_SMOOTHING;
    }
}
