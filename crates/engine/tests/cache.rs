//! Class cache on two drives: what is where, what an unreadable sector costs, and what a drive that
//! is gone leaves.

mod rig;

use std::cell::Cell;
use std::rc::Rc;

use engine::{CacheMode, Class, Engine, Error, OpenOptions, TuningChange, attach_cache};
use io::units::{MIB, SECOND_NS};
use io::{Io, Place, Volume};
use rig::{EXTENT, Rig, expect, get, pattern, promote, put};
use twin::{CacheLoss, CutPoint, Moment, Outcome, Simulation};

const EXTENT_BYTES: u64 = EXTENT as u64;

fn rig(seed: u64, cache_mode: CacheMode) -> Rig {
    let rig = Rig::small(seed);
    rig.create_cache(cache_mode);
    rig
}

/// The bytes that slots take on a drive.
fn slots(engine: &Engine, drive: usize) -> std::ops::Range<u64> {
    let layout = engine.status().geometry.layouts[drive];
    layout.slots_at..layout.slots_at + layout.slots * EXTENT_BYTES
}

#[test]
fn a_volume_is_as_large_as_its_slow_drive_s_slots() {
    rig(1, CacheMode::WriteBack).session(|_, engine| async move {
        let geometry = engine.status().geometry;
        assert_eq!(geometry.class, Class::Cache);
        assert_eq!(geometry.extents(), geometry.layouts[1].slots);
    });
}

#[test]
fn every_extent_is_at_its_own_place_on_the_slow_drive() {
    let rig = rig(2, CacheMode::WriteThrough);
    let slots_at = rig.session(|io, engine| async move {
        for extent in [0, 7, 300] {
            put(&io, &engine, extent * EXTENT_BYTES + 4096, 8192, 3).await;
        }
        engine.flush().await.unwrap();
        assert_eq!(engine.status().dirty_bytes, 0);
        slots(&engine, 1).start
    });
    for extent in [0, 7, 300] {
        let at = extent * EXTENT_BYTES + 4096;
        assert_eq!(rig.simulation.peek(rig.slow, slots_at + at, 8192), pattern(at, 8192, 3));
    }
    rig.assert_sound();
}

#[test]
fn a_copy_that_cannot_be_read_is_read_from_its_home_and_given_up() {
    for mode in [CacheMode::WriteBack, CacheMode::WriteThrough] {
        let rig = rig(3, mode);
        let (simulation, fast) = (rig.simulation.clone(), rig.fast);
        rig.session(|io, engine| async move {
            put(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 1).await;
            engine.set_cache_mode(CacheMode::WriteThrough).await.unwrap();
            engine.flush().await.unwrap();
            engine.set_cache_mode(mode).await.unwrap();
            io.sleep(2 * SECOND_NS).await;
            if engine.places(5 * EXTENT_BYTES, EXTENT_BYTES, 9)[0].place != Place::Fast {
                promote(&io, &engine, 5).await;
            }
            simulation.set_unreadable(fast, slots(&engine, 0));
            expect(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 1).await;
            io.sleep(2 * SECOND_NS).await;
            assert_eq!(engine.places(5 * EXTENT_BYTES, EXTENT_BYTES, 9)[0].place, Place::Slow);
            expect(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 1).await;
        });
        rig.assert_sound();
    }
}

#[test]
fn a_home_that_cannot_be_read_does_not_matter_while_there_is_a_copy() {
    let rig = rig(4, CacheMode::WriteThrough);
    let (simulation, slow) = (rig.simulation.clone(), rig.slow);
    rig.session(|io, engine| async move {
        put(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 1).await;
        engine.flush().await.unwrap();
        promote(&io, &engine, 5).await;
        let home = slots(&engine, 1).start + 5 * EXTENT_BYTES;
        simulation.set_unreadable(slow, home..home + EXTENT_BYTES);
        expect(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 1).await;
        // What is written over it can be read again, from either.
        put(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 2).await;
        engine.flush().await.unwrap();
        expect(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 2).await;
    });
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let engine = rig.open_slow_alone(&io, OpenOptions::default()).await.unwrap();
            expect(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 2).await;
        }
    });
}

#[test]
fn what_only_the_log_has_is_bounded_in_write_through() {
    rig(7, CacheMode::WriteThrough).session(|io, engine| async move {
        let mut most = 0;
        for n in 0..400 {
            put(&io, &engine, n % 40 * EXTENT_BYTES + n * 512 / 4096 * 4096, 16_384, n).await;
            most = most.max(engine.status().dirty_bytes);
        }
        // Half of the smallest log.
        assert!(most <= 2 * MIB, "{most}");
    });
}

#[test]
fn what_only_the_fast_drive_has_is_told_and_how_hot_it_is() {
    rig(31, CacheMode::WriteBack).session(|io, engine| async move {
        let worth = |at: u64, length: u64| engine.worths(at, length, 99);
        assert_eq!(worth(0, MIB), [io::Worth { length: MIB, dirty: false, heat: 0 }]);
        put(&io, &engine, 2 * EXTENT_BYTES, 4096, 1).await;
        let runs = worth(2 * EXTENT_BYTES, EXTENT_BYTES);
        assert_eq!((runs[0].length, runs[0].dirty), (4096, true), "{runs:?}");
        assert!(runs[1..].iter().all(|run| !run.dirty), "{runs:?}");
        // At most so many are told.
        assert_eq!(engine.worths(0, 8 * EXTENT_BYTES, 1).len(), 1);
    });
    rig(32, CacheMode::WriteThrough).session(|io, engine| async move {
        put(&io, &engine, 2 * EXTENT_BYTES, EXTENT, 1).await;
        engine.flush().await.unwrap();
        // Read often it comes to the fast drive, and the slow one has it all the same.
        promote(&io, &engine, 2).await;
        let runs = engine.worths(2 * EXTENT_BYTES, EXTENT_BYTES, 99);
        assert_eq!(
            (runs.len(), runs[0].length, runs[0].dirty),
            (1, EXTENT_BYTES, false),
            "{runs:?}"
        );
        assert!(runs[0].heat >= 32, "{runs:?}");
    });
}

/// Writes without a rest until it is told to end.
async fn keep_writing(io: &Io, engine: &Engine, over: &std::cell::Cell<bool>) -> u64 {
    let mut version = 2;
    while !over.get() {
        for extent in 0..12 {
            put(io, engine, extent * EXTENT_BYTES + version % 32 * 4096, 4096, version).await;
        }
        version += 1;
    }
    version - 1
}

#[test]
fn everything_comes_home_while_clients_go_on_and_it_can_be_ended() {
    let rig = rig(20, CacheMode::WriteBack);
    rig.session(|io, engine| async move {
        for extent in 0..100 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        assert!(engine.status().dirty_bytes > 80 * EXTENT_BYTES);
        let over = Rc::new(Cell::new(false));
        let writer = {
            let (io, engine, over) = (io.clone(), engine.clone(), over.clone());
            async move { keep_writing(&io, &engine, &over).await }
        };
        let last = std::rc::Rc::new(std::cell::Cell::new(0));
        let told = last.clone();
        io.spawn(async move { told.set(writer.await) });
        // Ended at once, it says so, and the volume is as it was.
        let ending = engine.clone();
        let wait = io.clone();
        io.spawn(async move {
            wait.sleep(SECOND_NS / 50).await;
            ending.cancel_homecoming();
        });
        let ended = engine.bring_home().await;
        assert!(
            matches!(&ended, Err(Error::Unsuitable(text)) if text.contains("ended")),
            "{ended:?}"
        );
        engine.bring_home().await.unwrap();
        // What is dirty now was written since, by a writer with a dozen extents.
        assert!(
            engine.status().dirty_bytes <= 13 * EXTENT_BYTES,
            "{}",
            engine.status().dirty_bytes
        );
        assert_eq!(engine.status().cache_mode, Some(CacheMode::WriteBack));
        over.set(true);
        while last.get() == 0 {
            io.sleep(SECOND_NS / 100).await;
        }
        engine.bring_home().await.unwrap();
        assert_eq!(engine.status().dirty_bytes, 0);
        for extent in 12..100 {
            expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        let block = last.get() % 32 * 4096;
        for extent in 0..12 {
            expect(&io, &engine, extent * EXTENT_BYTES + block, 4096, last.get()).await;
        }
    });
    rig.assert_sound();
}

#[test]
fn dirty_copies_go_home_while_clients_rest_and_stay_as_clean_ones() {
    let rig = rig(21, CacheMode::WriteBack);
    let homes = rig.killed_session(|io, engine| async move {
        for extent in 0..40 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        assert_eq!(engine.status().dirty_bytes, 40 * EXTENT_BYTES);
        // What is written again and again stays dirty: with a clean copy it would be written twice.
        for n in 0..120 {
            put(&io, &engine, 7 * EXTENT_BYTES, 4096, 2 + n).await;
            io.sleep(SECOND_NS / 2).await;
        }
        assert_eq!(engine.status().dirty_bytes, EXTENT_BYTES);
        io.sleep(20 * SECOND_NS).await;
        let status = engine.status();
        assert_eq!((status.dirty_bytes, status.moves.cleaned_bytes), (0, 40 * EXTENT_BYTES));
        assert_eq!(status.moves.demoted_bytes, 0);
        for extent in 0..40 {
            let places = engine.places(extent * EXTENT_BYTES, EXTENT_BYTES, 9);
            assert_eq!(places[0].place, Place::Fast);
        }
        slots(&engine, 1).start
    });
    let at = 9 * EXTENT_BYTES;
    assert!(rig.simulation.peek(rig.slow, homes + at, EXTENT) == pattern(at, EXTENT, 1));
    // The slow drive knows it too: without the fast one, in write-back, all can be read.
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let options = OpenOptions { degraded: true, ..OpenOptions::default() };
            let engine = rig.open_slow_alone(&io, options).await.unwrap();
            assert_eq!(engine.lost_ranges(0, 40 * EXTENT_BYTES), []);
            expect(&io, &engine, 7 * EXTENT_BYTES, 4096, 121).await;
            expect(&io, &engine, 9 * EXTENT_BYTES, EXTENT, 1).await;
        }
    });
}

#[test]
fn cleaning_leaves_half_of_the_slow_drive_s_time_and_a_sleeping_one_alone() {
    let rig = rig(22, CacheMode::WriteBack);
    let (simulation, slow) = (rig.simulation.clone(), rig.slow);
    rig.session(|io, engine| async move {
        engine.tune(TuningChange::Quiet(true)).await.unwrap();
        for extent in 0..160 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        let dirty = engine.status().dirty_bytes;
        io.sleep(60 * SECOND_NS).await;
        assert_eq!((engine.status().dirty_bytes, engine.status().moves.cleaned_bytes), (dirty, 0));
        engine.tune(TuningChange::Quiet(false)).await.unwrap();
        let (begun_ns, before) = (io.now_ns(), simulation.counters(slow));
        while engine.status().dirty_bytes > 0 {
            io.sleep(SECOND_NS / 100).await;
        }
        let took_ns = io.now_ns() - begun_ns;
        let writes = simulation.counters(slow).writes - before.writes;
        // Each waits for the fast drive's reads and flushes too, so it is less than half.
        assert!(took_ns < 60 * SECOND_NS, "{took_ns}");
        assert!(writes >= dirty / EXTENT_BYTES, "{writes}");
        let busy = simulation.counters(slow).busy_ns - before.busy_ns;
        assert!(2 * busy <= took_ns + SECOND_NS / 10, "{busy} of {took_ns}");
    });
}

#[test]
fn a_copy_that_cannot_be_read_does_not_keep_others_from_going_home() {
    let rig = rig(23, CacheMode::WriteBack);
    let (simulation, fast) = (rig.simulation.clone(), rig.fast);
    rig.session(|io, engine| async move {
        for extent in 0..24 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        // Of one of the extents: the first slot that was taken.
        let first = slots(&engine, 0).start;
        simulation.set_unreadable(fast, first..first + 4096);
        io.sleep(120 * SECOND_NS).await;
        assert_eq!(engine.status().dirty_bytes, EXTENT_BYTES);
        for extent in 0..24 {
            let read = engine.read(extent * EXTENT_BYTES, io.pool().take(EXTENT)).await.1;
            if read.is_err() {
                put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 2).await;
            }
        }
        // It is tried again, later each time.
        io.sleep(600 * SECOND_NS).await;
        assert_eq!(engine.status().dirty_bytes, 0);
    });
}

#[test]
fn in_write_around_reads_fill_the_fast_drive_and_writes_leave_it() {
    let rig = rig(24, CacheMode::WriteAround);
    let fast_slots = rig.session(|io, engine| async move {
        for extent in 0..4 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        promote(&io, &engine, 1).await;
        promote(&io, &engine, 2).await;
        assert_eq!(engine.status().dirty_bytes, 0);
        put(&io, &engine, EXTENT_BYTES + 8192, 4096, 2).await;
        engine.flush().await.unwrap();
        assert_eq!(engine.status().dirty_bytes, 0);
        let place = |extent: u64| engine.places(extent * EXTENT_BYTES, 4096, 1)[0].place;
        assert_eq!([place(1), place(2)], [Place::Slow, Place::Fast]);
        // From now on it is written where it lives, past the fast drive.
        let before = engine.status().served;
        put(&io, &engine, EXTENT_BYTES + 16384, 4096, 3).await;
        engine.flush().await.unwrap();
        let after = engine.status().served;
        assert_eq!(after.slow_bytes - before.slow_bytes, 4096);
        assert_eq!((after.log_bytes, after.fast_bytes), (before.log_bytes, before.fast_bytes));
        expect(&io, &engine, EXTENT_BYTES + 8192, 4096, 2).await;
        expect(&io, &engine, EXTENT_BYTES, 4096, 1).await;
        // In write-through a copy is changed, and stays.
        engine.set_cache_mode(CacheMode::WriteThrough).await.unwrap();
        put(&io, &engine, 2 * EXTENT_BYTES, 4096, 2).await;
        engine.flush().await.unwrap();
        assert_eq!(place(2), Place::Fast);
        engine.set_cache_mode(CacheMode::WriteAround).await.unwrap();
        put(&io, &engine, 2 * EXTENT_BYTES, 4096, 3).await;
        engine.flush().await.unwrap();
        assert_eq!(place(2), Place::Slow);
        slots(&engine, 0)
    });
    rig.assert_sound();
    // The mode is kept, and nothing is lost with the fast drive.
    rig.simulation.set_unreadable(rig.fast, fast_slots);
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let engine = rig.open_slow_alone(&io, OpenOptions::default()).await.unwrap();
            assert_eq!(engine.status().cache_mode, Some(CacheMode::WriteAround));
            assert!(engine.status().alone && !engine.info().read_only);
            expect(&io, &engine, EXTENT_BYTES + 16384, 4096, 3).await;
            expect(&io, &engine, 2 * EXTENT_BYTES, 4096, 3).await;
            put(&io, &engine, 0, 4096, 4).await;
            engine.close().await.unwrap();
        }
    });
    rig.run(|io, fast, slow| async move {
        attach_cache(&io, &fast, &slow).await.unwrap();
    });
    rig.session(|io, engine| async move {
        assert_eq!(engine.status().cache_mode, Some(CacheMode::WriteAround));
        expect(&io, &engine, 0, 4096, 4).await;
    });
}

#[test]
fn blocks_that_leave_the_log_go_up_alone_and_are_where_they_are_said_to_be() {
    let rig = rig(30, CacheMode::WriteThrough);
    let check = |engine: Engine, io: Io| async move {
        for extent in 0..6 {
            let (at, version) = (extent * EXTENT_BYTES, if extent < 4 { 2 } else { 1 });
            expect(&io, &engine, at, 3 * 4096, 1).await;
            expect(&io, &engine, at + 3 * 4096, 8192, version).await;
            expect(&io, &engine, at + 5 * 4096, EXTENT - 5 * 4096, 1).await;
        }
        let status = engine.status();
        assert_eq!((status.extents_in_part, status.part_bytes), (4, 4 * 8192));
        assert_eq!(status.dirty_bytes, 4 * 8192, "the blocks, and nothing in the log");
        let places = engine.places(0, EXTENT_BYTES, 9);
        let told: Vec<_> = places.iter().map(|span| (span.place, span.length)).collect();
        let (before, above) = (3 * 4096, 2 * 4096);
        let behind = EXTENT_BYTES - before - above;
        let all = [(Place::Slow, before), (Place::Fast, above), (Place::Slow, behind)];
        assert_eq!(told, all);
    };
    rig.session(|io, engine| async move {
        for extent in 0..6 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.set_cache_mode(CacheMode::WriteBack).await.unwrap();
        for extent in 0..4 {
            put(&io, &engine, extent * EXTENT_BYTES + 3 * 4096, 8192, 2).await;
        }
        engine.flush().await.unwrap();
        let reads = engine.status().drives[1].traffic.reads;
        io.sleep(SECOND_NS).await;
        assert_eq!(engine.status().drives[1].traffic.reads, reads, "nothing was read for it");
        check(engine, io).await;
    });
    rig.session(|io, engine| check(engine, io));
    rig.assert_sound();
    // Of an extent in part no drive has all.
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let options = OpenOptions { degraded: true, ..OpenOptions::default() };
            let engine = rig.open_slow_alone(&io, options).await.unwrap();
            let lost = engine.lost_ranges(0, 6 * EXTENT_BYTES);
            let bytes: u64 = lost.iter().map(|range| range.length).sum();
            assert_eq!((lost[0].at, bytes), (0, 4 * EXTENT_BYTES), "{lost:?}");
            expect(&io, &engine, 4 * EXTENT_BYTES, EXTENT, 1).await;
        }
    });
    // At rest the blocks go home, and the slots are free.
    rig.session(|io, engine| async move {
        io.sleep(30 * SECOND_NS).await;
        let status = engine.status();
        assert_eq!((status.extents_in_part, status.dirty_bytes), (0, 0));
        assert_eq!(status.drives[0].slots_free, status.drives[0].slots);
        expect(&io, &engine, 3 * 4096, 8192, 2).await;
    });
}

#[test]
fn what_came_home_out_of_parts_the_slow_drive_vouches_for_after_a_while() {
    let rig = rig(31, CacheMode::WriteThrough);
    rig.killed_session(|io, engine| async move {
        for extent in 0..20 {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.set_cache_mode(CacheMode::WriteBack).await.unwrap();
        for extent in 0..20 {
            put(&io, &engine, extent * EXTENT_BYTES, 4096, 2).await;
        }
        engine.flush().await.unwrap();
        // Both drives' maps know of the parts then. They go home, and the process dies a while later.
        io.sleep(6 * SECOND_NS).await;
        assert_eq!(engine.status().extents_in_part, 20);
        io.sleep(180 * SECOND_NS).await;
        assert_eq!(engine.status().extents_in_part, 0);
    });
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let options = OpenOptions { degraded: true, ..OpenOptions::default() };
            let engine = rig.open_slow_alone(&io, options).await.unwrap();
            assert_eq!(engine.lost_ranges(0, 20 * EXTENT_BYTES), []);
            for extent in 0..20 {
                expect(&io, &engine, extent * EXTENT_BYTES, 4096, 2).await;
            }
        }
    });
}

/// Where the fast drive has an extent whose content `pattern` made in this version.
fn copy_at(rig: &Rig, engine: &Engine, extent: u64, version: u64) -> u64 {
    let begins = pattern(extent * EXTENT_BYTES, 64, version);
    let range = slots(engine, 0);
    let places = (range.start..range.end).step_by(EXTENT);
    let mut found = places.filter(|at| rig.simulation.peek(rig.fast, *at, 64) == begins);
    found.next().expect("the fast drive has a copy")
}

#[test]
fn of_two_neighbours_one_bad_above_and_one_bad_below_both_are_read_and_kept() {
    let rig = rig(31, CacheMode::WriteThrough);
    rig.session(|io, engine| {
        let rig = &rig;
        async move {
            for extent in [5, 6] {
                put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
            }
            engine.flush().await.unwrap();
            for extent in [5, 6] {
                promote(&io, &engine, extent).await;
            }
            let copies = [5, 6].map(|extent| copy_at(rig, &engine, extent, 1));
            assert_eq!(copies[0] + EXTENT_BYTES, copies[1], "one read has both");
            let home = slots(&engine, 1).start + 6 * EXTENT_BYTES;
            let bad = [(rig.fast, copies[0]), (rig.slow, home)];
            for (drive, at) in bad {
                rig.simulation.set_unreadable(drive, at..at + EXTENT_BYTES);
            }
            for _ in 0..2 {
                expect(&io, &engine, 5 * EXTENT_BYTES, 2 * EXTENT, 1).await;
                io.sleep(30 * SECOND_NS).await;
            }
        }
    });
}

/// Pages of the map; one extent of each is written, and of the last one more and more.
const PAGES: u64 = 257;
const EXTENTS_PER_PAGE: u64 = 504;

#[test]
fn in_write_through_a_flush_tells_the_slow_drive_of_holes_filled_though_more_are_filled_meanwhile()
{
    let rig = Rig::sized(32, 64 * MIB, (PAGES + 1) * EXTENTS_PER_PAGE * EXTENT_BYTES, 4096);
    rig.create_cache(CacheMode::WriteThrough);
    let last = (PAGES - 1) * EXTENTS_PER_PAGE;
    rig.killed_session(|io, engine| async move {
        for page in 0..PAGES {
            put(&io, &engine, page * EXTENTS_PER_PAGE * EXTENT_BYTES, EXTENT, 1).await;
        }
        let over = std::rc::Rc::new(std::cell::Cell::new(false));
        let (writer, ended) = (engine.clone(), over.clone());
        let client = io.clone();
        io.spawn(async move {
            for extent in last + 1..last + 500 {
                if ended.get() {
                    break;
                }
                put(&client, &writer, extent * EXTENT_BYTES, EXTENT, 1).await;
            }
        });
        engine.flush().await.unwrap();
        over.set(true);
    });
    rig.simulation.power_cut(CacheLoss::LoseAll);
    let io = rig.simulation.boot();
    rig.simulation
        .run(&io, async {
            let options = OpenOptions { degraded: true, ..OpenOptions::default() };
            let engine = rig.open_slow_alone(&io, options).await.unwrap();
            for page in 0..PAGES {
                let at = page * EXTENTS_PER_PAGE * EXTENT_BYTES;
                expect(&io, &engine, at, EXTENT, 1).await;
            }
        })
        .done();
}

/// More than the fast drive takes.
const LAID: u64 = 400;

/// An extent that is new below, has proved itself and gone up, while nobody has flushed; then a block of it
/// that is flushed, and everything goes home. Says when the flush has ended.
async fn home_from_a_new_slot(io: &Io, engine: &Engine, flushed: &Cell<bool>) {
    let new = LAID + 100;
    put(io, engine, new * EXTENT_BYTES, EXTENT, 1).await;
    let place = || engine.places(new * EXTENT_BYTES, EXTENT_BYTES, 9)[0].place;
    assert_eq!(place(), Place::Slow);
    for round in 0..8 {
        get(io, engine, new * EXTENT_BYTES + round * 12_288, 4096).await;
        io.sleep(SECOND_NS / 1000).await;
    }
    // Others take its place in memory.
    for other in LAID - 60..LAID {
        get(io, engine, other * EXTENT_BYTES, 4096).await;
        io.sleep(SECOND_NS / 5000).await;
    }
    assert_eq!(place(), Place::Fast, "it has not gone up");
    put(io, engine, new * EXTENT_BYTES + 8192, 4096, 2).await;
    engine.flush().await.unwrap();
    flushed.set(true);
    engine.bring_home().await.unwrap();
}

#[test]
fn a_slot_that_was_just_given_is_not_written_again_before_its_record_is_safe() {
    let rig = rig(33, CacheMode::WriteBack);
    rig.session(|io, engine| async move {
        for extent in 0..LAID {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        io.sleep(30 * SECOND_NS).await;
    });
    let before = rig.simulation.snapshot();
    for operation in 0.. {
        let simulation = Simulation::wake(&before);
        let rig = Rig { simulation: simulation.clone(), fast: rig.fast, slow: rig.slow };
        simulation.arm_cut(CutPoint { operation, moment: Moment::Completed });
        let io = simulation.boot();
        let (fast, slow) = rig.devices(&io);
        let flushed = Cell::new(false);
        let outcome = simulation.run(&io, async {
            let engine = rig::open(&io, &fast, &slow).await;
            home_from_a_new_slot(&io, &engine, &flushed).await
        });
        if outcome == Outcome::Done(()) {
            assert!(operation > 30, "the session had {operation} operations only");
            break;
        }
        drop(io);
        simulation.power_cut(CacheLoss::KeepAll);
        rig.session(|io, engine| {
            let flushed = flushed.get();
            async move {
                expect(&io, &engine, 20 * EXTENT_BYTES, EXTENT, 1).await;
                if flushed {
                    let at = (LAID + 100) * EXTENT_BYTES;
                    expect(&io, &engine, at, 8192, 1).await;
                    expect(&io, &engine, at + 8192, 4096, 2).await;
                    expect(&io, &engine, at + 12_288, 4096, 1).await;
                }
            }
        });
    }
}
