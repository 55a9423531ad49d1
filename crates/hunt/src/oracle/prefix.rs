//! Whether what survived a power cut is the state after some prefix of the writes: the promise of
//! deferred mode, which is about the whole volume, not about each block.
//!
//! Writes are ordered where one ended before the other began; overlapping ones in flight together
//! may be ordered either way. If some part of a write survived, all of every write before it must
//! have. So it is enough to find the survivor that began last, its *frontier*:
//!
//! * what began after the frontier has not survived;
//! * what ended before the frontier began has survived wholly;
//! * what was in flight when it began (the frontier's write included) may have, wholly or, where
//!   it covers several blocks, its front blocks only.
//!
//! Each block must then be explained with these weights. Data names its write, so the frontier is at
//! least the latest write seen, or the latest that the bound demands; only writes of zeros are
//! nameless and may put it later, and each of them is tried. Not looked for: that nameless or
//! concurrent writes agree with one another over several blocks.

use std::collections::{BTreeMap, BTreeSet};

use super::{Deed, Oracle, Record, blocks, durable, mask, observe};
use crate::history::{Entry, History, Tick, Weight};
use crate::sector::{BLOCK_SECTORS, Value};

/// What one block shows.
type Seen = [Value; BLOCK_SECTORS];

impl Oracle {
    /// Whether these stretches of the volume, each with its first byte, are together the state
    /// after a prefix of the writes.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn check_prefix(&self, stretches: &[(u64, Vec<u8>)]) -> Result<(), String> {
        let mut views: BTreeMap<u64, Seen> = BTreeMap::new();
        for (at, bytes) in stretches {
            for block in blocks(&(*at..*at + bytes.len() as u64)) {
                views.insert(block, observe(*at, bytes, block).0);
            }
        }
        // Of each write that is seen: the last block that shows it, and when it began.
        let mut last_block: BTreeMap<u32, u64> = BTreeMap::new();
        let mut frontier: Tick = 0;
        for (block, seen) in &views {
            let Some(history) = self.blocks.get(block) else { continue };
            for value in seen {
                let Value::Of(write) = value else { continue };
                if let Some(entry) = history.entries.iter().find(|entry| entry.write == *write) {
                    frontier = frontier.max(entry.begun);
                    last_block.insert(*write, *block);
                }
            }
        }
        let demanded = |entry: &&Entry| durable(entry, self.durable_until);
        let entries = self.blocks.values().flat_map(|history| &history.entries);
        frontier =
            frontier.max(entries.filter(demanded).map(|entry| entry.begun).max().unwrap_or(0));
        let entries = self.blocks.values().flat_map(|history| &history.entries);
        let zeroings: BTreeSet<Tick> = entries
            .filter(|entry| entry.zeros && entry.begun > frontier)
            .map(|entry| entry.begun)
            .collect();
        let frontiers = [frontier].into_iter().chain(zeroings);
        let mut first = None;
        for frontier in frontiers {
            let explained = self.explain_all(&views, &last_block, frontier);
            match explained.and_then(|()| self.check_lost_bytes(&views, frontier)) {
                Ok(()) => return Ok(()),
                Err(wrong) => first = first.or(Some(wrong)),
            }
        }
        Err(first.expect("one frontier is always tried"))
    }

    /// Whether what had ended and has not survived is within the bound: what began after the frontier.
    /// Writes that no block's history holds any more were settled when the volume was closed, or
    /// overwritten.
    fn check_lost_bytes(&self, views: &BTreeMap<u64, Seen>, frontier: Tick) -> Result<(), String> {
        let Some(bytes_max) = self.lost_bytes_max else { return Ok(()) };
        let entries = self.blocks.values().flat_map(|history| &history.entries);
        let open: BTreeSet<Tick> = entries.map(|entry| entry.begun).collect();
        let is_lost = |record: &&Record| {
            let ended = record.ended.is_some() && record.cuts + 1 == self.cuts;
            let data = ended && record.deed == Deed::Data;
            let behind = data && record.begun > frontier && open.contains(&record.begun);
            behind && !self.may_be_overwritten(views, record)
        };
        let lost = self.records.iter().filter(is_lost);
        let bytes: u64 = lost.map(|record| record.bytes.end - record.bytes.start).sum();
        match bytes > bytes_max {
            true => {
                Err(format!("{bytes} bytes that had ended are lost, and the bound is {bytes_max}"))
            }
            false => Ok(()),
        }
    }

    /// Whether writes that were in flight together with it, or began later, are all that is seen in its place:
    /// then it may have survived, under them.
    fn may_be_overwritten(&self, views: &BTreeMap<u64, Seen>, record: &Record) -> bool {
        let covers = |value: &Value| {
            let Value::Of(write) = value else { return false };
            let seen = self.records.get(*write as usize);
            seen.is_some_and(|seen| seen.ended.is_none_or(|ended| ended > record.begun))
        };
        blocks(&record.bytes).all(|block| {
            let mask = mask(&record.bytes, block);
            views.get(&block).is_some_and(|seen| {
                (0..BLOCK_SECTORS).all(|sector| mask & (1 << sector) == 0 || covers(&seen[sector]))
            })
        })
    }

    /// Whether every block is explained with this frontier.
    fn explain_all(
        &self,
        views: &BTreeMap<u64, Seen>,
        last_block: &BTreeMap<u32, u64>,
        frontier: Tick,
    ) -> Result<(), String> {
        for (block, seen) in views {
            let Some(history) = self.blocks.get(block) else { continue };
            let survivors = History {
                entries: history.entries.iter().filter(|e| e.begun <= frontier).copied().collect(),
                shown: history.shown.clone(),
            };
            let weight = |entry: &Entry| {
                let before = entry.ended.is_some_and(|ended| ended < frontier);
                // A later block shows it, so this one must have had it.
                let front = last_block.get(&entry.write).is_some_and(|last| block < last);
                if before || front || durable(entry, self.durable_until) {
                    Weight::Must
                } else {
                    Weight::May
                }
            };
            if let Err(wrong) = survivors.explain(seen, u8::MAX, weight) {
                let latest = self.records.iter().rposition(|record| record.begun == frontier);
                let latest = latest.and_then(|write| u32::try_from(write).ok());
                let frontier = latest.map_or("nothing".into(), |write| self.describe(write, None));
                let wrong = format!(
                    "what survived is no prefix of the writes: {wrong}\n  the latest survivor: \
                     {frontier}"
                );
                return Err(self.accuse("after a power cut", *block, seen, u8::MAX, &wrong));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sector::{SECTOR_BYTES, stamp};

    const BLOCK: u64 = 4096;
    const SECOND_NS: u64 = 1_000_000_000;

    fn oracle() -> Oracle {
        let mut oracle = Oracle::new();
        oracle.defer(Some(SECOND_NS));
        oracle
    }

    /// A write of so many blocks that begins and ends.
    fn write(oracle: &mut Oracle, block: u64, count: u64) -> u32 {
        let write = oracle.begin_write(Deed::Data, block * BLOCK, count * BLOCK, false);
        oracle.end_write(write, true);
        write
    }

    fn trim(oracle: &mut Oracle, block: u64) {
        let write = oracle.begin_write(Deed::Trim, block * BLOCK, BLOCK, false);
        oracle.end_write(write, true);
    }

    /// The verdict on a volume whose blocks show these writes, 0 for zeros.
    fn verdict(oracle: &Oracle, shown: &[u32]) -> Result<(), String> {
        let mut oracle = oracle.clone();
        oracle.cut();
        let mut bytes = vec![0; shown.len() * BLOCK as usize];
        for (block, write) in shown.iter().enumerate().filter(|(_, write)| **write > 0) {
            let start = block * BLOCK as usize;
            let sector = (start / SECTOR_BYTES) as u64;
            stamp(&mut bytes[start..start + BLOCK as usize], *write, sector);
        }
        oracle.check_prefix(&[(0, bytes)])
    }

    #[test]
    fn every_prefix_is_right_and_every_gap_is_wrong() {
        let mut oracle = oracle();
        for block in [0, 1, 2] {
            write(&mut oracle, block, 1);
        }
        for right in [[0, 0, 0], [1, 0, 0], [1, 2, 0], [1, 2, 3]] {
            assert_eq!(verdict(&oracle, &right), Ok(()));
        }
        for wrong in [[0, 2, 0], [0, 0, 3], [1, 0, 3], [0, 2, 3]] {
            let words = verdict(&oracle, &wrong).unwrap_err();
            assert!(words.contains("no prefix") && words.contains("latest survivor"), "{words}");
        }
    }

    #[test]
    fn an_overwritten_block_must_not_show_its_past_beside_a_later_write() {
        let mut oracle = oracle();
        let (old, new) = (write(&mut oracle, 0, 1), write(&mut oracle, 0, 1));
        let later = write(&mut oracle, 1, 1);
        assert_eq!(verdict(&oracle, &[old, 0]), Ok(()));
        assert_eq!(verdict(&oracle, &[new, later]), Ok(()));
        assert!(verdict(&oracle, &[old, later]).is_err());
    }

    #[test]
    fn writes_in_flight_together_survive_in_any_choice() {
        let mut oracle = oracle();
        let one = oracle.begin_write(Deed::Data, 0, BLOCK, false);
        let other = oracle.begin_write(Deed::Data, BLOCK, BLOCK, false);
        for shown in [[0, 0], [one, 0], [0, other], [one, other]] {
            assert_eq!(verdict(&oracle, &shown), Ok(()));
        }
        oracle.end_write(one, true);
        oracle.end_write(other, true);
        assert_eq!(verdict(&oracle, &[0, other]), Ok(()));
        let later = write(&mut oracle, 2, 1);
        assert!(verdict(&oracle, &[0, other, later]).is_err());
    }

    #[test]
    fn of_a_large_write_a_front_part_may_survive_and_no_other() {
        let mut oracle = oracle();
        let large = write(&mut oracle, 0, 3);
        assert_eq!(verdict(&oracle, &[large, large, 0]), Ok(()));
        assert!(verdict(&oracle, &[0, large, large]).is_err());
        let later = write(&mut oracle, 3, 1);
        assert!(verdict(&oracle, &[large, large, 0, later]).is_err());
    }

    #[test]
    fn what_a_survivor_may_have_overwritten_does_not_count_as_lost() {
        let mut oracle = oracle();
        oracle.limit_bytes(Some(BLOCK));
        let large = oracle.begin_write(Deed::Data, 0, 2 * BLOCK, false);
        for _ in 0..3 {
            write(&mut oracle, 0, 1);
        }
        oracle.end_write(large, true);
        assert_eq!(verdict(&oracle, &[large, large]), Ok(()));
        write(&mut oracle, 0, 1);
        assert_eq!(verdict(&oracle, &[large, large]), Ok(()), "no more than the bound");
        write(&mut oracle, 0, 1);
        assert!(verdict(&oracle, &[large, large]).unwrap_err().contains("are lost"));
    }

    #[test]
    fn zeros_are_nameless_but_keep_their_place() {
        let mut oracle = oracle();
        let first = write(&mut oracle, 0, 1);
        trim(&mut oracle, 0);
        let last = write(&mut oracle, 1, 1);
        assert_eq!(verdict(&oracle, &[0, last]), Ok(()));
        assert_eq!(verdict(&oracle, &[first, 0]), Ok(()));
        assert_eq!(verdict(&oracle, &[0, 0]), Ok(()), "after the trim, or before everything");
        assert!(verdict(&oracle, &[first, last]).is_err(), "the trim is lost");
        let mut oracle = self::oracle();
        let (one, two) = (write(&mut oracle, 0, 1), write(&mut oracle, 1, 1));
        trim(&mut oracle, 0);
        assert_eq!(verdict(&oracle, &[0, two]), Ok(()));
        assert!(verdict(&oracle, &[0, 0, 0]).is_ok() && verdict(&oracle, &[one, two]).is_ok());
        write(&mut oracle, 2, 1);
        assert!(verdict(&oracle, &[one, two, 4]).is_err());
    }

    #[test]
    fn what_is_older_than_the_bound_or_the_change_of_mode_must_be_there() {
        let mut oracle = Oracle::new();
        let early = write(&mut oracle, 0, 1);
        let switch = oracle.begin_close();
        oracle.begin_promise(Some(SECOND_NS));
        oracle.end_flush(switch);
        oracle.defer(Some(SECOND_NS));
        assert!(verdict(&oracle, &[0, 0]).is_err(), "written before the mode was changed");
        oracle.tell_time(SECOND_NS);
        let late = write(&mut oracle, 1, 1);
        oracle.tell_time(2 * SECOND_NS - 1);
        let flush = oracle.begin_flush();
        oracle.end_flush(flush);
        assert_eq!(verdict(&oracle, &[early, 0]), Ok(()), "a flush promises nothing");
        oracle.tell_time(2 * SECOND_NS);
        assert!(verdict(&oracle, &[early, 0]).is_err(), "a second ago");
        assert_eq!(verdict(&oracle, &[early, late]), Ok(()));
    }
}
