//! One drive is lost: what the other one gives, opened alone, must be as true as after any fall, or an
//! error. And nothing may be written, so that nothing has changed when the lost drive returns; or else
//! nothing may be missing (`bereft.rs`).

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use engine::Tier;
use io::Volume;
use twin::{DriveId, Random, Simulation, Snapshot, mix};

use crate::bereft::go_on;
use crate::oracle::{BLOCK_BYTES, Oracle};
use crate::play::{Ended, Machine};
use crate::player::Wrong;
use crate::subject::Subject;

/// Bytes read at once; block by block where some of them are lost.
const CHUNK_BYTES: u64 = 128 << 10;
/// Chunks with nothing uncertain in them that are looked at; other ones each time.
const CERTAIN_MAX: usize = 32;

/// What drives alone have given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alone {
    /// Blocks read, and compared with the oracle.
    pub read: u64,
    /// Blocks that were lost.
    pub lost: u64,
}

impl Alone {
    pub(crate) fn add(&mut self, other: Alone) {
        self.read += other.read;
        self.lost += other.lost;
    }
}

/// What is looked at: all that is uncertain, and some of what must be there, drawn by `seed`.
fn sample(oracle: &Oracle, seed: u64) -> Vec<Range<u64>> {
    let (mut certain, uncertain): (Vec<_>, Vec<_>) =
        oracle.touched(CHUNK_BYTES).into_iter().partition(|(_, certain)| *certain);
    let mut random = Random::new(mix(seed));
    while certain.len() > CERTAIN_MAX {
        certain.swap_remove(random.below(certain.len() as u64) as usize);
    }
    certain.into_iter().chain(uncertain).map(|(range, _)| range).collect()
}

/// Whether the drive may leave a block half written: what has no landing log is no more whole than that.
pub(crate) fn tears(simulation: &Simulation, drive: DriveId) -> bool {
    let io = simulation.boot();
    u64::from(simulation.device(&io, drive).info().atomic_write_bytes) < BLOCK_BYTES
}

/// Opens the survivor of a machine at rest alone and looks at it; `seed` decides at what. A survivor
/// that says it goes on must, unless something of its own has `rotten`.
pub(crate) fn look_alone<S: Subject>(
    subject: &S,
    fallen: &Snapshot,
    survivor: Tier,
    oracle: &Oracle,
    (seed, rotten): (u64, bool),
) -> Result<Alone, Wrong> {
    let simulation = Simulation::wake(fallen);
    simulation.disarm();
    let goes_on_itself = subject.goes_on(&simulation, survivor);
    let promised = !rotten && goes_on_itself;
    let machine = Machine::of(&simulation);
    let (left, lost) = match survivor {
        Tier::Fast => (machine.fast, machine.slow),
        Tier::Slow => (machine.slow, machine.fast),
    };
    simulation.set_dead(lost, true);
    let before = simulation.counters(left);
    let mut oracle = oracle.clone();
    if goes_on_itself && tears(&simulation, left) {
        oracle.allow_torn();
    }
    let oracle = RefCell::new(oracle);
    let seen = Rc::new(RefCell::new(Alone::default()));
    let goes_on = Rc::new(Cell::new(false));
    let ended = machine.play(|io, fast, slow, label| {
        let (seen, oracle, goes_on) = (seen.clone(), &oracle, goes_on.clone());
        async move {
            label.set(match survivor {
                Tier::Fast => "reading from the fast drive alone",
                Tier::Slow => "reading from the slow drive alone",
            });
            let device = if survivor == Tier::Fast { fast } else { slow };
            let opened = subject.open_alone(&io, survivor, &device).await?;
            let Some(volume) = opened else { return Ok(()) };
            if !volume.info().read_only {
                goes_on.set(true);
                return Ok(());
            }
            if promised {
                return Err(format!(
                    "the {survivor} drive says that it has everything, and it opens for reading only"
                ));
            }
            let size_bytes = volume.info().size_bytes;
            let ranges = sample(&oracle.borrow(), seed);
            for range in ranges {
                let length = range.end.min(size_bytes) - range.start;
                let buf = io.pool().take(length as usize);
                let (buf, outcome) = volume.read(range.start, buf).await;
                if outcome.is_ok() {
                    seen.borrow_mut().read += length / BLOCK_BYTES;
                    oracle.borrow_mut().check_after_cut(range.start, &buf)?;
                    continue;
                }
                for at in (range.start..range.start + length).step_by(BLOCK_BYTES as usize) {
                    let buf = io.pool().take(BLOCK_BYTES as usize);
                    let (buf, outcome) = volume.read(at, buf).await;
                    if outcome.is_ok() {
                        seen.borrow_mut().read += 1;
                        oracle.borrow_mut().check_after_cut(at, &buf)?;
                    } else {
                        seen.borrow_mut().lost += 1;
                    }
                }
            }
            subject.close(volume).await
        }
    });
    if let Ended::Wrong { stage, message } = ended {
        return Err(Wrong { stage, message });
    }
    if goes_on.get() {
        let oracle = oracle.into_inner();
        go_on(subject, fallen, survivor, &oracle, seed)?;
        return Ok(Alone { read: 1, lost: 0 });
    }
    let after = simulation.counters(left);
    if (after.writes, after.flushes) != (before.writes, before.flushes) {
        let message = "a drive that is alone was written".to_owned();
        return Err(Wrong { stage: "reading from one drive", message });
    }
    let seen = *seen.borrow();
    Ok(seen)
}
