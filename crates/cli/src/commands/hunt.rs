//! `bimetal hunt`: attacks simulated volumes with everything drives can do to them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use hunt::{Allowed, Bag, Campaign, Kill, Smaller, Tally};
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::progress;
use crate::settings::Settings;

/// How long a hunt without --minutes and --runs lasts.
const MINUTES: f64 = 1.0;

/// Attack volumes on simulated drives: power cuts, failing drives, rot, and an oracle that knows
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal hunt                                  (a minute, with a new seed)
  bimetal hunt --seed 7 --minutes 60 --until-failure
  bimetal hunt --seed 7 --runs 1                (finds again what seed 7 found)
  bimetal hunt --faults cuts,kills --jobs 1
  bimetal --json hunt --minutes 5")]
pub struct HuntArguments {
    /// Seed of the first run; the others are the numbers after it [default: drawn, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// How many runs, one seed each [default: as many as the time is enough for]
    #[arg(long)]
    runs: Option<u64>,
    /// How long [default: 1, if --runs is not given]
    #[arg(long)]
    minutes: Option<f64>,
    /// What may go wrong, with commas: all, none, cuts, kills, errors, stalls, rot, old,
    /// lost, lies
    #[arg(long, value_name = "LIST", default_value = "all", value_parser = faults)]
    faults: Allowed,
    /// End at the first failure
    #[arg(long)]
    until_failure: bool,
    /// Simulations at the same time [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Longest time for making a failure smaller, each
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    shrink: u64,
}

fn faults(list: &str) -> Result<Allowed, String> {
    Allowed::from_names(list.split(',')).ok_or_else(|| {
        format!("'{list}' is not a list of all, none, {}", Allowed::NAMES.join(", "))
    })
}

#[derive(Debug, Serialize)]
struct HuntValue {
    seed: u64,
    faults_allowed: String,
    runs: u64,
    operations: u64,
    virtual_hours: f64,
    power_cuts: u64,
    process_deaths: u64,
    closes: u64,
    seconds: f64,
    faults: BTreeMap<&'static str, u64>,
    marks: BTreeMap<String, u64>,
    failures: Vec<FailureValue>,
}

#[derive(Debug, Serialize)]
struct FailureValue {
    seed: u64,
    stage: &'static str,
    message: String,
    /// Of what the swarm found; a story is small as it is told.
    #[serde(flatten)]
    shrunk: Option<ShrunkValue>,
    history: String,
    repeat: String,
}

#[derive(Debug, Serialize)]
struct ShrunkValue {
    lives: usize,
    operations: usize,
    found_lives: usize,
    found_operations: usize,
    trials_played: u64,
    shrunk_completely: bool,
}

/// Runs the command.
pub fn run(arguments: &HuntArguments, settings: &Settings) -> Outcome {
    let minutes = match (arguments.minutes, arguments.runs) {
        (Some(minutes), _) => Some(minutes),
        (None, Some(_)) => None,
        (None, None) => Some(MINUTES),
    };
    if minutes.is_some_and(|minutes| !(0.0..1e6).contains(&minutes) || minutes == 0.0) {
        return Err(Failure::usage("--minutes wants a number of minutes above 0"));
    }
    if arguments.runs == Some(0) {
        return Err(Failure::usage("--runs wants at least 1: no run finds nothing"));
    }
    let campaign = Campaign {
        seed: arguments.seed.unwrap_or_else(new_seed),
        runs: arguments.runs,
        duration: minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0)),
        allowed: arguments.faults,
        until_failure: arguments.until_failure,
        jobs: arguments
            .jobs
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
        shrink: Duration::from_secs(arguments.shrink),
    };
    // The engine under attack may panic: that is a finding, told with all others at the end.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let begun = Instant::now();
    let bag = show_progress(&campaign);
    std::panic::set_hook(hook);
    let value = value(&campaign, bag, begun.elapsed().as_secs_f64());
    let clean = value.failures.is_empty();
    settings.output.show("hunt", &value, text)?;
    Ok(if clean { Exit::Done } else { Exit::Failed })
}

/// Another one for each start, also of several at once, short enough to be typed, with room behind it.
fn new_seed() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = since.as_nanos() as u64 ^ u64::from(std::process::id());
    // Mixed by a multiplication: nearby clocks and numbers of processes give seeds far apart.
    (now.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34) * 1_000_000
}

/// Hunts, with a bar over the time or the runs.
fn show_progress(campaign: &Campaign) -> Bag {
    let bar = progress::steps("hunting");
    let begun = Instant::now();
    let seconds = campaign.duration.map_or(0, |duration| duration.as_secs());
    bar.set_length(campaign.runs.unwrap_or(seconds));
    let bag = campaign.hunt(&|tally: &Tally| {
        bar.set_position(match campaign.runs {
            Some(_) => tally.runs,
            None => begun.elapsed().as_secs().min(seconds),
        });
        bar.set_message(format!("{} runs, {} power cuts", tally.runs, tally.power_cuts));
    });
    bar.finish_and_clear();
    bag
}

fn value(campaign: &Campaign, bag: Bag, seconds: f64) -> HuntValue {
    let tally = bag.tally;
    let marks = engine::marks::Mark::ALL.iter();
    HuntValue {
        seed: campaign.seed,
        faults_allowed: campaign.allowed.names(),
        runs: tally.runs,
        operations: tally.steps,
        virtual_hours: tally.virtual_hours(),
        power_cuts: tally.power_cuts,
        process_deaths: tally.kills,
        closes: tally.closes,
        seconds,
        faults: tally.faults,
        marks: marks.map(|mark| (format!("{mark:?}"), tally.marks.count(*mark))).collect(),
        failures: bag.kills.into_iter().map(failure).collect(),
    }
}

fn failure(kill: Kill) -> FailureValue {
    FailureValue {
        seed: kill.seed,
        stage: kill.wrong.stage,
        message: kill.wrong.message,
        shrunk: kill.shrunk.map(shrunk),
        history: kill.account,
        repeat: kill.repeat,
    }
}

fn shrunk(smaller: Smaller) -> ShrunkValue {
    ShrunkValue {
        lives: smaller.trial.lives.len(),
        operations: smaller.trial.steps(),
        found_lives: smaller.found_size.0,
        found_operations: smaller.found_size.1,
        trials_played: smaller.played,
        shrunk_completely: smaller.complete,
    }
}

/// What was left out of a failure, in words.
fn shrinkage(shrunk: &ShrunkValue) -> String {
    format!(
        ", shrunk from {} lives and {} operations to {} and {} ({} trials{})",
        shrunk.found_lives,
        shrunk.found_operations,
        shrunk.lives,
        shrunk.operations,
        shrunk.trials_played,
        if shrunk.shrunk_completely { "" } else { ", when the time was over" },
    )
}

fn text(value: &HuntValue) -> String {
    let mut text = format!(
        "seed {}, faults {}: {} runs, {} operations, {:.2} virtual hours in {:.1} s\n\
         {} power cuts ({:.0} a minute), {} deaths of the process, {} closes\n",
        value.seed,
        value.faults_allowed,
        value.runs,
        value.operations,
        value.virtual_hours,
        value.seconds,
        value.power_cuts,
        value.power_cuts as f64 / value.seconds.max(0.001) * 60.0,
        value.process_deaths,
        value.closes,
    );
    let list = |counts: &mut dyn Iterator<Item = (String, u64)>| {
        counts.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
    };
    let mut faults = value.faults.iter().map(|(name, count)| ((*name).to_owned(), *count));
    let faults = list(&mut faults);
    let _ = writeln!(text, "faults: {}", if faults.is_empty() { "none struck" } else { &faults });
    let hit = value.marks.iter().filter(|(_, count)| **count > 0);
    let _ = writeln!(text, "marks: {} of {} hit", hit.clone().count(), value.marks.len());
    let hit = list(&mut hit.map(|(name, count)| (name.clone(), *count)));
    if !hit.is_empty() {
        let _ = writeln!(text, "  {hit}");
    }
    let missing: Vec<&str> =
        value.marks.iter().filter(|(_, count)| **count == 0).map(|(name, _)| &**name).collect();
    if !missing.is_empty() {
        let _ = writeln!(text, "  never hit: {}", missing.join(", "));
    }
    for failure in &value.failures {
        let shrinkage = failure.shrunk.as_ref().map_or(String::new(), shrinkage);
        let _ = writeln!(text, "\nFAILURE with seed {}{shrinkage}", failure.seed);
        let _ = writeln!(text, "{}", failure.history);
        let _ = writeln!(text, "find it again with: {}", failure.repeat);
    }
    let _ = match value.failures.len() {
        0 => writeln!(text, "nothing found"),
        count => writeln!(text, "{count} failures"),
    };
    text
}
