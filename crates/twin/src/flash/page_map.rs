//! Where a NAND drive keeps which page, and what it costs to make room.
//!
//! * Pages are written into open blocks, never over old ones. When free blocks run out, the block
//!   with the fewest valid pages is cleaned: these are written again elsewhere, and it is erased.
//! * The map is a sample: one page of it stands for [`PageMap::scale`] real ones, and takes one of so
//!   many writes. Shares, and so write amplification, are those of the whole drive; times are told
//!   in real pages.
//! * What cleaning costs is charged to the writes that use what it freed.

use crate::random::Random;

/// Pages of the sample at most: beyond, shares no longer change visibly, and memory does.
const SAMPLE_PAGES_MAX: u64 = 1 << 17;

/// Pages of a block of the sample.
const BLOCK_PAGES: u32 = 64;

/// Cleaning begins when only so many blocks are free: one each for the two that are open.
const FREE_BLOCKS_MIN: usize = 2;

/// A page nobody has written.
const NOWHERE: u32 = u32::MAX;

/// What it costs to make room (real pages).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Cleaning {
    /// Valid ones that are read and written again elsewhere.
    pub(super) moved: f64,
    /// Stale ones in the blocks that are emptied.
    pub(super) stale: f64,
}

/// See the head of the file.
#[derive(Clone)]
pub(super) struct PageMap {
    /// Real pages for each page of the sample.
    scale: f64,
    /// By logical page: where it is.
    places: Vec<u32>,
    /// By place: the logical page there, valid while it is mapped there.
    owners: Vec<u32>,
    /// By block: how many of its pages are valid.
    valid: Vec<u32>,
    /// Closed blocks by how many of their pages are valid.
    closed: Vec<Vec<u32>>,
    /// By block: where it stands in its list of `closed`.
    ranks: Vec<u32>,
    free: Vec<u32>,
    /// The blocks that the host's writes and the cleaner's go to, and the next page there.
    host: (u32, u32),
    cleaner: (u32, u32),
    /// Blocks that are kept free when there is time.
    free_wanted: usize,
    /// Real pages written since the last one of the sample.
    credit: f64,
    /// For each page that the host writes, at present.
    per_page: Cleaning,
}

impl PageMap {
    /// A fresh drive of `pages` with `spare` of that in addition, of which it keeps `idle_free`
    /// (a share of the spare) erased when there is time.
    pub(super) fn new(pages: u64, spare: f64, idle_free: f64) -> PageMap {
        let sample = pages.clamp(u64::from(BLOCK_PAGES) * 16, SAMPLE_PAGES_MAX);
        let spare_blocks = (sample as f64 * spare / f64::from(BLOCK_PAGES)).round() as usize;
        let data_blocks = sample.div_ceil(u64::from(BLOCK_PAGES)) as usize;
        let blocks = data_blocks + spare_blocks.max(4) + FREE_BLOCKS_MIN;
        let mut map = PageMap {
            scale: pages as f64 / sample as f64,
            places: vec![NOWHERE; sample as usize],
            owners: vec![NOWHERE; blocks * BLOCK_PAGES as usize],
            valid: vec![0; blocks],
            closed: vec![Vec::new(); BLOCK_PAGES as usize + 1],
            ranks: vec![0; blocks],
            free: (0..blocks as u32).rev().collect(),
            host: (0, 0),
            cleaner: (0, 0),
            free_wanted: FREE_BLOCKS_MIN + (spare_blocks as f64 * idle_free) as usize,
            credit: 0.0,
            per_page: Cleaning::default(),
        };
        map.host = (map.free.pop().expect("a block"), 0);
        map.cleaner = (map.free.pop().expect("a block"), 0);
        map
    }

    /// Writes the whole drive, first in order, then `times` over in random order.
    pub(super) fn wear_in(&mut self, times: f64, random: &mut Random) {
        let pages = self.places.len() as u64;
        (0..pages as u32).for_each(|page| self.put(page));
        for _ in 0..(pages as f64 * times) as u64 {
            self.put(random.below(pages) as u32);
        }
    }

    /// Whether the real page has ever been written.
    pub(super) fn holds(&self, page: u64) -> bool {
        self.places[self.sample_of(page)] != NOWHERE
    }

    /// The host writes `count` real pages from `page` on. Says what cleaning has to do on that account.
    pub(super) fn write(&mut self, page: u64, count: u64) -> Cleaning {
        let Cleaning { moved, stale } = self.per_page;
        let cleaning = Cleaning { moved: moved * count as f64, stale: stale * count as f64 };
        let before = self.credit;
        self.credit += count as f64;
        let mut due = self.scale - before;
        while self.credit >= self.scale {
            let sample = self.sample_of(page + (due as u64).saturating_sub(1));
            self.put(sample as u32);
            self.credit -= self.scale;
            due += self.scale;
        }
        cleaning
    }

    /// The host no longer needs these real pages.
    pub(super) fn trim(&mut self, page: u64, count: u64) {
        // Only pages of the sample that are covered as a whole.
        let first = (page as f64 / self.scale).ceil() as usize;
        let end = ((page + count) as f64 / self.scale) as usize;
        for sample in first..end.min(self.places.len()) {
            self.drop_page(sample);
        }
    }

    /// There is time to move so many real pages, of which a stale one costs `stale` of a moved one: cleans
    /// ahead. Gives back what it did not need.
    pub(super) fn clean_ahead(&mut self, mut pages: f64, stale: f64) -> f64 {
        while self.free.len() < self.free_wanted {
            let Some((_, valid)) = self.victim().filter(|(_, valid)| *valid < BLOCK_PAGES) else {
                break;
            };
            let cost = (f64::from(valid) + f64::from(BLOCK_PAGES - valid) * stale) * self.scale;
            if cost > pages {
                break;
            }
            pages -= cost;
            self.clean();
            self.per_page = Cleaning::default();
        }
        pages
    }

    fn sample_of(&self, page: u64) -> usize {
        ((page as f64 / self.scale) as usize).min(self.places.len() - 1)
    }

    fn drop_page(&mut self, sample: usize) {
        let place = std::mem::replace(&mut self.places[sample], NOWHERE);
        if place == NOWHERE {
            return;
        }
        let block = place / BLOCK_PAGES;
        let is_open = block == self.host.0 || block == self.cleaner.0;
        if !is_open {
            self.unlist(block);
        }
        self.valid[block as usize] -= 1;
        if !is_open {
            self.list(block);
        }
    }

    /// One page of the sample is written by the host.
    fn put(&mut self, sample: u32) {
        self.drop_page(sample as usize);
        if self.host.1 == BLOCK_PAGES {
            self.list(self.host.0);
            // Not the host's while cleaning looks for victims.
            self.host.0 = NOWHERE;
            if self.free.len() > FREE_BLOCKS_MIN {
                self.per_page = Cleaning::default();
            }
            while self.free.len() <= FREE_BLOCKS_MIN {
                self.clean();
            }
            self.host = (self.free.pop().expect("cleaning has freed one"), 0);
        }
        let (block, page) = self.host;
        self.host.1 += 1;
        self.settle(sample, block, page);
    }

    fn settle(&mut self, sample: u32, block: u32, page: u32) {
        let place = block * BLOCK_PAGES + page;
        self.places[sample as usize] = place;
        self.owners[place as usize] = sample;
        self.valid[block as usize] += 1;
    }

    /// The closed block with the fewest valid pages, and how many.
    fn victim(&self) -> Option<(u32, u32)> {
        let valid = self.closed.iter().position(|list| !list.is_empty())?;
        Some((self.closed[valid][0], valid as u32))
    }

    /// Moves what is valid in the best victim and erases it.
    fn clean(&mut self) {
        let (victim, valid) = self.victim().expect("spare blocks leave something to clean");
        assert!(valid < BLOCK_PAGES, "cleaning a block without a stale page frees nothing");
        self.unlist(victim);
        for page in 0..BLOCK_PAGES {
            let place = victim * BLOCK_PAGES + page;
            let owner = self.owners[place as usize];
            if owner == NOWHERE || self.places[owner as usize] != place {
                continue;
            }
            if self.cleaner.1 == BLOCK_PAGES {
                self.list(self.cleaner.0);
                self.cleaner = (self.free.pop().expect("one is kept for the cleaner"), 0);
            }
            let (block, next) = self.cleaner;
            self.cleaner.1 += 1;
            self.valid[victim as usize] -= 1;
            self.settle(owner, block, next);
        }
        let first = (victim * BLOCK_PAGES) as usize;
        self.owners[first..first + BLOCK_PAGES as usize].fill(NOWHERE);
        self.free.push(victim);
        // Each stale page becomes one that the host can write.
        self.per_page =
            Cleaning { moved: f64::from(valid) / f64::from(BLOCK_PAGES - valid), stale: 1.0 };
    }

    fn list(&mut self, block: u32) {
        let list = &mut self.closed[self.valid[block as usize] as usize];
        self.ranks[block as usize] = list.len() as u32;
        list.push(block);
    }

    fn unlist(&mut self, block: u32) {
        let list = &mut self.closed[self.valid[block as usize] as usize];
        let rank = self.ranks[block as usize];
        list.swap_remove(rank as usize);
        if let Some(moved) = list.get(rank as usize) {
            self.ranks[*moved as usize] = rank;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages written for each page that the host writes at random, once that is steady.
    fn amplification(spare: f64) -> f64 {
        let mut map = PageMap::new(1 << 22, spare, 0.0);
        let mut random = Random::new(1);
        map.wear_in(3.0, &mut random);
        let (mut written, mut moved) = (0.0, 0.0);
        while written < f64::from(1 << 22) {
            moved += map.write(random.below((1 << 22) - 16), 16).moved;
            written += 16.0;
        }
        1.0 + moved / written
    }

    #[test]
    fn more_spare_space_lowers_write_amplification() {
        let found = [0.05, 0.0737, 0.15, 0.28, 0.60].map(amplification);
        assert!(found.is_sorted_by(|one, other| one > other), "{found:?}");
        // Greedy cleaning under uniform writes, in theory (Desnoyers 2012): near (1 + s) / (2 s).
        for (found, spare) in found.iter().zip([0.05f64, 0.0737, 0.15, 0.28, 0.60]) {
            let theory = (1.0 + spare) / (2.0 * spare);
            assert!((found / theory - 1.0).abs() < 0.2, "{found} against {theory}");
        }
    }

    #[test]
    fn writes_in_order_need_no_moves() {
        let mut map = PageMap::new(1 << 22, 0.07, 0.0);
        map.wear_in(0.0, &mut Random::new(1));
        let moved: f64 = (0..2u64 << 14).map(|n| map.write(n % (1 << 14) * 256, 256).moved).sum();
        assert!(moved / f64::from(2 << 22) < 0.02, "{moved}");
    }

    #[test]
    fn a_fresh_drive_and_a_rested_one_write_without_moves_for_a_while() {
        let mut random = Random::new(1);
        let mut map = PageMap::new(1 << 20, 0.1, 0.8);
        assert!(!map.holds(5));
        map.wear_in(2.0, &mut random);
        assert!(map.holds(5));
        let mut burst = |map: &mut PageMap| {
            (0..50_000).map(|_| map.write(random.below(1 << 20), 1).moved).sum::<f64>()
        };
        assert!(burst(&mut map) > 50_000.0);
        let left = map.clean_ahead(1e12, 0.0);
        assert!(left < 1e12);
        assert!(burst(&mut map) < 1000.0);
    }

    #[test]
    fn trimmed_pages_are_spare() {
        let mut random = Random::new(1);
        let mut map = PageMap::new(1 << 20, 0.07, 0.0);
        map.wear_in(2.0, &mut random);
        map.trim(1 << 19, 1 << 19);
        assert!(!map.holds((1 << 20) - 1) && map.holds(0));
        let mut moved = 0.0;
        for _ in 0..1 << 20 {
            moved += map.write(random.below(1 << 19), 1).moved;
        }
        assert!(moved / f64::from(1 << 20) < 0.6, "{moved}");
    }
}
