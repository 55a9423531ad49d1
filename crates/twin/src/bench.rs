//! A model alone on the bench: clients that ask, wait and ask again, and how much they got.
//!
//! * Only time is looked at. There is no content, no fault and no executor, so that hours of a drive
//!   take seconds.
//! * The model keeps its condition from one load to the next, as a drive on a bench does.

use std::ops::Range;

use crate::model::{Finished, Kind, Model, Request};
use crate::random::Random;

/// In which order a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// One block after the other; at the end of the range from its start again. All clients begin
    /// at the start.
    Sequential,
    /// The same, but one order for all clients: each asks for the block after the last one that any
    /// has asked for, as one program does that keeps several requests under way.
    Shared,
    /// Any block of the range, all equally likely.
    Random,
}

/// What the clients do.
#[derive(Debug, Clone)]
pub struct Load {
    /// What they ask for.
    pub kind: Kind,
    /// In which order.
    pub pattern: Pattern,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Where, in bytes; whole blocks of it.
    pub range: Range<u64>,
    /// How many clients; each has one request under way.
    pub clients: u64,
    /// Each request is followed by so many flushes, and counts when they are done.
    pub flushes: u32,
}

/// What they got.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests that ended.
    pub requests: u64,
    /// Bytes moved by them.
    pub bytes: u64,
    /// Time it took (ns).
    pub elapsed_ns: u64,
}

impl Rate {
    /// Requests per second.
    pub fn per_second(&self) -> f64 {
        self.requests as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// 2^20 bytes per second.
    pub fn mib_per_second(&self) -> f64 {
        self.bytes as f64 / 1048576.0 * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Mean time between two ends (ns): with one client, the mean response time.
    pub fn mean_ns(&self) -> f64 {
        self.elapsed_ns as f64 / self.requests.max(1) as f64
    }
}

/// See the head of the file.
pub struct Bench {
    model: Box<dyn Model>,
    now_ns: u64,
    random: Random,
    tag: u64,
    /// Where the clients that share one order ask next.
    shared: u64,
    /// Ends that the model told at submission: when, and by whom.
    told: Vec<(u64, Client)>,
    /// Requests under way in the model.
    asked: Vec<(u64, Client)>,
    finished: Vec<Finished>,
}

#[derive(Debug, Clone, Copy)]
struct Client {
    /// Where it asks next, in order.
    next: u64,
    /// Flushes behind its request that it has waited for or waits for; 0: the request itself.
    flushes: u32,
}

impl Bench {
    /// Puts a model on the bench.
    pub fn new(model: Box<dyn Model>, random: Random) -> Bench {
        let (told, asked, finished) = Default::default();
        Bench { model, now_ns: 0, random, tag: 0, shared: 0, told, asked, finished }
    }

    /// Nobody asks for anything for so long.
    pub fn rest(&mut self, for_ns: u64) {
        self.now_ns += for_ns;
    }

    /// Lets the clients ask for `for_ns`, or until `requests_max` have ended. What is under way at
    /// the end is waited for, and does not count.
    ///
    /// # Panics
    /// When the range holds no block.
    pub fn run(&mut self, load: &Load, for_ns: u64, requests_max: u64) -> Rate {
        let blocks = (load.range.end - load.range.start) / load.block_bytes;
        assert!(blocks > 0, "a range without a block");
        let begun_ns = self.now_ns;
        let (end_ns, mut requests) = (begun_ns.saturating_add(for_ns), 0);
        let mut last_ns = begun_ns;
        self.shared = load.range.start;
        let mut ready = vec![Client { next: load.range.start, flushes: 0 }; load.clients as usize];
        loop {
            let over = self.now_ns >= end_ns || requests >= requests_max;
            if !over {
                for client in ready.drain(..) {
                    self.ask(load, blocks, client);
                }
            }
            let Some(event_ns) = self.next_ns() else { break };
            self.now_ns = event_ns.max(self.now_ns);
            self.collect(&mut ready);
            for client in &mut ready {
                client.flushes = if client.flushes < load.flushes { client.flushes + 1 } else { 0 };
                if !over && client.flushes == 0 && self.now_ns <= end_ns {
                    requests += 1;
                    last_ns = self.now_ns;
                }
            }
        }
        let elapsed_ns = if requests < requests_max { for_ns } else { last_ns - begun_ns };
        Rate { requests, bytes: requests * load.block_bytes, elapsed_ns }
    }

    fn ask(&mut self, load: &Load, blocks: u64, mut client: Client) {
        let request = if client.flushes > 0 {
            Request { kind: Kind::Flush, at: 0, length: 0 }
        } else {
            let at = match load.pattern {
                Pattern::Random => load.range.start + self.random.below(blocks) * load.block_bytes,
                Pattern::Sequential => client.next,
                Pattern::Shared => self.shared,
            };
            let last = load.range.start + (blocks - 1) * load.block_bytes;
            client.next = if at == last { load.range.start } else { at + load.block_bytes };
            self.shared = client.next;
            Request { kind: load.kind, at, length: load.block_bytes }
        };
        self.tag += 1;
        match self.model.submit(self.now_ns, self.tag, &request) {
            Some(done_ns) => self.told.push((done_ns, client)),
            None => self.asked.push((self.tag, client)),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let own = if self.asked.is_empty() { None } else { self.model.next_ns() };
        self.told.iter().map(|(done_ns, _)| *done_ns).chain(own).min()
    }

    /// Moves clients whose request has ended to `ready`.
    fn collect(&mut self, ready: &mut Vec<Client>) {
        if !self.asked.is_empty() {
            self.model.advance(self.now_ns, &mut self.finished);
            for Finished { tag, .. } in self.finished.drain(..) {
                let place = self.asked.iter().position(|(asked, _)| *asked == tag);
                let place = place.expect("the model ends what it was asked");
                ready.push(self.asked.remove(place).1);
            }
        }
        let now_ns = self.now_ns;
        ready.extend(
            self.told.extract_if(.., |(done_ns, _)| *done_ns <= now_ns).map(|(_, client)| client),
        );
    }
}
