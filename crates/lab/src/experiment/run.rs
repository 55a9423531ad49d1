//! Carries an experiment out: one step after the other, each kept as soon as it is done.

use std::path::Path;

use io::units::human_bytes;
use serde::{Deserialize, Serialize};
use twin::mix;

use super::record::{RunRecord, StepRecord};
use super::{Experiment, Step};
use crate::bench::{Bench, Cut};
use crate::fio::{JobFile, Limits};

/// With this seed jobs draw what their own `randseed` says.
const PLAIN_SEED: u64 = 1;

/// What a run is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunOptions {
    /// Decides everything that is drawn in a simulation, the places of requests among it.
    pub seed: u64,
    /// The longest a step may take on the bench's clock (s), if not as long as its source says.
    pub step_seconds: Option<u64>,
}

/// Hears how far a run is.
pub trait Progress {
    /// A step begins: its number, how many there are, its name.
    fn step(&self, number: usize, total: usize, name: &str);
}

/// Carries `experiment` out on `bench`. With `out`, what is done is kept there after each step, and
/// what an earlier run has done there is not done again.
///
/// A drive's condition depends on all steps since it was new, and a simulated one lives no longer than the
/// program. So in virtual time steps that lean on others are played again up to the one that is missing; the seed
/// makes them the same. What was kept of them stays, unless the engine or a twin has changed and they say
/// something else now. A real drive keeps its condition itself.
///
/// # Errors
/// A sentence; what was done before is kept.
pub fn run(
    experiment: &dyn Experiment,
    bench: &mut dyn Bench,
    options: RunOptions,
    command: &str,
    out: Option<&Path>,
    progress: &dyn Progress,
) -> Result<RunRecord, String> {
    let steps = experiment.steps(bench.name(), bench.size_bytes());
    if steps.is_empty() {
        let (name, on) = (experiment.name(), bench.name());
        return Err(format!("{name} says nothing about {on}"));
    }
    let mut record =
        RunRecord::new(experiment.name(), experiment.question(), experiment.source(), options);
    record.on = bench.name().to_owned();
    record.size_bytes = bench.size_bytes();
    record.drives = bench.drives();
    record.virtual_time = bench.is_virtual();
    record.command = command.to_owned();
    record.notes = experiment.notes(bench.name());
    record.steps_total = steps.len();
    let earlier = match out.map(RunRecord::load).transpose()?.flatten() {
        Some(earlier) => same_run(earlier, &record)?,
        None => Vec::new(),
    };
    let total = steps.len();
    let mut number = 0;
    let mut rest = &steps[..];
    while !rest.is_empty() {
        let length = if bench.is_virtual() { chain_length(rest) } else { 1 };
        let (chain, after) = rest.split_at(length);
        let known: Vec<&StepRecord> = chain
            .iter()
            .zip(number..)
            .map_while(|(step, at)| earlier.get(at).filter(|done| done.is_of(step)))
            .collect();
        if known.len() == chain.len() {
            record.steps.extend(known.into_iter().cloned());
        } else {
            let mut changed = false;
            for (index, step) in chain.iter().enumerate() {
                let kept = known.get(index).filter(|_| !changed);
                let again = if kept.is_some() { " (again)" } else { "" };
                progress.step(number + index + 1, total, &format!("{}{again}", step.name));
                let done = carry_out(experiment, bench, step.clone(), options)?;
                let is_kept = kept.is_some_and(|kept| kept.says_what(&done));
                changed |= kept.is_some() && !is_kept;
                record.steps.push(done);
                if is_kept {
                    // The directory has it, and those behind it, which would be lost if this ended now.
                    continue;
                }
                if let Some(dir) = out {
                    record.charts = experiment.charts(&record);
                    record.derived = experiment.derived(&record);
                    record.save(dir)?;
                }
            }
        }
        number += length;
        rest = after;
    }
    record.charts = experiment.charts(&record);
    record.derived = experiment.derived(&record);
    if let Some(dir) = out {
        record.save(dir)?;
    }
    Ok(record)
}

/// Steps from the first on that lean on one another.
fn chain_length(steps: &[Step]) -> usize {
    1 + steps[1..].iter().take_while(|step| !step.renew).count()
}

fn carry_out(
    experiment: &dyn Experiment,
    bench: &mut dyn Bench,
    mut step: Step,
    options: RunOptions,
) -> Result<StepRecord, String> {
    let within = |problem: String| format!("step {}: {problem}", step.name);
    if step.renew {
        bench.renew().map_err(within)?;
    }
    let rested = match step.rest_s {
        0 => Vec::new(),
        seconds => bench.rest(seconds * 1_000_000_000).map_err(within)?,
    };
    if step.restart {
        bench.restart().map_err(within)?;
    }
    if let Some(cut) = &step.cut {
        let write_s = options.step_seconds.map_or(cut.write_s, |most_s| most_s.min(cut.write_s));
        let outcome = bench.pull_plug(&Cut { write_s, ..*cut }).map_err(within)?;
        return Ok(StepRecord::of(&step, outcome, rested));
    }
    let name = step.name.clone();
    experiment.before(bench, &mut step);
    let within = |problem: String| format!("step {name}: {problem}");
    let mut file =
        JobFile::parse(&step.name, &step.job).map_err(|refusal| within(refusal.to_string()))?;
    if options.seed != PLAIN_SEED {
        for job in &mut file.jobs {
            job.seed = mix(job.seed ^ mix(options.seed));
        }
    }
    refuse_beyond(experiment, bench, &file).map_err(within)?;
    let seconds = match (step.bound.seconds, options.step_seconds) {
        (Some(own), Some(asked)) => Some(own.min(asked)),
        (own, asked) => own.or(asked),
    };
    let limits = Limits {
        run_ns: seconds.map(|seconds| seconds * 1_000_000_000),
        requests: step.bound.requests,
    };
    let outcome = bench.play(&file, &step.job, limits, step.memory).map_err(within)?;
    Ok(StepRecord::of(&step, outcome, rested))
}

/// Refuses jobs that lie behind the end of the place, and workloads of one's own that ask for more than there is:
/// fio refuses them, too. (Published experiments make do with a smaller drive, where that says something; not with
/// a file, which fio would replace by a longer one.)
fn refuse_beyond(
    experiment: &dyn Experiment,
    bench: &dyn Bench,
    file: &JobFile,
) -> Result<(), String> {
    let there = bench.size_bytes();
    let has = || format!("{} has {}", bench.name(), human_bytes(there));
    let exact = experiment.source().is_empty() || bench.is_file();
    for job in &file.jobs {
        for copy in 0..job.copies {
            let (start, length) = job.region(there, copy);
            if length == 0 {
                return Err(format!("job '{}' begins behind the end: {}", job.name, has()));
            }
            let asked = job.size.map_or(length, |size| size.of(there));
            if exact && asked > there.saturating_sub(start) {
                return Err(format!("job '{}' asks for more than there is: {}", job.name, has()));
            }
        }
    }
    Ok(())
}

/// The steps of an earlier run, if it was the same run.
fn same_run(earlier: RunRecord, now: &RunRecord) -> Result<Vec<StepRecord>, String> {
    let what = |record: &RunRecord| {
        (record.experiment.clone(), record.on.clone(), record.size_bytes, record.options)
    };
    if what(&earlier) != what(now) {
        return Err(format!(
            "the directory holds another run ({} on {}): choose a new one",
            earlier.experiment, earlier.on
        ));
    }
    Ok(earlier.steps)
}
