//! What may move: a share of what clients move.

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
}

impl Budget {
    pub fn new() -> Budget {
        Budget { bytes: BYTES_MAX, spare_bytes: 0.0 }
    }

    pub fn earn(&mut self, client_bytes: u64) {
        let bytes = self.bytes + SHARE * client_bytes as f64;
        self.bytes = bytes.min(BYTES_MAX);
        self.spare_bytes = (self.spare_bytes + bytes - self.bytes).min(SPARE_BYTES_MAX);
    }

    pub fn covers(&self, bytes: u64) -> bool {
        self.bytes >= bytes as f64
    }

    /// What is spent although it was not covered is not owed.
    pub fn spend(&mut self, bytes: u64) {
        self.bytes = (self.bytes - bytes as f64).max(0.0);
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

    #[test]
    fn what_is_left_over_is_for_rests_and_no_more_than_was_earned() {
        let mut budget = Budget::new();
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
