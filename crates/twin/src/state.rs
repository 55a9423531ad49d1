//! The simulated world itself: clock, drives, what is under way, and when power fails.
//!
//! * Time moves only in `poll`: to the next completion or timer when every task waits, and by
//!   [`ROUND_NS`] otherwise.
//! * An operation takes effect at the moment it completes. Until then it is in flight, and a
//!   power cut may leave it done, not done, or torn.
//! * A drive that hangs for ever keeps its operations at [`NEVER_NS`]; only its death, its return
//!   or a power cut ends them.
//! * After power fails nothing is accepted and nothing completes.
//! * Sockets do not exist here: operations on them fail as unsupported.

use std::cell::RefCell;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use io::{Buf, Completed, ErrorKind, IoError, Lent, Op, OpId, Park, SocketId, World};

use crate::change::{Change, is_zero};
use crate::drive::Drive;
use crate::fault::Fault;
use crate::mischief::{Deed, NEVER_NS, Verdict};
use crate::model::{Finished, Kind, Request};
use crate::random::{Random, mix};
use crate::trace::{Trace, digest};

/// Virtual time one round of ready tasks takes. Not zero, so that a task that polls the clock in
/// a loop gets somewhere; small against any drive.
const ROUND_NS: u64 = 100;

/// How long a machine's owner waits for a drive that hangs for ever, until he pulls the plug.
const PATIENCE_NS: u64 = 600_000_000_000;

/// What a failed read leaves in its buffer.
const RUBBISH: u8 = 0xdb;

/// When power shall fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CutPoint {
    /// Which operation, counted from 0 over the writes, zeroings, trims and flushes of all
    /// drives since the cut was armed.
    pub operation: u64,
    /// At which moment of its life.
    pub moment: Moment,
}

/// A moment in the life of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// It was about to be submitted: the drive never sees it.
    Before,
    /// It has been submitted and is in flight.
    Submitted,
    /// The drive has completed it, and nobody has heard of that yet.
    Completed,
}

/// What an operation does when it completes.
enum Effect {
    Nothing,
    Read {
        at: u64,
    },
    /// Leaves rubbish in the buffer of a read that fails: nobody may look at it.
    Scribble,
    Change(Change),
    /// More than one, or none: a write that went wrong.
    Changes(Vec<Change>),
    Flush {
        covered: u64,
    },
}

impl Effect {
    fn into_changes(self) -> Vec<Change> {
        match self {
            Effect::Change(change) => vec![change],
            Effect::Changes(changes) => changes,
            _ => Vec::new(),
        }
    }
}

struct Flying {
    /// Of no meaning while physics has not said it: see [`State::held`].
    done_at_ns: u64,
    /// How much longer than physics it takes.
    late_ns: u64,
    sequence: u64,
    boot: u64,
    id: OpId,
    drive: usize,
    buf: Option<Buf>,
    /// The buffer is lent memory of this number, and goes back there.
    lent: Option<u16>,
    effect: Effect,
    error: Option<IoError>,
    /// Power fails when it completes.
    fatal: bool,
    /// No drive has to do with it.
    is_refusal: bool,
}

impl PartialEq for Flying {
    fn eq(&self, other: &Flying) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Flying {}

impl PartialOrd for Flying {
    fn partial_cmp(&self, other: &Flying) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Flying {
    /// Reversed: the heap gives the greatest, and the earliest is wanted.
    fn cmp(&self, other: &Flying) -> Ordering {
        (other.done_at_ns, other.sequence).cmp(&(self.done_at_ns, self.sequence))
    }
}

pub(crate) struct State {
    pub(crate) now_ns: u64,
    pub(crate) random: Random,
    pub(crate) drives: Vec<Drive>,
    /// Which executor is the living one; those before are dead processes.
    pub(crate) boot: u64,
    pub(crate) powered: bool,
    pub(crate) trace: Trace,
    /// Operations that change something, since the cut was armed.
    pub(crate) mutations: u64,
    pub(crate) armed: Option<CutPoint>,
    /// With this operation in flight that drive dies.
    pub(crate) armed_death: Option<(u64, usize)>,
    /// Per drive, in order of submission: what was in flight when power failed.
    pub(crate) stranded: Vec<Vec<Change>>,
    pub(crate) sequence: u64,
    /// When somebody will have lost patience with a drive that hangs for ever.
    plug_pulled_at_ns: Option<u64>,
    flying: BinaryHeap<Flying>,
    /// Operations whose end their drive's physics has not told yet, in order of submission.
    held: Vec<Flying>,
    /// Scratch memory of [`State::release`].
    finished: Vec<Finished>,
    /// Lent memory by number; empty while a request has it.
    pub(crate) lent: BTreeMap<u16, Option<Buf>>,
    /// The number of the next loan.
    next_lent: u16,
}

impl State {
    pub(crate) fn new(seed: u64) -> State {
        State {
            now_ns: 0,
            random: Random::new(seed),
            drives: Vec::new(),
            boot: 0,
            powered: true,
            trace: Trace::default(),
            mutations: 0,
            armed: None,
            armed_death: None,
            stranded: Vec::new(),
            sequence: 0,
            plug_pulled_at_ns: None,
            flying: BinaryHeap::new(),
            held: Vec::new(),
            finished: Vec::new(),
            lent: BTreeMap::new(),
            next_lent: 0,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.flying.len() + self.held.len()
    }

    /// Power fails now: what is in flight is stranded, and nothing completes any more.
    pub(crate) fn fail_power(&mut self) {
        if !self.powered {
            return;
        }
        self.powered = false;
        self.armed = None;
        self.plug_pulled_at_ns = None;
        let mut flying = std::mem::take(&mut self.flying).into_vec();
        flying.append(&mut self.held);
        flying.sort_unstable_by_key(|op| op.sequence);
        self.stranded = vec![Vec::new(); self.drives.len()];
        for op in flying {
            self.stranded[op.drive].extend(op.effect.into_changes());
        }
        let now_ns = self.now_ns;
        self.drives.iter_mut().for_each(|drive| drive.stops(now_ns));
        self.trace.record(self.now_ns, u64::MAX, || "power fails".into());
    }

    /// The process is gone, the drives are not: they finish what they were given. A drive that
    /// hangs for ever is reset by the machine, which leaves open what it had begun.
    pub(crate) fn finish_flying(&mut self) {
        while let Some(next_ns) = self.physics_next_ns() {
            self.release(next_ns.max(self.now_ns));
        }
        while let Some(mut op) = self.flying.pop() {
            if op.done_at_ns == NEVER_NS {
                op.effect = self.cut_short(op.drive, op.effect);
            } else {
                self.now_ns = self.now_ns.max(op.done_at_ns);
            }
            self.complete(op);
        }
        self.plug_pulled_at_ns = None;
        for drive in &mut self.drives {
            if drive.mischief.hung_until_ns == NEVER_NS {
                drive.mischief.power_cycled();
            }
        }
    }

    /// A drive is gone: what is in flight there fails at once, done or not done or in part.
    pub(crate) fn drive_dies(&mut self, drive: usize) {
        let path = self.drives[drive].spec.path.clone();
        self.drives[drive].mischief.dead = true;
        self.trace.record(self.now_ns, mix(drive as u64), || format!("drive {drive} is gone"));
        let mut flying = std::mem::take(&mut self.flying).into_vec();
        let told = flying.len();
        flying.extend(self.held.extract_if(.., |op| op.drive == drive));
        if flying.len() > told {
            self.drives[drive].drop_requests();
        }
        flying.sort_unstable_by_key(|op| op.sequence);
        for mut op in flying {
            if op.drive == drive && !op.is_refusal {
                op.done_at_ns = self.now_ns;
                op.effect = self.cut_short(drive, op.effect);
                op.error.get_or_insert_with(|| {
                    let message = format!("{path} stopped answering while it was at work");
                    IoError::new(ErrorKind::Disconnected, message)
                });
            }
            self.flying.push(op);
        }
    }

    /// A drive completes nothing before that moment ([`NEVER_NS`]: no more), or, when it hung,
    /// goes on at that moment.
    pub(crate) fn drive_hangs(&mut self, drive: usize, until_ns: u64) {
        if until_ns < NEVER_NS {
            self.plug_pulled_at_ns = None;
        }
        let before_ns = std::mem::replace(&mut self.drives[drive].mischief.hung_until_ns, until_ns);
        self.trace.record(self.now_ns, mix(until_ns ^ drive as u64), || {
            format!("drive {drive} answers nothing before {until_ns}")
        });
        let mut flying = std::mem::take(&mut self.flying).into_vec();
        for op in flying.iter_mut().filter(|op| op.drive == drive && !op.is_refusal) {
            // What waited for the end of the hang alone goes on when that does.
            let own_ns = if op.done_at_ns == before_ns { self.now_ns } else { op.done_at_ns };
            op.done_at_ns = own_ns.max(until_ns);
        }
        self.flying = flying.into();
    }

    /// What is in flight at a drive does nothing to it any more.
    pub(crate) fn disown_flying(&mut self, drive: usize) {
        let mut flying = std::mem::take(&mut self.flying).into_vec();
        for op in flying.iter_mut().filter(|op| op.drive == drive && !op.is_refusal) {
            if !matches!(op.effect, Effect::Scribble) {
                op.effect = Effect::Nothing;
            }
        }
        self.flying = flying.into();
        // Held ones there are none of: the drive has died before.
    }

    /// When the physics of a drive goes on that still holds operations.
    fn physics_next_ns(&self) -> Option<u64> {
        let mut next_ns: Option<u64> = None;
        for (index, drive) in self.drives.iter().enumerate() {
            if self.held.iter().any(|op| op.drive == index) {
                let own_ns = drive.next_ns().expect("a model that holds a request goes on");
                next_ns = Some(next_ns.map_or(own_ns, |ns| ns.min(own_ns)));
            }
        }
        next_ns
    }

    /// Physics lives on until `now_ns`; what it has done with is told as soon as it may be.
    fn release(&mut self, now_ns: u64) {
        let mut finished = std::mem::take(&mut self.finished);
        for (index, drive) in self.drives.iter_mut().enumerate() {
            if !self.held.iter().any(|op| op.drive == index) {
                continue;
            }
            drive.advance(now_ns, &mut finished);
            for Finished { tag, at_ns } in finished.drain(..) {
                let place = self.held.iter().position(|op| op.sequence == tag);
                let mut op = self.held.remove(place.expect("physics ends what it was given"));
                op.done_at_ns = drive.ends_at_ns(at_ns, op.late_ns);
                self.flying.push(op);
            }
        }
        self.finished = finished;
    }

    /// What an operation does that is interrupted in the drive.
    fn cut_short(&mut self, drive: usize, effect: Effect) -> Effect {
        match effect {
            Effect::Read { .. } => Effect::Scribble,
            Effect::Flush { .. } => Effect::Nothing,
            Effect::Change(change) => Effect::Changes(self.drives[drive].fate_of(&change)),
            other => other,
        }
    }

    fn submit(&mut self, boot: u64, id: OpId, op: Op) {
        let mut lent = None;
        let (drive, kind, at, length, buf) = match op {
            Op::ReadLent { device, at, memory } => {
                let length = u64::from(memory.bytes);
                lent = Some(memory.slot);
                let buf = self.lent.get_mut(&memory.slot).and_then(Option::take);
                let buf = buf.expect("memory that is lent, and not in use");
                (device, Kind::Read, at, length, Some(buf))
            }
            Op::Read { device, at, buf } => (device, Kind::Read, at, buf.len() as u64, Some(buf)),
            Op::Write { device, at, buf } => (device, Kind::Write, at, buf.len() as u64, Some(buf)),
            Op::Flush { device } => (device, Kind::Flush, 0, 0, None),
            Op::Trim { device, at, length } => (device, Kind::Trim, at, length, None),
            Op::WriteZeroes { device, at, length } => (device, Kind::WriteZeroes, at, length, None),
            Op::Receive { buf, .. } | Op::Send { buf, .. } => {
                return self.refuse(boot, id, Some(buf));
            }
            Op::Accept { .. } | Op::Wait { .. } | Op::Raise { .. } | Op::Command { .. } => {
                return self.refuse(boot, id, None);
            }
        };
        let number = self.mutations;
        let moment = if kind == Kind::Read { None } else { self.count_mutation() };
        if moment == Some(Moment::Before) {
            return self.fail_power();
        }
        let drive = drive.0 as usize;
        let request = Request { kind, at, length };
        let content = match (&buf, kind) {
            (Some(buf), Kind::Write) if self.drives[drive].spec.keeps_all() => digest(buf),
            _ => 0,
        };
        let place = mix(at ^ mix(length ^ ((drive as u64) << 8) ^ kind as u64));
        let sequence = self.sequence;
        self.trace.record(self.now_ns, place ^ content, || {
            // What changes something has a number of its own: that which a cut is told by.
            let operation = match kind {
                Kind::Read => String::new(),
                _ => format!(", operation {number}"),
            };
            format!(
                "request {sequence}{operation}: drive {drive} {kind:?} at {at} length {length} content \
                 {content:016x}"
            )
        });
        let (mut done_at_ns, verdict) =
            self.drives[drive].accept(self.now_ns, self.sequence, &request);
        if let Some(fault) = verdict.fault {
            self.trace.record(self.now_ns, fault as u64, || format!("drive {drive}: {fault}"));
            let late_ns = self.now_ns.saturating_add(verdict.late_ns);
            self.befall(drive, fault, &request, done_at_ns.unwrap_or(late_ns));
            if fault == Fault::Death && done_at_ns.is_none() {
                self.drives[drive].drop_requests();
                done_at_ns = Some(self.now_ns);
            }
        }
        let Verdict { error, deed, late_ns, .. } = verdict;
        let sought = if let Deed::At(elsewhere) = deed { elsewhere } else { at };
        let deed = if sought == at { deed } else { Deed::Whole };
        let asked = match (kind, &buf) {
            (Kind::Write | Kind::WriteZeroes | Kind::Trim, _)
                if !self.drives[drive].spec.keeps_content =>
            {
                None
            }
            (Kind::Write, Some(buf)) if self.drives[drive].spec.zeros_are_holes && is_zero(buf) => {
                Some(Change::Zero(sought..sought + length))
            }
            (Kind::Write, Some(buf)) => Some(Change::write(sought, buf)),
            (Kind::WriteZeroes, _) => Some(Change::Zero(at..at + length)),
            (Kind::Trim, _) => Some(self.drives[drive].trim(at, length)),
            _ => None,
        };
        let effect = match (asked, kind) {
            (Some(change), Kind::Write) if self.drives[drive].spec.zeros_are_holes => {
                let whole = self.drives[drive].changes_of(deed, change);
                Effect::Changes(whole.into_iter().flat_map(Change::without_zeros).collect())
            }
            (Some(change), _) if deed == Deed::Whole => Effect::Change(change),
            (Some(change), _) => Effect::Changes(self.drives[drive].changes_of(deed, change)),
            (None, Kind::Read) if error.is_none() => Effect::Read { at },
            (None, Kind::Read) => Effect::Scribble,
            (None, _) if deed == Deed::Nothing || kind != Kind::Flush => Effect::Nothing,
            (None, _) => Effect::Flush { covered: self.drives[drive].cache.sequence() },
        };
        let fatal = moment == Some(Moment::Completed);
        self.fly(
            done_at_ns.is_some(),
            Flying {
                done_at_ns: done_at_ns.unwrap_or(NEVER_NS),
                late_ns,
                sequence: 0,
                boot,
                id,
                drive,
                buf,
                lent,
                effect,
                error,
                fatal,
                is_refusal: false,
            },
        );
        if moment == Some(Moment::Submitted) {
            self.fail_power();
        }
        if let Some((operation, victim)) = self.armed_death
            && operation == number
            && kind != Kind::Read
        {
            self.armed_death = None;
            self.drive_dies(victim);
        }
    }

    /// What a fault does beyond the request that met it.
    fn befall(&mut self, drive: usize, fault: Fault, request: &Request, done_at_ns: u64) {
        match fault {
            Fault::Death => self.drive_dies(drive),
            Fault::Hang => self.drive_hangs(drive, done_at_ns),
            Fault::EndlessHang => {
                self.drive_hangs(drive, NEVER_NS);
                self.plug_pulled_at_ns.get_or_insert(self.now_ns + PATIENCE_NS);
            }
            Fault::BitRot => self.drives[drive].rot(request),
            _ => {}
        }
    }

    /// Counts an operation that changes something, and says whether power fails in its life.
    fn count_mutation(&mut self) -> Option<Moment> {
        let number = self.mutations;
        self.mutations += 1;
        self.armed.filter(|cut| cut.operation == number).map(|cut| cut.moment)
    }

    fn refuse(&mut self, boot: u64, id: OpId, buf: Option<Buf>) {
        let error = IoError::new(ErrorKind::Unsupported, "a simulation has no sockets");
        let (done_at_ns, effect) = (self.now_ns, Effect::Nothing);
        self.fly(
            true,
            Flying {
                done_at_ns,
                late_ns: 0,
                sequence: 0,
                boot,
                id,
                drive: 0,
                buf,
                lent: None,
                effect,
                error: Some(error),
                fatal: false,
                is_refusal: true,
            },
        );
    }

    fn fly(&mut self, its_end_is_known: bool, mut op: Flying) {
        op.sequence = self.sequence;
        self.sequence += 1;
        if !op.is_refusal {
            self.drives[op.drive].begins(self.now_ns);
        }
        if its_end_is_known {
            self.flying.push(op);
        } else {
            self.held.push(op);
        }
    }

    /// Carries out what the operation does, and says how it ended.
    fn complete(&mut self, mut op: Flying) -> Completed {
        let (sequence, failed) = (op.sequence, op.error.is_some());
        if !op.is_refusal {
            self.drives[op.drive].ends(op.done_at_ns.min(self.now_ns));
        }
        self.trace.record(self.now_ns, mix(sequence) ^ u64::from(failed), || {
            format!("request {sequence} ends{}", if failed { " with an error" } else { "" })
        });
        match op.effect {
            Effect::Nothing => {}
            Effect::Read { at } => {
                let buf = op.buf.as_mut().expect("a read has a buffer");
                self.drives[op.drive].cache.current().read(at, buf);
            }
            Effect::Scribble => op.buf.as_mut().expect("a read has a buffer").fill(RUBBISH),
            Effect::Change(change) => self.drives[op.drive].cache.complete(change),
            Effect::Changes(changes) => {
                let cache = &mut self.drives[op.drive].cache;
                changes.into_iter().for_each(|change| cache.complete(change));
            }
            Effect::Flush { covered } => self.drives[op.drive].cache.settle(covered),
        }
        let moved = op.buf.as_ref().map_or(0, |buf| buf.len() as u64);
        if let Some(slot) = op.lent {
            self.lent.insert(slot, op.buf.take());
        }
        Completed { id: op.id, buf: op.buf, result: op.error.map_or(Ok(moved), Err) }
    }

    fn poll(&mut self, boot: u64, park: Park, done: &mut Vec<Completed>) {
        while !self.held.is_empty() {
            // Physics decides step by step: what ends first is known only when it has ended.
            let told_ns = self.flying.peek().map_or(NEVER_NS, |op| op.done_at_ns);
            let until_ns = match park {
                Park::Never => self.now_ns + ROUND_NS,
                Park::Until(deadline_ns) => deadline_ns,
                Park::Forever => NEVER_NS,
            };
            let step_ns = self.physics_next_ns().expect("something is held");
            if step_ns > until_ns.min(told_ns).min(self.plug_pulled_at_ns.unwrap_or(NEVER_NS)) {
                break;
            }
            self.release(step_ns.max(self.now_ns));
        }
        let next_ns = self.flying.peek().map(|op| op.done_at_ns);
        if park == Park::Forever && next_ns == Some(NEVER_NS) && self.plug_pulled_at_ns.is_none() {
            // Made to hang by hand, and nothing else can happen any more.
            self.plug_pulled_at_ns = Some(self.now_ns + PATIENCE_NS);
        }
        let until_ns = match (park, next_ns) {
            (Park::Never, _) => self.now_ns + ROUND_NS,
            (Park::Until(deadline_ns), Some(next_ns)) => next_ns.min(deadline_ns),
            (Park::Until(deadline_ns), None) => deadline_ns,
            (Park::Forever, Some(next_ns)) => next_ns,
            (Park::Forever, None) => self.now_ns,
        };
        self.now_ns = self.now_ns.max(until_ns.min(self.plug_pulled_at_ns.unwrap_or(NEVER_NS)));
        if self.plug_pulled_at_ns.is_some_and(|at_ns| at_ns <= self.now_ns) {
            return self.fail_power();
        }
        while self.flying.peek().is_some_and(|op| op.done_at_ns <= self.now_ns) {
            let op = self.flying.pop().expect("peeked");
            let (fatal, of_boot) = (op.fatal, op.boot);
            let completed = self.complete(op);
            if fatal {
                return self.fail_power();
            }
            if of_boot == boot {
                done.push(completed);
            }
        }
    }
}

/// One executor's view of the simulation.
pub(crate) struct Room {
    pub(crate) state: Rc<RefCell<State>>,
    pub(crate) boot: u64,
}

impl Room {
    fn alive(&self) -> bool {
        let state = self.state.borrow();
        state.powered && state.boot == self.boot
    }
}

impl World for Room {
    fn now_ns(&self) -> u64 {
        self.state.borrow().now_ns
    }

    fn random(&mut self) -> u64 {
        self.state.borrow_mut().random.bits()
    }

    fn submit(&mut self, id: OpId, op: Op) {
        if self.alive() {
            self.state.borrow_mut().submit(self.boot, id, op);
        }
    }

    fn poll(&mut self, park: Park, done: &mut Vec<Completed>) {
        if self.alive() {
            self.state.borrow_mut().poll(self.boot, park, done);
        }
    }

    fn powered(&self) -> bool {
        self.alive()
    }

    fn lend(&mut self, memory: Buf) -> Result<Lent, Buf> {
        let state = &mut *self.state.borrow_mut();
        let lent = Lent { slot: state.next_lent, bytes: memory.len() as u32 };
        state.next_lent = state.next_lent.wrapping_add(1);
        state.lent.insert(lent.slot, Some(memory));
        Ok(lent)
    }

    fn take_back(&mut self, memory: Lent) -> Option<Buf> {
        self.state.borrow_mut().lent.remove(&memory.slot).flatten()
    }

    fn shutdown(&mut self, _: SocketId) {}

    fn close(&mut self, _: SocketId) {}
}
