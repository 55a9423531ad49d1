//! A volume in memory, exact to the byte, for the outside tests of the doors.
//!
//! Blocks of 4 KiB appear when they are first written; trims and zeros to whole blocks take them
//! away again, so that places show holes where nothing was written. Requests are refused exactly
//! where the contract of [`Volume`] says so. Counters tell what a door asked for.

#![allow(dead_code)] // Each test binary uses its own part.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use io::{Buf, Durability, ErrorKind, Io, IoError, Place, Span, Volume, VolumeInfo, ZeroMode};

const BLOCK_BYTES: u64 = 4096;

/// How often each kind of request came, successful or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    pub reads: u64,
    pub writes: u64,
    pub durable: u64,
    pub flushes: u64,
    pub trims: u64,
    pub zeroes: u64,
    pub caches: u64,
}

pub struct MemoryVolume {
    io: Io,
    info: VolumeInfo,
    blocks: RefCell<BTreeMap<u64, Box<[u8; BLOCK_BYTES as usize]>>>,
    counts: Cell<Counts>,
    /// Each request takes this long; 0 answers at once.
    pub delay_ns: Cell<u64>,
    /// Every request fails with this while it is set.
    pub failure: RefCell<Option<IoError>>,
    /// Where written blocks are said to be: a function of the block's number.
    pub place_of: Cell<fn(u64) -> Place>,
}

impl MemoryVolume {
    pub fn new(io: Io, size_bytes: u64) -> MemoryVolume {
        assert!(size_bytes.is_multiple_of(BLOCK_BYTES));
        MemoryVolume {
            io,
            info: VolumeInfo {
                size_bytes,
                sector_bytes: 512,
                preferred_bytes: 4096,
                transfer_bytes_max: 1 << 20,
                read_only: false,
            },
            blocks: RefCell::default(),
            counts: Cell::default(),
            delay_ns: Cell::new(0),
            failure: RefCell::default(),
            place_of: Cell::new(|_| Place::Fast),
        }
    }

    #[must_use]
    pub fn read_only(mut self) -> MemoryVolume {
        self.info.read_only = true;
        self
    }

    /// With another bound on one transfer, in bytes.
    #[must_use]
    pub fn with_transfer_max(mut self, transfer_bytes_max: u32) -> MemoryVolume {
        self.info.transfer_bytes_max = transfer_bytes_max;
        self
    }

    pub fn counts(&self) -> Counts {
        self.counts.get()
    }

    /// Blocks that hold something.
    pub fn blocks_used(&self) -> usize {
        self.blocks.borrow().len()
    }

    fn count(&self, change: impl Fn(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    async fn begin(&self, at: u64, length: u64, writes: bool) -> Result<(), IoError> {
        if self.delay_ns.get() > 0 {
            self.io.sleep(self.delay_ns.get()).await;
        }
        if let Some(failure) = self.failure.borrow().clone() {
            return Err(failure);
        }
        let sector = u64::from(self.info.sector_bytes);
        let inside = at.checked_add(length).is_some_and(|end| end <= self.info.size_bytes);
        if !inside || !at.is_multiple_of(sector) || !length.is_multiple_of(sector) {
            let message = format!("{length} bytes at {at} of {}", self.info.size_bytes);
            return Err(IoError::new(ErrorKind::Range, message));
        }
        if writes && self.info.read_only {
            return Err(IoError::new(ErrorKind::ReadOnly, "the volume is read-only"));
        }
        Ok(())
    }

    fn transfer_fits(&self, length: usize) -> Result<(), IoError> {
        if length > self.info.transfer_bytes_max as usize {
            return Err(IoError::new(ErrorKind::Range, format!("{length} bytes at once")));
        }
        Ok(())
    }

    fn zero(&self, at: u64, length: u64) {
        let mut blocks = self.blocks.borrow_mut();
        let end = at + length;
        let (first, last) = (at / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES));
        let touched: Vec<u64> = blocks.range(first..last).map(|(number, _)| *number).collect();
        for number in touched {
            let start = number * BLOCK_BYTES;
            let from = at.max(start) - start;
            let to = end.min(start + BLOCK_BYTES) - start;
            if to - from == BLOCK_BYTES {
                blocks.remove(&number);
            } else if let Some(block) = blocks.get_mut(&number) {
                block[from as usize..to as usize].fill(0);
            }
        }
    }

    /// Calls `each` with the block number, the range inside the block, and the range inside the
    /// request, for every block the request touches.
    fn pieces(
        at: u64,
        length: usize,
        mut each: impl FnMut(u64, std::ops::Range<usize>, std::ops::Range<usize>),
    ) {
        let mut done = 0;
        while done < length {
            let position = at + done as u64;
            let within = (position % BLOCK_BYTES) as usize;
            let count = (BLOCK_BYTES as usize - within).min(length - done);
            each(position / BLOCK_BYTES, within..within + count, done..done + count);
            done += count;
        }
    }
}

impl Volume for MemoryVolume {
    fn info(&self) -> VolumeInfo {
        self.info.clone()
    }

    async fn read(&self, at: u64, mut buf: Buf) -> (Buf, Result<(), IoError>) {
        self.count(|counts| counts.reads += 1);
        let checked = self.begin(at, buf.len() as u64, false).await;
        if let Err(error) = checked.and_then(|()| self.transfer_fits(buf.len())) {
            return (buf, Err(error));
        }
        let blocks = self.blocks.borrow();
        Self::pieces(at, buf.len(), |number, inside, part| match blocks.get(&number) {
            Some(block) => buf[part].copy_from_slice(&block[inside]),
            None => buf[part].fill(0),
        });
        drop(blocks);
        (buf, Ok(()))
    }

    async fn write(&self, at: u64, buf: Buf, durability: Durability) -> (Buf, Result<(), IoError>) {
        self.count(|counts| {
            counts.writes += 1;
            counts.durable += u64::from(durability == Durability::Durable);
        });
        let checked = self.begin(at, buf.len() as u64, true).await;
        if let Err(error) = checked.and_then(|()| self.transfer_fits(buf.len())) {
            return (buf, Err(error));
        }
        let mut blocks = self.blocks.borrow_mut();
        Self::pieces(at, buf.len(), |number, inside, part| {
            let block = blocks.entry(number).or_insert_with(|| Box::new([0; BLOCK_BYTES as usize]));
            block[inside].copy_from_slice(&buf[part]);
        });
        drop(blocks);
        (buf, Ok(()))
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.count(|counts| counts.flushes += 1);
        self.begin(0, 0, false).await
    }

    async fn trim(&self, at: u64, length: u64, durability: Durability) -> Result<(), IoError> {
        self.count(|counts| {
            counts.trims += 1;
            counts.durable += u64::from(durability == Durability::Durable);
        });
        self.begin(at, length, true).await?;
        self.zero(at, length);
        Ok(())
    }

    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        mode: ZeroMode,
        durability: Durability,
    ) -> Result<(), IoError> {
        self.count(|counts| {
            counts.zeroes += 1;
            counts.durable += u64::from(durability == Durability::Durable);
        });
        self.begin(at, length, true).await?;
        self.zero(at, length);
        if mode == ZeroMode::Allocate {
            let mut blocks = self.blocks.borrow_mut();
            for number in at / BLOCK_BYTES..(at + length).div_ceil(BLOCK_BYTES) {
                blocks.entry(number).or_insert_with(|| Box::new([0; BLOCK_BYTES as usize]));
            }
        }
        Ok(())
    }

    async fn cache(&self, at: u64, length: u64) -> Result<(), IoError> {
        self.count(|counts| counts.caches += 1);
        self.begin(at, length, false).await
    }

    fn places(&self, at: u64, length: u64, spans_max: usize) -> Vec<Span> {
        let blocks = self.blocks.borrow();
        let end = at + length;
        let mut spans: Vec<Span> = Vec::new();
        let mut position = at;
        while position < end {
            let number = position / BLOCK_BYTES;
            let (place, run_end) = if blocks.contains_key(&number) {
                (self.place_of.get()(number), (number + 1) * BLOCK_BYTES)
            } else {
                let next = blocks.range(number..).next().map(|(next, _)| next * BLOCK_BYTES);
                (Place::Hole, next.unwrap_or(u64::MAX))
            };
            let run = run_end.min(end) - position;
            let full = spans.len() == spans_max.max(1);
            match spans.last_mut() {
                Some(last) if last.place == place => last.length += run,
                _ if full => break,
                _ => spans.push(Span { length: run, place }),
            }
            position += run;
        }
        spans
    }
}
