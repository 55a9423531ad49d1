//! How long a drive takes: the seam between a simulated drive and its physics.
//!
//! * A model sees each request when it is submitted. One that knows then when the request will be
//!   done says so at once; one that reorders its queue or waits for room in a cache says so later,
//!   by [`Model::advance`].
//! * It keeps what it needs between requests (where the head is, what the cache holds, ...) and
//!   never sees content.
//! * Time never goes backwards, and whoever drives a model stops at each moment that
//!   [`Model::next_ns`] names before going further.

use crate::random::Random;

/// What kind of request it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Data from the drive.
    Read,
    /// Data to the drive.
    Write,
    /// Cache to medium.
    Flush,
    /// A range is no longer needed.
    Trim,
    /// A range shall read as zeros.
    WriteZeroes,
}

/// A request as a model sees it.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// What is asked.
    pub kind: Kind,
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub length: u64,
}

/// A request that has come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finished {
    /// The name it was submitted under.
    pub tag: u64,
    /// When (ns), not before its submission and not after the moment it is told.
    pub at_ns: u64,
}

/// The physics of one drive.
pub trait Model: Send + Sync {
    /// Takes the request `tag`, a name that no other request under way has. Says when (ns, not
    /// before `now_ns`) it will be done, if that is certain already; else [`Model::advance`] tells.
    fn submit(&mut self, now_ns: u64, tag: u64, request: &Request) -> Option<u64>;

    /// When something may happen next without further requests. Never `None` while a request is
    /// under way whose end has not been told.
    fn next_ns(&self) -> Option<u64> {
        None
    }

    /// Lives on until `now_ns`, and tells what has finished until then.
    fn advance(&mut self, now_ns: u64, finished: &mut Vec<Finished>) {
        let _ = (now_ns, finished);
    }

    /// A copy in the same condition, for snapshots of a simulation.
    fn duplicate(&self) -> Box<dyn Model>;

    /// After a power cycle: nothing is under way any more.
    fn reset(&mut self);
}

/// Fixed latencies with seeded jitter over a number of equal channels: no particular drive, but
/// completions come out of order, as from any drive.
#[derive(Debug, Clone)]
pub struct Latencies {
    /// Time for a read of no bytes.
    pub read_ns: u64,
    /// Time for a write of no bytes.
    pub write_ns: u64,
    /// Time for a flush.
    pub flush_ns: u64,
    /// Time for a trim or for zeroes.
    pub trim_ns: u64,
    /// Time added for each KiB moved.
    pub kib_ns: u64,
    /// Up to this share of a request's time is added, drawn anew each time.
    pub jitter_percent: u64,
    /// Of a thousand requests so many take [`Latencies::stall_ns`] longer: cleaning, retries.
    pub stall_permille: u64,
    /// How long a stall is.
    pub stall_ns: u64,
    /// Only reads stall: a medium that retries, under a cache that takes writes.
    pub only_reads_stall: bool,
    /// Requests served at the same time, at least 1; others wait for a channel.
    pub channels: usize,
}

impl Latencies {
    /// Roughly a NAND drive.
    pub fn flash() -> Latencies {
        Latencies {
            read_ns: 80_000,
            write_ns: 20_000,
            flush_ns: 500_000,
            trim_ns: 50_000,
            kib_ns: 500,
            jitter_percent: 100,
            stall_permille: 0,
            stall_ns: 20_000_000,
            only_reads_stall: false,
            channels: 16,
        }
    }

    /// Roughly a drive with a spinning disk.
    pub fn disk() -> Latencies {
        Latencies {
            read_ns: 8_000_000,
            write_ns: 6_000_000,
            flush_ns: 12_000_000,
            trim_ns: 1_000_000,
            kib_ns: 6_000,
            jitter_percent: 100,
            stall_permille: 0,
            stall_ns: 200_000_000,
            only_reads_stall: false,
            channels: 2,
        }
    }
}

/// [`Latencies`] at work.
#[derive(Clone)]
pub(crate) struct Channels {
    latencies: Latencies,
    /// When each channel is free (ns).
    free_at_ns: Vec<u64>,
    random: Random,
}

impl Channels {
    pub(crate) fn new(latencies: Latencies, random: Random) -> Channels {
        let free_at_ns = vec![0; latencies.channels.max(1)];
        Channels { latencies, free_at_ns, random }
    }
}

impl Model for Channels {
    fn submit(&mut self, now_ns: u64, _: u64, request: &Request) -> Option<u64> {
        let of = &self.latencies;
        let (base_ns, moved_bytes) = match request.kind {
            Kind::Read => (of.read_ns, request.length),
            Kind::Write => (of.write_ns, request.length),
            Kind::Flush => (of.flush_ns, 0),
            Kind::Trim | Kind::WriteZeroes => (of.trim_ns, 0),
        };
        let plain_ns = base_ns + of.kib_ns * moved_bytes.div_ceil(1024);
        let mut jitter_ns = self.random.below(plain_ns * of.jitter_percent / 100 + 1);
        let may_stall =
            of.stall_permille > 0 && !(of.only_reads_stall && request.kind != Kind::Read);
        if may_stall && self.random.below(1000) < of.stall_permille {
            jitter_ns += of.stall_ns;
        }
        let channel = self.free_at_ns.iter_mut().min().expect("at least one channel");
        *channel = now_ns.max(*channel) + plain_ns + jitter_ns;
        Some(*channel)
    }

    fn duplicate(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }

    fn reset(&mut self) {
        self.free_at_ns.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_bound_how_much_is_served_at_once() {
        let latencies = Latencies { jitter_percent: 0, channels: 2, ..Latencies::disk() };
        let mut model = Channels::new(latencies, Random::new(1));
        let request = Request { kind: Kind::Flush, at: 0, length: 0 };
        let done: Vec<u64> = (0..4).map(|_| model.submit(1000, 0, &request).unwrap()).collect();
        assert_eq!(done, [12_001_000, 12_001_000, 24_001_000, 24_001_000]);
    }

    #[test]
    fn stalls_happen_as_often_as_asked() {
        let latencies = Latencies { stall_permille: 100, channels: 1000, ..Latencies::flash() };
        let mut model = Channels::new(latencies, Random::new(1));
        let request = Request { kind: Kind::Write, at: 0, length: 4096 };
        let stalled =
            (0..1000).filter(|_| model.submit(0, 0, &request) >= Some(20_000_000)).count();
        assert!((70..130).contains(&stalled), "{stalled}");
    }

    #[test]
    fn jitter_lets_later_requests_overtake() {
        let mut model = Channels::new(Latencies::flash(), Random::new(1));
        let request = Request { kind: Kind::Read, at: 0, length: 4096 };
        let done: Vec<u64> = (0..16).map(|_| model.submit(0, 0, &request).unwrap()).collect();
        assert!(!done.is_sorted());
        assert!(done.iter().all(|ns| (82_000..=164_000).contains(ns)));
    }
}
