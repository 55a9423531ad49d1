//! Which extents have begun a stay in the landing log lately. A write that begins one costs the slow
//! drive a write later; those that replace what is there cost nothing.
//!
//! One byte per extent: when its stay began, in eighths of the log written since. After 32 times
//! the log the byte's clock comes round, and an old stay may pass for a new one: a write is then
//! not counted, which does no harm.

use crate::interface::ExtentId;

/// Steps of the clock in which the log is written once.
const STEPS_PER_LOG: u64 = 8;
/// Values of the clock; 0 says never.
const CLOCK_VALUES: u64 = 255;

pub(crate) struct Stays {
    began: Vec<u8>,
    landed_bytes: u64,
    log_bytes: u64,
}

impl Stays {
    pub fn new(extents: u64, log_bytes: u64) -> Stays {
        Stays { began: vec![0; extents as usize], landed_bytes: 0, log_bytes: log_bytes.max(1) }
    }

    /// A write to the extent: whether it begins a stay. What goes to the log moves the clock.
    pub fn begins(&mut self, extent: ExtentId, lands_bytes: u64) -> bool {
        self.landed_bytes += lands_bytes;
        let step = self.landed_bytes * STEPS_PER_LOG / self.log_bytes;
        let now = (step % CLOCK_VALUES) as u8;
        let began = &mut self.began[extent.index()];
        let age = match *began {
            0 => CLOCK_VALUES,
            began => (u64::from(now) + CLOCK_VALUES - u64::from(began - 1)) % CLOCK_VALUES,
        };
        let begins = age >= STEPS_PER_LOG;
        if begins {
            *began = now + 1;
        }
        begins
    }

    pub fn memory_bytes(&self) -> u64 {
        self.began.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stay_lasts_as_long_as_the_log_is_not_written_once() {
        let mut stays = Stays::new(4, 8000);
        assert!(stays.begins(ExtentId(1), 1000));
        assert!(!stays.begins(ExtentId(1), 1000));
        assert!(stays.begins(ExtentId(2), 5000));
        assert!(!stays.begins(ExtentId(1), 0));
        assert!(stays.begins(ExtentId(1), 2000));
        assert!(!stays.begins(ExtentId(2), 0));
    }
}
