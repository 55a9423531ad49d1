//! What people wish for ranges of the volume: kept in the superblocks, obeyed by placement.
//!
//! Ranges are of whole extents, in order, and do not overlap; a wish replaces what was wished for its
//! range before. So few fit ([`RANGES_MAX`]) that looking one up costs nothing.

use crate::address::ExtentId;
use crate::geometry::Geometry;

/// Ranges that a volume keeps wishes for: what fits a superblock with room to spare.
pub const RANGES_MAX: usize = 128;

/// What is wished for a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// It goes to the fast drive and stays there.
    Pinned,
    /// It goes to the fast drive when it is read, without having to prove itself.
    Hot,
    /// It does not go to the fast drive, and leaves it first.
    Cold,
    /// Reads of it are taken for a stream.
    Stream,
}

impl Wish {
    /// All of them.
    pub const ALL: [Wish; 4] = [Wish::Pinned, Wish::Hot, Wish::Cold, Wish::Stream];

    /// Its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Wish::Pinned => "pinned",
            Wish::Hot => "hot",
            Wish::Cold => "cold",
            Wish::Stream => "stream",
        }
    }

    /// The wish of that name.
    pub fn named(name: &str) -> Option<Wish> {
        Wish::ALL.into_iter().find(|wish| wish.name() == name)
    }

    /// Its number in a superblock, from 1.
    pub(crate) fn number(self) -> u32 {
        self as u32 + 1
    }

    pub(crate) fn numbered(number: u32) -> Option<Wish> {
        Wish::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

/// A range of extents with what is wished for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WishRange {
    /// First extent.
    pub first: u64,
    /// Extents, at least one.
    pub count: u64,
    /// What.
    pub wish: Wish,
}

impl WishRange {
    fn end(&self) -> u64 {
        self.first + self.count
    }
}

/// All wishes of a volume.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wishes(Vec<WishRange>);

impl Wishes {
    /// Takes ranges as they were kept; `None` when they are not in order, overlap, or go beyond the
    /// volume.
    pub(crate) fn from_ranges(ranges: Vec<WishRange>, geometry: &Geometry) -> Option<Wishes> {
        let mut end = 0;
        for range in &ranges {
            let fits = range.count > 0 && range.first >= end;
            end = range.first.checked_add(range.count).filter(|_| fits)?;
        }
        let sound = end <= geometry.extents() && ranges.len() <= RANGES_MAX;
        sound.then_some(Wishes(ranges))
    }

    /// In order.
    pub fn ranges(&self) -> &[WishRange] {
        &self.0
    }

    /// What is wished for an extent.
    pub fn of(&self, extent: ExtentId) -> Option<Wish> {
        if self.0.is_empty() {
            return None;
        }
        let place = self.0.partition_point(|range| range.end() <= extent.0);
        self.0.get(place).filter(|range| range.first <= extent.0).map(|range| range.wish)
    }

    /// Extents that are to stay on the fast drive.
    pub fn pinned(&self) -> u64 {
        self.0.iter().filter(|range| range.wish == Wish::Pinned).map(|range| range.count).sum()
    }

    /// Wishes something for a range, or nothing any more. `None` when there would be too many.
    #[must_use]
    pub fn with(&self, first: u64, count: u64, wish: Option<Wish>) -> Option<Wishes> {
        let end = first + count;
        let mut ranges: Vec<WishRange> = Vec::with_capacity(self.0.len() + 2);
        for range in &self.0 {
            // What of it lies before, and what behind.
            let before = range.end().min(first).saturating_sub(range.first);
            let behind = range.end().saturating_sub(range.first.max(end));
            if before > 0 {
                ranges.push(WishRange { count: before, ..*range });
            }
            if behind > 0 {
                ranges.push(WishRange { first: range.end() - behind, count: behind, ..*range });
            }
        }
        ranges.extend(wish.map(|wish| WishRange { first, count, wish }));
        ranges.sort_by_key(|range| range.first);
        let mut joined: Vec<WishRange> = Vec::with_capacity(ranges.len());
        for range in ranges {
            match joined.last_mut() {
                Some(last) if last.end() == range.first && last.wish == range.wish => {
                    last.count += range.count;
                }
                _ => joined.push(range),
            }
        }
        (joined.len() <= RANGES_MAX).then_some(Wishes(joined))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(list: &[(u64, u64, Option<Wish>)]) -> Wishes {
        list.iter().fold(Wishes::default(), |wishes, (first, count, wish)| {
            wishes.with(*first, *count, *wish).unwrap()
        })
    }

    #[test]
    fn the_last_wish_for_an_extent_holds() {
        let wishes = wishes(&[
            (10, 20, Some(Wish::Pinned)),
            (15, 5, Some(Wish::Cold)),
            (18, 1, None),
            (30, 2, Some(Wish::Pinned)),
        ]);
        let of = |extent| wishes.of(ExtentId(extent));
        assert_eq!(
            [9, 10, 14, 31].map(of),
            [None, Some(Wish::Pinned), Some(Wish::Pinned), Some(Wish::Pinned)]
        );
        assert_eq!(
            [15, 17, 18, 19, 20].map(of),
            [Some(Wish::Cold), Some(Wish::Cold), None, Some(Wish::Cold), Some(Wish::Pinned)]
        );
        assert_eq!(of(32), None);
        assert_eq!((wishes.ranges().len(), wishes.pinned()), (4, 17));
    }

    #[test]
    fn neighbours_of_one_wish_are_one_range_and_too_many_are_refused() {
        let mut wishes = wishes(&[(0, 5, Some(Wish::Hot)), (5, 5, Some(Wish::Hot))]);
        assert_eq!(wishes.ranges(), [WishRange { first: 0, count: 10, wish: Wish::Hot }]);
        for n in 1..RANGES_MAX as u64 {
            wishes = wishes.with(20 * n, 1, Some(Wish::Cold)).unwrap();
        }
        assert_eq!(wishes.with(1 << 20, 1, Some(Wish::Cold)), None);
        assert_eq!(wishes.with(20, 1, None).unwrap().ranges().len(), RANGES_MAX - 1);
    }

    #[test]
    fn names_and_numbers_come_back() {
        for wish in Wish::ALL {
            assert_eq!(Wish::named(wish.name()), Some(wish));
            assert_eq!(Wish::numbered(wish.number()), Some(wish));
        }
        assert_eq!((Wish::numbered(0), Wish::numbered(9), Wish::named("warm")), (None, None, None));
    }
}
