//! The engine as a subject.

use engine::{
    CacheMode, Class, CreateOptions, Engine, FlushMode, Member, OpenOptions, Tier, Tuning,
    TuningChange,
};
use io::{Device, Io, IoError};
use twin::Simulation;

use crate::rot;
use crate::subject::{Prey, Subject};

/// Volumes of class span with the smallest landing log, so that it is full and wraps soon.
pub struct Bimetal;

impl Prey for Engine {
    fn drive_reads(&self, tier: Tier) -> u64 {
        self.status().drives[tier.index()].traffic.reads
    }

    fn writes_behind(&self) -> bool {
        self.keeps_in_memory()
    }

    fn flush_mode(&self) -> FlushMode {
        self.status().flush_mode
    }

    async fn set_flush_mode(&self, mode: FlushMode) -> Result<(), IoError> {
        Ok(Engine::set_flush_mode(self, mode).await?)
    }

    async fn set_cache_mode(&self, mode: CacheMode) -> Result<(), IoError> {
        Ok(Engine::set_cache_mode(self, mode).await?)
    }

    async fn set_inclusion(&self, on: bool) -> Result<(), IoError> {
        Ok(Engine::tune(self, TuningChange::Inclusion(on)).await?)
    }
}

impl Subject for Bimetal {
    type Volume = Engine;

    async fn create(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        create(io, fast, slow, CreateOptions::new("prey")).await
    }

    async fn open(&self, io: &Io, fast: &Device, slow: &Device) -> Result<Engine, String> {
        let opened = Engine::open(io, fast, slow, OpenOptions::default()).await;
        opened.map_err(|error| error.to_string())
    }

    async fn open_alone(
        &self,
        io: &Io,
        survivor: Tier,
        drive: &Device,
    ) -> Result<Option<Engine>, String> {
        let here = Member::Here(drive.clone());
        let gone = Member::Gone { path: "lost".into(), why: "it was lost".into() };
        let members = match survivor {
            Tier::Fast => [here, gone],
            Tier::Slow => [gone, here],
        };
        let options = OpenOptions { degraded: true, ..OpenOptions::default() };
        let opened = Engine::open_members(io, members, options).await;
        opened.map(Some).map_err(|error| error.to_string())
    }

    fn spoil_map(&self, simulation: &Simulation, tier: Tier) -> bool {
        rot::spoil_map(simulation, tier)
    }

    fn spoil_newer_copies(&self, simulation: &Simulation, tier: Tier, closed: bool) -> bool {
        rot::spoil_newer_copies(simulation, tier, closed)
    }

    async fn close(&self, volume: Engine) -> Result<(), String> {
        volume.close().await.map_err(|error| error.to_string())
    }

    async fn check(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        let report = engine::check(io, fast, slow, &|_, _| ()).await;
        let report = report.map_err(|error| error.to_string())?;
        match (report.errors.as_slice(), report.clean) {
            ([], true) => Ok(()),
            ([], false) => Err("a volume closed in order is not marked clean".into()),
            (errors, _) => Err(errors.join("\n")),
        }
    }
}

/// As [`Bimetal`], with inclusion: what goes up keeps its slot below.
pub struct Keeping;

impl Subject for Keeping {
    type Volume = Engine;

    async fn create(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        let tuning = Tuning { inclusion: true, ..Tuning::default() };
        create(io, fast, slow, CreateOptions { tuning, ..CreateOptions::new("prey") }).await
    }

    async fn open(&self, io: &Io, fast: &Device, slow: &Device) -> Result<Engine, String> {
        Bimetal.open(io, fast, slow).await
    }

    async fn open_alone(
        &self,
        io: &Io,
        survivor: Tier,
        drive: &Device,
    ) -> Result<Option<Engine>, String> {
        Bimetal.open_alone(io, survivor, drive).await
    }

    fn spoil_map(&self, simulation: &Simulation, tier: Tier) -> bool {
        rot::spoil_map(simulation, tier)
    }

    fn spoil_newer_copies(&self, simulation: &Simulation, tier: Tier, closed: bool) -> bool {
        rot::spoil_newer_copies(simulation, tier, closed)
    }

    async fn close(&self, volume: Engine) -> Result<(), String> {
        Bimetal.close(volume).await
    }

    async fn check(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        Bimetal.check(io, fast, slow).await
    }
}

/// As [`Bimetal`], of class cache.
pub struct Cached(pub CacheMode);

impl Subject for Cached {
    type Volume = Engine;

    async fn create(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        let options =
            CreateOptions { class: Class::Cache, cache_mode: self.0, ..CreateOptions::new("prey") };
        create(io, fast, slow, options).await
    }

    async fn open(&self, io: &Io, fast: &Device, slow: &Device) -> Result<Engine, String> {
        Bimetal.open(io, fast, slow).await
    }

    async fn open_alone(
        &self,
        io: &Io,
        survivor: Tier,
        drive: &Device,
    ) -> Result<Option<Engine>, String> {
        Bimetal.open_alone(io, survivor, drive).await
    }

    fn goes_on(&self, simulation: &Simulation, survivor: Tier) -> bool {
        survivor == Tier::Slow && rot::is_through(simulation, survivor)
    }

    fn spoil_map(&self, simulation: &Simulation, tier: Tier) -> bool {
        rot::spoil_map(simulation, tier)
    }

    fn spoil_newer_copies(&self, simulation: &Simulation, tier: Tier, closed: bool) -> bool {
        rot::spoil_newer_copies(simulation, tier, closed)
    }

    async fn close(&self, volume: Engine) -> Result<(), String> {
        Bimetal.close(volume).await
    }

    async fn check(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        Bimetal.check(io, fast, slow).await
    }
}

async fn create(
    io: &Io,
    fast: &Device,
    slow: &Device,
    options: CreateOptions,
) -> Result<(), String> {
    let made = engine::create(io, fast, slow, options, &|_, _| ()).await;
    made.map(|_| ()).map_err(|error| error.to_string())
}

/// The slow drive of a cache in write-through, whose fast drive is gone from the beginning.
pub struct Widowed;

impl Subject for Widowed {
    type Volume = Engine;

    async fn create(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        Cached(CacheMode::WriteThrough).create(io, fast, slow).await
    }

    async fn open(&self, io: &Io, _: &Device, slow: &Device) -> Result<Engine, String> {
        let opened = Bimetal.open_alone(io, Tier::Slow, slow).await?;
        opened.ok_or_else(|| "it does not open".to_owned())
    }

    async fn close(&self, volume: Engine) -> Result<(), String> {
        Bimetal.close(volume).await
    }

    /// There is nothing to compare it with.
    async fn check(&self, _: &Io, _: &Device, _: &Device) -> Result<(), String> {
        Ok(())
    }
}

/// A cache in write-through that is given a new fast drive at each opening, whatever that one held.
pub struct Remarried;

impl Remarried {
    /// Opens both drives, as one does who does not know that the new one was being attached: that works, or
    /// the words say what to do.
    async fn try_both(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        match Bimetal.open(io, fast, slow).await {
            Ok(volume) => Bimetal.close(volume).await,
            Err(words)
                if ["attach-cache", "no bimetal superblock"]
                    .iter()
                    .any(|it| words.contains(it)) =>
            {
                Ok(())
            }
            Err(words) => Err(words),
        }
    }
}

impl Subject for Remarried {
    type Volume = Engine;

    async fn create(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        Cached(CacheMode::WriteThrough).create(io, fast, slow).await
    }

    async fn open(&self, io: &Io, fast: &Device, slow: &Device) -> Result<Engine, String> {
        if io.random().is_multiple_of(2) {
            self.try_both(io, fast, slow).await?;
        }
        // Another drive than the one that was lost, or that very one.
        if io.random().is_multiple_of(2) {
            let blanked = fast.write_zeroes(0, fast.info().size_bytes).await;
            blanked.map_err(|error| error.to_string())?;
        }
        let attached = engine::attach_cache(io, fast, slow).await;
        attached.map_err(|error| error.to_string())?;
        Bimetal.open(io, fast, slow).await
    }

    async fn close(&self, volume: Engine) -> Result<(), String> {
        Bimetal.close(volume).await
    }

    async fn check(&self, io: &Io, fast: &Device, slow: &Device) -> Result<(), String> {
        Bimetal.check(io, fast, slow).await
    }
}
