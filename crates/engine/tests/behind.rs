//! Write-behind: its bounds, and what a close does about it. What a crash leaves is the hunt's matter.

mod rig;

use engine::{Engine, TuningChange};
use io::units::{KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, Io, Volume};
use rig::Rig;
use twin::{DriveSpec, Simulation};

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
