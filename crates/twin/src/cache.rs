//! A drive's content seen through its volatile write cache.
//!
//! * `current` is what reads see. `durable` keeps, for each block that the cache has changed,
//!   what the medium itself holds; all other blocks are the same in both.
//! * `journal` lists the changes that are not durable yet, oldest first. A flush moves a front
//!   part of it to the medium; a power cut keeps of it what its rule says.
//! * The cache is bounded: beyond its size the oldest changes reach the medium by themselves, as
//!   they do in a drive.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::change::Change;
use crate::loss::CacheLoss;
use crate::medium::{Block, Medium, NumberMap, bytes_of, cut};

/// One change that a power cut may lose.
#[derive(Clone)]
struct Pending {
    /// Counts completed changes; a flush covers those up to its submission.
    sequence: u64,
    change: Change,
    /// The blocks it changed when it completed.
    touched: Vec<u64>,
}

/// What the medium holds of a block that the cache has changed.
#[derive(Clone)]
struct Durable {
    content: Option<Arc<Block>>,
    /// Changes of the block in the journal; with none, the block needs no mention.
    pending: u32,
}

/// Content and cache of one drive.
#[derive(Clone)]
pub struct Cache {
    current: Medium,
    durable: NumberMap<Durable>,
    journal: VecDeque<Pending>,
    journal_bytes: u64,
    /// 0: no volatile cache, what completes is durable.
    limit_bytes: u64,
    sequence: u64,
}

impl Cache {
    /// An empty drive whose volatile cache holds `limit_bytes` (0: it has none).
    pub fn new(limit_bytes: u64) -> Cache {
        Cache {
            current: Medium::default(),
            durable: NumberMap::default(),
            journal: VecDeque::new(),
            journal_bytes: 0,
            limit_bytes,
            sequence: 0,
        }
    }

    /// What reads see.
    pub fn current(&self) -> &Medium {
        &self.current
    }

    /// Replaces everything by `medium`, as if it had always been so.
    pub fn replace(&mut self, medium: Medium) {
        self.current = medium;
        self.forget();
    }

    /// Changes the medium, and what reads see, behind the cache's back: for tests that damage a
    /// drive.
    pub fn poke(&mut self, at: u64, bytes: &[u8]) {
        self.current.write(at, bytes);
        for (block, within, part) in cut(at, bytes.len()) {
            if let Some(durable) = self.durable.get_mut(&block) {
                let source = &bytes[part];
                let content = bytes_of(&mut durable.content);
                content[within..within + source.len()].copy_from_slice(source);
            }
        }
    }

    /// A change completes: reads see it, a power cut may lose it.
    pub fn complete(&mut self, change: Change) {
        self.sequence += 1;
        if self.limit_bytes == 0 {
            return change.apply(&mut self.current);
        }
        let touched = change.touched(&self.current);
        for block in &touched {
            let current = &self.current;
            let content = || Durable { content: current.get(*block).cloned(), pending: 0 };
            self.durable.entry(*block).or_insert_with(content).pending += 1;
            self.current.update(*block, |content| change.apply_to(*block, content));
        }
        self.journal_bytes += change.held_bytes();
        self.journal.push_back(Pending { sequence: self.sequence, change, touched });
        if self.journal_bytes > self.limit_bytes {
            // Half at once, so that the cost of a partial flush is spread.
            self.settle(self.journal[self.journal.len() / 2].sequence);
        }
    }

    /// How many changes have completed: what a flush submitted now must cover.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Changes that a power cut may lose.
    pub fn volatile_changes(&self) -> usize {
        self.journal.len()
    }

    /// These changes, oldest first.
    pub fn volatile(&self) -> impl Iterator<Item = &Change> {
        self.journal.iter().map(|pending| &pending.change)
    }

    /// Makes the changes up to `sequence` durable.
    pub fn settle(&mut self, sequence: u64) {
        let covered = self.journal.partition_point(|pending| pending.sequence <= sequence);
        if covered == self.journal.len() {
            return self.settle_all();
        }
        for Pending { change, touched, .. } in self.journal.drain(..covered) {
            self.journal_bytes -= change.held_bytes();
            for block in touched {
                let durable = self.durable.get_mut(&block).expect("the journal has the block");
                change.apply_to(block, &mut durable.content);
                durable.pending -= 1;
                if durable.pending == 0 {
                    self.durable.remove(&block);
                }
            }
        }
    }

    /// Makes everything durable that has completed.
    pub fn settle_all(&mut self) {
        self.forget();
    }

    /// Power fails with `in_flight` submitted and not completed: `loss` decides what is left.
    pub fn cut(&mut self, in_flight: &[Change], loss: CacheLoss, unit_bytes: usize) {
        for (block, durable) in std::mem::take(&mut self.durable) {
            self.current.set(block, durable.content);
        }
        let completed: Vec<Change> = self.journal.drain(..).map(|p| p.change).collect();
        for change in loss.survivors(&completed, in_flight, unit_bytes) {
            change.apply(&mut self.current);
        }
        self.forget();
    }

    fn forget(&mut self) {
        self.durable.clear();
        self.journal.clear();
        self.journal_bytes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn byte(cache: &Cache, at: u64) -> u8 {
        let mut buf = [0];
        cache.current().read(at, &mut buf);
        buf[0]
    }

    fn write(cache: &mut Cache, at: u64, value: u8) {
        cache.complete(Change::write(at, &[value; 512]));
    }

    #[test]
    fn a_flush_keeps_what_completed_before_it_and_nothing_else() {
        let mut cache = Cache::new(1 << 20);
        write(&mut cache, 0, 1);
        write(&mut cache, 4096, 1);
        let covered = cache.sequence();
        write(&mut cache, 0, 2);
        write(&mut cache, 8192, 2);
        cache.settle(covered);
        assert_eq!((byte(&cache, 0), byte(&cache, 8192)), (2, 2), "reads see the cache");
        cache.cut(&[], CacheLoss::LoseAll, 512);
        assert_eq!((byte(&cache, 0), byte(&cache, 4096), byte(&cache, 8192)), (1, 1, 0));
    }

    #[test]
    fn a_trim_in_the_cache_is_lost_like_a_write() {
        let mut cache = Cache::new(1 << 20);
        write(&mut cache, 0, 1);
        cache.settle_all();
        cache.complete(Change::Zero(0..1 << 40));
        assert_eq!(byte(&cache, 0), 0);
        let covered = cache.sequence();
        write(&mut cache, 0, 3);
        let mut flushed = cache.clone();
        cache.cut(&[], CacheLoss::LoseAll, 512);
        assert_eq!(byte(&cache, 0), 1);
        flushed.settle(covered);
        flushed.cut(&[], CacheLoss::LoseAll, 512);
        assert_eq!(byte(&flushed, 0), 0);
    }

    #[test]
    fn a_drive_without_a_cache_loses_only_what_is_in_flight() {
        let mut cache = Cache::new(0);
        write(&mut cache, 0, 1);
        cache.cut(&[Change::write(4096, &[2; 512])], CacheLoss::LoseAll, 512);
        assert_eq!((byte(&cache, 0), byte(&cache, 4096)), (1, 0));
    }

    #[test]
    fn a_full_cache_writes_its_oldest_changes_by_itself() {
        let mut cache = Cache::new(16 * 4096);
        for round in 0..100 {
            write(&mut cache, round * 4096, 1);
        }
        assert!(cache.volatile_changes() <= 16);
        cache.cut(&[], CacheLoss::LoseAll, 512);
        assert_eq!((byte(&cache, 0), byte(&cache, 99 * 4096)), (1, 0));
    }
}
