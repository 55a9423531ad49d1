//! A disk: platters that turn, one arm, a queue, a track buffer and a pool of cached writes.
//!
//! * Requests are split into commands of a bounded size. So many commands are inside the disk at
//!   a time; the next one enters when one has ended, after the time a command takes on its way.
//! * The arm does one thing at a time, and takes next what it gets at soonest: seek, settle and the
//!   wait for the sector to come round. Commands of the host come before cached writes, unless a
//!   write waits for room in the pool, or a flush for them: a drive that let reads go first would never end it.
//! * After a read the head stays and goes on reading, until it is needed elsewhere or its buffer is
//!   full; some disks stay for a multiple of what was read, whatever other read waits (SCSI calls it the
//!   minimum of reading ahead). What it has read, and what waits in the pool, is read without the arm.
//! * Without a write cache a write ends on the platter: the next command of a sequential
//!   stream comes a little too late and waits for a whole revolution.
//!
//! Not modelled: spare sectors, thermal recalibration, vibration, the power-saving states.

mod geometry;
mod track_buffer;

use std::collections::VecDeque;

use self::geometry::{Geometry, Place};
use self::track_buffer::TrackBuffer;
use crate::life::{Life, Living};
use crate::model::{Finished, Kind, Model, Request};
use crate::pool::Pool;

/// Cached writes go to the platters in pieces of this size, so that room is made steadily.
const PIECE_BYTES: u64 = 256 << 10;

/// A command that others overtake for so many revolutions is taken next.
const PATIENCE_REVOLUTIONS: f64 = 100.0;

/// The head arrives on a sector that has passed by less than this share of a turn: it is the
/// rounding of the clock, not the disk, that was late.
const ROUNDING_TURNS: f64 = 1e-6;

/// What one disk is like.
#[derive(Debug, Clone)]
pub(crate) struct DiskParameters {
    pub(crate) size_bytes: u64,
    pub(crate) rpm: f64,
    /// Rate of the outermost track.
    pub(crate) outer_b_s: f64,
    /// Rate of the innermost track.
    pub(crate) inner_b_s: f64,
    /// A seek takes this and ...
    pub(crate) seek_base_ns: f64,
    /// ... this times the square root of the share of the full stroke.
    pub(crate) seek_stroke_ns: f64,
    /// What the head needs longer before it may write.
    pub(crate) write_settle_ns: f64,
    /// From the end of a command to the arrival of the next one at the disk.
    pub(crate) read_command_ns: f64,
    pub(crate) write_command_ns: f64,
    pub(crate) link_b_s: f64,
    /// A request is split into commands no larger than this.
    pub(crate) command_bytes_max: u64,
    /// Commands inside the disk at a time.
    pub(crate) queue_depth: usize,
    pub(crate) read_ahead_bytes: u64,
    /// So many times what a read asked for is read behind it before the head may leave for another read.
    pub(crate) read_on_times: f64,
    /// Streams whose read-ahead is remembered.
    pub(crate) segments: usize,
    /// Cached writes are at most so many bytes, and ...
    pub(crate) pool_bytes: u64,
    /// ... in so many places.
    pub(crate) pool_runs: usize,
    pub(crate) write_cache: bool,
}

/// How far a command inside the disk has come.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    /// On its way until then (ns).
    Coming(u64),
    /// Needs the arm.
    Queued,
    /// Waits for room in the pool.
    Crowded,
    /// A flush, waiting until the writes up to this one are on the platters.
    Flushing(u64),
    /// The arm is at it.
    Served,
    /// On its way back; ends then (ns).
    Leaving(u64),
}

#[derive(Debug, Clone)]
struct Command {
    tag: u64,
    kind: Kind,
    at: u64,
    length: u64,
    stage: Stage,
    /// Where its first byte lies.
    place: Place,
    /// When it arrived (ns).
    since_ns: u64,
}

/// What the arm does.
#[derive(Debug, Clone, Copy)]
enum Work {
    /// A command, by its tag and first byte.
    Command { tag: u64, at: u64 },
    /// So many bytes of the pool.
    Destage(u64),
}

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Disk {
    of: DiskParameters,
    geometry: Geometry,
    life: Life,
    /// Commands that have not entered the disk.
    waiting: VecDeque<Command>,
    /// In the order in which they entered.
    inside: Vec<Command>,
    /// Requests under way, with the commands of each that have not ended.
    open: Vec<(u64, u64)>,
    pool: Pool<Place>,
    buffer: TrackBuffer,
    /// Where the head is, or will be when it is done.
    head: Place,
    /// What the arm does, and when it has done it (ns).
    work: Option<(Work, u64)>,
    /// When exactly the arm has become or will become free: the event comes up to 1 ns later.
    free_ns: f64,
    /// Until then the head reads on behind a read, and no read elsewhere gets it (ns).
    stays_ns: f64,
    /// When the next command can be on its way.
    electronics_free_ns: u64,
    link_free_ns: u64,
    /// The oldest cached write in the piece that is being written.
    destaging: Option<u64>,
}

impl Disk {
    pub(crate) fn new(of: DiskParameters) -> Disk {
        let geometry = Geometry::new(of.size_bytes, of.rpm, of.outer_b_s, of.inner_b_s);
        let of = DiskParameters { queue_depth: of.queue_depth.max(1), ..of };
        Disk {
            pool: Pool::new(of.pool_bytes, of.pool_runs),
            buffer: TrackBuffer::new(of.segments, of.read_ahead_bytes),
            geometry,
            life: Life::default(),
            waiting: VecDeque::new(),
            inside: Vec::new(),
            open: Vec::new(),
            head: geometry.place(0),
            work: None,
            free_ns: 0.0,
            stays_ns: 0.0,
            electronics_free_ns: 0,
            link_free_ns: 0,
            destaging: None,
            of,
        }
    }

    /// Takes commands in as far as the queue has room.
    fn admit(&mut self) {
        while self.inside.len() < self.of.queue_depth {
            let Some(mut command) = self.waiting.pop_front() else { return };
            let way_ns = match command.kind {
                Kind::Read => self.of.read_command_ns,
                _ => self.of.write_command_ns,
            };
            let ready_ns = self.life.now_ns.max(self.electronics_free_ns) + way_ns as u64;
            self.electronics_free_ns = ready_ns;
            command.stage = Stage::Coming(ready_ns);
            self.inside.push(command);
        }
    }

    /// Whether a write up to that one is not on the platters.
    fn owes(&self, covered: u64) -> bool {
        let oldest = self.pool.oldest().into_iter().chain(self.destaging).min();
        oldest.is_some_and(|oldest| oldest <= covered)
    }

    /// The pool has room for the write, and none that came before waits for some: who waits longest is next.
    fn fits(&self, index: usize) -> bool {
        let Command { at, length, .. } = self.inside[index];
        let waits = |command: &Command| command.stage == Stage::Crowded;
        self.pool.has_room(at, length) && !self.inside[..index].iter().any(waits)
    }

    /// A command has come to the disk.
    fn arrived(&mut self, index: usize) {
        let Command { kind, at, length, .. } = self.inside[index];
        let now = self.life.now_ns as f64;
        self.inside[index].stage = match kind {
            Kind::Read if self.buffer.holds(at, at + length, now, &self.geometry) => {
                self.buffer.handed_out(at + length, now, &self.geometry);
                Stage::Leaving(self.over_the_link(length))
            }
            Kind::Read if self.pool.holds(at, at + length) => {
                Stage::Leaving(self.over_the_link(length))
            }
            Kind::Write if self.of.write_cache && self.fits(index) => return self.cached(index),
            Kind::Write if self.of.write_cache => Stage::Crowded,
            Kind::Flush if self.owes(self.pool.sequence()) => Stage::Flushing(self.pool.sequence()),
            Kind::Flush => Stage::Leaving(self.life.now_ns),
            Kind::Trim => Stage::Leaving(self.life.now_ns),
            Kind::Read | Kind::Write | Kind::WriteZeroes => Stage::Queued,
        };
    }

    /// A write goes into the pool.
    fn cached(&mut self, index: usize) {
        let Command { at, length, .. } = self.inside[index];
        let geometry = self.geometry;
        self.pool.put(at, length, |at| geometry.place(at));
        self.inside[index].stage = Stage::Leaving(self.over_the_link(length));
    }

    fn over_the_link(&mut self, length: u64) -> u64 {
        let moved_ns = (length as f64 * 1e9 / self.of.link_b_s) as u64;
        self.link_free_ns = self.link_free_ns.max(self.life.now_ns) + moved_ns;
        self.link_free_ns
    }

    /// The arm has done a command.
    fn served(&mut self, tag: u64, at: u64) {
        let index = self.inside.iter().position(|command| command.tag == tag && command.at == at);
        let index = index.expect("what the arm serves is inside");
        let Command { kind, length, .. } = self.inside[index];
        if kind == Kind::Read {
            let end = at + length;
            self.buffer.read_until(at, end, self.head.turns, self.free_ns);
            let on = (length as f64 * self.of.read_on_times) as u64;
            let on = on.min(self.of.read_ahead_bytes);
            let turns = self.geometry.place(end + on).turns - self.head.turns;
            self.stays_ns = self.free_ns + turns * self.geometry.revolution_ns();
        }
        self.ended(index);
    }

    fn ended(&mut self, index: usize) {
        let tag = self.inside.remove(index).tag;
        let place = self.open.iter().position(|(open, _)| *open == tag);
        let place = place.expect("each command belongs to a request");
        self.open[place].1 -= 1;
        if self.open[place].1 == 0 {
            self.open.swap_remove(place);
            self.life.end(tag);
        }
    }

    /// Gives the arm something to do, if it is free.
    fn start(&mut self) {
        if self.work.is_some() {
            return;
        }
        let from_ns = if self.life.now_ns as f64 - self.free_ns < 1.0 {
            self.free_ns
        } else {
            self.life.now_ns as f64
        };
        if let Some(at) = self.buffer.position(from_ns, &self.geometry) {
            self.head = self.geometry.place(at);
        }
        let crowded = self
            .inside
            .iter()
            .any(|command| matches!(command.stage, Stage::Crowded | Stage::Flushing(_)));
        let command = self.soonest_command(from_ns);
        if command.is_some_and(|(index, _)| self.stays_before(index, from_ns)) {
            return;
        }
        let destage = match command {
            Some(_) if !crowded => None,
            _ => self.pool.nearest(|run| self.access_ns(from_ns, run.place, true)),
        };
        match (command, destage) {
            (Some((index, access_ns)), None) => self.serve(index, from_ns + access_ns),
            (Some((index, access_ns)), Some((_, other_ns))) if access_ns <= other_ns => {
                self.serve(index, from_ns + access_ns);
            }
            (_, Some((run, access_ns))) => {
                let geometry = self.geometry;
                let (at, length) = self.pool.take(&run, PIECE_BYTES, |at| geometry.place(at));
                self.destaging = Some(run.oldest);
                self.buffer.leave(from_ns, &self.geometry);
                let done_ns = self.transfer(run.place, at + length, from_ns + access_ns);
                self.work = Some((Work::Destage(length), done_ns));
            }
            (None, None) => {}
        }
    }

    /// The command that the arm gets at soonest, and how soon.
    fn soonest_command(&self, from_ns: f64) -> Option<(usize, f64)> {
        let patience_ns = PATIENCE_REVOLUTIONS * self.geometry.revolution_ns();
        let mut best: Option<(usize, f64)> = None;
        for (index, command) in self.inside.iter().enumerate() {
            if command.stage != Stage::Queued {
                continue;
            }
            let writes = command.kind != Kind::Read;
            let access_ns = match self.buffer.joins(command.at, from_ns, &self.geometry) {
                Some(_) if !writes => 0.0,
                _ if writes => self.access_ns(from_ns, command.place, writes),
                _ => {
                    let stays_ns = (self.stays_ns - from_ns).max(0.0);
                    stays_ns + self.access_ns(from_ns, command.place, writes)
                }
            };
            if from_ns - command.since_ns as f64 > patience_ns {
                return Some((index, access_ns));
            }
            if best.is_none_or(|(_, least_ns)| access_ns < least_ns) {
                best = Some((index, access_ns));
            }
        }
        best
    }

    /// The command is a read elsewhere, for which the head may not leave yet.
    fn stays_before(&self, index: usize, from_ns: f64) -> bool {
        let Command { kind, at, .. } = self.inside[index];
        let elsewhere = || self.buffer.joins(at, from_ns, &self.geometry).is_none();
        self.stays() && kind == Kind::Read && elsewhere()
    }

    /// It may not for any read.
    fn stays(&self) -> bool {
        (self.life.now_ns as f64) < self.stays_ns
    }

    fn serve(&mut self, index: usize, begin_ns: f64) {
        let Command { tag, kind, at, length, place, .. } = self.inside[index];
        let joined = match kind {
            Kind::Read => self.buffer.joins(at, begin_ns, &self.geometry),
            _ => None,
        };
        let done_ns = match joined {
            // The head is reading towards it already.
            Some((turns, since_ns)) => {
                self.head = self.geometry.place(at + length);
                let revolution_ns = self.geometry.revolution_ns();
                let exact_ns = since_ns + (self.head.turns - turns) * revolution_ns;
                self.free_ns = exact_ns.max(begin_ns);
                self.free_ns.ceil() as u64
            }
            None => {
                self.buffer.leave(begin_ns.min(self.life.now_ns as f64), &self.geometry);
                self.transfer(place, at + length, begin_ns)
            }
        };
        self.inside[index].stage = Stage::Served;
        self.work = Some((Work::Command { tag, at }, done_ns));
    }

    /// The head passes over the bytes from `place` to `end`; says when it is through.
    fn transfer(&mut self, place: Place, end: u64, begin_ns: f64) -> u64 {
        self.head = self.geometry.place(end);
        let turns = self.head.turns - place.turns;
        self.free_ns = begin_ns + turns * self.geometry.revolution_ns();
        self.free_ns.ceil() as u64
    }

    /// From now until the head is over that place: seek, settle, wait.
    fn access_ns(&self, from_ns: f64, place: Place, writes: bool) -> f64 {
        let same_track = (place.turns - self.head.turns).abs() < 1.0;
        let seek_ns = if same_track {
            0.0
        } else {
            let stroke = (place.stroke - self.head.stroke).abs();
            let settle_ns = if writes { self.of.write_settle_ns } else { 0.0 };
            self.of.seek_base_ns + self.of.seek_stroke_ns * stroke.sqrt() + settle_ns
        };
        let revolution_ns = self.geometry.revolution_ns();
        let turned = (from_ns + seek_ns) / revolution_ns;
        let mut wait = (place.turns - turned).rem_euclid(1.0);
        if wait > 1.0 - ROUNDING_TURNS {
            wait = 0.0;
        }
        seek_ns + wait * revolution_ns
    }
}

impl Living for Disk {
    fn life(&mut self) -> &mut Life {
        &mut self.life
    }

    fn event_ns(&self) -> Option<u64> {
        let commands = self.inside.iter().filter_map(|command| match command.stage {
            Stage::Coming(ns) | Stage::Leaving(ns) => Some(ns),
            _ => None,
        });
        let work = match self.work {
            Some((_, done_ns)) => Some(done_ns),
            None => self.stays().then_some(self.stays_ns.ceil() as u64),
        };
        commands.chain(work).min()
    }

    fn turn(&mut self) {
        if let Some((work, done_ns)) = self.work
            && done_ns <= self.life.now_ns
        {
            self.work = None;
            match work {
                Work::Command { tag, at } => self.served(tag, at),
                Work::Destage(length) => {
                    self.destaging = None;
                    self.pool.written(length);
                }
            }
        }
        let mut index = 0;
        while index < self.inside.len() {
            match self.inside[index].stage {
                Stage::Coming(ns) if ns <= self.life.now_ns => {
                    self.arrived(index);
                    index += 1;
                }
                Stage::Crowded if self.fits(index) => {
                    self.cached(index);
                    index += 1;
                }
                Stage::Flushing(covered) if !self.owes(covered) => self.ended(index),
                Stage::Leaving(ns) if ns <= self.life.now_ns => self.ended(index),
                _ => index += 1,
            }
        }
        self.admit();
        self.start();
    }
}

impl Model for Disk {
    fn submit(&mut self, now_ns: u64, tag: u64, request: &Request) -> Option<u64> {
        self.live_until(now_ns);
        let whole = matches!(request.kind, Kind::Flush | Kind::Trim | Kind::WriteZeroes);
        let step = if whole { u64::MAX } else { self.of.command_bytes_max };
        let (mut at, mut left, mut commands) = (request.at, request.length, 0);
        loop {
            let length = left.min(step);
            self.waiting.push_back(Command {
                tag,
                kind: request.kind,
                at,
                length,
                stage: Stage::Queued,
                place: self.geometry.place(at),
                since_ns: now_ns,
            });
            commands += 1;
            at += length;
            left -= length;
            if left == 0 {
                break;
            }
        }
        self.open.push((tag, commands));
        self.admit();
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
        self.waiting.clear();
        self.inside.clear();
        self.open.clear();
        self.life.forget();
        self.pool.clear();
        self.buffer.clear();
        self.work = None;
        self.destaging = None;
        (self.electronics_free_ns, self.link_free_ns) = (self.life.now_ns, self.life.now_ns);
        self.free_ns = self.life.now_ns as f64;
        self.stays_ns = 0.0;
    }
}

#[cfg(test)]
mod tests;
