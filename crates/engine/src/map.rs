//! The map in memory: where each extent has its home.
//!
//! * 8 bytes per extent, in the encoding of the map pages plus two marks that never reach a drive.
//! * A change names the LSN of the record that carries it. A page is dirty from its first change
//!   until a checkpoint has written it; the log tail may not pass that LSN before.
//! * Never-touched parts of a large map cost address space, not memory.

use std::collections::BTreeMap;

use crate::address::{ExtentId, Home, Lsn};
use crate::format::map_page::{ENTRIES_PER_PAGE, decode_home, encode_home};

/// Some of the extent's blocks are in the log (or were: cleared when none is left).
const IN_LOG: u64 = 1 << 61;
/// The extent's home is being copied or rewritten in the background; foreground writes go to the
/// log. Any foreground change of the mapping takes the mark away, and the background drops its work.
const MOVING: u64 = 1 << 60;
const MARKS: u64 = IN_LOG | MOVING;

/// What the map says of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping(u64);

impl Mapping {
    pub fn home(self) -> Option<Home> {
        decode_home(self.0 & !MARKS).expect("the map holds valid entries only")
    }

    pub fn in_log(self) -> bool {
        self.0 & IN_LOG != 0
    }

    pub fn moving(self) -> bool {
        self.0 & MOVING != 0
    }

    /// A hole with nothing in the log: reads as zeros.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

pub(crate) struct Map {
    entries: Vec<u64>,
    /// First unwritten change per page.
    dirty: BTreeMap<u64, Lsn>,
    /// Which copy of each page is the newer, a bit each.
    newer_copy: Vec<u64>,
    mapped: u64,
}

impl Map {
    pub fn new(extents: u64) -> Map {
        let pages = extents.div_ceil(ENTRIES_PER_PAGE as u64);
        Map {
            entries: vec![0; extents as usize],
            dirty: BTreeMap::new(),
            newer_copy: vec![0; pages.div_ceil(64) as usize],
            mapped: 0,
        }
    }

    pub fn extents(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Extents with a home.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    pub fn get(&self, extent: ExtentId) -> Mapping {
        Mapping(self.entries[extent.0 as usize])
    }

    /// Gives an extent a new home, or none. The in-log mark stays, the moving mark goes.
    pub fn set(&mut self, extent: ExtentId, home: Option<Home>, lsn: Lsn) {
        self.load(extent, home);
        self.dirty.entry(extent.0 / ENTRIES_PER_PAGE as u64).or_insert(lsn);
    }

    /// As [`Map::set`], for changes that are on the drives already.
    pub fn load(&mut self, extent: ExtentId, home: Option<Home>) {
        let entry = &mut self.entries[extent.0 as usize];
        let had_home = *entry & !MARKS != 0;
        *entry = encode_home(home) | *entry & IN_LOG;
        self.mapped = self.mapped + u64::from(home.is_some()) - u64::from(had_home);
    }

    pub fn mark_in_log(&mut self, extent: ExtentId, in_log: bool) {
        let entry = &mut self.entries[extent.0 as usize];
        *entry = if in_log { *entry | IN_LOG } else { *entry & !IN_LOG };
    }

    pub fn mark_moving(&mut self, extent: ExtentId, moving: bool) {
        let entry = &mut self.entries[extent.0 as usize];
        *entry = if moving { *entry | MOVING } else { *entry & !MOVING };
    }

    /// The entries of a page as they go to a drive.
    pub fn page_entries(&self, page: u64, out: &mut Vec<u64>) {
        let first = page as usize * ENTRIES_PER_PAGE;
        let last = (first + ENTRIES_PER_PAGE).min(self.entries.len());
        out.clear();
        out.extend(self.entries[first..last].iter().map(|entry| entry & !MARKS));
    }

    /// Takes the dirty pages whose first change is oldest, at most `pages_max`, with those changes'
    /// LSNs. They are no longer dirty; the caller puts them back if it does not write them.
    pub fn take_dirty(&mut self, pages_max: usize) -> Vec<(u64, Lsn)> {
        if self.dirty.len() <= pages_max {
            return std::mem::take(&mut self.dirty).into_iter().collect();
        }
        let mut by_age: Vec<(u64, Lsn)> = self.dirty.iter().map(|(p, l)| (*p, *l)).collect();
        by_age.sort_by_key(|(page, lsn)| (*lsn, *page));
        by_age.truncate(pages_max);
        for (page, _) in &by_age {
            self.dirty.remove(page);
        }
        by_age.sort_unstable();
        by_age
    }

    /// Has the page written by the next checkpoint, though nothing of it changed.
    pub fn mark_dirty(&mut self, page: u64, lsn: Lsn) {
        self.dirty.entry(page).or_insert(lsn);
    }

    pub fn is_dirty(&self, page: u64) -> bool {
        self.dirty.contains_key(&page)
    }

    /// The oldest change no page on the drives has.
    pub fn oldest_dirty(&self) -> Option<Lsn> {
        self.dirty.values().min().copied()
    }

    pub fn dirty_pages(&self) -> usize {
        self.dirty.len()
    }

    /// The copy of the page that a checkpoint overwrites.
    pub fn older_copy(&self, page: u64) -> u64 {
        1 - (self.newer_copy[page as usize / 64] >> (page % 64) & 1)
    }

    /// Says which copy is the newer now.
    pub fn set_newer_copy(&mut self, page: u64, copy: u64) {
        let word = &mut self.newer_copy[page as usize / 64];
        *word = *word & !(1 << (page % 64)) | copy << (page % 64);
    }

    /// Bytes of memory the map takes when all of it is touched.
    pub fn memory_bytes(&self) -> u64 {
        (self.entries.len() * 8 + self.newer_copy.len() * 8 + self.dirty.len() * 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{SlotId, Tier};

    #[test]
    fn marks_never_reach_a_page_and_a_change_ends_a_move() {
        let mut map = Map::new(1000);
        let extent = ExtentId(505);
        let home = Some(Home { tier: Tier::Slow, slot: SlotId(3) });
        map.mark_in_log(extent, true);
        map.mark_moving(extent, true);
        map.set(extent, home, Lsn(9));
        assert!(map.get(extent).in_log() && !map.get(extent).moving());
        assert_eq!(map.get(extent).home(), home);
        let mut page = Vec::new();
        map.page_entries(1, &mut page);
        assert_eq!(page.len(), 1000 - 504);
        assert_eq!(page[1], encode_home(home));
        assert_eq!(map.mapped(), 1);
    }

    #[test]
    fn a_page_is_dirty_from_its_first_change() {
        let mut map = Map::new(2000);
        map.set(ExtentId(0), None, Lsn(5));
        map.set(ExtentId(1), None, Lsn(8));
        map.set(ExtentId(600), None, Lsn(3));
        assert_eq!(map.oldest_dirty(), Some(Lsn(3)));
        assert_eq!(map.take_dirty(1), [(1, Lsn(3))]);
        assert_eq!(map.oldest_dirty(), Some(Lsn(5)));
        map.set(ExtentId(601), None, Lsn(9));
        assert_eq!(map.take_dirty(9), [(0, Lsn(5)), (1, Lsn(9))]);
    }

    #[test]
    fn checkpoints_alternate_between_the_copies() {
        let mut map = Map::new(100_000);
        assert_eq!(map.older_copy(70), 1);
        map.set_newer_copy(70, 1);
        assert_eq!((map.older_copy(70), map.older_copy(69)), (0, 1));
        map.set_newer_copy(70, 0);
        assert_eq!(map.older_copy(70), 1);
    }
}
