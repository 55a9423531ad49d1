//! Extents of the slow drive in RAM: what they save, and that they are never old.

mod rig;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use engine::{CacheMode, Class, CreateOptions, Engine, OpenOptions, Placement, Status, create};
use io::units::{MILLISECOND_NS, SECOND_NS};
use io::{Durability, Io, Volume, ZeroMode};
use rig::{EXTENT, Rig, expect, get, put};

const BYTES: u64 = EXTENT as u64;
/// Extents that fill the fast drive of a small rig and half as much of the slow one.
const FILLED: u64 = 400;

async fn fill(io: &Io, engine: &Engine) {
    for extent in 0..FILLED {
        put(io, engine, extent * BYTES, EXTENT, 1).await;
    }
    engine.flush().await.unwrap();
    io.sleep(30 * SECOND_NS).await;
}

/// Extents that live on the slow drive.
fn below(engine: &Engine) -> Vec<u64> {
    let slow = |extent: &u64| engine.places(extent * BYTES, 4096, 1)[0].place == io::Place::Slow;
    (0..FILLED).filter(slow).collect()
}

fn slow_reads(status: &Status) -> u64 {
    status.drives[1].traffic.reads
}

fn slow_bytes(status: &Status) -> u64 {
    status.drives[1].traffic.read_bytes
}

#[test]
fn an_extent_read_in_pieces_is_read_once() {
    let rig = Rig::small(1);
    rig.create();
    rig.session(|io, engine| async move {
        fill(&io, &engine).await;
        let extent = below(&engine)[20];
        let before = slow_reads(&engine.status());
        for block in (0..32).rev() {
            expect(&io, &engine, extent * BYTES + block * 4096, 4096, 1).await;
        }
        let status = engine.status();
        assert_eq!(slow_reads(&status) - before, 1);
        assert_eq!(status.served.stage_bytes, 31 * 4096);
        assert!(status.policy.stage_bytes >= BYTES && status.memory_bytes >= BYTES);
    });
}

#[test]
fn what_proves_itself_goes_up_without_another_slow_read() {
    let rig = Rig::small(2);
    rig.create();
    rig.session(|io, engine| async move {
        fill(&io, &engine).await;
        let hot = below(&engine)[10..60].to_vec();
        let before = (slow_reads(&engine.status()), slow_bytes(&engine.status()));
        let mut rounds = 0;
        // Those in the stage when all others are above need not go there.
        while hot.iter().filter(|extent| below(&engine).contains(*extent)).count() > 12 {
            for extent in &hot {
                expect(&io, &engine, extent * BYTES + rounds % 32 * 4096, 4096, 1).await;
                io.sleep(MILLISECOND_NS).await;
            }
            rounds += 1;
            assert!(rounds < 100, "{:?} {:?}", engine.status().policy, engine.status().moves);
        }
        let status = engine.status();
        let decisions = status.policy.decisions;
        assert!(decisions.up_from_stage >= 30, "{decisions:?}");
        // What went up had been read around, and was not read once more for it.
        let (reads, read_bytes) = (slow_reads(&status) - before.0, slow_bytes(&status) - before.1);
        let whole = decisions.read_around + decisions.up_at_rest;
        assert_eq!(read_bytes, whole * BYTES + (reads - whole) * 4096);
        for extent in &hot {
            expect(&io, &engine, extent * BYTES, EXTENT, 1).await;
        }
    });
}

#[test]
fn a_stage_of_nothing_reads_what_was_asked_for() {
    let rig = Rig::small(3);
    rig.create();
    rig.run(|io, fast, slow| async move {
        let options = OpenOptions { stage_bytes: Some(0), ..OpenOptions::default() };
        let engine = Engine::open(&io, &fast, &slow, options).await.unwrap();
        fill(&io, &engine).await;
        let extent = below(&engine)[5];
        let before = engine.status();
        for block in 0..4 {
            expect(&io, &engine, extent * BYTES + block * 8192, 4096, 1).await;
        }
        let status = engine.status();
        assert_eq!(
            status.drives[1].traffic.read_bytes - before.drives[1].traffic.read_bytes,
            16384
        );
        assert_eq!(status.policy.stage_bytes_max, 0);
        engine.close().await.unwrap();
    });
}

async fn together<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) {
    let (mut one, mut other) = (pin!(one), pin!(other));
    let mut done = (false, false);
    poll_fn(|context| {
        done.0 = done.0 || one.as_mut().poll(context).is_ready();
        done.1 = done.1 || other.as_mut().poll(context).is_ready();
        if done == (true, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Everything that changes what is below the stage, with a read of the stage before and after.
async fn change_and_look(io: &Io, engine: &Engine, extents: &[u64]) {
    for (n, extent) in extents.iter().enumerate() {
        let at = extent * BYTES;
        expect(io, engine, at + 4096, 4096, 1).await;
        match n % 5 {
            0 => put(io, engine, at, EXTENT, 2).await,
            1 => {
                put(io, engine, at, 4096, 2).await;
                engine.flush().await.unwrap();
                // At home by then.
                io.sleep(2 * SECOND_NS).await;
                expect(io, engine, at + 8192, 4096, 1).await;
            }
            2 => engine.trim(at, BYTES, Durability::Volatile).await.unwrap(),
            3 => {
                let mode = ZeroMode::Deallocate;
                engine.write_zeroes(at, 8192, mode, Durability::Volatile).await.unwrap();
                io.sleep(2 * SECOND_NS).await;
            }
            _ => {
                // A read of the whole extent on its way while its home changes.
                let read = get(io, engine, at + 65536, 4096);
                let write = put(io, engine, at, EXTENT, 2);
                together(read, write).await;
                io.sleep(SECOND_NS).await;
            }
        }
        match n % 5 {
            0 | 4 => expect(io, engine, at, EXTENT, 2).await,
            1 => {
                expect(io, engine, at, 4096, 2).await;
                expect(io, engine, at + 4096, EXTENT - 4096, 1).await;
            }
            2 => rig::expect_zeros(io, engine, at, EXTENT).await,
            _ => {
                rig::expect_zeros(io, engine, at, 8192).await;
                expect(io, engine, at + 8192, EXTENT - 8192, 1).await;
            }
        }
    }
}

#[test]
fn what_is_staged_is_never_older_than_its_home() {
    for placement in [Placement::Heat, Placement::Fusion] {
        let rig = Rig::small(4);
        rig.create();
        rig.run(|io, fast, slow| async move {
            let options = OpenOptions { placement, ..OpenOptions::default() };
            let engine = Engine::open(&io, &fast, &slow, options).await.unwrap();
            fill(&io, &engine).await;
            let extents = below(&engine)[10..30].to_vec();
            change_and_look(&io, &engine, &extents).await;
            engine.close().await.unwrap();
            assert_eq!(engine.verify(), Vec::<String>::new());
        });
        rig.assert_sound();
    }
}

#[test]
fn in_class_cache_what_is_written_home_is_what_is_read() {
    for cache_mode in [CacheMode::WriteBack, CacheMode::WriteThrough] {
        let rig = Rig::small(5);
        rig.run(|io, fast, slow| async move {
            let class = Class::Cache;
            let options = CreateOptions { class, cache_mode, ..CreateOptions::new("test") };
            create(&io, &fast, &slow, options, &|_, _| ()).await.unwrap();
            let engine = rig::open(&io, &fast, &slow).await;
            fill(&io, &engine).await;
            let extents = below(&engine)[10..30].to_vec();
            change_and_look(&io, &engine, &extents).await;
            engine.close().await.unwrap();
        });
        rig.assert_sound();
    }
}
