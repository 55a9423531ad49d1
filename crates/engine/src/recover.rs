//! Bringing a volume up from what is on its drives: load the map pages, replay the log.
//!
//! Where the log ends: at the first place that holds no record of this log, or a record whose data
//! or allocation did not arrive completely *and* that nobody claimed to be durable. What was
//! claimed durable and is damaged is no end but damage, and is reported, never skipped in silence.

use std::collections::{BTreeSet, VecDeque};

use io::{Buf, Io, Transfer};

use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Home, Lsn, Tier};
use crate::canary::canary;
use crate::checksum::crc32c;
use crate::doubts;
use crate::drive::{Drive, Watched};
use crate::error::Error;
use crate::format::map_page::{
    ENTRIES_PER_PAGE, PAGE_BYTES, PageCopy, Residence, entries, examine,
};
use crate::format::record::{
    Entry, Header, RECORD_BLOCKS_MAX, decode_echo, decode_entries, decode_header,
};
use crate::format::superblock::{State as Left, Superblock};
use crate::log::reader::LogReader;
use crate::log::{Log, Logged};
use crate::marks::{self, Mark};
use crate::rescue::{self, Rescue};
use crate::state::State;

/// Map pages read at once (both copies: 1 MiB).
const PAGES_PER_READ: u64 = 128;
/// Reads of the map under way, on each drive.
const READS_AHEAD: usize = 4;
/// Blocks beyond a damaged header in which a later record is looked for that claims the damaged
/// one durable: 64 MiB, more than is appended while one flush runs (20 ms at 3 GB/s).
const LOOK_AHEAD_BLOCKS: u64 = 16_384;
/// Extents verified at once.
const VERIFY_AHEAD: usize = 8;

/// The drives and superblock a volume is brought up from.
pub(crate) struct Source<'a> {
    pub io: &'a Io,
    pub fast: &'a Drive,
    pub slow: &'a Drive,
    /// The fast drive's, or the slow one's if that is all there is.
    pub superblock: &'a Superblock,
    /// The slow drive keeps a doubt page.
    pub doubt_page: bool,
    /// Damage refuses nothing: what cannot be proven then counts as lost (`rescue.rs`).
    pub rescue: bool,
}

impl Source<'_> {
    /// Class cache in write-through: all that was flushed is on the slow drive.
    fn is_through(&self) -> bool {
        self.superblock.brings_home()
    }

    /// The drive that is there, if one is gone.
    fn survivor(&self) -> Option<&Drive> {
        match (self.fast.gone(), self.slow.gone()) {
            (None, None) => None,
            (None, Some(_)) => Some(self.fast),
            (Some(_), _) => Some(self.slow),
        }
    }

    /// Where the log ends, if the volume was closed in order: nothing was appended since.
    fn known_end(&self) -> Option<Lsn> {
        (self.superblock.state == Left::Clean).then_some(self.superblock.log_durable)
    }
}

/// An allocation that must be verified by its data.
struct Pending {
    lsn: Lsn,
    extent: ExtentId,
    home: Home,
    crc: u32,
}

enum Attempt {
    Done(Box<State>),
    /// The record at this LSN has lost its data: the log ends before it.
    EndsAt(Lsn),
}

/// Brings the state up. Changes nothing on the drives.
///
/// # Errors
/// `Error::Damaged` when metadata is beyond repair, or a device's error.
pub(crate) async fn recover(source: &Source<'_>) -> Result<State, Error> {
    let mut end = None;
    loop {
        match attempt(source, end).await? {
            Attempt::Done(state) => return Ok(*state),
            Attempt::EndsAt(lsn) => {
                marks::hit(Mark::FreshDropped);
                end = Some(lsn);
            }
        }
    }
}

async fn attempt(source: &Source<'_>, stop_at: Option<Lsn>) -> Result<Attempt, Error> {
    let superblock = source.superblock;
    let geometry = &superblock.geometry;
    let layout = &geometry.layouts[0];
    let tag = superblock.volume_tag();
    let log = Log::new(geometry.ring_blocks(), layout.log_at, tag, superblock.log_tail);
    let in_place = [source.fast, source.slow].map(Drive::writes_blocks_atomically);
    let mut state = State::new(geometry, superblock.entry_form(), log, in_place);
    state.rescue = source.rescue.then(|| Box::new(Rescue::new(geometry.extents())));
    for drive in [source.fast, source.slow] {
        if let Some(why) = drive.gone() {
            state.loss.get_or_insert_default().add(drive.tier(), why);
        }
    }
    if source.doubt_page {
        doubts::read(source.io, source.slow, &mut state.doubts, tag).await;
    }
    let page_lsns = load_map(source, &mut state).await?;
    if source.fast.gone().is_some() {
        if source.is_through() {
            let newest = page_lsns.iter().max().map_or(0, |lsn| lsn.0);
            trust_homes(&mut state, Lsn(newest.max(superblock.log_durable.0) + 1));
        } else {
            trust_slow_drive(&mut state);
        }
        rescue::settle(&mut state);
        return Ok(Attempt::Done(Box::new(state)));
    }
    if page_lsns.iter().any(|lsn| *lsn > superblock.log_durable) {
        marks::hit(Mark::CheckpointWasCut);
    }
    let (pending, bytes) = replay(source, &mut state, &page_lsns, stop_at).await?;
    state.recovery.log_bytes = bytes;
    // A page is written only when all it holds is durable in the log.
    if !source.rescue
        && !canary!(PageAheadAccepted)
        && let Some(ahead) = page_lsns.iter().position(|lsn| *lsn > state.log.end())
    {
        return Err(Error::Damaged(format!(
            "map page {ahead} knows of changes up to {}, but the landing log on {} ends at {}: \
             durable records are gone. Nothing was changed; restore an image of the drive if there \
             is one",
            page_lsns[ahead],
            source.fast.info().path,
            state.log.end()
        )));
    }
    if let Some(lsn) = verify(source, &mut state, pending).await? {
        return Ok(Attempt::EndsAt(lsn));
    }
    state.recovery.blocks_damaged += state.log.lost_blocks();
    if source.rescue {
        rescue::claim_slots(&mut state);
    } else {
        claim_slots(&mut state, &page_lsns)?;
    }
    rescue::settle(&mut state);
    Ok(Attempt::Done(Box::new(state)))
}

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
async fn load_map(source: &Source<'_>, state: &mut State) -> Result<Vec<Lsn>, Error> {
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
    let from_slow = slow.newest().map(|(_, lsn)| lsn) > fast.newest().map(|(_, lsn)| lsn);
    let (from, other) = if from_slow { (slow, fast) } else { (fast, slow) };
    let damaged = fast.is_damaged() || slow.is_damaged();
    let Some((copy, lsn)) = from.newest() else {
        // Without damage nothing was ever written. With it: no checkpoint of this page ever came
        // to its end on both drives, so the log has everything, and what is damaged was torn or
        // never meant anything. Unless all of it is damaged: then only a log that goes back to the
        // making of the volume surely has everything.
        let torn = fast.judged.contains(&PageCopy::Blank) || slow.is_blank();
        // After a close nothing is torn. What was never written is blank on a whole drive then.
        let unwritten = fast.is_blank() || slow.is_blank();
        let lost = !torn || damaged && !unwritten && source.known_end().is_some();
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
    if overwritten(fast) && overwritten(slow) && source.known_end().is_some() {
        // A cut in the middle of a checkpoint leaves this, and then the log has what they had. But
        // there was none since the volume was opened, which mends such copies.
        return lose_page(state, page, page_lost(source, page));
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
        let Some(residence) = state.map.form().decode(raw, ExtentId(extent)) else {
            let text = format!("map page {page} holds an impossible entry for extent {extent}");
            let Some(rescue) = &mut state.rescue else { return Err(Error::Damaged(text)) };
            rescue.note(text);
            rescue.lose(ExtentId(extent));
            continue;
        };
        if residence.0.is_some() {
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

/// The fast drive is gone, and everything is at home: nothing is missing.
fn trust_homes(state: &mut State, lsn: Lsn) {
    for extent in (0..state.map.extents()).map(ExtentId) {
        if state.map.get(extent).is_clean() {
            let own = state.geometry.own_slot(extent);
            state.map.load(extent, (own, None));
        }
    }
    state.begin_alone(lsn);
}

/// The fast drive is gone, and with it the log. What the slow drive's map says is the truth only
/// where it carries no mark of doubt, and where what it says can be.
fn trust_slow_drive(state: &mut State) {
    let extents = state.map.extents();
    let mut loss = state.loss.clone().unwrap_or_default();
    let mut impossible = BTreeSet::new();
    for extent in (0..extents).map(ExtentId) {
        if state.doubts.is_marked(extent) && !canary!(DoubtsUnheard) {
            loss.mark_unknown(extent, extents);
        } else if let Some(home) = state.readable_home(extent)
            && home.tier == Tier::Slow
            && !state.slots[Tier::Slow.index()].claim(home.slot)
        {
            impossible.insert(home);
        }
    }
    if !impossible.is_empty() {
        // One slot of two extents, or none at all: then neither extent is believed.
        for extent in (0..extents).map(ExtentId) {
            if state.readable_home(extent).is_some_and(|home| impossible.contains(&home)) {
                loss.mark_unknown(extent, extents);
            }
        }
    }
    state.loss = Some(loss);
}

/// Replays the log into the state. Gives the allocations to verify and the bytes read.
async fn replay(
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
    let checked = |extent: ExtentId, raw: u64| match form.decode(raw, extent) {
        Some(entry) if extent.0 < extents => Ok(entry),
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
                if let (Some(home), _) = entry {
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
                        set(state, extent, (None, None));
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

fn nonsense(lsn: Lsn) -> Error {
    Error::Damaged(format!(
        "the log record at {lsn} has a valid checksum but impossible content: it was not written \
         by a sound bimetal. Nothing was changed"
    ))
}

/// Verifies allocations that nobody claimed durable; gives the LSN of the first whose data did
/// not arrive.
async fn verify(
    source: &Source<'_>,
    state: &mut State,
    pending: Vec<Pending>,
) -> Result<Option<Lsn>, Error> {
    let geometry = &source.superblock.geometry;
    let mut under_way = VecDeque::new();
    let mut pending = pending.into_iter();
    loop {
        while under_way.len() < VERIFY_AHEAD
            && let Some(allocation) = pending.next()
        {
            let home = allocation.home;
            if home.slot.0 >= geometry.layouts[home.tier.index()].slots {
                give_up(state, &allocation, nonsense(allocation.lsn))?;
                continue;
            }
            let drive = if home.tier == Tier::Fast { source.fast } else { source.slow };
            if drive.gone().is_some() {
                // Whether it arrived or not, the extent is lost.
                continue;
            }
            let buf = source.io.pool().take(geometry.extent_bytes as usize);
            under_way.push_back((allocation, drive.read(geometry.position(home), buf)));
        }
        let Some((allocation, transfer)) = under_way.pop_front() else { return Ok(None) };
        let (buf, outcome) = transfer.await;
        // Whether the data arrived before the crash cannot be known: to take it for missing could
        // lose flushed writes, to take it for present could show what was never written.
        if let Err(error) = outcome {
            let at = allocation.extent.0 * geometry.extent_bytes;
            let refusal = error.within(format!(
                "the volume's bytes {at} to {} were written shortly before the crash, to byte {} \
                 of the {} drive, which cannot be read now. Nothing was changed and nothing is \
                 given up: make the drive readable again (cable, power, controller), or restore \
                 that range from an image, and open the volume again",
                at + geometry.extent_bytes,
                geometry.position(allocation.home),
                allocation.home.tier,
            ));
            give_up(state, &allocation, refusal.into())?;
            continue;
        }
        if crc32c(&buf) != allocation.crc && !canary!(FreshUnchecked) {
            return Ok(Some(allocation.lsn));
        }
        marks::hit(Mark::FreshVerified);
    }
}

/// An allocation of which nobody knows whether it happened.
fn give_up(state: &mut State, allocation: &Pending, refusal: Error) -> Result<(), Error> {
    let Some(rescue) = &mut state.rescue else { return Err(refusal) };
    rescue.note(refusal.to_string());
    rescue.lose(allocation.extent);
    Ok(())
}

/// Marks the slots in use. Two extents in one slot, or a slot outside the drive, is damage.
/// Pages that were never written and not replayed into hold holes only, and are passed over.
fn claim_slots(state: &mut State, page_lsns: &[Lsn]) -> Result<(), Error> {
    for (page, lsn) in (0..).zip(page_lsns) {
        if *lsn == Lsn(0) && !state.map.is_dirty(page) {
            continue;
        }
        let first = page * ENTRIES_PER_PAGE as u64;
        let end = (first + ENTRIES_PER_PAGE as u64).min(state.map.extents());
        for extent in (first..end).map(ExtentId) {
            for home in state.owned_by(extent).into_iter().flatten() {
                if !state.slots[home.tier.index()].claim(home.slot) {
                    return Err(Error::Damaged(format!(
                        "extent {} is mapped to slot {} of the {} drive, which does not exist or \
                         belongs to another extent. Nothing was changed",
                        extent.0, home.slot.0, home.tier
                    )));
                }
            }
        }
    }
    Ok(())
}
