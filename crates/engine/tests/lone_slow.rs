//! Class cache without its fast drive: what is told then, how a write-through cache goes on, and how it is given
//! a new one.

mod rig;

use engine::{CacheMode, Engine, Error, OpenOptions, attach_cache};
use io::Volume;
use io::units::{MIB, SECOND_NS};
use rig::{EXTENT, Rig, expect, expect_zeros, promote, put, zero};
use twin::{CacheLoss, CutPoint, DriveSpec, Moment, Outcome, Simulation, Snapshot};

const EXTENT_BYTES: u64 = EXTENT as u64;

fn rig(seed: u64, cache_mode: CacheMode) -> Rig {
    let rig = Rig::small(seed);
    rig.create_cache(cache_mode);
    rig
}

#[test]
fn without_its_fast_drive_a_write_back_cache_tells_what_is_dirty() {
    let rig = rig(5, CacheMode::WriteBack);
    rig.session(|io, engine| async move {
        for extent in 0..4 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        // At home, and then some of it dirty again.
        engine.set_cache_mode(CacheMode::WriteThrough).await.unwrap();
        engine.set_cache_mode(CacheMode::WriteBack).await.unwrap();
        assert_eq!(engine.status().dirty_bytes, 0);
        put(&io, &engine, EXTENT_BYTES, EXTENT, 2).await;
        assert!(engine.status().dirty_bytes >= EXTENT_BYTES);
    });
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let refused = rig.open_slow_alone(&io, OpenOptions::default()).await.err().unwrap();
            assert!(matches!(refused, Error::DriveGone { .. }), "{refused}");
            let options = OpenOptions { degraded: true, ..OpenOptions::default() };
            let engine = rig.open_slow_alone(&io, options).await.unwrap();
            assert!(engine.info().read_only);
            let lost = engine.lost_ranges(0, 4 * EXTENT_BYTES);
            assert_eq!(lost.len(), 1, "{lost:?}");
            assert_eq!((lost[0].at, lost[0].length), (EXTENT_BYTES, EXTENT_BYTES));
            for extent in [0, 2, 3] {
                expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
            }
        }
    });
}

#[test]
fn without_its_fast_drive_a_write_through_cache_goes_on() {
    let rig = rig(6, CacheMode::WriteThrough);
    rig.session(|io, engine| async move {
        put(&io, &engine, 0, EXTENT, 1).await;
        put(&io, &engine, 9 * EXTENT_BYTES + 4096, 4096, 1).await;
        engine.flush().await.unwrap();
        promote(&io, &engine, 0).await;
    });
    for round in 2..4 {
        rig.run(|io, _, _| {
            let rig = &rig;
            async move {
                let engine = rig.open_slow_alone(&io, OpenOptions::default()).await.unwrap();
                assert!(engine.status().alone && !engine.info().read_only);
                assert_eq!(engine.status().loss, None);
                expect(&io, &engine, 9 * EXTENT_BYTES + 4096, 4096, round - 1).await;
                expect_zeros(&io, &engine, 9 * EXTENT_BYTES, 4096).await;
                put(&io, &engine, 9 * EXTENT_BYTES + 4096, 4096, round).await;
                put(&io, &engine, 50 * EXTENT_BYTES + 512, 1024, round).await;
                zero(&engine, 0, EXTENT_BYTES).await;
                engine.close().await.unwrap();
            }
        });
    }
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let engine = rig.open_slow_alone(&io, OpenOptions::default()).await.unwrap();
            expect_zeros(&io, &engine, 0, EXTENT).await;
            expect(&io, &engine, 50 * EXTENT_BYTES + 512, 1024, 3).await;
            expect_zeros(&io, &engine, 51 * EXTENT_BYTES - 4096, 4096).await;
            let refused = engine.set_cache_mode(CacheMode::WriteBack).await.unwrap_err();
            assert!(matches!(refused, Error::Unsuitable(_)), "{refused}");
            engine.close().await.unwrap();
        }
    });
    let refused = rig.open_error().to_string();
    assert!(refused.contains("went on without its fast drive"), "{refused}");
}

#[test]
fn in_write_through_either_copy_of_the_slow_drive_s_map_is_enough() {
    let rig = rig(13, CacheMode::WriteBack);
    rig.session(|io, engine| async move {
        for extent in 0..4 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        io.sleep(30 * SECOND_NS).await;
        engine.set_cache_mode(CacheMode::WriteThrough).await.unwrap();
    });
    for copy in 0..2 {
        let at = MIB + copy * 4096 + 100;
        let byte = rig.simulation.peek(rig.slow, at, 1)[0];
        rig.simulation.poke(rig.slow, at, &[byte ^ 4]);
        rig.run(|io, _, _| {
            let rig = &rig;
            async move {
                let options = OpenOptions { read_only: true, ..OpenOptions::default() };
                let engine = rig.open_slow_alone(&io, options).await.unwrap();
                for extent in 0..4 {
                    expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
                }
                engine.close().await.unwrap();
            }
        });
        rig.simulation.poke(rig.slow, at, &[byte]);
    }
}

#[test]
fn a_new_fast_drive_makes_a_cache_of_a_lone_slow_one() {
    let rig = rig(8, CacheMode::WriteThrough);
    rig.session(|io, engine| async move {
        for extent in 0..8 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        promote(&io, &engine, 3).await;
    });
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let engine = rig.open_slow_alone(&io, OpenOptions::default()).await.unwrap();
            put(&io, &engine, EXTENT_BYTES, EXTENT, 2).await;
            zero(&engine, 2 * EXTENT_BYTES, EXTENT_BYTES).await;
            put(&io, &engine, 20 * EXTENT_BYTES, 4096, 2).await;
            engine.close().await.unwrap();
        }
    });
    // The old drive, as it was: everything on it is believed to be something else.
    rig.run(|io, fast, slow| async move {
        attach_cache(&io, &fast, &slow).await.unwrap();
    });
    for _ in 0..2 {
        rig.session(|io, engine| async move {
            assert!(!engine.status().alone);
            expect(&io, &engine, 0, EXTENT, 1).await;
            expect(&io, &engine, EXTENT_BYTES, EXTENT, 2).await;
            expect_zeros(&io, &engine, 2 * EXTENT_BYTES, EXTENT).await;
            expect(&io, &engine, 20 * EXTENT_BYTES, 4096, 2).await;
            expect_zeros(&io, &engine, 20 * EXTENT_BYTES + 4096, 4096).await;
            promote(&io, &engine, 3).await;
            expect(&io, &engine, 3 * EXTENT_BYTES, EXTENT, 1).await;
        });
        rig.assert_sound();
    }
}

#[test]
fn a_volume_that_needs_its_fast_drive_is_not_given_an_empty_one() {
    let back = rig(9, CacheMode::WriteBack);
    let span = Rig::small(9);
    span.create();
    for rig in [back, span] {
        rig.session(|io, engine| async move { put(&io, &engine, 0, EXTENT, 1).await });
        let refused =
            rig.run(
                |io, fast, slow| async move { attach_cache(&io, &fast, &slow).await.unwrap_err() },
            );
        assert!(matches!(refused, Error::Unsuitable(_)), "{refused}");
        rig.session(|io, engine| async move { expect(&io, &engine, 0, EXTENT, 1).await });
    }
}

#[test]
fn a_slow_drive_with_a_damaged_map_is_not_given_an_empty_fast_drive() {
    let rig = rig(10, CacheMode::WriteThrough);
    rig.session(|io, engine| async move { put(&io, &engine, 0, EXTENT, 1).await });
    // Both copies of the first page; then the new drive would have all of it count as never written.
    let at = [0, 1].map(|copy| MIB + copy * 4096 + 100);
    let bytes = at.map(|at| rig.simulation.peek(rig.slow, at, 1)[0]);
    for (at, byte) in at.into_iter().zip(bytes) {
        rig.simulation.poke(rig.slow, at, &[byte ^ 4]);
    }
    let refused =
        rig.run(|io, fast, slow| async move { attach_cache(&io, &fast, &slow).await.unwrap_err() });
    assert!(matches!(refused, Error::Unsuitable(_)), "{refused}");
    for (at, byte) in at.into_iter().zip(bytes) {
        rig.simulation.poke(rig.slow, at, &[byte]);
    }
    rig.session(|io, engine| async move { expect(&io, &engine, 0, EXTENT, 1).await });
}

#[test]
fn attaching_that_was_interrupted_is_called_so_and_done_again() {
    let rig = rig(11, CacheMode::WriteThrough);
    let spare = rig.simulation.add_drive(DriveSpec::fast("spare", 32 * MIB));
    rig.session(|io, engine| async move {
        put(&io, &engine, 3 * EXTENT_BYTES, EXTENT, 1).await;
        engine.flush().await.unwrap();
        promote(&io, &engine, 3).await;
    });
    let before = rig.simulation.snapshot();
    let woken = |snapshot: &Snapshot, fast| Rig {
        simulation: Simulation::wake(snapshot),
        fast,
        slow: rig.slow,
    };
    let (mut old_refused, mut new_refused) = (0, 0);
    for operation in 0.. {
        let attaching = woken(&before, spare);
        attaching.simulation.arm_cut(CutPoint { operation, moment: Moment::Completed });
        let io = attaching.simulation.boot();
        let (fast, slow) = attaching.devices(&io);
        let outcome = attaching.simulation.run(&io, async {
            attach_cache(&io, &fast, &slow).await.unwrap();
        });
        if outcome == Outcome::Done(()) {
            assert!(old_refused > 5 && new_refused > 5, "{old_refused} and {new_refused}");
            break;
        }
        drop(io);
        attaching.simulation.power_cut(CacheLoss::KeepAll);
        let cut = attaching.simulation.snapshot();
        for (fast, refused) in [(rig.fast, &mut old_refused), (spare, &mut new_refused)] {
            let failed = woken(&cut, fast).run(|io, fast, slow| async move {
                Engine::open(&io, &fast, &slow, OpenOptions::default()).await.err()
            });
            match failed {
                None => {}
                Some(Error::NotAMember { .. }) if fast == spare => {}
                Some(error) => {
                    let words = error.to_string();
                    let told = words.contains("bimetal attach-cache")
                        || fast == rig.fast && words.contains("of before that");
                    assert!(told, "operation {operation}: {words}");
                    *refused += 1;
                }
            }
        }
        let again = woken(&cut, spare);
        again.run(|io, fast, slow| async move { attach_cache(&io, &fast, &slow).await.unwrap() });
        again.session(|io, engine| async move {
            assert!(!engine.status().alone);
            expect(&io, &engine, 3 * EXTENT_BYTES, EXTENT, 1).await;
        });
    }
}
