//! What the engine asks its policy (`bimetal-policy`), and who waits to be moved. Nothing here waits.

use std::collections::VecDeque;

use io::units::SECOND_NS;
use policy::{Ghosts, Heat, Policy, Standing, Streams, Touch, WearBudget};

use crate::address::{ExtentId, Tier};
use crate::geometry::Geometry;

/// Extents that may wait for promotion. More would be stale before their turn comes.
const CANDIDATES_MAX: usize = 4096;
/// The same of a Fusion Drive, which was seen to bring up everything that was used, gigabytes of it.
const FUSION_CANDIDATES_MAX: usize = 1 << 16;
/// Extents that may wait to leave the fast drive. They leave for others whose images wait in RAM.
const LEAVING_MAX: usize = 256;
/// Places for the times at which extents were asked for: 1 MiB, for 8 GiB in use.
const ASKED_PLACES: usize = 1 << 16;

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

/// A request as the policy sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    is_write: bool,
    standing: Standing,
    number: u64,
}

impl Request {
    pub fn is_stream(&self) -> bool {
        self.standing.is_stream
    }

    /// What it asks of an extent.
    pub fn touch(&self, extent: ExtentId, bytes: u64, is_resident: bool) -> Touch {
        Touch {
            extent,
            is_write: self.is_write,
            is_stream: self.standing.is_stream,
            is_resident,
            bytes,
            request: self.number,
        }
    }
}

/// The policy of a running volume.
pub(crate) struct Placer {
    pub heat: Heat,
    /// What a fast drive of another size would serve.
    pub ghosts: Ghosts,
    extent_bytes: u64,
    streams: Streams,
    /// Extents of the slow drive that may deserve better, for when clients rest.
    candidates: VecDeque<ExtentId>,
    /// Extents of the fast drive that leave for others.
    leaving: VecDeque<ExtentId>,
    placement: Placement,
    /// Requests observed.
    requests: u64,
    /// Which extent was asked for last of all that share a place here, counted from 1, and in which
    /// second. Zeros cost no memory until they are replaced.
    asked: Vec<(u64, u32)>,
    clock_s: u32,
    wear: WearBudget,
    /// Bytes written to the fast drive of which the budget knows.
    written_bytes: u64,
}

impl Placer {
    pub fn new(geometry: &Geometry) -> Placer {
        let [fast, _] = &geometry.layouts;
        Placer {
            heat: Heat::new(geometry.extents(), fast.slots, geometry.extent_bytes, fast.log_bytes),
            ghosts: Ghosts::new(geometry.extents(), fast.slots),
            extent_bytes: geometry.extent_bytes,
            streams: Streams::default(),
            candidates: VecDeque::new(),
            leaving: VecDeque::new(),
            placement: Placement::default(),
            requests: 0,
            asked: vec![(0, 0); ASKED_PLACES],
            clock_s: 0,
            wear: WearBudget::new(0, 0),
            written_bytes: 0,
        }
    }

    /// Requests observed so far.
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// From now on the fast drive may be written so much a day; 0: without limit.
    pub fn limit_wear(&mut self, bytes_per_day: u64, fast_written: u64, now_ns: u64) {
        self.wear = WearBudget::new(bytes_per_day, now_ns);
        self.written_bytes = fast_written;
    }

    /// Whether so much more may be moved to the fast drive, which was written that much so far.
    pub fn wear_covers(&mut self, bytes: u64, fast_written: u64, now_ns: u64) -> bool {
        self.wear.spend(fast_written.saturating_sub(self.written_bytes));
        self.written_bytes = fast_written;
        self.wear.covers(bytes, now_ns)
    }

    /// The time of what happens from now on.
    pub fn set_clock(&mut self, now_ns: u64) {
        self.clock_s = (now_ns / SECOND_NS) as u32;
        self.heat.verdicts.set_clock(self.clock_s);
    }

    /// Whole seconds since an extent was asked for; `None` when others were, in its place.
    pub fn asked_s_ago(&self, extent: ExtentId, now_ns: u64) -> Option<u64> {
        let (known, asked_s) = self.asked[extent.index() % ASKED_PLACES];
        (known == extent.0 + 1).then(|| (now_ns / SECOND_NS).saturating_sub(u64::from(asked_s)))
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
    ) -> Request {
        // Of a Fusion drive writes have to position, too: nothing takes them in front of the disk.
        let fusion = self.placement == Placement::Fusion;
        let is_write = access == Access::Write && !fusion;
        let standing = self.streams.take(at, length);
        let request = Request { is_write, standing, number: self.requests };
        self.requests += 1;
        let end = at + length;
        for extent in at / self.extent_bytes..end.div_ceil(self.extent_bytes) {
            let start = extent * self.extent_bytes;
            let bytes = end.min(start + self.extent_bytes) - at.max(start);
            let extent = ExtentId(extent);
            let tier = tier_of(extent);
            if !request.is_stream() {
                self.ghosts.used(extent, access == Access::Read);
            }
            self.asked[extent.index() % ASKED_PLACES] = (extent.0 + 1, self.clock_s);
            self.heat.observe(&request.touch(extent, bytes, tier == Some(Tier::Fast)));
            if fusion && tier == Some(Tier::Slow) {
                if !request.is_stream() {
                    // What was used once was seen to have moved up after the next rest.
                    self.heat.request(extent);
                }
                self.missed(extent, &request);
            }
        }
        request
    }

    /// A request met the slow drive, and nothing brings its extent into RAM: a reason to move it when
    /// clients rest.
    pub fn missed(&mut self, extent: ExtentId, request: &Request) {
        if !request.is_stream() && self.heat.is_hot(extent) {
            self.later(extent);
        }
    }

    /// The extent may deserve a fast slot when clients rest.
    pub fn later(&mut self, extent: ExtentId) {
        let most = match self.placement {
            Placement::Heat => CANDIDATES_MAX,
            Placement::Fusion => FUSION_CANDIDATES_MAX,
        };
        if self.candidates.len() < most && self.candidates.back() != Some(&extent) {
            self.candidates.push_back(extent);
        }
    }

    /// An extent is to leave the fast drive for another one.
    pub fn leaves(&mut self, leaving: Option<ExtentId>) {
        self.leaving.extend(leaving.filter(|extent| !self.leaving.contains(extent)));
    }

    /// The next that is to leave, of those that can.
    pub fn next_leaving(&mut self, can: impl Fn(ExtentId) -> bool) -> Option<ExtentId> {
        let place = self.leaving.iter().position(|extent| can(*extent))?;
        self.leaving.remove(place)
    }

    /// Whether one of those that are to leave can.
    pub fn any_leaving(&self, can: impl Fn(ExtentId) -> bool) -> bool {
        self.leaving.iter().any(|extent| can(*extent))
    }

    /// How many are to leave.
    pub fn leaving(&self) -> usize {
        self.leaving.len()
    }

    /// Whether anything is to leave.
    pub fn has_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    pub fn leaving_is_full(&self) -> bool {
        self.leaving.len() >= LEAVING_MAX
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

    /// How often an extent was read lately.
    pub fn count(&self, extent: ExtentId) -> f64 {
        self.heat.count(extent)
    }

    /// A client asks for an extent to be fast.
    pub fn request(&mut self, extent: ExtentId) {
        self.heat.request(extent);
        self.later(extent);
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
        let asked = self.asked.capacity() * size_of::<(u64, u32)>();
        self.heat.memory_bytes() + (self.candidates.capacity() * 8 + asked) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placer() -> Placer {
        Placer::new(&crate::format::superblock::tests::example().geometry)
    }

    /// A read that no stage takes.
    fn miss(placer: &mut Placer, at: u64, length: u64) {
        let request = placer.observe(Access::Read, at, length, |_| Some(Tier::Slow));
        placer.missed(ExtentId(at >> 17), &request);
    }

    #[test]
    fn what_is_read_twice_from_the_slow_drive_becomes_a_candidate() {
        let mut placer = placer();
        miss(&mut placer, 5 << 20, 4096);
        assert!(!placer.has_candidates());
        miss(&mut placer, (5 << 20) - 8192, 4096);
        miss(&mut placer, 5 << 20, 4096);
        assert_eq!(placer.next_candidate(), Some(ExtentId(40)));
        assert_eq!(placer.next_candidate(), None);
    }

    #[test]
    fn a_film_warms_nothing_however_often_it_is_seen() {
        let mut placer = placer();
        for _ in 0..4 {
            for piece in 0..1000 {
                miss(&mut placer, piece << 17, 128 << 10);
            }
        }
        // Only the very front of each pass, before the stream is recognised.
        let promoted = std::iter::from_fn(|| placer.next_candidate()).count();
        assert!(promoted < 20, "{promoted}");
    }

    #[test]
    fn what_was_written_to_the_fast_drive_counts_against_its_wear() {
        let mut placer = placer();
        placer.limit_wear(24 << 20, 1000, 0);
        let day_ns = 86_400_000_000_000;
        assert!(placer.wear_covers(1 << 20, 1000, day_ns));
        assert!(!placer.wear_covers(1 << 20, 1000 + (1 << 20), day_ns));
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
