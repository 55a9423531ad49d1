//! Which slots of a drive are free.
//!
//! Next fit, upwards: extents written one after the other get neighbouring slots, so that a
//! stream stays a stream on the slow drive. A slot that was given up is not free at once: see
//! [`Quarantine`].

use std::collections::VecDeque;

use crate::accesses::Epoch;
use crate::address::{Home, Lsn, SlotId, Tier};
use crate::canary::canary;
use crate::marks::{self, Mark};

/// Free slots of one drive, one bit each.
pub(crate) struct Slots {
    /// Set bit: in use.
    words: Vec<u64>,
    slots: u64,
    free: u64,
    /// Where the next search begins.
    next: u64,
}

impl Slots {
    pub fn new(slots: u64) -> Slots {
        let mut words = vec![0; slots.div_ceil(64) as usize];
        // Bits beyond the last slot are never free.
        if let Some(last) = words.last_mut()
            && !slots.is_multiple_of(64)
        {
            *last = u64::MAX << (slots % 64);
        }
        Slots { words, slots, free: slots, next: 0 }
    }

    pub fn slots(&self) -> u64 {
        self.slots
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    pub fn memory_bytes(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Slots in use, counted anew.
    pub fn in_use(&self) -> u64 {
        let set: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        set - (self.words.len() as u64 * 64 - self.slots)
    }

    pub fn is_used(&self, slot: SlotId) -> bool {
        slot.0 < self.slots && self.words[slot.0 as usize / 64] >> (slot.0 % 64) & 1 == 1
    }

    /// Takes the next free slot.
    pub fn take(&mut self) -> Option<SlotId> {
        if self.free == 0 {
            return None;
        }
        let words = self.words.len() as u64;
        let start = self.next / 64;
        // The first word is looked at twice: from the hint upwards, and at the end from its start.
        for step in 0..=words {
            let index = ((start + step) % words) as usize;
            let below = if step == 0 { (1u64 << (self.next % 64)) - 1 } else { 0 };
            let candidates = !(self.words[index] | below);
            if candidates != 0 {
                let slot = index as u64 * 64 + u64::from(candidates.trailing_zeros());
                self.words[index] |= 1 << (slot % 64);
                self.free -= 1;
                self.next = if slot + 1 == self.slots { 0 } else { slot + 1 };
                return Some(SlotId(slot));
            }
        }
        unreachable!("the count of free slots is exact")
    }

    /// Marks a slot as used; `false` when it was already, or does not exist.
    pub fn claim(&mut self, slot: SlotId) -> bool {
        if slot.0 >= self.slots {
            return false;
        }
        let word = &mut self.words[slot.0 as usize / 64];
        let bit = 1 << (slot.0 % 64);
        if *word & bit != 0 {
            return false;
        }
        *word |= bit;
        self.free -= 1;
        true
    }

    /// Frees a slot that something pointed at.
    pub fn release(&mut self, freed: Freed) {
        self.give_back(freed.0.slot);
    }

    /// Frees a slot that was taken and that nothing has pointed at.
    pub fn give_back(&mut self, slot: SlotId) {
        let word = &mut self.words[slot.0 as usize / 64];
        let bit = 1 << (slot.0 % 64);
        assert!(*word & bit != 0, "slot {} was freed twice", slot.0);
        *word &= !bit;
        self.free += 1;
    }
}

/// A home whose slot may be used again: it has been in quarantine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Freed(Home);

impl Freed {
    pub fn tier(&self) -> Tier {
        self.0.tier
    }
}

/// Slots that were given up, waiting until it is safe to use them again:
/// * the record that gave them up is *known by a later durable record* to be durable: recovery
///   verifies younger allocations by their data, which therefore must not be overwritten before;
/// * every access that may have looked up the old home has ended.
#[derive(Default)]
pub(crate) struct Quarantine {
    queue: VecDeque<(Home, Lsn, Epoch)>,
    /// How many of them are on each drive.
    waiting_on: [u64; 2],
}

impl Quarantine {
    pub fn push(&mut self, home: Home, lsn: Lsn, epoch: Epoch) {
        self.waiting_on[home.tier.index()] += 1;
        self.queue.push_back((home, lsn, epoch));
    }

    /// The next slot that may be used again. `recorded`: recovery takes everything before this LSN
    /// as durable; `ended`: all accesses up to this epoch have ended.
    pub fn pop(&mut self, recorded: Lsn, ended: Epoch) -> Option<Freed> {
        let (_, lsn, epoch) = self.queue.front()?;
        let is_recorded = *lsn < recorded || canary!(RecordedTooWide) && *lsn == recorded;
        let is_unused = *epoch < ended || canary!(EpochTooWide) && *epoch == ended;
        if is_recorded && is_unused {
            let (home, ..) = self.queue.pop_front()?;
            self.waiting_on[home.tier.index()] -= 1;
            return Some(Freed(home));
        }
        marks::hit(match *lsn < recorded {
            true => Mark::SlotWaitedForAccess,
            false => Mark::SlotWaitedForRecord,
        });
        None
    }

    /// Whether the next slot waits only for its record to be known durable. One that waits for an
    /// access is left alone: more records would not help.
    pub fn waits_for_record(&self, recorded: Lsn, ended: Epoch) -> bool {
        self.queue.front().is_some_and(|(_, lsn, epoch)| *lsn >= recorded && *epoch < ended)
    }

    /// Who waits, in order, and since which record.
    pub fn waiting(&self) -> impl Iterator<Item = (Home, Lsn)> + '_ {
        self.queue.iter().map(|(home, lsn, _)| (*home, *lsn))
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many slots of a drive wait.
    pub fn waiting_on(&self, tier: Tier) -> u64 {
        self.waiting_on[tier.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_slot_is_handed_out_once_upwards() {
        let mut slots = Slots::new(130);
        for expected in 0..130 {
            assert_eq!(slots.take(), Some(SlotId(expected)));
        }
        assert_eq!((slots.take(), slots.free()), (None, 0));
        slots.give_back(SlotId(64));
        slots.give_back(SlotId(3));
        assert_eq!(slots.take(), Some(SlotId(3)));
        assert_eq!(slots.take(), Some(SlotId(64)));
    }

    #[test]
    fn a_search_wraps_around_within_its_first_word() {
        let mut slots = Slots::new(64);
        for _ in 0..10 {
            slots.take();
        }
        for slot in 10..64 {
            assert!(slots.claim(SlotId(slot)));
        }
        slots.give_back(SlotId(2));
        assert_eq!(slots.take(), Some(SlotId(2)));
    }

    #[test]
    fn claims_of_used_or_absent_slots_are_refused() {
        let mut slots = Slots::new(10);
        assert!(slots.claim(SlotId(9)));
        assert!(!slots.claim(SlotId(9)));
        assert!(!slots.claim(SlotId(10)));
        assert_eq!(slots.free(), 9);
    }
}
