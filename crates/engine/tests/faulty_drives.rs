//! Drives that go wrong by themselves, one kind of fault at a time on one drive: what the engine
//! may make of each. Time is no promise; an error is one, and silence never is.

mod rig;

use std::cell::RefCell;
use std::rc::Rc;

use engine::{Engine, OpenOptions};
use io::units::{KIB, MIB, SECOND_NS};
use io::{Durability, Io, Volume};
use rig::*;
use twin::{CacheLoss, DriveId, Fault, Faults, Harm, Outcome, Random};

/// Places that are written: single blocks in extents of their own, and whole extents.
const BLOCKS: u64 = 48;
const EXTENTS: u64 = 24;
/// Operations of one life. Enough for the log to wrap, destage and checkpoint.
const STEPS: u64 = 1500;

/// What one place may hold.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    /// Covered by the last good flush; nothing older may be seen.
    flushed: u64,
    /// Of the last write that ended well.
    completed: u64,
    /// Of the last write that was begun.
    begun: u64,
}

struct Life {
    rig: Rig,
    known: Rc<RefCell<Vec<Known>>>,
}

fn place(index: u64) -> (u64, usize) {
    if index < BLOCKS {
        (index * 3 * EXTENT as u64 / 2 / 4096 * 4096, 4096)
    } else {
        (16 * MIB + (index - BLOCKS) * EXTENT as u64, EXTENT)
    }
}

/// The version that all of `bytes` are of, or `None` when it is nobody's.
fn version(at: u64, bytes: &[u8]) -> Option<u64> {
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let version = first & 0xf_ffff;
    let zeros = bytes.iter().all(|byte| *byte == 0);
    (zeros || bytes == pattern(at, bytes.len(), version)).then_some(version)
}

/// Random writes, flushes and reads until the volume stops or the steps are done. Panics when a
/// read shows what it must not, unless `silent`: then drives lie, and only panics count.
async fn live(io: &Io, engine: &Engine, seed: u64, known: &RefCell<Vec<Known>>, silent: bool) {
    let mut random = Random::new(seed);
    for step in 1..=STEPS {
        let index = random.below(BLOCKS + EXTENTS);
        let (at, length) = place(index);
        match random.below(10) {
            0..6 => {
                let mut buf = io.pool().take(length);
                buf.copy_from_slice(&pattern(at, length, step));
                known.borrow_mut()[index as usize].begun = step;
                match engine.write(at, buf, Durability::Volatile).await.1 {
                    Ok(()) => known.borrow_mut()[index as usize].completed = step,
                    Err(error) => assert!(error.message.len() > 20, "says nothing: {error}"),
                }
            }
            6 => {
                let covered = known.borrow().clone();
                if engine.flush().await.is_ok() {
                    for (known, covered) in known.borrow_mut().iter_mut().zip(covered) {
                        known.flushed = covered.completed;
                    }
                }
            }
            7 => io.sleep(SECOND_NS / 20).await,
            _ => {
                let known = known.borrow()[index as usize];
                look(io, engine, index, known, silent, false).await;
            }
        }
        if engine.status().poisoned.is_some() {
            // Stopped: nothing may be acknowledged any more, reading goes on.
            assert!(engine.flush().await.is_err(), "a stopped volume flushes");
            let buf = io.pool().take_zeroed(4096);
            assert!(engine.write(0, buf, Durability::Volatile).await.1.is_err());
            break;
        }
    }
}

/// Reads a place and judges what is there; an error is always allowed here.
async fn look(io: &Io, engine: &Engine, index: u64, known: Known, silent: bool, cut: bool) {
    let (at, length) = place(index);
    let (buf, outcome) = engine.read(at, io.pool().take(length)).await;
    if outcome.is_err() || silent {
        return;
    }
    let oldest = if cut { known.flushed } else { known.completed };
    for (part, bytes) in buf.chunks(4096).enumerate() {
        let seen = version(at + part as u64 * 4096, bytes);
        // A write that failed may be there in part: each block on its own.
        let allowed = seen.is_some_and(|seen| (oldest..=known.begun).contains(&seen));
        assert!(allowed, "place {index}, block {part}, after a cut {cut}: {seen:?} of {known:?}");
    }
}

impl Life {
    fn new(seed: u64) -> Life {
        let rig = Rig::small(seed);
        rig.create();
        let known = vec![Known::default(); (BLOCKS + EXTENTS) as usize];
        Life { rig, known: Rc::new(RefCell::new(known)) }
    }

    /// Lives with `faults` on `drive`, until the work is done or the drive has to be unplugged; then
    /// the power fails and what was wrong is over.
    fn with(&self, drive: DriveId, faults: Faults, seed: u64, silent: bool) {
        let simulation = &self.rig.simulation;
        let io = simulation.boot();
        let (fast, slow) = self.rig.devices(&io);
        let (known, machine) = (self.known.clone(), simulation.clone());
        let work = {
            let io = io.clone();
            async move {
                let engine = open(&io, &fast, &slow).await;
                machine.set_faults(drive, faults);
                live(&io, &engine, seed, &known, silent).await;
            }
        };
        let outcome = simulation.run(&io, work);
        io.drop_tasks();
        if outcome == Outcome::PowerCut {
            simulation.power_cut(CacheLoss::LoseAll);
        } else {
            simulation.power_cut(CacheLoss::Torn(seed));
        }
        simulation.set_faults(drive, Faults::none());
        simulation.set_dead(drive, false);
    }

    /// Opens again and looks at everything. Errors are allowed where `errors`.
    fn look_again(&self, errors: bool, silent: bool) {
        let known = self.known.borrow().clone();
        self.rig.run(|io, fast, slow| async move {
            let opened = Engine::open(&io, &fast, &slow, OpenOptions::default()).await;
            let engine = match opened {
                Ok(engine) => engine,
                Err(error) => {
                    assert!(errors, "not opened: {error}");
                    assert!(error.to_string().len() > 20, "says nothing: {error}");
                    return;
                }
            };
            for (index, known) in known.iter().enumerate() {
                let (at, length) = place(index as u64);
                if !errors {
                    let (_, outcome) = engine.read(at, io.pool().take(length)).await;
                    outcome.expect("nothing is wrong with the drives any more");
                }
                look(&io, &engine, index as u64, *known, silent, true).await;
            }
            let closed = engine.close().await;
            assert!(errors || closed.is_ok(), "{closed:?}");
        });
    }
}

fn rate_ppm(fault: Fault) -> u32 {
    match fault {
        Fault::Hang => 2_000,
        Fault::EndlessHang | Fault::Death => 5_000,
        Fault::Spike | Fault::LyingFlush | Fault::FailedFlush => 100_000,
        _ => 10_000,
    }
}

fn try_out(fault: Fault) {
    let mut struck = 0;
    for seed in 0..6 {
        for side in 0..2 {
            println!("{fault} on drive {side}, seed {seed}"); // Shown when it fails.
            let life = Life::new(seed);
            let drive = [life.rig.fast, life.rig.slow][side];
            let silent = fault.harm() == Harm::Betrayal;
            let faults = Faults::none().seeded(seed).with(fault, rate_ppm(fault));
            life.with(drive, faults, seed, silent);
            // What cannot be read stays so; everything else is over.
            life.look_again(silent || fault == Fault::BadSector, silent);
            if fault.harm() == Harm::Delay {
                assert_eq!(life.rig.simulation.counters(drive).errors, 0);
            }
            struck += life.rig.simulation.fault_counts(drive).of(fault);
        }
    }
    assert!(struck >= 6, "{fault} struck {struck} times only");
}

macro_rules! faults {
    ($($name:ident: $fault:ident,)*) => {
        $(#[test]
        fn $name() {
            try_out(Fault::$fault);
        })*
    };
}

faults! {
    spikes_cost_time_alone: Spike,
    hangs_cost_time_alone: Hang,
    a_drive_that_hangs_for_ever_loses_no_flushed_data: EndlessHang,
    read_errors_lose_nothing: ReadError,
    bad_sectors_lose_no_more_than_they_hold: BadSector,
    write_errors_lose_no_flushed_data: WriteError,
    partial_writes_lose_no_flushed_data: PartialWrite,
    want_of_space_loses_no_flushed_data: NoSpace,
    failed_flushes_are_never_believed_later: FailedFlush,
    a_drive_that_dies_and_returns_has_all_flushed_data: Death,
    lying_flushes_never_crash_the_engine: LyingFlush,
    lost_writes_never_crash_the_engine: LostWrite,
    misdirected_writes_never_crash_the_engine: MisdirectedWrite,
    rot_never_crashes_the_engine: BitRot,
}

#[test]
fn an_old_drive_of_the_same_session_is_refused_or_shows_what_it_held() {
    for seed in 0..6 {
        for side in 0..2 {
            let life = Life::new(seed);
            let drive = [life.rig.fast, life.rig.slow][side];
            life.with(drive, Faults::none(), seed, false);
            life.rig.simulation.set_faults(drive, Faults::none());
            let old = life.rig.simulation.copy_drive(drive);
            life.with(drive, Faults::none(), seed + 100, true);
            life.rig.simulation.return_old_drive(drive, &old);
            life.rig.run(|io, fast, slow| async move {
                let opened = Engine::open(&io, &fast, &slow, OpenOptions::default()).await;
                let error = opened.err().expect("a session began since: it must be refused");
                assert!(error.to_string().contains("older"), "{error}");
            });
        }
    }
}

#[test]
fn rot_in_the_log_is_told_and_never_believed() {
    let rig = Rig::small(3);
    rig.create();
    rig.killed_session(|io, engine| async move {
        for n in 0..64 {
            put(&io, &engine, 64 * MIB + n * 4096, 4096, n + 1).await;
        }
        engine.flush().await.unwrap();
    });
    // Every read of recovery meets a rotten bit now and then.
    let faults = Faults::none().seeded(3).with(Fault::BitRot, 200_000);
    rig.simulation.set_faults(rig.fast, faults);
    let io = rig.simulation.boot();
    let (fast, slow) = rig.devices(&io);
    let work = async {
        let engine = Engine::open(
            &io,
            &fast,
            &slow,
            OpenOptions { read_only: true, ..OpenOptions::default() },
        )
        .await
        .ok()?;
        rig.simulation.set_faults(rig.fast, Faults::none());
        let mut refused = 0;
        for n in 0..64 {
            let at = 64 * MIB + n * 4 * KIB;
            let (buf, outcome) = engine.read(at, io.pool().take(4096)).await;
            match outcome {
                Ok(()) => assert!(buf[..] == pattern(at, 4096, n + 1), "wrong data at {at}"),
                Err(error) => {
                    assert!(error.message.contains("checksum"), "{error}");
                    refused += 1;
                }
            }
        }
        Some(refused)
    };
    let refused = rig.simulation.run(&io, work).done();
    assert!(rig.simulation.fault_counts(rig.fast).of(Fault::BitRot) > 0);
    assert!(refused != Some(64), "{refused:?}");
}
