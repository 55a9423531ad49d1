//! `bimetal lab replay`: a block trace, asked again.

use std::path::PathBuf;

use clap::Args;
use engine::{CacheMode, Engine, OpenOptions};
use indicatif::ProgressBar;
use io::units::{human_bytes, parse_bytes};
use io::{Device, Volume};
use lab::fio::{Served, Target};
use lab::replay::{
    Ground, Latency, Outcome as Replayed, Pair, PairClass, PairSpec, Speed, alone, play,
};
use lab::trace::{Deed, Trace};
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use super::free;
use crate::drive::{Drive, DriveArgument};
use crate::failure::{Exit, Failure, Outcome};
use crate::in_use;
use crate::progress;
use crate::selection;
use crate::server::ServerLock;
use crate::settings::Settings;
use crate::switch::Switch;
use crate::table::{Align, Table};
use crate::volume_name::VolumeName;

/// Play a block trace again, on a volume of two twins or on real drives
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab replay monday.csv.zst --on fusion:samsung-860-evo-500+wd5002abys --fast-size 10%
  bimetal lab replay monday.csv.zst --on cache:samsung-860-evo-500+wd5002abys --fast-size 4G
  bimetal lab replay monday.csv.zst --on twin:wd5002abys --speed max --depth 4
  bimetal --json lab replay monday.csv.zst --on vol0 --force

On twins time is simulated, and what the trace touches lies on the slow drive when it begins. A percentage is
of what the trace touches. On a volume by name, which must not be served, or a drive or file the requests
go to the real thing; writes need --force, and what was there is lost. Where a trace ends beyond what
the place has, the gaps between what it touches are left out. READ HITS are the bytes read without the
slow drive; SLOW BUSY is the time it had a request under way.")]
pub struct ReplayArguments {
    /// The trace
    trace: PathBuf,
    /// fusion:FAST+SLOW, cache:FAST+SLOW, twin:NAME, VOLUME, DEV or FILE
    #[arg(long, value_name = "PLACE")]
    on: String,
    /// Size of the fast drive: bytes, or percent of what the trace touches (twins only)
    #[arg(long, value_name = "SIZE", value_parser = fast_size)]
    fast_size: Option<FastSize>,
    /// At the trace's own times, or as fast as it goes
    #[arg(long, value_enum, default_value = "original")]
    speed: Pace,
    /// Requests under way at any time, with --speed max
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024))]
    depth: u64,
    /// This share of the requests, in percent, is played before anything counts
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=99))]
    warm_up: u64,
    /// cache: when a write is on the slow drive
    #[arg(long, value_name = "MODE", default_value = "writeback")]
    mode: CacheMode,
    /// fusion: whether what goes up keeps its slot on the slow drive while there is room
    #[arg(long, value_enum, default_value = "off")]
    inclusion: Switch,
    /// Decides what a simulation draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Overwrite what the drive or volume holds
    #[arg(long)]
    force: bool,
}

/// How fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Pace {
    /// At the trace's own times
    Original,
    /// As fast as it goes
    Max,
}

/// How large the fast drive is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FastSize {
    /// So many bytes.
    Bytes(u64),
    /// That share of what the trace touches.
    Percent(f64),
}

#[derive(Debug, Serialize)]
struct Report {
    trace: PathBuf,
    on: String,
    virtual_time: bool,
    speed: Speed,
    warm_up_percent: u64,
    packed: bool,
    touched_bytes: u64,
    #[serde(flatten)]
    outcome: Replayed,
}

/// Runs the command.
pub fn run(arguments: &ReplayArguments, settings: &Settings) -> Outcome {
    let trace = Trace::read(&arguments.trace).map_err(Failure::failed)?;
    let speed = arguments.speed.speed(arguments.depth);
    let bar = progress::steps("playing");
    bar.set_length(trace.events.len() as u64);
    let work = Work { arguments, trace: &trace, speed, bar: &bar, settings };
    let pair = ["fusion:", "cache:"].iter().any(|scheme| arguments.on.starts_with(scheme));
    if arguments.fast_size.is_some() && !pair {
        return Err(Failure::usage("--fast-size is for fusion:FAST+SLOW and cache:FAST+SLOW"));
    }
    let virtual_time = pair || arguments.on.starts_with("twin:");
    let (ground, outcome) = if pair {
        work.on_pair()?
    } else if let Some(choice) = arguments.on.strip_prefix("twin:") {
        work.on_twin(choice)?
    } else {
        work.on_real()?
    };
    bar.finish_and_clear();
    let report = Report {
        trace: arguments.trace.clone(),
        on: arguments.on.clone(),
        virtual_time,
        speed,
        warm_up_percent: arguments.warm_up,
        packed: ground.is_packed,
        touched_bytes: ground.touched_bytes(),
        outcome,
    };
    settings.output.show("lab replay", &report, text)?;
    Ok(Exit::Done)
}

struct Work<'a> {
    arguments: &'a ReplayArguments,
    trace: &'a Trace,
    speed: Speed,
    bar: &'a ProgressBar,
    settings: &'a Settings,
}

impl Work<'_> {
    fn ground(&self, volume_bytes: u64) -> Result<(Ground, usize), Failure> {
        let ground = Ground::new(&self.trace.events, volume_bytes).map_err(Failure::failed)?;
        let warm_up = ground.events.len() * self.arguments.warm_up as usize / 100;
        Ok((ground, warm_up))
    }

    fn on_pair(&self) -> Result<(Ground, Replayed), Failure> {
        let Self { arguments, speed, bar, .. } = *self;
        let (scheme, names) = arguments.on.split_once(':').unwrap_or_default();
        let class = match scheme {
            "cache" => PairClass::Cache(arguments.mode),
            _ => PairClass::Fusion,
        };
        let inclusion = arguments.inclusion == Switch::On;
        if inclusion && class != PairClass::Fusion {
            return Err(Failure::usage("--inclusion is for fusion:FAST+SLOW"));
        }
        let spec = pair_named(names, class, arguments.seed)?.with_inclusion(inclusion);
        let (ground, warm_up) = self.ground(spec.slow_bytes())?;
        let spec = match arguments.fast_size {
            None => spec,
            Some(FastSize::Bytes(bytes)) => spec.with_fast_bytes(bytes).map_err(Failure::usage)?,
            Some(FastSize::Percent(percent)) => {
                let room = (ground.touched_bytes() as f64 * percent / 100.0) as u64;
                spec.with_fast_room(room, &ground).map_err(Failure::usage)?
            }
        };
        let pair = Pair::new(&spec, &ground).map_err(Failure::failed)?;
        let outcome = pair.play(&ground, warm_up, speed, &|n| bar.inc(n));
        Ok((ground, outcome.map_err(Failure::failed)?))
    }

    fn on_twin(&self, choice: &str) -> Result<(Ground, Replayed), Failure> {
        let Self { arguments, speed, bar, .. } = *self;
        let profile = twin::Profile::named(choice).map_err(Failure::usage)?;
        let (ground, warm_up) = self.ground(profile.size_bytes())?;
        let outcome = alone(choice, &ground, warm_up, speed, arguments.seed, &|n| bar.inc(n));
        Ok((ground, outcome.map_err(Failure::failed)?))
    }

    fn on_real(&self) -> Result<(Ground, Replayed), Failure> {
        let text = &self.arguments.on;
        let argument: DriveArgument = text.parse().map_err(Failure::usage)?;
        if argument.path.exists() || text.contains('/') {
            return self.on_drive(&argument);
        }
        let name: VolumeName = text.parse().map_err(|problem| {
            Failure::usage(format!("'{text}' is no place for a trace: {problem}"))
                .hint("fusion:FAST+SLOW, cache:FAST+SLOW, twin:NAME, a volume, a device or a file")
        })?;
        self.on_volume(&name)
    }

    fn on_drive(&self, argument: &DriveArgument) -> Result<(Ground, Replayed), Failure> {
        let drive = Drive::look(&argument.path)?;
        let writes = self.writes();
        if writes {
            free::refuse_unless_free(&drive, self.arguments.force, "--force")?;
        }
        let users = in_use::users(&drive);
        if !users.is_empty() {
            let (path, users) = (drive.path.display(), users.join("; "));
            return Err(Failure::refused(format!("{path} is in use: {users}")));
        }
        let (ground, warm_up) = self.ground(drive.size_bytes)?;
        let (io, kernel) = Kernel::start(KernelOptions::default())?;
        let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
        let device: Device = kernel.open_device(&drive.path, access)?;
        let outcome = io.block_on(self.real_time(&device, &ground, warm_up))?;
        Ok((ground, outcome))
    }

    fn on_volume(&self, name: &VolumeName) -> Result<(Ground, Replayed), Failure> {
        let selection = selection::by_name(self.settings, name).map_err(|failure| {
            failure
                .hint("fusion:FAST+SLOW, cache:FAST+SLOW, twin:NAME, a volume, a device or a file")
        })?;
        if self.writes() && !self.arguments.force {
            return Err(Failure::refused(format!(
                "volume '{name}' may hold data, and the trace writes"
            ))
            .hint("--force overwrites it; what it holds is lost"));
        }
        // Held until the end: nobody serves it meanwhile.
        let _lock = ServerLock::take(self.settings, name)?;
        let (io, kernel) = Kernel::start(KernelOptions::default())?;
        let members = selection.open(&kernel, Access::ReadWrite)?;
        let outcome = io.block_on(async {
            let engine = Engine::open_members(&io, members, OpenOptions::default())
                .await
                .map_err(Failure::failed)?;
            let played = match self.ground(engine.info().size_bytes) {
                Err(failure) => Err(failure),
                Ok((ground, warm_up)) => {
                    let served = Served::new(io.clone(), engine.clone());
                    self.real_time(&served, &ground, warm_up).await.map(|outcome| (ground, outcome))
                }
            };
            engine.close().await.map_err(Failure::failed)?;
            played
        });
        io.drop_tasks();
        outcome
    }

    async fn real_time<T: Target>(
        &self,
        target: &T,
        ground: &Ground,
        warm_up: usize,
    ) -> Result<Replayed, Failure> {
        let bar = self.bar;
        let (before, after) = ground.events.split_at(warm_up);
        let first_us = ground.events.first().map_or(0, |event| event.at_us);
        let warmed = play(target, before, first_us, self.speed, &|n| bar.inc(n)).await;
        warmed.check().map_err(Failure::failed)?;
        let origin_us = before.last().map_or(first_us, |event| event.at_us);
        let played = play(target, after, origin_us, self.speed, &|n| bar.inc(n)).await;
        played.check().map_err(Failure::failed)?;
        Ok(played.outcome())
    }

    fn writes(&self) -> bool {
        self.trace.events.iter().any(|event| matches!(event.deed, Deed::Write | Deed::Discard))
    }
}

/// The volume of `FAST+SLOW`.
pub fn pair_named(names: &str, class: PairClass, seed: u64) -> Result<PairSpec, Failure> {
    let (fast, slow) = names.split_once('+').ok_or_else(|| {
        Failure::usage(format!("'{names}' does not name two twins"))
            .hint("FAST+SLOW, such as samsung-860-evo-500+wd5002abys; 'bimetal twin list' has them")
    })?;
    let bare = |name: &str| name.strip_prefix("twin:").unwrap_or(name).to_owned();
    PairSpec::named(&bare(fast), &bare(slow), class, seed).map_err(Failure::usage)
}

impl Pace {
    /// With so many requests under way.
    pub fn speed(self, depth: u64) -> Speed {
        match self {
            Pace::Original => Speed::Original,
            Pace::Max => Speed::Max(depth),
        }
    }
}

fn fast_size(text: &str) -> Result<FastSize, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return parse_bytes(text).map(FastSize::Bytes);
    };
    match percent.trim().parse() {
        Ok(percent) if percent > 0.0 && percent <= 1000.0 => Ok(FastSize::Percent(percent)),
        _ => Err(format!("'{text}' is no percentage above 0")),
    }
}

fn text(report: &Report) -> String {
    let outcome = &report.outcome;
    let clock = if report.virtual_time { "virtual time" } else { "real time" };
    let mut text = format!(
        "{} on {} ({clock})\n{} reads ({}), {} writes ({}), {} flushes, {} discards in {:.1} s\n",
        report.trace.display(),
        report.on,
        outcome.reads,
        human_bytes(outcome.read_bytes),
        outcome.writes,
        human_bytes(outcome.write_bytes),
        outcome.flushes,
        outcome.discards,
        outcome.seconds
    );
    if report.packed {
        text += "the trace ends beyond this place: gaps between what it touches were left out\n";
    }
    if outcome.behind_ms >= 1.0 {
        text += &format!("requests were up to {:.0} ms behind the trace\n", outcome.behind_ms);
    }
    let mut table = Table::new(&[
        ("", Align::Left),
        ("COUNT", Align::Right),
        ("MEAN", Align::Right),
        ("P50", Align::Right),
        ("P99", Align::Right),
        ("P99.9", Align::Right),
        ("MAX", Align::Right),
    ]);
    let rows = [
        ("reads", &outcome.read_latency),
        ("writes", &outcome.write_latency),
        ("flushes", &outcome.flush_latency),
    ];
    for (name, latency) in rows.into_iter().filter(|(_, latency)| latency.count > 0) {
        table.row(std::iter::once(name.to_owned()).chain(cells(latency)));
    }
    text += &format!("\n{}", table.render());
    if let Some(volume) = &outcome.volume {
        text += &format!(
            "\nfast drive {}: READ HITS {:.1} %, SLOW BUSY {}\n\
             moved up {}, down {} from slots and {} from the log; {} left in the log\n\
             for each byte of clients {:.2} were written to the fast drive ({} in all), and {:.2} moved up or down\n",
            human_bytes(volume.fast_bytes),
            volume.read_hit * 100.0,
            busy(volume.slow_busy_s, volume.slow_busy_share),
            human_bytes(volume.promoted_bytes),
            human_bytes(volume.demoted_bytes),
            human_bytes(volume.destaged_bytes),
            human_bytes(volume.log_left_bytes),
            volume.fast_received_per_byte,
            human_bytes(volume.fast_written_bytes),
            volume.moved_per_byte
        );
    }
    if let Some(drive) = &outcome.drive {
        text += &format!("\nBUSY {}\n", busy(drive.busy_s, drive.busy_share));
    }
    text
}

fn cells(latency: &Latency) -> [String; 6] {
    let Latency { count, mean_us, p50_us, p99_us, p999_us, max_us } = *latency;
    let [mean, p50, p99, p999, max] = [mean_us, p50_us, p99_us, p999_us, max_us].map(time);
    [count.to_string(), mean, p50, p99, p999, max]
}

/// How long a drive had a request under way, and which share of the time that was.
pub fn busy(busy_s: f64, share: f64) -> String {
    format!("{busy_s:.1} s ({:.1} %)", share * 100.0)
}

/// Microseconds as people read them.
pub fn time(us: f64) -> String {
    match us {
        us if us < 1000.0 => format!("{us:.0} µs"),
        us if us < 100_000.0 => format!("{:.1} ms", us / 1e3),
        us => format!("{:.0} ms", us / 1e3),
    }
}
