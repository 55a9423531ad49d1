//! The stage: extents read whole while the head was there, in RAM, first in first out.

use std::collections::{HashMap, VecDeque};

use super::ground::Extent;

/// See the head of the file.
#[derive(Debug, Default)]
pub(super) struct Stage {
    capacity: usize,
    order: VecDeque<Extent>,
    /// Whether each was touched again since it came.
    touched: HashMap<Extent, bool>,
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
        self.touched.get_mut(&extent).map(|touched| *touched = true).is_some()
    }

    pub fn has(&self, extent: Extent) -> bool {
        self.touched.contains_key(&extent)
    }

    /// Brings one in; what leaves for it, and whether that was touched again.
    pub fn enter(&mut self, extent: Extent) -> Option<(Extent, bool)> {
        if self.touched.insert(extent, false).is_none() {
            self.order.push_back(extent);
        }
        if self.order.len() <= self.capacity {
            return None;
        }
        let leaving = self.order.pop_front()?;
        Some((leaving, self.touched.remove(&leaving).unwrap_or(false)))
    }
}
