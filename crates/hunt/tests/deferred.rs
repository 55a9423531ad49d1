//! What deferred mode is for, in virtual time: rewriting 4 KiB and flushing, over a drive whose flush
//! takes 17.5 ms. `docs/durability.md` has the table.

#[path = "../examples/deferred/measure.rs"]
mod measure;

use engine::{Bound, CreateOptions, Engine, FlushMode, OpenOptions};
use io::units::{MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, Volume};
use measure::{DRIVE_FLUSHES_PER_S, rate};
use twin::{DriveSpec, Simulation};

#[test]
fn one_client_is_bound_by_the_drive_in_strict_mode_and_by_its_writes_in_deferred_mode() {
    let strict = rate("strict", 1);
    assert!((46.0..=58.0).contains(&strict), "{strict} per second");
    let deferred = rate("deferred=1s", 1);
    assert!(deferred >= 10_000.0, "{deferred} per second");
}

#[test]
fn many_clients_share_a_flush_in_strict_mode() {
    let strict = rate("strict", 32);
    assert!(strict >= 20.0 * DRIVE_FLUSHES_PER_S, "{strict} per second");
}

/// How long the drive answers nothing.
const HANG_NS: u64 = 30 * SECOND_NS;

#[test]
fn a_drive_that_hangs_at_the_bound_stops_who_would_exceed_it_and_status_says_so() {
    let simulation = Simulation::new(1);
    let fast = simulation.add_drive(DriveSpec::fast("fast", 12 * MIB));
    let slow = simulation.add_drive(DriveSpec::slow("slow", 68 * MIB));
    let io = simulation.boot();
    let drives = (simulation.device(&io, fast), simulation.device(&io, slow));
    let bound = Bound { age_ms: 100, bytes: MIB };
    let run = async {
        let flush_mode = FlushMode::Deferred(bound);
        let options = CreateOptions { flush_mode, ..CreateOptions::new("prey") };
        engine::create(&io, &drives.0, &drives.1, options, &|_, _| ()).await.unwrap();
        let volume = Engine::open(&io, &drives.0, &drives.1, OpenOptions::default()).await.unwrap();
        volume.write(0, io.pool().take_zeroed(4096), Durability::Volatile).await.1.unwrap();
        simulation.hang(fast, Some(HANG_NS));
        let hung_ns = io.now_ns();
        // Within the bound a flush is a matter of order.
        volume.flush().await.unwrap();
        assert!(io.now_ns() < hung_ns + MILLISECOND_NS);
        io.sleep(2 * u64::from(bound.age_ms) * MILLISECOND_NS).await;
        let exposed = volume.status().exposed;
        assert_eq!(exposed.bytes, 4096);
        assert!(exposed.age_ns > u64::from(bound.age_ms) * MILLISECOND_NS, "{exposed:?}");
        assert!(volume.status().poisoned.is_none(), "a drive that hangs has not failed");
        // Beyond it nothing is acknowledged before the drive is back.
        volume.flush().await.unwrap();
        assert!(io.now_ns() >= hung_ns + HANG_NS, "a flush was acknowledged beyond the bound");
        assert_eq!(volume.status().exposed.bytes, 0);
        volume.write(0, io.pool().take_zeroed(4096), Durability::Volatile).await.1.unwrap();
        volume.close().await.unwrap();
    };
    simulation.run(&io, run).done();
    io.drop_tasks();
}
