//! Two twins fused by the engine that ships, in virtual time.

use engine::{CacheMode, Class, CreateOptions, Engine, OpenOptions, Placement};
use io::Io;
use twin::{DriveId, DriveSpec, Profile, Simulation};

use super::page_cache::PageCache;
use super::twins::{outcome, play_through, watch};
use super::{Bench, Memory, Moment, Outcome};
use crate::fio::{JobFile, Limits, Served, Target};

/// Blocks are never torn on these drives: what the kernel promises of drives with 4 KiB sectors, and
/// what lets the engine write in place.
const ATOMIC_BYTES: u32 = 4096;

/// How the volume places data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FusedKind {
    /// As bimetal does.
    Own,
    /// As was seen of Apple's Fusion Drive.
    Apple,
    /// The fast drive is a cache of the slow one (class cache), as in a hybrid drive: a flush ends when
    /// both have everything.
    Hybrid,
    /// The same; a flush ends when the fast drive has everything.
    WriteBack,
}

impl FusedKind {
    /// All.
    pub const ALL: [FusedKind; 4] =
        [FusedKind::Own, FusedKind::Apple, FusedKind::Hybrid, FusedKind::WriteBack];

    /// What stands before the names of its drives.
    pub fn scheme(self) -> &'static str {
        match self {
            FusedKind::Own => "fusion",
            FusedKind::Apple => "apple-fusion",
            FusedKind::Hybrid => "hybrid",
            FusedKind::WriteBack => "hybrid-write-back",
        }
    }

    fn open_options(self) -> OpenOptions {
        let placement = match self {
            FusedKind::Own | FusedKind::Hybrid | FusedKind::WriteBack => Placement::default(),
            FusedKind::Apple => Placement::Fusion,
        };
        OpenOptions { placement, ..OpenOptions::default() }
    }

    fn create_options(self) -> CreateOptions {
        let (class, cache_mode) = match self {
            FusedKind::Own | FusedKind::Apple => (Class::Span, CacheMode::default()),
            FusedKind::Hybrid => (Class::Cache, CacheMode::WriteThrough),
            FusedKind::WriteBack => (Class::Cache, CacheMode::WriteBack),
        };
        CreateOptions { class, cache_mode, ..CreateOptions::new("laboratory") }
    }
}

/// A fused volume.
pub struct FusedBench {
    name: String,
    specs: [DriveSpec; 2],
    kind: FusedKind,
    seed: u64,
    running: Running,
    /// What the operating system keeps in memory.
    cache: Option<PageCache>,
}

struct Running {
    simulation: Simulation,
    drives: [DriveId; 2],
    io: Io,
    volume: Served<Engine>,
}

impl FusedBench {
    /// The volume of `FAST+SLOW`, two names or files of twins.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(pair: &str, kind: FusedKind, seed: u64) -> Result<FusedBench, String> {
        let (fast, slow) = pair
            .split_once('+')
            .ok_or_else(|| format!("'{pair}' does not name two twins (FAST+SLOW)"))?;
        let spec = |choice: &str| {
            let profile = Profile::find(choice).map_err(|error| error.to_string())?;
            Ok::<_, String>(DriveSpec {
                atomic_write_bytes: ATOMIC_BYTES,
                // What a power cut could lose is of no interest here, and costs memory.
                cache_bytes: 0,
                zeros_are_holes: true,
                ..profile.spec(choice)
            })
        };
        let specs = [spec(fast)?, spec(slow)?];
        let running = Running::start(&specs, kind, seed)?;
        let name = format!("{}:{pair}", kind.scheme());
        Ok(FusedBench { name, specs, kind, seed, running, cache: None })
    }

    /// The volume, to look at.
    pub fn volume(&self) -> &Engine {
        self.running.volume.volume()
    }
}

impl Running {
    fn start(specs: &[DriveSpec; 2], kind: FusedKind, seed: u64) -> Result<Running, String> {
        let simulation = Simulation::new(seed);
        let drives = [0, 1].map(|index: usize| simulation.add_drive(specs[index].clone()));
        let io = simulation.boot();
        let devices = drives.map(|drive| simulation.device(&io, drive));
        let opened = simulation.run(&io, async {
            let [fast, slow] = &devices;
            engine::create(&io, fast, slow, kind.create_options(), &|_, _| ()).await?;
            Engine::open(&io, fast, slow, kind.open_options()).await
        });
        let engine =
            opened.done().map_err(|error| format!("the volume cannot be made: {error}"))?;
        let volume = Served::new(io.clone(), engine);
        Ok(Running { simulation, drives, io, volume })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The engine's tasks hold the executor, which holds them.
        self.io.drop_tasks();
    }
}

impl Bench for FusedBench {
    fn name(&self) -> &str {
        &self.name
    }

    fn size_bytes(&self) -> u64 {
        self.running.volume.size_bytes()
    }

    fn is_virtual(&self) -> bool {
        true
    }

    fn drives(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.path.clone()).collect()
    }

    fn renew(&mut self) -> Result<(), String> {
        self.running = Running::start(&self.specs, self.kind, self.seed)?;
        self.cache = None;
        Ok(())
    }

    fn play(
        &mut self,
        file: &JobFile,
        _: &str,
        limits: Limits,
        memory: Option<Memory>,
    ) -> Result<Outcome, String> {
        if let Some(memory) = memory {
            self.cache.get_or_insert_with(|| PageCache::new(memory));
        }
        let cache = self.cache.as_ref().filter(|_| memory.is_some());
        let Running { simulation, drives, io, volume } = &self.running;
        let work = watch(simulation, io, drives, play_through(cache, volume, file, limits));
        let (played, moments) = simulation.run(io, work).done();
        Ok(outcome(file, &played, moments))
    }

    fn rest(&mut self, duration_ns: u64) -> Result<Vec<Moment>, String> {
        let Running { simulation, drives, io, .. } = &self.running;
        let rest = io.sleep(duration_ns);
        Ok(simulation.run(io, watch(simulation, io, drives, rest)).done().1)
    }

    fn restart(&mut self) -> Result<(), String> {
        let failed = |error: engine::Error| format!("the volume cannot be opened again: {error}");
        let kind = self.kind;
        self.cache = None;
        let Running { simulation, drives, io, volume } = &mut self.running;
        simulation.run(io, volume.volume().close()).done().map_err(failed)?;
        io.drop_tasks();
        *io = simulation.boot();
        let devices = drives.map(|drive| simulation.device(io, drive));
        let opening = async {
            let [fast, slow] = &devices;
            Engine::open(io, fast, slow, kind.open_options()).await
        };
        let engine = simulation.run(io, opening).done().map_err(failed)?;
        *volume = Served::new(io.clone(), engine);
        Ok(())
    }
}
