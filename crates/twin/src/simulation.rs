//! The face of the simulated world: drives, boots, power cuts, and hands on the drives.

use std::cell::RefCell;
use std::future::Future;
use std::ops::Range;
use std::rc::Rc;

use io::{Device, DeviceId, ErrorKind, Io, Pool};

use crate::change::Change;
use crate::drive::{Drive, DriveCounters, DriveSpec};
use crate::fault::{Fault, FaultCounts, Faults};
use crate::loss::CacheLoss;
use crate::medium::Medium;
use crate::mischief::NEVER_NS;
use crate::model::{Kind, Model};
use crate::random::Random;
use crate::state::{CutPoint, Room, State};
use crate::trace::Trace;

/// A simulated machine: its drives, its clock and its power. Clones are the same machine.
#[derive(Clone)]
pub struct Simulation {
    state: Rc<RefCell<State>>,
    pool: Pool,
}

/// Names a drive of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DriveId(u32);

/// What a drive held at some moment, cache included.
#[derive(Clone)]
pub struct DriveImage {
    medium: Medium,
    size_bytes: u64,
}

/// A whole simulation at rest, to be woken any number of times, on any thread.
#[derive(Clone)]
pub struct Snapshot {
    now_ns: u64,
    random: Random,
    drives: Vec<Drive>,
    powered: bool,
    stranded: Vec<Vec<Change>>,
    sequence: u64,
    trace: Trace,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The future ended with this.
    Done(T),
    /// Power failed first.
    PowerCut,
}

impl<T> Outcome<T> {
    /// The result of a run in which power cannot have failed.
    ///
    /// # Panics
    /// When it did.
    pub fn done(self) -> T {
        match self {
            Outcome::Done(value) => value,
            Outcome::PowerCut => panic!("power failed during a run that expected none"),
        }
    }
}

impl Simulation {
    /// A machine without drives. Everything that happens in it follows from `seed`.
    pub fn new(seed: u64) -> Simulation {
        Simulation::of(State::new(seed))
    }

    /// A machine in the condition of `snapshot`.
    pub fn wake(snapshot: &Snapshot) -> Simulation {
        let mut state = State::new(0);
        state.now_ns = snapshot.now_ns;
        state.random = snapshot.random.clone();
        state.drives = snapshot.drives.clone();
        state.powered = snapshot.powered;
        state.stranded = snapshot.stranded.clone();
        state.sequence = snapshot.sequence;
        state.trace = snapshot.trace.clone();
        Simulation::of(state)
    }

    fn of(state: State) -> Simulation {
        // Without an arena: boots are many and short, and nothing here registers memory.
        Simulation { state: Rc::new(RefCell::new(state)), pool: Pool::new(0) }
    }

    /// The machine's condition, to go back to.
    ///
    /// # Panics
    /// While operations are in flight: run until there are none, or cut the power.
    pub fn snapshot(&self) -> Snapshot {
        let state = self.state.borrow();
        assert_eq!(state.in_flight(), 0, "a snapshot cannot hold operations in flight");
        Snapshot {
            now_ns: state.now_ns,
            random: state.random.clone(),
            drives: state.drives.clone(),
            powered: state.powered,
            stranded: state.stranded.clone(),
            sequence: state.sequence,
            trace: state.trace.clone(),
        }
    }

    /// Adds a drive full of zeros.
    pub fn add_drive(&self, spec: DriveSpec) -> DriveId {
        let mut state = self.state.borrow_mut();
        let mut random = state.random.fork();
        state.drives.push(Drive::new(spec, &mut random));
        DriveId((state.drives.len() - 1) as u32)
    }

    /// The drives, in the order they were added.
    pub fn drives(&self) -> Vec<DriveId> {
        (0..self.state.borrow().drives.len() as u32).map(DriveId).collect()
    }

    /// Starts a new process: an executor over the drives as they are now. Executors of earlier
    /// boots are dead; what they had in flight is finished by the drives.
    ///
    /// # Panics
    /// When power has failed and [`Simulation::power_cut`] has not said what that did.
    pub fn boot(&self) -> Io {
        let mut state = self.state.borrow_mut();
        assert!(state.powered, "power has failed: say by power_cut what the caches lose");
        state.finish_flying();
        state.lent.clear();
        state.boot += 1;
        let boot = state.boot;
        drop(state);
        Io::new(Box::new(Room { state: self.state.clone(), boot }), self.pool.clone())
    }

    /// Has boots from now on take their buffers from `pool`, so that thousands of machines, one
    /// after the other, do not each ask the operating system for memory.
    pub fn use_pool(&mut self, pool: &Pool) {
        self.pool = pool.clone();
    }

    /// A handle to a drive for the executor of a boot.
    pub fn device(&self, io: &Io, drive: DriveId) -> Device {
        let info = self.state.borrow().drives[drive.0 as usize].info();
        Device::new(io.clone(), DeviceId(drive.0), info)
    }

    /// Plans a power cut and starts counting operations for it from 0.
    pub fn arm_cut(&self, cut: CutPoint) {
        let mut state = self.state.borrow_mut();
        state.mutations = 0;
        state.armed = Some(cut);
    }

    /// Plans the death of a drive while an operation is in flight, which is numbered as those of a
    /// cut are, and starts counting from 0.
    pub fn arm_death(&self, drive: DriveId, operation: u64) {
        let mut state = self.state.borrow_mut();
        state.mutations = 0;
        state.armed_death = Some((operation, drive.0 as usize));
    }

    /// Forgets a planned cut or death that has not happened, and counts operations from 0 again.
    pub fn disarm(&self) {
        let mut state = self.state.borrow_mut();
        state.mutations = 0;
        state.armed = None;
        state.armed_death = None;
    }

    /// Writes, zeroings, trims and flushes submitted since the last [`Simulation::arm_cut`] or
    /// [`Simulation::disarm`]: the number of points at which a cut can be planned.
    pub fn operations(&self) -> u64 {
        self.state.borrow().mutations
    }

    /// Runs `future` and everything spawned on `io`. When power fails, every task is dropped.
    pub fn run<T>(&self, io: &Io, future: impl Future<Output = T>) -> Outcome<T> {
        match io.run_until_cut(future) {
            Some(value) => Outcome::Done(value),
            None => {
                io.drop_tasks();
                Outcome::PowerCut
            }
        }
    }

    /// Power fails now, unless it already has. What the caches lose is still open: see
    /// [`Simulation::power_cut`].
    pub fn fail_power(&self) {
        self.state.borrow_mut().fail_power();
    }

    /// Power fails now, unless it already has; the caches lose what `loss` says; power is back.
    pub fn power_cut(&self, loss: CacheLoss) {
        let mut state = self.state.borrow_mut();
        state.fail_power();
        let stranded = std::mem::take(&mut state.stranded);
        let keeps_text = state.trace.keeps_text();
        let mut fates = Vec::new();
        for (index, drive) in state.drives.iter_mut().enumerate() {
            let in_flight = stranded.get(index).map_or(&[][..], Vec::as_slice);
            let unit_bytes = drive.spec.atomic_write_bytes as usize;
            let completed: Vec<Change> =
                if keeps_text { drive.cache.volatile().cloned().collect() } else { Vec::new() };
            drive.cache.cut(in_flight, loss.for_drive(index as u64), unit_bytes);
            drive.reset();
            if keeps_text {
                let of = |change: &Change, state| {
                    let fate = change.left_in(drive.cache.current(), unit_bytes);
                    format!("fate of a change: drive {index} {change}, {state}: {fate}")
                };
                fates.extend(completed.iter().map(|change| of(change, "completed")));
                fates.extend(in_flight.iter().map(|change| of(change, "in flight")));
            }
        }
        let now_ns = state.now_ns;
        fates.iter().for_each(|fate| state.trace.note(now_ns, fate));
        // The old executor must not go on when power is back.
        state.boot += 1;
        state.powered = true;
        let now_ns = state.now_ns;
        state.trace.record(now_ns, 0, || format!("power is back, lost: {loss:?}"));
    }

    /// The process dies, the machine goes on: the drives finish what they had been given, and
    /// lose nothing. After a planned cut: it was the process and not the power that failed.
    pub fn process_dies(&self) {
        let mut state = self.state.borrow_mut();
        state.finish_flying();
        let stranded = std::mem::take(&mut state.stranded);
        for (drive, changes) in state.drives.iter_mut().zip(stranded) {
            changes.into_iter().for_each(|change| drive.cache.complete(change));
            drive.reset();
        }
        state.boot += 1;
        state.powered = true;
        state.armed = None;
        let now_ns = state.now_ns;
        state.trace.record(now_ns, 1, || "the process has died".into());
    }

    /// Every drive does again what it is asked, as if nothing had ever been made to fail.
    pub fn clear_faults(&self) {
        let mut state = self.state.borrow_mut();
        for index in 0..state.drives.len() {
            if state.drives[index].mischief.hung_until_ns > state.now_ns {
                let now_ns = state.now_ns;
                state.drive_hangs(index, now_ns);
            }
            state.drives[index].mischief.clear();
        }
    }

    /// Nanoseconds on the virtual clock.
    pub fn now_ns(&self) -> u64 {
        self.state.borrow().now_ns
    }

    /// What the drive was asked to do until now.
    pub fn counters(&self, drive: DriveId) -> DriveCounters {
        let state = self.state.borrow();
        state.drives[drive.0 as usize].counters_at(state.now_ns)
    }

    /// A fingerprint of every operation submitted and ended so far, with its content and time:
    /// the same seed and the same calls give the same one.
    pub fn trace(&self) -> u64 {
        self.state.borrow().trace.hash()
    }

    /// Keeps the trace as text from now on.
    pub fn keep_trace_text(&self) {
        self.state.borrow_mut().trace.keep_text();
    }

    /// The trace as text: virtual time in nanoseconds, then what happened.
    pub fn trace_text(&self) -> Vec<String> {
        self.state.borrow().trace.text().to_vec()
    }

    /// Completed changes of the drive that a power cut could still lose.
    pub fn volatile_changes(&self, drive: DriveId) -> usize {
        self.state.borrow().drives[drive.0 as usize].cache.volatile_changes()
    }

    /// After power has failed: changes, over all drives, whose fate is open. With none, every
    /// loss leaves the same drives.
    pub fn at_stake(&self) -> usize {
        let state = self.state.borrow();
        let cached: usize = state.drives.iter().map(|drive| drive.cache.volatile_changes()).sum();
        cached + state.stranded.iter().map(Vec::len).sum::<usize>()
    }

    /// Bytes of the drive as a read would see them, without asking the drive.
    pub fn peek(&self, drive: DriveId, at: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.state.borrow().drives[drive.0 as usize].cache.current().read(at, &mut bytes);
        bytes
    }

    /// Changes bytes of the drive behind everybody's back.
    pub fn poke(&self, drive: DriveId, at: u64, bytes: &[u8]) {
        self.with(drive, |drive| drive.cache.poke(at, bytes));
    }

    /// A copy of what the drive holds.
    pub fn copy_drive(&self, drive: DriveId) -> DriveImage {
        let state = self.state.borrow();
        let drive = &state.drives[drive.0 as usize];
        DriveImage { medium: drive.cache.current().clone(), size_bytes: drive.spec.size_bytes }
    }

    /// Puts a copy back, durable: the drive becomes an older self, or another drive.
    pub fn restore_drive(&self, drive: DriveId, image: &DriveImage) {
        self.with(drive, |drive| {
            drive.cache.replace(image.medium.clone());
            drive.spec.size_bytes = image.size_bytes;
        });
    }

    /// Exchanges what two drives hold, and their sizes: somebody has swapped the cables.
    pub fn swap_drives(&self, one: DriveId, other: DriveId) {
        let (first, second) = (self.copy_drive(one), self.copy_drive(other));
        self.restore_drive(one, &second);
        self.restore_drive(other, &first);
    }

    /// Changes the drive's size; what lies beyond is lost. Handles made before keep the old size.
    pub fn truncate(&self, drive: DriveId, size_bytes: u64) {
        self.with(drive, |drive| {
            let mut medium = drive.cache.current().clone();
            Change::Zero(size_bytes..drive.spec.size_bytes.max(size_bytes)).apply(&mut medium);
            drive.cache.replace(medium);
            drive.spec.size_bytes = size_bytes;
        });
    }

    /// Writes that would make the drive hold more than this many bytes fail for want of space.
    pub fn set_full(&self, drive: DriveId, space_bytes: Option<u64>) {
        self.with(drive, |drive| drive.mischief.space_bytes = space_bytes);
    }

    /// The next `count` requests of that kind fail, and change nothing.
    pub fn fail_next(&self, drive: DriveId, kind: Kind, count: u64, error: ErrorKind) {
        assert!(count > 0, "nothing would fail");
        self.with(drive, |drive| drive.mischief.fail_next(kind, count, error));
    }

    /// Reads that touch the byte range fail until it has been written as a whole.
    pub fn set_unreadable(&self, drive: DriveId, range: Range<u64>) {
        self.with(drive, |drive| drive.mischief.unreadable(range));
    }

    /// Writes are refused from now on, or no longer.
    pub fn set_read_only(&self, drive: DriveId, read_only: bool) {
        self.with(drive, |drive| drive.mischief.read_only = read_only);
    }

    /// The drive goes wrong by itself from now on, as the profile says; it keeps what was done to
    /// it by hand. `Faults::none()` ends that.
    pub fn set_faults(&self, drive: DriveId, faults: Faults) {
        self.with(drive, |drive| drive.mischief.set_profile(faults));
    }

    /// The next `count` requests that can meet the fault do.
    ///
    /// # Panics
    /// When no request can meet it, or `count` is 0.
    pub fn strike_next(&self, drive: DriveId, fault: Fault, count: u64) {
        assert!(count > 0, "nothing would be struck");
        assert!(fault != Fault::OldDrive, "a drive gets old by hand: see return_old_drive");
        self.with(drive, |drive| drive.mischief.strike_next(fault, count));
    }

    /// How often each fault has struck on this drive since it was added.
    pub fn fault_counts(&self, drive: DriveId) -> FaultCounts {
        self.state.borrow().drives[drive.0 as usize].mischief.counts
    }

    /// The drive answers nothing for so long, or (`None`) until its power is cycled or it is let
    /// go on with `Some(0)`. Then it does what it was asked.
    pub fn hang(&self, drive: DriveId, for_ns: Option<u64>) {
        let mut state = self.state.borrow_mut();
        let until_ns = for_ns.map_or(NEVER_NS, |for_ns| state.now_ns + for_ns);
        state.drive_hangs(drive.0 as usize, until_ns);
    }

    /// Everything fails from now on, what is in flight included, or no longer.
    pub fn set_dead(&self, drive: DriveId, dead: bool) {
        let mut state = self.state.borrow_mut();
        let index = drive.0 as usize;
        if dead {
            state.drive_dies(index);
        } else {
            state.drives[index].mischief.dead = false;
        }
    }

    /// The drive comes back as it was when `image` was copied: what is in flight fails, then it
    /// answers again, and all that happened to it since is undone.
    pub fn return_old_drive(&self, drive: DriveId, image: &DriveImage) {
        let index = drive.0 as usize;
        let mut state = self.state.borrow_mut();
        state.drive_dies(index);
        state.disown_flying(index);
        let now_ns = state.now_ns;
        state.trace.record(now_ns, Fault::OldDrive as u64, || {
            format!("drive {index} comes back as it was some time ago")
        });
        let mischief = &mut state.drives[index].mischief;
        mischief.dead = false;
        mischief.counts.count(Fault::OldDrive);
        mischief.power_cycled();
        mischief.forget_bad_sectors();
        drop(state);
        self.restore_drive(drive, image);
    }

    /// Flushes report success without doing anything from now on, or no longer.
    pub fn set_lying_flush(&self, drive: DriveId, lying: bool) {
        self.with(drive, |drive| drive.mischief.lying_flush = lying);
    }

    /// Replaces the drive's physics.
    pub fn set_model(&self, drive: DriveId, model: Box<dyn Model>) {
        self.with(drive, |drive| drive.set_model(model));
    }

    fn with(&self, drive: DriveId, change: impl FnOnce(&mut Drive)) {
        change(&mut self.state.borrow_mut().drives[drive.0 as usize]);
    }
}

#[cfg(test)]
mod tests;
