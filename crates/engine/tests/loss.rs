//! One drive is gone: what the other one gives, and that nothing diverges.

mod rig;

use engine::{Engine, Error, LossCause, Member, OpenOptions, Tier};
use io::units::{MIB, SECOND_NS};
use io::{Durability, ErrorKind, Io, Place, Volume};
use rig::{EXTENT, Rig, expect, expect_zeros, open, put};

const EXTENT_BYTES: u64 = EXTENT as u64;

async fn open_alone(rig: &Rig, io: &Io, left: Tier, degraded: bool) -> Result<Engine, Error> {
    let (fast, slow) = rig.devices(io);
    let gone = || Member::Gone { path: "elsewhere".into(), why: "it is not there".into() };
    let members = match left {
        Tier::Fast => [Member::Here(fast), gone()],
        Tier::Slow => [gone(), Member::Here(slow)],
    };
    Engine::open_members(io, members, OpenOptions { degraded, ..OpenOptions::default() }).await
}

/// Opens with one drive; nothing may be written.
fn alone<T, F: Future<Output = T>>(rig: &Rig, left: Tier, work: impl FnOnce(Io, Engine) -> F) -> T {
    let drives = [rig.fast, rig.slow];
    let before = drives.map(|drive| rig.simulation.counters(drive));
    let value = rig.run(|io, _, _| async move {
        let engine = open_alone(rig, &io, left, true).await.unwrap();
        assert!(engine.info().read_only);
        let value = work(io, engine.clone()).await;
        engine.close().await.unwrap();
        value
    });
    for (drive, before) in drives.into_iter().zip(before) {
        let after = rig.simulation.counters(drive);
        assert_eq!((after.writes, after.flushes), (before.writes, before.flushes));
    }
    value
}

async fn is_lost(io: &Io, engine: &Engine, at: u64, length: usize) {
    let (_, outcome) = engine.read(at, io.pool().take(length)).await;
    let error = outcome.expect_err("lost");
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    assert!(error.message.contains("is lost"), "{error}");
    let places = engine.places(at, length as u64, 100);
    assert!(places.iter().all(|span| span.place == Place::Lost), "{places:?}");
}

/// Fills the fast drive and goes on to the slow one; gives the extents that live on each.
async fn fill(io: &Io, engine: &Engine, extents: u64) -> [Vec<u64>; 2] {
    for extent in 0..extents {
        put(io, engine, extent * EXTENT_BYTES, EXTENT, 1).await;
    }
    engine.flush().await.unwrap();
    homes(engine, extents)
}

fn homes(engine: &Engine, extents: u64) -> [Vec<u64>; 2] {
    [Place::Fast, Place::Slow].map(|place| {
        let at = |extent: &u64| engine.places(extent * EXTENT_BYTES, EXTENT_BYTES, 1)[0].place;
        (0..extents).filter(|extent| at(extent) == place).collect()
    })
}

#[test]
fn after_a_clean_close_each_drive_gives_exactly_what_lived_on_it() {
    let rig = Rig::small(1);
    rig.create();
    let [fast, slow] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    assert!(fast.len() > 100 && slow.len() > 100);
    for (left, here, gone) in [(Tier::Fast, &fast, &slow), (Tier::Slow, &slow, &fast)] {
        alone(&rig, left, |io, engine| async move {
            for extent in here {
                expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
            }
            for extent in gone {
                is_lost(&io, &engine, extent * EXTENT_BYTES, EXTENT).await;
            }
            expect_zeros(&io, &engine, 500 * EXTENT_BYTES, EXTENT).await;
            let loss = engine.status().loss.expect("a drive is gone");
            assert_eq!(loss.readable_bytes, here.len() as u64 * EXTENT_BYTES);
            assert_eq!(loss.lost_bytes, gone.len() as u64 * EXTENT_BYTES);
            assert_eq!(loss.maybe_newer_bytes + loss.maybe_written_bytes, 0, "{loss:?}");
            let size = engine.info().size_bytes;
            let ranges = engine.lost_ranges(0, size);
            assert_eq!(ranges.iter().map(|range| range.length).sum::<u64>(), loss.lost_bytes);
            assert!(ranges.iter().all(|range| range.cause == LossCause::LivedThere));
        });
    }
    // The drive is back: all is as it was.
    rig.session(|io, engine| async move {
        for extent in 0..400 {
            expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
    });
    rig.assert_sound();
}

#[test]
fn without_being_asked_a_volume_does_not_open_with_one_drive_and_says_what_could_be_read() {
    let rig = Rig::small(2);
    rig.create();
    rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    for (left, word) in [(Tier::Fast, "slow drive of volume"), (Tier::Slow, "fast drive of volume")]
    {
        let error = rig.run(|io, _, _| {
            let rig = &rig;
            async move { open_alone(rig, &io, left, false).await.err().expect("refused") }
        });
        let text = error.to_string();
        assert!(matches!(error, Error::DriveGone { .. }), "{error:?}");
        for word in [word, "it is not there", "can be read", "is lost", "Nothing was changed"] {
            assert!(text.contains(word), "'{word}' is missing: {text}");
        }
    }
}

#[test]
fn a_flushed_write_to_the_slow_drive_s_extents_is_never_answered_with_what_was_there_before() {
    let rig = Rig::small(3);
    rig.create();
    let [_, slow] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    let (changed, others) = (slow[0], slow[3]);
    rig.killed_session(|io, engine| async move {
        // Four kilobytes go to the log, on the fast drive.
        put(&io, &engine, changed * EXTENT_BYTES + 8192, 4096, 2).await;
        engine.flush().await.unwrap();
    });
    alone(&rig, Tier::Slow, |io, engine| async move {
        is_lost(&io, &engine, changed * EXTENT_BYTES, EXTENT).await;
        expect(&io, &engine, others * EXTENT_BYTES, EXTENT, 1).await;
        let loss = engine.status().loss.unwrap();
        assert_eq!(loss.maybe_newer_bytes, EXTENT_BYTES, "{loss:?}");
    });
    // The fast drive alone knows the newest blocks, whatever became of the home.
    alone(&rig, Tier::Fast, |io, engine| async move {
        expect(&io, &engine, changed * EXTENT_BYTES + 8192, 4096, 2).await;
        is_lost(&io, &engine, changed * EXTENT_BYTES, 8192).await;
    });
}

#[test]
fn what_was_destaged_and_vouched_for_while_idle_survives_the_fast_drive() {
    let rig = Rig::small(4);
    rig.create();
    let [_, slow] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    let changed = slow[0];
    rig.killed_session(|io, engine| async move {
        put(&io, &engine, changed * EXTENT_BYTES + 8192, 4096, 2).await;
        engine.flush().await.unwrap();
        io.sleep(30 * SECOND_NS).await;
    });
    alone(&rig, Tier::Slow, |io, engine| async move {
        expect(&io, &engine, changed * EXTENT_BYTES + 8192, 4096, 2).await;
        expect(&io, &engine, changed * EXTENT_BYTES, 8192, 1).await;
    });
}

#[test]
fn a_slot_that_changed_hands_is_not_read_as_what_it_was() {
    let rig = Rig::small(5);
    rig.create();
    let [_, slow] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    rig.killed_session(|io, engine| async move {
        // Slots come back and go to other extents, while the slow drive's map is as before.
        for round in 2..6 {
            for extent in slow.iter().step_by(3) {
                let at = extent * EXTENT_BYTES;
                engine.trim(at, EXTENT_BYTES, Durability::Volatile).await.unwrap();
            }
            engine.flush().await.unwrap();
            for extent in 600..600 + slow.len() as u64 / 3 {
                put(&io, &engine, extent * EXTENT_BYTES, EXTENT, round).await;
            }
            engine.flush().await.unwrap();
        }
    });
    let truth: Vec<(u64, Vec<u8>)> = rig.run(|io, fast, slow| async move {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let engine = Engine::open(&io, &fast, &slow, options).await.unwrap();
        let mut truth = Vec::new();
        for extent in 0..1000 {
            let at = extent * EXTENT_BYTES;
            truth.push((at, rig::get(&io, &engine, at, EXTENT).await));
        }
        truth
    });
    alone(&rig, Tier::Slow, |io, engine| async move {
        let mut read = 0;
        for (at, expected) in truth {
            let (buf, outcome) = engine.read(at, io.pool().take(EXTENT)).await;
            if outcome.is_ok() {
                read += 1;
                assert!(buf[..] == expected[..], "at {at}");
            }
        }
        assert!(read > 50, "{read}");
    });
}

#[test]
fn a_doubt_costs_one_flush_of_the_slow_drive_once_and_none_where_nothing_lives_there() {
    let rig = Rig::small(6);
    rig.create();
    let [fast, slow] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    let simulation = rig.simulation.clone();
    let (fast_drive, slow_drive) = (rig.fast, rig.slow);
    rig.session(|io, engine| async move {
        let flushes = || {
            let of = |drive| simulation.counters(drive).flushes;
            (of(fast_drive), of(slow_drive))
        };
        let cost = async |at: u64| {
            let before = flushes();
            put(&io, &engine, at, 4096, 2).await;
            engine.flush().await.unwrap();
            (flushes().0 - before.0, flushes().1 - before.1)
        };
        let in_slow = slow[0] * EXTENT_BYTES;
        assert_eq!(cost(in_slow).await, (1, 1), "the first change of the region");
        assert_eq!(cost(in_slow + 4096).await, (1, 0));
        assert_eq!(cost(fast[0] * EXTENT_BYTES).await, (1, 0), "it lives on the fast drive");
        assert_eq!(cost(700 * EXTENT_BYTES).await, (1, 0), "a hole");
    });
}

#[test]
fn a_rotten_or_torn_copy_of_the_only_map_left_is_not_guessed_at() {
    let rig = Rig::small(7);
    rig.create();
    let [_, slow] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    rig.session(|io, engine| async move { put(&io, &engine, 0, EXTENT, 2).await });
    // One byte of each copy of the first page, in turn.
    for copy in 0..2 {
        let at = MIB + copy * 4096 + 100;
        let byte = rig.simulation.peek(rig.slow, at, 1)[0];
        rig.simulation.poke(rig.slow, at, &[byte ^ 4]);
        let slow = &slow;
        alone(&rig, Tier::Slow, |io, engine| async move {
            for extent in slow {
                is_lost(&io, &engine, extent * EXTENT_BYTES, EXTENT).await;
            }
        });
        rig.simulation.poke(rig.slow, at, &[byte]);
    }
}

#[test]
fn a_drive_that_dies_while_serving_stops_writes_and_what_the_other_has_is_read_on() {
    for dying in [Tier::Fast, Tier::Slow] {
        let rig = Rig::small(8);
        rig.create();
        let simulation = rig.simulation.clone();
        let drive = if dying == Tier::Fast { rig.fast } else { rig.slow };
        rig.killed_session(|io, engine| async move {
            let [fast, slow] = fill(&io, &engine, 400).await;
            let (gone, here) = if dying == Tier::Fast { (fast, slow) } else { (slow, fast) };
            simulation.set_dead(drive, true);
            is_refused(&io, &engine, gone[0] * EXTENT_BYTES).await;
            expect(&io, &engine, here[0] * EXTENT_BYTES, EXTENT, 1).await;
            // What is written now either fails or is in the log; soon nothing is taken any more.
            let _ = write(&io, &engine, here[1] * EXTENT_BYTES + 4096).await;
            io.sleep(5 * SECOND_NS).await;
            let error = write(&io, &engine, here[1] * EXTENT_BYTES).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::ReadOnly, "{error}");
            assert!(engine.flush().await.is_err());
            let status = engine.status();
            assert!(status.poisoned.is_some());
            let loss = status.loss.expect("the drive was missed");
            assert!(loss.gone[dying.index()].is_some(), "{loss:?}");
            is_lost(&io, &engine, gone[0] * EXTENT_BYTES, EXTENT).await;
            expect(&io, &engine, here[0] * EXTENT_BYTES, EXTENT, 1).await;
            // It comes back, but what its cache held may not: it is not believed.
            simulation.set_dead(drive, false);
            is_lost(&io, &engine, gone[0] * EXTENT_BYTES, EXTENT).await;
        });
        rig.session(|io, engine| async move {
            for extent in 2..400 {
                expect(&io, &engine, extent * EXTENT_BYTES, 4096, 1).await;
            }
        });
        rig.assert_sound();
    }
}

async fn is_refused(io: &Io, engine: &Engine, at: u64) {
    let (_, outcome) = engine.read(at, io.pool().take(EXTENT)).await;
    outcome.expect_err("its drive is dead");
}

async fn write(io: &Io, engine: &Engine, at: u64) -> Result<(), io::IoError> {
    let mut buf = io.pool().take(4096);
    buf.copy_from_slice(&rig::pattern(at, 4096, 1));
    engine.write(at, buf, Durability::Durable).await.1
}

#[test]
fn a_volume_without_a_doubt_page_opens_and_its_slow_drive_alone_vouches_for_nothing() {
    let rig = Rig::small(9);
    rig.create();
    let [_, slow] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    // As an older version left it: no feature bit, whatever stands where the page is now.
    let forget = |drive| {
        for (copy, at) in engine::format::superblock::COPY_POSITIONS.into_iter().enumerate() {
            let mut bytes = rig.simulation.peek(drive, at, 4096);
            let mut superblock = engine::Superblock::decode(&bytes, copy).unwrap();
            superblock.read_only_compatible = 0;
            superblock.encode(&mut bytes, copy);
            rig.simulation.poke(drive, at, &bytes);
        }
    };
    forget(rig.fast);
    forget(rig.slow);
    let extent = slow[0];
    alone(&rig, Tier::Slow, |io, engine| async move {
        is_lost(&io, &engine, extent * EXTENT_BYTES, EXTENT).await;
        assert_eq!(engine.status().loss.unwrap().readable_bytes, 0);
    });
    rig.session(|io, engine| async move {
        expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
    });
    alone(&rig, Tier::Slow, |io, engine| async move {
        expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
    });
}

#[test]
fn a_drive_without_a_readable_superblock_counts_as_gone_when_asked() {
    let rig = Rig::small(10);
    rig.create();
    let [fast, _] = rig.session(|io, engine| async move { fill(&io, &engine, 400).await });
    rig.simulation.set_unreadable(rig.slow, 0..MIB);
    rig.run(|io, fast_drive, slow_drive| async move {
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let engine = Engine::open(&io, &fast_drive, &slow_drive, options).await.unwrap();
        expect(&io, &engine, fast[0] * EXTENT_BYTES, EXTENT, 1).await;
        assert!(engine.status().loss.unwrap().gone[1].is_some());
    });
    rig.simulation.clear_faults();
    // With both drives well the same option changes nothing.
    rig.run(|io, fast_drive, slow_drive| async move {
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let engine = Engine::open(&io, &fast_drive, &slow_drive, options).await.unwrap();
        assert!(!engine.info().read_only);
        put(&io, &engine, 0, 4096, 3).await;
        engine.close().await.unwrap();
    });
    rig.run(|io, fast_drive, slow_drive| async move {
        let engine = open(&io, &fast_drive, &slow_drive).await;
        expect(&io, &engine, 0, 4096, 3).await;
    });
}
