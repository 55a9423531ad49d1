//! A power cut, and a death of the process, at every point of a scenario.
//!
//! The act is played once without a cut, to count the operations that the drives receive. Then,
//! for each operation and moment, it is played again from the same start up to the cut, and for
//! each rule by which the caches may lose, from the same cut on: boot, open, compare everything
//! with the oracle, close, check. Some cases also live on and lose power a second time: after
//! new work, or at each operation of the recovery itself.
//!
//! Cases are independent and run on several threads, each with machines of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use engine::marks::Marks;
use twin::{CacheLoss, CutPoint, Moment, Random, Simulation, Snapshot, mix};

use crate::alone::Alone;
use crate::failure::{Cut, Failure, Fall};
use crate::journal::Journal;
use crate::oracle::Oracle;
use crate::play::{Ended, Label, Machine};
use crate::report::{Effort, Report};
use crate::rot::newest_superblock;
use crate::scenario::{Curtain, Scenario, Stage};
use crate::subject::{Prey, Subject};
use crate::tally::Tally;
use crate::trace::{is_fate, is_fault, last_marks, place};
use crate::watched::{Watched, bound_ns};
use crate::workload::Workload;

/// Trace lines shown with a failure.
const TRACE_MAX: usize = 40;
/// Of what was made to go wrong before.
const FAULTS_MAX: usize = 8;
/// Of what a fall decided.
const FATES_MAX: usize = 16;
/// Requests shown with a failure.
const NOTES_MAX: usize = 40;
/// Where nobody knows: as volumes are made.
const EXTENT_BYTES: u64 = 128 << 10;

/// A machine at rest and what is known of its volume.
pub(crate) struct Rest {
    pub(crate) snapshot: Snapshot,
    pub(crate) oracle: Oracle,
    /// The volume has been made: it must open.
    pub(crate) made: bool,
}

/// What follows a recovery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// Close and check.
    Close,
    /// New work, a power cut, and another recovery.
    LiveOn,
    /// At once a power cut that takes all that is volatile, and another recovery: what was seen
    /// must still be there.
    CutAgain,
    /// Nothing.
    Leave,
}

/// Something that is tried.
#[derive(Debug, Clone, Copy)]
enum Occasion {
    Cut(CutPoint),
    /// The fast drive dies with this operation.
    Death(u64),
}

pub(crate) struct Hunt<'a, S: Subject> {
    pub(crate) subject: &'a S,
    pub(crate) scenario: &'a Scenario<S::Volume>,
    effort: &'a Effort,
    cases: AtomicU64,
    /// Operations of the act before its volume was open.
    opening: AtomicU64,
    /// Given by the fast drive and by the slow one.
    pub(crate) alone: Mutex<[Alone; 2]>,
    tally: Mutex<Tally>,
    failures: Mutex<Vec<(u64, Failure)>>,
}

/// Attacks `subject` with power cuts at the points of `scenario`.
pub fn enumerate<S: Subject>(
    subject: &S,
    scenario: &Scenario<S::Volume>,
    effort: &Effort,
) -> Report {
    let hunt = Hunt {
        subject,
        scenario,
        effort,
        cases: AtomicU64::new(0),
        opening: AtomicU64::new(0),
        alone: Mutex::default(),
        tally: Mutex::default(),
        failures: Mutex::new(Vec::new()),
    };
    let operations = hunt.run();
    let mut failures = hunt.failures.into_inner().expect("no thread panicked");
    failures.sort_by_key(|(point, _)| *point);
    Report {
        scenario: scenario.name,
        operations,
        cases: hunt.cases.into_inner(),
        alone: hunt.alone.into_inner().expect("no thread panicked"),
        tally: hunt.tally.into_inner().expect("no thread panicked"),
        failures: failures
            .into_iter()
            .map(|(_, failure)| failure)
            .take(effort.failures_max)
            .collect(),
    }
}

impl<S: Subject> Hunt<'_, S> {
    /// Plays everything; gives the number of operations of the act.
    fn run(&self) -> u64 {
        let Some(start) = self.prepare() else { return 0 };
        let Some(operations) = self.count(&start) else { return 0 };
        let occasions = self.occasions(operations);
        let next = AtomicU64::new(0);
        let work = || {
            self.hunt_on(&start, &next, &occasions);
            self.tally.lock().expect("no panic").marks.add(&Marks::take());
        };
        if self.effort.threads <= 1 {
            work();
        } else {
            std::thread::scope(|scope| {
                for _ in 0..self.effort.threads {
                    scope.spawn(work);
                }
            });
        }
        operations
    }

    /// Takes one occasion after the other, beside other threads, until it is enough.
    fn hunt_on(&self, start: &Rest, next: &AtomicU64, occasions: &[Occasion]) {
        while self.effort.until.is_none_or(|until| Instant::now() < until)
            && self.cases.load(Ordering::Relaxed) < self.effort.cases_max
        {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if self.failures_before(index) >= self.effort.failures_max {
                return;
            }
            match occasions.get(index as usize) {
                Some(Occasion::Cut(point)) => self.cut_at(start, index, *point),
                Some(Occasion::Death(operation)) => self.die_at(start, index, *operation),
                None => return,
            }
        }
    }

    /// Failures at earlier points: those of later ones must not end the search, or what is
    /// reported would depend on which thread was faster.
    fn failures_before(&self, order: u64) -> usize {
        let failures = self.failures.lock().expect("no panic");
        failures.iter().filter(|(at, _)| *at < order).count()
    }

    /// Operations with which the fast drive dies.
    fn deaths(&self, operations: u64) -> Vec<u64> {
        match self.effort.death_every {
            0 => Vec::new(),
            stride => {
                // An opening may be refused then.
                let first = self.opening.load(Ordering::Relaxed) + mix(self.scenario.seed) % stride;
                (first..operations).step_by(stride as usize).collect()
            }
        }
    }

    fn points(&self, operations: u64) -> Vec<CutPoint> {
        let stride = self.effort.stride.max(1);
        let begin = match self.effort.after_opening && !self.scenario.about_opening {
            true => self.opening.load(Ordering::Relaxed),
            false => 0,
        };
        // However wide the strides, no story goes without a cut.
        let room = operations.saturating_sub(begin).max(1);
        let first = begin + mix(self.scenario.seed) % stride % room;
        let operations = (first..operations).step_by(stride as usize);
        let moments = [Moment::Before, Moment::Submitted, Moment::Completed];
        let at = |operation| moments.map(|moment| CutPoint { operation, moment });
        operations.flat_map(at).collect()
    }

    /// All that is tried: first to last, deaths after cuts, or in no order.
    fn occasions(&self, operations: u64) -> Vec<Occasion> {
        let cuts = self.points(operations).into_iter().map(Occasion::Cut);
        let deaths = self.deaths(operations).into_iter().map(Occasion::Death);
        let mut all: Vec<Occasion> = cuts.chain(deaths).collect();
        if self.effort.after_opening {
            let salt = self.scenario.seed << 32;
            all.sort_by_key(|occasion| match occasion {
                Occasion::Cut(point) => mix(salt ^ point.operation << 2 ^ point.moment as u64),
                Occasion::Death(operation) => mix(salt ^ operation << 2 ^ 3),
            });
        }
        all
    }

    /// What is tried at a point. What is in flight is the interesting part; the other moments
    /// add only what the drive has just promised or not yet seen.
    fn falls(&self, point: CutPoint) -> Vec<Fall> {
        let mut falls = vec![Fall::Power(CacheLoss::LoseAll)];
        if point.moment == Moment::Before {
            return falls;
        }
        falls.push(Fall::Power(CacheLoss::KeepAll));
        let mut random = Random::new(self.scenario.seed ^ mix(point.operation + 1));
        let seeds = if point.moment == Moment::Submitted { self.effort.seeds } else { 1 };
        for _ in 0..seeds {
            falls.push(Fall::Power(CacheLoss::Torn(random.bits())));
            falls.push(Fall::Power(CacheLoss::Subset(random.bits())));
            if point.moment == Moment::Submitted {
                falls.push(Fall::Power(CacheLoss::Reordered(random.bits())));
            }
        }
        if point.moment == Moment::Submitted {
            falls.push(Fall::Process);
        }
        falls
    }

    /// Says more about the failures of a cut point.
    pub(crate) fn explain(&self, order: u64, text: &str) {
        let mut failures = self.failures.lock().expect("no panic");
        for (_, failure) in failures.iter_mut().filter(|(at, _)| *at == order) {
            failure.message = format!("{}\n{text}", failure.message);
        }
    }

    pub(crate) fn record(&self, order: u64, cuts: Vec<Cut>, stage: &'static str, message: String) {
        let (scenario, seed) = (self.scenario.name.to_string(), self.scenario.seed);
        let (requests, trace) = (Vec::new(), Vec::new());
        let failure = Failure { scenario, seed, cuts, stage, message, requests, trace };
        self.failures.lock().expect("no panic").push((order, failure));
    }

    /// The start of every case.
    fn prepare(&self) -> Option<Rest> {
        let simulation = Simulation::new(self.scenario.seed);
        simulation.add_drive(self.scenario.fast.clone());
        simulation.add_drive(self.scenario.slow.clone());
        let machine = Machine::of(&simulation);
        let oracle = Rc::new(RefCell::new(Oracle::new()));
        let made = !self.scenario.fresh;
        if made {
            let closing = self.scenario.curtain == Curtain::Closed;
            let ended = machine.play(|io, fast, slow, label| {
                let (oracle, simulation) = (oracle.clone(), simulation.clone());
                async move {
                    label.set("making the volume");
                    self.subject.create(&io, &fast, &slow).await?;
                    label.set("opening the new volume");
                    let volume = self.subject.open(&io, &fast, &slow).await?;
                    let watched = Watched::new(&io, volume.clone(), oracle.clone());
                    label.set("preparing");
                    let stage = Stage { volume: watched, machine: simulation };
                    self.scenario.play_prepare(stage).await.map_err(|t| t.to_string())?;
                    if closing {
                        label.set("closing after the preparation");
                        self.close(volume, &oracle).await?;
                    }
                    Ok(())
                }
            });
            if let Ended::Wrong { stage, message } = ended {
                self.record(0, Vec::new(), stage, message);
                return None;
            }
        }
        let fallen = match self.scenario.curtain {
            Curtain::Closed => None,
            Curtain::Cut(loss) => Some(Fall::Power(loss)),
            Curtain::Killed => Some(Fall::Process),
        };
        match fallen {
            Some(what) => {
                fall(&simulation, what);
                tell_of_fall(&oracle, simulation.now_ns(), what);
            }
            // Everybody has gone home; what is left under way ends by itself.
            None => drop(simulation.boot()),
        }
        let oracle = oracle.borrow().clone();
        Some(Rest { snapshot: simulation.snapshot(), oracle, made })
    }

    /// Closes, after which everything that had ended is durable.
    async fn close(&self, volume: S::Volume, oracle: &RefCell<Oracle>) -> Result<(), String> {
        let flushing = oracle.borrow_mut().begin_close();
        self.subject.close(volume).await?;
        oracle.borrow_mut().end_flush(flushing);
        Ok(())
    }

    /// Plays the act without a cut, and counts.
    fn count(&self, start: &Rest) -> Option<u64> {
        let simulation = Simulation::wake(&start.snapshot);
        simulation.disarm();
        let (ended, oracle, made) = self.act(&simulation, start);
        let operations = simulation.operations();
        if let Ended::Wrong { stage, message } = ended {
            self.record(0, Vec::new(), stage, message);
            let simulation = Simulation::wake(&start.snapshot);
            simulation.disarm();
            self.add_trace(start, 0, &simulation, None);
            return None;
        }
        if self.scenario.uncut {
            return Some(0);
        }
        let cut = Cut { point: None, fall: Fall::Power(CacheLoss::LoseAll) };
        fall(&simulation, cut.fall);
        tell_of_fall(&oracle, simulation.now_ns(), cut.fall);
        self.aftermath((u64::MAX, 0), &simulation, &oracle, made, vec![cut], Then::LiveOn);
        Some(operations)
    }

    /// Plays the act on `simulation`, which has woken from `start`.
    pub(crate) fn act(
        &self,
        simulation: &Simulation,
        start: &Rest,
    ) -> (Ended, Rc<RefCell<Oracle>>, bool) {
        self.act_noting(simulation, start, None)
    }

    /// As [`Hunt::act`], with what clients ask for noted.
    fn act_noting(
        &self,
        simulation: &Simulation,
        start: &Rest,
        journal: Option<Journal>,
    ) -> (Ended, Rc<RefCell<Oracle>>, bool) {
        let oracle = Rc::new(RefCell::new(start.oracle.clone()));
        let made = Rc::new(Cell::new(start.made));
        let machine = Machine::of(simulation);
        let begun_ns = simulation.now_ns();
        let ended = machine.play(|io, fast, slow, label| {
            let (oracle, made, simulation) = (oracle.clone(), made.clone(), simulation.clone());
            let journal = journal.clone();
            async move {
                if self.scenario.fresh {
                    label.set("making the volume");
                    self.subject.create(&io, &fast, &slow).await?;
                    made.set(true);
                }
                label.set("opening");
                let volume = self.subject.open(&io, &fast, &slow).await?;
                oracle.borrow_mut().reopened(bound_ns(volume.flush_mode()))?;
                if self.scenario.curtain != Curtain::Closed {
                    label.set("looking after the prepared power cut");
                    let watched = Watched::new(&io, volume.clone(), oracle.clone());
                    let mut random = Random::new(self.scenario.seed);
                    watched.look_after_cut(&mut random).await.map_err(|t| t.to_string())?;
                }
                self.opening.store(simulation.operations(), Ordering::Relaxed);
                label.set("playing the act");
                let watched = Watched::new(&io, volume.clone(), oracle.clone()).noting(journal);
                let stage = Stage { volume: watched, machine: simulation };
                self.scenario.play_act(stage).await.map_err(|trouble| trouble.to_string())?;
                if self.scenario.closing {
                    label.set("closing after the act");
                    self.close(volume, &oracle).await?;
                }
                Ok(())
            }
        });
        self.count_time(simulation, begun_ns);
        (ended, oracle, made.get())
    }

    fn count_time(&self, simulation: &Simulation, begun_ns: u64) {
        let passed_ns = simulation.now_ns() - begun_ns;
        self.tally.lock().expect("no panic").virtual_ns += u128::from(passed_ns);
    }

    /// All cases of one cut point.
    fn cut_at(&self, start: &Rest, order: u64, point: CutPoint) {
        let simulation = Simulation::wake(&start.snapshot);
        simulation.arm_cut(point);
        let (ended, oracle, made) = self.act(&simulation, start);
        if let Ended::Wrong { stage, message } = ended {
            self.record(order, Vec::new(), stage, message);
            return self.add_trace_of_cut(start, order, point, None);
        }
        simulation.fail_power();
        // Before a process dies, whose drives go on for a while.
        let fell_ns = simulation.now_ns();
        let rest = Rest { snapshot: simulation.snapshot(), oracle: oracle.borrow().clone(), made };
        let mut falls = self.falls(point);
        if simulation.at_stake() == 0 {
            falls.truncate(1);
        }
        for (index, what) in falls.into_iter().enumerate() {
            let cut = Cut { point: Some(point), fall: what };
            // Not a running count: that would depend on which thread was faster.
            let case = mix(order << 8 | index as u64);
            let then = match what {
                Fall::Process => Then::CutAgain,
                _ if case.is_multiple_of(self.effort.relive_every.max(1)) => Then::LiveOn,
                _ => Then::Close,
            };
            let recut = divides(self.effort.recut_every, case);
            let simulation = Simulation::wake(&rest.snapshot);
            fall(&simulation, what);
            let oracle = Rc::new(RefCell::new(rest.oracle.clone()));
            tell_of_fall(&oracle, fell_ns, what);
            let after = Rest {
                snapshot: simulation.snapshot(),
                oracle: oracle.borrow().clone(),
                made: rest.made,
            };
            let alone = divides(self.effort.alone_every, case) && made;
            if alone && !self.look_at_each_alone(order, &after, &[cut]) {
                return self.add_trace_of_cut(start, order, point, Some(what));
            }
            let clean = self.aftermath((order, case), &simulation, &oracle, made, vec![cut], then);
            if !clean {
                return self.add_trace_of_cut(start, order, point, Some(what));
            }
            if divides(self.effort.rot_every, case) && made && !self.rot(order, &after, cut) {
                return self.add_trace_of_cut(start, order, point, Some(what));
            }
            if recut && !self.cut_recovery(order, &after, cut) {
                return self.add_trace_of_cut(start, order, point, Some(what));
            }
        }
    }

    /// Cuts again at each operation of the recovery. Says whether all was well.
    fn cut_recovery(&self, order: u64, rest: &Rest, first: Cut) -> bool {
        for operation in 0.. {
            let simulation = Simulation::wake(&rest.snapshot);
            let point = CutPoint { operation, moment: Moment::Submitted };
            simulation.arm_cut(point);
            let machine = Machine::of(&simulation);
            let ended = machine.play(|io, fast, slow, label| async move {
                label.set("opening after the first cut");
                match self.subject.open(&io, &fast, &slow).await {
                    Err(message) if rest.made => Err(message),
                    _ => Ok(()),
                }
            });
            match ended {
                Ended::PowerCut => {}
                Ended::Well => break,
                Ended::Wrong { stage, message } => {
                    self.record(order, vec![first], stage, message);
                    return false;
                }
            }
            let again = simulation.snapshot();
            let mut random = Random::new(mix(operation) ^ self.scenario.seed);
            for loss in [
                CacheLoss::LoseAll,
                CacheLoss::KeepAll,
                CacheLoss::Subset(random.bits()),
                CacheLoss::Torn(random.bits()),
            ] {
                let simulation = Simulation::wake(&again);
                let what = Fall::Power(loss);
                fall(&simulation, what);
                let oracle = Rc::new(RefCell::new(rest.oracle.clone()));
                tell_of_fall(&oracle, simulation.now_ns(), what);
                let cuts = vec![first, Cut { point: Some(point), fall: what }];
                let case = (order, mix(operation));
                if !self.aftermath(case, &simulation, &oracle, rest.made, cuts, Then::Close) {
                    return false;
                }
            }
        }
        true
    }

    fn add_trace_of_cut(&self, start: &Rest, order: u64, point: CutPoint, what: Option<Fall>) {
        let simulation = Simulation::wake(&start.snapshot);
        simulation.arm_cut(point);
        self.add_trace(start, order, &simulation, what);
    }

    /// After a cut: open, compare, perhaps live on and lose power again, close, check. Says
    /// whether all was well. `case` decides what is drawn on the way.
    pub(crate) fn aftermath(
        &self,
        (order, case): (u64, u64),
        simulation: &Simulation,
        oracle: &Rc<RefCell<Oracle>>,
        made: bool,
        mut cuts: Vec<Cut>,
        then: Then,
    ) -> bool {
        self.cases.fetch_add(1, Ordering::Relaxed);
        let fall = cuts.last().expect("something fell").fall;
        self.tally.lock().expect("no panic").count_fall(fall);
        let ends = self.scenario.ends_with_cut && then == Then::LiveOn;
        let then = if ends { Then::Close } else { then };
        let seed = mix(case) ^ self.scenario.seed;
        let machine = Machine::of(simulation);
        let begun_ns = simulation.now_ns();
        let ended = machine.play(|io, fast, slow, label| {
            let oracle = oracle.clone();
            async move {
                label.set("opening after the cut");
                let volume = match self.subject.open(&io, &fast, &slow).await {
                    Err(_) if !made => {
                        label.set("making the volume again after an unfinished making");
                        self.subject.create(&io, &fast, &slow).await?;
                        label.set("opening the volume made again");
                        self.subject.open(&io, &fast, &slow).await?
                    }
                    opened => opened?,
                };
                oracle.borrow_mut().reopened(bound_ns(volume.flush_mode()))?;
                let watched = Watched::new(&io, volume.clone(), oracle.clone());
                label.set("looking after the cut");
                let looked = watched.look_after_cut(&mut Random::new(seed)).await;
                looked.map_err(|trouble| trouble.to_string())?;
                match then {
                    Then::LiveOn => {
                        label.set("living on after the cut");
                        self.live_on(&watched, seed).await.map_err(|trouble| trouble.to_string())
                    }
                    Then::CutAgain | Then::Leave => Ok(()),
                    Then::Close => {
                        self.close_and_check(volume, &oracle, (&io, &fast, &slow), &label).await
                    }
                }
            }
        });
        self.count_time(simulation, begun_ns);
        if let Ended::Wrong { stage, message } = ended {
            self.record(order, cuts, stage, message);
            return false;
        }
        let loss = match then {
            Then::Leave => return true,
            Then::Close => {
                // Drawn anew: cases that live on are multiples of some number, too.
                let looks = divides(self.effort.alone_every, case)
                    && divides(self.effort.rot_every, mix(case));
                return !looks || self.look_after_close(order, simulation, &oracle.borrow(), &cuts);
            }
            Then::LiveOn if case % 2 == 1 => CacheLoss::Torn(seed),
            _ => CacheLoss::LoseAll,
        };
        cuts.push(Cut { point: None, fall: Fall::Power(loss) });
        simulation.power_cut(loss);
        tell_of_fall(oracle, simulation.now_ns(), Fall::Power(loss));
        if divides(self.effort.alone_every, case)
            && !self.look_alone_again(order, simulation, oracle, &cuts)
        {
            return false;
        }
        self.aftermath((order, mix(case)), simulation, oracle, true, cuts, Then::Close)
    }

    async fn live_on(
        &self,
        watched: &Watched<S::Volume>,
        seed: u64,
    ) -> Result<(), crate::watched::Trouble> {
        let workload = Workload {
            seed,
            clients: 2,
            steps: 10,
            span: self.scenario.span.clone(),
            length_bytes_max: 64 << 10,
            patient: false,
        };
        workload.run(watched).await
    }

    async fn close_and_check(
        &self,
        volume: S::Volume,
        oracle: &RefCell<Oracle>,
        (io, fast, slow): (&io::Io, &io::Device, &io::Device),
        label: &Label,
    ) -> Result<(), String> {
        label.set("closing after the cut");
        self.close(volume, oracle).await?;
        label.set("checking after the cut");
        self.subject.check(io, fast, slow).await
    }

    /// Plays a failed case's act once more on `simulation`, which has woken from `start` and is armed, to show
    /// what clients asked for and what the drives received last, and what became of it in the fall.
    pub(crate) fn add_trace(
        &self,
        start: &Rest,
        order: u64,
        simulation: &Simulation,
        what: Option<Fall>,
    ) {
        simulation.keep_trace_text();
        let journal = Journal::default();
        let before = Marks::take();
        self.act_noting(simulation, start, Some(journal.clone()));
        let marks = Marks::take();
        let geometry = newest_superblock(simulation).map(|superblock| superblock.geometry);
        let lines = simulation.trace_text();
        if let Some(what) = what {
            simulation.fail_power();
            fall(simulation, what);
        }
        let after = simulation.trace_text();
        let fates: Vec<String> =
            after[lines.len()..].iter().filter(|line| is_fate(line)).cloned().collect();
        let faults: Vec<String> = lines.iter().filter(|line| is_fault(line)).cloned().collect();
        let told = |line: &String| match &geometry {
            Some(geometry) => place(geometry, line),
            None => line.clone(),
        };
        let shown = [(&faults, FAULTS_MAX), (&lines, TRACE_MAX), (&fates, FATES_MAX)];
        let trace = shown.into_iter().flat_map(|(lines, max)| tail(lines, max)).map(told);
        let trace: Vec<String> = trace.chain([last_marks(&marks)]).collect();
        let extent_bytes = geometry.as_ref().map_or(EXTENT_BYTES, |geometry| geometry.extent_bytes);
        let notes: Vec<_> = journal.take().iter().map(|note| note.tell(extent_bytes)).collect();
        self.tally.lock().expect("no panic").marks.add(&before);
        let mut failures = self.failures.lock().expect("no panic");
        for (_, failure) in failures.iter_mut().filter(|(at, _)| *at == order) {
            failure.requests = tail(&notes, NOTES_MAX).to_vec();
            failure.trace = trace.clone();
        }
    }
}

fn tail(lines: &[String], count: usize) -> &[String] {
    &lines[lines.len().saturating_sub(count)..]
}

/// Whether it is the turn of a case; with 0 it never is.
fn divides(every: u64, case: u64) -> bool {
    every > 0 && case.is_multiple_of(every)
}

/// Lets the machine fall. What was made to fail during the act is well again afterwards.
fn fall(simulation: &Simulation, what: Fall) {
    simulation.clear_faults();
    match what {
        Fall::Power(loss) => simulation.power_cut(loss),
        Fall::Process => simulation.process_dies(),
    }
}

/// Tells the oracle of a fall.
fn tell_of_fall(oracle: &RefCell<Oracle>, now_ns: u64, what: Fall) {
    let mut oracle = oracle.borrow_mut();
    oracle.tell_time(now_ns);
    match what {
        Fall::Power(_) => oracle.cut(),
        Fall::Process => oracle.kill(),
    }
}
