//! Sends requests down one route of the engine, on simulated drives. The difference between two counts is
//! what the requests cost, drives included; `device-read` and `device-write` are the drives alone.

use engine::{CreateOptions, Engine, OpenOptions, TuningChange, create};
use io::units::{GIB, KIB, MIB, SECOND_NS};
use io::{Device, Durability, Io, Volume};
use twin::{DriveSpec, Simulation};

const BLOCK: u64 = 4096;
/// Places that are used: extents that are at home on the fast drive.
const SPAN_BYTES: u64 = 8 * MIB;
/// The slow drive, and where the volume is to be large, whose map then has a line of the cache for each of many.
const SLOW_BYTES: u64 = 128 * MIB;
const LARGE_BYTES: u64 = 256 * GIB;

struct Bench {
    io: Io,
    fast: Device,
    engine: Engine,
}

impl Bench {
    async fn read(&self, at: u64) {
        let (_, outcome) = self.engine.read(at, self.io.pool().take(BLOCK as usize)).await;
        outcome.expect("simulated drives read");
    }

    async fn write(&self, at: u64) {
        let buf = self.io.pool().take(BLOCK as usize);
        let (_, outcome) = self.engine.write(at, buf, Durability::Volatile).await;
        outcome.expect("simulated drives write");
    }

    async fn request(&self, route: &str, number: u64) {
        // Spread over the span, no block of it twice before all were used, and never in order, however many streams
        // are told apart.
        let blocks = SPAN_BYTES / BLOCK;
        let at = ((number % blocks).reverse_bits() >> (u64::BITS - blocks.ilog2())) * BLOCK;
        match route {
            "device-read" => {
                let buf = self.io.pool().take(BLOCK as usize);
                self.fast.read(16 * MIB + at, buf).await.1.expect("simulated drives read");
            }
            "device-write" => {
                let buf = self.io.pool().take(BLOCK as usize);
                self.fast.write(16 * MIB + at, buf).await.1.expect("simulated drives write");
            }
            "read-fast" => self.read(at).await,
            "read-hole" => self.read(4 * SPAN_BYTES + at).await,
            // The same few places, and places all over the volume: what differs is what was looked up.
            "large-near" => self.read(4 * SPAN_BYTES + at).await,
            "large-far" => {
                let extents = (LARGE_BYTES - 4 * SPAN_BYTES) / (128 * KIB);
                let extent = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % extents;
                self.read(4 * SPAN_BYTES + extent * 128 * KIB).await;
            }
            "write-home" | "write-behind" => self.write(at).await,
            "write-log" => self.write(4 * SPAN_BYTES + at).await,
            "write-flush" => {
                self.write(at).await;
                self.engine.flush().await.expect("simulated drives flush");
            }
            route => panic!("there is no route '{route}'"),
        }
    }
}

/// Makes a volume, fills a part of it, and sends so many requests down the route.
///
/// # Panics
/// When there is no such route.
pub fn send(route: &str, count: u64) {
    let simulation = Simulation::new(1);
    let spec = |spec: DriveSpec| DriveSpec { atomic_write_bytes: 4096, ..spec };
    let large = route.starts_with("large");
    let (fast_bytes, slow_bytes) = if large { (GIB, LARGE_BYTES) } else { (64 * MIB, SLOW_BYTES) };
    let fast = simulation.add_drive(spec(DriveSpec::fast("fast", fast_bytes)));
    let slow = simulation.add_drive(spec(DriveSpec::slow("slow", slow_bytes)));
    let io = simulation.boot();
    let (fast, slow) = (simulation.device(&io, fast), simulation.device(&io, slow));
    let work = async {
        let options = CreateOptions { landing_bytes: Some(16 * MIB), ..CreateOptions::new("v") };
        create(&io, &fast, &slow, options, &|_, _| ()).await.expect("a volume is made");
        let engine = Engine::open(&io, &fast, &slow, OpenOptions::default()).await.expect("opens");
        for at in (0..SPAN_BYTES).step_by(MIB as usize) {
            let buf = io.pool().take_zeroed(MIB as usize);
            engine.write(at, buf, Durability::Volatile).await.1.expect("simulated drives write");
        }
        engine.flush().await.expect("simulated drives flush");
        // Until nothing is young or left to be done.
        io.sleep(60 * SECOND_NS).await;
        if route == "write-behind" {
            let change = TuningChange::Behind(Some(16 * MIB));
            engine.tune(change).await.expect("it can be set");
        }
        let bench = Bench { io: io.clone(), fast: fast.clone(), engine };
        for number in 0..count {
            bench.request(route, number).await;
        }
    };
    simulation.run(&io, work).done();
    io.drop_tasks();
    io.drain();
}
