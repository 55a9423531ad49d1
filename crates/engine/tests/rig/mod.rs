//! A pair of simulated drives with a volume on them, and short ways to use it.
#![allow(dead_code)] // Each test file uses its part.

use std::future::Future;

use engine::{CacheMode, Class, CreateOptions, Engine, Error, Member, OpenOptions, create};
use io::units::{GIB, MIB, SECOND_NS};
use io::{Device, Durability, Io, Place, Volume, ZeroMode};
use twin::{DriveId, DriveSpec, Simulation};

/// Drives, and the seed's world around them.
pub struct Rig {
    pub simulation: Simulation,
    pub fast: DriveId,
    pub slow: DriveId,
}

impl Rig {
    /// Fast 32 MiB, slow 128 MiB, 4 MiB of log; blocks are written atomically.
    pub fn small(seed: u64) -> Rig {
        Rig::sized(seed, 32 * MIB, 128 * MIB, 4096)
    }

    pub fn sized(seed: u64, fast_bytes: u64, slow_bytes: u64, atomic_write_bytes: u32) -> Rig {
        let simulation = Simulation::new(seed);
        let spec = |spec: DriveSpec| DriveSpec { atomic_write_bytes, ..spec };
        let fast = simulation.add_drive(spec(DriveSpec::fast("fast", fast_bytes)));
        let slow = simulation.add_drive(spec(DriveSpec::slow("slow", slow_bytes)));
        Rig { simulation, fast, slow }
    }

    pub fn devices(&self, io: &Io) -> (Device, Device) {
        (self.simulation.device(io, self.fast), self.simulation.device(io, self.slow))
    }

    /// Runs something that needs no power cut on a fresh executor.
    pub fn run<T, F: Future<Output = T>>(&self, work: impl FnOnce(Io, Device, Device) -> F) -> T {
        let io = self.simulation.boot();
        let (fast, slow) = self.devices(&io);
        let value = self.simulation.run(&io, work(io.clone(), fast, slow)).done();
        io.drop_tasks();
        io.drain();
        value
    }

    pub fn create(&self) {
        self.run(|io, fast, slow| async move {
            create(&io, &fast, &slow, CreateOptions::new("test"), &|_, _| ()).await.unwrap();
        });
    }

    /// Makes a volume of class cache.
    pub fn create_cache(&self, cache_mode: CacheMode) {
        self.run(|io, fast, slow| async move {
            let class = Class::Cache;
            let options = CreateOptions { class, cache_mode, ..CreateOptions::new("test") };
            create(&io, &fast, &slow, options, &|_, _| ()).await.unwrap();
        });
    }

    /// Opens the volume with its slow drive, and no fast one.
    pub async fn open_slow_alone(&self, io: &Io, options: OpenOptions) -> Result<Engine, Error> {
        let gone = Member::Gone { path: "elsewhere".into(), why: "it is not there".into() };
        let members = [gone, Member::Here(self.devices(io).1)];
        Engine::open_members(io, members, options).await
    }

    pub fn open_error(&self) -> Error {
        self.run(|io, fast, slow| async move {
            Engine::open(&io, &fast, &slow, OpenOptions::default()).await.err().expect("refused")
        })
    }

    /// Opens, works, closes.
    pub fn session<T, F: Future<Output = T>>(&self, work: impl FnOnce(Io, Engine) -> F) -> T {
        self.run(|io, fast, slow| async move {
            let engine = open(&io, &fast, &slow).await;
            let value = work(io, engine.clone()).await;
            engine.close().await.unwrap();
            assert_eq!(engine.verify(), Vec::<String>::new());
            value
        })
    }

    /// Opens, works, and leaves everything lying about, as a killed process does.
    pub fn killed_session<T, F: Future<Output = T>>(
        &self,
        work: impl FnOnce(Io, Engine) -> F,
    ) -> T {
        self.run(|io, fast, slow| async move {
            let engine = open(&io, &fast, &slow).await;
            work(io, engine).await
        })
    }

    /// The offline check finds nothing.
    pub fn assert_sound(&self) {
        let report = self.run(|io, fast, slow| async move {
            engine::check(&io, &fast, &slow, &|_, _| ()).await.unwrap()
        });
        assert_eq!(report.errors, Vec::<String>::new());
    }
}

pub async fn open(io: &Io, fast: &Device, slow: &Device) -> Engine {
    Engine::open(io, fast, slow, OpenOptions::default()).await.unwrap()
}

/// Bytes that tell where they belong: repeats of a number made of place and version.
pub fn pattern(at: u64, length: usize, version: u64) -> Vec<u8> {
    let words = (0..length as u64 / 8).map(|n| (at / 8 + n) << 20 | version);
    words.flat_map(u64::to_le_bytes).collect()
}

pub async fn put(io: &Io, engine: &Engine, at: u64, length: usize, version: u64) {
    let mut buf = io.pool().take(length);
    buf.copy_from_slice(&pattern(at, length, version));
    engine.write(at, buf, Durability::Volatile).await.1.unwrap();
}

pub async fn get(io: &Io, engine: &Engine, at: u64, length: usize) -> Vec<u8> {
    let (buf, outcome) = engine.read(at, io.pool().take(length)).await;
    outcome.unwrap();
    buf.to_vec()
}

pub async fn expect(io: &Io, engine: &Engine, at: u64, length: usize, version: u64) {
    assert!(get(io, engine, at, length).await == pattern(at, length, version), "at {at}");
}

pub async fn expect_zeros(io: &Io, engine: &Engine, at: u64, length: usize) {
    assert!(get(io, engine, at, length).await.iter().all(|byte| *byte == 0), "at {at}");
}

pub async fn zero(engine: &Engine, at: u64, length: u64) {
    engine.write_zeroes(at, length, ZeroMode::Deallocate, Durability::Volatile).await.unwrap();
}

pub const EXTENT: usize = 128 << 10;
pub const LARGE: u64 = GIB;

/// Reads an extent until it is worth a copy, and gives the volume time to make one.
pub async fn promote(io: &Io, engine: &Engine, extent: u64) {
    let at = extent * EXTENT as u64;
    for round in 0..6 {
        get(io, engine, at + round * 12_288, 4096).await;
        io.sleep(SECOND_NS / 100).await;
    }
    io.sleep(2 * SECOND_NS).await;
    assert_eq!(engine.places(at, EXTENT as u64, 9)[0].place, Place::Fast);
}
