//! The chains of descriptors that requests are made of. Every byte is the guest's: nothing here
//! believes it, and nothing panics.
//!
//! A chain that breaks the standard's rules breaks the queue: neither side could tell any more
//! which request is which.

use thiserror::Error;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemoryError};

use super::guest_memory::GuestMemory;

/// Most descriptors of one chain that are followed: far more than is advertised.
const DESCRIPTORS_MAX: usize = 2048;

/// Most bytes of one chain. Guests make requests of a few MiB at most.
pub(super) const CHAIN_BYTES_MAX: u64 = 64 << 20;

const DESCRIPTOR_BYTES: u32 = 16;

/// Ranges there is memory for between requests: those of a megabyte in pages.
const SEGMENTS_KEPT_MAX: usize = 256;

/// A range of guest memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Segment {
    at: GuestAddress,
    length: u32,
}

/// A list of ranges, read or written as if they were one.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    segments: Vec<Segment>,
    bytes: u64,
}

/// A request's memory: what the guest wrote for us, and where it wants its answer.
#[derive(Debug, Default)]
pub(super) struct Chain {
    pub(super) readable: Ranges,
    pub(super) writable: Ranges,
}

/// How a guest broke the rules.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum Malformed {
    #[error("descriptor {0} of a table with {1}")]
    Index(u16, u16),
    #[error("a table of descriptors at {0:#x}, where there is no memory")]
    Table(u64),
    #[error("an indirect table of {0} bytes")]
    IndirectBytes(u32),
    #[error("an indirect table where none is allowed")]
    Indirect,
    #[error("memory to read behind memory to write")]
    Order,
    #[error("a chain of more than {DESCRIPTORS_MAX} descriptors or {CHAIN_BYTES_MAX} bytes")]
    Long,
    #[error("a request of {0} bytes with {1} for its answer")]
    Short(u64, u64),
    #[error("descriptor {0} is in use by a request under way")]
    Busy(u16),
    #[error("the index of requests jumped")]
    Available,
    #[error("the queue lies where there is no memory any more")]
    Queue,
}

/// Where the descriptors of a queue are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Table {
    pub(super) at: GuestAddress,
    pub(super) size: u16,
    pub(super) indirect_allowed: bool,
}

impl Chain {
    /// Follows the chain that begins at `head`, and forgets what it held before.
    pub(super) fn follow(
        &mut self,
        memory: &GuestMemory,
        table: Table,
        head: u16,
    ) -> Result<(), Malformed> {
        self.readable.clear();
        self.writable.clear();
        let Table { mut at, mut size, mut indirect_allowed } = table;
        let mut index = head;
        for _ in 0..DESCRIPTORS_MAX {
            if index >= size {
                return Err(Malformed::Index(index, size));
            }
            let place = at.checked_add(u64::from(index) * u64::from(DESCRIPTOR_BYTES));
            let descriptor: Descriptor = place
                .and_then(|place| memory.read_obj(place).ok())
                .ok_or(Malformed::Table(at.raw_value()))?;
            if descriptor.refers_to_indirect_table() {
                // Only one deep, and nothing behind it.
                if !indirect_allowed || descriptor.has_next() {
                    return Err(Malformed::Indirect);
                }
                let bytes = descriptor.len();
                let count = u16::try_from(bytes / DESCRIPTOR_BYTES).unwrap_or(0);
                if count == 0 || !bytes.is_multiple_of(DESCRIPTOR_BYTES) {
                    return Err(Malformed::IndirectBytes(bytes));
                }
                (at, size, indirect_allowed, index) = (descriptor.addr(), count, false, 0);
                continue;
            }
            let segment = Segment { at: descriptor.addr(), length: descriptor.len() };
            if descriptor.is_write_only() {
                self.writable.push(segment);
            } else if self.writable.bytes > 0 {
                return Err(Malformed::Order);
            } else {
                self.readable.push(segment);
            }
            if self.readable.bytes + self.writable.bytes > CHAIN_BYTES_MAX {
                return Err(Malformed::Long);
            }
            if !descriptor.has_next() {
                return Ok(());
            }
            index = descriptor.next();
        }
        Err(Malformed::Long)
    }
}

impl Ranges {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn clear(&mut self) {
        self.segments.clear();
        // What one odd request needed is not kept for all that follow.
        self.segments.shrink_to(SEGMENTS_KEPT_MAX);
        self.bytes = 0;
    }

    fn push(&mut self, segment: Segment) {
        if segment.length > 0 {
            self.bytes += u64::from(segment.length);
            self.segments.push(segment);
        }
    }

    /// Copies from the guest, from byte `skipped` of the ranges on.
    pub(super) fn read(
        &self,
        memory: &GuestMemory,
        skipped: u64,
        target: &mut [u8],
    ) -> Result<(), GuestMemoryError> {
        let mut done = 0;
        for (at, length) in self.pieces(skipped, target.len()) {
            memory.read_slice(&mut target[done..done + length], at)?;
            done += length;
        }
        assert_eq!(done, target.len(), "the ranges are as long as what is read of them");
        Ok(())
    }

    /// Copies to the guest likewise.
    pub(super) fn write(
        &self,
        memory: &GuestMemory,
        skipped: u64,
        source: &[u8],
    ) -> Result<(), GuestMemoryError> {
        let mut done = 0;
        for (at, length) in self.pieces(skipped, source.len()) {
            memory.write_slice(&source[done..done + length], at)?;
            done += length;
        }
        assert_eq!(done, source.len(), "the ranges are as long as what is written to them");
        Ok(())
    }

    /// The parts of the segments that hold `length` bytes from byte `skipped` on. A segment that
    /// goes beyond the end of the address space is none of anybody's memory.
    fn pieces(&self, skipped: u64, length: usize) -> impl Iterator<Item = (GuestAddress, usize)> {
        let (mut skipped, mut left) = (skipped, length);
        self.segments.iter().filter_map(move |segment| {
            let whole = u64::from(segment.length);
            if left == 0 || skipped >= whole {
                skipped -= skipped.min(whole);
                return None;
            }
            let at = segment.at.checked_add(skipped).unwrap_or(GuestAddress(u64::MAX));
            let count = left.min((whole - skipped) as usize);
            skipped = 0;
            left -= count;
            Some((at, count))
        })
    }
}

#[cfg(test)]
mod tests;
