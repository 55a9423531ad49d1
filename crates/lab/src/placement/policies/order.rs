//! A queue of extents from which any can be taken out.

use std::collections::BTreeMap;

use crate::placement::ground::Extent;

/// First in at the front.
#[derive(Debug)]
pub(super) struct Order {
    by_turn: BTreeMap<u64, Extent>,
    turns: Vec<Option<u64>>,
    next: u64,
}

impl Order {
    pub fn new(extents: usize) -> Order {
        Order { by_turn: BTreeMap::new(), turns: vec![None; extents], next: 0 }
    }

    pub fn len(&self) -> usize {
        self.by_turn.len()
    }

    /// To the back, from wherever it is.
    pub fn push(&mut self, extent: Extent) {
        self.remove(extent);
        self.by_turn.insert(self.next, extent);
        self.turns[extent.index()] = Some(self.next);
        self.next += 1;
    }

    pub fn remove(&mut self, extent: Extent) -> bool {
        match self.turns[extent.index()].take() {
            Some(turn) => self.by_turn.remove(&turn).is_some(),
            None => false,
        }
    }

    pub fn front(&self) -> Option<Extent> {
        self.by_turn.first_key_value().map(|(_, extent)| *extent)
    }

    pub fn pop(&mut self) -> Option<Extent> {
        let (_, extent) = self.by_turn.pop_first()?;
        self.turns[extent.index()] = None;
        Some(extent)
    }
}
