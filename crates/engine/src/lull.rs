//! When nobody writes, the log does not fill, and what is in it can go down slowly: whoever reads meanwhile shall
//! hardly notice. A burst of writes is otherwise paid for by the readers behind it.

use io::units::SECOND_NS;

/// Nothing has landed for so long: a lull.
const SILENT_NS: u64 = SECOND_NS;
/// In a lull the slow drive is left alone for so many times as long as the last batch took: a tenth of its time goes
/// into emptying the log.
const LEFT_ALONE_TIMES: u64 = 9;

/// Whether clients' writes still come, and when in a lull the next batch may go down.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Lull {
    landed_ns: u64,
    next_batch_ns: u64,
}

impl Lull {
    /// Clients' data was logged.
    pub fn landed(&mut self, now_ns: u64) {
        self.landed_ns = now_ns;
    }

    /// A batch has gone down.
    pub fn emptied(&mut self, now_ns: u64, duration_ns: u64) {
        self.next_batch_ns = now_ns.saturating_add(duration_ns.saturating_mul(LEFT_ALONE_TIMES));
    }

    /// Whether a log that is half full may wait now, although clients are busy.
    pub fn lets_wait(&self, now_ns: u64) -> bool {
        now_ns >= self.landed_ns.saturating_add(SILENT_NS) && now_ns < self.next_batch_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_the_time_in_a_lull_and_all_of_it_while_writes_come() {
        let mut lull = Lull::default();
        lull.landed(5 * SECOND_NS);
        lull.emptied(5 * SECOND_NS, SECOND_NS);
        assert!(!lull.lets_wait(5 * SECOND_NS + 1), "writes may still come");
        assert!(lull.lets_wait(6 * SECOND_NS) && lull.lets_wait(14 * SECOND_NS - 1));
        assert!(!lull.lets_wait(14 * SECOND_NS), "the next batch");
        lull.emptied(14 * SECOND_NS, u64::MAX);
        assert!(lull.lets_wait(15 * SECOND_NS));
        lull.landed(15 * SECOND_NS);
        assert!(!lull.lets_wait(15 * SECOND_NS));
    }
}
