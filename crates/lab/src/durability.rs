//! What durability costs over a drive that flushes slowly: 4 KiB are rewritten and flushed, again and again, by
//! one client and by many, in virtual time. Strict mode is bound by the drive, but many share a flush; in
//! deferred mode a flush returns when its order is fixed.

use std::cell::Cell;
use std::rc::Rc;

use engine::{CreateOptions, Engine, FlushMode, OpenOptions};
use io::units::{GIB, SECOND_NS};
use io::{Durability, Volume, WaitList};
use serde::Serialize;
use twin::{DriveSpec, Latencies, Simulation};

/// Virtual time of one measurement (s).
const DURATION_S: u64 = 10;

/// How long the flush of the published case takes (ns): 46 to 58 flushed writes per second were seen on an Apple
/// SSD (Hector Martin, February 2022).
pub const PUBLISHED_FLUSH_NS: u64 = 17_500_000;

/// Clients that rewrite and flush, each a block of its own.
#[derive(Debug, Clone, Copy)]
pub struct Rewriting {
    /// What flushes promise.
    pub mode: FlushMode,
    /// How many, each with one request at a time.
    pub clients: u64,
    /// How long the fast drive takes to flush (ns).
    pub flush_ns: u64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Rewritten {
    /// What flushes promised, as `bimetal set` writes it.
    pub durability: String,
    /// How many clients.
    pub clients: u64,
    /// Rewrites that were flushed, of all clients together, per second.
    pub rewrites_per_second: f64,
    /// How often the fast drive was flushed for them, per second.
    pub drive_flushes_per_second: f64,
}

impl Rewriting {
    /// Measures, on twins that only differ from those of the hunt in how long a flush takes.
    ///
    /// # Panics
    /// When the engine fails on drives without a fault.
    pub fn measure(self) -> Rewritten {
        let simulation = Simulation::new(1);
        let latencies =
            Latencies { flush_ns: self.flush_ns, jitter_percent: 0, ..Latencies::flash() };
        let fast = simulation.add_drive(DriveSpec { latencies, ..DriveSpec::fast("fast", GIB) });
        let slow = simulation.add_drive(DriveSpec::slow("slow", 8 * GIB));
        let io = simulation.boot();
        let devices = (simulation.device(&io, fast), simulation.device(&io, slow));
        let options = CreateOptions { flush_mode: self.mode, ..CreateOptions::new("v") };
        let counted = simulation.run(&io, async {
            engine::create(&io, &devices.0, &devices.1, options, &|_, _| ()).await.expect("made");
            let opened = Engine::open(&io, &devices.0, &devices.1, OpenOptions::default());
            let volume = opened.await.expect("opened");
            let before = simulation.counters(fast).flushes;
            let (done, working) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(self.clients)));
            let ended = Rc::new(WaitList::new());
            let until_ns = io.now_ns() + DURATION_S * SECOND_NS;
            for client in 0..self.clients {
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
            let flushes = simulation.counters(fast).flushes - before;
            volume.close().await.expect("closed");
            (done.get(), flushes)
        });
        io.drop_tasks();
        let (rewrites, flushes) = counted.done();
        Rewritten {
            durability: self.mode.to_string(),
            clients: self.clients,
            rewrites_per_second: rewrites as f64 / DURATION_S as f64,
            drive_flushes_per_second: flushes as f64 / DURATION_S as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(mode: &str, clients: u64) -> f64 {
        let mode = mode.parse().unwrap();
        let rewriting = Rewriting { mode, clients, flush_ns: PUBLISHED_FLUSH_NS };
        rewriting.measure().rewrites_per_second
    }

    #[test]
    fn one_client_is_bound_by_the_drive_in_strict_mode_and_by_its_writes_in_deferred_mode() {
        let strict = rate("strict", 1);
        assert!((46.0..=58.0).contains(&strict), "{strict} per second");
        let deferred = rate("deferred=1s", 1);
        assert!(deferred >= 10_000.0, "{deferred} per second");
    }

    #[test]
    fn many_clients_share_a_flush_in_strict_mode() {
        let drive = SECOND_NS as f64 / PUBLISHED_FLUSH_NS as f64;
        let strict = rate("strict", 32);
        assert!(strict >= 20.0 * drive, "{strict} per second");
    }
}
