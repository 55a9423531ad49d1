//! What was hot is known after a restart, and what was read once goes up when clients rest.

mod rig;

use engine::Engine;
use io::units::{MIB, SECOND_NS};
use io::{Io, Place, Volume};
use rig::{EXTENT, Rig, expect, put};

const BYTES: u64 = EXTENT as u64;
/// Extents that fill the fast drive of a small rig and half as much of the slow one.
const FILLED: u64 = 400;
/// Where heat lies on the fast drive.
const AREAS: [u64; 2] = [8 << 10, 516 << 10];

async fn fill(io: &Io, engine: &Engine) {
    for extent in 0..FILLED {
        put(io, engine, extent * BYTES, EXTENT, 1).await;
    }
    engine.flush().await.unwrap();
    io.sleep(30 * SECOND_NS).await;
}

fn is_fast(engine: &Engine, extent: u64) -> bool {
    engine.places(extent * BYTES, 4096, 1)[0].place == Place::Fast
}

fn below(engine: &Engine) -> Vec<u64> {
    (0..FILLED).filter(|extent| !is_fast(engine, *extent)).collect()
}

fn count(engine: &Engine, extent: u64) -> f64 {
    engine.opinions(extent * BYTES, 1)[0].count
}

/// Reads one extent again and again and another one once, and says what they count.
async fn learn(io: &Io, engine: &Engine) -> [f64; 2] {
    for block in [9, 3, 20, 1, 30, 11, 5] {
        expect(io, engine, 7 * BYTES + block * 4096, 4096, 1).await;
    }
    expect(io, engine, 77 * BYTES, 4096, 1).await;
    [count(engine, 7), count(engine, 77)]
}

#[test]
fn what_was_hot_is_known_again() {
    let rig = Rig::small(1);
    rig.create();
    let learnt = rig.session(|io, engine| async move {
        fill(&io, &engine).await;
        learn(&io, &engine).await
    });
    assert!(learnt[0] > 5.0 && learnt[1] < 2.0, "{learnt:?}");
    // A session that learns nothing does not forget.
    rig.session(|_, _| async {});
    rig.killed_session(|io, engine| async move {
        let known = [count(&engine, 7), count(&engine, 77)];
        for (known, learnt) in known.iter().zip(learnt) {
            assert!((0.85..1.02).contains(&(known / learnt)), "{known} of {learnt}");
        }
        assert_eq!(count(&engine, FILLED + 1), 0.0);
        expect(&io, &engine, 99 * BYTES, 4096, 1).await;
    });
    rig.session(|_, engine| async move {
        assert!(
            count(&engine, 7) > 5.0,
            "what a killed session had learnt is lost, and nothing else"
        );
    });
}

#[test]
fn a_server_that_is_killed_forgets_an_hour_at_most() {
    let rig = Rig::small(2);
    rig.create();
    rig.session(|io, engine| async move { fill(&io, &engine).await });
    let learnt = rig.killed_session(|io, engine| async move {
        let learnt = learn(&io, &engine).await;
        io.sleep(3700 * SECOND_NS).await;
        learnt
    });
    rig.session(|_, engine| async move {
        let ratio = count(&engine, 7) / learnt[0];
        assert!((0.85..1.02).contains(&ratio), "{ratio}");
    });
}

#[test]
fn heat_that_is_damaged_or_torn_is_passed_over() {
    let rig = Rig::small(3);
    rig.create();
    rig.session(|io, engine| async move {
        fill(&io, &engine).await;
        learn(&io, &engine).await;
    });
    for at in AREAS {
        rig.simulation.poke(rig.fast, at + 70, &[0xff; 600]);
    }
    rig.assert_sound();
    rig.session(|io, engine| async move {
        assert_eq!(count(&engine, 7), 0.0);
        expect(&io, &engine, 7 * BYTES, EXTENT, 1).await;
    });
}

#[test]
fn what_was_read_once_goes_up_when_clients_rest_as_far_as_they_have_earned_it() {
    let rig = Rig::small(4);
    rig.create();
    let extents = rig.session(|io, engine| async move {
        fill(&io, &engine).await;
        let extents: Vec<u64> = below(&engine).into_iter().step_by(40).take(3).collect();
        for extent in &extents {
            expect(&io, &engine, extent * BYTES, 4096, 1).await;
        }
        let read = engine.status().drives[1].traffic.read_bytes;
        io.sleep(10 * SECOND_NS).await;
        for extent in &extents {
            assert!(is_fast(&engine, *extent), "{extent} {:?}", engine.status().policy);
        }
        assert_eq!(engine.status().drives[1].traffic.read_bytes, read, "they were in RAM");
        extents
    });
    rig.session(|io, engine| async move {
        // Nothing is left over at first.
        let other = below(&engine).into_iter().find(|other| !extents.contains(other)).unwrap();
        expect(&io, &engine, other * BYTES, 4096, 1).await;
        io.sleep(10 * SECOND_NS).await;
        assert!(!is_fast(&engine, other));
        assert!(engine.status().moves.promoted_bytes < MIB);
    });
}
