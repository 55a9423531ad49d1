//! `bimetal lab fio` and `bimetal lab list`: what the experiments are, and their job files.

use clap::Args;
use io::units::parse_bytes;
use lab::experiment::{self, Stage};
use serde::Serialize;

use super::run::chosen;
use crate::failure::{Exit, Failure, Outcome};
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Print the fio job files of an experiment
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab fio working-set
  bimetal lab fio thomas-krenn --size 500G --step t03-rd-j1 > random-read.fio
  fio --filename=/dev/sdb --direct=1 random-read.fio")]
pub struct FioArguments {
    /// The experiment
    name: String,
    /// Size of the drive it would be made on
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "1T")]
    size: u64,
    /// One step only
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
}

#[derive(Debug, Serialize)]
struct JobFiles {
    experiment: String,
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
    let wanted = |name: &str| arguments.step.as_deref().is_none_or(|step| step == name);
    let steps = experiment.steps("", arguments.size).into_iter().filter(|step| wanted(&step.name));
    let steps: Vec<JobText> = steps
        .map(|step| JobText { name: step.name, rest_seconds: step.rest_s, job: step.job })
        .collect();
    if steps.is_empty() {
        let step = arguments.step.as_deref().unwrap_or_default();
        return Err(Failure::usage(format!("{} has no step '{step}'", arguments.name)));
    }
    let files = JobFiles { experiment: arguments.name.clone(), steps };
    settings.output.show("lab fio", &files, |files| {
        let mut text = String::new();
        for step in &files.steps {
            if step.rest_seconds > 0 {
                text += &format!("; rest {} s before\n", step.rest_seconds);
            }
            text += &step.job;
            text.push('\n');
        }
        text
    })?;
    Ok(Exit::Done)
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
