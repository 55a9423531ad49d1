//! Multi-Queue (Zhou, Philbin, Li, USENIX 2001), as dm-cache's smq is descended from it: queues by
//! the logarithm of how often, least recently used within each, and a memory of what left.
//! An extent comes in at the third touch that is remembered; streams do not count.

use super::order::Order;
use super::{Contender, Extent, FastDrive, Ground, Occasion, Policy, Refusal, Touch};

/// Queues; in the last one is what was touched 128 times and more.
const QUEUES: usize = 8;
/// Touches that make an extent come in.
const ENTER_TOUCHES: u32 = 3;
/// What has left, or has not come in yet, is remembered for so many times the slots.
const GHOSTS_PER_SLOT: usize = 4;
/// An extent not touched for so many touches per slot moves a queue down.
const LIFETIME_PER_SLOT: u64 = 4;

/// See the head of the file.
pub struct MultiQueue {
    queues: Vec<Order>,
    ghosts: Order,
    ghosts_max: usize,
    touches: Vec<u32>,
    queue_of: Vec<u8>,
    expires: Vec<u64>,
    now: u64,
    lifetime: u64,
}

impl MultiQueue {
    /// For so many slots.
    pub fn new(ground: &Ground, slots: usize) -> MultiQueue {
        let extents = ground.extents();
        MultiQueue {
            queues: (0..QUEUES).map(|_| Order::new(extents)).collect(),
            ghosts: Order::new(extents),
            ghosts_max: slots * GHOSTS_PER_SLOT,
            touches: vec![0; extents],
            queue_of: vec![0; extents],
            expires: vec![0; extents],
            now: 0,
            lifetime: slots as u64 * LIFETIME_PER_SLOT,
        }
    }

    fn enqueue(&mut self, extent: Extent, queue: usize) {
        let old = usize::from(self.queue_of[extent.index()]);
        self.queues[old].remove(extent);
        self.queues[queue].push(extent);
        self.queue_of[extent.index()] = queue as u8;
        self.expires[extent.index()] = self.now + self.lifetime;
    }

    /// The front of each queue that was not touched for a lifetime goes one down.
    fn adjust(&mut self) {
        for queue in 1..QUEUES {
            if let Some(front) = self.queues[queue].front()
                && self.expires[front.index()] < self.now
            {
                self.enqueue(front, queue - 1);
            }
        }
    }

    fn remember(&mut self, extent: Extent) {
        self.ghosts.push(extent);
        if self.ghosts.len() > self.ghosts_max
            && let Some(forgotten) = self.ghosts.pop()
        {
            self.touches[forgotten.index()] = 0;
        }
    }
}

impl Policy for MultiQueue {
    fn observe(&mut self, touch: &Touch) {
        self.now += 1;
        let touches = &mut self.touches[touch.extent.index()];
        if !touch.is_stream {
            *touches = touches.saturating_add(1);
        }
        let queue = (touches.max(&mut 1).ilog2() as usize).min(QUEUES - 1);
        if touch.is_resident {
            self.enqueue(touch.extent, queue);
        } else if !touch.is_stream {
            self.remember(touch.extent);
        }
        self.adjust();
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
        let touches = self.touches[extent.index()];
        if touches < ENTER_TOUCHES {
            return Err(Refusal::NoEvidence);
        }
        let leaving =
            if fast.free() == 0 { self.queues.iter_mut().find_map(Order::pop) } else { None };
        if let Some(leaving) = leaving {
            self.remember(leaving);
        }
        self.ghosts.remove(extent);
        self.enqueue(extent, (touches.ilog2() as usize).min(QUEUES - 1));
        Ok(leaving)
    }
}

impl Contender for MultiQueue {
    fn name(&self) -> &'static str {
        "multi-queue"
    }
}
