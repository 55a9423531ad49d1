//! A volume that goes on with one drive, for writing too, says that nothing is missing. Then all of it
//! must be there, it must live on and survive another cut, and the lost drive must not be taken back.

use std::cell::RefCell;
use std::rc::Rc;

use engine::Tier;
use io::units::{KIB, MIB};
use io::{Io, Volume};
use twin::{CacheLoss, DriveId, Random, Simulation, Snapshot, mix};

use crate::alone::tears;
use crate::oracle::Oracle;
use crate::play::{Ended, Machine};
use crate::player::Wrong;
use crate::subject::Subject;
use crate::watched::Watched;
use crate::workload::Workload;

/// Virtual time within which the drive dies while clients are at work.
const DEATH_NS_MAX: u64 = 300_000_000;

struct Bereft<'a, S: Subject> {
    subject: &'a S,
    simulation: Simulation,
    machine: Machine,
    survivor: Tier,
    oracle: Rc<RefCell<Oracle>>,
    seed: u64,
}

/// Goes on with the survivor of a machine at rest, from a copy of it.
pub(crate) fn go_on<S: Subject>(
    subject: &S,
    fallen: &Snapshot,
    survivor: Tier,
    oracle: &Oracle,
    seed: u64,
) -> Result<(), Wrong> {
    let simulation = Simulation::wake(fallen);
    simulation.disarm();
    let machine = Machine::of(&simulation);
    let oracle = Rc::new(RefCell::new(oracle.clone()));
    let bereft = Bereft { subject, simulation, machine, survivor, oracle, seed };
    if seed.is_multiple_of(3) {
        bereft.lose_while_serving()?;
        bereft.cut(1);
        if !bereft.is_through() {
            // A cut in a change of the mode: with both drives it is what it was before.
            return Ok(());
        }
    }
    bereft.set_lost(true);
    if tears(&bereft.simulation, bereft.left()) {
        bereft.oracle.borrow_mut().allow_torn();
    }
    for round in 0..2 {
        bereft.serve_alone(round)?;
        bereft.cut(2 + round);
        bereft.set_lost(true);
    }
    bereft.offer_lost()
}

impl<S: Subject> Bereft<'_, S> {
    fn left(&self) -> DriveId {
        match self.survivor {
            Tier::Fast => self.machine.fast,
            Tier::Slow => self.machine.slow,
        }
    }

    fn lost(&self) -> DriveId {
        match self.survivor {
            Tier::Fast => self.machine.slow,
            Tier::Slow => self.machine.fast,
        }
    }

    /// Whether the survivor still says that nothing is missing on it.
    fn is_through(&self) -> bool {
        self.subject.goes_on(&self.simulation, self.survivor)
    }

    fn set_lost(&self, lost: bool) {
        self.simulation.set_dead(self.lost(), lost);
    }

    fn cut(&self, salt: u64) {
        let seed = mix(self.seed ^ salt);
        let loss = if seed.is_multiple_of(3) { CacheLoss::LoseAll } else { CacheLoss::Torn(seed) };
        self.simulation.power_cut(loss);
        self.oracle.borrow_mut().cut();
    }

    /// Clients at work, none of whose requests may fail.
    async fn work(&self, io: &Io, volume: S::Volume, salt: u64) -> Result<(), String> {
        let watched = Watched::new(io, volume, self.oracle.clone());
        let size_bytes = watched.volume().info().size_bytes;
        let seed = mix(self.seed ^ salt << 8);
        watched.look_after_cut(&mut Random::new(seed)).await.map_err(|it| it.to_string())?;
        let span = if seed.is_multiple_of(2) { 0..2 * MIB } else { 0..size_bytes };
        let workload = Workload {
            seed,
            clients: 3,
            steps: 8,
            span,
            length_bytes_max: 256 * KIB,
            patient: false,
        };
        workload.run(&watched).await.map_err(|trouble| trouble.to_string())
    }

    /// The drive dies while both serve.
    fn lose_while_serving(&self) -> Result<(), Wrong> {
        let lost = self.lost();
        let after_ns = mix(self.seed ^ 0xdead) % DEATH_NS_MAX;
        judge(self.machine.play(|io, fast, slow, label| async move {
            label.set("opening with both drives");
            let volume = self.subject.open(&io, &fast, &slow).await?;
            label.set("serving while a drive dies");
            let (simulation, timer) = (self.simulation.clone(), io.clone());
            io.spawn(async move {
                timer.sleep(after_ns).await;
                simulation.set_dead(lost, true);
            });
            self.work(&io, volume, 1).await
        }))
    }

    fn serve_alone(&self, round: u64) -> Result<(), Wrong> {
        judge(self.machine.play(|io, fast, slow, label| async move {
            label.set("opening one drive alone, for writing");
            let device = if self.survivor == Tier::Fast { fast } else { slow };
            let opened = self.subject.open_alone(&io, self.survivor, &device).await?;
            let volume = opened.ok_or("it does not open any more")?;
            label.set("going on with one drive");
            self.work(&io, volume.clone(), 10 + round).await?;
            if round == 1 {
                let closing = self.oracle.borrow_mut().begin_close();
                self.subject.close(volume).await?;
                self.oracle.borrow_mut().end_flush(closing);
            }
            Ok(())
        }))
    }

    /// What it has is old.
    fn offer_lost(&self) -> Result<(), Wrong> {
        self.set_lost(false);
        judge(self.machine.play(|io, fast, slow, label| async move {
            label.set("opening with the drive that was left behind");
            match self.subject.open(&io, &fast, &slow).await {
                Ok(_) => Err("accepted: a drive that the volume went on without".to_owned()),
                Err(_) => Ok(()),
            }
        }))
    }
}

fn judge(ended: Ended) -> Result<(), Wrong> {
    match ended {
        Ended::Well | Ended::PowerCut => Ok(()),
        Ended::Wrong { stage, message } => Err(Wrong { stage, message }),
    }
}
