//! Belady's MIN with fills: what is used again soonest stays. Every fill is free to be refused.

use std::collections::{BTreeSet, VecDeque};

use super::{Contender, Extent, FastDrive, Ground, Occasion, Policy, Refusal, Touch};
use crate::trace::Event;

/// Never again.
const NEVER: u64 = u64::MAX;

/// See the head of the file.
pub struct Clairvoyant {
    /// Requests that touch each extent, the coming ones.
    uses: Vec<VecDeque<u64>>,
    /// What is on the fast drive, by next use.
    resident: BTreeSet<(u64, Extent)>,
}

impl Clairvoyant {
    /// For so many slots.
    pub fn new(events: &[Event], ground: &Ground, _slots: usize) -> Clairvoyant {
        let mut uses = vec![VecDeque::new(); ground.extents()];
        for (request, event) in events.iter().enumerate() {
            for part in ground.parts(event) {
                uses[part.extent.index()].push_back(request as u64);
            }
        }
        Clairvoyant { uses, resident: BTreeSet::new() }
    }

    fn next_use(&self, extent: Extent) -> u64 {
        self.uses[extent.index()].front().copied().unwrap_or(NEVER)
    }
}

impl Policy for Clairvoyant {
    fn observe(&mut self, touch: &Touch) {
        let before = (self.next_use(touch.extent), touch.extent);
        let uses = &mut self.uses[touch.extent.index()];
        while uses.front().is_some_and(|request| *request <= touch.request) {
            uses.pop_front();
        }
        if self.resident.remove(&before) {
            self.resident.insert((self.next_use(touch.extent), touch.extent));
        }
    }

    fn admit(
        &mut self,
        extent: Extent,
        occasion: Occasion,
        fast: &dyn FastDrive,
    ) -> Result<Option<Extent>, Refusal> {
        let next = self.next_use(extent);
        if next == NEVER || !matches!(occasion, Occasion::Missed { .. }) {
            return Err(Refusal::NoEvidence);
        }
        let leaving = if fast.free() == 0 {
            let last = self.resident.last().copied();
            match last {
                Some(last) if last.0 > next => {
                    self.resident.remove(&last);
                    Some(last.1)
                }
                _ => return Err(Refusal::NotHotter),
            }
        } else {
            None
        };
        self.resident.insert((next, extent));
        Ok(leaving)
    }
}

impl Contender for Clairvoyant {
    fn name(&self) -> &'static str {
        "clairvoyant"
    }
}
