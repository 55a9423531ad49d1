//! How often the background may be in the way of clients on the slow drive.
//!
//! A request that meets background work there waits for up to a batch of it. As long as that happens
//! to few enough, the time within which 99 of 100 end hardly changes. So it is counted: clients'
//! requests earn, each that meets background work spends. Where requests leave gaps, work fits between
//! them and nothing is spent; where they do not, one batch is done for so many of them. Nothing is
//! assumed about how long a gap lasts.

/// One in so many requests may meet background work: of the slowest hundredth of them it is then a
/// part, and not the one that decides.
const REQUESTS_PER_MEETING: f64 = 160.0;
/// What can be saved up.
const SAVED_MAX: f64 = 2.0;
/// What can be owed: further meetings are not held against the background for ever.
const OWED_MAX: f64 = 6.0;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Courtesy {
    /// Meetings that are allowed; below zero when there were too many.
    saved: f64,
    /// Background work is under way on the slow drive.
    at_work: bool,
    met: u64,
}

impl Default for Courtesy {
    fn default() -> Courtesy {
        Courtesy { saved: 1.0, at_work: false, met: 0 }
    }
}

impl Courtesy {
    /// A client's request, which goes to the slow drive or not.
    pub fn request(&mut self, below: bool) {
        self.saved = (self.saved + 1.0 / REQUESTS_PER_MEETING).min(SAVED_MAX);
        if below && self.at_work {
            self.met += 1;
            self.saved = (self.saved - 1.0).max(-OWED_MAX);
        }
    }

    /// Background work that could wait begins or ends there.
    pub fn work(&mut self, at_work: bool) {
        self.at_work = at_work;
    }

    /// Whether a little of it may be done although clients are busy: more freely when they want
    /// nothing of the slow drive just now.
    pub fn allows(&self, slow_is_idle: bool) -> bool {
        self.saved >= if slow_is_idle { 1.0 } else { SAVED_MAX }
    }

    /// How many times longer than usual clients must have been silent for it to count as rest: who
    /// comes back again and again as soon as work has begun is waited for longer.
    pub fn patience(&self) -> u64 {
        if self.saved >= 0.0 { 1 } else { 1 << (-self.saved).ceil() as u32 }
    }

    /// Requests that met background work.
    pub fn met(&self) -> u64 {
        self.met
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_clients_meet_one_batch_in_so_many_requests() {
        let mut courtesy = Courtesy::default();
        let mut batches = 0;
        // The first 160 requests save up.
        for _ in 0..8160 {
            courtesy.work(courtesy.allows(false));
            batches += u64::from(courtesy.at_work);
            courtesy.request(true);
        }
        assert!((48..=52).contains(&batches), "{batches}");
        assert_eq!(courtesy.met(), batches);
    }

    #[test]
    fn who_leaves_gaps_is_not_in_the_way_and_who_returns_at_once_is_waited_for() {
        let mut courtesy = Courtesy::default();
        for _ in 0..1000 {
            courtesy.work(true);
            courtesy.work(false);
            courtesy.request(true);
        }
        assert!(courtesy.allows(true) && courtesy.patience() == 1);
        for _ in 0..5 {
            courtesy.work(true);
            courtesy.request(true);
        }
        assert!(!courtesy.allows(true) && courtesy.patience() >= 8);
    }
}
