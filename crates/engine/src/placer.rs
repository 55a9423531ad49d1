//! What the engine asks its policy (`bimetal-policy`), and who waits to be moved. Nothing here waits.

use std::collections::VecDeque;

use policy::{Heat, Policy, Standing, Streams, Touch};

use crate::address::{ExtentId, Tier};
use crate::geometry::Geometry;

/// Extents that may wait for promotion. More would be stale before their turn comes.
const CANDIDATES_MAX: usize = 4096;

/// Where a running volume puts what clients write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Placement {
    /// bimetal's own: what is written lands on the fast drive, and what is read again moves there.
    #[default]
    Heat,
    /// What was seen of Apple's Fusion Drive, for the laboratory: only new allocations land on the
    /// fast drive; what lives on the slow drive is overwritten there, and what is read or written
    /// again moves up when clients rest.
    Fusion,
}

/// What a request did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// The policy of a running volume.
pub(crate) struct Placer {
    pub heat: Heat,
    extent_bytes: u64,
    streams: Streams,
    candidates: VecDeque<ExtentId>,
    placement: Placement,
    /// Requests observed.
    requests: u64,
}

impl Placer {
    pub fn new(geometry: &Geometry) -> Placer {
        let [fast, _] = &geometry.layouts;
        Placer {
            heat: Heat::new(geometry.extents(), fast.slots, geometry.extent_bytes, fast.log_bytes),
            extent_bytes: geometry.extent_bytes,
            streams: Streams::default(),
            candidates: VecDeque::new(),
            placement: Placement::default(),
            requests: 0,
        }
    }

    /// Places as that says from now on.
    pub fn set_placement(&mut self, placement: Placement) {
        self.placement = placement;
    }

    /// Whether writes to an extent of the slow drive stay there.
    pub fn overwrites_below(&self) -> bool {
        self.placement == Placement::Fusion
    }

    /// A request touched a range; `tier_of` says where an extent lives now.
    pub fn observe(
        &mut self,
        access: Access,
        at: u64,
        length: u64,
        tier_of: impl Fn(ExtentId) -> Option<Tier>,
    ) {
        let Standing { is_stream, .. } = self.streams.take(at, length);
        // Of a Fusion drive writes have to position, too: nothing takes them in front of the disk.
        let is_write = access == Access::Write && self.placement != Placement::Fusion;
        let end = at + length;
        for extent in at / self.extent_bytes..end.div_ceil(self.extent_bytes) {
            let start = extent * self.extent_bytes;
            let bytes = end.min(start + self.extent_bytes) - at.max(start);
            let extent = ExtentId(extent);
            let tier = tier_of(extent);
            let is_resident = tier == Some(Tier::Fast);
            let request = self.requests;
            let touch = Touch { extent, is_write, is_stream, is_resident, bytes, request };
            self.heat.observe(&touch);
            // Requests that met the slow drive are the reason to move an extent.
            if !is_write
                && !is_stream
                && tier == Some(Tier::Slow)
                && self.heat.is_hot(extent)
                && self.candidates.len() < CANDIDATES_MAX
                && self.candidates.back() != Some(&extent)
            {
                self.candidates.push_back(extent);
            }
        }
        self.requests += 1;
    }

    /// The drive for an extent that has no home yet: fast first, keeping the reserve; then slow;
    /// then what is left of the fast one. `None`: neither has a free slot.
    pub fn admit(&self, fast_free: u64, slow_free: u64, fast_reserve: u64) -> Option<Tier> {
        if fast_free > fast_reserve {
            Some(Tier::Fast)
        } else if slow_free > 0 {
            Some(Tier::Slow)
        } else {
            (fast_free > 0).then_some(Tier::Fast)
        }
    }

    /// A client asks for an extent to be fast.
    pub fn request(&mut self, extent: ExtentId) {
        self.heat.request(extent);
        if self.candidates.len() < CANDIDATES_MAX {
            self.candidates.push_back(extent);
        }
    }

    /// The extent whose promotion is next.
    pub fn first_candidate(&self) -> Option<ExtentId> {
        self.candidates.front().copied()
    }

    /// The next extent that may deserve promotion; the caller checks that it still does.
    pub fn next_candidate(&mut self) -> Option<ExtentId> {
        self.candidates.pop_front()
    }

    /// Whether anything waits for promotion.
    pub fn has_candidates(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Bytes of memory that its tables take.
    pub fn memory_bytes(&self) -> u64 {
        self.heat.memory_bytes() + self.candidates.capacity() as u64 * 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placer() -> Placer {
        Placer::new(&crate::format::superblock::tests::example().geometry)
    }

    #[test]
    fn what_is_read_twice_from_the_slow_drive_becomes_a_candidate() {
        let mut placer = placer();
        let slow = |_| Some(Tier::Slow);
        placer.observe(Access::Read, 5 << 20, 4096, slow);
        assert!(!placer.has_candidates());
        placer.observe(Access::Read, (5 << 20) - 8192, 4096, slow);
        placer.observe(Access::Read, 5 << 20, 4096, slow);
        assert_eq!(placer.next_candidate(), Some(ExtentId(40)));
        assert_eq!(placer.next_candidate(), None);
    }

    #[test]
    fn a_film_warms_nothing_however_often_it_is_seen() {
        let mut placer = placer();
        for _ in 0..4 {
            for piece in 0..1000 {
                placer.observe(Access::Read, piece << 17, 128 << 10, |_| Some(Tier::Slow));
            }
        }
        // Only the very front of each pass, before the stream is recognised.
        let promoted = std::iter::from_fn(|| placer.next_candidate()).count();
        assert!(promoted < 20, "{promoted}");
    }

    #[test]
    fn writes_alone_do_not_promote() {
        let mut placer = placer();
        for n in 0..12 {
            placer.observe(Access::Write, (n * 37 % 12) << 24, 4096, |_| Some(Tier::Slow));
        }
        assert!(!placer.has_candidates());
    }

    #[test]
    fn a_fusion_drive_promotes_what_is_written_again() {
        let mut placer = placer();
        placer.set_placement(Placement::Fusion);
        for _ in 0..2 {
            placer.observe(Access::Write, 5 << 20, 4096, |_| Some(Tier::Slow));
        }
        assert_eq!(placer.next_candidate(), Some(ExtentId(40)));
        assert!(placer.overwrites_below());
    }

    #[test]
    fn new_extents_fill_the_fast_drive_first_and_keep_its_reserve() {
        let placer = placer();
        assert_eq!(placer.admit(11, 5, 10), Some(Tier::Fast));
        assert_eq!(placer.admit(10, 5, 10), Some(Tier::Slow));
        assert_eq!(placer.admit(10, 0, 10), Some(Tier::Fast));
        assert_eq!(placer.admit(0, 0, 10), None);
    }
}
