//! The loop that is measured: write 4 KiB, flush, again.

use std::cell::Cell;
use std::rc::Rc;

use engine::{CreateOptions, Engine, OpenOptions};
use io::units::{GIB, MICROSECOND_NS, SECOND_NS};
use io::{Durability, Volume, WaitList};
use twin::{DriveSpec, Latencies, Simulation};

/// Virtual time of a measurement.
const DURATION_NS: u64 = 10 * SECOND_NS;
/// How long the drive takes to flush: 46 to 58 flushed writes per second were published.
const FLUSH_NS: u64 = 17_500 * MICROSECOND_NS;
/// How often it can flush.
pub const DRIVE_FLUSHES_PER_S: f64 = SECOND_NS as f64 / FLUSH_NS as f64;

/// Rewrites and flushes per second, of all clients together, each on blocks of its own.
pub fn rate(mode: &str, clients: u64) -> f64 {
    let simulation = Simulation::new(1);
    let latencies = Latencies { flush_ns: FLUSH_NS, jitter_percent: 0, ..Latencies::flash() };
    let fast = simulation.add_drive(DriveSpec { latencies, ..DriveSpec::fast("fast", GIB) });
    let slow = simulation.add_drive(DriveSpec::slow("slow", 8 * GIB));
    let io = simulation.boot();
    let devices = (simulation.device(&io, fast), simulation.device(&io, slow));
    let options =
        CreateOptions { flush_mode: mode.parse().expect("a mode"), ..CreateOptions::new("v") };
    let rewrites = simulation.run(&io, async {
        engine::create(&io, &devices.0, &devices.1, options, &|_, _| ()).await.expect("made");
        let opened = Engine::open(&io, &devices.0, &devices.1, OpenOptions::default());
        let volume = opened.await.expect("opened");
        let (done, working) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(clients)));
        let ended = Rc::new(WaitList::new());
        let until_ns = io.now_ns() + DURATION_NS;
        for client in 0..clients {
            let (io2, volume) = (io.clone(), volume.clone());
            let (done, working, ended) = (done.clone(), working.clone(), ended.clone());
            io.spawn(async move {
                while io2.now_ns() < until_ns {
                    let buf = io2.pool().take_zeroed(4096);
                    let written = volume.write(client * 4096, buf, Durability::Volatile).await;
                    written.1.expect("written");
                    volume.flush().await.expect("flushed");
                    done.set(done.get() + 1);
                }
                working.set(working.get() - 1);
                ended.wake_all();
            });
        }
        ended.until(|| (working.get() == 0).then_some(())).await;
        volume.close().await.expect("closed");
        done.get()
    });
    let seconds = DURATION_NS as f64 / SECOND_NS as f64;
    io.drop_tasks();
    rewrites.done() as f64 / seconds
}
