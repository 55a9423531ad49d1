//! Which request comes next: direction, place and size, in the order fio would ask.

use twin::{Random, mix};

use super::distribution::Drawer;
use super::job::{Direction, Job, PerDirection};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Next {
    pub direction: Direction,
    pub at: u64,
    pub bytes: u64,
}

/// The requests of one copy of a job.
pub(super) struct Order {
    start: u64,
    length: u64,
    unit: u64,
    drawer: Option<Drawer>,
    /// Where each direction of a sequential job goes on, from the start of the region.
    positions: PerDirection<u64>,
    /// Bytes until the job is through; none for a job that ends by time alone.
    left: Option<u64>,
    random: Random,
}

impl Order {
    /// Those of copy `copy` on a target of that size; `None` where its region is empty. `pattern`:
    /// the drawer of a copy before, if there was one.
    pub fn new(job: &Job, copy: u64, target_bytes: u64, pattern: Option<&Drawer>) -> Option<Order> {
        let (start, length) = job.region(target_bytes, copy);
        let unit = job.alignment();
        if length == 0 {
            return None;
        }
        let mut random = Random::new(mix(mix(job.seed) ^ copy));
        let drawer = job.access.random.then(|| match pattern {
            Some(pattern) => pattern.elsewhere(&mut random),
            None => {
                let once = !job.no_random_map && job.has_one_size();
                Drawer::new(&job.distribution, length / unit, once, &mut random)
            }
        });
        let through = job.io_size.map_or(length, |size| size.of(target_bytes));
        let left = (!job.time_based).then(|| through.saturating_mul(job.loops));
        Some(Order {
            start,
            length,
            unit,
            drawer,
            positions: PerDirection::default(),
            left,
            random,
        })
    }

    /// The drawer, for the next copy.
    pub fn pattern(&self) -> Option<&Drawer> {
        self.drawer.as_ref()
    }

    /// The next request, or none when the job is through.
    pub fn next(&mut self, job: &Job) -> Option<Next> {
        if self.left == Some(0) {
            return None;
        }
        let direction = job.access.direction.unwrap_or_else(|| {
            if self.random.below(100) < job.read_percent {
                Direction::Read
            } else {
                Direction::Write
            }
        });
        let wanted = job.blocks.get(direction).draw(&mut self.random);
        let from = match &mut self.drawer {
            Some(drawer) => drawer.draw(&mut self.random) * self.unit,
            None => {
                let position = self.positions.get(direction);
                if *position >= self.length { 0 } else { *position }
            }
        };
        let bytes = wanted.min(self.length - from);
        *self.positions.get_mut(direction) = from + bytes;
        if let Some(left) = &mut self.left {
            *left = left.saturating_sub(bytes);
        }
        Some(Next { direction, at: self.start + from, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::super::JobFile;
    use super::*;

    fn all(text: &str, target_bytes: u64) -> Vec<Next> {
        let job = JobFile::parse("x", text).unwrap().jobs.remove(0);
        let mut order = Order::new(&job, 0, target_bytes, None).unwrap();
        std::iter::from_fn(|| order.next(&job)).collect()
    }

    #[test]
    fn a_sequential_job_goes_over_its_region_and_ends_or_begins_again() {
        let at = |text: &str| all(text, 10 << 10).iter().map(|next| next.at).collect::<Vec<_>>();
        assert_eq!(at("[a]\nbs=4k\noffset=2k"), [0, 4096]);
        assert_eq!(at("[a]\nbs=2k\noffset=2k\nsize=6k"), [2048, 4096, 6144]);
        assert_eq!(at("[a]\nbs=4k\nio_size=16k"), [0, 4096, 0, 4096]);
        assert_eq!(at("[a]\nbs=4k\nloops=2"), [0, 4096, 0, 4096]);
    }

    #[test]
    fn a_random_job_covers_its_region_once_and_a_mixture_has_its_shares() {
        let mut at: Vec<u64> = all("[a]\nrw=randread", 1 << 20).iter().map(|n| n.at).collect();
        at.sort_unstable();
        assert_eq!(at, (0..256).map(|block| block * 4096).collect::<Vec<_>>());
        let mixed = all("[a]\nrw=randrw\nrwmixread=70\nio_size=40m\nbs=4k,8k", 1 << 20);
        let reads = mixed.iter().filter(|next| next.direction == Direction::Read).count();
        let share = reads as f64 / mixed.len() as f64;
        assert!((0.68..0.72).contains(&share), "{share}");
        assert!(mixed.iter().all(|next| match next.direction {
            Direction::Read => next.bytes == 4096,
            _ => next.bytes == 8192 && next.at % 8192 == 0,
        }));
    }

    #[test]
    fn copies_of_a_job_go_different_ways() {
        let job = JobFile::parse("x", "[a]\nrw=randread\nrandom_distribution=zipf:1.1").unwrap();
        let job = &job.jobs[0];
        let mut first = Order::new(job, 0, 1 << 30, None).unwrap();
        let mut second = Order::new(job, 1, 1 << 30, first.pattern()).unwrap();
        let drawn = |order: &mut Order| (0..20).map(|_| order.next(job)).collect::<Vec<_>>();
        assert_ne!(drawn(&mut first), drawn(&mut second));
    }
}
