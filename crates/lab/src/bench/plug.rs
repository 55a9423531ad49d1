//! A twin whose plug is pulled while it is written to: [`crate::powercut`], writer, witness and
//! verifier, in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use io::Io;
use io::units::{MILLISECOND_NS, SECOND_NS};
use twin::{CacheLoss, DriveSpec, Simulation};

use super::Outcome;
use crate::fio::Report;
use crate::powercut::{Acknowledged, End, Record, Run, Witness, verify, write};

/// Where is written: little enough that verifying takes moments.
const SPAN_BYTES: u64 = 256 << 20;

/// Writing ends after so many bytes, if not earlier: a drive that writes gigabytes a second fills its cache many
/// times over with as much, and each byte costs the machine that plays it time.
pub(crate) const WRITTEN_BYTES_MAX: u64 = 2 << 30;
/// How often it is looked whether that is reached.
const LOOK_NS: u64 = MILLISECOND_NS;

/// How a plug is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// So many seconds are written, or [`WRITTEN_BYTES_MAX`].
    pub write_s: u64,
    /// So many more pass without a request before the plug is pulled.
    pub idle_s: u64,
    /// Flushes are acknowledged and nothing is done: by the drive, or by a system that sends none.
    pub lying: bool,
    /// What is in the cache is written in an order of the drive's own; otherwise it is lost.
    pub reordered: bool,
}

/// A witness on another machine: what it has heard survives.
struct Ear {
    io: Io,
    heard: Rc<RefCell<Vec<Acknowledged>>>,
}

impl Witness for Ear {
    fn flushed(&mut self, epoch: u64) -> Result<(), String> {
        let at_ms = self.io.now_ns() / MILLISECOND_NS;
        self.heard.borrow_mut().push(Acknowledged { epoch, at_ms });
        Ok(())
    }
}

/// Writes to a new drive of that kind, pulls its plug and reads what is left.
pub(super) fn pull(spec: &DriveSpec, seed: u64, cut: &Cut) -> Result<Outcome, String> {
    let simulation = Rc::new(Simulation::new(seed));
    let drive = simulation.add_drive(DriveSpec { keeps_content: true, ..spec.clone() });
    simulation.set_lying_flush(drive, cut.lying);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let run = Run::new(seed, &spec.path, SPAN_BYTES.min(spec.size_bytes), spec.sector_bytes)?;
    let heard: Rc<RefCell<Vec<Acknowledged>>> = Rc::default();
    let mut ear = Ear { io: io.clone(), heard: heard.clone() };
    let (plug, clock) = (simulation.clone(), io.clone());
    let (write_ns, idle_ns) = (cut.write_s * SECOND_NS, cut.idle_s * SECOND_NS);
    // While it writes the plug is pulled at whatever is under way.
    let enough = Rc::new(Cell::new(false));
    let is_enough = enough.clone();
    io.spawn(async move {
        while clock.now_ns() < write_ns && plug.counters(drive).write_bytes < WRITTEN_BYTES_MAX {
            clock.sleep(LOOK_NS.min(write_ns - clock.now_ns())).await;
        }
        is_enough.set(true);
        clock.sleep(idle_ns).await;
        plug.fail_power();
    });
    let clock = io.clone();
    let work = async {
        let goes_on = |_| idle_ns == 0 || !enough.get();
        let written = write(&device, &run, &mut ear, goes_on).await;
        match written.end {
            End::Asked => clock.sleep(u64::MAX / 2).await,
            end => return Err(format!("it ended before the plug was pulled: {end:?}")),
        }
        Ok(())
    };
    if let twin::Outcome::Done(ended) = simulation.run(&io, work) {
        ended?;
    }
    let seconds = simulation.now_ns() as f64 / SECOND_NS as f64;
    simulation.set_lying_flush(drive, false);
    let loss = if cut.reordered { CacheLoss::Reordered(seed) } else { CacheLoss::LoseAll };
    simulation.power_cut(loss);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let record = Record { run, acknowledged: heard.take() };
    let verdict = simulation.run(&io, verify(&device, &record, |_, _| ())).done();
    let verdict = verdict.map_err(|error| error.to_string())?;
    io.drop_tasks();
    let (moments, logs) = (Vec::new(), Vec::new());
    Ok(Outcome { report: Report::empty(), moments, logs, seconds, verdict: Some(verdict) })
}
