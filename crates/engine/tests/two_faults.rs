//! A power cut, and later something else: what the cut left must not be what the second fault needs.

mod rig;

use io::Volume;
use io::units::MIB;
use rig::*;
use twin::{CacheLoss, CutPoint, Moment, Outcome, Simulation};

/// Where the map lies on the drives of `Rig::small`, and what a page takes there.
const MAP_AT: u64 = MIB;
const PAGE_BYTES: u64 = 4096;

/// The machine after a cut at this operation of a session that writes a new extent and closes: the
/// fast drive kept all of its cache, the slow one nothing. `None`: the session had ended before.
fn cut_apart(before: &twin::Snapshot, operation: u64) -> Option<Rig> {
    let simulation = Simulation::wake(before);
    let drives = simulation.drives();
    let rig = Rig { simulation: simulation.clone(), fast: drives[0], slow: drives[1] };
    simulation.arm_cut(CutPoint { operation, moment: Moment::Completed });
    let io = simulation.boot();
    let (fast, slow) = rig.devices(&io);
    let outcome = simulation.run(&io, async {
        let engine = open(&io, &fast, &slow).await;
        put(&io, &engine, MIB, EXTENT, 1).await;
        engine.flush().await.unwrap();
        engine.close().await.unwrap();
    });
    if outcome == Outcome::Done(()) {
        return None;
    }
    let failed = simulation.snapshot();
    let lost = Simulation::wake(&failed);
    lost.power_cut(CacheLoss::LoseAll);
    simulation.power_cut(CacheLoss::KeepAll);
    simulation.restore_drive(rig.slow, &lost.copy_drive(rig.slow));
    Some(rig)
}

#[test]
fn a_map_page_that_only_the_fast_drive_kept_at_a_cut_does_not_stay_alone() {
    let rig = Rig::small(1);
    rig.create();
    rig.session(|io, engine| async move { put(&io, &engine, 0, EXTENT, 1).await });
    let before = rig.simulation.snapshot();
    let mut cuts = 0;
    while let Some(rig) = cut_apart(&before, cuts) {
        cuts += 1;
        // Something else is written, and the tail of the log moves on.
        let flushed = rig.session(|io, engine| async move {
            put(&io, &engine, 80 * MIB, EXTENT, 1).await;
            get(&io, &engine, MIB, EXTENT).await
        });
        let sound = rig.simulation.snapshot();
        for rotten in [0..1, 1..2, 0..2] {
            let simulation = Simulation::wake(&sound);
            let rig = Rig { simulation, fast: rig.fast, slow: rig.slow };
            for copy in rotten {
                rig.simulation.poke(rig.fast, MAP_AT + copy * PAGE_BYTES + 100, &[0xff]);
            }
            let flushed = flushed.clone();
            rig.session(|io, engine| async move {
                expect(&io, &engine, 0, EXTENT, 1).await;
                expect(&io, &engine, 80 * MIB, EXTENT, 1).await;
                let now = get(&io, &engine, MIB, EXTENT).await;
                assert!(now == flushed, "cut {cuts}: an extent went back in time");
            });
        }
    }
    assert!(cuts > 10, "the session had {cuts} operations only");
}

#[test]
fn a_volume_whose_log_goes_back_to_its_making_needs_no_map_page() {
    let rig = Rig::small(1);
    rig.create();
    let before = rig.simulation.snapshot();
    let mut opened = 0;
    for operation in 0.. {
        let Some(rig) = cut_apart(&before, operation) else { break };
        // The cut has torn the first copy of the page on the slow drive, and the fast drive rots.
        let copies = [0, 1].map(|copy| MAP_AT + copy * PAGE_BYTES + 100);
        rig.simulation.poke(rig.slow, copies[1], &[0xff]);
        for copy in copies {
            rig.simulation.poke(rig.fast, copy, &[0xee]);
        }
        let io = rig.simulation.boot();
        let (fast, _) = rig.devices(&io);
        let tail = rig.simulation.run(&io, async {
            let engine::Inspection::Member(superblock) = engine::inspect(&io, &fast).await.unwrap()
            else {
                panic!("the fast drive is a member");
            };
            superblock.log_tail
        });
        if tail != Outcome::Done(engine::Lsn(1)) {
            continue;
        }
        opened += 1;
        rig.session(|io, engine| async move {
            let now = get(&io, &engine, MIB, EXTENT).await;
            let old = now.iter().all(|byte| *byte == 0);
            assert!(old || now == pattern(MIB, EXTENT, 1), "cut {operation}: neither old nor new");
        });
    }
    assert!(opened > 10, "only {opened} cuts left the tail where it was");
}
