//! The landing log: a ring of records on the fast drive, and what is in it.
//!
//! Invariants
//! * `tail ≤ recorded ≤ durable ≤ written ≤ head`. Records lie between tail and head without gaps;
//!   those before `written` are on the drive, before `durable` on stable storage, and before
//!   `recorded` a durable record or superblock says so.
//! * `durable` lies between two records: what is destaged next is durable, or nothing of it is.
//! * The order of LSNs is the order of changes: the index and the map always reflect every record
//!   appended so far, also those not yet written.
//! * The ring place of a block is reused only after the tail has passed it.
//!
//! This struct only decides. `writer.rs` writes the records, `checkpoint.rs` moves the tail.

mod index;
pub(crate) mod reader;
pub(crate) mod waits;
pub(crate) mod writer;

use std::collections::{BTreeSet, VecDeque};

use io::{Buf, HEADROOM_BYTES, Pool};

pub(crate) use index::{Index, Logged};

use crate::address::{BLOCK_BYTES, BlockId, Lsn};
use crate::canary::canary;
use crate::checksum::crc32c;
use crate::drive::Flushed;
use crate::format::record::{
    self, ENTRIES_END_MAX, Echo, Entry, HEADER_BYTES, Header, data_entry_bytes, encode_data,
    first_entry_at,
};
use crate::marks::{self, Mark};

/// Data blocks of a group-commit record: 256 KiB, the largest write most drives take whole.
const GROUP_BLOCKS_MAX: u64 = 64;
/// Data blocks of a record made of one large request, which is written without a copy.
pub(crate) const LARGE_BLOCKS_MAX: u64 = 256;
/// From this size on (64 KiB) a request is its own record: the copy would cost more than the
/// header block does.
pub(crate) const LARGE_BLOCKS_MIN: u64 = 16;

const BLOCK: usize = BLOCK_BYTES as usize;
const _: () =
    assert!(HEADROOM_BYTES == HEADER_BYTES && LARGE_BLOCKS_MAX < record::RECORD_BLOCKS_MAX);

/// In the owner table: this ring block is the header of a record of so many blocks.
const HEADER_MARK: u64 = 1 << 63;

/// The record that takes appends now. Its header block is the front of `buf`.
struct OpenRecord {
    buf: Buf,
    entries_end: usize,
    blocks: u64,
    blocks_max: u64,
}

/// A sealed record on its way to the drive.
pub(crate) struct Sealed {
    pub lsn: Lsn,
    /// Byte offset on the fast drive.
    pub position: u64,
    pub buf: Buf,
}

struct Flying {
    lsn: Lsn,
    end: Lsn,
    written: bool,
}

pub(crate) struct Log {
    ring_blocks: u64,
    /// Byte offset of the ring on the fast drive.
    ring_at: u64,
    volume_tag: u64,
    generation: u64,
    /// Where the next record begins; the open one, if there is one.
    head: Lsn,
    tail: Lsn,
    written: Lsn,
    durable: Lsn,
    recorded: Lsn,
    /// End of the last record that a client's request made.
    client_end: Lsn,
    open: Option<OpenRecord>,
    /// The last record but for its data: the next one repeats it.
    last: Option<Echo>,
    sealed: VecDeque<Sealed>,
    flying: VecDeque<Flying>,
    /// What sealed records say to be durable, with their ends, until they are durable themselves.
    claims: VecDeque<(Lsn, Lsn)>,
    index: Index,
    /// Per ring block: volume block + 1 of a data block, or a header's mark and length, or 0.
    owners: Vec<u64>,
    /// Zero and lost ranges in the log, in order of their LSNs.
    marks: VecDeque<(Lsn, BlockId, u32)>,
    /// Blocks whose newest version is damaged.
    lost: BTreeSet<BlockId>,
    /// Everything before this record is known to be dead.
    oldest_live: Lsn,
    /// Blocks appended again: which, where the newer version is, and the older one. Until the newer is written.
    carried: VecDeque<(BlockId, Lsn, Logged)>,
}

/// A block of the log that is still the newest version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Live {
    pub lsn: Lsn,
    pub block: BlockId,
    /// It has no data block: zeros, or lost.
    pub mark: bool,
}

impl Log {
    /// An empty log between `tail` and `tail`; recovery appends what it finds.
    pub fn new(ring_blocks: u64, ring_at: u64, volume_tag: u64, tail: Lsn) -> Log {
        Log {
            ring_blocks,
            ring_at,
            volume_tag,
            generation: 0,
            head: tail,
            tail,
            written: tail,
            durable: tail,
            recorded: tail,
            client_end: tail,
            open: None,
            last: None,
            sealed: VecDeque::new(),
            flying: VecDeque::new(),
            claims: VecDeque::new(),
            index: Index::default(),
            owners: vec![0; ring_blocks as usize],
            marks: VecDeque::new(),
            lost: BTreeSet::new(),
            oldest_live: tail,
            carried: VecDeque::new(),
        }
    }

    /// Begins a session: records are of this generation from now on, and all before is durable
    /// and recorded as such.
    pub fn begin_session(&mut self, generation: u64) {
        assert!(self.open.is_none() && self.flying.is_empty(), "a session begins on a quiet log");
        self.generation = generation;
        self.durable = self.head;
        self.recorded = self.head;
    }

    pub fn ring_blocks(&self) -> u64 {
        self.ring_blocks
    }

    pub fn tail(&self) -> Lsn {
        self.tail
    }

    pub fn written(&self) -> Lsn {
        self.written
    }

    pub fn durable(&self) -> Lsn {
        self.durable
    }

    pub fn recorded(&self) -> Lsn {
        self.recorded
    }

    /// End of everything appended so far.
    pub fn end(&self) -> Lsn {
        match &self.open {
            Some(open) => Lsn(self.head.0 + 1 + open.blocks),
            None => self.head,
        }
    }

    /// End of everything appended so far, if some of it is not written yet.
    pub fn unwritten_end(&self) -> Option<Lsn> {
        let end = self.end();
        (end > self.written).then_some(end)
    }

    pub fn client_end(&self) -> Lsn {
        self.client_end
    }

    /// Says that what was appended so far includes a client's change.
    pub fn note_client(&mut self) {
        self.client_end = self.end();
    }

    /// Blocks between tail and end.
    pub fn used_blocks(&self) -> u64 {
        self.end().0 - self.tail.0
    }

    /// Blocks that may still be appended, headers included.
    pub fn room_blocks(&self) -> u64 {
        self.ring_blocks - self.used_blocks()
    }

    /// Ring blocks that a request of so many data blocks may take at worst: a header per group and
    /// one for the record it has to seal, a further one at the end of the ring.
    pub fn worst_case_blocks(data_blocks: u64) -> u64 {
        data_blocks + data_blocks.div_ceil(GROUP_BLOCKS_MAX) + 3
    }

    /// Blocks whose newest version is in the log.
    pub fn live_blocks(&self) -> u64 {
        self.index.len()
    }

    pub fn memory_bytes(&self) -> u64 {
        self.index.memory_bytes() + self.owners.len() as u64 * 8
    }

    /// Blocks whose newest version is known to be damaged. They cannot be destaged.
    pub fn lost_blocks(&self) -> u64 {
        self.lost.len() as u64
    }

    /// Damaged blocks whose marks lie before `until`: the tail cannot pass them until they are
    /// marked anew.
    pub fn lost_before(&self, until: Lsn) -> Vec<BlockId> {
        let old = |block: &&BlockId| self.lookup(**block).is_some_and(|mark| mark.lsn() < until);
        self.lost.iter().filter(old).copied().collect()
    }

    /// The newest version of a block, if the log has it.
    pub fn lookup(&self, block: BlockId) -> Option<Logged> {
        self.index.get(block, self.tail, self.ring_blocks)
    }

    /// Byte offset of a log block on the fast drive.
    pub fn position(&self, lsn: Lsn) -> u64 {
        self.ring_at + lsn.0 % self.ring_blocks * BLOCK_BYTES
    }

    /// Forgets a block: its home is the newest version now.
    pub fn forget(&mut self, block: BlockId) {
        self.lost.remove(&block);
        self.index.remove(block);
    }

    /// Appends consecutive blocks, copying them into the open record; they may be spread over
    /// several records. Gives the LSN that must be written before the data is on the drive.
    pub fn append_data(&mut self, pool: &Pool, start: BlockId, data: &[u8]) -> Lsn {
        assert!(data.len().is_multiple_of(BLOCK), "whole blocks only");
        let mut done = 0;
        let total = (data.len() / BLOCK) as u64;
        while done < total {
            self.open_with_room(pool, total - done);
            let lsn = self.head;
            let open = self.open.as_mut().expect("just opened");
            let open_blocks = open.blocks;
            let entry_room = ENTRIES_END_MAX - open.entries_end;
            let by_entries = (entry_room.saturating_sub(16) / 8 * 2) as u64;
            let count = (total - done).min(open.blocks_max - open.blocks).min(by_entries);
            let bytes = &data[(done as usize) * BLOCK..][..count as usize * BLOCK];
            let at = HEADER_BYTES + open.blocks as usize * BLOCK;
            open.buf[at..at + bytes.len()].copy_from_slice(bytes);
            let first = BlockId(start.0 + done);
            let mut crcs = [0; GROUP_BLOCKS_MAX as usize];
            let crcs = checksums(bytes, &mut crcs);
            let header = &mut open.buf[..HEADER_BYTES];
            open.entries_end = encode_data(header, open.entries_end, first, crcs.iter().copied());
            open.blocks += count;
            self.index_run(first, Lsn(lsn.0 + 1 + open_blocks), crcs);
            done += count;
        }
        self.end()
    }

    /// Appends a block that the log has at `older` with the same data.
    pub fn append_carried(
        &mut self,
        pool: &Pool,
        block: BlockId,
        data: &[u8],
        older: Option<Logged>,
    ) {
        let written = self.written;
        while self.carried.pop_front_if(|(_, newer, _)| *newer < written).is_some() {}
        self.append_data(pool, block, data);
        if let (Some(newer), Some(older)) = (self.lookup(block), older) {
            self.carried.push_back((block, newer.lsn(), older));
        }
    }

    /// Nothing more will be written: what was carried and has not arrived is where it was.
    pub fn put_back_carried(&mut self) {
        for (block, newer, older) in std::mem::take(&mut self.carried) {
            let newest = self.lookup(block).is_some_and(|newest| newest.lsn() == newer);
            if newer >= self.written && newest && !canary!(CarriedNotPutBack) {
                self.index.insert(block, older, self.ring_blocks);
            }
        }
        self.oldest_live = self.tail;
    }

    /// Makes one large request a record of its own, without a copy, if it fits before the end of
    /// the ring. The caller writes `buf` (grown by the header) at the position given and then
    /// calls [`Log::settle_written`]; the third value is the record's end.
    pub fn append_large(&mut self, start: BlockId, buf: &mut Buf) -> Option<(Lsn, u64, Lsn)> {
        let blocks = (buf.len() / BLOCK) as u64;
        let large = (LARGE_BLOCKS_MIN..=LARGE_BLOCKS_MAX).contains(&blocks);
        if !large || buf.headroom() < HEADER_BYTES {
            return None;
        }
        let begin = self.end();
        let crosses = begin.0 % self.ring_blocks + 1 + blocks > self.ring_blocks;
        if crosses && !canary!(RecordCrossesEnd) {
            return None;
        }
        self.seal_open();
        let lsn = self.head;
        buf.grow_front(HEADER_BYTES);
        let (header, data) = buf.split_at_mut(HEADER_BYTES);
        let mut crcs = [0; LARGE_BLOCKS_MAX as usize];
        let crcs = checksums(data, &mut crcs);
        let entries_end = encode_data(header, first_entry_at(), start, crcs.iter().copied());
        self.seal(buf, entries_end, blocks);
        self.index_run(start, Lsn(lsn.0 + 1), crcs);
        Some((lsn, self.position(lsn), self.head))
    }

    /// Appends a change without data. Gives the LSN of the record that carries it.
    pub fn append_entry(&mut self, pool: &Pool, entry: &Entry) -> Lsn {
        let bytes = entry.encoded_bytes();
        if let Some(open) = &self.open
            && open.entries_end + bytes > ENTRIES_END_MAX
        {
            self.seal_open();
        }
        if self.open.is_none() {
            self.open_record(pool, 0);
        }
        let lsn = self.head;
        let open = self.open.as_mut().expect("just opened");
        open.entries_end = entry.encode(&mut open.buf[..HEADER_BYTES], open.entries_end);
        match entry {
            Entry::Zero { start, count } => {
                self.index_marks(lsn, *start, *count, Logged::Zero { lsn });
            }
            Entry::Lost { start, count } => {
                self.index_marks(lsn, *start, *count, Logged::Lost { lsn });
            }
            _ => {}
        }
        lsn
    }

    /// Appends a record that says nothing but what is durable.
    pub fn append_durable_point(&mut self, pool: &Pool) {
        self.seal_open();
        self.open_record(pool, 0);
        self.seal_open();
    }

    /// The next record to write, sealing the open one if no sealed one waits.
    pub fn next_sealed(&mut self) -> Option<Sealed> {
        if self.sealed.is_empty() {
            self.seal_open();
        }
        self.sealed.pop_front()
    }

    /// A record has reached the drive. Records count as written in order, without gaps.
    pub fn settle_written(&mut self, lsn: Lsn) {
        let record = self.flying.iter_mut().find(|record| record.lsn == lsn);
        let record = record.expect("a record is written once");
        record.written = true;
        if canary!(GapsCountAsWritten) {
            self.written = self.written.max(record.end);
        }
        while let Some(record) = self.flying.front()
            && record.written
        {
            self.written = self.written.max(record.end);
            self.flying.pop_front();
        }
    }

    /// Both drives were flushed after everything before `until`, the end of a record, had been written.
    pub fn settle_durable(&mut self, until: Lsn, _: &Flushed) {
        let between = until <= self.durable || self.claims.iter().any(|(end, _)| *end == until);
        // What is in the rest of a record would be neither flushed nor, being as old as what is, waited for.
        assert!(between, "{until} is inside a record");
        self.durable = self.durable.max(until);
        while let Some((end, claim)) = self.claims.front()
            && (*end <= self.durable || canary!(ClaimNotDurable))
        {
            self.recorded = self.recorded.max(*claim);
            self.claims.pop_front();
        }
    }

    /// A durable superblock says that everything before `until` is durable.
    pub fn settle_recorded(&mut self, until: Lsn, _: &Flushed) {
        self.recorded = self.recorded.max(until);
    }

    /// The ring places before `tail` may be reused: a durable superblock says so.
    pub fn advance_tail(&mut self, tail: Lsn, _: &Flushed) {
        assert!(self.tail <= tail && tail <= self.recorded, "the tail moves over durable records");
        self.tail = tail;
    }

    /// The LSN of the oldest record that holds a newest version of anything; the end if none.
    pub fn oldest_live(&mut self) -> Lsn {
        while self.oldest_live < self.head {
            let lsn = self.oldest_live;
            let owner = self.owners[(lsn.0 % self.ring_blocks) as usize];
            assert!(owner & HEADER_MARK != 0, "{lsn} is not the start of a record");
            let blocks = owner & !HEADER_MARK;
            let data_lives = (1..blocks).any(|n| self.live_at(Lsn(lsn.0 + n)).is_some());
            if data_lives || self.marks_live_until(lsn) && !canary!(TailPassesMarks) {
                break;
            }
            self.oldest_live = Lsn(lsn.0 + blocks);
        }
        self.oldest_live
    }

    /// Where the oldest block is that is still the newest version.
    pub fn oldest_live_block(&mut self) -> Option<Lsn> {
        let mut oldest = None;
        self.visit_live(self.head, |live| {
            oldest = Some(live.lsn);
            false
        });
        oldest
    }

    /// Live blocks in order of their LSNs, from the oldest to `until` (exclusive), told to `visit`
    /// until it says to stop. Zero ranges are told block by block.
    pub fn visit_live(&mut self, until: Lsn, mut visit: impl FnMut(Live) -> bool) {
        let mut lsn = self.oldest_live();
        let mut marks = self.marks.iter().peekable();
        while lsn < until.min(self.head) {
            let blocks = self.owners[(lsn.0 % self.ring_blocks) as usize] & !HEADER_MARK;
            while let Some((at, start, count)) = marks.next_if(|(at, ..)| *at <= lsn) {
                for block in (start.0..start.0 + u64::from(*count)).map(BlockId) {
                    if self.is_marked_at(block, *at) && !visit(Live { lsn: *at, block, mark: true })
                    {
                        return;
                    }
                }
            }
            for n in 1..blocks {
                if let Some(live) = self.live_at(Lsn(lsn.0 + n))
                    && !visit(live)
                {
                    return;
                }
            }
            lsn = Lsn(lsn.0 + blocks);
        }
    }

    fn live_at(&self, lsn: Lsn) -> Option<Live> {
        let owner = self.owners[(lsn.0 % self.ring_blocks) as usize];
        let block = BlockId(owner.checked_sub(1)?);
        match self.lookup(block) {
            Some(Logged::Data { lsn: newest, .. }) if newest == lsn => {
                Some(Live { lsn, block, mark: false })
            }
            _ => None,
        }
    }

    /// Drops dead marks of records up to `lsn`; says whether one of them still lives.
    fn marks_live_until(&mut self, lsn: Lsn) -> bool {
        while let Some((at, start, count)) = self.marks.front().copied()
            && at <= lsn
        {
            let range = start.0..start.0 + u64::from(count);
            if range.map(BlockId).any(|block| self.is_marked_at(block, at)) {
                return true;
            }
            self.marks.pop_front();
        }
        false
    }

    fn is_marked_at(&self, block: BlockId, at: Lsn) -> bool {
        matches!(self.lookup(block), Some(Logged::Zero { lsn } | Logged::Lost { lsn }) if lsn == at)
    }

    fn index_data(&mut self, block: BlockId, lsn: Lsn, crc: u32) {
        self.lost.remove(&block);
        self.owners[(lsn.0 % self.ring_blocks) as usize] = block.0 + 1;
        self.index.insert(block, Logged::Data { lsn, crc }, self.ring_blocks);
    }

    fn index_run(&mut self, first: BlockId, place: Lsn, crcs: &[u32]) {
        for (n, crc) in (0..).zip(crcs) {
            self.index_data(BlockId(first.0 + n), Lsn(place.0 + n), *crc);
        }
    }

    fn index_marks(&mut self, lsn: Lsn, start: BlockId, count: u32, version: Logged) {
        for block in (start.0..start.0 + u64::from(count)).map(BlockId) {
            if matches!(version, Logged::Lost { .. }) {
                self.lost.insert(block);
            } else {
                self.lost.remove(&block);
            }
            self.index.insert(block, version, self.ring_blocks);
        }
        self.marks.push_back((lsn, start, count));
    }

    /// The open record, with room for a data entry of at least one block.
    fn open_with_room(&mut self, pool: &Pool, wanted: u64) {
        let full = self.open.as_ref().is_some_and(|open| {
            open.blocks == open.blocks_max
                || open.entries_end + data_entry_bytes(1) > ENTRIES_END_MAX
        });
        if full {
            self.seal_open();
        }
        if self.open.is_none() {
            self.open_record(pool, wanted);
            if self.open.as_ref().is_some_and(|open| open.blocks_max == 0) {
                // One block is left in the ring: a record without data fills it.
                marks::hit(Mark::LogPadded);
                self.seal_open();
                self.open_record(pool, wanted);
            }
        }
        // A record opened for entries alone has no data area; its successor has.
        if self.open.as_ref().is_some_and(|open| open.blocks_max == 0) {
            self.seal_open();
            self.open_with_room(pool, wanted);
        }
    }

    /// Opens a record. With `wanted` 0 it takes entries, and data as far as a small buffer holds.
    fn open_record(&mut self, pool: &Pool, wanted: u64) {
        let left = self.ring_blocks - self.head.0 % self.ring_blocks;
        let blocks_max = if wanted == 0 { 4 } else { GROUP_BLOCKS_MAX }.min(left - 1);
        let mut buf = pool.take(blocks_max as usize * BLOCK);
        buf.grow_front(HEADER_BYTES);
        self.open = Some(OpenRecord { buf, entries_end: first_entry_at(), blocks: 0, blocks_max });
    }

    fn seal_open(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        open.buf.truncate(HEADER_BYTES + open.blocks as usize * BLOCK);
        let lsn = self.head;
        self.seal(&mut open.buf, open.entries_end, open.blocks);
        let position = self.position(lsn);
        self.sealed.push_back(Sealed { lsn, position, buf: open.buf });
    }

    fn seal(&mut self, buf: &mut Buf, entries_end: usize, data_blocks: u64) {
        let blocks = 1 + data_blocks;
        assert!(self.used_blocks() + blocks <= self.ring_blocks, "the log overran its tail");
        let header = Header {
            lsn: self.head,
            generation: self.generation,
            durable: if canary!(WrittenClaimedDurable) { self.written } else { self.durable },
            blocks: blocks as u32,
        };
        record::seal(buf, self.volume_tag, header, entries_end, self.last.as_ref());
        self.last.get_or_insert_default().take(buf, &header);
        self.owners[(self.head.0 % self.ring_blocks) as usize] = HEADER_MARK | blocks;
        let end = Lsn(self.head.0 + blocks);
        if end.0 / self.ring_blocks > self.head.0 / self.ring_blocks {
            marks::hit(Mark::LogWrapped);
        }
        self.flying.push_back(Flying { lsn: self.head, end, written: false });
        self.claims.push_back((end, self.durable));
        self.head = end;
    }

    /// Closes the open record: later changes get a later LSN.
    pub fn seal_now(&mut self) {
        self.seal_open();
    }

    /// What the next record will repeat of the last.
    pub fn last(&self) -> Option<&Echo> {
        self.last.as_ref()
    }

    /// Takes a record that recovery read from the drive into the books, before its entries.
    pub fn replay_header(&mut self, header: &Header, block: &[u8]) {
        assert_eq!(header.lsn, self.head, "records are replayed in order");
        self.last.get_or_insert_default().take(block, header);
        let place = (self.head.0 % self.ring_blocks) as usize;
        self.owners[place] = HEADER_MARK | u64::from(header.blocks);
        for n in 1..u64::from(header.blocks) {
            self.owners[((self.head.0 + n) % self.ring_blocks) as usize] = 0;
        }
        let end = Lsn(self.head.0 + u64::from(header.blocks));
        if end.0 / self.ring_blocks > self.head.0 / self.ring_blocks {
            marks::hit(Mark::ReplayWrapped);
        }
        self.head = end;
        self.written = self.head;
    }

    /// Leaves out what recovery could not read, up to `next`: it counts as one record of nothing.
    pub fn skip_to(&mut self, next: Lsn) {
        for lsn in self.head.0..next.0 {
            self.owners[(lsn % self.ring_blocks) as usize] = 0;
        }
        self.owners[(self.head.0 % self.ring_blocks) as usize] =
            HEADER_MARK | (next.0 - self.head.0);
        self.last = None;
        self.head = next;
        self.written = next;
    }

    /// Replays a data entry whose first block lies at `place`.
    pub fn replay_data(&mut self, place: Lsn, start: BlockId, crcs: &[u32]) {
        self.index_run(start, place, crcs);
    }

    /// Replays a zero entry of the record at `lsn`.
    pub fn replay_zeros(&mut self, lsn: Lsn, start: BlockId, count: u32) {
        self.index_marks(lsn, start, count, Logged::Zero { lsn });
    }

    /// Replays a lost entry of the record at `lsn`.
    pub fn replay_lost(&mut self, lsn: Lsn, start: BlockId, count: u32) {
        self.index_marks(lsn, start, count, Logged::Lost { lsn });
    }
}

/// The CRC of each block of `data`, into the front of `crcs`.
fn checksums<'a>(data: &[u8], crcs: &'a mut [u32]) -> &'a [u32] {
    let blocks = data.len() / BLOCK;
    for (crc, block) in crcs.iter_mut().zip(data.chunks_exact(BLOCK)) {
        *crc = crc32c(block);
    }
    &crcs[..blocks]
}

#[cfg(test)]
mod tests;
