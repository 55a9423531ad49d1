//! Loading the map: the newest sound copy of each of its pages, from either drive.

use std::collections::VecDeque;

use io::{Buf, Transfer};

use super::Source;
use crate::address::{ExtentId, Lsn, Tier};
use crate::canary::canary;
use crate::drive::{Drive, Watched};
use crate::error::Error;
use crate::format::map_page::{
    ENTRIES_PER_PAGE, PAGE_BYTES, PageCopy, Residence, entries, examine,
};
use crate::marks::{self, Mark};
use crate::state::State;

/// Map pages read at once (both copies: 1 MiB).
const PAGES_PER_READ: u64 = 128;
/// Reads of the map under way, on each drive.
const READS_AHEAD: usize = 4;

/// A stretch of the map on its way from one drive.
struct Stretch<'a> {
    drive: &'a Drive,
    first: u64,
    transfer: Watched<Transfer>,
}

impl<'a> Stretch<'a> {
    fn begin(source: &Source<'_>, drive: &'a Drive, first: u64, count: u64) -> Stretch<'a> {
        let buf = source.io.pool().take(count as usize * 2 * PAGE_BYTES);
        let position = source.superblock.geometry.map_page_position(drive.tier(), first, 0);
        Stretch { drive, first, transfer: drive.read(position, buf) }
    }

    /// The bytes, and for each copy in them whether it could be read.
    async fn arrive(self, source: &Source<'_>) -> (Buf, Vec<bool>) {
        let (mut buf, outcome) = self.transfer.await;
        let mut readable = vec![true; buf.len() / PAGE_BYTES];
        if outcome.is_ok() {
            return (buf, readable);
        }
        // Somewhere in this stretch is a sector that cannot be read.
        let position =
            source.superblock.geometry.map_page_position(self.drive.tier(), self.first, 0);
        for (n, readable) in (0..).zip(&mut readable) {
            let page = source.io.pool().take(PAGE_BYTES);
            let (page, outcome) = self.drive.read(position + n * PAGE_BYTES as u64, page).await;
            *readable = outcome.is_ok();
            buf[n as usize * PAGE_BYTES..][..PAGE_BYTES].copy_from_slice(&page);
        }
        (buf, readable)
    }
}

/// Loads the newest valid copy of every map page; gives their LSNs.
///
/// Both drives are read, though one has all: a page that a drive has lost in silence, or brought
/// back from earlier, looks as valid as any, and only the other drive's shows that it is not the
/// newest.
pub(super) async fn load_map(source: &Source<'_>, state: &mut State) -> Result<Vec<Lsn>, Error> {
    let pages = source.superblock.geometry.map_pages();
    let mut lsns = vec![Lsn(0); pages as usize];
    let mut under_way = VecDeque::new();
    let mut next = 0;
    loop {
        while under_way.len() < READS_AHEAD && next < pages {
            let count = PAGES_PER_READ.min(pages - next);
            let drives = [source.fast, source.slow];
            under_way.push_back(drives.map(|drive| Stretch::begin(source, drive, next, count)));
            next += count;
        }
        let Some([fast, slow]) = under_way.pop_front() else { break };
        let first = fast.first;
        let stretches = [fast.arrive(source).await, slow.arrive(source).await];
        for n in 0..stretches[0].1.len() / 2 {
            let page = first + n as u64;
            let drives = [0, 1].map(|tier: usize| {
                let (bytes, readable) = &stretches[tier];
                PageOnDrive {
                    bytes: &bytes[n * 2 * PAGE_BYTES..][..2 * PAGE_BYTES],
                    judged: [0, 1].map(|copy| match readable[n * 2 + copy] {
                        true => {
                            let bytes = &bytes[(n * 2 + copy) * PAGE_BYTES..][..PAGE_BYTES];
                            examine(bytes, source.superblock.volume_tag(), page)
                        }
                        false => PageCopy::Bad,
                    }),
                }
            });
            lsns[page as usize] = load_page(source, state, page, &drives)?;
        }
    }
    Ok(lsns)
}

/// Both copies of a page on one drive.
struct PageOnDrive<'a> {
    bytes: &'a [u8],
    judged: [PageCopy; 2],
}

impl PageOnDrive<'_> {
    fn newest(&self) -> Option<(usize, Lsn)> {
        match self.judged {
            [PageCopy::Valid(a), PageCopy::Valid(b)] if (b > a) != canary!(OlderPageTaken) => {
                Some((1, b))
            }
            [PageCopy::Valid(a), _] => Some((0, a)),
            [_, PageCopy::Valid(b)] => Some((1, b)),
            _ => None,
        }
    }

    fn copy(&self, copy: usize) -> &[u8] {
        &self.bytes[copy * PAGE_BYTES..][..PAGE_BYTES]
    }

    fn is_damaged(&self) -> bool {
        self.judged.contains(&PageCopy::Bad)
    }

    fn is_blank(&self) -> bool {
        self.judged == [PageCopy::Blank; 2]
    }
}

fn load_page(
    source: &Source<'_>,
    state: &mut State,
    page: u64,
    [fast, slow]: &[PageOnDrive<'_>; 2],
) -> Result<Lsn, Error> {
    if let Some(survivor) = source.survivor() {
        let left = if survivor.tier() == Tier::Fast { fast } else { slow };
        // In write-through both copies on the slow drive are the same, unless a cut came in between:
        // then the whole one is right.
        let through = source.is_through() && survivor.tier() == Tier::Slow;
        let doubtful = left.is_damaged() && (!through || left.judged == [PageCopy::Bad; 2]);
        if doubtful && !canary!(TornPageBelieved) {
            // Torn by a cut, or rotten: then the other copy is older than the truth. The drive that
            // could tell is gone.
            mark_page_unknown(state, page);
            return Ok(Lsn(0));
        }
        let Some((copy, lsn)) = left.newest() else { return Ok(Lsn(0)) };
        // If it is written alone, the other copy goes first.
        state.map.set_newer_copy(page, copy as u64);
        apply_page(state, page, left.copy(copy))?;
        return Ok(lsn);
    }
    let from_slow = slow.newest().map(|(_, lsn)| lsn) > fast.newest().map(|(_, lsn)| lsn)
        && !(canary!(SlowPageIgnored) && fast.newest().is_some());
    let (from, other) = if from_slow { (slow, fast) } else { (fast, slow) };
    let damaged = fast.is_damaged() || slow.is_damaged();
    let Some((copy, lsn)) = from.newest() else {
        // Without damage nothing was ever written. With it: no checkpoint of this page ever came
        // to its end on both drives, so the log has everything, and what is damaged was torn or
        // never meant anything. Unless all of it is damaged: then only a log that goes back to the
        // making of the volume surely has everything.
        let torn = fast.judged.contains(&PageCopy::Blank) || slow.is_blank();
        // After a close nothing is torn, and in a rescue the drives are known to be damaged, so that nothing
        // counts as torn by a cut. What was never written is blank on a whole drive then.
        let unwritten = fast.is_blank() || slow.is_blank();
        let cut_excluded = source.known_end().is_some() || source.rescue;
        let lost = !torn || damaged && !unwritten && cut_excluded;
        if lost && !source.superblock.log_is_whole() {
            return lose_page(state, page, page_lost(source, page));
        }
        if damaged {
            marks::hit(Mark::MapPageFromLog);
            state.recovery.pages_repaired += 1;
            state.damaged_pages.push(page);
        }
        return Ok(Lsn(0));
    };
    let overwritten = |drive: &PageOnDrive<'_>| drive.judged[1 - copy] == PageCopy::Bad;
    if overwritten(fast) && overwritten(slow) {
        // A cut in the middle of a checkpoint leaves this, and then the log has what they had. But
        // there was none since the volume was opened, which mends such copies. Nor does anything count as
        // torn by a cut in a rescue: of what came before its tail the log has nothing.
        let log_has_the_rest = lsn >= source.superblock.log_tail;
        if source.known_end().is_some() || source.rescue && !log_has_the_rest {
            return lose_page(state, page, page_lost(source, page));
        }
    }
    // What is written next is the other copy, on both drives: this one stays until then.
    state.map.set_newer_copy(page, copy as u64);
    let alone = other.newest().map(|(_, lsn)| lsn) != Some(lsn);
    // Alone: torn or not written at a cut, or lost in silence. The log may still have what such a
    // page holds, but replay does not see it as changes: unless it is written anew before the tail
    // passes them, it stays on one drive for good.
    if (alone || damaged) && !canary!(LonePageLeft) {
        marks::hit(match from_slow {
            true => Mark::MapPageFromSlow,
            false => Mark::MapCopyRepaired,
        });
        state.recovery.pages_repaired += 1;
        state.damaged_pages.push(page);
    }
    apply_page(state, page, from.copy(copy))?;
    vouch(state, page, slow);
    Ok(lsn)
}

/// Where a page is lost for good the volume is refused, unless what is left is to be rescued.
fn lose_page(state: &mut State, page: u64, refusal: Error) -> Result<Lsn, Error> {
    let Some(rescue) = &mut state.rescue else { return Err(refusal) };
    rescue.note(refusal.to_string());
    rescue.lose_page(page);
    Ok(Lsn(0))
}

/// Finds the extents of a page for which the slow drive answers by itself.
fn vouch(state: &mut State, page: u64, slow: &PageOnDrive<'_>) {
    let Some(rescue) = &mut state.rescue else { return };
    if slow.is_damaged() {
        return;
    }
    let blank = [0; PAGE_BYTES];
    let bytes = slow.newest().map_or(&blank[..], |(copy, _)| slow.copy(copy));
    let first = page * ENTRIES_PER_PAGE as u64;
    for (extent, raw) in (first..state.map.extents()).map(ExtentId).zip(entries(bytes)) {
        let mapping = state.map.get(extent);
        let agrees = state.map.form().decode(raw, extent) == Some(mapping.residence());
        if agrees && !mapping.is_on_fast_alone() && !state.doubts.is_marked(extent) {
            rescue.vouch(extent);
        }
    }
}

fn page_lost(source: &Source<'_>, page: u64) -> Error {
    let extents = ENTRIES_PER_PAGE as u64 * source.superblock.geometry.extent_bytes;
    Error::Damaged(format!(
        "every copy of map page {page} is damaged, on {} and on {}: where the volume's \
         bytes {} to {} are is lost. Nothing was changed; restore an image of one drive's \
         map area if there is one",
        source.fast.info().path,
        source.slow.info().path,
        page * extents,
        (page + 1) * extents,
    ))
}

fn apply_page(state: &mut State, page: u64, bytes: &[u8]) -> Result<(), Error> {
    let first = page * ENTRIES_PER_PAGE as u64;
    for (extent, raw) in (first..state.map.extents()).zip(entries(bytes)) {
        let blocks = state.geometry.extent_blocks();
        let decoded = state.map.form().decode(raw, ExtentId(extent));
        let sound = |it: &Residence| it.part.is_none_or(|part| part.is_sound(blocks));
        let Some(residence) = decoded.filter(sound) else {
            let text = format!("map page {page} holds an impossible entry for extent {extent}");
            let Some(rescue) = &mut state.rescue else { return Err(Error::Damaged(text)) };
            rescue.note(text);
            rescue.lose(ExtentId(extent));
            continue;
        };
        if residence.home.is_some() {
            state.map.load(ExtentId(extent), residence);
        }
    }
    Ok(())
}

fn mark_page_unknown(state: &mut State, page: u64) {
    state.recovery.pages_repaired += 1;
    let extents = state.map.extents();
    let first = page * ENTRIES_PER_PAGE as u64;
    let loss = state.loss.get_or_insert_default();
    for extent in first..(first + ENTRIES_PER_PAGE as u64).min(extents) {
        loss.mark_unknown(ExtentId(extent), extents);
    }
}
