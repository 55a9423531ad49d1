//! Two twins fused by the engine that ships, in virtual time.

use engine::{CreateOptions, Engine, OpenOptions, Placement};
use io::Io;
use twin::{DriveId, DriveSpec, Profile, Simulation};

use super::twins::{outcome, watch};
use super::{Bench, Moment, Outcome};
use crate::fio::{JobFile, Limits, Served, Target, play};

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
}

/// A fused volume.
pub struct FusedBench {
    name: String,
    specs: [DriveSpec; 2],
    kind: FusedKind,
    seed: u64,
    running: Running,
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
        let scheme = match kind {
            FusedKind::Own => "fusion",
            FusedKind::Apple => "apple-fusion",
        };
        let running = Running::start(&specs, kind, seed)?;
        Ok(FusedBench { name: format!("{scheme}:{pair}"), specs, kind, seed, running })
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
        let placement = match kind {
            FusedKind::Own => Placement::Heat,
            FusedKind::Apple => Placement::Fusion,
        };
        let opened = simulation.run(&io, async {
            let [fast, slow] = &devices;
            let options = CreateOptions::new("laboratory");
            engine::create(&io, fast, slow, options, &|_, _| ()).await?;
            let options = OpenOptions { placement, ..OpenOptions::default() };
            Engine::open(&io, fast, slow, options).await
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
        Ok(())
    }

    fn play(&mut self, file: &JobFile, _: &str, limits: Limits) -> Result<Outcome, String> {
        let Running { simulation, drives, io, volume } = &self.running;
        let work = watch(simulation, io, drives, play(volume, file, limits));
        let (played, moments) = simulation.run(io, work).done();
        Ok(outcome(file, &played, moments))
    }

    fn rest(&mut self, duration_ns: u64) -> Result<Vec<Moment>, String> {
        let Running { simulation, drives, io, .. } = &self.running;
        let rest = io.sleep(duration_ns);
        Ok(simulation.run(io, watch(simulation, io, drives, rest)).done().1)
    }
}
