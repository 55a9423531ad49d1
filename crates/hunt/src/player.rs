//! Plays the lives of a trial, one after the other, each from the rest that the last one left.

use std::cell::RefCell;
use std::rc::Rc;

use engine::format::superblock::{COPY_POSITIONS, SUPERBLOCK_BYTES};
use engine::marks::Marks;
use engine::{Geometry, Superblock, Tier};
use io::units::{MILLISECOND_NS, SECOND_NS};
use twin::{DriveId, DriveImage, Harm, Random, Simulation, Snapshot};

use crate::alone::look_alone;
use crate::bimetal::{Bimetal, Cached};
use crate::failure::Fall;
use crate::journal::Journal;
use crate::oracle::Oracle;
use crate::play::{Ended, Machine};
use crate::rot::{Rot, spoil_page};
use crate::subject::Subject;
use crate::tally::Tally;
use crate::trial::{Damage, End, Life, Mischief, Phase, Setting};
use crate::watched::{Watched, bound_ns};
use crate::workload::run_clients;

/// Long enough for what a volume does when idle.
const IDLE_NS: u64 = 20 * SECOND_NS;

/// A bound that drives which neither stall nor fail keep, however busy they are.
pub(crate) const SURE_BOUND_NS: u64 = 10 * SECOND_NS;

/// A machine at rest, and what is known of its volume.
#[derive(Clone)]
pub(crate) struct Rest {
    snapshot: Snapshot,
    oracle: Oracle,
    /// The last life was closed in order.
    closed: bool,
    /// Blocks may be unreadable for good, because a drive has lost them.
    worn: bool,
    /// Map pages of a drive may be damaged, because they have rotten or a request for them failed.
    rotten: bool,
    /// Nothing is promised any more, but that nothing panics or hangs.
    void: bool,
    /// The drives before the life before this, if clients were served since.
    past: Option<[DriveImage; 2]>,
}

impl Rest {
    /// The last life was closed in order.
    pub fn is_closed(&self) -> bool {
        self.closed
    }
}

/// What a life left, before it is decided what its fall does.
pub(crate) struct Stopped {
    snapshot: Snapshot,
    oracle: Oracle,
    closed: bool,
    worn: bool,
    rotten: bool,
    void: bool,
    past: Option<[DriveImage; 2]>,
}

/// Something that must not be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// What was being done.
    pub stage: &'static str,
    /// What went wrong.
    pub message: String,
}

impl Wrong {
    /// What sort of thing it is: to tell whether two are the same.
    pub(crate) fn sort(&self) -> &str {
        let end = self.message.find(':').unwrap_or(0);
        match &self.message[..end] {
            sort @ ("wrong data" | "panic" | "it hangs" | "accepted") => sort,
            _ => self.stage,
        }
    }

    /// Something that must not be even where nothing is promised.
    pub(crate) fn is_crash(&self) -> bool {
        matches!(self.sort(), "panic" | "it hangs")
    }
}

/// Plays lives of one setting.
pub(crate) struct Player<'a> {
    pub setting: &'a Setting,
    pub geometry: Geometry,
    /// Where requests are noted, if anywhere.
    pub journal: Option<Journal>,
    /// The drives' trace is kept as text.
    pub tracing: bool,
    pub tally: Tally,
    /// What the engine hit in the last life.
    pub marks: Marks,
    /// The drives' trace of the last life.
    pub trace: Vec<String>,
    /// What the last opening found.
    pub recovery: Option<engine::Recovery>,
}

impl<'a> Player<'a> {
    pub fn new(setting: &'a Setting) -> Player<'a> {
        Player {
            setting,
            geometry: setting.geometry(),
            journal: None,
            tracing: false,
            tally: Tally::default(),
            marks: Marks::default(),
            trace: Vec::new(),
            recovery: None,
        }
    }

    /// Makes the volume.
    pub fn make(&mut self, seed: u64) -> Result<Rest, Wrong> {
        let simulation = Simulation::new(seed);
        simulation.add_drive(self.setting.fast.clone());
        simulation.add_drive(self.setting.slow.clone());
        let options = self.setting.options();
        let ended = Machine::of(&simulation).play(|io, fast, slow, label| async move {
            label.set("making the volume");
            let made = engine::create(&io, &fast, &slow, options, &|_, _| ()).await;
            made.map(|_| ()).map_err(|error| error.to_string())
        });
        judge(ended)?;
        simulation.boot();
        let mut oracle = Oracle::new();
        oracle.defer(bound_ns(self.setting.flush_mode));
        oracle.limit_bytes(self.setting.flush_mode.bound().map(|bound| bound.bytes));
        Ok(Rest {
            snapshot: simulation.snapshot(),
            oracle,
            closed: true,
            worn: false,
            rotten: false,
            void: false,
            past: None,
        })
    }

    /// Opens the volume, looks at it, has the clients do their steps, and perhaps closes it.
    pub fn live(&mut self, rest: &Rest, life: &Life) -> Result<Stopped, Wrong> {
        let simulation = Simulation::wake(&rest.snapshot);
        if self.tracing {
            simulation.keep_trace_text();
        }
        let begun_ns = simulation.now_ns();
        Marks::take();
        let lived = self.live_on(&simulation, rest, life);
        self.tally.virtual_ns += u128::from(simulation.now_ns() - begun_ns);
        self.tally.steps += life.steps() as u64;
        self.marks = Marks::take();
        self.tally.marks.add(&self.marks);
        self.trace = if self.tracing { simulation.trace_text() } else { Vec::new() };
        lived
    }

    fn live_on(
        &mut self,
        simulation: &Simulation,
        rest: &Rest,
        life: &Life,
    ) -> Result<Stopped, Wrong> {
        let (worn, rotten) = self.damage(simulation, rest, life)?;
        let before = [0, 1].map(|n| simulation.copy_drive(simulation.drives()[n]));
        simulation.disarm();
        arm(simulation, life.end, Phase::Serving);
        let oracle = Rc::new(RefCell::new(rest.oracle.clone()));
        let served = Rc::new(RefCell::new((false, false, None)));
        let patient = life.harm() >= Harm::Refusal || worn;
        let end = life.end;
        let betrayed = life.harm() == Harm::Betrayal && !life.only_flushes_lie();
        let void = rest.void || betrayed;
        let wish = self.setting.wish;
        let ended = Machine::of(simulation).play(|io, fast, slow, label| {
            let (simulation, oracle, served) = (simulation.clone(), oracle.clone(), served.clone());
            let (life, journal) = (life.clone(), self.journal.clone());
            async move {
                label.set("opening");
                let volume = match Bimetal.open(&io, &fast, &slow).await {
                    // What is refused for good reason is no failure.
                    Err(_) if void || worn => return Ok(()),
                    opened => opened?,
                };
                let status = volume.status();
                served.borrow_mut().2 = Some(status.recovery);
                let promises = oracle.borrow_mut().reopened(bound_ns(status.flush_mode));
                let bytes_max = status.flush_mode.bound().map(|bound| bound.bytes);
                if !void {
                    promises?;
                }
                let watched = Watched::new(&io, volume.clone(), oracle.clone()).noting(journal);
                label.set("looking after the opening");
                let mut random = Random::new(life.look_seed);
                let looked = watched.look(&mut random, worn).await;
                if !void {
                    looked.map_err(|trouble| trouble.to_string())?;
                }
                oracle.borrow_mut().limit_bytes(bytes_max);
                served.borrow_mut().0 = true;
                label.set("serving clients");
                if let Some((at, length, wish)) = wish {
                    let volume = volume.clone();
                    // It may fail, as drives do; what matters is that nothing else does.
                    io.spawn(async move {
                        let _ = volume.wish(&[(at, length)], Some(wish)).await;
                    });
                }
                for one in life.mischief.iter().cloned() {
                    let (simulation, timer) = (simulation.clone(), io.clone());
                    io.spawn(async move { commit(one, &simulation, &timer).await });
                }
                let served_all = run_clients(&watched, life.clients, patient).await;
                if !void {
                    served_all.map_err(|trouble| trouble.to_string())?;
                }
                match end {
                    // Whatever background work there is may go on for a moment.
                    End::Falls { phase: Phase::Serving, .. } => {
                        io.sleep(MILLISECOND_NS).await;
                        return Ok(());
                    }
                    End::Falls { phase: Phase::Idle, .. } => {
                        label.set("idle");
                        arm(&simulation, end, Phase::Idle);
                        io.sleep(IDLE_NS).await;
                        return Ok(());
                    }
                    _ => {}
                }
                label.set("closing");
                arm(&simulation, end, Phase::Closing);
                let flushing = oracle.borrow_mut().begin_close();
                match Bimetal.close(volume).await {
                    Err(_) if patient || void => return Ok(()),
                    closed => closed?,
                }
                oracle.borrow_mut().end_flush(flushing);
                served.borrow_mut().1 = true;
                label.set("checking");
                if patient || void {
                    return Ok(());
                }
                Bimetal.check(&io, &fast, &slow).await
            }
        });
        let (served_clients, mut closed, recovery) = *served.borrow();
        closed &= life.end == End::Closed;
        self.recovery = recovery;
        for id in simulation.drives() {
            for (fault, count) in simulation.fault_counts(id).iter() {
                self.tally.count(fault.name(), count);
            }
        }
        judge(ended)?;
        let fails_power = matches!(life.end, End::Falls { fall: Fall::Power(_), .. });
        if let End::Falls { .. } = life.end {
            simulation.fail_power();
        } else {
            simulation.boot();
        }
        self.tally.closes += u64::from(closed);
        let bound_is_sure = oracle.borrow().bound_ns() >= Some(SURE_BOUND_NS);
        if bound_is_sure && self.setting.is_punctual() && life.mischief.is_empty() {
            // Its drives flush in time. Others keep the bound from the last answer on.
            oracle.borrow_mut().tell_time(simulation.now_ns());
        }
        Ok(Stopped {
            snapshot: simulation.snapshot(),
            oracle: oracle.borrow().clone(),
            closed,
            worn,
            rotten: rotten || life.harm() >= Harm::Refusal,
            void: void || life.harm() == Harm::Betrayal && fails_power,
            past: if served_clients { Some(before) } else { None },
        })
    }

    /// What `end` makes of what a life left.
    pub fn fall(&mut self, stopped: &Stopped, end: End) -> Rest {
        let simulation = Simulation::wake(&stopped.snapshot);
        if self.tracing {
            simulation.keep_trace_text();
        }
        simulation.clear_faults();
        let mut oracle = stopped.oracle.clone();
        match end {
            End::Closed if stopped.closed => {}
            // The close was refused.
            End::Closed => oracle.kill(),
            End::Falls { fall: Fall::Power(loss), .. } => {
                self.tally.count_cut(loss);
                simulation.power_cut(loss);
                oracle.cut();
            }
            End::Falls { fall: Fall::Process, .. } => {
                self.tally.kills += 1;
                simulation.process_dies();
                oracle.kill();
            }
        }
        if self.tracing {
            self.trace.extend(simulation.trace_text());
        }
        Rest {
            snapshot: simulation.snapshot(),
            oracle,
            closed: stopped.closed && end == End::Closed,
            worn: stopped.worn,
            rotten: stopped.rotten,
            void: stopped.void,
            past: stopped.past.clone(),
        }
    }

    /// Changes at stake when the life stopped: with none, every fall leaves the same.
    pub fn at_stake(stopped: &Stopped) -> usize {
        Simulation::wake(&stopped.snapshot).at_stake()
    }

    /// What the drives do before the life begins. Says whether blocks may have been lost by then, and whether
    /// map pages may be damaged.
    fn damage(
        &mut self,
        simulation: &Simulation,
        rest: &Rest,
        life: &Life,
    ) -> Result<(bool, bool), Wrong> {
        let (mut worn, mut rotten) = (rest.worn, rest.rotten);
        for damage in &life.damage {
            match *damage {
                Damage::Superblock { tier, copy } => self.spoil_superblock(simulation, tier, copy),
                Damage::MapPage { tier, page } => {
                    rotten = true;
                    self.spoil_map(simulation, tier, page, Rot::Bytes);
                }
                Damage::MapSector { tier, page } => {
                    rotten = true;
                    self.spoil_map(simulation, tier, page, Rot::Sector);
                }
                Damage::Log { blocks, seed } if rest.closed => {
                    worn = true;
                    let layout = &self.geometry.layouts[0];
                    let mut random = Random::new(seed);
                    for _ in 0..blocks {
                        self.tally.count("log-rot", 1);
                        let block = random.below(layout.log_bytes / 4096);
                        let at = layout.log_at + block * 4096 + random.below(4088);
                        simulation.poke(
                            drive(simulation, Tier::Fast),
                            at,
                            &random.bits().to_le_bytes(),
                        );
                    }
                }
                Damage::Log { .. } => {}
                Damage::OlderCopy { tier } => self.offer_older(simulation, rest, tier)?,
                Damage::Alone { survivor, seed } => {
                    self.look_alone(simulation, rest, (worn, rotten), survivor, seed)?;
                }
            }
        }
        Ok((worn, rotten))
    }

    fn spoil_superblock(&mut self, simulation: &Simulation, tier: Tier, copy: usize) {
        let id = drive(simulation, tier);
        let whole = |copy: usize| {
            let bytes = simulation.peek(id, COPY_POSITIONS[copy], SUPERBLOCK_BYTES);
            Superblock::decode(&bytes, copy).is_ok()
        };
        if whole(0) && whole(1) {
            self.tally.count("superblock-rot", 1);
            simulation.poke(id, COPY_POSITIONS[copy] + 100, &[0xee; 8]);
        }
    }

    /// What one drive gives when the other one is missing.
    fn look_alone(
        &mut self,
        simulation: &Simulation,
        rest: &Rest,
        (worn, rotten): (bool, bool),
        survivor: Tier,
        seed: u64,
    ) -> Result<(), Wrong> {
        self.tally.count("drive-lost", 1);
        let fallen = simulation.snapshot();
        let looked = match self.setting.cache {
            None => look_alone(&Bimetal, &fallen, survivor, &rest.oracle, (seed, rotten)),
            Some(mode) => {
                look_alone(&Cached(mode), &fallen, survivor, &rest.oracle, (seed, rotten))
            }
        };
        match looked {
            // What is refused for good reason is no failure, and nor is what was never promised.
            Err(wrong) if (worn || rest.void) && !wrong.is_crash() => Ok(()),
            outcome => outcome.map(|_| ()),
        }
    }

    /// Spoils both copies of a page. The other drive must do, with the log: a trial spoils pages of
    /// one drive only.
    fn spoil_map(&mut self, simulation: &Simulation, tier: Tier, page: u64, rot: Rot) {
        let page = page % self.geometry.map_pages();
        if spoil_page(simulation, &self.geometry, (tier, page), rot) {
            let what = if rot == Rot::Bytes { "map-rot" } else { "map-sector" };
            self.tally.count(what, 2);
        }
    }

    /// An older copy of a drive, from before clients were last served, must be refused.
    fn offer_older(
        &mut self,
        simulation: &Simulation,
        rest: &Rest,
        tier: Tier,
    ) -> Result<(), Wrong> {
        let Some(past) = &rest.past else { return Ok(()) };
        self.tally.count("old-drive", 1);
        // On a machine of its own: what is refused must not have been changed, but who knows.
        let simulation = Simulation::wake(&simulation.snapshot());
        simulation.restore_drive(drive(&simulation, tier), &past[tier.index()]);
        let ended = Machine::of(&simulation).play(|io, fast, slow, label| async move {
            label.set("opening with an older copy of a drive");
            match Bimetal.open(&io, &fast, &slow).await {
                Ok(_) => Err(format!(
                    "accepted: the {tier} drive is a copy from before clients were last served, \
                     and the volume opens with it"
                )),
                Err(_) => Ok(()),
            }
        });
        judge(ended)
    }
}

/// Does the mischief when its time has come.
async fn commit(one: Mischief, simulation: &Simulation, timer: &io::Io) {
    match one {
        Mischief::Strikes { after_ns, tier, fault, count } => {
            timer.sleep(after_ns).await;
            simulation.strike_next(drive(simulation, tier), fault, count);
        }
        Mischief::Habit { tier, faults } => {
            simulation.set_faults(drive(simulation, tier), faults);
        }
    }
}

/// Arms the cut, if it comes in this phase.
fn arm(simulation: &Simulation, end: End, now: Phase) {
    if let End::Falls { phase, point: Some(point), .. } = end
        && phase == now
    {
        simulation.arm_cut(point);
    }
}

fn judge(ended: Ended) -> Result<(), Wrong> {
    match ended {
        Ended::Well | Ended::PowerCut => Ok(()),
        Ended::Wrong { stage, message } => Err(Wrong { stage, message }),
    }
}

fn drive(simulation: &Simulation, tier: Tier) -> DriveId {
    simulation.drives()[tier.index()]
}
