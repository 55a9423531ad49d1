//! What is kept of a run: `run.json` in its directory, with a report and logs of each step beside.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::chart::Chart;
use super::published::Published;
use super::run::RunOptions;
use super::{Figure, Step};
use crate::bench::{Moment, Outcome};

/// The version of what is kept.
const SCHEMA: u32 = 1;
const FILE: &str = "run.json";
const STEPS: &str = "steps";

/// A whole run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of this layout.
    pub schema: u32,
    /// Which experiment, or the job file.
    pub experiment: String,
    /// What was asked.
    pub question: String,
    /// The published source, if there is one.
    pub source: String,
    /// What it was made on.
    pub on: String,
    /// Its size.
    pub size_bytes: u64,
    /// Names of its drives, where they can be seen.
    pub drives: Vec<String>,
    /// Time was simulated.
    pub virtual_time: bool,
    /// The command that made it.
    pub command: String,
    /// Seed and bounds it was made with.
    pub options: RunOptions,
    /// What is worth knowing about it.
    pub notes: Vec<String>,
    /// Steps that are done, in order.
    pub steps: Vec<StepRecord>,
    /// How many there are.
    pub steps_total: usize,
    /// Numbers that follow from several steps.
    #[serde(default)]
    pub derived: Vec<FigureRecord>,
    /// Pictures of the steps that are done.
    pub charts: Vec<Chart>,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepRecord {
    /// Its name.
    pub name: String,
    /// How long it rested before (s).
    pub rest_s: u64,
    /// Its job file.
    pub job: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What the drives did while it rested before.
    pub rested: Vec<Moment>,
    /// Its numbers.
    pub figures: Vec<FigureRecord>,
}

/// One number.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FigureRecord {
    /// The published row it stands beside.
    pub id: Option<String>,
    /// The row of its table.
    pub row: String,
    /// The column of its table.
    pub column: String,
    /// Measured.
    pub measured: Option<f64>,
    /// Published.
    pub published: Option<Published>,
    /// Its unit.
    pub unit: String,
    /// Measured against published, in hundredths; 0 inside a published range.
    pub error_percent: Option<f64>,
}

impl FigureRecord {
    /// A number beside the published row of that id, if there is one.
    pub(super) fn of(
        id: Option<&str>,
        row: &str,
        column: &str,
        unit: &str,
        measured: Option<f64>,
    ) -> FigureRecord {
        let published = id.and_then(Published::row);
        FigureRecord {
            id: id.map(str::to_owned),
            row: row.to_owned(),
            column: column.to_owned(),
            measured,
            published,
            unit: unit.to_owned(),
            error_percent: measured
                .zip(published)
                .and_then(|(value, row)| row.error_percent(value)),
        }
    }
}

impl StepRecord {
    /// What came of a step.
    pub(super) fn of(step: &Step, outcome: Outcome, rested: Vec<Moment>) -> StepRecord {
        let figures = step.figures.iter().map(|figure| {
            let Figure { id, row, column, unit, measure } = figure;
            FigureRecord::of(id.as_deref(), row, column, unit, measure(&outcome, &rested))
        });
        let figures = figures.collect();
        StepRecord {
            name: step.name.clone(),
            rest_s: step.rest_s,
            job: step.job.clone(),
            outcome,
            rested,
            figures,
        }
    }

    /// Whether it says what `other` says; one of them was read from a file, in which a number may lose
    /// its last bit.
    pub(super) fn says_what(&self, other: &StepRecord) -> bool {
        let is_near = |one: f64, other: f64| (one - other).abs() <= 1e-9 * one.abs().max(1e-9);
        let numbers = |step: &StepRecord| -> Vec<Option<f64>> {
            let figures = step.figures.iter().map(|figure| figure.measured);
            figures.chain([Some(step.outcome.seconds)]).collect()
        };
        let (mine, others) = (numbers(self), numbers(other));
        mine.len() == others.len()
            && mine.iter().zip(&others).all(|pair| match pair {
                (Some(one), Some(other)) => is_near(*one, *other),
                (one, other) => one == other,
            })
            && self.outcome.moments == other.outcome.moments
    }

    /// Whether it is what came of that step.
    pub(super) fn is_of(&self, step: &Step) -> bool {
        (&self.name, self.rest_s, &self.job) == (&step.name, step.rest_s, &step.job)
    }
}

impl RunRecord {
    /// An empty one.
    pub(super) fn new(
        experiment: &str,
        question: &str,
        source: &str,
        options: RunOptions,
    ) -> RunRecord {
        RunRecord {
            schema: SCHEMA,
            experiment: experiment.to_owned(),
            question: question.to_owned(),
            source: source.to_owned(),
            on: String::new(),
            size_bytes: 0,
            drives: Vec::new(),
            virtual_time: false,
            command: String::new(),
            options,
            notes: Vec::new(),
            steps: Vec::new(),
            steps_total: 0,
            derived: Vec::new(),
            charts: Vec::new(),
        }
    }

    /// All steps are done.
    pub fn is_complete(&self) -> bool {
        self.steps.len() == self.steps_total
    }

    /// The step of that name.
    pub fn step(&self, name: &str) -> Option<&StepRecord> {
        self.steps.iter().find(|step| step.name == name)
    }

    /// All numbers, in order.
    pub fn figures(&self) -> impl Iterator<Item = &FigureRecord> {
        self.steps.iter().flat_map(|step| &step.figures).chain(&self.derived)
    }

    /// What `dir` holds of an earlier run, if it holds one.
    ///
    /// # Errors
    /// When there is something that cannot be read.
    pub fn load(dir: &Path) -> Result<Option<RunRecord>, String> {
        let path = dir.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
        };
        let unknown = |error| {
            let file = path.display();
            format!(
                "{file} is no record of a run: {error}; take it away, or choose another directory"
            )
        };
        let record: RunRecord = serde_json::from_str(&text).map_err(unknown)?;
        if record.schema != SCHEMA {
            let found = record.schema;
            let file = path.display();
            return Err(format!(
                "{file} has version {found}, and {SCHEMA} is known: another version of bimetal wrote it; \
                 choose another directory"
            ));
        }
        Ok(Some(record))
    }

    /// Writes it, whole or not at all, with the newest step's report and logs in fio's layout.
    pub(super) fn save(&self, dir: &Path) -> Result<(), String> {
        let steps = dir.join(STEPS);
        fs::create_dir_all(&steps)
            .map_err(|error| format!("cannot make {}: {error}", steps.display()))?;
        if let Some(step) = self.steps.last() {
            let stem = format!("{:02}-{}", self.steps.len(), step.name);
            let report = serde_json::to_string_pretty(&step.outcome.report)
                .map_err(|error| format!("a report cannot be written: {error}"))?;
            write(&steps.join(format!("{stem}.json")), &report)?;
            write(&steps.join(format!("{stem}.fio")), &step.job)?;
            for (name, log) in &step.outcome.logs {
                write(&steps.join(format!("{stem}.{name}")), log)?;
            }
        }
        let text = serde_json::to_string(self)
            .map_err(|error| format!("the run cannot be written: {error}"))?;
        let (path, draft) = (dir.join(FILE), dir.join(".run.json.new"));
        write(&draft, &text)?;
        fs::rename(&draft, &path)
            .map_err(|error| format!("cannot write {}: {error}", path.display()))
    }
}

fn write(path: &PathBuf, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}
