//! Decisions about placement, behind one small interface: `observe` what happens, `admit` a new
//! extent to a drive, `wants` to know what should move. Pure: time and state are passed in.

use std::collections::VecDeque;

use crate::address::{ExtentId, Tier};
use crate::heat::{Heat, Weight};

/// A slow extent is worth a fast slot from this decayed count on: it was read again.
const PROMOTE_COUNT_MIN: f32 = 1.5;
/// A promotion must be this much hotter than what it displaces, or extents would go to and fro.
const HYSTERESIS: f32 = 2.0;
/// Extents that may wait for promotion. More would be stale before their turn comes.
const CANDIDATES_MAX: usize = 4096;
/// Streams told apart at once (one per client file, as a rule).
const STREAMS_MAX: usize = 64;
/// A request that begins this close behind the end of a stream continues it.
const STREAM_GAP_BYTES: u64 = 64 << 10;
/// A sequence this long is a stream.
const STREAM_BYTES_MIN: u64 = 512 << 10;

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

#[derive(Clone, Copy, Default)]
struct Stream {
    end: u64,
    length: u64,
}

/// The policy of a running volume.
pub(crate) struct Policy {
    heat: Heat,
    extent_bytes: u64,
    streams: [Stream; STREAMS_MAX],
    next_stream: usize,
    candidates: VecDeque<ExtentId>,
    placement: Placement,
}

impl Policy {
    pub fn new(extents: u64, fast_slots: u64, extent_bytes: u64) -> Policy {
        Policy {
            heat: Heat::new(extents, fast_slots),
            extent_bytes,
            streams: [Stream::default(); STREAMS_MAX],
            next_stream: 0,
            candidates: VecDeque::new(),
            placement: Placement::default(),
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
        let streaming = self.continues_stream(at, length);
        let positions = access == Access::Read || self.placement == Placement::Fusion;
        let weight = if positions && !streaming { Weight::READ } else { Weight::LIGHT };
        for extent in at / self.extent_bytes..(at + length).div_ceil(self.extent_bytes) {
            let extent = ExtentId(extent);
            self.heat.touch(extent, weight);
            // Requests that met the slow drive are the reason to move an extent.
            if weight == Weight::READ
                && tier_of(extent) == Some(Tier::Slow)
                && self.is_hot(extent)
                && self.candidates.len() < CANDIDATES_MAX
                && self.candidates.back() != Some(&extent)
            {
                self.candidates.push_back(extent);
            }
        }
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

    /// Whether an extent deserves a fast slot.
    pub fn is_hot(&self, extent: ExtentId) -> bool {
        self.heat.count(extent) >= PROMOTE_COUNT_MIN
    }

    /// Whether `candidate` should take the place of `resident`.
    pub fn should_displace(&self, candidate: ExtentId, resident: ExtentId) -> bool {
        self.heat.count(candidate) >= HYSTERESIS * self.heat.count(resident)
    }

    /// The colder of two extents.
    pub fn colder(&self, one: ExtentId, other: ExtentId) -> ExtentId {
        if self.heat.count(other) < self.heat.count(one) { other } else { one }
    }

    /// A client asks for an extent to be fast: it counts as read twice just now.
    pub fn request(&mut self, extent: ExtentId) {
        self.heat.touch(extent, Weight::READ);
        self.heat.touch(extent, Weight::READ);
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

    pub fn memory_bytes(&self) -> u64 {
        self.heat.memory_bytes() + self.candidates.capacity() as u64 * 8
    }

    fn continues_stream(&mut self, at: u64, length: u64) -> bool {
        let end = at + length;
        let known = self.streams.iter_mut().find(|stream| {
            stream.length > 0 && (stream.end..=stream.end + STREAM_GAP_BYTES).contains(&at)
        });
        if let Some(stream) = known {
            stream.length += end - stream.end;
            stream.end = end;
            return stream.length >= STREAM_BYTES_MIN;
        }
        self.streams[self.next_stream] = Stream { end, length };
        self.next_stream = (self.next_stream + 1) % STREAMS_MAX;
        length >= STREAM_BYTES_MIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::new(10_000, 1000, 128 << 10)
    }

    #[test]
    fn what_is_read_twice_from_the_slow_drive_becomes_a_candidate() {
        let mut policy = policy();
        let slow = |_| Some(Tier::Slow);
        policy.observe(Access::Read, 5 << 20, 4096, slow);
        assert!(!policy.has_candidates());
        policy.observe(Access::Read, (5 << 20) - 8192, 4096, slow);
        policy.observe(Access::Read, 5 << 20, 4096, slow);
        assert_eq!(policy.next_candidate(), Some(ExtentId(40)));
        assert_eq!(policy.next_candidate(), None);
    }

    #[test]
    fn a_film_warms_nothing_however_often_it_is_seen() {
        let mut policy = policy();
        for _ in 0..4 {
            for piece in 0..1000 {
                policy.observe(Access::Read, piece << 17, 128 << 10, |_| Some(Tier::Slow));
            }
        }
        // Only the very front of each pass, before the stream is recognised.
        let promoted = std::iter::from_fn(|| policy.next_candidate()).count();
        assert!(promoted < 20, "{promoted}");
    }

    #[test]
    fn many_interleaved_streams_are_told_apart() {
        let mut policy = policy();
        for piece in 0..100u64 {
            for client in 0..60 {
                policy.observe(Access::Read, (client << 24) + (piece << 16), 64 << 10, |_| None);
            }
        }
        assert!(policy.continues_stream((7 << 24) + (100 << 16), 4096));
    }

    #[test]
    fn writes_alone_do_not_promote() {
        let mut policy = policy();
        for n in 0..12 {
            policy.observe(Access::Write, (n * 37 % 12) << 24, 4096, |_| Some(Tier::Slow));
        }
        assert!(!policy.has_candidates());
    }

    #[test]
    fn a_fusion_drive_promotes_what_is_written_again() {
        let mut policy = policy();
        policy.set_placement(Placement::Fusion);
        for _ in 0..2 {
            policy.observe(Access::Write, 5 << 20, 4096, |_| Some(Tier::Slow));
        }
        assert_eq!(policy.next_candidate(), Some(ExtentId(40)));
        assert!(policy.overwrites_below());
    }

    #[test]
    fn new_extents_fill_the_fast_drive_first_and_keep_its_reserve() {
        let policy = policy();
        assert_eq!(policy.admit(11, 5, 10), Some(Tier::Fast));
        assert_eq!(policy.admit(10, 5, 10), Some(Tier::Slow));
        assert_eq!(policy.admit(10, 0, 10), Some(Tier::Fast));
        assert_eq!(policy.admit(0, 0, 10), None);
    }
}
