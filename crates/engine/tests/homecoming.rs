//! Everything comes home beside clients that go on writing.

mod rig;

use std::cell::Cell;
use std::rc::Rc;

use engine::CacheMode;
use io::Volume;
use io::units::{MIB, SECOND_NS};
use rig::{EXTENT, Rig, put};
use twin::Random;

const EXTENT_BYTES: u64 = EXTENT as u64;
/// More batches than the smallest log has blocks left where clients have to stop.
const DIRTY_EXTENTS: u64 = 1200;
/// A client that waits longer stands still.
const PATIENCE_NS: u64 = 5 * SECOND_NS;

#[test]
fn clients_go_on_while_more_comes_home_than_the_log_has_room_for() {
    let rig = Rig::sized(1, 168 * MIB, 512 * MIB, 512);
    rig.create_cache(CacheMode::WriteBack);
    rig.session(|io, engine| async move {
        for extent in 0..DIRTY_EXTENTS {
            put(&io, &engine, extent * EXTENT_BYTES, EXTENT, 1).await;
        }
        engine.flush().await.unwrap();
        let switched = Rc::new(Cell::new(false));
        let longest_ns = Rc::new(Cell::new(0));
        for client in 0..8 {
            let (io, engine) = (io.clone(), engine.clone());
            let (switched, longest_ns) = (switched.clone(), longest_ns.clone());
            io.clone().spawn(async move {
                let mut random = Random::new(client);
                while !switched.get() {
                    let begun_ns = io.now_ns();
                    let at = random.below(DIRTY_EXTENTS * EXTENT_BYTES / 4096) * 4096;
                    put(&io, &engine, at, 4096, 2).await;
                    longest_ns.set(longest_ns.get().max(io.now_ns() - begun_ns));
                }
            });
        }
        let (switching, done) = (engine.clone(), switched.clone());
        io.spawn(async move {
            switching.set_cache_mode(CacheMode::WriteThrough).await.unwrap();
            done.set(true);
        });
        for _ in 0..600 {
            io.sleep(SECOND_NS).await;
            if switched.get() {
                break;
            }
        }
        assert!(switched.get(), "it never ended: {:?}", engine.status().log);
        assert!(longest_ns.get() < PATIENCE_NS, "a client waited {} ns", longest_ns.get());
        engine.flush().await.unwrap();
        assert_eq!(engine.status().dirty_bytes, 0);
    });
}
