//! How much the fast drive may be written a day. Clients' own writes cannot be refused; what moves
//! there waits until there is something left for it.

/// Nanoseconds of a day.
const DAY_NS: f64 = 86_400e9;
/// The part of a day's budget that may be spent at once: what is saved up beyond it is forfeited, so
/// that no 24 hours see more than the budget.
const SAVED_SHARE: f64 = 1.0 / 24.0;

/// A token bucket that begins empty: what the last opening spent is not known.
#[derive(Debug, Clone, Copy)]
pub struct WearBudget {
    bytes_per_day: u64,
    /// Below zero when clients have written more than their share.
    saved_bytes: f64,
    counted_ns: u64,
}

impl WearBudget {
    /// Of so many bytes a day, 0 for no limit, from a moment on.
    pub fn new(bytes_per_day: u64, now_ns: u64) -> WearBudget {
        WearBudget { bytes_per_day, saved_bytes: 0.0, counted_ns: now_ns }
    }

    /// Whether something may be moved to the fast drive.
    pub fn covers(&mut self, bytes: u64, now_ns: u64) -> bool {
        if self.bytes_per_day == 0 {
            return true;
        }
        let day = self.bytes_per_day as f64;
        let bytes = bytes as f64;
        let passed_ns = now_ns.saturating_sub(self.counted_ns) as f64;
        self.counted_ns = now_ns;
        // Of a small budget more has to be saved up, or nothing would ever move.
        let saved_max =
            if bytes <= day / 2.0 { bytes.max(day * SAVED_SHARE) } else { day * SAVED_SHARE };
        // What may be saved up is taken from what comes in during the day.
        let earned = passed_ns * (day - saved_max) / DAY_NS;
        self.saved_bytes = (self.saved_bytes + earned).min(saved_max);
        self.saved_bytes >= bytes
    }

    /// So much was written to it, whoever asked for it.
    pub fn spend(&mut self, bytes: u64) {
        if self.bytes_per_day > 0 {
            // What was written more than a day ago is of no day any more.
            let day = self.bytes_per_day as f64;
            self.saved_bytes = (self.saved_bytes - bytes as f64).max(-day);
        }
    }

    /// What is set, 0 for no limit.
    pub fn bytes_per_day(&self) -> u64 {
        self.bytes_per_day
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_day_sees_more_than_its_budget_whenever_it_is_asked_for() {
        let day = DAY_NS as u64;
        let mut budget = WearBudget::new(24_000_000, 0);
        assert!(!budget.covers(1, 0), "what the last opening spent is not known");
        // Idle for a week, then as much as there is for a day.
        let mut spent = 0;
        for step in 0..1440 {
            while budget.covers(10_000, 7 * day + step * (day / 1440)) {
                budget.spend(10_000);
                spent += 10_000;
            }
        }
        assert!((22_000_000..=24_000_000).contains(&spent), "{spent}");
    }

    #[test]
    fn what_clients_write_is_taken_from_what_moves() {
        let mut budget = WearBudget::new(24_000_000, 0);
        assert!(budget.covers(900_000, DAY_NS as u64));
        budget.spend(5_000_000);
        assert!(!budget.covers(1, DAY_NS as u64 + 60_000_000_000));
        assert!(WearBudget::new(0, 0).covers(u64::MAX, 0), "no limit");
    }

    #[test]
    fn a_day_of_too_much_is_paid_for_with_the_next_and_no_more() {
        let day = DAY_NS as u64;
        let mut budget = WearBudget::new(24_000_000, 0);
        budget.spend(240_000_000);
        assert!(!budget.covers(1, day), "within a day it was more than the budget");
        assert!(budget.covers(1, 2 * day));
    }

    #[test]
    fn a_small_budget_is_saved_up_for_and_never_exceeded() {
        let hour = DAY_NS as u64 / 24;
        let mut budget = WearBudget::new(400_000, 0);
        let mut spent_at = Vec::new();
        for now in (0..24 * 20).map(|hours| hours * hour) {
            if budget.covers(131_072, now) {
                budget.spend(131_072);
                spent_at.push(now);
            }
        }
        assert!(spent_at.len() > 20, "{}", spent_at.len());
        let most = spent_at.iter().map(|from| {
            spent_at.iter().filter(|at| (*from..from + 24 * hour).contains(at)).count()
        });
        assert!(most.max().is_some_and(|most| most as u64 * 131_072 <= 400_000));
        let mut tiny = WearBudget::new(100_000, 0);
        assert!(!tiny.covers(131_072, 100 * 24 * hour), "more than a day's is never moved at once");
    }
}
