//! Least recently used, at extents: every read that misses comes in.

use super::order::Order;
use super::{Contender, Extent, FastDrive, Ground, Occasion, Policy, Refusal, Touch};

/// See the head of the file.
pub struct Lru {
    order: Order,
}

impl Lru {
    /// For so many slots.
    pub fn new(ground: &Ground, _slots: usize) -> Lru {
        Lru { order: Order::new(ground.extents()) }
    }
}

impl Policy for Lru {
    fn observe(&mut self, touch: &Touch) {
        if touch.is_resident {
            self.order.push(touch.extent);
        }
    }

    fn admit(
        &mut self,
        extent: Extent,
        occasion: Occasion,
        fast: &dyn FastDrive,
    ) -> Result<Option<Extent>, Refusal> {
        if !matches!(occasion, Occasion::Missed { .. }) {
            return Err(Refusal::NoEvidence);
        }
        let leaving = if fast.free() == 0 { self.order.pop() } else { None };
        self.order.push(extent);
        Ok(leaving)
    }
}

impl Contender for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }
}
