//! The stage: extents read whole while the head was there, in RAM, first in first out.

use std::collections::{HashMap, VecDeque};

use super::ground::Extent;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Stage {
    capacity: usize,
    order: VecDeque<Extent>,
    staged: HashMap<Extent, Staged>,
}

/// An extent in the stage, or just out of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Staged {
    pub extent: Extent,
    /// It was asked for again since it came.
    pub touched: bool,
    /// A stream brought it.
    pub by_stream: bool,
}

impl Stage {
    pub fn new(capacity: usize) -> Stage {
        Stage { capacity, ..Stage::default() }
    }

    pub fn is_there(&self) -> bool {
        self.capacity > 0
    }

    /// Whether it is here; counts as a touch.
    pub fn touch(&mut self, extent: Extent) -> bool {
        self.staged.get_mut(&extent).map(|staged| staged.touched = true).is_some()
    }

    pub fn has(&self, extent: Extent) -> bool {
        self.staged.contains_key(&extent)
    }

    /// Brings one in; what leaves for it.
    pub fn enter(&mut self, extent: Extent, by_stream: bool) -> Option<Staged> {
        if self.staged.insert(extent, Staged { extent, touched: false, by_stream }).is_none() {
            self.order.push_back(extent);
        }
        if self.order.len() <= self.capacity {
            return None;
        }
        let leaving = self.order.pop_front()?;
        self.staged.remove(&leaving)
    }
}
