//! Back-pressure: when the log fills faster than it can be emptied, writers are slowed down evenly
//! to the rate at which it empties, instead of running into a full log and standing still.

/// Below this fill writers are not slowed.
pub(crate) const PACED_FROM_FILL: f64 = 0.75;
/// At a full log writers are slowed to this multiple of the draining time, so that the fill falls
/// again before anybody must wait for room.
const FACTOR_FULL: f64 = 1.5;
/// No request is held up longer than this: the estimate may be wrong, the log's room is not.
const DELAY_NS_MAX: u64 = 500_000_000;

/// The rate at which the log empties, and when the next write may go in.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Pace {
    /// Time that emptying one block takes, smoothed; 0: not known yet.
    drain_ns_per_block: f64,
    /// Work on emptying since blocks were last counted.
    worked_ns: u64,
    /// The last write that was let in has its turn until then.
    next_ns: u64,
}

impl Pace {
    /// The janitor worked on emptying the log for so long.
    pub fn worked(&mut self, duration_ns: u64) {
        self.worked_ns += duration_ns;
    }

    /// The work so far has carried blocks, and says nothing of how long destaging takes.
    pub fn carried(&mut self) {
        self.worked_ns = 0;
    }

    /// So many blocks were destaged. Each frees at least its own place in the log.
    pub fn emptied(&mut self, blocks: u64) {
        if blocks == 0 {
            return;
        }
        let measured = self.worked_ns as f64 / blocks as f64;
        self.drain_ns_per_block = if self.drain_ns_per_block == 0.0 {
            measured
        } else {
            (self.drain_ns_per_block + measured) / 2.0
        };
        self.worked_ns = 0;
    }

    /// How long a write of so many blocks should wait now, in nanoseconds. Each call takes a turn.
    pub fn delay_ns(&mut self, now_ns: u64, blocks: u64, fill: f64) -> u64 {
        if fill < PACED_FROM_FILL {
            return 0;
        }
        let share = ((fill - PACED_FROM_FILL) / (1.0 - PACED_FROM_FILL)).min(1.0);
        let turn_ns = blocks as f64 * self.drain_ns_per_block * share * FACTOR_FULL;
        let begin_ns = self.next_ns.max(now_ns);
        self.next_ns = begin_ns.saturating_add(turn_ns.round() as u64).min(now_ns + DELAY_NS_MAX);
        begin_ns - now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_together_are_slowed_to_the_draining_rate() {
        let mut pace = Pace::default();
        pace.worked(1_000_000);
        pace.emptied(100);
        // 10 µs a block; at 11/12 of the way the factor is 1.
        let fill = PACED_FROM_FILL + 0.25 / FACTOR_FULL;
        let delays: Vec<u64> = (0..5).map(|_| pace.delay_ns(1000, 1, fill)).collect();
        assert_eq!(delays, [0, 10_000, 20_000, 30_000, 40_000]);
        assert_eq!(pace.delay_ns(1000, 1, 0.5), 0);
    }

    #[test]
    fn a_wrong_estimate_cannot_hold_anybody_up_for_long() {
        let mut pace = Pace::default();
        pace.worked(u64::MAX / 4);
        pace.emptied(1);
        for _ in 0..100 {
            assert!(pace.delay_ns(5, 256, 1.0) <= DELAY_NS_MAX);
        }
    }
}
