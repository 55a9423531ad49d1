//! Drives that are wrong, damaged, swapped, old or full: a clear refusal or a repair, never a panic
//! and never wrong data.

mod rig;

use engine::{CreateOptions, Error, OpenOptions, TuningChange, Wish, create};
use io::units::{GIB, KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, ErrorKind, Place, Volume};
use rig::*;
use twin::{CacheLoss, DriveSpec, Fault, Kind, Simulation};

fn mismatch(error: Error) -> String {
    match error {
        Error::Mismatch(text) | Error::Unfit { problem: text, .. } => text,
        other => panic!("expected a mismatch, got {other:?}"),
    }
}

fn filled(seed: u64) -> Rig {
    let rig = Rig::small(seed);
    rig.create();
    rig.session(|io, engine| async move {
        // First what stays in the log, so that its tail does not move.
        put(&io, &engine, 4 * MIB, 4096, 1).await;
        put(&io, &engine, 0, 1 << 20, 1).await;
    });
    rig
}

fn assert_content(rig: &Rig) {
    rig.session(|io, engine| async move {
        expect(&io, &engine, 0, 1 << 20, 1).await;
        expect(&io, &engine, 4 * MIB, 4096, 1).await;
    });
}

#[test]
fn blank_drives_are_no_volume() {
    let rig = Rig::small(1);
    let error = rig.open_error();
    assert!(matches!(&error, Error::NotAMember { path, .. } if path == "fast"), "{error}");
}

#[test]
fn drives_that_are_too_small_or_empty_are_refused_before_anything_is_written() {
    for (fast, slow) in [(0, GIB), (512, GIB), (6 * MIB, GIB), (GIB, 0), (16 * MIB, 4 * MIB)] {
        let rig = Rig::sized(1, fast, slow, 512);
        let error = rig.run(|io, fast, slow| async move {
            let options = CreateOptions::new("v");
            create(&io, &fast, &slow, options, &|_, _| ()).await.unwrap_err()
        });
        assert!(matches!(error, Error::Geometry(_)), "{error}");
        assert_eq!(rig.simulation.counters(rig.fast).writes, 0);
        assert_eq!(rig.simulation.counters(rig.slow).writes, 0);
        assert!(matches!(rig.open_error(), Error::NotAMember { .. }));
    }
}

#[test]
fn swapped_drives_are_recognised_and_work_again_the_right_way_round() {
    let rig = filled(2);
    let swapped = Rig { simulation: rig.simulation.clone(), fast: rig.slow, slow: rig.fast };
    assert!(mismatch(swapped.open_error()).contains("swapped"));
    assert_content(&rig);
}

#[test]
fn a_drive_of_another_volume_is_refused_by_name() {
    let rig = filled(3);
    let other = Rig::sized(99, 32 * MIB, 128 * MIB, 4096);
    other.create();
    rig.simulation.restore_drive(rig.slow, &other.simulation.copy_drive(other.slow));
    assert!(mismatch(rig.open_error()).contains("different volumes"));
}

#[test]
fn the_same_drive_twice_is_refused() {
    let rig = filled(4);
    let twice = Rig { simulation: rig.simulation.clone(), fast: rig.fast, slow: rig.fast };
    assert!(mismatch(twice.open_error()).contains("was given as the slow drive"));
}

#[test]
fn an_older_copy_of_either_drive_is_refused() {
    for old_is_fast in [true, false] {
        let rig = filled(5);
        let drive = if old_is_fast { rig.fast } else { rig.slow };
        let old = rig.simulation.copy_drive(drive);
        rig.session(|io, engine| async move { put(&io, &engine, 0, 4096, 2).await });
        let new = rig.simulation.copy_drive(drive);
        rig.simulation.restore_drive(drive, &old);
        let text = mismatch(rig.open_error());
        let name = if old_is_fast { "fast is older than slow" } else { "slow is older than fast" };
        assert!(text.contains(name), "{text}");
        rig.simulation.restore_drive(drive, &new);
        rig.session(|io, engine| async move { expect(&io, &engine, 0, 4096, 2).await });
    }
}

#[test]
fn a_copy_from_within_the_last_session_is_refused_once_that_was_closed() {
    for old_is_fast in [true, false] {
        let rig = filled(5);
        let drive = if old_is_fast { rig.fast } else { rig.slow };
        let copied = std::rc::Rc::new(std::cell::RefCell::new(None));
        let (simulation, copy) = (rig.simulation.clone(), copied.clone());
        rig.session(|io, engine| async move {
            put(&io, &engine, 0, 4096, 2).await;
            engine.flush().await.unwrap();
            *copy.borrow_mut() = Some(simulation.copy_drive(drive));
            put(&io, &engine, 0, 4096, 3).await;
            put(&io, &engine, 8 * MIB, EXTENT, 3).await;
        });
        let new = rig.simulation.copy_drive(drive);
        rig.simulation.restore_drive(drive, copied.borrow().as_ref().unwrap());
        let text = rig.open_error().to_string();
        assert!(text.contains("older"), "{text}");
        rig.simulation.restore_drive(drive, &new);
        rig.session(|io, engine| async move { expect(&io, &engine, 0, 4096, 3).await });
    }
}

#[test]
fn copies_that_were_used_apart_from_each_other_are_refused() {
    let rig = filled(6);
    let before = [rig.simulation.copy_drive(rig.fast), rig.simulation.copy_drive(rig.slow)];
    rig.session(|io, engine| async move { put(&io, &engine, 0, 4096, 2).await });
    let slow_of_one_history = rig.simulation.copy_drive(rig.slow);
    rig.simulation.restore_drive(rig.fast, &before[0]);
    rig.simulation.restore_drive(rig.slow, &before[1]);
    rig.session(|io, engine| async move { put(&io, &engine, 0, 4096, 3).await });
    rig.simulation.restore_drive(rig.slow, &slow_of_one_history);
    assert!(mismatch(rig.open_error()).contains("apart from each other"));
}

#[test]
fn a_truncated_drive_is_named_with_the_length_it_should_have() {
    let rig = filled(7);
    let whole = rig.simulation.copy_drive(rig.slow);
    rig.simulation.truncate(rig.slow, 100 * MIB);
    let text = mismatch(rig.open_error());
    assert!(text.contains("truncated") && text.contains(&(128 * MIB).to_string()), "{text}");
    rig.simulation.restore_drive(rig.slow, &whole);
    assert_content(&rig);
}

#[test]
fn one_damaged_superblock_copy_costs_nothing_and_two_are_told() {
    for drive in 0..2 {
        let rig = filled(8);
        let id = [rig.fast, rig.slow][drive];
        rig.simulation.poke(id, 4096 + 100, &[0xff; 8]);
        assert_content(&rig);
        rig.simulation.poke(id, 512 * KIB + 50, &[0xff; 8]);
        assert_content(&rig);
        rig.simulation.poke(id, 4096 + 100, &[0xee; 8]);
        rig.simulation.poke(id, 512 * KIB + 50, &[0xee; 8]);
        let error = rig.open_error();
        assert!(matches!(&error, Error::Superblock { problem, .. } if problem.contains("both")));
    }
}

#[test]
fn damaged_map_pages_are_repaired_from_the_other_drive() {
    let rig = filled(9);
    // Both copies of the first page, on the fast drive.
    rig.simulation.poke(rig.fast, MIB + 200, &[0x55; 16]);
    rig.simulation.poke(rig.fast, MIB + 4096 + 200, &[0x55; 16]);
    rig.run(|io, fast, slow| async move {
        let report = engine::check(&io, &fast, &slow, &|_, _| ()).await.unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert_eq!(report.repairable.len(), 2, "{:?}", report.repairable);
    });
    assert_content(&rig);
    rig.run(|io, fast, slow| async move {
        let report = engine::check(&io, &fast, &slow, &|_, _| ()).await.unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert!(report.repairable.is_empty(), "one opening repairs: {:?}", report.repairable);
    });
    // Now the copies on the fast drive are good for themselves.
    for at in [200, 4096 + 200] {
        rig.simulation.poke(rig.slow, MIB + at, &[0x55; 16]);
    }
    assert_content(&rig);
}

#[test]
fn a_map_page_lost_on_both_drives_is_made_from_the_whole_log_or_refused() {
    let lose_page = |rig: &Rig| {
        for id in [rig.fast, rig.slow] {
            rig.simulation.poke(id, MIB + 200, &[0x55; 16]);
            rig.simulation.poke(id, MIB + 4096 + 200, &[0x55; 16]);
        }
    };
    // The log still has every change since the volume was made.
    let rig = filled(9);
    lose_page(&rig);
    assert_content(&rig);
    // It has gone round: refused, not guessed.
    let rig = filled(9);
    rig.session(|io, engine| async move {
        for n in 0..1500 {
            put(&io, &engine, 8 * MIB + n * 16 * KIB, 4096, 1).await;
        }
    });
    lose_page(&rig);
    let error = rig.open_error();
    assert!(matches!(&error, Error::Damaged(text) if text.contains("map page 0")), "{error}");
}

#[test]
fn a_damaged_block_in_the_log_gives_an_error_and_never_older_data() {
    let rig = filled(10);
    rig.killed_session(|io, engine| async move {
        put(&io, &engine, 64 * MIB, 4096, 1).await;
        put(&io, &engine, 65 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
        put(&io, &engine, 66 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
    });
    // Find the block on the drive by its content, in the log.
    let needle = pattern(64 * MIB, 4096, 1);
    let at = (2 * MIB..6 * MIB)
        .step_by(4096)
        .find(|at| rig.simulation.peek(rig.fast, *at, 4096) == needle)
        .expect("the block lies in the log");
    rig.simulation.poke(rig.fast, at + 77, &[0xaa]);
    rig.session(|io, engine| async move {
        assert_eq!(engine.status().recovery.blocks_damaged, 1);
        let (_, outcome) = engine.read(64 * MIB, io.pool().take(4096)).await;
        assert!(outcome.unwrap_err().message.contains("checksum"));
        expect(&io, &engine, 65 * MIB, 4096, 1).await;
        expect(&io, &engine, 66 * MIB, 4096, 1).await;
        io.sleep(5 * SECOND_NS).await;
        let (_, outcome) = engine.read(64 * MIB, io.pool().take(4096)).await;
        assert!(outcome.is_err(), "idle work does not hide it");
        put(&io, &engine, 64 * MIB, 4096, 2).await;
        expect(&io, &engine, 64 * MIB, 4096, 2).await;
    });
}

#[test]
fn a_damaged_log_header_is_found_in_the_next_and_two_in_a_row_are_refused() {
    let rig = filled(11);
    let first_header = rig.killed_session(|io, engine| async move {
        let at = engine.log_end();
        for n in 0..3 {
            put(&io, &engine, 64 * MIB + n * 4096, 4096, 1).await;
            engine.flush().await.unwrap();
        }
        at
    });
    let position = |record: u64| 2 * MIB + (first_header.0 + record * 2) % 1024 * 4096;
    let intact = [rig.fast, rig.slow].map(|drive| rig.simulation.copy_drive(drive));
    let restore = || {
        rig.simulation.restore_drive(rig.fast, &intact[0]);
        rig.simulation.restore_drive(rig.slow, &intact[1]);
    };
    for unreadable in [false, true] {
        restore();
        let sound = rig.simulation.peek(rig.fast, position(0), 4096);
        if unreadable {
            rig.simulation.set_unreadable(rig.fast, position(0)..position(0) + 512);
        } else {
            rig.simulation.poke(rig.fast, position(0) + 20, &[0xaa]);
        }
        let report = rig.run(|io, fast, slow| async move {
            engine::check(&io, &fast, &slow, &|_, _| ()).await.unwrap()
        });
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        assert!(report.repairable[0].contains("landing log"), "{:?}", report.repairable);
        rig.session(|io, engine| async move {
            for n in 0..3 {
                expect(&io, &engine, 64 * MIB + n * 4096, 4096, 1).await;
            }
        });
        let again = rig.simulation.peek(rig.fast, position(0), 4096);
        assert!(again == sound, "it was not written anew as it was");
        rig.assert_sound();
    }
    restore();
    for record in 0..2 {
        rig.simulation.poke(rig.fast, position(record) + 20, &[0xaa]);
    }
    let error = rig.open_error();
    assert!(matches!(&error, Error::Damaged(text) if text.contains("landing log")), "{error}");
}

#[test]
fn a_block_of_the_log_that_cannot_be_read_holds_up_no_other_and_has_nothing_carried_again_and_again()
 {
    const BLOCKS: u64 = 40;
    let rig = Rig::small(21);
    rig.create();
    let (simulation, fast) = (&rig.simulation, rig.fast);
    rig.session(|io, engine| async move {
        for at in (0..100 * MIB).step_by(MIB as usize) {
            put(&io, &engine, at, MIB as usize, 1).await;
        }
        engine.flush().await.unwrap();
        io.sleep(60 * SECOND_NS).await;
        let written = |n: u64| 64 * MIB + 2 * n * EXTENT as u64;
        let first = engine.log_end();
        for n in 0..BLOCKS {
            put(&io, &engine, written(n), 4096, 2).await;
        }
        engine.flush().await.unwrap();
        let place = 2 * MIB + (first.0 + 1) % 1024 * 4096;
        simulation.set_unreadable(fast, place..place + 512);
        // More than half of the log, while somebody wants the slow drive.
        let reader = engine.clone();
        let pool = io.pool().clone();
        io.spawn(async move {
            for n in 0..1000 {
                let at = (30 * MIB + n * 13 * MIB / 10) % (60 * MIB) / 4096 * 4096;
                reader.read(at, pool.take(4096)).await.1.unwrap();
            }
        });
        for n in 0..40 {
            put(&io, &engine, 90 * MIB, 60 * KIB as usize, n).await;
        }
        engine.flush().await.unwrap();
        io.sleep(20 * SECOND_NS).await;
        let status = engine.status();
        let (carried, left) = (status.moves.carried_bytes / 4096, status.log.dirty_bytes / 4096);
        println!("{carried} blocks carried, {left} left");
        assert!(carried <= BLOCKS, "{carried} blocks carried");
        assert!(left <= 2, "{left} blocks are left in the log");
        simulation.clear_faults();
        io.sleep(20 * SECOND_NS).await;
        assert_eq!(engine.status().log.dirty_bytes, 0);
        for n in 0..BLOCKS {
            expect(&io, &engine, written(n), 4096, 2).await;
        }
    });
    rig.assert_sound();
}

#[test]
fn an_allocation_that_cannot_be_read_is_refused_by_name() {
    let rig = filled(17);
    rig.killed_session(|io, engine| async move {
        put(&io, &engine, 64 * MIB, EXTENT, 1).await;
        engine.flush().await.unwrap();
    });
    let needle = pattern(64 * MIB, 4096, 1);
    let at = (6 * MIB..32 * MIB)
        .step_by(4096)
        .find(|at| rig.simulation.peek(rig.fast, *at, 4096) == needle)
        .expect("the extent lies in a fast slot");
    rig.simulation.set_unreadable(rig.fast, at + 8192..at + 12288);
    let text = rig.open_error().to_string();
    for part in ["bytes 67108864 to 67239936", &at.to_string(), "fast drive", "restore"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The drive is well again: nothing was given up.
    rig.simulation.clear_faults();
    rig.session(|io, engine| async move { expect(&io, &engine, 64 * MIB, EXTENT, 1).await });
}

#[test]
fn at_rest_damage_in_the_last_flushed_record_is_told_from_a_torn_end() {
    let rig = filled(18);
    let header = rig.killed_session(|io, engine| async move {
        let at = engine.log_end();
        put(&io, &engine, 64 * MIB, EXTENT, 1).await;
        engine.flush().await.unwrap();
        io.sleep(SECOND_NS / 5).await;
        at
    });
    rig.simulation.poke(rig.fast, 2 * MIB + header.0 % 1024 * 4096 + 20, &[0xaa]);
    rig.session(|io, engine| async move { expect(&io, &engine, 64 * MIB, EXTENT, 1).await });
}

#[test]
fn every_flipped_byte_of_the_metadata_is_noticed_or_repaired() {
    let rig = filled(12);
    rig.killed_session(|io, engine| async move {
        put(&io, &engine, 64 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
        put(&io, &engine, 65 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
    });
    let intact = [rig.simulation.copy_drive(rig.fast), rig.simulation.copy_drive(rig.slow)];
    let superblocks = [4096, 512 * KIB].map(|at| at..at + 4096);
    let pages = MIB..MIB + 8192;
    let log = 2 * MIB..2 * MIB + 16 * 4096;
    for range in superblocks.into_iter().chain([pages, log]) {
        for at in range.step_by(61) {
            for id in [rig.fast, rig.slow] {
                rig.simulation.restore_drive(rig.fast, &intact[0]);
                rig.simulation.restore_drive(rig.slow, &intact[1]);
                let byte = rig.simulation.peek(id, at, 1)[0];
                rig.simulation.poke(id, at, &[byte ^ 0x10]);
                rig.run(|io, fast, slow| async move {
                    let _ = engine::check(&io, &fast, &slow, &|_, _| ()).await;
                    let opened = engine::Engine::open(
                        &io,
                        &fast,
                        &slow,
                        OpenOptions { read_only: true, ..OpenOptions::default() },
                    );
                    let Ok(engine) = opened.await else { return };
                    for place in [0, 4 * MIB, 64 * MIB, 65 * MIB] {
                        let (buf, outcome) = engine.read(place, io.pool().take(4096)).await;
                        // The last write was durable, but only the flush's answer says so: a
                        // flipped byte there is a torn record to recovery.
                        let right = buf[..] == pattern(place, 4096, 1)
                            || place == 65 * MIB && buf.iter().all(|byte| *byte == 0);
                        assert!(outcome.is_err() || right, "byte {at}: wrong data at {place}");
                    }
                });
            }
        }
    }
}

#[test]
fn a_full_host_file_system_stops_the_volume_with_a_word_and_loses_nothing() {
    let rig = filled(13);
    rig.run(|io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await;
        put(&io, &engine, 70 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
    });
    rig.run(|io, fast, slow| {
        let simulation = rig.simulation.clone();
        let id = rig.fast;
        async move {
            let engine = open(&io, &fast, &slow).await;
            simulation.fail_next(id, Kind::Write, 1, ErrorKind::NoSpace);
            let mut buf = io.pool().take(4096);
            buf.fill(1);
            let (_, outcome) = engine.write(80 * MIB, buf, Durability::Volatile).await;
            let error = outcome.unwrap_err();
            // The cause of the stop is told by its kind: clients may wait for space.
            assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
            assert!(error.message.contains("stopped taking writes"), "{error}");
            let error = engine.flush().await.expect_err("a flush must not succeed now");
            assert_eq!(error.kind, ErrorKind::NoSpace, "{error}");
            expect(&io, &engine, 70 * MIB, 4096, 1).await;
            assert!(engine.status().poisoned.is_some());
        }
    });
    rig.session(|io, engine| async move { expect(&io, &engine, 70 * MIB, 4096, 1).await });
    assert_content(&rig);
}

#[test]
fn a_failed_write_to_a_fresh_slot_fails_alone() {
    let rig = filled(14);
    rig.run(|io, fast, slow| {
        let (simulation, id) = (rig.simulation.clone(), rig.fast);
        async move {
            let engine = open(&io, &fast, &slow).await;
            simulation.fail_next(id, Kind::Write, 1, ErrorKind::NoSpace);
            let mut buf = io.pool().take(EXTENT);
            buf.fill(1);
            let (_, outcome) = engine.write(80 * MIB, buf, Durability::Volatile).await;
            assert_eq!(outcome.unwrap_err().kind, ErrorKind::NoSpace);
            put(&io, &engine, 90 * MIB, EXTENT, 1).await;
            engine.flush().await.unwrap();
            expect(&io, &engine, 90 * MIB, EXTENT, 1).await;
            expect_zeros(&io, &engine, 80 * MIB, EXTENT).await;
            engine.close().await.unwrap();
        }
    });
    rig.assert_sound();
}

#[test]
fn a_failed_flush_stops_the_volume() {
    let rig = filled(15);
    rig.run(|io, fast, slow| {
        let (simulation, id) = (rig.simulation.clone(), rig.fast);
        async move {
            let engine = open(&io, &fast, &slow).await;
            put(&io, &engine, 0, 4096, 2).await;
            simulation.fail_next(id, Kind::Flush, 1, ErrorKind::Io);
            assert!(engine.flush().await.is_err());
            assert!(engine.flush().await.is_err(), "and no later flush pretends otherwise");
            let (_, outcome) =
                engine.write(0, io.pool().take_zeroed(4096), Durability::Volatile).await;
            assert!(outcome.is_err());
            assert!(engine.close().await.is_err());
        }
    });
}

#[test]
fn a_read_only_volume_writes_nothing_at_all() {
    let rig = filled(16);
    rig.killed_session(|io, engine| async move {
        put(&io, &engine, 64 * MIB, 4096, 1).await;
        engine.flush().await.unwrap();
    });
    for id in [rig.fast, rig.slow] {
        rig.simulation.set_read_only(id, true);
    }
    rig.run(|io, fast, slow| async move {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let engine = engine::Engine::open(&io, &fast, &slow, options).await.unwrap();
        expect(&io, &engine, 64 * MIB, 4096, 1).await;
        let (_, outcome) = engine.write(0, io.pool().take_zeroed(4096), Durability::Volatile).await;
        assert_eq!(outcome.unwrap_err().kind, ErrorKind::ReadOnly);
        engine.flush().await.unwrap();
        engine.close().await.unwrap();
    });
}

#[test]
fn a_map_page_that_one_drive_cannot_read_is_reported_by_check_and_does_not_end_it() {
    let rig = filled(41);
    for id in [rig.fast, rig.slow] {
        rig.simulation.set_unreadable(id, MIB..MIB + 512);
        let report = rig.run(|io, fast, slow| async move {
            engine::check(&io, &fast, &slow, &|_, _| ()).await.unwrap()
        });
        assert_eq!(report.errors, Vec::<String>::new());
        let told = "map page 0, copy 0";
        let named = |text: &&String| text.contains(told) && text.contains("cannot be read");
        assert!(report.repairable.iter().any(|text| named(&text)), "{report:?}");
        rig.simulation.clear_faults();
    }
}

#[test]
fn what_is_pinned_comes_up_though_the_slow_drive_refused_once_and_what_cannot_be_read_fails_alone()
{
    let rig = Rig::small(31);
    rig.create();
    let (simulation, slow) = (rig.simulation.clone(), rig.slow);
    rig.session(|io, engine| async move {
        let bytes = EXTENT as u64;
        for extent in 0..300 {
            put(&io, &engine, extent * bytes, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        io.sleep(60 * SECOND_NS).await;
        let place = |extent: u64| engine.places(extent * bytes, bytes, 1)[0].place;
        let below: Vec<u64> = (200..300).filter(|n| place(*n) == Place::Slow).take(40).collect();
        assert_eq!(below.len(), 40);
        // The first can never be read, wherever it lies; of the others one fails once.
        let layout = engine.status().geometry.layouts[1];
        let slots = layout.slots_at..layout.slots_at + layout.slots * bytes;
        let words = pattern(below[0] * bytes, 64, 1);
        let found = slots.step_by(EXTENT).find(|at| simulation.peek(slow, *at, 64) == words);
        let bad = found.expect("it lives there");
        simulation.set_unreadable(slow, bad..bad + 4096);
        simulation.strike_next(slow, Fault::ReadError, 1);
        let ranges: Vec<(u64, u64)> = below.iter().map(|n| (n * bytes, bytes)).collect();
        engine.wish(&ranges, Some(Wish::Pinned)).await.unwrap();
        io.sleep(600 * SECOND_NS).await;
        let up = below.iter().filter(|n| place(**n) == Place::Fast).count();
        assert_eq!((up, place(below[0])), (39, Place::Slow));
    });
}

#[test]
fn a_superblock_is_not_written_behind_one_whose_flush_failed() {
    for round in 0..80 {
        // Sectors may tear, and flushes take long enough for others to wait behind them.
        let simulation = Simulation::new(round);
        let mut fast_spec = DriveSpec::fast("fast", 32 * MIB);
        fast_spec.latencies.flush_ns = 5 * MILLISECOND_NS;
        let fast = simulation.add_drive(fast_spec);
        let slow = simulation.add_drive(DriveSpec::slow("slow", 128 * MIB));
        let rig = Rig { simulation, fast, slow };
        rig.create();
        let simulation = rig.simulation.clone();
        let io = simulation.boot();
        let (fast_device, slow_device) = rig.devices(&io);
        let work = {
            let (io, simulation) = (io.clone(), simulation.clone());
            async move {
                let engine = open(&io, &fast_device, &slow_device).await;
                // The log fills and is emptied, which writes superblocks, and so do settings.
                for client in 0..3 {
                    let (io, engine) = (io.clone(), engine.clone());
                    io.clone().spawn(async move {
                        let mut at = client * 8 * MIB;
                        while engine.status().poisoned.is_none() {
                            at = (at + 5 * 4096) % (64 * MIB);
                            let buf = io.pool().take_zeroed(4096);
                            drop(engine.write(at, buf, Durability::Volatile).await);
                        }
                    });
                }
                let settings = engine.clone();
                io.spawn(async move {
                    let mut quiet = false;
                    while settings.tune(TuningChange::Quiet(quiet)).await.is_ok() {
                        quiet = !quiet;
                    }
                });
                io.sleep(400 * MILLISECOND_NS + round * MILLISECOND_NS * 7 / 3).await;
                simulation.strike_next(fast, Fault::FailedFlush, 1);
                io.sleep(SECOND_NS).await;
                assert!(engine.status().poisoned.is_some(), "no flush failed");
            }
        };
        simulation.run(&io, work).done();
        io.drop_tasks();
        simulation.power_cut(CacheLoss::Torn(round));
        rig.session(|_, _| async {});
    }
}
