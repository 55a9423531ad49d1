//! Simulated drives that keep their word, lie, reorder and damage, in virtual time.

use std::cell::RefCell;
use std::rc::Rc;

use io::Io;
use twin::{ALWAYS_PPM, CacheLoss, CutPoint, DriveId, DriveSpec, Fault, Faults, Moment};
use twin::{Outcome, ReorderBound, Simulation};

use super::super::plan::SLOT_BYTES;
use super::super::record::Acknowledged;
use super::super::writer::{Witness, write};
use super::*;

const SPAN_BYTES: u64 = 256 * SLOT_BYTES;

/// A witness on another machine: what it has heard survives the cut.
#[derive(Clone)]
struct Ear {
    io: Io,
    heard: Rc<RefCell<Vec<Acknowledged>>>,
}

impl Witness for Ear {
    fn flushed(&mut self, epoch: u64) -> Result<(), String> {
        let at_ms = self.io.now_ns() / 1_000_000;
        self.heard.borrow_mut().push(Acknowledged { epoch, at_ms });
        Ok(())
    }
}

/// Writes until the plug is pulled at that operation, and verifies.
fn cut(
    seed: u64,
    operation: u64,
    loss: CacheLoss,
    prepare: impl FnOnce(&Simulation, DriveId),
) -> Verdict {
    let simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveSpec::fast("sim", SPAN_BYTES));
    prepare(&simulation, drive);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let run = Run::new(seed, "sim", SPAN_BYTES, 512).unwrap();
    let ear = Ear { io: io.clone(), heard: Rc::default() };
    simulation.arm_cut(CutPoint { operation, moment: Moment::Submitted });
    let mut witness = ear.clone();
    let work = write(&device, &run, &mut witness, |_| true);
    assert!(matches!(simulation.run(&io, work), Outcome::PowerCut));
    simulation.power_cut(loss);
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let record = Record { run, acknowledged: ear.heard.take() };
    simulation.run(&io, verify(&device, &record, |_, _| ())).done().unwrap()
}

fn losses(seed: u64) -> [CacheLoss; 6] {
    [
        CacheLoss::LoseAll,
        CacheLoss::KeepAll,
        CacheLoss::Subset(seed),
        CacheLoss::Reordered(seed),
        CacheLoss::Torn(seed),
        CacheLoss::Bounded(seed, ReorderBound::Changes(8)),
    ]
}

#[test]
fn an_honest_drive_keeps_its_word_wherever_the_plug_is_pulled() {
    let mut torn = 0;
    for seed in 1..40 {
        for loss in losses(seed) {
            let verdict = cut(seed, 400 + seed * 37, loss, |_, _| ());
            assert!(verdict.kept_its_word, "seed {seed}, {loss:?}: {verdict:?}");
            assert_eq!((verdict.order, verdict.writes_lost), (Order::Kept, 0));
            assert!(verdict.epochs_acknowledged > 10 && verdict.writes_acknowledged > 50);
            assert!(verdict.epoch_newest_seen >= verdict.epochs_acknowledged);
            torn += verdict.writes_torn_unacknowledged;
        }
    }
    assert!(torn > 10, "what was under way may tear: {torn}");
}

#[test]
fn a_liar_that_loses_its_cache_is_convicted_with_number_and_age() {
    for seed in 1..10 {
        let lie = |simulation: &Simulation, drive| simulation.set_lying_flush(drive, true);
        let verdict = cut(seed, 1000, CacheLoss::LoseAll, lie);
        assert!(!verdict.kept_its_word);
        assert_eq!(verdict.epoch_newest_seen, 0);
        assert_eq!(verdict.order, Order::Kept, "nothing at all is the state before the first");
        // All that later ones have not written over.
        assert!(verdict.writes_lost > 100, "{verdict:?}");
        let age_ms = verdict.oldest_lost_age_ms.unwrap();
        assert!(verdict.epoch_oldest_lost.unwrap() < 20 && age_ms > 0, "{verdict:?}");
        assert!(verdict.sentence().contains("BROKE ITS WORD"), "{}", verdict.sentence());
    }
}

#[test]
fn a_liar_that_keeps_the_order_is_told_from_one_that_does_not() {
    let (mut kept, mut broken) = (0, 0);
    for seed in 1..30 {
        let lie = |simulation: &Simulation, drive| simulation.set_lying_flush(drive, true);
        let ordered = CacheLoss::Bounded(seed, ReorderBound::Changes(0));
        let verdict = cut(seed, 1000, ordered, lie);
        assert_eq!(verdict.order, Order::Kept, "seed {seed}: {verdict:?}");
        kept += u64::from(!verdict.kept_its_word);
        for loss in [CacheLoss::Subset(seed), CacheLoss::Reordered(seed), CacheLoss::Torn(seed)] {
            let verdict = cut(seed, 1000, loss, lie);
            assert!(!verdict.kept_its_word, "seed {seed}, {loss:?}: {verdict:?}");
            broken += u64::from(verdict.order == Order::Broken);
        }
    }
    assert!(kept > 20 && broken > 80, "{kept} in order, {broken} out of order");
}

#[test]
fn a_drive_that_lies_now_and_then_is_caught_when_it_lies_at_the_end() {
    let mut caught = 0;
    for seed in 1..40 {
        let verdict = cut(seed, 1000, CacheLoss::LoseAll, |simulation, drive| {
            let faults = Faults::none().seeded(seed).with(Fault::LyingFlush, ALWAYS_PPM / 2);
            simulation.set_faults(drive, faults);
        });
        // The last flushes decide: an honest one later makes good what an earlier one did not do.
        caught += u64::from(!verdict.kept_its_word);
    }
    assert!((8..32).contains(&caught), "{caught} of 39");
}

#[test]
fn lost_misdirected_and_rotten_writes_are_seen() {
    let strike = |fault, rate_ppm| {
        move |simulation: &Simulation, drive| {
            simulation.set_faults(drive, Faults::none().seeded(3).with(fault, rate_ppm));
        }
    };
    let verdict = cut(3, 3000, CacheLoss::KeepAll, strike(Fault::LostWrite, 20_000));
    assert!(!verdict.kept_its_word && verdict.order == Order::Broken, "{verdict:?}");
    let verdict = cut(3, 3000, CacheLoss::KeepAll, strike(Fault::MisdirectedWrite, 20_000));
    assert!(!verdict.kept_its_word && verdict.units_misplaced > 0, "{verdict:?}");
    let verdict = cut(3, 3000, CacheLoss::KeepAll, strike(Fault::BitRot, ALWAYS_PPM));
    // The verifier's own reads meet it: one bit in each chunk.
    assert!(!verdict.kept_its_word && verdict.units_damaged > 5, "{verdict:?}");
}

#[test]
fn a_drive_that_was_never_written_owes_nothing() {
    let simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveSpec::fast("sim", SPAN_BYTES));
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let run = Run::new(1, "sim", SPAN_BYTES, 512).unwrap();
    let record = Record { run, acknowledged: Vec::new() };
    let verdict = simulation.run(&io, verify(&device, &record, |_, _| ())).done().unwrap();
    assert!(verdict.kept_its_word && verdict.epochs_acknowledged == 0);
}
