//! What a volume may answer: every write begun and ended, every flush, and from these the values
//! each block may hold, while it runs and after a power cut.
//!
//! * While running, a read shows each write that ended before the read began, unless covered by a
//!   later one; writes in flight meanwhile may show, sector by sector.
//! * After a cut, a block shows some of its writes, each whole or not at all: those that must be
//!   there (a flush that began after their end has ended, or they were asked to be durable on
//!   their own) and any others, ended or not. Where there is no landing log those others may be torn,
//!   sector by sector ([`Oracle::allow_torn`]).
//! * What is seen after a cut is durable from then on: a second cut may not take it back.
//!
//! Plain data: it can be copied, and sent to another thread, with the drives it speaks of.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use crate::history::{Entry, History, Tick, Weight};
use crate::sector::{BLOCK_SECTORS, SECTOR_BYTES, Value, identify};

/// Bytes in a block.
pub const BLOCK_BYTES: u64 = 4096;

/// Writes of a block that a failure report shows.
const TAIL_MAX: usize = 16;

/// What a write does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// Stores data.
    Data,
    /// Makes zeros, to the byte.
    Zeroes,
    /// Makes zeros of whole blocks; ragged edges may stay as they were.
    Trim,
}

#[derive(Debug, Clone)]
struct Record {
    deed: Deed,
    /// First byte and end.
    bytes: Range<u64>,
    begun: Tick,
    ended: Option<Tick>,
    /// Virtual time when it ended well.
    ended_ns: u64,
    failed: bool,
    forced: bool,
    /// Power cuts before it.
    cuts: u32,
}

/// A read under way.
#[must_use = "a read must be checked or dropped by its oracle"]
#[derive(Debug)]
pub struct Reading(Tick);

/// A flush under way.
#[must_use = "a flush counts only when it has ended"]
#[derive(Debug)]
pub struct Flushing {
    begun: Tick,
    /// It promises something: not so in deferred mode.
    counts: bool,
}

/// Knows what a volume may answer.
#[derive(Debug, Clone)]
pub struct Oracle {
    /// Number of a write is its index; 0 is nobody's, so that zeros never name a write.
    records: Vec<Record>,
    blocks: BTreeMap<u64, History>,
    tick: Tick,
    /// What ended by this moment is durable.
    durable_until: Tick,
    /// What ended by this moment has reached the drives: only power can take it.
    ordered_until: Tick,
    /// Reads under way by the moment they began.
    reading: BTreeMap<Tick, u32>,
    cuts: u32,
    /// Virtual time, as last told.
    now_ns: u64,
    /// Flushes promise nothing.
    deferring: bool,
    /// The bound on what a cut may take, while what survives must be a prefix of the writes.
    bound_ns: Option<u64>,
    /// How many bytes of it.
    bytes_max: Option<u64>,
    /// As that was when the volume last fell, if it was not about to change.
    lost_bytes_max: Option<u64>,
    /// What has ended may be in the memory of the process alone.
    behind: bool,
    /// Power has failed, and not all that it may have taken has been looked at.
    uncertain: bool,
    /// What a cut leaves of a write that need not survive is each sector of it on its own.
    torn: bool,
    /// A change of what flushes promise has begun, then, and not ended: either may hold, and the bound
    /// is kept no more.
    changing_since_ns: Option<u64>,
}

impl Default for Oracle {
    fn default() -> Oracle {
        let nobody = Record {
            deed: Deed::Zeroes,
            bytes: 0..0,
            begun: 0,
            ended: Some(0),
            ended_ns: 0,
            failed: false,
            forced: true,
            cuts: 0,
        };
        Oracle {
            records: vec![nobody],
            blocks: BTreeMap::new(),
            tick: 0,
            durable_until: 0,
            ordered_until: 0,
            reading: BTreeMap::new(),
            cuts: 0,
            now_ns: 0,
            deferring: false,
            bound_ns: None,
            bytes_max: None,
            lost_bytes_max: None,
            behind: true,
            uncertain: false,
            torn: false,
            changing_since_ns: None,
        }
    }
}

impl Oracle {
    /// An oracle of a new volume: all zeros.
    pub fn new() -> Oracle {
        Oracle::default()
    }

    /// A write of `length` bytes at byte `at` begins; `forced` asks it to be durable when it
    /// ends. Gives its number, with which data must be stamped.
    pub fn begin_write(&mut self, deed: Deed, at: u64, length: u64, forced: bool) -> u32 {
        let begun = self.step();
        let forced = forced && !self.deferring;
        let write = u32::try_from(self.records.len()).expect("a hunt has fewer than 2^32 writes");
        let bytes = at..at + length;
        let (ended, ended_ns, failed, cuts) = (None, 0, false, self.cuts);
        self.records.push(Record {
            deed,
            bytes: bytes.clone(),
            begun,
            ended,
            ended_ns,
            failed,
            forced,
            cuts,
        });
        let reads_since = self.reads_since();
        for block in blocks(&bytes) {
            let mask = mask(&bytes, block);
            let optional = deed == Deed::Trim && mask != u8::MAX;
            let zeros = deed != Deed::Data;
            let entry = Entry { write, mask, zeros, optional, begun, ended: None, forced };
            let durable_until = self.durable_until;
            let history = self.blocks.entry(block).or_default();
            history.prune(|entry| durable(entry, durable_until), reads_since);
            history.entries.push(entry);
        }
        write
    }

    /// The write has ended, well or not. After a failure it may or may not take effect, whenever
    /// it likes.
    pub fn end_write(&mut self, write: u32, well: bool) {
        let ended = self.step();
        let record = &mut self.records[write as usize];
        record.failed = !well;
        if !well {
            return;
        }
        record.ended = Some(ended);
        record.ended_ns = self.now_ns;
        for block in blocks(&record.bytes) {
            let history = self.blocks.get_mut(&block).expect("entered when it began");
            for entry in history.entries.iter_mut().filter(|entry| entry.write == write) {
                entry.ended = Some(ended);
            }
        }
    }

    /// A flush begins.
    pub fn begin_flush(&mut self) -> Flushing {
        Flushing { begun: self.step(), counts: !self.deferring }
    }

    /// Something begins that makes everything durable whatever flushes promise, a close or a change
    /// of the promise; it ends with [`Oracle::end_flush`].
    pub fn begin_close(&mut self) -> Flushing {
        Flushing { begun: self.step(), counts: true }
    }

    /// Virtual time is this now.
    pub fn tell_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// What flushes promise begins to change: to something with a bound, or to what they say.
    pub fn begin_promise(&mut self, bound_ns: Option<u64>) {
        self.changing_since_ns.get_or_insert(self.now_ns);
        self.deferring |= bound_ns.is_some();
    }

    /// From now on a cut leaves a prefix of the writes, with all that ended so long before it
    /// and more. `None`: flushes promise again what they say.
    pub fn defer(&mut self, bound_ns: Option<u64>) {
        self.bound_ns = bound_ns;
        self.deferring = bound_ns.is_some();
        self.changing_since_ns = None;
    }

    /// So many bytes of what has ended may be taken by a cut while it keeps order.
    pub(crate) fn limit_bytes(&mut self, bytes_max: Option<u64>) {
        self.bytes_max = bytes_max;
    }

    /// The volume has been opened again and says what flushes promise.
    ///
    /// # Errors
    /// When that is not what was last asked for, in words.
    pub fn reopened(&mut self, bound_ns: Option<u64>) -> Result<(), String> {
        if self.changing_since_ns.is_none() && bound_ns != self.bound_ns {
            return Err(format!(
                "a cut may take what is so many nanoseconds old: {bound_ns:?}, but {:?} was asked for",
                self.bound_ns
            ));
        }
        self.defer(bound_ns);
        self.opened();
        Ok(())
    }

    /// Whether what survives a cut must be a prefix of the writes.
    pub fn keeps_order(&self) -> bool {
        self.bound_ns.is_some()
    }

    /// How old what a cut takes may be.
    pub(crate) fn bound_ns(&self) -> Option<u64> {
        self.bound_ns
    }

    /// The flush has ended well.
    pub fn end_flush(&mut self, flushing: Flushing) {
        self.step();
        self.ordered_until = self.ordered_until.max(flushing.begun);
        if flushing.counts {
            self.durable_until = self.durable_until.max(flushing.begun);
        }
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> Reading {
        let begun = self.step();
        self.reading.insert(begun, 1);
        Reading(begun)
    }

    /// The read has failed, which is no lie.
    pub fn drop_read(&mut self, reading: Reading) {
        self.reading.remove(&reading.0);
    }

    /// The read of `bytes` at byte `at` has ended: is it true?
    ///
    /// # Errors
    /// What is wrong, with the history of the block, in words.
    pub fn check_read(&mut self, reading: Reading, at: u64, bytes: &[u8]) -> Result<(), String> {
        let begun = reading.0;
        self.reading.remove(&begun);
        let weight = |entry: &Entry| match entry.ended_by(begun) {
            true => Weight::Must,
            false => Weight::Racing,
        };
        let range = at..at + bytes.len() as u64;
        for block in blocks(&range) {
            let (seen, mask) = observe(at, bytes, block);
            let Some(history) = self.blocks.get_mut(&block) else {
                self.check_untouched(block, &seen, mask)?;
                continue;
            };
            if let Err(wrong) = history.explain(&seen, mask, weight) {
                return Err(self.accuse("a read while running", block, &seen, mask, &wrong));
            }
            if history.entries.iter().all(|entry| entry.ended_by(begun)) {
                learn_order(history, &seen, mask);
            }
        }
        Ok(())
    }

    /// Power has failed: nothing that was under way will ever end.
    pub fn cut(&mut self) {
        self.fall();
        self.ordered_until = self.durable_until;
        self.uncertain = true;
    }

    /// All that a power cut may have taken has been looked at.
    pub(crate) fn looked(&mut self) {
        self.uncertain = false;
    }

    /// The process has died: as a cut, but the drives have what they were given, if power does not
    /// fail before the volume is opened again. Its clients may live on, and know nothing of it: so
    /// what has ended must be there, unless it may have been in memory alone.
    pub fn kill(&mut self) {
        self.fall();
        if !self.behind && !self.uncertain {
            self.ordered_until = self.tick;
        }
    }

    /// Says whether what ends from now on may be in the memory of the process alone.
    pub(crate) fn allow_behind(&mut self, behind: bool) {
        self.behind = behind;
    }

    fn fall(&mut self) {
        self.step();
        let sure = self.bound_ns.is_some() && self.changing_since_ns.is_none();
        self.lost_bytes_max = self.bytes_max.filter(|_| sure);
        if let Some(bound_ns) = self.bound_ns {
            // What ended longer ago than the bound must be there. What earlier falls have taken
            // is gone.
            let now_ns = self.changing_since_ns.unwrap_or(self.now_ns);
            let old =
                |record: &&Record| record.cuts == self.cuts && record.ended_ns + bound_ns <= now_ns;
            let ended = self.records.iter().filter(old).filter_map(|record| record.ended).max();
            self.durable_until = self.durable_until.max(ended.unwrap_or(0));
        }
        self.cuts += 1;
        self.reading.clear();
    }

    /// The volume has been opened, which makes durable what it found.
    pub fn opened(&mut self) {
        self.durable_until = self.durable_until.max(self.ordered_until);
    }

    /// From now on a block that was being written when power failed is as whole as the drive wrote it: one
    /// of 512-byte sectors, without the landing log.
    pub(crate) fn allow_torn(&mut self) {
        self.torn = true;
    }

    /// What was read of `bytes` at byte `at`, whole blocks, after a cut: is it allowed? From now on
    /// it is what must be there.
    ///
    /// # Errors
    /// What is wrong, with the history of the block, in words.
    pub fn check_after_cut(&mut self, at: u64, bytes: &[u8]) -> Result<(), String> {
        let range = at..at + bytes.len() as u64;
        let durable_until = self.durable_until;
        let unsure = if self.torn { Weight::Racing } else { Weight::May };
        // What is looked at again has another past.
        self.lost_bytes_max = None;
        for block in blocks(&range) {
            let (seen, mask) = observe(at, bytes, block);
            assert_eq!(mask, u8::MAX, "after a cut whole blocks are looked at");
            let Some(history) = self.blocks.get_mut(&block) else {
                self.check_untouched(block, &seen, mask)?;
                continue;
            };
            let weight = |entry: &Entry| match durable(entry, durable_until) {
                true => Weight::Must,
                false => unsure,
            };
            if let Err(wrong) = history.explain(&seen, mask, weight) {
                return Err(self.accuse("after a power cut", block, &seen, mask, &wrong));
            }
            settle(history, &seen);
            if history.entries.is_empty() {
                self.blocks.remove(&block);
            }
        }
        Ok(())
    }

    /// The byte ranges of `chunk_bytes` that may hold something, and whether all in them is
    /// certain: each block has one write only, which must survive.
    pub fn touched(&self, chunk_bytes: u64) -> Vec<(Range<u64>, bool)> {
        let mut chunks: BTreeMap<u64, bool> = BTreeMap::new();
        for (block, history) in &self.blocks {
            let certain = match history.entries.as_slice() {
                [one] => durable(one, self.durable_until),
                _ => false,
            };
            *chunks.entry(block * BLOCK_BYTES / chunk_bytes).or_insert(true) &= certain;
        }
        let range = |chunk| chunk * chunk_bytes..(chunk + 1) * chunk_bytes;
        chunks.into_iter().map(|(chunk, certain)| (range(chunk), certain)).collect()
    }

    /// Writes begun so far.
    pub fn writes(&self) -> usize {
        self.records.len() - 1
    }

    fn step(&mut self) -> Tick {
        self.tick += 1;
        self.tick
    }

    /// No read under way began before this moment.
    fn reads_since(&self) -> Tick {
        self.reading.keys().next().copied().unwrap_or(self.tick)
    }

    fn check_untouched(
        &self,
        block: u64,
        seen: &[Value; BLOCK_SECTORS],
        mask: u8,
    ) -> Result<(), String> {
        let wrong = |sector: &usize| mask & (1 << sector) != 0 && seen[*sector] != Value::Zeros;
        match (0..BLOCK_SECTORS).find(wrong) {
            None => Ok(()),
            Some(sector) => {
                let wrong = format!("sector {sector} should hold zeros: nothing may be seen here");
                Err(self.accuse("an untouched block", block, seen, mask, &wrong))
            }
        }
    }

    /// The charge in words: what was seen and what has happened to the block.
    fn accuse(
        &self,
        when: &str,
        block: u64,
        seen: &[Value; BLOCK_SECTORS],
        mask: u8,
        wrong: &str,
    ) -> String {
        let mut text = format!("{when}, block {block} (byte {}): {wrong}\n", block * BLOCK_BYTES);
        let looked_at: Vec<usize> =
            (0..BLOCK_SECTORS).filter(|sector| mask & (1 << sector) != 0).collect();
        for alike in looked_at.chunk_by(|one, next| seen[*one].goes_on_as(&seen[*next])) {
            let _ = match alike {
                [sector] => writeln!(text, "  sector {sector}: {}", seen[*sector]),
                [first, .., last] => {
                    writeln!(text, "  sectors {first} to {last}: {}", seen[*first])
                }
                [] => Ok(()),
            };
        }
        let history = self.blocks.get(&block);
        let entries = history.map_or(&[][..], |history| history.entries.as_slice());
        let left_out = entries.len().saturating_sub(TAIL_MAX);
        if left_out > 0 {
            let _ = writeln!(text, "  ({left_out} older writes are left out)");
        }
        for entry in &entries[left_out..] {
            let _ = writeln!(text, "  {}", self.describe(entry.write, Some(entry)));
        }
        for (earlier, later) in history.map_or(&[][..], |history| &history.shown) {
            let _ = writeln!(text, "  a read has shown write {later} after write {earlier}");
        }
        let mut others: Vec<u32> = seen.iter().filter_map(|value| value.write()).collect();
        others.retain(|write| !entries.iter().any(|entry| entry.write == *write));
        others.dedup();
        for write in others {
            let _ = writeln!(text, "  seen, and not allowed: {}", self.describe(write, None));
        }
        let _ = write!(
            text,
            "  (moments count beginnings and ends; now {}, durable: what ended by {})",
            self.tick, self.durable_until
        );
        text
    }

    fn describe(&self, write: u32, entry: Option<&Entry>) -> String {
        let Some(record) = self.records.get(write as usize) else {
            return format!("write {write}, which this hunt has not made");
        };
        let Record { deed, bytes, begun, ended, failed, forced, cuts, .. } = record;
        let end = match ended {
            Some(ended) => format!("ended at {ended}"),
            None if *failed => "failed".to_string(),
            None if *cuts < self.cuts => "was in flight when power failed".to_string(),
            None => "is in flight".to_string(),
        };
        let state = match entry {
            Some(entry) if durable(entry, self.durable_until) => match ended {
                Some(_) => "; must survive",
                None => "; was seen after a cut, and must stay",
            },
            Some(_) => "; may be lost",
            None => "",
        };
        let place = entry.map_or(String::new(), |entry| format!(" (sectors {:08b})", entry.mask));
        format!(
            "write {write}: {deed:?} of bytes {}..{}{place}, began at {begun}, {end}{}{state}{}",
            bytes.start,
            bytes.end,
            if *forced { ", asked to be durable" } else { "" },
            match self.cuts - cuts {
                0 => String::new(),
                cuts => format!("; {cuts} power cuts ago"),
            },
        )
    }
}

impl Value {
    /// The write it speaks of.
    fn write(&self) -> Option<u32> {
        match self {
            Value::Of(write) | Value::Torn(write) | Value::Misplaced { write, .. } => Some(*write),
            Value::Zeros | Value::Foreign => None,
        }
    }
}

fn durable(entry: &Entry, durable_until: Tick) -> bool {
    entry.ended.is_some_and(|ended| entry.forced || ended <= durable_until)
}

fn blocks(bytes: &Range<u64>) -> Range<u64> {
    bytes.start / BLOCK_BYTES..bytes.end.div_ceil(BLOCK_BYTES)
}

/// The sectors of `block` inside the byte range.
fn mask(bytes: &Range<u64>, block: u64) -> u8 {
    let sector = SECTOR_BYTES as u64;
    (0..BLOCK_SECTORS as u64)
        .filter(|index| bytes.contains(&(block * BLOCK_BYTES + index * sector)))
        .fold(0, |mask, index| mask | 1 << index)
}

/// What `bytes`, read at byte `at`, show of `block`, and of which of its sectors.
fn observe(at: u64, bytes: &[u8], block: u64) -> ([Value; BLOCK_SECTORS], u8) {
    let mask = mask(&(at..at + bytes.len() as u64), block);
    let seen = std::array::from_fn(|index| {
        if mask & (1 << index) == 0 {
            return Value::Zeros;
        }
        let sector = block * BLOCK_SECTORS as u64 + index as u64;
        let start = (sector * SECTOR_BYTES as u64 - at) as usize;
        let bytes = bytes[start..start + SECTOR_BYTES].try_into().expect("a sector's length");
        identify(bytes, sector)
    });
    (seen, mask)
}

/// A quiet read has shown which of several overlapping writes came last.
fn learn_order(history: &mut History, seen: &[Value; BLOCK_SECTORS], mask: u8) {
    for (sector, value) in seen.iter().enumerate().filter(|(s, _)| mask & (1 << s) != 0) {
        let Value::Of(last) = value else { continue };
        let Some(last) = history.entries.iter().find(|entry| entry.write == *last).copied() else {
            continue;
        };
        for entry in &history.entries {
            let before = entry.ended.is_some_and(|ended| ended < last.begun);
            let pair = (entry.write, last.write);
            let overlaps = entry.write != last.write && entry.mask & (1 << sector) != 0;
            if overlaps && !before && !entry.optional && !history.shown.contains(&pair) {
                history.shown.push(pair);
            }
        }
    }
}

/// After a cut: what is seen is all there is.
fn settle(history: &mut History, seen: &[Value; BLOCK_SECTORS]) {
    history.shown.clear();
    history.entries.retain_mut(|entry| {
        let shows = |sector: &usize| !entry.zeros && seen[*sector] == Value::Of(entry.write);
        entry.mask = (0..BLOCK_SECTORS).filter(shows).fold(0, |mask, sector| mask | 1 << sector);
        (entry.begun, entry.ended) = (0, Some(0));
        entry.mask != 0
    });
}

mod prefix;
#[cfg(test)]
mod tests;
