//! Trying again: background work that a drive refused is tried again, later each time.

use io::units::SECOND_NS;

/// After the first failure.
const PAUSE_NS_MIN: u64 = 8 * SECOND_NS;
/// Something that fails for hours will hardly be better a minute later.
const PAUSE_NS_MAX: u64 = 3600 * SECOND_NS;

/// How long to wait before the next attempt.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Backoff {
    /// The last pause; 0: it has not failed lately.
    pause_ns: u64,
}

impl Backoff {
    /// It failed. Gives for how long to leave it alone.
    pub fn failed(&mut self) -> u64 {
        self.pause_ns = (2 * self.pause_ns).clamp(PAUSE_NS_MIN, PAUSE_NS_MAX);
        self.pause_ns
    }

    pub fn succeeded(&mut self) {
        self.pause_ns = 0;
    }

    /// Whether to go one by one, so that one that cannot be moved fails alone.
    pub fn is_careful(&self) -> bool {
        self.pause_ns > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_an_hour_and_begin_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..11).map(|_| backoff.failed() / SECOND_NS).collect();
        assert_eq!(pauses, [8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3600, 3600]);
        assert!(backoff.is_careful());
        backoff.succeeded();
        assert!(!backoff.is_careful());
        assert_eq!(backoff.failed(), PAUSE_NS_MIN);
    }
}
