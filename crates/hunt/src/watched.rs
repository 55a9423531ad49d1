//! A volume under the oracle's eyes: each request is told to the oracle when it begins and when
//! it ends, data is stamped, and whatever is read is checked.

use std::cell::RefCell;
use std::fmt;
use std::ops::Range;
use std::rc::Rc;

use engine::FlushMode;
use io::units::MILLISECOND_NS;
use io::{Buf, Durability, Io, IoError, ZeroMode};
use twin::Random;

use crate::journal::Journal;
use crate::oracle::{BLOCK_BYTES, Deed, Oracle};
use crate::sector::{SECTOR_BYTES, stamp};
use crate::subject::Prey;

/// Bytes that a look at the whole volume reads at once.
const CHUNK_BYTES: u64 = 128 << 10;

/// Chunks that were never written and are looked at all the same.
const UNTOUCHED_MAX: u64 = 4;

/// Chunks with nothing uncertain in them that are looked at as a whole. Of all others one block is:
/// what goes wrong with a place goes wrong with all of it, as a rule, and each look draws others.
const CERTAIN_MAX: usize = 8;

/// What went wrong with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The volume said no.
    Refused(IoError),
    /// The volume said something that cannot be true.
    Lie(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused(error) => write!(f, "refused: {error}"),
            Trouble::Lie(text) => write!(f, "wrong data: {text}"),
        }
    }
}

/// A volume with its oracle. Clones are the same volume.
#[derive(Clone)]
pub struct Watched<V> {
    io: Io,
    volume: V,
    oracle: Rc<RefCell<Oracle>>,
    client: Option<usize>,
    journal: Option<Journal>,
}

impl<V: Prey> Watched<V> {
    /// Watches `volume`, of which `oracle` knows the past.
    pub fn new(io: &Io, volume: V, oracle: Rc<RefCell<Oracle>>) -> Watched<V> {
        Watched { io: io.clone(), volume, oracle, client: None, journal: None }
    }

    /// Has all requests noted in `journal` from now on.
    #[must_use]
    pub fn noting(mut self, journal: Option<Journal>) -> Watched<V> {
        self.journal = journal;
        self
    }

    /// The same volume as client `number` uses it.
    #[must_use]
    pub fn for_client(&self, number: usize) -> Watched<V> {
        Watched { client: Some(number), ..self.clone() }
    }

    /// The executor.
    pub fn io(&self) -> &Io {
        &self.io
    }

    /// The volume itself; requests to it go unseen.
    pub fn volume(&self) -> &V {
        &self.volume
    }

    /// Writes stamped data.
    ///
    /// # Errors
    /// When the volume refuses.
    pub async fn write(&self, at: u64, length: u64, how: Durability) -> Result<(), Trouble> {
        let forced = how == Durability::Durable;
        let write = self.oracle.borrow_mut().begin_write(Deed::Data, at, length, forced);
        let mut buf = self.io.pool().take(length as usize);
        stamp(&mut buf, write, at / SECTOR_BYTES as u64);
        let note = self.note(at, length, || {
            let how = if forced { ", durable" } else { "" };
            format!("write {write}: {length} bytes at {at}{how}")
        });
        let (_, outcome) = self.volume.write(at, buf, how).await;
        self.noted(note, &outcome);
        self.ended(write, outcome)
    }

    /// Reads and checks.
    ///
    /// # Errors
    /// When the volume refuses, or what it gives cannot be true.
    pub async fn read(&self, at: u64, length: u64) -> Result<(), Trouble> {
        let reading = self.oracle.borrow_mut().begin_read();
        let mut buf = self.io.pool().take(length as usize);
        // What the buffer held before must not pass for an answer.
        buf.fill(0xa5);
        let note = self.note(at, length, || format!("read {length} bytes at {at}"));
        let (buf, outcome) = self.read_somehow(at, buf).await;
        let checked = match outcome {
            Ok(()) => self.oracle.borrow_mut().check_read(reading, at, &buf).map_err(Trouble::Lie),
            Err(error) => {
                self.oracle.borrow_mut().drop_read(reading);
                Err(Trouble::Refused(error))
            }
        };
        self.noted(note, &checked);
        checked
    }

    /// Reads of some places try to do without memory of the volume's, as a door may.
    async fn read_somehow(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        let place = at / BLOCK_BYTES + buf.len() as u64 / BLOCK_BYTES;
        if !place.is_multiple_of(3) {
            return self.volume.read(at, buf).await;
        }
        match self.io.lend(buf) {
            Err(buf) => self.volume.read(at, buf).await,
            Ok(memory) => {
                let served = self.volume.read_lent(at, memory).await;
                let buf = self.io.take_back(memory).expect("lent here");
                if served { (buf, Ok(())) } else { self.volume.read(at, buf).await }
            }
        }
    }

    /// Flushes.
    ///
    /// # Errors
    /// When the volume refuses.
    pub async fn flush(&self) -> Result<(), Trouble> {
        let flushing = self.oracle.borrow_mut().begin_flush();
        let note = self.note(0, 0, || "flush".into());
        let outcome = self.volume.flush().await;
        self.noted(note, &outcome);
        outcome.map_err(Trouble::Refused)?;
        let mut oracle = self.oracle.borrow_mut();
        oracle.tell_time(self.io.now_ns());
        oracle.end_flush(flushing);
        Ok(())
    }

    /// Trims.
    ///
    /// # Errors
    /// When the volume refuses.
    pub async fn trim(&self, at: u64, length: u64, how: Durability) -> Result<(), Trouble> {
        let forced = how == Durability::Durable;
        let write = self.oracle.borrow_mut().begin_write(Deed::Trim, at, length, forced);
        let note = self.note(at, length, || {
            let how = if forced { ", durable" } else { "" };
            format!("write {write}: trim {length} bytes at {at}{how}")
        });
        let outcome = self.volume.trim(at, length, how).await;
        self.noted(note, &outcome);
        self.ended(write, outcome)
    }

    /// Makes zeros.
    ///
    /// # Errors
    /// When the volume refuses.
    pub async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        mode: ZeroMode,
        how: Durability,
    ) -> Result<(), Trouble> {
        let forced = how == Durability::Durable;
        let write = self.oracle.borrow_mut().begin_write(Deed::Zeroes, at, length, forced);
        let note = self.note(at, length, || {
            let how = if forced { ", durable" } else { "" };
            format!("write {write}: zeros ({mode:?}), {length} bytes at {at}{how}")
        });
        let outcome = self.volume.write_zeroes(at, length, mode, how).await;
        self.noted(note, &outcome);
        self.ended(write, outcome)
    }

    /// After a cut: looks at everything that the cut may have changed, at a sample of what it
    /// must not have changed, and at a few places that were never written, drawn by `random`.
    ///
    /// # Errors
    /// When the volume refuses, or what it gives cannot be true.
    pub async fn look_after_cut(&self, random: &mut Random) -> Result<(), Trouble> {
        self.look(random, false).await
    }

    /// As [`Watched::look_after_cut`]; `patient`: what cannot be read is passed over.
    ///
    /// # Errors
    /// When the volume refuses, or what it gives cannot be true.
    pub async fn look(&self, random: &mut Random, patient: bool) -> Result<(), Trouble> {
        let size_bytes = self.volume.info().size_bytes;
        let mut certain = Vec::new();
        let mut ranges = Vec::new();
        for (range, is_certain) in self.oracle.borrow().touched(CHUNK_BYTES) {
            if is_certain { &mut certain } else { &mut ranges }.push(range);
        }
        while certain.len() > CERTAIN_MAX {
            let range = certain.swap_remove(random.below(certain.len() as u64) as usize);
            let end = range.end.min(size_bytes);
            let at = range.start + random.below((end - range.start) / BLOCK_BYTES) * BLOCK_BYTES;
            ranges.push(at..at + BLOCK_BYTES);
        }
        ranges.extend(certain);
        for _ in 0..UNTOUCHED_MAX {
            let at = random.below(size_bytes.div_ceil(CHUNK_BYTES)) * CHUNK_BYTES;
            if !ranges.iter().any(|range| range.start == at) {
                ranges.push(at..at + CHUNK_BYTES);
            }
        }
        let keeps_order = self.oracle.borrow().keeps_order();
        // Where some of it cannot be read for good, nobody knows any more what is missing.
        if keeps_order && !patient {
            self.look_for_prefix().await?;
        }
        for Range { start, end } in ranges {
            let length = end.min(size_bytes).saturating_sub(start);
            let mut buf = self.io.pool().take(length as usize);
            buf.fill(0xa5);
            let (buf, outcome) = self.volume.read(start, buf).await;
            if outcome.is_err() && patient {
                self.look_block_by_block(start..start + length).await?;
                continue;
            }
            outcome.map_err(Trouble::Refused)?;
            let checked = self.oracle.borrow_mut().check_after_cut(start, &buf);
            checked.map_err(Trouble::Lie)?;
        }
        if !patient {
            self.oracle.borrow_mut().looked();
        }
        Ok(())
    }

    /// Looks at what can be read of a range that cannot be read as a whole: what later reads are judged by.
    async fn look_block_by_block(&self, range: Range<u64>) -> Result<(), Trouble> {
        for at in range.step_by(BLOCK_BYTES as usize) {
            let mut buf = self.io.pool().take(BLOCK_BYTES as usize);
            buf.fill(0xa5);
            let (buf, outcome) = self.volume.read(at, buf).await;
            if outcome.is_ok() {
                let checked = self.oracle.borrow_mut().check_after_cut(at, &buf);
                checked.map_err(Trouble::Lie)?;
            }
        }
        Ok(())
    }

    /// After a cut: whether all that was ever touched is together the state after some prefix of
    /// the writes.
    async fn look_for_prefix(&self) -> Result<(), Trouble> {
        let touched = self.oracle.borrow().touched(CHUNK_BYTES);
        let mut stretches = Vec::with_capacity(touched.len());
        for (Range { start, end }, _) in touched {
            let length = end.min(self.volume.info().size_bytes) - start;
            let mut buf = self.io.pool().take(length as usize);
            buf.fill(0xa5);
            let (buf, outcome) = self.volume.read(start, buf).await;
            outcome.map_err(Trouble::Refused)?;
            stretches.push((start, buf.to_vec()));
        }
        self.oracle.borrow().check_prefix(&stretches).map_err(Trouble::Lie)
    }

    /// Changes what flushes promise. By one client at a time only.
    ///
    /// # Errors
    /// When the volume refuses.
    pub async fn promise(&self, mode: FlushMode) -> Result<(), Trouble> {
        let begun = {
            let mut oracle = self.oracle.borrow_mut();
            oracle.begin_promise(bound_ns(mode));
            oracle.begin_close()
        };
        let note = self.note(0, 0, || format!("flushes promise {mode}"));
        let outcome = self.volume.set_flush_mode(mode).await;
        self.noted(note, &outcome);
        outcome.map_err(Trouble::Refused)?;
        let mut oracle = self.oracle.borrow_mut();
        oracle.tell_time(self.io.now_ns());
        oracle.end_flush(begun);
        oracle.defer(bound_ns(mode));
        oracle.limit_bytes(mode.bound().map(|bound| bound.bytes));
        Ok(())
    }

    /// Notes a request for `length` bytes at `at`; of none, what is about the whole volume.
    fn note(&self, at: u64, length: u64, what: impl FnOnce() -> String) -> Option<usize> {
        let journal = self.journal.as_ref()?;
        let bytes = (length > 0).then_some(at..at + length);
        Some(journal.begin(self.client, what(), bytes, self.io.now_ns()))
    }

    fn noted<E: fmt::Display>(&self, note: Option<usize>, outcome: &Result<(), E>) {
        if let (Some(journal), Some(note)) = (&self.journal, note) {
            let how = match outcome {
                Ok(()) => "done".into(),
                Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
            };
            journal.end(note, self.io.now_ns(), how);
        }
    }

    fn ended(&self, write: u32, outcome: Result<(), IoError>) -> Result<(), Trouble> {
        let mut oracle = self.oracle.borrow_mut();
        if outcome.is_ok() {
            // A refusal says nothing about what is durable by now.
            oracle.tell_time(self.io.now_ns());
            oracle.allow_behind(self.volume.writes_behind());
        }
        oracle.end_write(write, outcome.is_ok());
        drop(oracle);
        outcome.map_err(Trouble::Refused)
    }
}

/// How old what a power cut takes may be, if it may take anything that was flushed.
pub(crate) fn bound_ns(mode: FlushMode) -> Option<u64> {
    mode.bound().map(|bound| u64::from(bound.age_ms) * MILLISECOND_NS)
}
