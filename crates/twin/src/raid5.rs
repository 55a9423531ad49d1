//! An array of equal members with rotating parity.
//!
//! * Each stripe has a unit on every member, one of them parity, on another member each time.
//! * What a request asks of one member in neighbouring units is one request there.
//! * A write of a whole stripe writes all members. A smaller one reads the old data and the old
//!   parity first, then writes both.
//!
//! No member ever fails here. Overlapping writes of the same stripe are not serialised: only the time
//! counts.

use crate::model::{Finished, Kind, Model, Request};
use crate::port::Port;

/// A request under way.
#[derive(Debug, Clone)]
struct Job {
    /// Its name; several jobs of one request share it.
    tag: u64,
    /// Member requests that have not ended.
    left: usize,
    /// What is written when the reads have ended: member, first byte, bytes.
    then: Vec<(usize, u64, u64)>,
}

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Raid5 {
    members: Vec<Port>,
    unit_bytes: u64,
    /// By number; a member's tag is the number of its job.
    jobs: Vec<Option<Job>>,
    free: Vec<usize>,
    /// Jobs of each request that have not ended.
    open: Vec<(u64, usize)>,
    scratch: Vec<Finished>,
}

impl Raid5 {
    /// # Panics
    /// With fewer than three members, or units that are not whole sectors.
    pub(crate) fn new(members: Vec<Box<dyn Model>>, unit_bytes: u64) -> Raid5 {
        assert!(members.len() >= 3, "RAID5 needs three members");
        assert!(unit_bytes >= 512, "units of whole sectors");
        let members = members.into_iter().map(Port::new).collect();
        let (jobs, free, open, scratch) = Default::default();
        Raid5 { members, unit_bytes, jobs, free, open, scratch }
    }

    fn data_members(&self) -> u64 {
        self.members.len() as u64 - 1
    }

    /// Where the parity of a stripe is.
    fn parity(&self, stripe: u64) -> usize {
        (self.data_members() - stripe % self.members.len() as u64) as usize
    }

    /// Where a unit of the array is: its member and its stripe.
    fn unit(&self, unit: u64) -> (usize, u64) {
        let stripe = unit / self.data_members();
        let member = (self.parity(stripe) as u64 + 1 + unit % self.data_members())
            % self.members.len() as u64;
        (member as usize, stripe)
    }

    /// What the range asks of the members: member, first byte, bytes; in order, neighbours joined.
    fn pieces(&self, at: u64, end: u64) -> Vec<(usize, u64, u64)> {
        let mut pieces: Vec<(usize, u64, u64)> = Vec::new();
        let mut from = at;
        while from < end {
            let unit = from / self.unit_bytes;
            let to = end.min((unit + 1) * self.unit_bytes);
            let (member, stripe) = self.unit(unit);
            let place = stripe * self.unit_bytes + from % self.unit_bytes;
            add(&mut pieces, (member, place, to - from), self.unit_bytes);
            from = to;
        }
        pieces
    }

    fn begin(
        &mut self,
        now_ns: u64,
        tag: u64,
        first: &[(usize, u64, u64)],
        kind: Kind,
        then: Vec<(usize, u64, u64)>,
    ) {
        let job = Job { tag, left: first.len(), then };
        let number = match self.free.pop() {
            Some(number) => {
                self.jobs[number] = Some(job);
                number
            }
            None => {
                self.jobs.push(Some(job));
                self.jobs.len() - 1
            }
        };
        for (member, at, length) in first {
            let request = Request { kind, at: *at, length: *length };
            self.members[*member].submit(now_ns, number as u64, &request);
        }
    }

    /// A write: whole stripes, and what is left before and behind them.
    fn write(&mut self, now_ns: u64, tag: u64, at: u64, end: u64) -> usize {
        let stripe_bytes = self.unit_bytes * self.data_members();
        let (first, last) = (at.div_ceil(stripe_bytes), end / stripe_bytes);
        let mut jobs = 0;
        let mut parts = Vec::new();
        if first < last {
            let mut pieces = Vec::new();
            for member in 0..self.members.len() {
                let length = (last - first) * self.unit_bytes;
                pieces.push((member, first * self.unit_bytes, length));
            }
            self.begin(now_ns, tag, &pieces, Kind::Write, Vec::new());
            jobs += 1;
            parts.push((at, first * stripe_bytes));
            parts.push((last * stripe_bytes, end));
        } else {
            parts.push((at, end));
        }
        for (from, to) in parts.into_iter().filter(|(from, to)| from < to) {
            let mut pieces = self.pieces(from, to);
            for stripe in from / stripe_bytes..to.div_ceil(stripe_bytes) {
                let start = from.max(stripe * stripe_bytes);
                let stop = to.min((stripe + 1) * stripe_bytes);
                // Parity changes where any unit does: at most the whole unit.
                let length = (stop - start).min(self.unit_bytes);
                let within = if length < self.unit_bytes { start % self.unit_bytes } else { 0 };
                let length = length.min(self.unit_bytes - within);
                let place = stripe * self.unit_bytes + within;
                add(&mut pieces, (self.parity(stripe), place, length), self.unit_bytes);
            }
            self.begin(now_ns, tag, &pieces.clone(), Kind::Read, pieces);
            jobs += 1;
        }
        jobs
    }

    fn member_ended(&mut self, number: usize, now_ns: u64, finished: &mut Vec<Finished>) {
        let job = self.jobs[number].as_mut().expect("members end what they were given");
        job.left -= 1;
        if job.left > 0 {
            return;
        }
        let then = std::mem::take(&mut job.then);
        if !then.is_empty() {
            job.left = then.len();
            for (member, at, length) in then {
                let request = Request { kind: Kind::Write, at, length };
                self.members[member].submit(now_ns, number as u64, &request);
            }
            return;
        }
        let tag = job.tag;
        self.jobs[number] = None;
        self.free.push(number);
        let place = self.open.iter().position(|(open, _)| *open == tag);
        let place = place.expect("a job belongs to a request");
        self.open[place].1 -= 1;
        if self.open[place].1 == 0 {
            self.open.swap_remove(place);
            finished.push(Finished { tag, at_ns: now_ns });
        }
    }
}

/// Adds a piece, to the one before it on the same member where they touch, skipping the parity of
/// one stripe that lies between.
fn add(pieces: &mut Vec<(usize, u64, u64)>, piece: (usize, u64, u64), unit_bytes: u64) {
    let (member, at, length) = piece;
    for (other, start, size) in pieces.iter_mut() {
        let end = *start + *size;
        if *other == member && *start <= at && at <= end + unit_bytes {
            *size = (*size).max(at + length - *start);
            return;
        }
    }
    pieces.push(piece);
}

impl Model for Raid5 {
    fn submit(&mut self, now_ns: u64, tag: u64, request: &Request) -> Option<u64> {
        let Request { kind, at, length } = *request;
        let end = at.saturating_add(length);
        let jobs = match kind {
            Kind::Write => self.write(now_ns, tag, at, end),
            Kind::Read if length > 0 => {
                let pieces = self.pieces(at, end);
                self.begin(now_ns, tag, &pieces, kind, Vec::new());
                1
            }
            // Flushes, and the rest as a share of each member.
            _ => {
                let members = self.members.len() as u64;
                let (at, length) = (at / (members - 1), length / (members - 1));
                let pieces: Vec<_> = (0..members as usize).map(|m| (m, at, length)).collect();
                self.begin(now_ns, tag, &pieces, kind, Vec::new());
                1
            }
        };
        if jobs == 0 {
            return Some(now_ns);
        }
        self.open.push((tag, jobs));
        None
    }

    fn next_ns(&self) -> Option<u64> {
        self.members.iter().filter_map(Port::next_ns).min()
    }

    fn advance(&mut self, now_ns: u64, finished: &mut Vec<Finished>) {
        while let Some(event_ns) = self.next_ns().filter(|ns| *ns <= now_ns) {
            for member in 0..self.members.len() {
                let mut ended = std::mem::take(&mut self.scratch);
                self.members[member].advance(event_ns, &mut ended);
                for Finished { tag, .. } in ended.drain(..) {
                    self.member_ended(tag as usize, event_ns, finished);
                }
                self.scratch = ended;
            }
        }
    }

    fn duplicate(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }

    fn reset(&mut self) {
        self.members.iter_mut().for_each(Port::reset);
        self.jobs.clear();
        self.free.clear();
        self.open.clear();
    }
}

#[cfg(test)]
mod tests;
