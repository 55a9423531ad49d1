//! When a request may begin where a job's rate is limited.

use io::units::SECOND_NS;

use super::job::{Direction, Job, PerDirection};
use super::order::Next;

/// What was begun so far in each direction. A job that fell behind catches up, as fio's do.
#[derive(Default)]
pub(super) struct Pacer {
    bytes: PerDirection<u64>,
    requests: PerDirection<u64>,
}

impl Pacer {
    /// The moment, from the job's beginning, at which this request may begin (ns).
    pub fn due_ns(&mut self, job: &Job, next: &Next) -> u64 {
        let direction: Direction = next.direction;
        let (bytes, requests) = (self.bytes.get_mut(direction), self.requests.get_mut(direction));
        let at = |done: u64, limit: u64| {
            (u128::from(done) * u128::from(SECOND_NS) / u128::from(limit)) as u64
        };
        let due_ns = match (job.rate.get(direction), job.rate_iops.get(direction)) {
            (Some(limit), _) => at(*bytes, *limit),
            (None, Some(limit)) => at(*requests, *limit),
            (None, None) => 0,
        };
        *bytes += next.bytes;
        *requests += 1;
        due_ns
    }
}
