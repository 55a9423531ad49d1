//! `bimetal lab fio` and `bimetal lab list`: what the experiments are, and their job files.

use std::path::PathBuf;

use clap::Args;
use io::units::{human_bytes, parse_bytes};
use lab::experiment::{self, Stage};
use serde::Serialize;

use super::run::chosen;
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Smaller drives have no room for the parts of a drive that steps are about.
const SIZE_MIN_BYTES: u64 = 16 << 20;

/// Print the fio job files of an experiment, or write them
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab fio working-set
  bimetal lab fio thomas-krenn --size 500G --out jobs
  bimetal lab fio thomas-krenn --size 500G --step t03-rd-j1 > random-read.fio
  fio --filename=/dev/sdb --direct=1 random-read.fio

What is printed is one job file whose steps follow one another; fio knows no rest between jobs, so where
the experiment has one, a comment says so. With --out each step is a file of its own.")]
pub struct FioArguments {
    /// The experiment
    name: String,
    /// Size of the drive it would be made on
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1T")]
    size: u64,
    /// One step only
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// Write a file for each step into this directory, which is made when missing
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct JobFiles {
    experiment: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    out: Option<PathBuf>,
    steps: Vec<JobText>,
}

#[derive(Debug, Serialize)]
struct JobText {
    name: String,
    rest_seconds: u64,
    job: String,
}

/// Runs `lab fio`.
pub fn run(arguments: &FioArguments, settings: &Settings) -> Outcome {
    let experiment = chosen(&arguments.name)?;
    if arguments.size < SIZE_MIN_BYTES {
        let least = human_bytes(SIZE_MIN_BYTES);
        return Err(Failure::usage(format!("--size must be at least {least}")));
    }
    let wanted = |name: &str| arguments.step.as_deref().is_none_or(|step| step == name);
    let steps = experiment.steps("", arguments.size).into_iter().filter(|step| wanted(&step.name));
    let steps: Vec<JobText> = steps
        .map(|step| JobText { name: step.name, rest_seconds: step.rest_s, job: step.job })
        .collect();
    if steps.is_empty() {
        let step = arguments.step.as_deref().unwrap_or_default();
        return Err(Failure::usage(format!("{} has no step '{step}'", arguments.name)));
    }
    if let Some(dir) = &arguments.out {
        std::fs::create_dir_all(dir).on_path("make", dir)?;
        for (number, step) in (1..).zip(&steps) {
            let path = dir.join(format!("{number:02}-{}.fio", step.name));
            std::fs::write(&path, with_rest(step, &step.job)).on_path("write", &path)?;
        }
    }
    let out = arguments.out.clone();
    let files = JobFiles { experiment: arguments.name.clone(), out, steps };
    settings.output.show("lab fio", &files, |files| match &files.out {
        Some(dir) => format!("{} job files in {}\n", files.steps.len(), dir.display()),
        None => {
            let steps = (0..).zip(&files.steps).map(|(number, step)| match number {
                0 => with_rest(step, &step.job),
                _ => with_rest(step, &behind(&step.job)),
            });
            steps.collect::<Vec<_>>().join("\n")
        }
    })?;
    Ok(Exit::Done)
}

fn with_rest(step: &JobText, job: &str) -> String {
    match step.rest_seconds {
        0 => job.to_owned(),
        seconds => format!("; the drive rests {seconds} s before\n{job}"),
    }
}

/// The jobs wait for the end of those before.
fn behind(job: &str) -> String {
    let mut text = String::new();
    let mut waits = false;
    for line in job.lines() {
        text += line;
        text.push('\n');
        if !waits && line.starts_with('[') && line != "[global]" {
            text += "stonewall\n";
            waits = true;
        }
    }
    text
}

/// List the experiments
#[derive(Debug, Args)]
#[command(after_help = "Example:
  bimetal lab list")]
pub struct ListArguments {}

#[derive(Debug, Serialize)]
struct Experiments {
    experiments: Vec<ExperimentValue>,
}

#[derive(Debug, Serialize)]
struct ExperimentValue {
    name: String,
    question: String,
    source: String,
    on: &'static str,
}

/// Runs `lab list`.
pub fn list(_: &ListArguments, settings: &Settings) -> Outcome {
    let values = experiment::all().into_iter().map(|experiment| ExperimentValue {
        name: experiment.name().to_owned(),
        question: experiment.question().to_owned(),
        source: experiment.source().to_owned(),
        on: match experiment.stage() {
            Stage::Drive => "a drive",
            Stage::Volume => "a volume of two drives",
            Stage::Twin => "a twin",
        },
    });
    let experiments = Experiments { experiments: values.collect() };
    settings.output.show("lab list", &experiments, |list| {
        let mut table =
            Table::new(&[("NAME", Align::Left), ("ON", Align::Left), ("QUESTION", Align::Left)]);
        for one in &list.experiments {
            table.row([one.name.clone(), one.on.to_owned(), one.question.clone()]);
        }
        table.render()
    })?;
    Ok(Exit::Done)
}
