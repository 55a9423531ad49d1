//! What lives in a log that is full of the dead is carried to its end: what comes of that, and of drives that
//! refuse a request in that moment.

mod rig;

use std::cell::Cell;
use std::rc::Rc;

use engine::{CreateOptions, Engine, Tuning, create};
use io::units::{GIB, KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, ErrorKind, Io, Volume};
use rig::{EXTENT, expect, put};
use twin::{DriveId, DriveSpec, Kind, Profile, Random, Simulation};

const BYTES: u64 = EXTENT as u64;
/// Blocks that are written once, each in an extent of its own that lives below. Less than a quarter of the log.
const ONCE: u64 = 150;
/// The blocks of 4 MiB of log.
const RING_BLOCKS: u64 = 1024;
/// The records of a place that is written again and again are 16 blocks each.
const RECORD_BLOCKS: u64 = 16;

fn spec(profile: &str, size_bytes: u64) -> DriveSpec {
    let twin = Profile::named(profile).unwrap().spec(profile);
    DriveSpec { size_bytes, atomic_write_bytes: 4096, cache_bytes: 0, ..twin }
}

/// Where the block is.
fn once(n: u64) -> u64 {
    (1000 + 2 * n) * BYTES + n % 32 * 4096
}

struct World {
    io: Io,
    engine: Engine,
    simulation: Simulation,
    fast: DriveId,
    /// Somebody reads from the slow drive until then: else it would have the time to take what is carried.
    over: Rc<Cell<bool>>,
}

impl World {
    /// Writes one place again and again, so many records; the first failure ends it.
    async fn again(&self, records: u64) -> Result<(), engine::Error> {
        for _ in 0..records {
            let buf = self.io.pool().take_zeroed(60 * KIB as usize);
            self.engine.write(900 * BYTES, buf, Durability::Volatile).await.1?;
        }
        Ok(())
    }

    fn carried_blocks(&self) -> u64 {
        self.engine.status().moves.carried_bytes / 4096
    }

    fn destaged_blocks(&self) -> u64 {
        self.engine.status().moves.destaged_bytes / 4096
    }
}

/// Fills a volume, writes what is written once, and plays, with somebody who reads below.
fn play<T, F: Future<Output = T>>(
    tuning: Tuning,
    reads: bool,
    act: impl FnOnce(Rc<World>) -> F,
) -> T {
    let landing_bytes = Some(RING_BLOCKS * 4096);
    let options = CreateOptions { tuning, landing_bytes, ..CreateOptions::new("test") };
    let simulation = Simulation::new(7);
    let fast = simulation.add_drive(spec("imac-fusion-ssd", 96 * MIB));
    let slow = simulation.add_drive(spec("imac-fusion-disk", GIB));
    let io = simulation.boot();
    let devices = [fast, slow].map(|drive| simulation.device(&io, drive));
    let value = simulation.run(&io, async {
        create(&io, &devices[0], &devices[1], options, &|_, _| ()).await.unwrap();
        let engine = rig::open(&io, &devices[0], &devices[1]).await;
        for at in (0..GIB * 8 / 10).step_by(MIB as usize) {
            let buf = io.pool().take_zeroed(MIB as usize);
            engine.write(at, buf, Durability::Volatile).await.1.unwrap();
        }
        engine.flush().await.unwrap();
        io.sleep(60 * SECOND_NS).await;
        for n in 0..ONCE {
            put(&io, &engine, once(n), 4096, n).await;
        }
        engine.flush().await.unwrap();
        let over = Rc::new(Cell::new(!reads));
        let world =
            Rc::new(World { io: io.clone(), engine, simulation: simulation.clone(), fast, over });
        let reader = world.clone();
        io.spawn(async move {
            let mut random = Random::new(1);
            while !reader.over.get() {
                let at = (2000 + random.below(4000)) * BYTES;
                reader.engine.read(at, reader.io.pool().take(4096)).await.1.unwrap();
            }
        });
        io.sleep(50 * MILLISECOND_NS).await;
        let value = act(world.clone()).await;
        world.over.set(true);
        // A volume that has stopped says so once more.
        let _ = world.engine.close().await;
        value
    });
    let value = value.done();
    io.drop_tasks();
    io.drain();
    value
}

/// Six times the log of what is written again and again. Blocks carried and blocks destaged meanwhile.
fn six_logs(tuning: Tuning, reads: bool) -> (u64, u64) {
    play(tuning, reads, |world| async move {
        world.again(6 * RING_BLOCKS / RECORD_BLOCKS).await.unwrap();
        let moved = (world.carried_blocks(), world.destaged_blocks());
        for n in 0..ONCE {
            expect(&world.io, &world.engine, once(n), 4096, n).await;
        }
        world.over.set(true);
        world.io.sleep(60 * SECOND_NS).await;
        assert_eq!(world.engine.status().log.dirty_bytes, 0, "all is home when clients rest");
        moved
    })
}

#[test]
fn what_is_written_once_stays_in_a_log_that_is_full_of_the_dead() {
    let (carried, destaged) = six_logs(Tuning::default(), true);
    println!("carried {carried}, destaged {destaged}");
    assert_eq!(destaged, 0);
    // Twice a turn of the ring, since it is emptied from half of it on, and less than is written meanwhile.
    assert!(carried > 6 * ONCE && carried < 6 * RING_BLOCKS / 2, "{carried}");
}

#[test]
fn nothing_is_carried_beside_a_slow_drive_that_nobody_wants_unless_it_shall_sleep() {
    let (carried, destaged) = six_logs(Tuning::default(), false);
    assert!(carried == 0 && destaged >= ONCE, "{carried} carried, {destaged} destaged");
    let (carried, destaged) = six_logs(Tuning { quiet: true, ..Tuning::default() }, false);
    assert!(carried > 6 * ONCE && destaged == 0, "{carried} carried, {destaged} destaged");
}

#[test]
fn what_the_fast_drive_may_be_written_a_day_counts_for_what_is_carried() {
    let spent = Tuning { wear_bytes_per_day: Some(1), ..Tuning::default() };
    let (carried, destaged) = six_logs(spent, true);
    assert!(carried == 0 && destaged >= ONCE, "{carried} carried, {destaged} destaged");
}

#[test]
fn a_read_that_fails_while_blocks_are_carried_stops_nobody() {
    for strike in 1..=6 {
        play(Tuning::default(), true, |world| async move {
            // So many at once that some wait for room.
            let left = Rc::new(Cell::new(4));
            for client in 0..4 {
                let (world, left) = (world.clone(), left.clone());
                world.io.clone().spawn(async move {
                    for _ in 0..100 {
                        let buf = world.io.pool().take_zeroed(508 * KIB as usize);
                        let at = (900 + 4 * client) * BYTES + 4096;
                        world.engine.write(at, buf, Durability::Volatile).await.1.unwrap();
                    }
                    left.set(left.get() - 1);
                });
            }
            let mut struck = false;
            while left.get() > 0 {
                if !struck && world.carried_blocks() > strike * 50 {
                    world.simulation.fail_next(world.fast, Kind::Read, 1, ErrorKind::Io);
                    struck = true;
                }
                world.io.sleep(MILLISECOND_NS / 10).await;
            }
            assert!(struck, "nothing was carried");
            assert!(world.engine.status().poisoned.is_none());
        });
    }
}

#[test]
fn what_was_carried_is_readable_when_the_log_cannot_be_written_any_more() {
    for strike in 1..=4 {
        play(Tuning::default(), true, |world| async move {
            let ended = Rc::new(Cell::new(false));
            let (writer, ends) = (world.clone(), ended.clone());
            world.io.spawn(async move {
                let failed = writer.again(10_000).await.is_err();
                assert!(failed, "no write of the log was struck");
                ends.set(true);
            });
            let mut seen = 0;
            let mut last = 0;
            while !ended.get() {
                let now = world.carried_blocks();
                if now > last {
                    (last, seen) = (now, seen + 1);
                    if seen == strike * 3 {
                        world.over.set(true);
                        world.simulation.fail_next(world.fast, Kind::Write, 1, ErrorKind::Io);
                    }
                }
                world.io.sleep(10_000).await;
            }
            for n in 0..ONCE {
                expect(&world.io, &world.engine, once(n), 4096, n).await;
            }
        });
    }
}
