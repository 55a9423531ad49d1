//! How many extents of each page of the map are of some kind: who looks for them passes over the pages that
//! have none, so that a search over tens of terabytes of others takes no longer than what is found.

use crate::address::ExtentId;
use crate::format::map_page::ENTRIES_PER_PAGE;

const PER_PAGE: u64 = ENTRIES_PER_PAGE as u64;

pub(crate) struct PageCounts(Vec<u16>);

impl PageCounts {
    pub fn new(pages: u64) -> PageCounts {
        PageCounts(vec![0; pages as usize])
    }

    /// The extent was of the kind, and is.
    pub fn change(&mut self, extent: ExtentId, was: bool, is: bool) {
        let count = &mut self.0[(extent.0 / PER_PAGE) as usize];
        *count = *count + u16::from(is) - u16::from(was);
    }

    /// The first extent from `from` on, and before `extents`, of which `is` says that it is of the kind.
    pub fn next(&self, from: u64, extents: u64, is: impl Fn(ExtentId) -> bool) -> Option<ExtentId> {
        let mut at = from;
        while at < extents {
            let page = at / PER_PAGE;
            let end = ((page + 1) * PER_PAGE).min(extents);
            if self.0[page as usize] > 0
                && let Some(found) = (at..end).map(ExtentId).find(|extent| is(*extent))
            {
                return Some(found);
            }
            let empty = self.0[page as usize + 1..].iter().position(|count| *count > 0)?;
            at = (page + 1 + empty as u64) * PER_PAGE;
        }
        None
    }

    /// Bytes of memory it takes when all of it is touched.
    pub fn memory_bytes(&self) -> u64 {
        self.0.len() as u64 * 2
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn what_is_of_the_kind_is_found_and_pages_without_are_not_looked_at() {
        let extents = 100 * PER_PAGE - 7;
        let mut counts = PageCounts::new(100);
        let kind = [3, 4, 40 * PER_PAGE + 5, extents - 1];
        for extent in kind {
            counts.change(ExtentId(extent), false, true);
        }
        let looks = Cell::new(0);
        let next = |counts: &PageCounts, from| {
            counts.next(from, extents, |extent| {
                looks.set(looks.get() + 1);
                kind.contains(&extent.0)
            })
        };
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(extent) = next(&counts, from) {
            found.push(extent.0);
            from = extent.0 + 1;
        }
        assert_eq!(found, kind);
        assert!(looks.get() <= 3 * PER_PAGE, "{} looks", looks.get());
        assert_eq!(next(&counts, extents), None);
        counts.change(ExtentId(kind[2]), true, false);
        assert_eq!(next(&counts, 5), Some(ExtentId(extents - 1)));
    }
}
