//! A line for those who wait for room, so that a large request is not passed by small ones for
//! ever.

use std::collections::BTreeMap;
use std::task::{Context, Waker};

/// Who waits, in order of arrival.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// With how to wake each, once it has been polled.
    waiting: BTreeMap<u64, Option<Waker>>,
    next: u64,
}

/// A place in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl Line {
    /// Takes a place at the end.
    pub fn join(&mut self) -> Place {
        let place = Place(self.next);
        self.next += 1;
        self.waiting.insert(place.0, None);
        place
    }

    /// Gives the place up, served or not.
    pub fn leave(&mut self, place: Place) {
        self.waiting.remove(&place.0);
    }

    /// Whether it is the turn of `place`; of a newcomer (`None`) only when nobody waits.
    pub fn is_turn(&self, place: Option<Place>) -> bool {
        match (self.waiting.keys().next(), place) {
            (None, _) => true,
            (Some(first), Some(place)) => *first == place.0,
            (Some(_), None) => false,
        }
    }

    /// Has the task of this place woken when it may be its turn.
    pub fn register(&mut self, place: Place, context: &Context<'_>) {
        if let Some(waker) = self.waiting.get_mut(&place.0) {
            *waker = Some(context.waker().clone());
        }
    }

    /// Has the first look again. The others need not: it is not their turn.
    pub fn wake_first(&self) {
        if let Some(Some(waker)) = self.waiting.values().next() {
            waker.wake_by_ref();
        }
    }

    /// Has everyone look again: there is nothing to wait for any more.
    pub fn wake_all(&self) {
        self.waiting.values().flatten().for_each(Waker::wake_by_ref);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newcomers_stand_behind_those_who_wait() {
        let mut line = Line::default();
        assert!(line.is_turn(None));
        let first = line.join();
        let second = line.join();
        assert!(line.is_turn(Some(first)) && !line.is_turn(Some(second)) && !line.is_turn(None));
        line.leave(first);
        assert!(line.is_turn(Some(second)));
        line.leave(second);
        assert!(line.is_turn(None) && line.is_empty());
    }
}
