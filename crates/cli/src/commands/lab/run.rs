//! `bimetal lab run`: an experiment, or a workload of one's own, on a twin, a drive or a volume.

use std::path::{Path, PathBuf};

use clap::Args;
use indicatif::ProgressBar;
use lab::experiment::{
    self, Experiment, FigureRecord, Matrix, Progress, RunOptions, RunRecord, Stage, Workload, short,
};
use lab::fio::{Direction, JobFile};

use super::place::{self, quoted};
use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::progress;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Run a published experiment or a fio job file on a twin, a drive or a volume
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab run thomas-krenn --on twin:wd5002abys,cache=off
  bimetal lab run working-set --on /dev/sdb --out results/sdb
  bimetal lab run mine.fio --on twin:wd5002abys
  bimetal lab run mine.fio --on vol0 --force

On twins and fused twins time is simulated; on drives and served volumes fio measures. What writes
refuses a drive that holds something (exit code 4) unless --force is given, and one in use always.
With --out everything is kept in a directory (reports and logs in fio's layout, and what
'bimetal lab report' reads); steps that are done there are not done again.")]
pub struct RunArguments {
    /// An experiment ('bimetal lab list') or a fio job file
    what: String,
    /// twin:NAME, fusion:FAST+SLOW, apple-fusion:FAST+SLOW, hybrid:FAST+SLOW, hybrid-write-back:FAST+SLOW, DEV, FILE, FILE:SIZE, VOLUME or an NBD URI
    #[arg(long, value_name = "PLACE")]
    on: String,
    /// Keep everything in this directory, and go on with what is there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The longest that one step may take, on the clock of the place
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,
    /// Decides what a simulation draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Overwrite what the drive or volume holds
    #[arg(long)]
    force: bool,
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn step(&self, number: usize, total: usize, name: &str) {
        self.0.set_length(total as u64);
        self.0.set_position(number as u64 - 1);
        self.0.set_message(name.to_owned());
    }
}

/// Runs the command.
pub fn run(arguments: &RunArguments, settings: &Settings) -> Outcome {
    let experiment = chosen(&arguments.what)?;
    let mut place = place::find(&arguments.on, arguments.seed, settings)?;
    if experiment.stage() == Stage::Volume && arguments.on.starts_with("twin:") {
        return Err(Failure::usage(format!("{} needs a volume", experiment.name()))
            .hint("fuse two twins: --on fusion:FAST+SLOW or --on apple-fusion:FAST+SLOW"));
    }
    if experiment.stage() == Stage::Twin && !arguments.on.starts_with("twin:") {
        return Err(Failure::usage(format!("{} needs a twin", experiment.name()))
            .hint("--on twin:NAME; for a real drive and a real plug: bimetal lab powercut"));
    }
    let steps = experiment.steps(place.bench.name(), place.bench.size_bytes());
    let mut writes = false;
    for step in steps.iter().filter(|step| step.cut.is_none()) {
        let file = JobFile::parse(&arguments.what, &step.job).map_err(Failure::usage)?;
        writes |= file.changes_target();
    }
    place.refuse_unless_safe(writes, arguments.force)?;
    place.warn_of_holes();
    let options = RunOptions { seed: arguments.seed, step_seconds: arguments.seconds };
    let bar = Bar(progress::steps("experiment"));
    let out = arguments.out.as_deref();
    let command = command_line(arguments);
    let record =
        experiment::run(experiment.as_ref(), place.bench.as_mut(), options, &command, out, &bar);
    bar.0.finish_and_clear();
    let record = record.map_err(Failure::failed)?;
    settings.output.show("lab run", &record, |record| text(record, out))?;
    let failed =
        |step: &experiment::StepRecord| step.outcome.report.jobs.iter().any(|j| j.error != 0);
    Ok(if record.steps.iter().any(failed) { Exit::Failed } else { Exit::Done })
}

/// An experiment by name, or a job file by path.
pub fn chosen(what: &str) -> Result<Box<dyn Experiment>, Failure> {
    if let Some(experiment) = experiment::named(what) {
        return Ok(experiment);
    }
    let path = Path::new(what);
    if !path.exists() {
        let names: Vec<String> =
            experiment::all().iter().map(|one| one.name().to_owned()).collect();
        let problem = match what.contains(['/', '.']) {
            true => format!("there is no file '{what}'"),
            false => format!("'{what}' is neither an experiment nor a job file"),
        };
        return Err(Failure::usage(problem).hint(format!("experiments: {}", names.join(", "))));
    }
    let text = std::fs::read_to_string(path).on_path("read", path)?;
    let workload = Workload::new(what, &text).map_err(|refusal| {
        Failure::usage(refusal).hint("docs/fio-jobs.md lists what can be played")
    })?;
    Ok(Box::new(workload))
}

fn command_line(arguments: &RunArguments) -> String {
    let mut words = format!(
        "bimetal lab run {} --on {}",
        quoted(Path::new(&arguments.what)),
        quoted(Path::new(&arguments.on))
    );
    if let Some(seconds) = arguments.seconds {
        words += &format!(" --seconds {seconds}");
    }
    if arguments.seed != 1 {
        words += &format!(" --seed {}", arguments.seed);
    }
    if arguments.force {
        words += " --force";
    }
    words
}

fn text(record: &RunRecord, out: Option<&Path>) -> String {
    let clock = if record.virtual_time { "virtual time" } else { "measured by fio" };
    let mut text =
        format!("{} on {} ({clock})\n{}\n\n", record.experiment, record.on, record.question);
    let figures: Vec<&FigureRecord> = record.figures().collect();
    if figures.is_empty() {
        text += &jobs(record);
    } else {
        text += &matrix(&figures).unwrap_or_else(|| list(&figures));
    }
    for note in &record.notes {
        text += &format!("\nnote: {note}");
    }
    if !record.notes.is_empty() {
        text.push('\n');
    }
    if let Some(dir) = out {
        text +=
            &format!("\nkept in {}; see it: bimetal lab report {}\n", dir.display(), quoted(dir));
    }
    text
}

/// Figures in the layout of a published table, with the published value in brackets; `None` where
/// most cells would be empty.
fn matrix(figures: &[&FigureRecord]) -> Option<String> {
    let matrix = Matrix::of(figures)?;
    let mut head = vec![("", Align::Left)];
    head.extend(matrix.columns.iter().map(|column| (column.as_str(), Align::Right)));
    let mut table = Table::new(&head);
    for (row, cells) in &matrix.rows {
        let cell = |figure: &Option<&FigureRecord>| match figure {
            None => String::new(),
            Some(figure) if figure.published.is_none() => figure.measured_text(),
            Some(figure) if figure.measured.is_none() => format!("[{}]", figure.published_text()),
            Some(figure) => format!("{} [{}]", figure.measured_text(), figure.published_text()),
        };
        table.row(std::iter::once((*row).to_owned()).chain(cells.iter().map(cell)));
    }
    let published = figures.iter().any(|figure| figure.published.is_some());
    Some(table.render() + if published { "published in brackets\n" } else { "" })
}

fn list(figures: &[&FigureRecord]) -> String {
    let mut table = Table::new(&[
        ("", Align::Left),
        ("", Align::Left),
        ("MEASURED", Align::Right),
        ("PUBLISHED", Align::Right),
        ("ERROR", Align::Right),
        ("UNIT", Align::Left),
    ]);
    for figure in figures {
        table.row([
            figure.row.clone(),
            figure.column.clone(),
            figure.measured_text(),
            figure.published_text(),
            figure.error_percent.map_or_else(String::new, |error| format!("{error:+.1} %")),
            figure.unit.clone(),
        ]);
    }
    table.render()
}

/// A workload of one's own, job by job, as fio's own summary has it.
fn jobs(record: &RunRecord) -> String {
    let mut table = Table::new(&[
        ("JOB", Align::Left),
        ("", Align::Left),
        ("IOPS", Align::Right),
        ("MiB/s", Align::Right),
        ("MEAN ms", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("p99.9", Align::Right),
        ("MAX", Align::Right),
    ]);
    let mut ends = String::new();
    for job in record.steps.iter().flat_map(|step| &step.outcome.report.jobs) {
        for (direction, name) in
            [(Direction::Read, "read"), (Direction::Write, "write"), (Direction::Trim, "trim")]
        {
            let report = job.direction(direction);
            if report.total_ios == 0 {
                continue;
            }
            let latencies = &report.clat_ns;
            let percentile = |at: f64| {
                let list = latencies.percentile.as_ref();
                let found = list.and_then(|list| list.0.iter().find(|(known, _)| *known >= at));
                found.map_or_else(String::new, |(_, ns)| milliseconds(*ns as f64))
            };
            table.row([
                job.jobname.clone(),
                name.to_owned(),
                short(report.iops),
                short(report.bw_bytes as f64 / 1_048_576.0),
                milliseconds(latencies.mean),
                percentile(50.0),
                percentile(99.0),
                percentile(99.9),
                milliseconds(latencies.max as f64),
            ]);
        }
        if let Some(error) = job.other.get("bimetal error").and_then(|error| error.as_str()) {
            ends += &format!("{} failed: {error}\n", job.jobname);
        }
        if job.other.contains_key("bimetal cut short") {
            ends += &format!("{} was ended by a limit\n", job.jobname);
        }
    }
    table.render() + &ends
}

fn milliseconds(ns: f64) -> String {
    match ns / 1e6 {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 1.0 => format!("{ms:.2}"),
        ms => format!("{ms:.3}"),
    }
}
