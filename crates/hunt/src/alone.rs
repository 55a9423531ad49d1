//! One drive is lost together with the fall: what the other one gives, opened alone, must be as true
//! as after any fall, or an error. And nothing may be written, so that nothing has changed when the
//! lost drive returns.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use io::Volume;
use twin::{Random, Simulation, mix};

use crate::enumerate::Hunt;
use crate::failure::Cut;
use crate::oracle::{BLOCK_BYTES, Oracle};
use crate::play::Ended;
use crate::subject::{Subject, Survivor};

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

impl<S: Subject> Hunt<'_, S> {
    /// Opens each drive alone after the fall of `simulation`, which stays as it is.
    pub(crate) fn look_at_each_alone(
        &self,
        order: u64,
        simulation: &Simulation,
        oracle: &Oracle,
        cut: Cut,
    ) -> bool {
        let snapshot = simulation.snapshot();
        for survivor in [Survivor::Fast, Survivor::Slow] {
            let simulation = Simulation::wake(&snapshot);
            let machine = self.machine(simulation.clone());
            let (left, lost) = match survivor {
                Survivor::Fast => (machine.fast, machine.slow),
                Survivor::Slow => (machine.slow, machine.fast),
            };
            simulation.set_dead(lost, true);
            let before = simulation.counters(left);
            let oracle = RefCell::new(oracle.clone());
            let seen = Rc::new(RefCell::new(Alone::default()));
            let ended = machine.play(|io, fast, slow, label| {
                let (seen, oracle) = (seen.clone(), &oracle);
                async move {
                    label.set(match survivor {
                        Survivor::Fast => "reading from the fast drive alone",
                        Survivor::Slow => "reading from the slow drive alone",
                    });
                    let device = if survivor == Survivor::Fast { fast } else { slow };
                    let opened = self.subject.open_alone(&io, survivor, &device).await?;
                    let Some(volume) = opened else { return Ok(()) };
                    let size_bytes = volume.info().size_bytes;
                    let ranges = sample(&oracle.borrow(), order);
                    for range in ranges {
                        let length = range.end.min(size_bytes) - range.start;
                        let buf = io.pool().take(length as usize);
                        let (buf, outcome) = volume.read(range.start, buf).await;
                        if outcome.is_ok() {
                            seen.borrow_mut().read += length / BLOCK_BYTES;
                            oracle.borrow_mut().check_after_cut(range.start, &buf)?;
                            continue;
                        }
                        for at in (range.start..range.start + length).step_by(BLOCK_BYTES as usize)
                        {
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
                    self.subject.close(volume).await
                }
            });
            if let Ended::Wrong { stage, message } = ended {
                self.record(order, vec![cut], stage, message);
                return false;
            }
            let after = simulation.counters(left);
            if (after.writes, after.flushes) != (before.writes, before.flushes) {
                let text = "a drive that is alone was written".to_owned();
                self.record(order, vec![cut], "reading from one drive", text);
                return false;
            }
            self.add_alone(survivor, *seen.borrow());
        }
        true
    }
}
