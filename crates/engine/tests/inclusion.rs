//! Class span with inclusion: what goes up keeps its slot on the slow drive while there is room.

mod rig;

use engine::format::superblock::COPY_POSITIONS;
use engine::{
    Class, CreateOptions, Engine, Error, Member, OpenOptions, Superblock, Tuning, TuningChange,
    Wish, create, plan,
};
use io::units::{MIB, SECOND_NS};
use io::{Io, Place, Volume};
use rig::{EXTENT, Rig, expect, put};

const EXTENT_BYTES: u64 = EXTENT as u64;
/// Extents that are laid: some more than the fast drive takes.
const LAID: u64 = 260;
/// Of these, how many move in each test.
const MOVED: u64 = 24;

fn volume(seed: u64, inclusion: bool) -> Rig {
    let rig = Rig::small(seed);
    rig.run(|io, fast, slow| async move {
        let tuning = Tuning { inclusion, ..Tuning::default() };
        let options = CreateOptions { tuning, ..CreateOptions::new("test") };
        create(&io, &fast, &slow, options, &|_, _| ()).await.unwrap();
    });
    rig
}

/// Lays extents, makes room above and has some of those below go up; gives the first of them.
async fn raise(io: &Io, engine: &Engine) -> u64 {
    for extent in 0..LAID {
        put(io, engine, extent * EXTENT_BYTES, EXTENT, 1).await;
    }
    engine.flush().await.unwrap();
    let place = |extent: u64| engine.places(extent * EXTENT_BYTES, EXTENT_BYTES, 1)[0].place;
    let first = (0..LAID).find(|extent| place(*extent) == Place::Slow).unwrap();
    engine.trim(0, 80 * EXTENT_BYTES, io::Durability::Volatile).await.unwrap();
    wish(io, engine, first, Wish::Pinned).await;
    assert!((first..first + MOVED).all(|extent| place(extent) == Place::Fast));
    first
}

async fn wish(io: &Io, engine: &Engine, first: u64, wish: Wish) {
    let range = (first * EXTENT_BYTES, MOVED * EXTENT_BYTES);
    engine.wish(&[range], Some(wish)).await.unwrap();
    io.sleep(30 * SECOND_NS).await;
}

fn superblock(rig: &Rig) -> Superblock {
    let bytes = rig.simulation.peek(rig.fast, COPY_POSITIONS[0], 4096);
    Superblock::decode(&bytes, 0).unwrap()
}

async fn alone(rig: &Rig, io: &Io) -> Engine {
    let gone = Member::Gone { path: "elsewhere".into(), why: "it is not there".into() };
    let members = [gone, Member::Here(rig.devices(io).1)];
    let options = OpenOptions { degraded: true, ..OpenOptions::default() };
    Engine::open_members(io, members, options).await.unwrap()
}

#[test]
fn what_went_up_comes_down_without_a_copy() {
    let rig = volume(1, true);
    rig.session(|io, engine| {
        let rig = &rig;
        async move {
            let first = raise(&io, &engine).await;
            assert_eq!(engine.status().extents_clean, MOVED);
            let before = engine.status();
            let written = rig.simulation.counters(rig.slow).write_bytes;
            wish(&io, &engine, first, Wish::Cold).await;
            let after = engine.status();
            assert_eq!(after.extents_clean, 0);
            let bytes = MOVED * EXTENT_BYTES;
            assert_eq!(after.moves.demoted_bytes - before.moves.demoted_bytes, bytes);
            // Map pages and marks of doubt.
            let written = rig.simulation.counters(rig.slow).write_bytes - written;
            assert!(written < MIB, "{written} bytes were written below");
            for extent in first..first + MOVED {
                expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
            }
        }
    });
    rig.assert_sound();
}

#[test]
fn the_slow_drive_alone_gives_what_is_kept_below_and_not_what_was_written_above() {
    let rig = volume(2, true);
    let (first, fast) = rig.session(|io, engine| async move {
        let first = raise(&io, &engine).await;
        put(&io, &engine, first * EXTENT_BYTES + 8192, 4096, 2).await;
        put(&io, &engine, (first + 1) * EXTENT_BYTES, EXTENT, 2).await;
        engine.flush().await.unwrap();
        // Destaged into the copy, which is dirty from then on.
        io.sleep(30 * SECOND_NS).await;
        assert_eq!(engine.status().extents_clean, MOVED - 2);
        let place = |extent: u64| engine.places(extent * EXTENT_BYTES, EXTENT_BYTES, 1)[0].place;
        (first, (0..LAID).filter(|extent| place(*extent) == Place::Fast).count() as u64)
    });
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let engine = alone(rig, &io).await;
            for extent in first + 2..first + MOVED {
                expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
            }
            for extent in [first, first + 1] {
                let buf = io.pool().take(EXTENT);
                assert!(engine.read(extent * EXTENT_BYTES, buf).await.1.is_err());
            }
            let lost = engine.status().loss.expect("a drive is gone").lost_bytes;
            assert_eq!(lost, (fast - (MOVED - 2)) * EXTENT_BYTES);
            engine.close().await.unwrap();
        }
    });
}

#[test]
fn a_copy_written_in_the_log_is_no_longer_vouched_for_below() {
    let rig = volume(3, true);
    let first = rig.session(|io, engine| async move { raise(&io, &engine).await });
    rig.killed_session(|io, engine| async move {
        put(&io, &engine, first * EXTENT_BYTES, 4096, 2).await;
        engine.flush().await.unwrap();
    });
    rig.run(|io, _, _| {
        let rig = &rig;
        async move {
            let engine = alone(rig, &io).await;
            let read = async |extent: u64| {
                engine.read(extent * EXTENT_BYTES, io.pool().take(4096)).await.1
            };
            assert!(read(first).await.is_err(), "old data for current data");
            read(first + 1).await.unwrap();
        }
    });
}

#[test]
fn an_original_is_not_given_back_while_its_copy_cannot_be_read() {
    let rig = volume(8, true);
    rig.session(|io, engine| {
        let rig = &rig;
        async move {
            let first = raise(&io, &engine).await;
            assert_eq!(engine.status().extents_clean, MOVED);
            let layout = engine.status().geometry.layouts[0];
            let slots = layout.slots_at..layout.slots_at + layout.slots * EXTENT_BYTES;
            rig.simulation.set_unreadable(rig.fast, slots);
            expect(&io, &engine, first * EXTENT_BYTES, EXTENT, 1).await;
            engine.tune(TuningChange::Inclusion(false)).await.unwrap();
            io.sleep(30 * SECOND_NS).await;
            expect(&io, &engine, first * EXTENT_BYTES, EXTENT, 1).await;
        }
    });
    rig.assert_sound();
}

#[test]
fn a_full_volume_gets_every_slot_back() {
    let rig = volume(4, true);
    rig.session(|io, engine| async move {
        raise(&io, &engine).await;
        let extents = engine.info().size_bytes / EXTENT_BYTES;
        for extent in 0..extents {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 3).await;
        }
        engine.flush().await.unwrap();
        io.sleep(30 * SECOND_NS).await;
        let status = engine.status();
        assert_eq!((status.extents_mapped, status.extents_clean), (extents, 0));
        assert_eq!(status.log.dirty_bytes, 0, "what has no slot stays in the log");
        for extent in 0..extents {
            expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 3).await;
        }
    });
    rig.assert_sound();
}

#[test]
fn inclusion_is_set_and_given_up_while_the_volume_is_in_use() {
    let rig = volume(5, false);
    let first = rig.session(|io, engine| async move {
        let first = raise(&io, &engine).await;
        assert_eq!(engine.status().extents_clean, 0);
        wish(&io, &engine, first, Wish::Cold).await;
        first
    });
    assert!(!superblock(&rig).two_places, "older versions may still open it");
    rig.session(|io, engine| async move {
        engine.tune(TuningChange::Inclusion(true)).await.unwrap();
        wish(&io, &engine, first, Wish::Pinned).await;
        assert_eq!(engine.status().extents_clean, MOVED);
        assert!(engine.status().policy.tuning.inclusion);
    });
    assert!(superblock(&rig).two_places && superblock(&rig).tuning.inclusion);
    rig.session(|io, engine| async move {
        assert_eq!(engine.status().extents_clean, MOVED);
        let free = engine.status().drives[1].slots_free;
        engine.tune(TuningChange::Inclusion(false)).await.unwrap();
        io.sleep(30 * SECOND_NS).await;
        assert_eq!(engine.status().extents_clean, 0);
        assert_eq!(engine.status().drives[1].slots_free, free + MOVED);
        for extent in first..first + MOVED {
            expect(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
    });
    let superblock = superblock(&rig);
    assert!(superblock.two_places && !superblock.tuning.inclusion, "the feature stays");
    rig.assert_sound();
}

#[test]
fn inclusion_is_refused_where_it_means_nothing() {
    let rig = Rig::small(6);
    rig.run(|io, fast, slow| async move {
        let tuning = Tuning { inclusion: true, ..Tuning::default() };
        let cache = CreateOptions { class: Class::Cache, tuning, ..CreateOptions::new("test") };
        let refused = plan(fast.info(), slow.info(), &cache).expect_err("refused");
        assert!(refused.to_string().contains("class span"), "{refused}");
        let cache = CreateOptions { tuning: Tuning::default(), ..cache };
        create(&io, &fast, &slow, cache, &|_, _| ()).await.unwrap();
    });
    rig.session(|_, engine| async move {
        let refused = engine.tune(TuningChange::Inclusion(true)).await;
        assert!(matches!(refused, Err(Error::Unsuitable(_))), "{refused:?}");
    });
}

#[test]
fn an_entry_that_names_two_places_is_damage_where_the_feature_is_not_set() {
    let rig = volume(7, true);
    rig.session(|io, engine| async move { raise(&io, &engine).await });
    for drive in [rig.fast, rig.slow] {
        for (copy, at) in COPY_POSITIONS.into_iter().enumerate() {
            let mut bytes = rig.simulation.peek(drive, at, 4096);
            let mut superblock = Superblock::decode(&bytes, copy).unwrap();
            superblock.two_places = false;
            superblock.encode(&mut bytes, copy);
            rig.simulation.poke(drive, at, &bytes);
        }
    }
    let error = rig.open_error();
    assert!(matches!(error, Error::Damaged(_)), "{error}");
    assert!(error.to_string().contains("impossible entry"), "{error}");
}
