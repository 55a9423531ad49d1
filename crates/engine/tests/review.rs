//! What a review found by reasoning, shown on simulated drives.

mod rig;

use std::cell::Cell;
use std::rc::Rc;

use engine::{CreateOptions, Engine, OpenOptions, create};
use io::units::{KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, ErrorKind, Io, Volume};
use rig::*;
use twin::{Kind, Model, Request};

/// Where the ring of `Rig::small` lies on the fast drive.
const RING_AT: u64 = 2 * MIB;
const RING_BLOCKS: u64 = 1024;

/// Runs a task of its own and says whether it ended within this much virtual time.
async fn ends_within(io: &Io, limit_ns: u64, work: impl Future<Output = ()> + 'static) -> bool {
    let done = Rc::new(Cell::new(false));
    let told = done.clone();
    io.spawn(async move {
        work.await;
        told.set(true);
    });
    let until = io.now_ns() + limit_ns;
    while !done.get() && io.now_ns() < until {
        io.sleep(10 * MILLISECOND_NS).await;
    }
    done.get()
}

fn find_in_log(rig: &Rig, needle: &[u8]) -> u64 {
    (RING_AT..RING_AT + RING_BLOCKS * 4096)
        .step_by(4096)
        .find(|at| rig.simulation.peek(rig.fast, *at, 4096) == needle)
        .expect("the block lies in the log")
}

/// A volume whose log holds a durable block, at 64 MiB, that no longer fits its checksum.
fn with_a_damaged_log_block(seed: u64) -> Rig {
    let rig = Rig::small(seed);
    rig.create();
    rig.killed_session(|io, engine| async move {
        put(&io, &engine, 64 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
        put(&io, &engine, 66 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
    });
    let at = find_in_log(&rig, &pattern(64 * MIB, 4096, 1));
    rig.simulation.poke(rig.fast, at + 77, &[0xaa]);
    rig
}

#[test]
fn writers_behind_a_damaged_log_block_hear_of_it_instead_of_waiting_for_ever() {
    let rig = with_a_damaged_log_block(101);
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        let writer = {
            let (io, engine) = (io.clone(), engine.clone());
            async move {
                // Twice what the ring holds.
                for n in 0..2 * RING_BLOCKS {
                    let buf = io.pool().take_zeroed(4096);
                    let at = 80 * MIB + n % 512 * 8192;
                    let (_, outcome) = engine.write(at, buf, Durability::Volatile).await;
                    if let Err(error) = outcome {
                        assert!(error.message.contains("overwrite that block"), "{error}");
                        return;
                    }
                }
            }
        };
        assert!(ends_within(&io, 120 * SECOND_NS, writer).await, "writers wait for ever");
    });
    // And overwriting it is what helps.
    rig.session(|io, engine| async move {
        put(&io, &engine, 64 * MIB, 4096, 2).await;
        for n in 0..2 * RING_BLOCKS {
            put(&io, &engine, 80 * MIB + n % 512 * 8192, 4096, n).await;
        }
        expect(&io, &engine, 64 * MIB, 4096, 2).await;
    });
}

#[test]
fn a_damaged_log_block_that_was_overwritten_is_destaged_like_any_other() {
    let rig = with_a_damaged_log_block(102);
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        io.sleep(2 * SECOND_NS).await;
        put(&io, &engine, 64 * MIB, 4096, 2).await;
        engine.flush().await.unwrap();
        io.sleep(10 * SECOND_NS).await;
        assert_eq!(engine.status().log.dirty_bytes, 0, "idle time empties the log");
    });
}

#[test]
fn many_whole_extents_at_once_all_end_on_a_small_log() {
    let rig = Rig::sized(103, 64 * MIB, 512 * MIB, 4096);
    rig.create();
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        let left = Rc::new(Cell::new(1000));
        for n in 0..1000 {
            let (io, engine, left) = (io.clone(), engine.clone(), left.clone());
            io.clone().spawn(async move {
                put(&io, &engine, n * EXTENT as u64, EXTENT, 1).await;
                left.set(left.get() - 1);
            });
        }
        io.sleep(120 * SECOND_NS).await;
        assert_eq!(left.get(), 0, "requests wait for ever");
    });
}

#[test]
fn closing_twice_at_once_ends_twice() {
    let rig = Rig::small(104);
    rig.create();
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        let writer = (io.clone(), engine.clone());
        io.spawn(async move { put(&writer.0, &writer.1, 0, EXTENT, 1).await });
        io.yield_now().await;
        io.yield_now().await;
        let (first, second) = (engine.clone(), engine.clone());
        let closed = Rc::new(Cell::new(false));
        let told = closed.clone();
        io.spawn(async move {
            first.close().await.unwrap();
            told.set(true);
        });
        io.spawn(async move {
            let _ = second.close().await;
        });
        io.sleep(60 * SECOND_NS).await;
        assert!(closed.get(), "the first close waits for ever");
    });
}

#[test]
fn a_durable_write_under_way_at_close_succeeds() {
    let rig = Rig::small(105);
    rig.create();
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        let writer = {
            let (io, engine) = (io.clone(), engine.clone());
            async move {
                let buf = io.pool().take_zeroed(4096);
                engine.write(0, buf, Durability::Durable).await.1.unwrap();
            }
        };
        let closer = engine.clone();
        let waited = io.clone();
        io.spawn(async move {
            waited.yield_now().await;
            waited.yield_now().await;
            closer.close().await.unwrap();
        });
        assert!(ends_within(&io, SECOND_NS, writer).await);
    });
}

fn logged(seed: u64) -> (Rig, u64) {
    let rig = Rig::small(seed);
    rig.create();
    let end = rig.killed_session(|io, engine| async move {
        put(&io, &engine, 64 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
        put(&io, &engine, 66 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
        engine.log_end().0
    });
    (rig, end)
}

#[test]
fn an_unreadable_sector_of_the_ring_beyond_the_log_does_not_keep_the_volume_closed() {
    let (rig, end) = logged(106);
    let at = RING_AT + (end + 100) % RING_BLOCKS * 4096;
    rig.simulation.set_unreadable(rig.fast, at..at + 512);
    rig.session(|io, engine| async move {
        expect(&io, &engine, 64 * MIB, 4096, 1).await;
        expect(&io, &engine, 66 * MIB, 4096, 1).await;
    });
}

#[test]
fn an_unreadable_block_of_the_log_costs_that_block_only() {
    let (rig, _) = logged(107);
    let at = find_in_log(&rig, &pattern(64 * MIB, 4096, 1));
    rig.simulation.set_unreadable(rig.fast, at..at + 512);
    rig.session(|io, engine| async move {
        let (_, outcome) = engine.read(64 * MIB, io.pool().take(4096)).await;
        assert!(outcome.is_err());
        expect(&io, &engine, 66 * MIB, 4096, 1).await;
    });
}

#[test]
fn an_unreadable_sector_among_blank_map_pages_is_no_damage() {
    let rig = Rig::small(108);
    rig.create();
    rig.session(|io, engine| async move { put(&io, &engine, 0, 1 << 20, 1).await });
    // First copy of the first page; the pages behind it were never written.
    rig.simulation.set_unreadable(rig.fast, MIB..MIB + 512);
    rig.session(|io, engine| async move { expect(&io, &engine, 0, 1 << 20, 1).await });
}

#[test]
fn an_unreadable_sector_of_the_slow_drive_does_not_stop_the_volume() {
    let rig = Rig::small(109);
    rig.create();
    rig.run(|io, fast, slow| {
        let (simulation, id) = (rig.simulation.clone(), rig.slow);
        async move {
            let engine = open(&io, &fast, &slow).await;
            let size = engine.info().size_bytes;
            for at in (0..size).step_by(1 << 20) {
                put(&io, &engine, at, (1 << 20).min(size - at) as usize, 1).await;
            }
            // Room on the fast drive, so that a hot extent would move up.
            engine.trim(0, 8 * MIB, Durability::Volatile).await.unwrap();
            engine.flush().await.unwrap();
            io.sleep(5 * SECOND_NS).await;
            let hot = 100 * MIB;
            assert_eq!(engine.places(hot, 4096, 1)[0].place, io::Place::Slow);
            // Find it on the drive, and spoil a sector behind its first block.
            let needle = pattern(hot, 4096, 1);
            let slot = (0..128 * MIB)
                .step_by(EXTENT)
                .find(|at| simulation.peek(id, *at, 4096) == needle)
                .expect("it is on the slow drive");
            simulation.set_unreadable(id, slot + 64 * KIB..slot + 64 * KIB + 512);
            put(&io, &engine, hot, 4096, 2).await;
            for _ in 0..3 {
                expect(&io, &engine, hot + 8192, 4096, 1).await;
            }
            engine.flush().await.unwrap();
            io.sleep(5 * SECOND_NS).await;
            let writer = {
                let (io, engine) = (io.clone(), engine.clone());
                async move {
                    for n in 0..2 * RING_BLOCKS {
                        let mut buf = io.pool().take(4096);
                        buf.fill(n as u8);
                        let at = 110 * MIB + n % 64 * EXTENT as u64;
                        let (_, outcome) = engine.write(at, buf, Durability::Volatile).await;
                        if let Err(error) = outcome {
                            panic!("write {n}: {error}");
                        }
                    }
                }
            };
            assert!(ends_within(&io, 600 * SECOND_NS, writer).await);
        }
    });
}

#[test]
fn after_a_failed_flush_by_background_work_no_flush_of_a_client_succeeds() {
    let rig = Rig::small(110);
    rig.create();
    rig.run(|io, fast, slow| {
        let (simulation, id) = (rig.simulation.clone(), rig.fast);
        async move {
            let engine = open(&io, &fast, &slow).await;
            put(&io, &engine, 0, EXTENT, 1).await;
            engine.flush().await.unwrap();
            // Young: into the log, and durable there.
            put(&io, &engine, 4096, 4096, 2).await;
            engine.flush().await.unwrap();
            // Settled by now: in place on the fast drive.
            put(&io, &engine, MIB, EXTENT, 1).await;
            engine.flush().await.unwrap();
            put(&io, &engine, 2 * MIB, 4096, 1).await;
            engine.flush().await.unwrap();
            put(&io, &engine, MIB + 8192, 4096, 3).await;
            let before = engine.status();
            assert_eq!(engine.places(MIB + 8192, 4096, 1)[0].place, io::Place::Fast);
            assert!(before.log.dirty_bytes > 0);
            // The next flush of the fast drive is that of the idle destage.
            simulation.fail_next(id, Kind::Flush, 1, ErrorKind::Io);
            io.sleep(SECOND_NS / 2).await;
            let after = engine.status();
            assert_eq!(after.drives[0].traffic.errors, 1, "the flush failed");
            assert_eq!(after.flushes_asked, before.flushes_asked);
            // The kernel reports a lost write once: the next flush knows nothing of it.
            assert!(engine.flush().await.is_err(), "a drive's failed flush was forgotten");
        }
    });
}

#[test]
fn a_large_write_gets_its_turn_among_small_ones_on_a_small_log() {
    let rig = Rig::sized(112, 64 * MIB, 512 * MIB, 4096);
    rig.create();
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        let size = engine.info().size_bytes;
        for at in (0..size).step_by(1 << 20) {
            put(&io, &engine, at, (1 << 20).min(size - at) as usize, 1).await;
        }
        engine.flush().await.unwrap();
        io.sleep(5 * SECOND_NS).await;
        // Random blocks of the slow drive keep the log as full as its writers may.
        for client in 0..16u64 {
            let (io, engine) = (io.clone(), engine.clone());
            io.clone().spawn(async move {
                for n in 0u64.. {
                    let block = (n * 16 + client) * 7_919 % 100_000;
                    put(&io, &engine, 80 * MIB + block * 4096, 4096, n).await;
                }
            });
        }
        io.sleep(20 * SECOND_NS).await;
        let large = {
            let (io, engine) = (io.clone(), engine.clone());
            async move { put(&io, &engine, 500 * MIB + 4096, 1 << 20, 9).await }
        };
        assert!(ends_within(&io, 60 * SECOND_NS, large).await, "a large write starves");
    });
}

#[test]
fn an_unaligned_write_gets_its_turn_among_aligned_ones() {
    let rig = Rig::small(113);
    rig.create();
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        for extent in 0..3 {
            // The later ones say that the first is durable: from then on it is written in place.
            put(&io, &engine, extent * EXTENT as u64, EXTENT, 1).await;
            engine.flush().await.unwrap();
        }
        for client in 0..16u64 {
            let (io, engine) = (io.clone(), engine.clone());
            io.clone().spawn(async move {
                for n in 0u64.. {
                    put(&io, &engine, client * 4096, 4096, n).await;
                    io.sleep((n + client) * 7919 % 30_000).await;
                }
            });
        }
        io.sleep(MILLISECOND_NS).await;
        let unaligned = {
            let (io, engine) = (io.clone(), engine.clone());
            async move { put(&io, &engine, 20 * 4096 + 512, 512, 9).await }
        };
        assert!(ends_within(&io, SECOND_NS, unaligned).await, "an unaligned write starves");
    });
}

#[test]
fn a_damaged_log_header_is_told_also_when_much_was_in_flight_behind_it() {
    let rig = Rig::sized(114, 512 * MIB, 1024 * MIB, 4096);
    rig.run(|io, fast, slow| async move {
        let mut options = CreateOptions::new("test");
        options.extent_bytes = 4 * MIB;
        options.landing_bytes = Some(64 * MIB);
        create(&io, &fast, &slow, options, &|_, _| ()).await.unwrap();
    });
    let first = rig.killed_session(|io, engine| async move {
        let first = engine.log_end().0;
        put(&io, &engine, 64 * MIB, 4096, 1).await;
        let flushed = {
            let engine = engine.clone();
            async move { engine.flush().await.unwrap() }
        };
        for n in 0..16 {
            let (io, engine) = (io.clone(), engine.clone());
            io.clone().spawn(async move {
                io.sleep(20_000).await;
                put(&io, &engine, 128 * MIB + n * MIB, 1 << 20, 1).await;
            });
        }
        flushed.await;
        // The block is durable now, and a durable record will say so.
        put(&io, &engine, 65 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
        io.sleep(SECOND_NS / 20).await;
        first
    });
    let log_at = (MIB..64 * MIB)
        .step_by(4096)
        .find(|at| rig.simulation.peek(rig.fast, *at, 4) == *b"BMlr")
        .expect("there is a log");
    assert_eq!(rig.simulation.peek(rig.fast, log_at + 8, 8), first.to_le_bytes());
    rig.simulation.poke(rig.fast, log_at + 20, &[0xaa]);
    rig.run(|io, fast, slow| async move {
        let opened = Engine::open(&io, &fast, &slow, OpenOptions::default()).await;
        let Ok(engine) = opened else { return };
        let (buf, outcome) = engine.read(64 * MIB, io.pool().take(4096)).await;
        let kept = outcome.is_err() || buf[..] == pattern(64 * MIB, 4096, 1);
        assert!(kept, "flushed data is gone without a word");
    });
}

/// A disk that takes seconds over a read, as one does that retries a weak sector.
struct Retrying;

impl Model for Retrying {
    fn submit(&mut self, now_ns: u64, _: u64, request: &Request) -> Option<u64> {
        Some(now_ns + if request.kind == Kind::Read { 7 * SECOND_NS } else { MILLISECOND_NS })
    }

    fn duplicate(&self) -> Box<dyn Model> {
        Box::new(Retrying)
    }

    fn reset(&mut self) {}
}

#[test]
fn a_read_that_takes_long_does_not_lock_a_full_log_for_ever() {
    let rig = Rig::sized(115, 32 * MIB, 128 * MIB, 512);
    rig.create();
    rig.run(|io, fast, slow| {
        let (simulation, id) = (rig.simulation.clone(), rig.slow);
        async move {
            let engine = open(&io, &fast, &slow).await;
            let size = engine.info().size_bytes;
            for at in (0..size).step_by(1 << 20) {
                put(&io, &engine, at, (1 << 20).min(size - at) as usize, 1).await;
            }
            engine.trim(0, EXTENT as u64, Durability::Volatile).await.unwrap();
            engine.flush().await.unwrap();
            io.sleep(5 * SECOND_NS).await;
            simulation.set_model(id, Box::new(Retrying));
            let reader = (io.clone(), engine.clone());
            io.spawn(async move { drop(get(&reader.0, &reader.1, size - MIB, 4096).await) });
            io.sleep(MILLISECOND_NS).await;
            // A block of an extent without a home, while every free slot is used up for fresh
            // copies: what they replace comes back only when the read has ended.
            put(&io, &engine, 0, 4096, 2).await;
            let free = |tier: usize| engine.status().drives[tier].slots_free;
            let mut n = 0;
            while free(0) + free(1) > 0 {
                n += 1;
                let at = if free(0) > 0 { n } else { 1000 + n } * EXTENT as u64;
                let wanted = if free(0) > 0 { io::Place::Fast } else { io::Place::Slow };
                if engine.places(at, EXTENT as u64, 1)[0].place == wanted {
                    put(&io, &engine, at, EXTENT, 2).await;
                }
            }
            let writer = {
                let (io, engine) = (io.clone(), engine.clone());
                async move {
                    for n in 0..2 * RING_BLOCKS {
                        put(&io, &engine, 4096, 4096, n).await;
                    }
                }
            };
            let ended = ends_within(&io, 60 * SECOND_NS, writer).await;
            let log = engine.status().log;
            assert!(ended, "the log stays full for ever: {log:?}");
        }
    });
}

#[test]
fn trimming_parts_of_extents_keeps_to_the_memory_that_was_announced() {
    let rig = Rig::sized(116, 64 * MIB, 1024 * MIB, 4096);
    rig.create();
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        let size = engine.info().size_bytes;
        for at in (0..size).step_by(1 << 20) {
            put(&io, &engine, at, (1 << 20).min(size - at) as usize, 1).await;
        }
        io.sleep(5 * SECOND_NS).await;
        let status = engine.status();
        let announced = status.geometry.map_memory_bytes() + status.geometry.log_memory_bytes_max();
        // As a file system trims that has many small holes.
        for at in (0..size).step_by(EXTENT) {
            engine.trim(at + 4096, EXTENT as u64 - 4096, Durability::Volatile).await.unwrap();
        }
        let taken = engine.status().memory_bytes;
        assert!(taken < 4 * announced, "{taken} bytes, announced were {announced}");
    });
}
