//! Which accesses to the drives are under way, so that nothing they may still use is reused.
//!
//! Time is cut into epochs. An access belongs to the epoch it began in; something given up in
//! epoch E may be reused once every access of epochs up to E has ended. Counting per epoch costs
//! two additions per request, whatever is in flight.

use std::collections::VecDeque;

/// A stretch of time between two reclaims.
pub(crate) type Epoch = u64;

#[derive(Default)]
pub(crate) struct Accesses {
    /// Epoch of the first count.
    oldest: Epoch,
    /// Accesses under way per epoch, from `oldest` to the current one (the last).
    counts: VecDeque<u64>,
}

impl Accesses {
    /// An access begins; it ends with [`Accesses::leave`] of the same epoch.
    pub fn enter(&mut self) -> Epoch {
        if self.counts.is_empty() {
            self.counts.push_back(0);
        }
        *self.counts.back_mut().expect("just filled") += 1;
        self.oldest + self.counts.len() as u64 - 1
    }

    pub fn leave(&mut self, epoch: Epoch) {
        self.counts[(epoch - self.oldest) as usize] -= 1;
        self.drop_ended();
    }

    /// Closes the current epoch and gives its number: what is given up now carries it.
    pub fn close_epoch(&mut self) -> Epoch {
        if self.counts.is_empty() {
            self.counts.push_back(0);
        }
        let closed = self.oldest + self.counts.len() as u64 - 1;
        self.counts.push_back(0);
        self.drop_ended();
        closed
    }

    /// Every access of epochs before this one has ended.
    pub fn ended(&self) -> Epoch {
        self.oldest
    }

    fn drop_ended(&mut self) {
        while self.counts.len() > 1 && self.counts.front() == Some(&0) {
            self.counts.pop_front();
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_ends_when_its_last_access_does() {
        let mut accesses = Accesses::default();
        let first = accesses.enter();
        let closed = accesses.close_epoch();
        assert_eq!(closed, first);
        let second = accesses.enter();
        assert!(second > first);
        assert!(accesses.ended() <= closed, "the first access is still under way");
        accesses.leave(second);
        assert!(accesses.ended() <= closed);
        accesses.leave(first);
        assert!(accesses.ended() > closed);
    }

    #[test]
    fn without_accesses_an_epoch_has_ended_at_once() {
        let mut accesses = Accesses::default();
        let closed = accesses.close_epoch();
        assert!(accesses.ended() > closed);
    }
}
