//! `bimetal lab compare`: published figures beside those of the twins.

use clap::Args;
use lab::compare::{Figure, Role, Summary, compare, summaries};
use serde::Serialize;

use crate::failure::{Exit, Outcome};
use crate::progress;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Compare published figures of drives with those of their twins
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab compare
  bimetal lab compare --source thomas-krenn --rows
  bimetal --json lab compare --source all

Everything runs in virtual time. A figure that a twin was fitted to is calibrated, all others are
predicted; those that the twins cannot explain are listed with the reason, those that need more
than a drive as not run. docs/twins.md has the models and what they miss.")]
pub struct CompareArguments {
    /// Which publication
    #[arg(long, default_value = "all", value_parser = ["all", "thomas-krenn", "n0derunner", "marcan-flush", "anandtech-fusion", "admin-hybrid"])]
    source: String,
    /// Print every row, not only those that miss
    #[arg(long)]
    rows: bool,
}

#[derive(Debug, Serialize)]
struct Report {
    rows: Vec<Figure>,
    sources: Vec<Summary>,
    twins: Vec<Summary>,
}

/// Runs the command.
pub fn run(arguments: &CompareArguments, settings: &Settings) -> Outcome {
    let source = (arguments.source != "all").then_some(arguments.source.as_str());
    let bar = progress::steps("playing");
    let rows = compare(source, &|done, of| {
        bar.set_length(of as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    let sources = summaries(&rows, |figure| Some(figure.source.clone()));
    let twins = summaries(&rows, |figure| figure.twin.clone());
    let report = Report { rows, sources, twins };
    settings.output.show("lab compare", &report, |report| text(report, arguments.rows))?;
    Ok(Exit::Done)
}

fn text(report: &Report, all: bool) -> String {
    let mut table = Table::new(&[
        ("ROW", Align::Left),
        ("PUBLISHED", Align::Right),
        ("TWIN", Align::Right),
        ("UNIT", Align::Left),
        ("ERROR", Align::Right),
        ("TOLERANCE", Align::Right),
        ("ROLE", Align::Left),
        ("", Align::Left),
    ]);
    for figure in &report.rows {
        let missed = figure.within == Some(false) && figure.role != Role::Unexplained;
        if all || missed {
            table.row(cells(figure, missed));
        }
    }
    let heading = if all { "Every row" } else { "Rows that miss their tolerance" };
    let mut text = format!("{heading}\n\n{}\n", table.render());
    if all {
        text.push_str(&reasons(&report.rows));
    }
    text.push_str(&summary("PUBLICATION", &report.sources));
    text.push('\n');
    text.push_str(&summary("TWIN", &report.twins));
    text
}

fn cells(figure: &Figure, missed: bool) -> [String; 8] {
    let percent = |share: f64| format!("{:+.1} %", share * 100.0);
    let published = match (figure.published_range, figure.published) {
        (Some((min, max)), _) => format!("{} to {}", number(min), number(max)),
        (None, Some(published)) => number(published),
        (None, None) => String::new(),
    };
    [
        figure.id.clone(),
        published,
        figure.measured.map_or_else(String::new, number),
        figure.unit.clone(),
        figure.error.map_or_else(String::new, percent),
        figure.tolerance.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0)),
        figure.role.name().to_owned(),
        if missed { "missed" } else { "" }.to_owned(),
    ]
}

/// Why rows are unexplained or were not run, each reason once.
fn reasons(rows: &[Figure]) -> String {
    let mut text = String::new();
    let mut seen: Vec<&str> = Vec::new();
    for reason in rows.iter().filter_map(|figure| figure.reason.as_deref()) {
        if seen.contains(&reason) {
            continue;
        }
        seen.push(reason);
        let own = rows.iter().filter(|figure| figure.reason.as_deref() == Some(reason));
        let ids: Vec<&str> = own.map(|figure| figure.id.as_str()).collect();
        let role = rows.iter().find(|figure| figure.reason.as_deref() == Some(reason));
        let role = role.map_or("", |figure| figure.role.name());
        text.push_str(&format!("{role}: {reason}\n    {}\n", ids.join(", ")));
    }
    text.push('\n');
    text
}

fn number(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn summary(heading: &str, summaries: &[Summary]) -> String {
    let mut table = Table::new(&[
        (heading, Align::Left),
        ("CALIBRATED", Align::Right),
        ("WITHIN", Align::Right),
        ("PREDICTED", Align::Right),
        ("WITHIN", Align::Right),
        ("MEDIAN ERROR", Align::Right),
        ("UNEXPLAINED", Align::Right),
        ("NOT RUN", Align::Right),
    ]);
    for summary in summaries {
        let median = summary.median_error;
        table.row([
            summary.name.clone(),
            summary.calibrated.to_string(),
            summary.calibrated_within.to_string(),
            summary.predicted.to_string(),
            summary.predicted_within.to_string(),
            median.map_or_else(String::new, |share| format!("{:.1} %", share * 100.0)),
            summary.unexplained.to_string(),
            summary.not_run.to_string(),
        ]);
    }
    table.render()
}
