//! Class cache, write-back: while clients rest, what only the fast drive has is written home as well. The
//! copies stay, and are clean. So little is at risk, and an evacuation or a change of mode is short.
//!
//! * In the order of the slow drive's addresses: a hand goes over the extents, and begins anew a while
//!   after it has come to the end.
//! * Only what nobody has asked for lately: what is written again goes through the log when its copy is
//!   clean, and in place when it is dirty.
//! * At most half of the slow drive's time: after each batch it is left alone for as long as that took.
//! * Never when the slow drive may sleep (`quiet.rs`): there dirty copies wait until somebody wants them
//!   home.
//!
//! How an extent becomes clean is `mover.rs`, for this as for a homecoming.

use io::units::SECOND_NS;

use crate::address::ExtentId;
use crate::backoff::Backoff;
use crate::geometry::Class;
use crate::state::State;

/// An extent that was asked for within so long is left alone, and so is all when there was nothing else.
const UNASKED_S: u64 = 8;
/// The slow drive's map is told of what has come home at the end of a round, and once in so long: map
/// pages cost flushes of both drives, and until they are written the slow drive alone would not know.
const TELL_NS: u64 = 60 * SECOND_NS;

#[derive(Debug, Default)]
pub(crate) struct Cleaning {
    /// The next extent to look at.
    hand: u64,
    /// The next batch not before this.
    due_ns: u64,
    /// When the slow drive's map is to be told at the latest of what has come home.
    tell_ns: Option<u64>,
    /// A batch of this round has failed.
    failed: bool,
    backoff: Backoff,
}

impl Cleaning {
    /// The volume is opened now: who was asked for lately is not known.
    pub fn opened(now_ns: u64) -> Cleaning {
        Cleaning { due_ns: now_ns + UNASKED_S * SECOND_NS, ..Cleaning::default() }
    }

    /// The next extent of the round that is under way; `None`: it has come to the end. `find` gives the first
    /// one from a number on.
    pub fn next_in_round(&mut self, find: impl Fn(u64) -> Option<ExtentId>) -> Option<ExtentId> {
        let found = find(self.hand);
        self.hand = found.map_or(0, |extent| extent.0 + 1);
        found
    }

    /// The next extent, round and round; `None`: there is none.
    pub fn next(&mut self, find: impl Fn(u64) -> Option<ExtentId>) -> Option<ExtentId> {
        self.next_in_round(&find).or_else(|| self.next_in_round(&find))
    }

    /// A batch went home, or could not.
    pub fn ended(&mut self, begun_ns: u64, now_ns: u64, done: bool) {
        self.due_ns = now_ns + (now_ns - begun_ns);
        if done {
            self.tell_ns.get_or_insert(now_ns + TELL_NS);
        } else {
            self.failed = true;
        }
    }

    /// What is left may not come home now. Gives whether something has, of which the slow drive's map
    /// does not know.
    fn end_round(&mut self, now_ns: u64) -> bool {
        let pause_ns = if std::mem::take(&mut self.failed) {
            self.backoff.failed()
        } else {
            self.backoff.succeeded();
            UNASKED_S * SECOND_NS
        };
        self.due_ns = now_ns + pause_ns;
        self.tell_ns.take().is_some()
    }

    /// The slow drive's map is up to date.
    pub fn told(&mut self) {
        self.tell_ns = None;
    }

    /// The slow drive's map may be told of other changes, too, from then on: not after each batch.
    pub fn tells_from_ns(&self) -> u64 {
        self.tell_ns.unwrap_or(0)
    }

    /// Whether to take one extent at a time.
    pub fn is_careful(&self) -> bool {
        self.failed || self.backoff.is_careful()
    }
}

/// When something may go home while clients rest; `None`: there is nothing, or it is not wanted.
pub(crate) fn due_ns(state: &State) -> Option<u64> {
    let wanted = state.geometry.class == Class::Cache
        && !state.homeward
        && !state.quiet.is_wanted()
        // The last to come home is to be told of, too.
        && (state.map.on_fast_alone() > 0 || state.cleaning.tell_ns.is_some());
    wanted.then_some(state.cleaning.due_ns)
}

/// Gives the next extents to one who has them written home, and says whether it took them, until it has so
/// many.
pub(crate) fn offer(
    state: &mut State,
    now_ns: u64,
    count: usize,
    mut take: impl FnMut(&mut State, ExtentId) -> bool,
) {
    if due_ns(state).is_none_or(|due_ns| now_ns < due_ns) {
        return;
    }
    let count = if state.cleaning.is_careful() { 1 } else { count };
    let mut taken = 0;
    while taken < count {
        let (cleaning, map) = (&mut state.cleaning, &state.map);
        let next = cleaning.next_in_round(|from| map.next_on_fast_alone(from));
        let Some(extent) = next else { break };
        let unasked = |ago_s: Option<u64>| ago_s.is_none_or(|ago_s| ago_s >= UNASKED_S);
        if unasked(state.placer.asked_s_ago(extent, now_ns)) && take(state, extent) {
            taken += 1;
        }
    }
    if taken == 0 && state.cleaning.end_round(now_ns) {
        state.doubts.look_again();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_ends_and_a_homecoming_goes_round_and_round() {
        let mut cleaning = Cleaning::default();
        let find = |from| [2, 3, 7].map(ExtentId).into_iter().find(|extent| extent.0 >= from);
        let round: Vec<_> = std::iter::from_fn(|| cleaning.next_in_round(find)).collect();
        assert_eq!(round, [2, 3, 7].map(ExtentId));
        let next = [(); 4].map(|()| cleaning.next(find));
        assert_eq!(next, [2, 3, 7, 2].map(|extent| Some(ExtentId(extent))));
        assert_eq!(cleaning.next_in_round(find), Some(ExtentId(3)), "where it was left");
        assert_eq!(cleaning.next(|_| None), None);
    }

    #[test]
    fn half_of_the_time_is_left_to_others_and_a_failure_is_left_alone_for_longer() {
        let mut cleaning = Cleaning::default();
        cleaning.ended(100, 130, true);
        assert_eq!(cleaning.due_ns, 160);
        assert!(cleaning.tells_from_ns() > TELL_NS && !cleaning.is_careful());
        assert!(cleaning.end_round(200), "the map is to be told");
        assert_eq!((cleaning.due_ns, cleaning.tells_from_ns()), (200 + 8 * SECOND_NS, 0));
        for pause_s in [8, 16, 32] {
            cleaning.ended(0, 10, false);
            assert!(!cleaning.end_round(300));
            assert_eq!(cleaning.due_ns, 300 + pause_s * SECOND_NS);
            assert!(cleaning.is_careful());
        }
        cleaning.end_round(400);
        assert!(!cleaning.is_careful());
    }
}
