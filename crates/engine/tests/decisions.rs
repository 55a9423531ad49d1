//! What was decided is counted by its reason: places of new extents, and what leaves the fast drive for
//! new data or because its copy is bad. The other reasons are counted where what they are about is tested.

mod rig;

use std::ops::Range;

use engine::{CacheMode, Decisions, Engine, Wish};
use io::units::{MIB, SECOND_NS};
use io::{Io, Place, Volume};
use rig::{EXTENT, Rig, expect, promote, put, zero};

const EXTENT_BYTES: u64 = EXTENT as u64;

fn decisions(engine: &Engine) -> Decisions {
    engine.status().policy.decisions
}

fn place(engine: &Engine, extent: u64) -> Place {
    engine.places(extent * EXTENT_BYTES, EXTENT_BYTES, 1)[0].place
}

fn count(engine: &Engine, extents: Range<u64>, at: Place) -> u64 {
    extents.filter(|extent| place(engine, *extent) == at).count() as u64
}

/// Lays whole extents.
async fn lay(io: &Io, engine: &Engine, extents: Range<u64>) {
    for extent in extents {
        put(io, engine, extent * EXTENT_BYTES, EXTENT, 1).await;
    }
    engine.flush().await.unwrap();
}

/// Places that new extents got: fast, slow because the fast drive was full, slow because of a wish.
fn new(engine: &Engine) -> (u64, u64, u64) {
    let decisions = decisions(engine);
    (decisions.new_fast, decisions.new_slow_full, decisions.new_slow_wished)
}

/// Extents that are laid: some more than the fast drive takes.
const LAID: u64 = 260;
/// Those of them that somebody wishes to stay below.
const COLD: Range<u64> = 10..25;

#[test]
fn each_new_extent_is_counted_once_by_what_chose_its_place() {
    let rig = Rig::small(1);
    rig.create();
    rig.session(|io, engine| async move {
        let cold = (COLD.start * EXTENT_BYTES, (COLD.end - COLD.start) * EXTENT_BYTES);
        engine.wish(&[cold], Some(Wish::Cold)).await.unwrap();
        lay(&io, &engine, 0..COLD.start).await;
        assert_eq!(new(&engine), (10, 0, 0), "there is room above");
        lay(&io, &engine, COLD).await;
        assert_eq!(new(&engine), (10, 0, 15), "wished below");
        assert_eq!(count(&engine, COLD, Place::Slow), 15);
        lay(&io, &engine, COLD.end..LAID).await;
        let (above, full) =
            (count(&engine, 0..LAID, Place::Fast), count(&engine, COLD.end..LAID, Place::Slow));
        assert!(full > 0 && above + full + 15 == LAID, "{above} above, {full} below");
        assert_eq!(new(&engine), (above, full, 15));
        // What has a home gets no new one, whether it is overwritten in part or as a whole.
        for extent in COLD.end..COLD.end + 8 {
            put(&io, &engine, extent * EXTENT_BYTES + 4096, 8192, 2).await;
        }
        lay(&io, &engine, 0..8).await;
        assert_eq!(new(&engine), (above, full, 15));
        // A piece of a new one has none before it leaves the log.
        put(&io, &engine, LAID * EXTENT_BYTES + 8192, 4096, 2).await;
        engine.flush().await.unwrap();
        assert_eq!(new(&engine), (above, full, 15));
        io.sleep(30 * SECOND_NS).await;
        let (fast, slow, wished) = new(&engine);
        assert_eq!((fast + slow, wished), (LAID - 15 + 1, 15), "{:?}", decisions(&engine));
    });
}

#[test]
fn in_a_cache_that_sends_everything_home_new_extents_are_below_by_wish() {
    for (mode, expected) in [
        (CacheMode::WriteBack, (20, 0, 0)),
        (CacheMode::WriteThrough, (0, 0, 20)),
        (CacheMode::WriteAround, (0, 0, 20)),
    ] {
        let rig = Rig::small(2);
        rig.create_cache(mode);
        rig.session(|io, engine| async move {
            lay(&io, &engine, 0..20).await;
            assert_eq!(new(&engine), expected, "{mode}");
        });
    }
}

#[test]
fn what_leaves_so_that_new_data_finds_room_is_counted() {
    let rig = Rig::sized(3, 96 * MIB, 128 * MIB, 4096);
    rig.create();
    rig.session(|io, engine| async move {
        // New data takes what is kept free above when the slow drive is full; room for it is made again
        // as soon as there is a place to go.
        let extents = engine.info().size_bytes / EXTENT_BYTES;
        lay(&io, &engine, 0..extents).await;
        let slots_free = |drive: usize| engine.status().drives[drive].slots_free;
        io.sleep(30 * SECOND_NS).await;
        let (free, before) = (slots_free(0), count(&engine, 0..extents, Place::Fast));
        assert_eq!(decisions(&engine).down_for_new, 0, "there is nowhere to go");
        let below: Vec<u64> =
            (0..extents).filter(|extent| place(&engine, *extent) == Place::Slow).collect();
        for extent in &below[..40] {
            zero(&engine, extent * EXTENT_BYTES, EXTENT_BYTES).await;
        }
        engine.flush().await.unwrap();
        io.sleep(120 * SECOND_NS).await;
        let left = before - count(&engine, 0..extents, Place::Fast);
        let decisions = decisions(&engine);
        assert!(left > 0 && slots_free(0) == free + left, "{left} left: {decisions:?}");
        assert_eq!((decisions.down_for_new, decisions.down_displaced), (left, 0), "{decisions:?}");
    });
    rig.assert_sound();
}

/// A clean copy of extent 5 on the fast drive, of which nothing can be read from now on.
async fn with_bad_copy(rig: &Rig, io: &Io, engine: &Engine) {
    lay(io, engine, 5..6).await;
    engine.set_cache_mode(CacheMode::WriteThrough).await.unwrap();
    engine.set_cache_mode(CacheMode::WriteBack).await.unwrap();
    io.sleep(2 * SECOND_NS).await;
    if place(engine, 5) != Place::Fast {
        promote(io, engine, 5).await;
    }
    let layout = engine.status().geometry.layouts[0];
    let slots = layout.slots_at..layout.slots_at + layout.slots * EXTENT_BYTES;
    rig.simulation.set_unreadable(rig.fast, slots);
    assert_eq!(decisions(engine).down_bad_copy, 0);
}

#[test]
fn a_copy_that_is_given_up_because_it_is_bad_is_counted() {
    let rig = Rig::small(4);
    rig.create_cache(CacheMode::WriteBack);
    rig.session(|io, engine| {
        let rig = &rig;
        async move {
            with_bad_copy(rig, &io, &engine).await;
            expect(&io, &engine, 5 * EXTENT_BYTES, EXTENT, 1).await;
            io.sleep(2 * SECOND_NS).await;
            assert_eq!(place(&engine, 5), Place::Slow);
            let decisions = decisions(&engine);
            assert_eq!((decisions.down_bad_copy, decisions.down_displaced), (1, 0));
            let told = engine.opinions(5 * EXTENT_BYTES, 1).remove(0).verdict;
            assert!(told.is_some_and(|(words, _)| words.contains("cannot be read")), "{told:?}");
        }
    });
}

#[test]
fn a_bad_copy_that_is_given_up_by_what_leaves_the_log_is_counted_too() {
    let rig = Rig::small(5);
    rig.create_cache(CacheMode::WriteBack);
    rig.session(|io, engine| {
        let rig = &rig;
        async move {
            with_bad_copy(rig, &io, &engine).await;
            put(&io, &engine, 5 * EXTENT_BYTES + 8192, 4096, 2).await;
            engine.flush().await.unwrap();
            assert_eq!(engine.places(5 * EXTENT_BYTES + 8192, 4096, 1)[0].place, Place::Log);
            expect(&io, &engine, 5 * EXTENT_BYTES + 16384, 4096, 1).await;
            io.sleep(60 * SECOND_NS).await;
            assert_eq!(place(&engine, 5), Place::Slow);
            expect(&io, &engine, 5 * EXTENT_BYTES + 8192, 4096, 2).await;
            assert_eq!(decisions(&engine).down_bad_copy, 1);
        }
    });
    rig.assert_sound();
}
