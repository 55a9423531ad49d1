//! What may move: a share of what clients move, and once, on credit, as much as the fast drive holds.
//!
//! Small requests earn little: without credit, a fast drive that is full of what nobody asks for would stay
//! so until clients had moved twice as much as it holds.

/// Bytes moved up for each byte of clients.
const SHARE: f64 = 0.5;
/// How far the account may fill.
const BYTES_MAX: f64 = (32u64 << 20) as f64;
/// How much of what it cannot take is kept for rests.
const SPARE_BYTES_MAX: f64 = (256u64 << 20) as f64;

pub(crate) struct Budget {
    bytes: f64,
    /// What clients have earned and nothing was moved for while they were at work.
    spare_bytes: f64,
    /// What may move before it is earned.
    credit_bytes: f64,
    /// All of that: what the fast drive holds.
    credit_bytes_max: f64,
}

impl Budget {
    /// For a fast drive that holds so much.
    pub fn new(fast_bytes: u64) -> Budget {
        let credit_bytes = fast_bytes as f64;
        Budget { bytes: BYTES_MAX, spare_bytes: 0.0, credit_bytes, credit_bytes_max: credit_bytes }
    }

    pub fn earn(&mut self, client_bytes: u64) {
        let bytes = self.bytes + SHARE * client_bytes as f64;
        self.bytes = bytes.min(BYTES_MAX);
        let spare_bytes = self.spare_bytes + bytes - self.bytes;
        self.spare_bytes = spare_bytes.min(SPARE_BYTES_MAX);
        let credit_bytes = self.credit_bytes + spare_bytes - self.spare_bytes;
        self.credit_bytes = credit_bytes.min(self.credit_bytes_max);
    }

    /// Whether so much may move: earned, or on credit.
    pub fn covers(&self, bytes: u64) -> bool {
        self.bytes.max(self.credit_bytes) >= bytes as f64
    }

    /// Spends what was earned, or else credit.
    pub fn spend(&mut self, bytes: u64) {
        let account = match self.bytes >= bytes as f64 {
            true => &mut self.bytes,
            false => &mut self.credit_bytes,
        };
        *account = (*account - bytes as f64).max(0.0);
    }

    /// What fills an empty fast drive is neither earned nor owed, but then nothing is left of the credit.
    pub fn fill(&mut self, bytes: u64) {
        self.bytes = (self.bytes - bytes as f64).max(0.0);
        self.credit_bytes = (self.credit_bytes - bytes as f64).max(0.0);
    }

    /// Whether so much was left over.
    pub fn has_spare(&self, bytes: u64) -> bool {
        self.spare_bytes >= bytes as f64
    }

    /// Spends what was left over.
    pub fn spend_spare(&mut self, bytes: u64) {
        self.spare_bytes = (self.spare_bytes - bytes as f64).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_fast_drive_may_be_filled_once_on_credit_whatever_it_held() {
        let mut budget = Budget::new(100 * MIB);
        let mut moved = 0;
        while budget.covers(MIB) {
            budget.spend(MIB);
            moved += 1;
        }
        assert_eq!(moved, 132);
        budget.earn(2 * MIB);
        assert!(budget.covers(MIB) && !budget.covers(2 * MIB));
        let mut empty = Budget::new(100 * MIB);
        (0..100).for_each(|_| empty.fill(MIB));
        assert!(!empty.covers(MIB), "filling takes the credit");
        // What is left of all accounts gives credit again.
        empty.earn(2 * (32 + 256 + 10) * MIB);
        (0..32).for_each(|_| empty.spend(MIB));
        assert!(empty.covers(10 * MIB) && !empty.covers(11 * MIB));
    }

    #[test]
    fn what_is_left_over_is_for_rests_and_no_more_than_was_earned() {
        let mut budget = Budget::new(0);
        assert!(budget.covers(32 << 20) && !budget.has_spare(1));
        budget.spend(2 << 20);
        budget.earn(10 << 20);
        assert!(budget.covers(32 << 20) && budget.has_spare(3 << 20));
        assert!(!budget.has_spare((3 << 20) + 1));
        budget.spend_spare(1 << 20);
        assert!(budget.has_spare(2 << 20) && !budget.has_spare(3 << 20));
        budget.earn(1 << 40);
        assert!(!budget.has_spare((256 << 20) + 1));
    }
}
