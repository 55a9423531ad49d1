//! Write-behind: its bounds, and what a close does about it. What a crash leaves is the hunt's matter.

mod rig;

use engine::{CacheMode, Engine, TuningChange};
use io::units::{KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, ErrorKind, Io, Place, Volume};
use rig::Rig;
use twin::{DriveSpec, Fault, Faults, Kind, Simulation};

const BLOCK: usize = 4096;

/// Drives of which the fast one needs this long for a write, and does one at a time.
fn rig(write_ns: u64) -> Rig {
    let simulation = Simulation::new(1);
    let mut fast = DriveSpec { atomic_write_bytes: 4096, ..DriveSpec::fast("fast", 32 * MIB) };
    fast.latencies.write_ns = write_ns;
    fast.latencies.channels = 1;
    let fast = simulation.add_drive(fast);
    let slow = simulation.add_drive(DriveSpec::slow("slow", 128 * MIB));
    Rig { simulation, fast, slow }
}

async fn allow(engine: &Engine, bytes: u64) {
    engine.tune(TuningChange::Behind(Some(bytes))).await.unwrap();
}

async fn put(io: &Io, engine: &Engine, at: u64, value: u8) {
    let mut buf = io.pool().take(BLOCK);
    buf.fill(value);
    engine.write(at, buf, Durability::Volatile).await.1.unwrap();
}

async fn byte_at(io: &Io, engine: &Engine, at: u64) -> u8 {
    let (buf, outcome) = engine.read(at, io.pool().take(BLOCK)).await;
    outcome.unwrap();
    assert!(buf.iter().all(|byte| *byte == buf[0]));
    buf[0]
}

#[test]
fn a_close_writes_all_that_was_acknowledged_however_much_waits() {
    let rig = rig(2 * MILLISECOND_NS);
    rig.create();
    let blocks = 1500;
    rig.session(|io, engine| async move {
        allow(&engine, 8 * MIB).await;
        let begun_ns = io.now_ns();
        for block in 0..blocks {
            put(&io, &engine, 3 * block * BLOCK as u64, 1 + (block % 200) as u8).await;
        }
        assert!(io.now_ns() - begun_ns < MILLISECOND_NS, "no write was waited for");
        assert_eq!(engine.status().behind.bytes, blocks * BLOCK as u64);
    });
    rig.session(|io, engine| async move {
        for block in 0..blocks {
            let found = byte_at(&io, &engine, 3 * block * BLOCK as u64).await;
            assert_eq!(found, 1 + (block % 200) as u8, "block {block}");
        }
    });
}

#[test]
fn beyond_its_size_a_write_is_acknowledged_when_it_is_written() {
    let rig = rig(10 * MILLISECOND_NS);
    rig.create();
    rig.session(|io, engine| async move {
        allow(&engine, 64 * KIB).await;
        for block in 0..16 {
            put(&io, &engine, block * BLOCK as u64, 1).await;
        }
        let begun_ns = io.now_ns();
        put(&io, &engine, 16 * BLOCK as u64, 1).await;
        assert!(io.now_ns() - begun_ns >= 10 * MILLISECOND_NS);
        engine.flush().await.unwrap();
        let status = engine.status().behind;
        assert_eq!((status.bytes_max, status.bytes, status.age_ns), (64 * KIB, 0, 0));
    });
}

#[test]
fn a_drive_that_hangs_stops_clients_after_a_second() {
    let rig = rig(20 * SECOND_NS);
    rig.create();
    rig.session(|io, engine| async move {
        allow(&engine, 8 * MIB).await;
        let begun_ns = io.now_ns();
        put(&io, &engine, 0, 1).await;
        io.sleep(SECOND_NS / 2).await;
        put(&io, &engine, 8 * MIB, 1).await;
        assert!(io.now_ns() - begun_ns < SECOND_NS);
        io.sleep(SECOND_NS).await;
        assert!(engine.status().behind.age_ns > SECOND_NS);
        put(&io, &engine, 16 * MIB, 1).await;
        assert!(io.now_ns() - begun_ns > 20 * SECOND_NS, "its client waits for the drive");
    });
}

#[test]
fn what_is_set_holds_over_a_restart_and_can_be_taken_back() {
    let rig = rig(MILLISECOND_NS);
    rig.create();
    rig.session(|_, engine| async move { allow(&engine, MIB).await });
    rig.session(|io, engine| async move {
        assert_eq!(engine.status().behind.bytes_max, MIB);
        put(&io, &engine, 0, 1).await;
        engine.tune(TuningChange::Behind(None)).await.unwrap();
        let begun_ns = io.now_ns();
        put(&io, &engine, 0, 2).await;
        assert!(io.now_ns() - begun_ns >= MILLISECOND_NS, "off");
        assert_eq!(byte_at(&io, &engine, 0).await, 2);
    });
}

#[test]
fn what_is_behind_is_no_hole_to_who_asks_where_it_is() {
    let rig = rig(20 * MILLISECOND_NS);
    rig.create();
    rig.session(|io, engine| async move {
        let place = |block: u64| engine.places(block * BLOCK as u64, BLOCK as u64, 1)[0].place;
        let dirty = |block: u64| engine.worths(block * BLOCK as u64, BLOCK as u64, 1)[0].dirty;
        allow(&engine, MIB).await;
        assert_eq!(place(3), Place::Hole);
        put(&io, &engine, 3 * BLOCK as u64, 1).await;
        for _ in 0..3 {
            assert_eq!((place(2), place(3), place(4)), (Place::Hole, Place::Log, Place::Hole));
            assert_eq!((dirty(2), dirty(3)), (false, true));
            io.sleep(5 * MILLISECOND_NS).await;
        }
        let lengths: Vec<u64> = engine.places(0, MIB, 9).iter().map(|span| span.length).collect();
        assert_eq!(lengths, [3 * BLOCK as u64, BLOCK as u64, MIB - 4 * BLOCK as u64]);
        engine.flush().await.unwrap();
        assert_eq!((place(2), place(3)), (Place::Hole, Place::Log));
    });
}

#[test]
fn what_was_lost_behind_its_client_is_no_hole_either() {
    let rig = Rig::small(1);
    rig.create();
    rig.killed_session(|io, engine| {
        let (simulation, fast) = (rig.simulation.clone(), rig.fast);
        async move {
            allow(&engine, MIB).await;
            simulation.fail_next(fast, Kind::Write, 1, ErrorKind::Io);
            put(&io, &engine, 0, 1).await;
            assert!(engine.flush().await.is_err());
            assert_eq!(engine.places(0, BLOCK as u64, 1)[0].place, Place::Lost);
            assert_eq!(engine.places(BLOCK as u64, BLOCK as u64, 1)[0].place, Place::Hole);
        }
    });
}

/// A volume of class cache in write-through, with write-behind and a quiet moment behind it.
fn through() -> Rig {
    let rig = Rig::small(1);
    rig.create_cache(CacheMode::WriteThrough);
    rig
}

/// An extent that lives on the slow drive, and nothing that is owed.
async fn lay(io: &Io, engine: &Engine) {
    let extent = engine.status().geometry.extent_bytes as usize;
    let mut buf = io.pool().take(extent);
    buf.fill(1);
    engine.write(0, buf, Durability::Volatile).await.1.unwrap();
    engine.flush().await.unwrap();
    io.sleep(SECOND_NS).await;
    allow(engine, MIB).await;
}

#[test]
fn in_write_through_no_flush_succeeds_over_a_write_that_failed_behind_its_client() {
    let rig = through();
    rig.killed_session(|io, engine| {
        let (simulation, slow) = (rig.simulation.clone(), rig.slow);
        async move {
            lay(&io, &engine).await;
            simulation.fail_next(slow, Kind::Write, 1, ErrorKind::Io);
            put(&io, &engine, 0, 2).await;
            assert!(engine.flush().await.is_err(), "the write has reached no drive");
            assert!(engine.flush().await.is_err());
            let (_, outcome) = engine.read(0, io.pool().take(BLOCK)).await;
            assert!(outcome.is_err(), "what was lost is an error");
        }
    });
}

#[test]
fn on_the_slow_drive_alone_no_flush_succeeds_over_a_write_that_failed_behind_its_client() {
    let mut failed = 0;
    for seed in 1..60 {
        let rig = through();
        rig.killed_session(|io, engine| {
            let (simulation, drives) = (rig.simulation.clone(), [rig.fast, rig.slow]);
            let failed = &mut failed;
            async move {
                lay(&io, &engine).await;
                for block in 0..12 {
                    put(&io, &engine, block * BLOCK as u64, 2).await;
                    // To a hole, so that the fast drive is asked and found dead.
                    put(&io, &engine, 64 * MIB + block * BLOCK as u64, 2).await;
                }
                simulation.set_dead(drives[0], true);
                let faults = Faults::none().with(Fault::WriteError, 40_000).seeded(seed);
                simulation.set_faults(drives[1], faults);
                let flushed = engine.flush().await.is_ok();
                simulation.set_faults(drives[1], Faults::none());
                *failed += u64::from(!flushed);
                for block in 0..12 {
                    for at in [0, 64 * MIB] {
                        let at = at + block * BLOCK as u64;
                        let (buf, outcome) = engine.read(at, io.pool().take(BLOCK)).await;
                        let is_new = outcome.is_ok() && buf.iter().all(|byte| *byte == 2);
                        assert!(is_new || !flushed, "seed {seed}: {at} is not what was flushed");
                    }
                }
            }
        });
    }
    assert!((5..55).contains(&failed), "{failed} of 59 met a failing write");
}
