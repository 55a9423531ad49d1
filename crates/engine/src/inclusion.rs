//! Class span, *elastic inclusion*: what goes up keeps its slot on the slow drive, as long as that drive
//! has room. Then leaving the fast drive is a record and no copy, and losing that drive loses less.
//!
//! * What is kept below is a clean copy's original: map entry, log and quarantine treat it as they do in
//!   class cache. What makes the copy dirty, or moves it, gives the original up by its own record.
//! * It is kept from slots that nobody needs. While fewer than a reserve are free, originals are given
//!   back, by a record each: an allocation that finds no slot meanwhile waits as it does for quarantine.
//! * In the order of the map, so that what was written together comes free together, and a stream finds
//!   neighbours. Not the coldest first: they leave soon, and it is then that an original is worth most.

use crate::address::{ExtentId, Lsn, Tier};
use crate::canary::canary;
use crate::format::map_page::{EntryForm, Residence};
use crate::format::record::Entry;
use crate::marks::{self, Mark};
use crate::shared::Shared;
use crate::state::State;

/// One in so many slots of the slow drive stays free beside what is kept: on 1 TB 15 GB, which a stream
/// at full speed takes a minute and more to fill.
const RESERVE_SHARE: u64 = 64;
/// But so many at least: a request of 1 MiB takes 16 of the smallest extents.
const RESERVE_SLOTS_MIN: u64 = 16;
/// Originals given back at once: their entries fit two records.
const BATCH: u64 = 128;
/// Log blocks that the records of a batch take at most, with the one that they may have to seal.
const ROOM_BLOCKS: u64 = 8;
/// Extents looked at in one step: some 100 µs.
const LOOK_MAX: u64 = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Inclusion {
    on: bool,
    /// The next extent to look at.
    hand: u64,
    /// The record that gave the last original back.
    given_back: Lsn,
}

impl Inclusion {
    pub fn new(on: bool) -> Inclusion {
        Inclusion { on, ..Inclusion::default() }
    }

    pub fn set(&mut self, on: bool) {
        self.on = on;
    }
}

/// Slots of the slow drive that are free beside what is kept.
fn reserve(state: &State) -> u64 {
    (state.slots[Tier::Slow.index()].slots() / RESERVE_SHARE).max(RESERVE_SLOTS_MIN)
}

/// Whether an extent that goes up leaves its original below.
pub(crate) fn keeps_original(state: &State) -> bool {
    match state.map.form() {
        EntryForm::OwnSlot | EntryForm::OwnSlotInParts => true,
        EntryForm::OnePlace => false,
        // Twice: what is kept now is not to be given back in the next moment.
        EntryForm::TwoPlaces => {
            state.inclusion.on && state.slots[Tier::Slow.index()].free() > 2 * reserve(state)
        }
    }
}

/// Originals that may be given back: not those of copies that could not be read, which go home instead.
fn spare_originals(state: &State) -> u64 {
    let is_clean = |extent: &&ExtentId| state.map.get(**extent).is_clean();
    state.map.clean() - state.bad_copies.iter().filter(is_clean).count() as u64
}

/// Originals to be given back now, though clients may be at work: slots are short.
fn pressing(state: &State) -> u64 {
    if state.map.form() != EntryForm::TwoPlaces || canary!(KeptOverReserve) {
        return 0;
    }
    let coming = state.quarantine.waiting_on(Tier::Slow);
    let free = state.slots[Tier::Slow.index()].free() + coming;
    reserve(state).saturating_sub(free).min(spare_originals(state))
}

/// Whether originals are to be given back at once.
pub(crate) fn is_pressed(state: &State) -> bool {
    pressing(state) > 0 && state.log.room_blocks() >= ROOM_BLOCKS
}

/// Whether originals are to be given back when clients rest: they are not wanted any more.
pub(crate) fn is_leaving(state: &State) -> bool {
    let unwanted = state.map.form() == EntryForm::TwoPlaces && !state.inclusion.on;
    unwanted && spare_originals(state) > 0 && state.log.room_blocks() >= ROOM_BLOCKS
}

/// Whether slots are short, and those that were given back wait for nothing but a record.
pub(crate) fn waits_for_record(state: &State) -> bool {
    state.inclusion.given_back >= state.log.recorded()
        && state.slots[Tier::Slow.index()].free() < reserve(state) / 2
        && state.quarantine_waits_for_record()
}

/// Gives some originals back: their copies are dirty from then on.
pub(crate) async fn give_back(shared: &Shared) {
    give_some_back(shared, &mut shared.state.borrow_mut());
    shared.log_work.wake_all();
    shared.io.yield_now().await;
}

fn give_some_back(shared: &Shared, state: &mut State) {
    let due = if state.inclusion.on { pressing(state) } else { spare_originals(state) };
    let extents = state.map.extents();
    let mut left = due.min(BATCH);
    for _ in 0..LOOK_MAX.min(extents) {
        if left == 0 {
            break;
        }
        let extent = ExtentId(state.inclusion.hand);
        state.inclusion.hand = (state.inclusion.hand + 1) % extents;
        let mapping = state.map.get(extent);
        let bad = state.bad_copies.contains(&extent);
        if mapping.is_clean() && !mapping.moving() && !bad {
            marks::hit(Mark::OriginalGivenBack);
            let residence = Residence::at(mapping.home());
            let entry = state.map.form().encode(residence);
            let lsn = state.log.append_entry(shared.io.pool(), &Entry::Relocate { extent, entry });
            state.replace_home(extent, residence, lsn);
            state.inclusion.given_back = lsn;
            left -= 1;
        }
    }
}
