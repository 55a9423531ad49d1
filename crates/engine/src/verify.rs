//! Whether the memory of a volume agrees with itself: every invariant that can be recomputed from
//! scratch is. For `check`, which has just brought the state up, and for tests at quiet moments.

use std::collections::{BTreeMap, BTreeSet};

use crate::address::{ExtentId, Lsn, Tier};
use crate::state::State;

/// Everything that is wrong; nothing else may be under way: no request, no work of the janitor.
pub(crate) fn verify(state: &mut State) -> Vec<String> {
    let mut wrong = Vec::new();
    verify_points(state, &mut wrong);
    verify_slots(state, &mut wrong);
    verify_log(state, &mut wrong);
    wrong
}

/// The order of the log's points, and what holds the tail back (D9).
fn verify_points(state: &mut State, wrong: &mut Vec<String>) {
    let live = state.log.oldest_live();
    let log = &state.log;
    let points = [log.tail(), log.recorded(), log.durable(), log.written(), log.end()];
    if !points.is_sorted() {
        wrong.push(format!("tail, recorded, durable, written, end are out of order: {points:?}"));
    }
    if live < log.tail() {
        wrong.push(format!("the tail {} has passed the live record at {live}", log.tail()));
    }
    if let Some(dirty) = state.map.oldest_dirty()
        && dirty < log.tail()
    {
        wrong.push(format!("the tail {} has passed the map change at {dirty}", log.tail()));
    }
}

/// Each slot belongs to one extent, or waits in quarantine, or is free (D5).
fn verify_slots(state: &State, wrong: &mut Vec<String>) {
    let mut owners = BTreeMap::new();
    let mut mapped = 0;
    let mut clean = 0;
    for extent in (0..state.map.extents()).map(ExtentId) {
        let mapping = state.map.get(extent);
        if mapping.moving() {
            wrong.push(format!("extent {} is marked as moving, and nothing moves", extent.0));
        }
        mapped += u64::from(mapping.home().is_some());
        clean += u64::from(mapping.original().is_some());
        for home in state.owned_by(extent).into_iter().flatten() {
            if let Some(other) = owners.insert(home, format!("extent {}", extent.0)) {
                wrong.push(format!("{home:?} belongs to {other} and to extent {}", extent.0));
            }
        }
    }
    if mapped != state.map.mapped() {
        wrong.push(format!("{mapped} extents are mapped, counted were {}", state.map.mapped()));
    }
    if clean != state.map.clean() {
        wrong.push(format!("{clean} extents are clean copies, counted were {}", state.map.clean()));
    }
    let mut last = Lsn(0);
    for (home, lsn) in state.quarantine.waiting() {
        if let Some(other) = owners.insert(home, "quarantine".into()) {
            wrong.push(format!("{home:?} waits in quarantine and belongs to {other}"));
        }
        if lsn < last {
            wrong.push(format!("{home:?}, given up at {lsn}, waits behind one given up at {last}"));
        }
        last = lsn;
    }
    for tier in Tier::BOTH {
        let slots = &state.slots[tier.index()];
        let owned = owners.keys().filter(|home| home.tier == tier).count() as u64;
        if slots.in_use() != owned || slots.free() != slots.slots() - owned {
            wrong.push(format!(
                "of {} slots of the {tier} drive {} are in use and {} counted as free, but {owned} \
                 have an owner",
                slots.slots(),
                slots.in_use(),
                slots.free()
            ));
        }
        let free = owners.keys().find(|home| home.tier == tier && !slots.is_used(home.slot));
        if let Some(home) = free {
            wrong.push(format!("{home:?} of {} counts as free", owners[home]));
        }
    }
}

/// Index, records and marks agree: every block of the log that is the newest version lies in an
/// extent that is marked so, and the index names no others.
fn verify_log(state: &mut State, wrong: &mut Vec<String>) {
    let end = state.log.end();
    if end != state.log.written() {
        // A record is still open: what it holds is in the index, and not yet among the records.
        return;
    }
    let blocks_per_extent = state.geometry.extent_blocks();
    let mut live: BTreeMap<u64, u64> = BTreeMap::new();
    let mut last = Lsn(0);
    let mut order_broken = false;
    let mut marked = BTreeSet::new();
    state.log.visit_live(end, |one| {
        order_broken |= one.lsn < last;
        last = one.lsn;
        // Marked ranges of one record may overlap; such a block is told for each.
        if one.mark && !marked.insert(one.block) {
            return true;
        }
        *live.entry(one.block.0 / blocks_per_extent).or_default() += 1;
        true
    });
    if order_broken {
        wrong.push("the log's records are out of order".into());
    }
    let held: u64 = live.values().sum();
    let indexed = state.log.live_blocks();
    if held != indexed {
        wrong.push(format!("the log's index names {indexed} blocks, its records hold {held}"));
    }
    for extent in (0..state.map.extents()).map(ExtentId) {
        let marked = state.map.get(extent).in_log();
        if marked != live.contains_key(&extent.0) {
            let text = if marked { "is marked as logged, but" } else { "lacks its mark, though" };
            let held = live.get(&extent.0).copied().unwrap_or_default();
            wrong.push(format!("extent {} {text} the log has {held} blocks of it", extent.0));
        }
    }
}
