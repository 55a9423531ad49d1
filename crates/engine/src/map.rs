//! The map in memory: where each extent has its home.
//!
//! * 8 bytes per extent, in the encoding of the map pages plus two marks that never reach a drive.
//! * A change names the LSN of the record that carries it. A page is dirty from its first change
//!   until a checkpoint has written it; the log tail may not pass that LSN before.
//! * Never-touched parts of a large map cost address space, not memory.

use std::collections::{BTreeSet, VecDeque};

use crate::address::{ExtentId, Home, Lsn, Tier};
use crate::format::map_page::{CLEAN, ENTRIES_PER_PAGE, decode_home, encode_entry};

/// Some of the extent's blocks are in the log (or were: cleared when none is left).
const IN_LOG: u64 = 1 << 59;
/// The extent's home is being copied or rewritten in the background; foreground writes go to the
/// log. Any foreground change of the mapping takes the mark away, and the background drops its work.
const MOVING: u64 = 1 << 60;
const MARKS: u64 = IN_LOG | MOVING;
const _: () = assert!(MARKS & CLEAN == 0);

/// What the map says of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping(u64);

impl Mapping {
    pub fn home(self) -> Option<Home> {
        decode_home(self.0 & !MARKS & !CLEAN).expect("the map holds valid entries only")
    }

    /// The extent lives on the fast drive, and its own slot of the slow drive has the same.
    pub fn is_clean(self) -> bool {
        self.0 & CLEAN != 0
    }

    /// What the slow drive has of the extent, if anything, is not current.
    pub fn is_on_fast_alone(self) -> bool {
        !self.is_clean() && self.home().is_some_and(|home| home.tier == Tier::Fast)
    }

    /// What lives on the slow drive: the extent, or its clean copy's original.
    pub fn is_current_on_slow(self) -> bool {
        self.is_clean() || self.home().is_some_and(|home| home.tier == Tier::Slow)
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
    /// Dirty pages with their first unwritten change, oldest first.
    dirty: VecDeque<(Lsn, u64)>,
    /// Which pages are in `dirty`, a bit each.
    dirty_bits: Vec<u64>,
    /// Pages on their way to the drives.
    writing: BTreeSet<u64>,
    /// Which copy of each page is the newer, a bit each.
    newer_copy: Vec<u64>,
    mapped: u64,
    on_fast_alone: u64,
}

impl Map {
    pub fn new(extents: u64) -> Map {
        let pages = extents.div_ceil(ENTRIES_PER_PAGE as u64);
        Map {
            entries: vec![0; extents as usize],
            dirty: VecDeque::new(),
            dirty_bits: vec![0; pages.div_ceil(64) as usize],
            writing: BTreeSet::new(),
            newer_copy: vec![0; pages.div_ceil(64) as usize],
            mapped: 0,
            on_fast_alone: 0,
        }
    }

    pub fn extents(&self) -> u64 {
        self.entries.len() as u64
    }

    /// Extents with a home.
    pub fn mapped(&self) -> u64 {
        self.mapped
    }

    /// Extents of which the slow drive has nothing that is current: in class cache, dirty ones.
    pub fn on_fast_alone(&self) -> u64 {
        self.on_fast_alone
    }

    pub fn get(&self, extent: ExtentId) -> Mapping {
        Mapping(self.entries[extent.0 as usize])
    }

    /// Gives an extent a new home, or none. The in-log mark stays, the moving mark goes.
    pub fn set(&mut self, extent: ExtentId, home: Option<Home>, clean: bool, lsn: Lsn) {
        self.load(extent, home, clean);
        self.mark_dirty(extent.0 / ENTRIES_PER_PAGE as u64, lsn);
    }

    /// As [`Map::set`], for changes that are on the drives already.
    pub fn load(&mut self, extent: ExtentId, home: Option<Home>, clean: bool) {
        let was_on_fast_alone = self.get(extent).is_on_fast_alone();
        let entry = &mut self.entries[extent.0 as usize];
        let had_home = *entry & !MARKS != 0;
        *entry = encode_entry(home, clean) | *entry & IN_LOG;
        self.mapped = self.mapped + u64::from(home.is_some()) - u64::from(had_home);
        let is_on_fast_alone = self.get(extent).is_on_fast_alone();
        self.on_fast_alone =
            self.on_fast_alone + u64::from(is_on_fast_alone) - u64::from(was_on_fast_alone);
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

    /// Takes the dirty pages whose first change is oldest, at most `pages_max`, in order of their
    /// numbers. They are no longer dirty, but on their way until
    /// [`Map::set_newer_copy`] is told.
    pub fn take_dirty(&mut self, pages_max: usize) -> Vec<u64> {
        let count = pages_max.min(self.dirty.len());
        let mut pages: Vec<u64> = self.dirty.drain(..count).map(|(_, page)| page).collect();
        pages.sort_unstable();
        for page in &pages {
            self.dirty_bits[*page as usize / 64] &= !(1 << (page % 64));
        }
        self.writing.extend(&pages);
        pages
    }

    /// Has the page written by the next checkpoint, whether or not something of it changed.
    pub fn mark_dirty(&mut self, page: u64, lsn: Lsn) {
        if self.is_dirty(page) {
            return;
        }
        self.dirty_bits[page as usize / 64] |= 1 << (page % 64);
        // Changes come in the order of their LSNs, so this is nearly always the end.
        let in_order = self.dirty.back().is_none_or(|(last, _)| *last <= lsn);
        let place = if in_order {
            self.dirty.len()
        } else {
            self.dirty.partition_point(|(known, _)| *known <= lsn)
        };
        self.dirty.insert(place, (lsn, page));
    }

    pub fn is_dirty(&self, page: u64) -> bool {
        self.dirty_bits[page as usize / 64] >> (page % 64) & 1 == 1
    }

    /// Whether both drives have the extent's page as it is here, durably.
    pub fn is_settled(&self, extent: ExtentId) -> bool {
        let page = extent.0 / ENTRIES_PER_PAGE as u64;
        !self.is_dirty(page) && !self.writing.contains(&page)
    }

    /// The oldest change no page on the drives has.
    pub fn oldest_dirty(&self) -> Option<Lsn> {
        self.dirty.front().map(|(lsn, _)| *lsn)
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
        self.writing.remove(&page);
        let word = &mut self.newer_copy[page as usize / 64];
        *word = *word & !(1 << (page % 64)) | copy << (page % 64);
    }

    /// Bytes of memory the map takes when all of it is touched.
    pub fn memory_bytes(&self) -> u64 {
        (self.entries.len() * 8 + self.newer_copy.len() * 16 + self.dirty.len() * 16) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::SlotId;

    #[test]
    fn marks_never_reach_a_page_and_a_change_ends_a_move() {
        let mut map = Map::new(1000);
        let extent = ExtentId(505);
        let home = Some(Home { tier: Tier::Slow, slot: SlotId(3) });
        map.mark_in_log(extent, true);
        map.mark_moving(extent, true);
        map.set(extent, home, false, Lsn(9));
        assert!(map.get(extent).in_log() && !map.get(extent).moving());
        assert_eq!(map.get(extent).home(), home);
        let mut page = Vec::new();
        map.page_entries(1, &mut page);
        assert_eq!(page.len(), 1000 - 504);
        assert_eq!(page[1], encode_entry(home, false));
        assert_eq!(map.mapped(), 1);
    }

    #[test]
    fn a_page_is_dirty_from_its_first_change() {
        let mut map = Map::new(2000);
        map.set(ExtentId(0), None, false, Lsn(5));
        map.set(ExtentId(1), None, false, Lsn(8));
        map.set(ExtentId(600), None, false, Lsn(3));
        assert_eq!(map.oldest_dirty(), Some(Lsn(3)));
        assert_eq!(map.take_dirty(1), [1]);
        assert_eq!(map.oldest_dirty(), Some(Lsn(5)));
        map.set(ExtentId(601), None, false, Lsn(9));
        assert_eq!(map.take_dirty(9), [0, 1]);
        assert_eq!((map.oldest_dirty(), map.is_dirty(1)), (None, false));
    }

    #[test]
    fn a_checkpoint_step_costs_the_same_however_many_pages_are_dirty() {
        let pages = 250_000;
        let mut map = Map::new(pages * ENTRIES_PER_PAGE as u64);
        // Scattered over the volume, in order of LSNs, as random writes make them.
        for n in 0..pages {
            map.mark_dirty(n * 611_953 % pages, Lsn(n + 1));
        }
        let begun = std::time::Instant::now();
        for step in 0..900 {
            assert_eq!(map.oldest_dirty(), Some(Lsn(step * 256 + 1)));
            assert_eq!(map.take_dirty(256).len(), 256);
        }
        // Nine hundred steps take some milliseconds; sorting all pages in each took a minute.
        assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
        assert_eq!(map.dirty_pages(), 250_000 - 900 * 256);
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
