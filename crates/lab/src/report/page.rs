//! The page itself: a section for each experiment, and in it each run.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::drawing::figure;
use crate::experiment::{Chart, FigureRecord, Matrix, RunRecord, short};
use crate::fio::Direction;

const STYLE: &str = include_str!("page.css");
/// Errors up to here are good, and up to there fair (hundredths).
const GOOD_PERCENT: f64 = 10.0;
const FAIR_PERCENT: f64 = 25.0;

/// The page of these runs.
pub fn page(runs: &[RunRecord]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for run in runs {
        if !names.contains(&run.experiment.as_str()) {
            names.push(&run.experiment);
        }
    }
    let of = |name: &str| runs.iter().filter(|run| run.experiment == name).collect::<Vec<_>>();
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "What these drives do" }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header {
                    h1 { "What these drives do" }
                    p.lead { (summary(runs)) }
                    nav {
                        @for name in &names {
                            a href={ "#" (anchor(name)) } { (name) }
                        }
                    }
                    div.bar-of-heat {}
                }
                main {
                    @for name in &names { (section(&of(name))) }
                }
                footer {
                    p {
                        "Made by bimetal " (env!("CARGO_PKG_VERSION")) ". Published values are those of the sources \
                         named at each experiment; an outlined bar, an open dot and small print are published, the \
                         rest is measured. Every figure can be had again by the command above its table."
                    }
                }
            }
        }
    }
    .into_string()
}

fn summary(runs: &[RunRecord]) -> String {
    let compared: Vec<f64> = runs
        .iter()
        .flat_map(RunRecord::figures)
        .filter_map(|figure| figure.error_percent)
        .collect();
    let near = compared.iter().filter(|error| error.abs() <= GOOD_PERCENT).count();
    let real = runs.iter().filter(|run| !run.virtual_time).count();
    let mut text = format!(
        "{}, {} of them on real drives.",
        counted(runs.len(), "run"),
        if real == 0 { "none".to_owned() } else { real.to_string() }
    );
    if !compared.is_empty() {
        text += &format!(
            " Of {} with a published value beside them, {near} lie within {GOOD_PERCENT:.0} % of it.",
            counted(compared.len(), "figure")
        );
    }
    text
}

fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

fn anchor(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

fn section(runs: &[&RunRecord]) -> Markup {
    let first = runs[0];
    html! {
        section id=(anchor(&first.experiment)) {
            h2 { (first.experiment) }
            p.lead { (first.question) }
            @if !first.source.is_empty() { p.source { "Source: " (first.source) } }
            div.charts {
                @for chart in merged(runs) { (figure(&chart)) }
            }
            @for run in runs { (one_run(run)) }
        }
    }
}

/// The charts of all runs, those of one name as one.
fn merged(runs: &[&RunRecord]) -> Vec<Chart> {
    let mut charts: Vec<Chart> = Vec::new();
    for chart in runs.iter().flat_map(|run| &run.charts) {
        match charts.iter_mut().find(|known| known.name == chart.name) {
            None => charts.push(chart.clone()),
            Some(known) => {
                let new = chart.series.iter().filter(|series| !known.series.contains(series));
                let new: Vec<_> = new.cloned().collect();
                known.series.extend(new);
                known.marks.extend(chart.marks.iter().cloned());
            }
        }
    }
    for chart in &mut charts {
        // Which drive it is, where several have a chart of their own.
        if let Some((_, on)) = chart.name.split_once(':').filter(|_| runs.len() > 1) {
            chart.title = format!("{} ({on})", chart.title);
        }
    }
    charts
}

fn one_run(run: &RunRecord) -> Markup {
    let figures: Vec<&FigureRecord> = run.figures().collect();
    html! {
        h3 {
            (run.on)
            @if run.virtual_time { span.tag { "virtual time" } } @else { span.tag.real { "real" } }
        }
        pre.command { (run.command) }
        @if !run.is_complete() {
            p.unfinished {
                (run.steps.len()) " of " (run.steps_total) " steps are done. The same command with the same \
                 directory goes on."
            }
        }
        @if !figures.is_empty() {
            div.card.scroll {
                @match Matrix::of(&figures) {
                    Some(matrix) => (matrix_table(&matrix)),
                    None => (list_table(&figures)),
                }
            }
        }
        @if !run.notes.is_empty() {
            ul.notes { @for note in &run.notes { li { (note) } } }
        }
        details open[figures.is_empty()] {
            summary { "Response times of each step" }
            div.card.scroll { (latency_table(run)) }
        }
        details {
            summary { "Job files" }
            @for step in &run.steps {
                @if step.rest_s > 0 { p.source { "rest " (step.rest_s) " s" } }
                pre { (step.job) }
            }
        }
    }
}

fn quality(figure: &FigureRecord) -> &'static str {
    match figure.error_percent.map(f64::abs) {
        None => "",
        Some(error) if error <= GOOD_PERCENT => "good",
        Some(error) if error <= FAIR_PERCENT => "fair",
        Some(_) => "poor",
    }
}

fn matrix_table(matrix: &Matrix<'_>) -> Markup {
    html! {
        table {
            thead { tr { th {} @for column in &matrix.columns { th { (column) } } } }
            tbody {
                @for (row, cells) in &matrix.rows {
                    tr {
                        th scope="row" { (row) }
                        @for cell in cells {
                            td { @if let Some(figure) = cell { (cell_content(figure)) } }
                        }
                    }
                }
            }
        }
    }
}

fn cell_content(figure: &FigureRecord) -> Markup {
    html! {
        (figure.measured_text())
        @if figure.published.is_some() {
            span.was {
                (figure.published_text())
                @if let Some(error) = figure.error_percent {
                    " " span class=(quality(figure)) { (format!("{error:+.0} %")) }
                }
            }
        }
    }
}

/// Figures that make no table of their own: one below the other, those of one row under its name.
fn list_table(figures: &[&FigureRecord]) -> Markup {
    html! {
        table {
            thead { tr { th {} th { "measured" } th { "published" } th { "error" } } }
            tbody {
                @for group in figures.chunk_by(|one, other| one.row == other.row) {
                    tr.group { th colspan="4" scope="rowgroup" { (group[0].row) } }
                    @for figure in group {
                        tr {
                            td.name { (figure.column) }
                            td { (figure.measured_text()) " " span.unit { (figure.unit) } }
                            td { (figure.published_text()) }
                            td class=(quality(figure)) {
                                @if let Some(error) = figure.error_percent { (format!("{error:+.1} %")) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn latency_table(run: &RunRecord) -> Markup {
    const SHOWN: [f64; 4] = [50.0, 90.0, 99.0, 99.9];
    html! {
        table {
            thead {
                tr {
                    th { "step" } th { "" } th { "io/s" } th { "MB/s" } th { "mean ms" }
                    @for at in SHOWN { th { "p" (at) } }
                    th { "max" }
                }
            }
            tbody {
                @for step in &run.steps {
                    @for job in &step.outcome.report.jobs {
                        @for direction in Direction::ALL {
                            @let report = job.direction(direction);
                            @if report.total_ios > 0 {
                                tr {
                                    td.name { (job.jobname) }
                                    td { (format!("{direction:?}").to_lowercase()) }
                                    td { (short(report.iops)) }
                                    td { (short(report.bw_bytes as f64 / 1e6)) }
                                    td { (milliseconds(report.clat_ns.mean)) }
                                    @for at in SHOWN {
                                        @let list = report.clat_ns.percentile.as_ref();
                                        @let found = list.and_then(|list| list.0.iter().find(|(p, _)| *p >= at));
                                        td { @if let Some((_, ns)) = found { (milliseconds(*ns as f64)) } }
                                    }
                                    td { (milliseconds(report.clat_ns.max as f64)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn milliseconds(ns: f64) -> String {
    match ns / 1e6 {
        ms if ms >= 100.0 => format!("{ms:.0}"),
        ms if ms >= 1.0 => format!("{ms:.2}"),
        ms => format!("{ms:.3}"),
    }
}
