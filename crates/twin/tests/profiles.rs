//! Twins of published drives in a simulation: they keep the rules that every drive there keeps.

use std::cell::RefCell;
use std::rc::Rc;

use twin::{CacheLoss, CutPoint, DriveSpec, Fault, Moment, Outcome, Profile, Random, Simulation};

const BLOCK: u64 = 4096;

fn simulation(choice: &str) -> (Simulation, twin::DriveId) {
    let simulation = Simulation::new(3);
    let drive = simulation.add_drive(Profile::named(choice).unwrap().spec("a twin"));
    (simulation, drive)
}

/// Several clients write, flush and read back; gives what they met.
fn play(simulation: &Simulation, drive: twin::DriveId, requests: u64) -> Outcome<Vec<bool>> {
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let outcomes = Rc::new(RefCell::new(Vec::new()));
    let done = io::Gate::new(8);
    for client in 0..8u64 {
        let (device, done, outcomes) = (device.clone(), done.clone(), outcomes.clone());
        io.spawn(async move {
            let _pass = done.enter(1).await;
            let mut random = Random::new(client);
            let mut buf = device.io().pool().take_zeroed(BLOCK as usize);
            let blocks = (device.info().size_bytes / BLOCK).min(1 << 20);
            for step in 0..requests {
                let at = random.below(blocks) * BLOCK;
                buf.fill(step as u8);
                let outcome;
                (buf, outcome) = device.write(at, buf).await;
                outcomes.borrow_mut().push(outcome.is_ok());
                if outcome.is_ok() && step % 4 == 0 {
                    let flushed = device.flush().await.is_ok();
                    outcomes.borrow_mut().push(flushed);
                }
                let outcome;
                (buf, outcome) = device.read(at, buf).await;
                let same = outcome.is_ok() && buf.iter().all(|byte| *byte == step as u8);
                outcomes.borrow_mut().push(same || outcome.is_err());
            }
        });
    }
    simulation.run(&io, async {
        io.yield_now().await;
        done.enter(8).await;
        outcomes.take()
    })
}

#[test]
fn every_twin_serves_a_simulation_and_repeats_itself() {
    for profile in Profile::list() {
        for cache in ["on", "off"] {
            let choice = format!("{},cache={cache}", profile.name());
            let run = || {
                let (simulation, drive) = simulation(&choice);
                let outcomes = play(&simulation, drive, 20).done();
                assert!(outcomes.iter().all(|fine| *fine), "{choice}");
                assert!(simulation.now_ns() > 0, "{choice}");
                (simulation.trace(), simulation.now_ns())
            };
            assert_eq!(run(), run(), "{choice}");
        }
    }
}

#[test]
fn power_fails_dies_and_hangs_at_a_twin_as_at_any_drive() {
    for profile in Profile::list() {
        let name = profile.name();
        let (machine, drive) = simulation(name);
        machine.arm_cut(CutPoint { operation: 57, moment: Moment::Submitted });
        assert_eq!(play(&machine, drive, 20), Outcome::PowerCut, "{name}");
        machine.power_cut(CacheLoss::LoseAll);
        assert!(play(&machine, drive, 5).done().iter().all(|fine| *fine), "{name}");

        machine.strike_next(drive, Fault::Hang, 1);
        assert!(play(&machine, drive, 5).done().iter().all(|fine| *fine), "{name}");
        machine.strike_next(drive, Fault::Death, 1);
        assert!(play(&machine, drive, 5).done().iter().any(|fine| !*fine), "{name}");
        machine.set_dead(drive, false);
        assert!(play(&machine, drive, 5).done().iter().all(|fine| *fine), "{name}");

        machine.arm_cut(CutPoint { operation: 9, moment: Moment::Submitted });
        assert_eq!(play(&machine, drive, 20), Outcome::PowerCut, "{name}");
        machine.process_dies();
        assert!(play(&machine, drive, 5).done().iter().all(|fine| *fine), "{name}");
        let _ = machine.snapshot();
    }
}

#[test]
fn a_drive_that_keeps_no_content_reads_as_zeros_in_the_same_time() {
    let took = |keeps_content| {
        let machine = Simulation::new(3);
        let spec = Profile::named("wd5002abys").unwrap().spec("a twin");
        let drive = machine.add_drive(DriveSpec { keeps_content, ..spec });
        let io = machine.boot();
        let device = machine.device(&io, drive);
        let read = machine.run(&io, async {
            let mut buf = io.pool().take_zeroed(BLOCK as usize);
            buf.fill(7);
            let (buf, outcome) = device.write(1 << 30, buf).await;
            outcome.unwrap();
            device.flush().await.unwrap();
            let (buf, outcome) = device.read(1 << 30, buf).await;
            outcome.unwrap();
            buf[0]
        });
        (read.done(), machine.now_ns())
    };
    let (kept, kept_ns) = took(true);
    let (forgotten, forgotten_ns) = took(false);
    assert_eq!((kept, forgotten), (7, 0));
    assert_eq!(kept_ns, forgotten_ns);
}
