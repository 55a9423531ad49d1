//! A controller with a cache, before a drive or an array.
//!
//! * A command waits on its way, passes the electronics one after the other, and moves its data
//!   through the controller's memory.
//! * With its caches on, a stream is read ahead, what was read in whole lines can be read again
//!   from memory, and a write ends there. Writes that touch become one; they go down in the order of
//!   their addresses, so many at a time, whole stripes at once, the rest when it has become much
//!   or nothing else is to do.
//! * With its caches off everything passes to the drive, and the way is another one.

mod lines;

use self::lines::Lines;
use crate::life::{Life, Living};
use crate::model::{Finished, Kind, Model, Request};
use crate::pool::Pool;
use crate::port::Port;

/// Streams that the controller recognises at a time.
const STREAMS_MAX: usize = 16;

/// So many commands must have gone on where another one ended: two are one large random read.
const STREAM_COMMANDS: u32 = 2;

/// Requests for its own account have tags from here on.
const OWN_TAGS: u64 = 1 << 62;

/// What one controller is like.
#[derive(Debug, Clone)]
pub(crate) struct ControllerParameters {
    pub(crate) read_way_ns: f64,
    pub(crate) write_way_ns: f64,
    pub(crate) read_command_ns: f64,
    pub(crate) write_command_ns: f64,
    /// What a cached read that memory cannot answer takes longer in the electronics.
    pub(crate) miss_ns: f64,
    /// Moving data through its memory.
    pub(crate) memory_b_s: f64,
    /// A request is split into commands no larger than this, one after the other.
    pub(crate) command_bytes_max: u64,
    pub(crate) read_cache_bytes: u64,
    pub(crate) read_ahead_bytes: u64,
    pub(crate) pool_bytes: u64,
    pub(crate) pool_runs: usize,
    /// Writes on their way down at a time.
    pub(crate) destages: usize,
    /// What is best written at once.
    pub(crate) stripe_bytes: u64,
    pub(crate) cached: bool,
}

/// A request under way.
#[derive(Debug, Clone)]
struct Open {
    tag: u64,
    kind: Kind,
    /// What is still to be asked for.
    at: u64,
    end: u64,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// On its way until then (ns).
    Coming(u64),
    /// Waits until memory holds its command.
    Fetching { until: u64 },
    /// The drive is at its command, which ends at that byte.
    Below { until: u64 },
    /// Waits for room in the pool.
    Crowded,
    /// Waits until the writes up to this one are below.
    Flushing(u64),
    /// On its way back; ends then (ns).
    Leaving(u64),
}

/// A request of the controller itself.
#[derive(Debug, Clone, Copy)]
enum Own {
    Fetch { at: u64, end: u64 },
    Destage { length: u64, oldest: u64 },
}

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Controller {
    of: ControllerParameters,
    below: Port,
    life: Life,
    open: Vec<Open>,
    lines: Lines,
    pool: Pool<()>,
    /// By its tag above [`OWN_TAGS`].
    own: Vec<(u64, Own)>,
    own_tag: u64,
    /// Where the last destage ended.
    swept: u64,
    /// Where reads may go on, the latest last, and how often they have.
    streams: Vec<(u64, u32)>,
    electronics_free_ns: f64,
    memory_free_ns: f64,
    scratch: Vec<Finished>,
}

impl Controller {
    pub(crate) fn new(of: ControllerParameters, below: Box<dyn Model>) -> Controller {
        Controller {
            below: Port::new(below),
            life: Life::default(),
            open: Vec::new(),
            lines: Lines::new(of.read_cache_bytes),
            pool: Pool::new(of.pool_bytes, of.pool_runs),
            own: Vec::new(),
            own_tag: OWN_TAGS,
            swept: 0,
            streams: Vec::new(),
            electronics_free_ns: 0.0,
            memory_free_ns: 0.0,
            scratch: Vec::new(),
            of,
        }
    }

    fn ended_below(&mut self, tag: u64) {
        if tag < OWN_TAGS {
            let index = self.open.iter().position(|open| open.tag == tag);
            let index = index.expect("what is below is open");
            let Stage::Below { until } = self.open[index].stage else {
                unreachable!("only commands below end there")
            };
            if self.of.cached && self.open[index].kind == Kind::Read {
                self.lines.add(self.open[index].at, until);
            }
            // Its data has come through while the drive sent it.
            return self.command_ended(index, until, false);
        }
        let place = self.own.iter().position(|(own, _)| *own == tag);
        match self.own.swap_remove(place.expect("own requests are noted")).1 {
            Own::Fetch { at, end } => self.lines.add(at, end),
            Own::Destage { length, .. } => self.pool.written(length),
        }
    }

    /// Whether a write up to that one has not come down yet.
    fn owes(&self, covered: u64) -> bool {
        let moving = self.own.iter().filter_map(|(_, own)| match own {
            Own::Destage { oldest, .. } => Some(*oldest),
            Own::Fetch { .. } => None,
        });
        self.pool.oldest().into_iter().chain(moving).any(|oldest| oldest <= covered)
    }

    /// The command of the request that comes next has arrived at the controller.
    fn arrived(&mut self, index: usize) {
        let Open { tag, kind, at, end, .. } = self.open[index];
        let until = end.min(at.saturating_add(self.of.command_bytes_max));
        match kind {
            Kind::Read if self.of.cached => self.cached_read(index, until),
            Kind::Write if self.of.cached => {
                if self.pool.has_room(at, until - at) {
                    self.pool.put(at, until - at, |_| ());
                    self.lines.forget(at, until);
                    self.command_ended(index, until, true);
                } else {
                    self.open[index].stage = Stage::Crowded;
                }
            }
            Kind::Flush if self.of.cached => {
                self.open[index].stage = Stage::Flushing(self.pool.sequence());
            }
            Kind::Read | Kind::Write | Kind::Flush => self.pass(index, until),
            Kind::Trim | Kind::WriteZeroes => {
                let request = Request { kind, at, length: end - at };
                self.open[index].stage = Stage::Below { until: end };
                self.below.submit(self.life.now_ns, tag, &request);
            }
        }
    }

    fn pass(&mut self, index: usize, until: u64) {
        let Open { tag, kind, at, .. } = self.open[index];
        self.open[index].stage = Stage::Below { until };
        let request = Request { kind, at, length: until - at };
        self.below.submit(self.life.now_ns, tag, &request);
    }

    fn cached_read(&mut self, index: usize, until: u64) {
        let at = self.open[index].at;
        let stream = self.is_stream(at, until);
        if stream {
            self.fetch_ahead(until);
        }
        if self.pool.holds(at, until) || self.lines.holds(at, until) {
            self.command_ended(index, until, true);
        } else if stream && self.lines.comes(at, until) {
            self.open[index].stage = Stage::Fetching { until };
        } else {
            let free_ns = self.electronics_free_ns.max(self.life.now_ns as f64);
            self.electronics_free_ns = free_ns + self.of.miss_ns;
            self.pass(index, until);
        }
    }

    fn is_stream(&mut self, at: u64, until: u64) -> bool {
        let known = self.streams.iter().position(|(next, _)| *next == at);
        let times = match known {
            Some(index) => self.streams.remove(index).1 + 1,
            None => 0,
        };
        if self.streams.len() >= STREAMS_MAX {
            self.streams.remove(0);
        }
        self.streams.push((until, times));
        times >= STREAM_COMMANDS
    }

    /// A stream is at `at`: fetches what comes behind, in pieces of a stripe.
    fn fetch_ahead(&mut self, at: u64) {
        let step = self.of.stripe_bytes;
        let wanted = at + self.of.read_ahead_bytes;
        let mut from = at / step * step;
        while from < wanted {
            let end = from + step;
            if !self.lines.holds(from, end) && !self.lines.comes(from, end) {
                self.lines.announce(from, end);
                self.own_tag += 1;
                self.own.push((self.own_tag, Own::Fetch { at: from, end }));
                let request = Request { kind: Kind::Read, at: from, length: step };
                self.below.submit(self.life.now_ns, self.own_tag, &request);
            }
            from = end;
        }
    }

    /// A command is done, but for its data moving through memory.
    fn command_ended(&mut self, index: usize, until: u64, moves: bool) {
        let length = if moves { until - self.open[index].at } else { 0 };
        let moved_ns = length as f64 * 1e9 / self.of.memory_b_s;
        self.memory_free_ns = self.memory_free_ns.max(self.life.now_ns as f64) + moved_ns;
        let memory_ns = self.memory_free_ns.ceil() as u64;
        self.open[index].at = until;
        self.open[index].stage = if until < self.open[index].end {
            Stage::Coming(memory_ns.max(self.electronics(self.open[index].kind)))
        } else {
            Stage::Leaving(memory_ns)
        };
    }

    /// A command passes the electronics; says when.
    fn electronics(&mut self, kind: Kind) -> u64 {
        let command_ns = match kind {
            Kind::Read => self.of.read_command_ns,
            _ => self.of.write_command_ns,
        };
        self.electronics_free_ns =
            self.electronics_free_ns.max(self.life.now_ns as f64) + command_ns;
        self.electronics_free_ns.ceil() as u64
    }

    /// Sends cached writes down.
    fn destage(&mut self) {
        let flushing = self.open.iter().any(|open| matches!(open.stage, Stage::Flushing(_)));
        loop {
            let moving = self.own.iter().filter(|(_, own)| matches!(own, Own::Destage { .. }));
            let moving = moving.count();
            if moving >= self.of.destages {
                return;
            }
            let Some(run) = self.pool.onward(self.swept) else { return };
            let whole = run.end - run.start.next_multiple_of(self.of.stripe_bytes).min(run.end)
                >= self.of.stripe_bytes;
            // Small writes may grow; they wait while there is room and something else to do.
            let pressed = self.pool.runs() * 2 > self.of.pool_runs
                || self.pool.bytes() * 2 > self.of.pool_bytes
                || flushing
                || (moving == 0 && self.open.is_empty());
            if !whole && !pressed {
                return;
            }
            let length_max = if whole && run.start.is_multiple_of(self.of.stripe_bytes) {
                self.of.stripe_bytes
            } else {
                (run.start + 1).next_multiple_of(self.of.stripe_bytes) - run.start
            };
            let (at, length) = self.pool.take(&run, length_max, |_| ());
            self.swept = at + length;
            self.own_tag += 1;
            let own = Own::Destage { length, oldest: run.oldest };
            self.own.push((self.own_tag, own));
            let request = Request { kind: Kind::Write, at, length };
            self.below.submit(self.life.now_ns, self.own_tag, &request);
        }
    }
}

impl Living for Controller {
    fn life(&mut self) -> &mut Life {
        &mut self.life
    }

    fn event_ns(&self) -> Option<u64> {
        let own = self.open.iter().filter_map(|open| match open.stage {
            Stage::Coming(ns) | Stage::Leaving(ns) => Some(ns),
            _ => None,
        });
        own.chain(self.below.next_ns()).min()
    }

    fn turn(&mut self) {
        let mut ended = std::mem::take(&mut self.scratch);
        self.below.advance(self.life.now_ns, &mut ended);
        for Finished { tag, .. } in ended.drain(..) {
            self.ended_below(tag);
        }
        self.scratch = ended;
        let mut index = 0;
        while index < self.open.len() {
            match self.open[index].stage {
                Stage::Coming(ns) if ns <= self.life.now_ns => self.arrived(index),
                Stage::Fetching { until } if self.lines.holds(self.open[index].at, until) => {
                    self.command_ended(index, until, true);
                }
                Stage::Crowded => self.arrived(index),
                Stage::Flushing(covered) if !self.owes(covered) => {
                    self.open[index].stage = Stage::Leaving(self.life.now_ns);
                }
                _ => {}
            }
            if matches!(self.open[index].stage, Stage::Leaving(ns) if ns <= self.life.now_ns) {
                let tag = self.open.swap_remove(index).tag;
                self.life.end(tag);
            } else {
                index += 1;
            }
        }
        self.destage();
    }
}

impl Model for Controller {
    fn submit(&mut self, now_ns: u64, tag: u64, request: &Request) -> Option<u64> {
        assert!(tag < OWN_TAGS, "tags count from the start");
        self.live_until(now_ns);
        let Request { kind, at, length } = *request;
        let way_ns = match kind {
            Kind::Read => self.of.read_way_ns,
            _ => self.of.write_way_ns,
        };
        let passed_ns = self.electronics(kind);
        let stage = Stage::Coming(passed_ns + way_ns as u64);
        self.open.push(Open { tag, kind, at, end: at.saturating_add(length), stage });
        None
    }

    fn next_ns(&self) -> Option<u64> {
        self.life.next_ns(self.event_ns())
    }

    fn advance(&mut self, now_ns: u64, finished: &mut Vec<Finished>) {
        self.live_until(now_ns);
        self.life.tell(finished);
    }

    fn duplicate(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }

    fn reset(&mut self) {
        self.below.reset();
        self.open.clear();
        self.life.forget();
        self.lines.clear();
        self.pool.clear();
        self.own.clear();
        self.streams.clear();
        (self.electronics_free_ns, self.memory_free_ns) = (0.0, 0.0);
    }
}
