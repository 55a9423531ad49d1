//! Replaying the landing log into the state, up to where it ends.

use std::collections::VecDeque;

use super::Source;
use super::verify::Pending;
use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Lsn};
use crate::canary::canary;
use crate::checksum::crc32c;
use crate::error::Error;
use crate::format::map_page::{ENTRIES_PER_PAGE, Residence};
use crate::format::record::{
    Entry, Header, RECORD_BLOCKS_MAX, decode_echo, decode_entries, decode_header,
};
use crate::format::superblock::Superblock;
use crate::log::Logged;
use crate::log::reader::LogReader;
use crate::marks::{self, Mark};
use crate::rescue;
use crate::state::State;

/// Blocks beyond a damaged header in which a later record is looked for that claims the damaged
/// one durable: 64 MiB, more than is appended while one flush runs (20 ms at 3 GB/s).
const LOOK_AHEAD_BLOCKS: u64 = 16_384;

/// Replays the log into the state. Gives the allocations to verify and the bytes read.
pub(super) async fn replay(
    source: &Source<'_>,
    state: &mut State,
    page_lsns: &[Lsn],
    stop_at: Option<Lsn>,
) -> Result<(Vec<Pending>, u64), Error> {
    let superblock = source.superblock;
    let ring = superblock.geometry.ring_blocks();
    let tail = superblock.log_tail;
    let log_at = superblock.geometry.layouts[0].log_at;
    let mut replay = Replay {
        source,
        page_lsns,
        reader: LogReader::new(source.io, source.fast, log_at, ring, tail),
        claimed: superblock.log_durable,
        generation: 0,
        block: Vec::new(),
        pending: VecDeque::new(),
    };
    if source.rescue {
        // A page is written when all it holds is durable.
        let newest = page_lsns.iter().copied().max();
        replay.claimed = replay.claimed.max(newest.unwrap_or_default());
    }
    let mut lsn = tail;
    while ![stop_at, source.known_end()].contains(&Some(lsn)) {
        match replay.record(state, lsn).await {
            Ok(Some(next)) => lsn = next,
            Ok(None) if lsn < replay.claimed => {
                let refusal = Error::Damaged(format!(
                    "the landing log on {} ends at {lsn}, but was durable up to {}: its end is \
                     lost, or the drive is an older copy. Nothing was changed; give the drive \
                     that was in use",
                    source.fast.info().path,
                    replay.claimed,
                ));
                let Some(next) = replay.pass_gap(state, lsn, refusal).await? else { break };
                lsn = next;
            }
            Ok(None) => break,
            Err(refusal) => {
                let Some(next) = replay.pass_gap(state, lsn, refusal).await? else { break };
                lsn = next;
            }
        }
    }
    let Replay { claimed, mut pending, reader, .. } = replay;
    pending.retain(|allocation| allocation.lsn >= claimed);
    Ok((pending.into(), reader.bytes_read()))
}

/// A log on its way into the state.
struct Replay<'a> {
    source: &'a Source<'a>,
    /// What the map pages have, by number.
    page_lsns: &'a [Lsn],
    reader: LogReader,
    /// Something says that everything before this was durable.
    claimed: Lsn,
    /// Of the last record.
    generation: u64,
    /// Memory for the header block at hand.
    block: Vec<u8>,
    pending: VecDeque<Pending>,
}

impl Replay<'_> {
    /// Replays the record at `lsn`; gives where the next one begins. `None`: the log ends here.
    ///
    /// # Errors
    /// It does not end here, and cannot be replayed either. Part of the record may be in the state.
    async fn record(&mut self, state: &mut State, lsn: Lsn) -> Result<Option<Lsn>, Error> {
        let source = self.source;
        let Some(found) = self.reader.block(lsn).await else { return Ok(None) };
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        let readable = found.map(|found| block.extend_from_slice(found)).map_err(Clone::clone);
        let sound = self.header(&block, lsn);
        let header = if let Some(header) = sound {
            header
        } else {
            let unreadable = readable.is_err();
            let goes_on = unreadable || lsn < self.claimed || claims_beyond(source, lsn).await?;
            if !goes_on {
                return Ok(None);
            }
            let Some((header, repeated)) = self.repeated(state, lsn).await else {
                // Whether the log goes on cannot be known where it cannot be read: to guess that it
                // ends could lose flushed writes behind it.
                readable?;
                return Err(Error::Damaged(format!(
                    "the landing log on {} is damaged at {lsn} (byte {} of the drive), before its \
                     end: writes after it cannot be replayed, or the drive is an older copy. \
                     Nothing was changed; give the drive that was in use, or restore an image \
                     of it",
                    source.fast.info().path,
                    state.log.position(lsn),
                )));
            };
            block = repeated;
            header
        };
        let Some(changes) = decode_entries(&block, &header) else {
            return Err(nonsense(lsn));
        };
        let (damaged, unreadable) = check_data(&mut self.reader, &header, &changes).await;
        // A block that cannot be read was written once: only a mismatch can mean that the record
        // was torn, and only if nobody says that it was durable.
        state.recovery.blocks_damaged += unreadable;
        let end = Lsn(lsn.0 + u64::from(header.blocks));
        if damaged > 0 {
            let durable = lsn < self.claimed.max(header.durable)
                || claims_beyond(source, Lsn(end.0 - 1)).await?;
            if !durable && !canary!(ReplayPastTorn) {
                marks::hit(Mark::TornRecordAtTail);
                return Ok(None);
            }
            marks::hit(Mark::DurableBlockDamaged);
            // Kept in the index with its CRC: reading it gives an error, not older data.
            state.recovery.blocks_damaged += damaged;
        }
        marks::hit(Mark::RecordsReplayed);
        if self.generation != 0 && self.generation != header.generation {
            marks::hit(Mark::SessionsReplayed);
        }
        self.generation = header.generation;
        if !canary!(ClaimsForgotten) {
            self.claimed = self.claimed.max(header.durable);
        }
        state.log.replay_header(&header, &block);
        if sound.is_none() {
            state.damaged_headers.push((lsn, block.clone()));
        }
        self.block = block;
        apply_entries(state, self.page_lsns, lsn, &changes, &mut self.pending)?;
        let claimed = self.claimed;
        let is_claimed = |allocation: &Pending| {
            allocation.lsn < claimed || canary!(ClaimTooWide) && allocation.lsn == claimed
        };
        while self.pending.front().is_some_and(is_claimed) {
            self.pending.pop_front();
        }
        state.recovery.records += 1;
        Ok(Some(end))
    }

    /// The header in a block that was read from the place of `lsn`, if it is a record of this log.
    fn header(&self, block: &[u8], lsn: Lsn) -> Option<Header> {
        let superblock = self.source.superblock;
        let ring = superblock.geometry.ring_blocks();
        decode_header(block, superblock.volume_tag(), lsn)
            .filter(|header| belongs(superblock, header, self.generation, ring))
    }

    /// The first place of a sound record from `at` on, before `until`, and its header block.
    async fn next_record(&mut self, mut at: Lsn, until: Lsn) -> Option<(Lsn, Vec<u8>)> {
        self.reader.seek(at);
        while at < until {
            let block = self.reader.block(at).await?.map(<[u8]>::to_vec);
            if let Ok(block) = block
                && self.header(&block, at).is_some()
            {
                return Some((at, block));
            }
            at = Lsn(at.0 + 1);
        }
        None
    }

    /// The header of the record at `lsn`, which is damaged, from the record behind it.
    async fn repeated(&mut self, state: &State, lsn: Lsn) -> Option<(Header, Vec<u8>)> {
        let until = Lsn(lsn.0 + RECORD_BLOCKS_MAX + 1);
        let next = self.next_record(Lsn(lsn.0 + 1), until).await;
        // The data of the record is read next.
        self.reader.seek(Lsn(lsn.0 + 1));
        let (next, block) = next?;
        let echo = decode_echo(&block)?;
        if lsn.0 + u64::from(echo.blocks) != next.0 {
            return None;
        }
        let tag = self.source.superblock.volume_tag();
        let block = echo.header_block(tag, lsn, state.log.last());
        Some((self.header(&block, lsn)?, block))
    }

    /// The log cannot be replayed at `lsn`. Refuses, unless what is left is to be rescued: then it
    /// goes on with the next sound record. `None`: there is none.
    async fn pass_gap(
        &mut self,
        state: &mut State,
        lsn: Lsn,
        refusal: Error,
    ) -> Result<Option<Lsn>, Error> {
        let Some(rescue) = &mut state.rescue else { return Err(refusal) };
        rescue.note(refusal.to_string());
        // What follows may have reused or changed their slots.
        for allocation in self.pending.drain(..) {
            rescue.lose(allocation.extent);
        }
        let next = self.next_record(Lsn(lsn.0 + 1), Lsn(u64::MAX)).await.map(|(next, _)| next);
        let closed = self.source.known_end().is_some();
        rescue::skip_gap(state, next, |page| {
            closed || next.is_some_and(|next| self.page_lsns[page as usize] >= next)
        });
        Ok(next)
    }
}

/// Whether a record with a sound header continues this log here.
fn belongs(superblock: &Superblock, header: &Header, previous: u64, ring: u64) -> bool {
    let lsn = header.lsn;
    let session = if canary!(SessionIgnored) {
        true
    } else if canary!(SessionBeginsLate) && lsn == superblock.log_session_start {
        header.generation < superblock.generation
    } else if lsn >= superblock.log_session_start {
        header.generation == superblock.generation
    } else {
        header.generation < superblock.generation
    };
    let blocks = u64::from(header.blocks);
    session
        && (header.generation >= previous || canary!(SessionIgnored))
        && lsn.0 % ring + blocks <= ring
        && lsn.0 + blocks <= superblock.log_tail.0 + ring
}

/// Whether a record behind `lsn` says that `lsn` was durable.
async fn claims_beyond(source: &Source<'_>, lsn: Lsn) -> Result<bool, Error> {
    let superblock = source.superblock;
    let ring = superblock.geometry.ring_blocks();
    // In deferred mode more is appended between two flushes: up to the bound before one begins,
    // and as much again while it runs.
    let deferred = superblock.flush_mode.bound().map_or(0, |bound| 2 * bound.bytes / BLOCK_BYTES);
    let last = (lsn.0 + LOOK_AHEAD_BLOCKS + deferred).min(superblock.log_tail.0 + ring);
    let mut ahead = LogReader::new(
        source.io,
        source.fast,
        superblock.geometry.layouts[0].log_at,
        ring,
        Lsn(lsn.0 + 1),
    );
    for at in (lsn.0 + 1..last).map(Lsn) {
        let Some(block) = ahead.block(at).await else { break };
        let Ok(block) = block else {
            // It may say so: what is certain is wanted.
            if source.rescue {
                return Ok(true);
            }
            continue;
        };
        if let Some(header) = decode_header(block, superblock.volume_tag(), at)
            && belongs(superblock, &header, 0, ring)
            && header.durable > lsn
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Counts the data blocks of a record that do not match their CRCs, and those that cannot be read.
async fn check_data(reader: &mut LogReader, header: &Header, changes: &[Entry]) -> (u64, u64) {
    let mut damaged = 0;
    let mut unreadable = 0;
    let mut place = header.lsn.0 + 1;
    for change in changes {
        let Entry::Data { crcs, .. } = change else { continue };
        for crc in crcs {
            match reader.block(Lsn(place)).await {
                Some(Ok(block)) if crc32c(block) == *crc || canary!(RecordUnchecked) => {}
                Some(Err(_)) => unreadable += 1,
                _ => damaged += 1,
            }
            place += 1;
        }
    }
    (damaged, unreadable)
}

fn apply_entries(
    state: &mut State,
    page_lsns: &[Lsn],
    lsn: Lsn,
    changes: &[Entry],
    pending: &mut VecDeque<Pending>,
) -> Result<(), Error> {
    let extents = state.map.extents();
    let blocks = extents * state.geometry.extent_blocks();
    let set = |state: &mut State, extent: ExtentId, residence: Residence| {
        // A page written after this record has the change, and perhaps later ones.
        let page = extent.0 / ENTRIES_PER_PAGE as u64;
        let late = canary!(ReplayBeginsLate) && lsn == page_lsns[page as usize];
        if lsn >= page_lsns[page as usize] && !late {
            state.map.set(extent, residence, lsn);
        } else {
            marks::hit(Mark::ChangeInPage);
            // A cut may have kept it from the slow drive's copy.
            state.map.mark_dirty(page, lsn);
        }
        if !canary!(ReplayNotDoubted) {
            state.doubts.touch(extent);
        }
    };
    let form = state.map.form();
    let extent_blocks = state.geometry.extent_blocks();
    let checked = |extent: ExtentId, raw: u64| match form.decode(raw, extent) {
        Some(entry)
            if extent.0 < extents && entry.part.is_none_or(|part| part.is_sound(extent_blocks)) =>
        {
            Ok(entry)
        }
        _ => Err(nonsense(lsn)),
    };
    let mut place = lsn.0 + 1;
    for n in 0..changes.len() {
        let n = if canary!(ReplayBackwards) { changes.len() - 1 - n } else { n };
        match &changes[n] {
            Entry::Data { start, crcs } => {
                let count = crcs.len() as u64;
                if start.0.checked_add(count).is_none_or(|end| end > blocks) {
                    return Err(nonsense(lsn));
                }
                state.log.replay_data(Lsn(place), *start, crcs);
                mark(state, *start, count);
                place += count;
            }
            Entry::Zero { start, count } => {
                let end = start.0.checked_add(u64::from(*count));
                if *count == 0 || end.is_none_or(|end| end > blocks) {
                    return Err(nonsense(lsn));
                }
                state.log.replay_zeros(lsn, *start, *count);
                mark(state, *start, u64::from(*count));
            }
            Entry::Lost { start, count } => {
                let end = start.0.checked_add(u64::from(*count));
                if *count == 0 || end.is_none_or(|end| end > blocks) {
                    return Err(nonsense(lsn));
                }
                state.log.replay_lost(lsn, *start, *count);
                mark(state, *start, u64::from(*count));
            }
            Entry::Allocate { extent, entry, crc } => {
                let entry = checked(*extent, *entry)?;
                set(state, *extent, entry);
                if !canary!(ReplayedFreshKeepsLog) {
                    state.forget_logged(*extent);
                }
                state.prove(|rescue| rescue.settle_whole(*extent));
                if let Some(home) = entry.home {
                    pending.push_back(Pending { lsn, extent: *extent, home, crc: *crc });
                }
            }
            Entry::Relocate { extent, entry } => {
                let entry = checked(*extent, *entry)?;
                set(state, *extent, entry);
                state.prove(|rescue| rescue.settle_home(*extent));
            }
            Entry::Unmap { first, count } => {
                let end = first.0.checked_add(u64::from(*count));
                if end.is_none_or(|end| end > extents) {
                    return Err(nonsense(lsn));
                }
                for extent in (first.0..first.0 + u64::from(*count)).map(ExtentId) {
                    state.prove(|rescue| rescue.settle_whole(extent));
                    if !state.map.get(extent).is_empty() {
                        set(state, extent, Residence::default());
                        if !canary!(ReplayedTrimKeepsLog) {
                            state.forget_logged(extent);
                        }
                    }
                }
            }
            Entry::Destaged { extent, entry, before } => {
                let entry = checked(*extent, *entry)?;
                set(state, *extent, entry);
                state.prove(|rescue| rescue.settle_destaged(*extent, *before));
                let mut left = false;
                for block in state.blocks_of(*extent) {
                    match state.log.lookup(block) {
                        Some(Logged::Lost { .. }) => left = true,
                        Some(_) if canary!(ReplayedDestageKeepsOlder) => left = true,
                        Some(version)
                            if version.lsn() < *before || canary!(ReplayedDestageForgetsNewer) =>
                        {
                            state.log.forget(block);
                        }
                        Some(_) => left = true,
                        None => {}
                    }
                }
                state.map.mark_in_log(*extent, left);
            }
            Entry::Pad => {}
        }
    }
    Ok(())
}

fn mark(state: &mut State, start: BlockId, count: u64) {
    if count > 0 && !canary!(ReplayNotMarked) {
        state.mark_logged(start.0 * BLOCK_BYTES, count * BLOCK_BYTES);
    }
}

pub(super) fn nonsense(lsn: Lsn) -> Error {
    Error::Damaged(format!(
        "the log record at {lsn} has a valid checksum but impossible content: it was not written \
         by a sound bimetal. Nothing was changed"
    ))
}
