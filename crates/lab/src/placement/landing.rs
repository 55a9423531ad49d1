//! The landing log: pages written whose home is on the slow drive, oldest extent first.

use std::collections::{BTreeMap, HashMap};

use super::ground::{Extent, PAGE_BYTES};

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Landing {
    capacity_pages: usize,
    used_pages: usize,
    /// What each extent has in the log.
    extents: HashMap<Extent, Waiting>,
    /// Extents by the age of their oldest page.
    by_age: BTreeMap<u64, Extent>,
    next_age: u64,
}

#[derive(Debug)]
struct Waiting {
    age: u64,
    /// One bit a page.
    pages: Pages,
}

/// A set of pages of one extent of at most 4 MiB.
#[derive(Debug, Default, Clone)]
pub(super) struct Pages([u64; 16]);

impl Pages {
    pub fn insert(&mut self, page: u16) -> bool {
        let (word, bit) = (usize::from(page / 64), 1 << (page % 64));
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    pub fn has(&self, page: u16) -> bool {
        self.0[usize::from(page / 64)] & 1 << (page % 64) != 0
    }

    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Runs of pages: first, and the one behind the last.
    pub fn runs(&self, pages: u16) -> Vec<(u16, u16)> {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for page in (0..pages).filter(|page| self.has(*page)) {
            match runs.last_mut() {
                Some(run) if run.1 == page => run.1 = page + 1,
                _ => runs.push((page, page + 1)),
            }
        }
        runs
    }
}

impl Landing {
    pub fn new(capacity_bytes: u64) -> Landing {
        Landing {
            capacity_pages: (capacity_bytes / PAGE_BYTES) as usize,
            used_pages: 0,
            extents: HashMap::new(),
            by_age: BTreeMap::new(),
            next_age: 0,
        }
    }

    /// Whether there is one at all.
    pub fn is_there(&self) -> bool {
        self.capacity_pages > 0
    }

    pub fn is_half_full(&self) -> bool {
        self.used_pages * 2 >= self.capacity_pages
    }

    pub fn is_over_full(&self) -> bool {
        self.used_pages > self.capacity_pages
    }

    /// Pages written; those there already are replaced.
    pub fn write(&mut self, extent: Extent, pages: (u16, u16)) {
        let age = self.next_age;
        let waiting = self.extents.entry(extent).or_insert_with(|| {
            self.by_age.insert(age, extent);
            Waiting { age, pages: Pages::default() }
        });
        self.next_age += 1;
        for page in pages.0..pages.1 {
            self.used_pages += usize::from(waiting.pages.insert(page));
        }
    }

    /// How many of these pages are here.
    pub fn holds(&self, extent: Extent, pages: (u16, u16)) -> u16 {
        self.extents.get(&extent).map_or(0, |waiting| {
            (pages.0..pages.1).filter(|page| waiting.pages.has(*page)).count() as u16
        })
    }

    /// Runs of pages of an extent that are here.
    pub fn runs(&self, extent: Extent, pages: u16) -> Vec<(u16, u16)> {
        self.extents.get(&extent).map_or_else(Vec::new, |waiting| waiting.pages.runs(pages))
    }

    /// Takes all of an extent out.
    pub fn take(&mut self, extent: Extent) -> Option<Pages> {
        let waiting = self.extents.remove(&extent)?;
        self.by_age.remove(&waiting.age);
        self.used_pages -= waiting.pages.count();
        Some(waiting.pages)
    }

    /// The extents that have waited longest and together free at least so many pages.
    pub fn oldest(&self, pages: usize) -> Vec<Extent> {
        let mut freed = 0;
        let mut chosen = Vec::new();
        for extent in self.by_age.values() {
            if freed >= pages {
                break;
            }
            freed += self.extents[extent].pages.count();
            chosen.push(*extent);
        }
        chosen
    }

    pub fn capacity_pages(&self) -> usize {
        self.capacity_pages
    }

    /// Everything that is left, for the end of a trace.
    pub fn all(&self) -> Vec<Extent> {
        self.by_age.values().copied().collect()
    }
}
