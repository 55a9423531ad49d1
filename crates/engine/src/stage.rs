//! The stage: extents of the slow drive that were read whole while the head was there, in RAM, first
//! in first out. Those that have proved themselves go up from here, which costs no slow read.
//!
//! * An image is what the slow drive has at the extent's home, and nothing else: what the log has is
//!   newer and is looked up first.
//! * It is dropped before that home changes, or the extent gets another one. A read under way then
//!   is spoiled: it may have met either content, so its image is not kept.
//! * Nobody begins to read an image while its home is being written (`read.rs`).

use std::collections::VecDeque;

use crate::address::ExtentId;
use crate::canary::canary;
use crate::fixed_map::FixedMap;
use crate::geometry::Geometry;
use crate::marks::{self, Mark};

/// Of what the volume has, this part may be staged unless something else is said.
const SHARE: u64 = 100;
/// And no more than that, nor fewer extents.
const BYTES_MAX: u64 = 256 << 20;
const EXTENTS_MIN: u64 = 4;
/// Images that may wait for their slot beside those in the stage: a part of it.
const ENTERING_SHARE: usize = 4;

struct Image {
    bytes: Box<[u8]>,
    /// It was asked for again since it came.
    touched: bool,
    /// A stream brought it.
    by_stream: bool,
    /// Tells it from an earlier image of the extent.
    turn: u64,
    /// It waits to be written to the fast drive.
    entering: bool,
    /// It was looked at while clients rested, and not asked for since.
    considered: bool,
}

/// An extent that has left the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leaving {
    pub extent: ExtentId,
    pub touched: bool,
    pub by_stream: bool,
}

#[derive(Default)]
pub(crate) struct Stage {
    capacity: usize,
    images: FixedMap<u64, Image>,
    /// Oldest first. What was dropped meanwhile is passed over.
    order: VecDeque<(u64, ExtentId)>,
    next_turn: u64,
    /// Those that go up, oldest first; their images are still read.
    entering: VecDeque<ExtentId>,
    /// Images that were not looked at since they were last asked for.
    unconsidered: usize,
    /// None of them is of an earlier turn.
    consider_from: u64,
    /// Being read. `true`: what comes will not be the home's content.
    coming: FixedMap<u64, bool>,
}

impl Stage {
    /// Of so many bytes; 0: none.
    pub fn new(bytes: u64, geometry: &Geometry) -> Stage {
        Stage { capacity: (bytes / geometry.extent_bytes) as usize, ..Stage::default() }
    }

    /// The bytes of a stage when nobody has said how many.
    pub fn bytes_by_default(geometry: &Geometry) -> u64 {
        let least = EXTENTS_MIN * geometry.extent_bytes;
        (geometry.volume_bytes / SHARE).clamp(least, BYTES_MAX.max(least))
    }

    /// From now on of so many bytes; what is there is dropped.
    pub fn resize(&mut self, bytes: u64, geometry: &Geometry) {
        self.close();
        self.capacity = (bytes / geometry.extent_bytes) as usize;
    }

    /// Whether the extent may be read whole now.
    pub fn takes(&self, extent: ExtentId) -> bool {
        self.capacity > 0
            && !self.coming.contains_key(&extent.0)
            && !self.images.contains_key(&extent.0)
    }

    pub fn has(&self, extent: ExtentId) -> bool {
        self.images.contains_key(&extent.0)
    }

    /// The extent's image; counts as asking for it.
    pub fn get(&mut self, extent: ExtentId) -> Option<&[u8]> {
        let image = self.images.get_mut(&extent.0)?;
        image.touched = true;
        if image.considered && !image.entering {
            image.considered = false;
            self.unconsidered += 1;
            self.consider_from = self.consider_from.min(image.turn);
        }
        Some(&image.bytes)
    }

    /// The extent is about to be read whole.
    pub fn expect(&mut self, extent: ExtentId) {
        self.coming.insert(extent.0, false);
    }

    /// It was not read.
    pub fn give_up(&mut self, extent: ExtentId) {
        self.coming.remove(&extent.0);
    }

    /// It was read. Gives the one that leaves for it, which stays readable until it is dropped or
    /// enters.
    pub fn arrived(&mut self, extent: ExtentId, bytes: &[u8], by_stream: bool) -> Option<Leaving> {
        let spoiled = self.coming.remove(&extent.0).unwrap_or(true);
        if spoiled {
            marks::hit(Mark::StageSpoiled);
        }
        if self.capacity == 0 || spoiled && !canary!(StageSpoiledKept) {
            return None;
        }
        let turn = self.next_turn;
        self.next_turn += 1;
        let image = Image {
            bytes: bytes.into(),
            touched: false,
            by_stream,
            turn,
            entering: false,
            considered: false,
        };
        self.images.insert(extent.0, image);
        self.unconsidered += 1;
        self.order.push_back((turn, extent));
        self.forget_dropped();
        if self.images.len() - self.entering.len() <= self.capacity {
            return None;
        }
        let (_, extent) = self.order.pop_front()?;
        let image = &self.images[&extent.0];
        let leaving = Leaving { extent, touched: image.touched, by_stream: image.by_stream };
        Some(leaving)
    }

    /// Whether another image may wait for its slot.
    pub fn has_room_to_enter(&self) -> bool {
        self.entering.len() < self.entering_max()
    }

    /// How many images may wait.
    pub fn entering_max(&self) -> usize {
        (self.capacity / ENTERING_SHARE).max(2)
    }

    /// An extent that leaves the stage goes up.
    pub fn enter(&mut self, extent: ExtentId) {
        if let Some(image) = self.images.get_mut(&extent.0) {
            image.entering = true;
            self.unconsidered -= usize::from(!image.considered);
            image.considered = true;
            self.entering.push_back(extent);
        }
    }

    /// Whether something is staged that was asked for since it was last looked at.
    pub fn has_unconsidered(&self) -> bool {
        self.unconsidered > 0
    }

    /// The oldest of them, which is looked at now.
    pub fn consider(&mut self) -> Option<ExtentId> {
        if self.unconsidered == 0 {
            return None;
        }
        let images = &mut self.images;
        let from = self.order.partition_point(|(turn, _)| *turn < self.consider_from);
        let next = self.order.range(from..).find(|(turn, extent)| {
            images.get(&extent.0).is_some_and(|image| image.turn == *turn && !image.considered)
        });
        let (turn, extent) = *next.expect("what is not considered is in the order");
        self.consider_from = turn + 1;
        images.get_mut(&extent.0).expect("just seen").considered = true;
        self.unconsidered -= 1;
        Some(extent)
    }

    /// How many wait for their slot.
    pub fn entering(&self) -> u64 {
        self.entering.len() as u64
    }

    /// Takes the first of those that go up out of the line, with what it has.
    pub fn take_entering(&mut self) -> Option<(ExtentId, Box<[u8]>)> {
        let extent = self.entering.pop_front()?;
        let image = self.images.remove(&extent.0)?;
        Some((extent, image.bytes))
    }

    /// None of those that would go up finds a slot.
    pub fn give_up_entering(&mut self) {
        for extent in std::mem::take(&mut self.entering) {
            self.images.remove(&extent.0);
        }
    }

    /// The extent's home is about to change, or to be another one.
    pub fn drop_image(&mut self, extent: ExtentId) {
        if canary!(StageNotInvalidated) {
            return;
        }
        self.forget(extent);
    }

    /// The extent has left and does not go up.
    pub fn forget(&mut self, extent: ExtentId) {
        if canary!(StageComingForgotten) {
            self.coming.remove(&extent.0);
        } else if let Some(spoiled) = self.coming.get_mut(&extent.0) {
            *spoiled = true;
        }
        if let Some(image) = self.images.remove(&extent.0) {
            self.unconsidered -= usize::from(!image.considered);
            if image.entering {
                self.entering.retain(|other| *other != extent);
            }
        }
    }

    /// Nothing is staged from now on.
    pub fn close(&mut self) {
        let coming = std::mem::take(&mut self.coming);
        *self = Stage { coming, ..Stage::default() };
    }

    /// What it takes at most.
    pub fn bytes_max(&self, geometry: &Geometry) -> u64 {
        self.capacity as u64 * geometry.extent_bytes
    }

    pub fn memory_bytes(&self) -> u64 {
        self.images.values().map(|image| image.bytes.len() as u64).sum::<u64>()
            + self.order.capacity() as u64 * 16
    }

    /// Takes out of the order what is not here any more: what is in front, and all when it has become
    /// many.
    fn forget_dropped(&mut self) {
        let images = &self.images;
        let is_here = |(turn, extent): &(u64, ExtentId)| {
            images.get(&extent.0).is_some_and(|image| image.turn == *turn && !image.entering)
        };
        while self.order.front().is_some_and(|first| !is_here(first)) {
            self.order.pop_front();
        }
        if self.order.len() > 2 * self.capacity + 2 {
            self.order.retain(is_here);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(extents: usize) -> Stage {
        Stage { capacity: extents, ..Stage::default() }
    }

    fn bring(stage: &mut Stage, extent: u64) -> Option<Leaving> {
        assert!(stage.takes(ExtentId(extent)));
        stage.expect(ExtentId(extent));
        stage.arrived(ExtentId(extent), &[extent as u8; 8], false)
    }

    #[test]
    fn the_oldest_leaves_first_and_says_whether_it_was_asked_for_again() {
        let mut stage = stage(2);
        assert_eq!(bring(&mut stage, 1), None);
        assert_eq!(bring(&mut stage, 2), None);
        assert_eq!(stage.get(ExtentId(1)), Some(&[1; 8][..]));
        let first = Leaving { extent: ExtentId(1), touched: true, by_stream: false };
        assert_eq!(bring(&mut stage, 3), Some(first));
        stage.enter(ExtentId(1));
        assert_eq!(stage.get(ExtentId(1)), Some(&[1; 8][..]), "until it is above");
        let second = Leaving { extent: ExtentId(2), touched: false, by_stream: false };
        assert_eq!(bring(&mut stage, 4), Some(second));
        stage.forget(ExtentId(2));
        assert_eq!(stage.take_entering(), Some((ExtentId(1), vec![1; 8].into())));
        assert!(!stage.has(ExtentId(1)) && !stage.has(ExtentId(2)));
    }

    #[test]
    fn what_was_asked_for_is_looked_at_once_when_clients_rest() {
        let mut stage = stage(3);
        for extent in 1..4 {
            bring(&mut stage, extent);
        }
        stage.forget(ExtentId(2));
        assert_eq!(stage.consider(), Some(ExtentId(1)));
        assert_eq!((stage.consider(), stage.consider()), (Some(ExtentId(3)), None));
        stage.get(ExtentId(1));
        assert!(stage.has_unconsidered());
        stage.enter(ExtentId(1));
        assert!(!stage.has_unconsidered() && stage.consider().is_none());
    }

    #[test]
    fn what_changes_while_it_is_read_is_not_kept() {
        let mut stage = stage(2);
        stage.expect(ExtentId(1));
        stage.drop_image(ExtentId(1));
        assert_eq!(stage.arrived(ExtentId(1), &[1; 8], false), None);
        assert!(!stage.has(ExtentId(1)) && stage.takes(ExtentId(1)));
        bring(&mut stage, 1);
        stage.drop_image(ExtentId(1));
        assert!(!stage.has(ExtentId(1)));
        for extent in 2..1000 {
            bring(&mut stage, extent);
            stage.drop_image(ExtentId(extent));
        }
        assert!(stage.order.len() < 10 && stage.memory_bytes() < 1000);
    }
}
