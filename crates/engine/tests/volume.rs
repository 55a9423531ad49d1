//! What a client of a volume may rely on, on simulated drives without faults.

mod rig;

use std::cell::Cell;
use std::rc::Rc;

use engine::{Engine, Status};
use io::units::{MIB, SECOND_NS};
use io::{Durability, Place, Volume};
use rig::*;

#[test]
fn a_new_volume_reads_as_zeros() {
    let rig = Rig::small(1);
    rig.create();
    rig.session(|io, engine| async move {
        let size = engine.info().size_bytes;
        assert!(size > 140 * MIB && size.is_multiple_of(4096));
        expect_zeros(&io, &engine, 0, 1 << 20).await;
        expect_zeros(&io, &engine, size - 4096, 4096).await;
        assert_eq!(
            engine.status().drives[0].traffic.reads,
            engine.status().drives[0].traffic.reads
        );
    });
}

#[test]
fn what_was_written_is_read_back_by_any_route_and_after_reopening() {
    let rig = Rig::small(2);
    rig.create();
    let places = [
        (0, 4096),                    // a block, through the log
        (5 * MIB, EXTENT),            // an extent, to a fresh slot
        (5 * MIB + 4096, 8192),       // a part of it
        (9 * MIB, 1 << 20),           // eight extents
        (20 * MIB + 4096, 200 << 10), // ragged at both ends
        (30 * MIB + 512, 1024),       // sectors
        (40 * MIB - 512, 8192 + 1024),
    ];
    rig.session(|io, engine| async move {
        for (at, length) in places {
            put(&io, &engine, at, length, 1).await;
            expect(&io, &engine, at, length, 1).await;
        }
        engine.flush().await.unwrap();
    });
    rig.assert_sound();
    rig.session(|io, engine| async move {
        for (at, length) in places {
            expect(&io, &engine, at, length, 1).await;
        }
        io.sleep(5 * SECOND_NS).await;
        assert_eq!(engine.status().log.dirty_bytes, 0, "idle time destages");
        for (at, length) in places {
            expect(&io, &engine, at, length, 1).await;
        }
    });
    rig.assert_sound();
    rig.session(|io, engine| async move {
        for (at, length) in places {
            expect(&io, &engine, at, length, 1).await;
        }
    });
}

#[test]
fn a_killed_process_loses_nothing_that_was_flushed() {
    let rig = Rig::small(3);
    rig.create();
    for round in 0..5 {
        rig.killed_session(|io, engine| async move {
            for n in 0..100 {
                if round > 0 {
                    expect(&io, &engine, n * 300 * 4096, 8192, round - 1).await;
                }
                put(&io, &engine, n * 300 * 4096, 8192, round).await;
            }
            engine.flush().await.unwrap();
        });
        rig.assert_sound();
    }
}

#[test]
fn one_flush_after_random_writes_is_one_flush_of_the_fast_drive_and_none_of_the_slow() {
    let rig = Rig::small(4);
    rig.create();
    rig.session(|io, engine| async move {
        let size = engine.info().size_bytes;
        let before = engine.status();
        for n in 0..200u64 {
            put(&io, &engine, n * 7_919 * 4096 % size, 4096, 1).await;
        }
        engine.flush().await.unwrap();
        let after = engine.status();
        let flushes = |status: &Status, drive: usize| status.drives[drive].traffic.flushes;
        assert_eq!(flushes(&after, 0) - flushes(&before, 0), 1);
        assert_eq!(flushes(&after, 1) - flushes(&before, 1), 0);
        engine.flush().await.unwrap();
        engine.flush().await.unwrap();
        assert_eq!(flushes(&engine.status(), 0), flushes(&after, 0), "nothing dirty, nothing sent");
        assert_eq!(after.flushes_asked, 1);
    });
}

#[test]
fn flushes_asked_at_once_share_device_flushes() {
    let rig = Rig::small(5);
    rig.create();
    rig.session(|io, engine| async move {
        let before = engine.status().drives[0].traffic.flushes;
        let gate = io::Gate::new(32);
        for client in 0..32u64 {
            let (io, engine, pass) = (io.clone(), engine.clone(), gate.enter(1).await);
            io.clone().spawn(async move {
                for round in 0..10 {
                    put(&io, &engine, (client * 10 + round) * 4096, 4096, 1).await;
                    engine.flush().await.unwrap();
                }
                drop(pass);
            });
        }
        drop(gate.enter(32).await);
        let sent = engine.status().drives[0].traffic.flushes - before;
        assert!(sent <= 40, "{sent} flushes for 320 asked");
    });
}

#[test]
fn forced_unit_access_is_durable_alone() {
    let rig = Rig::small(6);
    rig.create();
    rig.killed_session(|io, engine| async move {
        let mut buf = io.pool().take(4096);
        buf.copy_from_slice(&pattern(8192, 4096, 3));
        engine.write(8192, buf, Durability::Durable).await.1.unwrap();
        assert!(engine.status().flushes_asked == 1);
    });
    rig.simulation.power_cut(twin::CacheLoss::LoseAll);
    rig.session(|io, engine| async move { expect(&io, &engine, 8192, 4096, 3).await });
}

#[test]
fn trimmed_space_reads_as_zeros_and_comes_back() {
    let rig = Rig::small(7);
    rig.create();
    rig.session(|io, engine| async move {
        let free = |engine: &Engine| {
            engine.status().drives.iter().map(|drive| drive.slots_free).sum::<u64>()
        };
        let before = free(&engine);
        for n in 0..16 {
            put(&io, &engine, n * MIB, 1 << 20, 1).await;
        }
        assert_eq!(before - free(&engine), 128);
        engine.trim(4096, 16 * MIB - 8192, Durability::Volatile).await.unwrap();
        expect(&io, &engine, 0, 4096, 1).await;
        expect_zeros(&io, &engine, 4096, 1 << 20).await;
        expect_zeros(&io, &engine, 15 * MIB, (1 << 20) - 4096).await;
        expect(&io, &engine, 16 * MIB - 4096, 4096, 1).await;
        io.sleep(10 * SECOND_NS).await;
        assert_eq!(before - free(&engine), 2, "only the two edges are still mapped");
        expect_zeros(&io, &engine, 4096, EXTENT - 4096).await;
    });
    rig.assert_sound();
}

#[test]
fn zeroes_are_exact_to_the_sector() {
    let rig = Rig::small(8);
    rig.create();
    rig.session(|io, engine| async move {
        put(&io, &engine, 0, 1 << 20, 1).await;
        zero(&engine, 1536, 300 << 10).await;
        let data = get(&io, &engine, 0, 1 << 20).await;
        let whole = pattern(0, 1 << 20, 1);
        let end = 1536 + (300 << 10);
        assert!(data[..1536] == whole[..1536] && data[end..] == whole[end..]);
        assert!(data[1536..end].iter().all(|byte| *byte == 0));
    });
}

#[test]
fn the_volume_can_be_filled_to_its_last_byte_and_stays_writable() {
    let rig = Rig::small(9);
    rig.create();
    rig.session(|io, engine| async move {
        let size = engine.info().size_bytes;
        let mut at = 0;
        while at < size {
            let length = (1 << 20).min(size - at) as usize;
            put(&io, &engine, at, length, 1).await;
            at += length as u64;
        }
        engine.flush().await.unwrap();
        let spans = engine.places(0, size, 10_000);
        assert_eq!(spans.iter().map(|span| span.length).sum::<u64>(), size);
        assert_eq!(spans[0].place, Place::Fast, "the fast drive fills first");
        assert!(
            spans.iter().all(|span| matches!(span.place, Place::Fast | Place::Slow | Place::Log))
        );
        // More random overwrites than the log holds, on a volume without a free extent.
        for n in 0..4000u64 {
            put(&io, &engine, n * 7_919 % (size / 4096) * 4096, 4096, 2).await;
        }
        for n in 0..4000u64 {
            expect(&io, &engine, n * 7_919 % (size / 4096) * 4096, 4096, 2).await;
        }
        // And whole extents.
        for n in 0..500u64 {
            put(&io, &engine, n * 37 % (size / EXTENT as u64) * EXTENT as u64, EXTENT, 3).await;
        }
        engine.flush().await.unwrap();
        for n in 0..500u64 {
            expect(&io, &engine, n * 37 % (size / EXTENT as u64) * EXTENT as u64, EXTENT, 3).await;
        }
    });
    rig.assert_sound();
}

#[test]
fn what_is_read_again_and_again_moves_up_and_makes_room_by_what_is_not() {
    let rig = Rig::small(10);
    rig.create();
    rig.session(|io, engine| async move {
        let size = engine.info().size_bytes;
        let mut at = 0;
        while at < size {
            put(&io, &engine, at, (1 << 20).min(size - at) as usize, 1).await;
            at += 1 << 20;
        }
        engine.flush().await.unwrap();
        io.sleep(30 * SECOND_NS).await;
        let hot = size - 4 * MIB;
        assert_eq!(engine.places(hot, 4096, 1)[0].place, Place::Slow);
        for round in 0..6u64 {
            for n in 0..32u64 {
                let at = hot + (n * 13 % 32) * EXTENT as u64 + round * 8192;
                expect(&io, &engine, at, 4096, 1).await;
            }
            io.sleep(2 * SECOND_NS).await;
        }
        assert_eq!(engine.places(hot, 4 * MIB, 100).first().unwrap().place, Place::Fast);
        let moves = engine.status().moves;
        assert!(moves.promoted_bytes >= 4 * MIB && moves.demoted_bytes >= 2 * MIB, "{moves:?}");
        for at in (0..size).step_by(1 << 20) {
            expect(&io, &engine, at, (1 << 20).min(size - at) as usize, 1).await;
        }
    });
    rig.assert_sound();
}

#[test]
fn requests_beyond_the_volume_or_off_the_sectors_are_refused() {
    let rig = Rig::small(11);
    rig.create();
    rig.session(|io, engine| async move {
        let size = engine.info().size_bytes;
        for (at, length) in [(size, 512), (size - 512, 1024), (u64::MAX - 511, 512), (100, 512)] {
            let (_, outcome) = engine.read(at, io.pool().take(length)).await;
            assert_eq!(outcome.unwrap_err().kind, io::ErrorKind::Range, "{at}");
            let (_, outcome) = engine.write(at, io.pool().take(length), Durability::Volatile).await;
            assert_eq!(outcome.unwrap_err().kind, io::ErrorKind::Range, "{at}");
            let trim = engine.trim(at, length as u64, Durability::Volatile).await;
            assert_eq!(trim.unwrap_err().kind, io::ErrorKind::Range, "{at}");
        }
        assert!(engine.read(100, io.pool().take(100)).await.1.is_err());
    });
}

#[test]
fn a_log_that_fills_faster_than_it_empties_slows_writers_down_instead_of_stopping_them() {
    let rig = Rig::sized(12, 64 * MIB, 512 * MIB, 4096);
    rig.create();
    rig.session(|io, engine| async move {
        let size = engine.info().size_bytes;
        for at in (0..size).step_by(1 << 20) {
            put(&io, &engine, at, (1 << 20).min(size - at) as usize, 1).await;
        }
        // Random blocks of the slow drive, several times what the log holds, without a rest.
        let mut longest_ns = 0;
        let mut all_ns = 0;
        let blocks = 6000u64;
        for n in 0..blocks {
            let at = 80 * MIB + n * 7_919 % (size / 4096 - 20_480) * 4096;
            let started_ns = io.now_ns();
            put(&io, &engine, at, 4096, 2).await;
            let took_ns = io.now_ns() - started_ns;
            longest_ns = longest_ns.max(took_ns);
            all_ns += took_ns;
        }
        let mean_ns = all_ns / blocks;
        assert!(engine.status().log.checkpoints > 2, "the log went around");
        assert!(longest_ns < SECOND_NS / 2, "a write took {longest_ns} ns, the mean is {mean_ns}");
        // Only at first, while nobody knows how fast this disk empties it.
        let waits = engine.status().log.full_waits;
        assert!(waits < 10, "{waits} writes ran into a full log");
    });
    rig.assert_sound();
}

#[test]
fn an_extent_that_is_written_all_the_time_still_leaves_the_log() {
    let rig = Rig::small(15);
    rig.create();
    rig.session(|io, engine| async move {
        put(&io, &engine, 0, 128 << 10, 1).await;
        engine.flush().await.unwrap();
        // Until recovery would not verify the home any more.
        io.sleep(60 * SECOND_NS).await;
        // Zeros of a block go to the log, wherever the extent is.
        zero(&engine, 0, 4096).await;
        engine.flush().await.unwrap();
        // Others of it are written in place, and always one or another is on its way.
        let (over, writes) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0u64)));
        for lane in 1..4 {
            let (io, engine) = (io.clone(), engine.clone());
            let (over, writes) = (over.clone(), writes.clone());
            io.clone().spawn(async move {
                while !over.get() && writes.get() < 300_000 {
                    put(&io, &engine, lane * 8192, 4096, 3).await;
                    writes.set(writes.get() + 1);
                }
            });
        }
        // Meanwhile more goes through the log than it holds, which must not wait for the one block.
        for n in 0..3000u64 {
            put(&io, &engine, 40 * MIB + n * 7919 % 8192 * 4096, 4096, 4).await;
        }
        over.set(true);
        assert!(writes.get() < 300_000, "the log was stuck as long as the extent was written");
        assert!(writes.get() > 3000, "it was not written all the time");
        io.sleep(SECOND_NS).await;
        expect_zeros(&io, &engine, 0, 4096).await;
        expect(&io, &engine, 8192, 4096, 3).await;
    });
    rig.assert_sound();
}
