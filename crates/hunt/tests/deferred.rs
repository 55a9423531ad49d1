//! Deferred mode over a drive that answers nothing for a while.

use engine::{Bound, CreateOptions, Engine, FlushMode, OpenOptions};
use io::units::{MIB, MILLISECOND_NS, SECOND_NS};
use io::{Durability, Volume};
use twin::{DriveSpec, Simulation};

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
