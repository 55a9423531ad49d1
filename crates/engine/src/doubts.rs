//! Doubts: what the slow drive, if it were all that is left, could not vouch for.
//!
//! The slow drive's map is as old as the last checkpoint, and newer data may lie in the log of the
//! fast drive. So the slow drive carries a mark for each region of the volume of which that may be
//! so (`format/doubt_page.rs`), and without the fast drive what is marked counts as lost.
//!
//! Invariants
//! * A change is durable (`Log::durable`) only when the mark of its region is durable on the slow
//!   drive. So no acknowledged flush can be contradicted by what the slow drive vouches for, and no
//!   slot of it is reused while an unmarked region still points there.
//! * No mark is needed while the slow drive's page says that the extent lives on the fast drive:
//!   without that drive it is lost anyway.
//! * A mark is taken away only when nothing newer than the slow drive's pages and homes exists.
//!   While the volume is up, that is done only where there is something to vouch for: an extent
//!   that lives on the slow drive. Regions of holes stay marked, so that filling a volume costs
//!   nothing.

use io::units::SECOND_NS;
use io::{Buf, Io, Pool};

use crate::address::ExtentId;
use crate::canary::canary;
use crate::drive::Drive;
use crate::error::Error;
use crate::format::doubt_page::{self, DOUBT_PAGE_BYTES, DOUBT_POSITIONS, region_extents};
use crate::geometry::Geometry;
use crate::map::Map;

/// Extents looked at in one step of vouching: some 100 µs.
const EXTENTS_PER_STEP: u64 = 1 << 16;

/// While clients are at work marks are looked at no more often: to set one again costs a flush of a client's the
/// slow drive's flush, and that may have a batch of destage to write.
const ROUND_NS: u64 = 30 * SECOND_NS;

/// Which marks may be taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vouch {
    /// Clients are at work: a region that changed since the last look will soon change again, and
    /// keeps its mark.
    Untouched,
    /// Clients are idle: all regions with something on the slow drive.
    Settled,
    /// The volume is being closed: also those of holes.
    Everything,
}

pub(crate) struct Doubts {
    extents: u64,
    region_extents: u64,
    /// What must be marked before the next change is durable.
    wanted: Vec<u64>,
    /// What is marked on the slow drive, durably.
    marked: Vec<u64>,
    /// Regions changed since they were last looked at.
    touched: Vec<u64>,
    any_touched: bool,
    /// `wanted` may differ from `marked`.
    changed: bool,
    /// Marks that were taken away are to be written too.
    publish: bool,
    /// Region where vouching goes on.
    next: u64,
    /// No round is begun before this while clients are at work.
    rests_until_ns: u64,
}

impl Doubts {
    /// Everything is in doubt.
    pub fn new(geometry: &Geometry) -> Doubts {
        let extents = geometry.extents();
        let region_extents = region_extents(extents);
        let words = extents.div_ceil(region_extents).div_ceil(64) as usize;
        Doubts {
            extents,
            region_extents,
            wanted: vec![u64::MAX; words],
            marked: vec![u64::MAX; words],
            touched: vec![0; words],
            any_touched: false,
            changed: false,
            publish: false,
            next: 0,
            rests_until_ns: 0,
        }
    }

    /// Takes what the copies of the page say, before anything has changed.
    pub fn load(&mut self, copies: [Option<&[u8]>; 2], volume_tag: u64) {
        doubt_page::decode(copies, volume_tag, self.region_extents, &mut self.marked);
        self.wanted.clone_from(&self.marked);
        self.changed = false;
    }

    /// Whether the slow drive does not vouch for the extent.
    pub fn is_marked(&self, extent: ExtentId) -> bool {
        bit(&self.marked, extent.0 / self.region_extents)
    }

    /// The extent changes.
    pub fn touch(&mut self, extent: ExtentId) {
        let region = extent.0 / self.region_extents;
        self.touched[region as usize / 64] |= 1 << (region % 64);
        self.any_touched = true;
        if !canary!(DoubtNotMarked) {
            self.mark(region);
        }
    }

    fn mark(&mut self, region: u64) {
        let (word, mask) = (region as usize / 64, 1 << (region % 64));
        let known = if canary!(LeavingMarkTrusted) { &self.marked } else { &self.wanted };
        if known[word] & mask == 0 {
            self.wanted[word] |= mask;
            self.changed = true;
        }
    }

    /// The page to write: when a mark is wanted that is not on the drive, or when marks were taken
    /// away for good. The caller makes both copies durable and then says so.
    pub fn take_unwritten(&mut self) -> Option<Vec<u64>> {
        if !self.changed {
            return None;
        }
        let missing =
            self.wanted.iter().zip(&self.marked).any(|(wanted, here)| wanted & !here != 0);
        if !missing && !self.publish {
            return None;
        }
        self.changed = false;
        self.publish = false;
        Some(self.wanted.clone())
    }

    /// The page to write at the begin of a session, whatever is on the drive.
    pub fn take_all(&mut self) -> Vec<u64> {
        self.changed = false;
        self.wanted.clone()
    }

    /// Has the next flush write the page though it has only fewer marks.
    pub fn publish(&mut self) {
        self.publish = true;
    }

    /// This page is on the slow drive, durably.
    pub fn settle(&mut self, written: Vec<u64>) {
        self.marked = if canary!(DoubtSettledTooWide) { self.wanted.clone() } else { written };
    }

    /// A page without marks.
    pub fn nothing(&self) -> Vec<u64> {
        vec![0; self.wanted.len()]
    }

    /// Both copies of a page.
    pub fn copies(&self, pool: &Pool, volume_tag: u64, page: &[u64]) -> [Buf; 2] {
        [(); 2].map(|()| {
            let mut buf = pool.take(DOUBT_PAGE_BYTES);
            doubt_page::encode(&mut buf, volume_tag, self.region_extents, page);
            buf
        })
    }

    /// A session begins: where nothing lives on the slow drive, it vouches for nothing, so that
    /// filling the volume costs no marks.
    pub fn begin_session(&mut self, map: &Map) {
        for region in 0..self.extents.div_ceil(self.region_extents) {
            let lives_here = |extent| map.get(extent).is_current_on_slow();
            if !map.worth_a_look(self.extents_of(region)).any(lives_here) {
                self.mark(region);
            }
        }
    }

    /// A round begins at the first region, wherever the last look has ended.
    pub fn begin_round(&mut self) {
        self.next = 0;
    }

    /// Goes on with a round while clients are at work, or begins one if the last is long enough ago.
    pub fn look(&mut self, map: &Map, now_ns: u64) {
        if self.next == 0 && now_ns < self.rests_until_ns {
            return;
        }
        if self.vouch(map, Vouch::Untouched) {
            self.rests_until_ns = now_ns + ROUND_NS;
        }
        self.publish();
    }

    /// Looks at the next regions and takes away the marks that are not needed any more. Gives
    /// whether the round is over.
    pub fn vouch(&mut self, map: &Map, which: Vouch) -> bool {
        let regions = self.extents.div_ceil(self.region_extents);
        let last = (self.next + (EXTENTS_PER_STEP / self.region_extents).max(1)).min(regions);
        for region in self.next..last {
            let (word, mask) = (region as usize / 64, 1 << (region % 64));
            let touched = self.touched[word] & mask != 0;
            self.touched[word] &= !mask;
            if self.wanted[word] & mask == 0 || touched && which == Vouch::Untouched {
                continue;
            }
            let extents = map.worth_a_look(self.extents_of(region));
            let lives_here = |extent| map.get(extent).is_current_on_slow();
            let all = extents.clone().all(|extent| knows(map, extent));
            let one = canary!(RegionVouchedForOne) && extents.clone().any(|it| knows(map, it));
            if (all || one) && (which == Vouch::Everything || extents.clone().any(lives_here)) {
                self.wanted[word] &= !mask;
                self.changed = true;
            }
        }
        self.next = if last == regions { 0 } else { last };
        let over = self.next == 0;
        if over && which != Vouch::Untouched {
            self.any_touched = false;
        }
        over
    }

    /// Has the marks looked at again: the slow drive has come to know more.
    pub fn look_again(&mut self) {
        self.any_touched = true;
    }

    /// Whether something has changed since the marks were last looked at.
    pub fn any_touched(&self) -> bool {
        self.any_touched
    }

    pub fn memory_bytes(&self) -> u64 {
        self.wanted.len() as u64 * 8 * 3
    }

    fn extents_of(&self, region: u64) -> std::ops::Range<u64> {
        let first = region * self.region_extents;
        first..(first + self.region_extents).min(self.extents)
    }
}

fn bit(words: &[u64], region: u64) -> bool {
    words[region as usize / 64] >> (region % 64) & 1 != 0
}

/// Whether the slow drive alone knows the truth about the extent: which may be that it is elsewhere.
fn knows(map: &Map, extent: ExtentId) -> bool {
    let mapping = map.get(extent);
    (map.is_settled(extent) || canary!(VouchedOverDirtyPage))
        && (!mapping.in_log() || mapping.is_on_fast_alone() || canary!(VouchedOverLog))
}

/// Reads both copies of the page and takes what they say.
pub(crate) async fn read(io: &Io, slow: &Drive, doubts: &mut Doubts, volume_tag: u64) {
    let mut copies = Vec::with_capacity(2);
    for position in DOUBT_POSITIONS {
        let (buf, outcome) = slow.read(position, io.pool().take(DOUBT_PAGE_BYTES)).await;
        copies.push(outcome.is_ok().then_some(buf));
    }
    let copies = [copies[0].as_deref(), copies[1].as_deref()];
    doubts.load(copies, volume_tag);
}

/// Writes both copies; they are durable after a flush. Each of their sectors is old or new after a
/// cut, and until the flush has ended both are right: so they need no order.
pub(crate) async fn write(slow: &Drive, copies: [Buf; 2]) -> Result<(), Error> {
    let mut at = DOUBT_POSITIONS.into_iter();
    let writes = copies.map(|copy| slow.write(at.next().expect("as many as copies"), copy));
    let mut outcome = Ok(());
    for write in writes {
        outcome = outcome.and(write.await.1);
    }
    Ok(outcome?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{Home, Lsn, SlotId, Tier};
    use crate::format::map_page::{EntryForm, Residence};
    use crate::format::superblock::tests::example;

    fn doubts_and_map() -> (Doubts, Map) {
        let geometry = example().geometry;
        (Doubts::new(&geometry), Map::new(geometry.extents(), EntryForm::OnePlace))
    }

    #[test]
    fn a_region_is_vouched_for_when_the_slow_drive_has_it_all() {
        let (mut doubts, mut map) = doubts_and_map();
        let slow = |slot| Residence::at(Home { tier: Tier::Slow, slot: SlotId(slot) });
        map.load(ExtentId(5), slow(1));
        map.load(ExtentId(6), slow(2));
        map.mark_in_log(ExtentId(6), true);
        map.load(ExtentId(1200), slow(3));
        map.set(ExtentId(1201), slow(4), Lsn(3));
        while !doubts.vouch(&map, Vouch::Settled) {}
        assert_eq!(doubts.take_unwritten(), None, "fewer marks are in no hurry");
        doubts.publish();
        let page = doubts.take_unwritten().expect("something changed");
        doubts.settle(page);
        assert!(!doubts.is_marked(ExtentId(5)), "it lives there, and its page is written");
        assert!(doubts.is_marked(ExtentId(6)), "newer blocks are in the log");
        assert!(doubts.is_marked(ExtentId(7)), "holes are not vouched for");
        assert!(doubts.is_marked(ExtentId(1200)), "its page is not written");
        doubts.touch(ExtentId(5));
        assert!(!doubts.is_marked(ExtentId(5)), "not on the drive yet");
        let page = doubts.take_unwritten().expect("a new doubt");
        doubts.settle(page);
        assert!(doubts.is_marked(ExtentId(5)));
        doubts.touch(ExtentId(5));
        assert_eq!(doubts.take_unwritten(), None, "a mark that stands costs nothing");
    }

    #[test]
    fn a_round_looks_at_all_regions_wherever_the_last_look_ended() {
        let mut geometry = example().geometry;
        geometry.volume_bytes = 5 * EXTENTS_PER_STEP * geometry.extent_bytes / 2;
        let mut doubts = Doubts::new(&geometry);
        let mut map = Map::new(geometry.extents(), EntryForm::OnePlace);
        map.load(ExtentId(5), Residence::at(Home { tier: Tier::Slow, slot: SlotId(1) }));
        assert!(!doubts.vouch(&map, Vouch::Untouched), "one step is not all");
        doubts.touch(ExtentId(5));
        doubts.begin_round();
        while !doubts.vouch(&map, Vouch::Everything) {}
        doubts.publish();
        let page = doubts.take_unwritten().expect("something changed");
        doubts.settle(page);
        assert!(!doubts.is_marked(ExtentId(5)));
        assert!(!doubts.any_touched());
    }

    #[test]
    fn while_clients_are_at_work_a_mark_stays_for_half_a_minute_at_least() {
        let (mut doubts, mut map) = doubts_and_map();
        map.load(ExtentId(5), Residence::at(Home { tier: Tier::Slow, slot: SlotId(1) }));
        doubts.look(&map, SECOND_NS);
        let page = doubts.take_unwritten().expect("nothing was touched: the mark goes");
        doubts.settle(page);
        doubts.touch(ExtentId(5));
        for seconds in 2..30 {
            doubts.look(&map, seconds * SECOND_NS);
            assert!(bit(&doubts.wanted, 5), "after {seconds} s");
        }
        doubts.look(&map, 31 * SECOND_NS);
        assert!(bit(&doubts.wanted, 5), "it was touched since the last look");
        doubts.look(&map, 61 * SECOND_NS);
        assert!(!bit(&doubts.wanted, 5));
    }

    #[test]
    fn what_changed_since_the_last_look_is_spared_once() {
        let (mut doubts, mut map) = doubts_and_map();
        map.load(ExtentId(5), Residence::at(Home { tier: Tier::Slow, slot: SlotId(1) }));
        doubts.touch(ExtentId(5));
        while !doubts.vouch(&map, Vouch::Untouched) {}
        doubts.publish();
        assert_eq!(doubts.take_unwritten(), None);
        while !doubts.vouch(&map, Vouch::Untouched) {}
        assert!(doubts.take_unwritten().is_some());
    }
}
