//! The map in memory: where each extent has its home.
//!
//! * 8 bytes per extent, in the encoding of the map pages plus two marks that never reach a drive.
//! * A change names the LSN of the record that carries it. A page is dirty from its first change
//!   until a checkpoint has written it; the log tail may not pass that LSN before.
//! * Never-touched parts of a large map cost address space, not memory.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use crate::address::{BLOCK_BYTES, ExtentId, Home, Lsn, Tier};
use crate::format::map_page::{CLEAN, ENTRIES_PER_PAGE, EntryForm, PART, Part, Residence};
use crate::page_counts::PageCounts;

/// Some of the extent's blocks are in the log (or were: cleared when none is left).
const IN_LOG: u64 = 1 << 59;
/// The extent's home is being copied or rewritten in the background; foreground writes go to the
/// log. Any foreground change of the mapping takes the mark away, and the background drops its work.
const MOVING: u64 = 1 << 60;
const MARKS: u64 = IN_LOG | MOVING;
const _: () = assert!(MARKS & CLEAN == 0);

/// What the map says of an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mapping {
    raw: u64,
    extent: ExtentId,
    form: EntryForm,
}

impl Mapping {
    /// Where the extent is.
    pub fn residence(self) -> Residence {
        let raw = self.raw & !MARKS;
        self.form.decode(raw, self.extent).expect("the map holds valid entries only")
    }

    pub fn home(self) -> Option<Home> {
        self.residence().home
    }

    /// The slot of the slow drive that holds the same as the extent's home, which is a copy of it.
    pub fn original(self) -> Option<Home> {
        let Residence { original, part, .. } = self.residence();
        original.filter(|_| part.is_none())
    }

    /// The blocks that the home has, and the slot of the slow drive that has the others, of an extent
    /// that is in both.
    pub fn part(self) -> Option<(Part, Home)> {
        if self.raw & PART != PART {
            return None;
        }
        let Residence { original, part, .. } = self.residence();
        part.zip(original)
    }

    /// The extent lives on the fast drive, or some of it.
    pub fn is_on_fast(self) -> bool {
        self.home().is_some_and(|home| home.tier == Tier::Fast)
    }

    /// The extent lives on the fast drive, and a slot of the slow drive has the same.
    pub fn is_clean(self) -> bool {
        self.raw & PART == CLEAN
    }

    /// What the slow drive has of the extent, if anything, is not current, or not all of it.
    pub fn is_on_fast_alone(self) -> bool {
        !self.is_clean() && self.is_on_fast()
    }

    /// What lives on the slow drive: the extent, or its clean copy's original.
    pub fn is_current_on_slow(self) -> bool {
        self.is_clean() || self.home().is_some_and(|home| home.tier == Tier::Slow)
    }

    pub fn in_log(self) -> bool {
        self.raw & IN_LOG != 0
    }

    pub fn moving(self) -> bool {
        self.raw & MOVING != 0
    }

    /// A hole with nothing in the log: reads as zeros.
    pub fn is_empty(self) -> bool {
        self.raw == 0
    }
}

pub(crate) struct Map {
    entries: Vec<u64>,
    form: EntryForm,
    /// Dirty pages with their first unwritten change, oldest first.
    dirty: VecDeque<(Lsn, u64)>,
    /// Which pages are in `dirty`, a bit each.
    dirty_bits: Vec<u64>,
    /// Pages on their way to the drives.
    writing: BTreeSet<u64>,
    /// Which copy of each page is the newer, a bit each.
    newer_copy: Vec<u64>,
    /// Pages of which some entry was ever changed, a bit each. The others are holes, all over.
    used: Vec<u64>,
    mapped: u64,
    on_fast_alone: u64,
    on_fast_of_page: PageCounts,
    on_fast_alone_of_page: PageCounts,
    in_part: u64,
    part_blocks: u64,
    clean: u64,
}

impl Map {
    pub fn new(extents: u64, form: EntryForm) -> Map {
        let pages = extents.div_ceil(ENTRIES_PER_PAGE as u64);
        Map {
            entries: vec![0; extents as usize],
            form,
            dirty: VecDeque::new(),
            dirty_bits: vec![0; pages.div_ceil(64) as usize],
            writing: BTreeSet::new(),
            newer_copy: vec![0; pages.div_ceil(64) as usize],
            used: vec![0; pages.div_ceil(64) as usize],
            mapped: 0,
            on_fast_alone: 0,
            on_fast_of_page: PageCounts::new(pages),
            on_fast_alone_of_page: PageCounts::new(pages),
            in_part: 0,
            part_blocks: 0,
            clean: 0,
        }
    }

    /// What its entries may say.
    pub fn form(&self) -> EntryForm {
        self.form
    }

    /// From now on entries may name two places. Those that it has mean what they meant.
    pub fn allow_two_places(&mut self) {
        assert!(!self.form.is_own_slot(), "in class cache originals have slots of their own");
        self.form = EntryForm::TwoPlaces;
    }

    /// From now on entries may be of parts. Those that it has mean what they meant.
    pub fn allow_parts(&mut self) {
        assert!(self.form.is_own_slot(), "in class span nothing is in parts");
        self.form = EntryForm::OwnSlotInParts;
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

    /// Those of [`Map::on_fast_alone`] that are there in part.
    pub fn in_part(&self) -> u64 {
        self.in_part
    }

    /// What of those is there.
    pub fn part_bytes(&self) -> u64 {
        self.part_blocks * BLOCK_BYTES
    }

    /// Of the data of [`Map::on_fast_alone`], what is on the fast drive.
    pub fn dirty_bytes(&self, extent_bytes: u64) -> u64 {
        (self.on_fast_alone - self.in_part) * extent_bytes + self.part_bytes()
    }

    /// Extents of the fast drive of which the slow drive has the same.
    pub fn clean(&self) -> u64 {
        self.clean
    }

    pub fn get(&self, extent: ExtentId) -> Mapping {
        Mapping { raw: self.entries[extent.0 as usize], extent, form: self.form }
    }

    /// Gives an extent a new home, or none. The in-log mark stays, the moving mark goes.
    pub fn set(&mut self, extent: ExtentId, residence: Residence, lsn: Lsn) {
        self.load(extent, residence);
        self.mark_dirty(extent.0 / ENTRIES_PER_PAGE as u64, lsn);
    }

    /// As [`Map::set`], for changes that are on the drives already.
    pub fn load(&mut self, extent: ExtentId, residence: Residence) {
        let before = self.get(extent);
        let entry = self.form.encode(residence);
        *self.entry(extent) = entry | before.raw & IN_LOG;
        let after = self.get(extent);
        let is_mapped = |mapping: Mapping| mapping.raw & !MARKS != 0;
        let count = |sum: &mut u64, is: &dyn Fn(Mapping) -> bool| {
            *sum = *sum + u64::from(is(after)) - u64::from(is(before));
        };
        count(&mut self.mapped, &is_mapped);
        count(&mut self.on_fast_alone, &Mapping::is_on_fast_alone);
        let (was, is) = (before.is_on_fast(), after.is_on_fast());
        self.on_fast_of_page.change(extent, was, is);
        let (was, is) = (before.is_on_fast_alone(), after.is_on_fast_alone());
        self.on_fast_alone_of_page.change(extent, was, is);
        count(&mut self.clean, &Mapping::is_clean);
        count(&mut self.in_part, &|mapping| mapping.part().is_some());
        let blocks = |mapping: Mapping| mapping.part().map_or(0, |(part, _)| part.count());
        self.part_blocks = self.part_blocks + blocks(after) - blocks(before);
    }

    /// The first extent from `from` on that is on the fast drive.
    pub fn next_on_fast(&self, from: u64) -> Option<ExtentId> {
        self.on_fast_of_page.next(from, self.extents(), |extent| self.get(extent).is_on_fast())
    }

    /// The first one from `from` on of which the slow drive has nothing that is current.
    pub fn next_on_fast_alone(&self, from: u64) -> Option<ExtentId> {
        let is = |extent| self.get(extent).is_on_fast_alone();
        self.on_fast_alone_of_page.next(from, self.extents(), is)
    }

    fn entry(&mut self, extent: ExtentId) -> &mut u64 {
        let page = extent.0 / ENTRIES_PER_PAGE as u64;
        self.used[page as usize / 64] |= 1 << (page % 64);
        &mut self.entries[extent.0 as usize]
    }

    /// Of the extents of a range, those of pages in use, and of each other page one: it is a hole, on a
    /// page like the others', and speaks for all of them. So what concerns every extent of a large volume costs
    /// no more than what it holds.
    pub fn worth_a_look(&self, range: Range<u64>) -> impl Iterator<Item = ExtentId> + Clone {
        let mut next = range.start;
        std::iter::from_fn(move || {
            let extent = (next < range.end).then_some(ExtentId(next))?;
            let page = next / ENTRIES_PER_PAGE as u64;
            let used = self.used[page as usize / 64] >> (page % 64) & 1 != 0;
            next = if used { next + 1 } else { (page + 1) * ENTRIES_PER_PAGE as u64 };
            Some(extent)
        })
    }

    pub fn mark_in_log(&mut self, extent: ExtentId, in_log: bool) {
        if self.get(extent).in_log() == in_log {
            return;
        }
        let entry = self.entry(extent);
        *entry = if in_log { *entry | IN_LOG } else { *entry & !IN_LOG };
    }

    pub fn mark_moving(&mut self, extent: ExtentId, moving: bool) {
        if self.get(extent).moving() == moving {
            return;
        }
        let entry = self.entry(extent);
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
        let marks = self.newer_copy.len() * 24 + self.dirty.len() * 16;
        let counts =
            self.on_fast_of_page.memory_bytes() + self.on_fast_alone_of_page.memory_bytes();
        (self.entries.len() * 8 + marks) as u64 + counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::SlotId;

    #[test]
    fn marks_never_reach_a_page_and_a_change_ends_a_move() {
        let mut map = Map::new(1000, EntryForm::OnePlace);
        let extent = ExtentId(505);
        let home = Some(Home { tier: Tier::Slow, slot: SlotId(3) });
        map.mark_in_log(extent, true);
        map.mark_moving(extent, true);
        map.set(extent, Residence::at(home), Lsn(9));
        assert!(map.get(extent).in_log() && !map.get(extent).moving());
        assert_eq!(map.get(extent).home(), home);
        let mut page = Vec::new();
        map.page_entries(1, &mut page);
        assert_eq!(page.len(), 1000 - 504);
        assert_eq!(page[1], EntryForm::OnePlace.encode(Residence::at(home)));
        assert_eq!(map.mapped(), 1);
    }

    #[test]
    fn of_pages_that_were_never_used_one_extent_speaks_for_all() {
        let per_page = ENTRIES_PER_PAGE as u64;
        let mut map = Map::new(5 * per_page + 3, EntryForm::OnePlace);
        let looked_at =
            |map: &Map, range| map.worth_a_look(range).map(|extent| extent.0).collect::<Vec<_>>();
        let firsts: Vec<u64> = (0..6).map(|page| page * per_page).collect();
        assert_eq!(looked_at(&map, 0..map.extents()), firsts);
        assert_eq!(looked_at(&map, 7..9), [7]);
        map.mark_in_log(ExtentId(per_page + 9), true);
        let home = Some(Home { tier: Tier::Slow, slot: SlotId(3) });
        map.load(ExtentId(3 * per_page), Residence::at(home));
        let all = looked_at(&map, 0..map.extents());
        assert_eq!(all.len() as u64, 4 + 2 * per_page);
        for extent in (0..map.extents()).map(ExtentId) {
            assert!(map.get(extent).is_empty() || all.contains(&extent.0));
        }
    }

    #[test]
    fn a_clean_copy_is_counted_as_long_as_its_original_is_named() {
        let mut map = Map::new(1000, EntryForm::OnePlace);
        let copy = Home { tier: Tier::Fast, slot: SlotId(3) };
        let original = Home { tier: Tier::Slow, slot: SlotId(70) };
        map.set(ExtentId(5), Residence::at(original), Lsn(1));
        map.allow_two_places();
        map.set(ExtentId(5), Residence::copy(copy, original), Lsn(2));
        assert_eq!(
            (map.get(ExtentId(5)).home(), map.get(ExtentId(5)).original()),
            (Some(copy), Some(original))
        );
        assert_eq!((map.mapped(), map.clean(), map.on_fast_alone()), (1, 1, 0));
        map.mark_in_log(ExtentId(5), true);
        assert_eq!(map.get(ExtentId(5)).residence(), Residence::copy(copy, original));
        map.set(ExtentId(5), Residence::at(copy), Lsn(3));
        assert_eq!((map.mapped(), map.clean(), map.on_fast_alone()), (1, 0, 1));
        map.set(ExtentId(5), Residence::default(), Lsn(4));
        assert_eq!((map.mapped(), map.clean(), map.on_fast_alone()), (0, 0, 0));
    }

    #[test]
    fn a_part_is_dirty_and_counted_by_its_blocks() {
        let mut map = Map::new(1000, EntryForm::OwnSlotInParts);
        let copy = Home { tier: Tier::Fast, slot: SlotId(3) };
        let own = Home { tier: Tier::Slow, slot: SlotId(5) };
        let part = Part::of([1, 4], 32).unwrap();
        map.set(ExtentId(5), Residence::at(own), Lsn(1));
        map.set(ExtentId(5), Residence::in_part(copy, own, part), Lsn(2));
        let mapping = map.get(ExtentId(5));
        assert_eq!((mapping.home(), mapping.original()), (Some(copy), None));
        assert_eq!(mapping.part(), Some((part, own)));
        assert!(mapping.is_on_fast_alone() && !mapping.is_clean());
        assert_eq!((map.on_fast_alone(), map.in_part(), map.clean()), (1, 1, 0));
        assert_eq!(map.dirty_bytes(32 * BLOCK_BYTES), 2 * BLOCK_BYTES);
        map.set(ExtentId(5), Residence::copy(copy, own), Lsn(3));
        assert_eq!((map.on_fast_alone(), map.in_part(), map.clean()), (0, 0, 1));
        assert_eq!(map.dirty_bytes(32 * BLOCK_BYTES), 0);
    }

    #[test]
    fn a_page_is_dirty_from_its_first_change() {
        let mut map = Map::new(2000, EntryForm::OnePlace);
        map.set(ExtentId(0), Residence::default(), Lsn(5));
        map.set(ExtentId(1), Residence::default(), Lsn(8));
        map.set(ExtentId(600), Residence::default(), Lsn(3));
        assert_eq!(map.oldest_dirty(), Some(Lsn(3)));
        assert_eq!(map.take_dirty(1), [1]);
        assert_eq!(map.oldest_dirty(), Some(Lsn(5)));
        map.set(ExtentId(601), Residence::default(), Lsn(9));
        assert_eq!(map.take_dirty(9), [0, 1]);
        assert_eq!((map.oldest_dirty(), map.is_dirty(1)), (None, false));
    }

    #[test]
    fn a_checkpoint_step_costs_the_same_however_many_pages_are_dirty() {
        let pages = 250_000;
        let mut map = Map::new(pages * ENTRIES_PER_PAGE as u64, EntryForm::OnePlace);
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
        assert_eq!(map.dirty.len(), 250_000 - 900 * 256);
    }

    #[test]
    fn checkpoints_alternate_between_the_copies() {
        let mut map = Map::new(100_000, EntryForm::OnePlace);
        assert_eq!(map.older_copy(70), 1);
        map.set_newer_copy(70, 1);
        assert_eq!((map.older_copy(70), map.older_copy(69)), (0, 1));
        map.set_newer_copy(70, 0);
        assert_eq!(map.older_copy(70), 1);
    }
}
