//! The fast drive as the policy is shown it: free slots beyond the reserve, and who could leave.

use policy::FastDrive;

use crate::address::{ExtentId, Tier};
use crate::geometry::Geometry;
use crate::guards::Guards;
use crate::map::Map;
use crate::slots::Slots;
use crate::wishes::{Wish, Wishes};

/// Borrowed parts of the state, so that the policy can be asked with the rest of it in hand.
pub(crate) struct FastView<'a> {
    pub map: &'a Map,
    pub guards: &'a Guards,
    pub slots: &'a [Slots; 2],
    pub geometry: &'a Geometry,
    pub wishes: &'a Wishes,
    /// Slots that are spoken for: the reserve, and those that wait for their data.
    pub taken: u64,
    /// Only who leaves without being copied may leave.
    pub for_free: bool,
}

impl FastDrive for FastView<'_> {
    fn free(&self) -> u64 {
        self.slots[Tier::Fast.index()].free().saturating_sub(self.taken)
    }

    fn next_resident(&self, from: ExtentId) -> Option<ExtentId> {
        self.map.next_on_fast(from.0)
    }

    fn may_leave(&self, extent: ExtentId) -> bool {
        let mapping = self.map.get(extent);
        if !mapping.is_on_fast() || self.wishes.of(extent) == Some(Wish::Pinned) {
            return false;
        }
        if mapping.moving() || mapping.in_log() || self.guards.home_written(extent) {
            return false;
        }
        if mapping.is_clean() || self.for_free {
            return mapping.is_clean();
        }
        let slow = &self.slots[Tier::Slow.index()];
        mapping.part().is_some()
            || match self.geometry.own_slot(extent) {
                Some(own) => !slow.is_used(own.slot),
                None => slow.free() > 0,
            }
    }
}
