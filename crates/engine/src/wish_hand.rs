//! The hand that goes over what is wished ([`crate::wishes`]) and has it granted. What could not be
//! granted now is tried again later: because a drive refused, a request held the extent, or nothing may
//! be moved up today.

use crate::backoff::Backoff;

#[derive(Debug, Default)]
pub(crate) struct WishHand {
    /// Extents whose wishes are to be looked at come from here on; `None`: it is through.
    at: Option<u64>,
    /// Some of those that it has passed are not granted.
    left: bool,
    /// A drive refused one of a batch.
    careful: bool,
    backoff: Backoff,
    /// When it goes over them again.
    again_ns: Option<u64>,
}

impl WishHand {
    /// Something new is wished, or the volume was opened.
    pub fn begin(&mut self) {
        *self = WishHand { at: Some(0), ..WishHand::default() };
    }

    /// An extent is not, or not any more, where it is wished to be.
    pub fn look_again(&mut self, extent: u64) {
        self.at = Some(self.at.map_or(extent, |at| at.min(extent)));
    }

    /// Where it is.
    pub fn at(&self) -> Option<u64> {
        self.at
    }

    /// It has work, or will have: then.
    pub fn due_ns(&self) -> Option<u64> {
        if self.at.is_some() { Some(0) } else { self.again_ns }
    }

    /// Begins again if it is time to.
    pub fn look(&mut self, now_ns: u64) {
        if self.at.is_none() && self.again_ns.is_some_and(|again| now_ns >= again) {
            (self.at, self.left, self.again_ns) = (Some(0), false, None);
        }
    }

    pub fn go_to(&mut self, extent: u64) {
        self.at = Some(extent);
    }

    /// A batch with some that it has passed was refused by a drive.
    pub fn fail(&mut self, now_ns: u64) {
        self.careful = true;
        self.leave_some(now_ns);
    }

    /// An extent that it has passed cannot be moved now.
    pub fn leave_some(&mut self, now_ns: u64) {
        self.left = true;
        if self.at.is_none() {
            self.end(now_ns);
        }
    }

    /// It has passed them all.
    pub fn end(&mut self, now_ns: u64) {
        self.at = None;
        if self.left {
            self.again_ns.get_or_insert_with(|| now_ns + self.backoff.failed());
        } else {
            self.careful = false;
            self.backoff.succeeded();
        }
    }

    /// Whether one extent is to be moved at a time, so that one that cannot be moved fails alone.
    pub fn is_careful(&self) -> bool {
        self.careful
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::units::SECOND_NS;

    #[test]
    fn what_is_left_is_gone_over_again_and_later_each_time() {
        let mut hand = WishHand::default();
        assert_eq!(hand.due_ns(), None);
        hand.begin();
        assert_eq!((hand.at(), hand.due_ns(), hand.is_careful()), (Some(0), Some(0), false));
        hand.go_to(7);
        hand.end(0);
        assert_eq!(hand.due_ns(), None);
        // The batch fails after the hand has gone through.
        hand.fail(0);
        assert_eq!(hand.due_ns(), Some(8 * SECOND_NS));
        hand.look(7 * SECOND_NS);
        assert_eq!(hand.at(), None);
        hand.look(8 * SECOND_NS);
        assert!(hand.at() == Some(0) && hand.is_careful());
        // And once before that.
        hand.leave_some(9 * SECOND_NS);
        hand.end(10 * SECOND_NS);
        assert_eq!(hand.due_ns(), Some(26 * SECOND_NS));
        hand.look(26 * SECOND_NS);
        hand.end(27 * SECOND_NS);
        assert!(hand.due_ns().is_none() && !hand.is_careful());
    }
}
