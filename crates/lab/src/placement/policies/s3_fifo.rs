//! S3-FIFO (Yang and others, SOSP 2023), at extents: a small queue on probation, a main one, and a
//! memory of what left the small one. Streams do not come in.

use super::order::Order;
use super::{Contender, Extent, FastDrive, Ground, Occasion, Policy, Refusal, Touch};

/// The paper's: one tenth of the slots are on probation.
const SMALL_PARTS: usize = 10;
/// The paper's: touches are counted up to three.
const TOUCHES_MAX: u8 = 3;

/// See the head of the file.
pub struct S3Fifo {
    small: Order,
    small_max: usize,
    main: Order,
    ghosts: Order,
    ghosts_max: usize,
    touches: Vec<u8>,
}

impl S3Fifo {
    /// For so many slots.
    pub fn new(ground: &Ground, slots: usize) -> S3Fifo {
        let order = || Order::new(ground.extents());
        let small_max = (slots / SMALL_PARTS).max(1);
        S3Fifo {
            small: order(),
            small_max,
            main: order(),
            ghosts: order(),
            ghosts_max: slots - small_max.min(slots),
            touches: vec![0; ground.extents()],
        }
    }

    fn leave(&mut self) -> Option<Extent> {
        while self.small.len() >= self.small_max || self.main.len() == 0 {
            let Some(extent) = self.small.pop() else { break };
            if self.touches[extent.index()] > 1 {
                self.main.push(extent);
                self.touches[extent.index()] = 0;
                continue;
            }
            self.ghosts.push(extent);
            if self.ghosts.len() > self.ghosts_max {
                self.ghosts.pop();
            }
            return Some(extent);
        }
        while let Some(extent) = self.main.pop() {
            if self.touches[extent.index()] == 0 {
                return Some(extent);
            }
            self.touches[extent.index()] -= 1;
            self.main.push(extent);
        }
        None
    }
}

impl Policy for S3Fifo {
    fn observe(&mut self, touch: &Touch) {
        let touches = &mut self.touches[touch.extent.index()];
        if touch.is_resident && !touch.is_stream {
            *touches = (*touches + 1).min(TOUCHES_MAX);
        }
    }

    fn admit(
        &mut self,
        extent: Extent,
        occasion: Occasion,
        fast: &dyn FastDrive,
    ) -> Result<Option<Extent>, Refusal> {
        match occasion {
            Occasion::Missed { is_stream: false } => {}
            Occasion::Missed { is_stream: true } => return Err(Refusal::Stream),
            _ => return Err(Refusal::NoEvidence),
        }
        let leaving = if fast.free() == 0 { self.leave() } else { None };
        self.touches[extent.index()] = 0;
        if self.ghosts.remove(extent) {
            self.main.push(extent);
        } else {
            self.small.push(extent);
        }
        Ok(leaving)
    }
}

impl Contender for S3Fifo {
    fn name(&self) -> &'static str {
        "s3-fifo"
    }
}
