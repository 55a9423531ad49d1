//! The extents that a trace touches, numbered densely so that everything about them is an array.

use std::collections::HashMap;

use crate::trace::{Deed, Event};

/// Pages in which the log and the stage count.
pub(super) const PAGE_BYTES: u64 = 4096;

/// An extent's place among those touched.
pub use policy::ExtentId as Extent;

/// See the head of the file.
#[derive(Debug)]
pub struct Ground {
    extent_bytes: u64,
    by_number: HashMap<u64, Extent>,
    /// Number of each, in units of an extent from the drive's start.
    numbers: Vec<u64>,
}

/// What a request asks of one extent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub extent: Extent,
    /// First byte on the drive.
    pub at: u64,
    pub length: u64,
    /// First page within the extent, and the one behind the last.
    pub pages: (u16, u16),
}

impl Ground {
    /// Of these requests. The extent is at most 4 MiB.
    pub fn of(events: &[Event], extent_bytes: u64) -> Ground {
        let mut ground = Ground { extent_bytes, by_number: HashMap::new(), numbers: Vec::new() };
        for event in events.iter().filter(|event| is_data(event)) {
            let end = event.offset + event.length;
            for number in event.offset / extent_bytes..end.div_ceil(extent_bytes) {
                let next = Extent(ground.numbers.len() as u64);
                if *ground.by_number.entry(number).or_insert(next) == next {
                    ground.numbers.push(number);
                }
            }
        }
        ground
    }

    /// Extents touched.
    pub fn extents(&self) -> usize {
        self.numbers.len()
    }

    /// Bytes of each.
    pub fn extent_bytes(&self) -> u64 {
        self.extent_bytes
    }

    /// Where an extent begins on the drive.
    pub fn address(&self, extent: Extent) -> u64 {
        self.numbers[extent.index()] * self.extent_bytes
    }

    /// The parts of a request, extent by extent; none for what is no read or write.
    pub(super) fn parts(&self, event: &Event) -> impl Iterator<Item = Part> + '_ {
        let end = if is_data(event) { event.offset + event.length } else { event.offset };
        let (mut at, extent_bytes) = (event.offset, self.extent_bytes);
        std::iter::from_fn(move || {
            if at >= end {
                return None;
            }
            let number = at / extent_bytes;
            let start = number * extent_bytes;
            let until = end.min(start + extent_bytes);
            let first = ((at - start) / PAGE_BYTES) as u16;
            let behind = (until - start).div_ceil(PAGE_BYTES) as u16;
            let extent = self.by_number[&number];
            let part = Part { extent, at, length: until - at, pages: (first, behind) };
            at = until;
            Some(part)
        })
    }
}

fn is_data(event: &Event) -> bool {
    matches!(event.deed, Deed::Read | Deed::Write) && event.length > 0
}
