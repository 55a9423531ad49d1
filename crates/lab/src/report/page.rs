//! The page itself: a section for each experiment, and in it each run.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::drawing::figure;
use super::latency::latency_chart;
use crate::compare::{Role, Standing, standing};
use crate::experiment::{Chart, FigureRecord, Matrix, RunRecord, short};
use crate::fio::Direction;

const STYLE: &str = include_str!("page.css");
/// An error up to so many times the tolerance of its row is fair.
const FAIR_TIMES: f64 = 2.5;

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
                         rest is measured. Errors are green within the tolerance of their row, amber within two and a \
                         half times that; what a twin was fitted to says so. Every figure can be had again by the command above its table."
                    }
                }
            }
        }
    }
    .into_string()
}

fn summary(runs: &[RunRecord]) -> String {
    let real = runs.iter().filter(|run| !run.virtual_time).count();
    let mut text = format!(
        "{}, {} of them on real drives.",
        counted(runs.len(), "run"),
        if real == 0 { "none".to_owned() } else { real.to_string() }
    );
    let simulated = runs.iter().filter(|run| run.virtual_time).flat_map(RunRecord::figures);
    let compared: Vec<(&FigureRecord, &Standing)> = simulated
        .filter(|figure| figure.error_percent.is_some())
        .filter_map(|figure| Some((figure, standing(figure.id.as_deref()?)?)))
        .collect();
    if compared.is_empty() {
        return text;
    }
    let of = |role: Role| compared.iter().filter(move |(_, standing)| standing.role == role);
    let predicted = of(Role::Predicted).count();
    let within = of(Role::Predicted).filter(|(figure, _)| quality(figure) == "good").count();
    text += &format!(
        " {} of twins have a published value beside them: {} were fitted to it; of {predicted} that were not, \
         {within} lie within their tolerance.",
        counted(compared.len(), "figure"),
        of(Role::Calibrated).count(),
    );
    match of(Role::Unexplained).count() {
        0 => {}
        count => text += &format!(" {count} are not explained by the twins, and say why."),
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
                    Some(matrix) => (matrix_table(&matrix, run)),
                    None => (list_table(&figures, run)),
                }
            }
        }
        @if let Some(chart) = latency_chart(run) { div.charts.below { (figure(&chart)) } }
        @let reasons = reasons(&figures, run);
        @if !run.notes.is_empty() || !reasons.is_empty() {
            ul.notes {
                @for note in &run.notes { li { (note) } }
                @for reason in reasons { li { "Unexplained: " (reason) "." } }
            }
        }
        // A benchmark's numbers come without steps.
        @if !run.steps.is_empty() { (steps(run, figures.is_empty())) }
    }
}

/// What is beneath the figures, open where there are none.
fn steps(run: &RunRecord, open: bool) -> Markup {
    html! {
        details open[open] {
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

/// How near it comes, by the tolerance of its row.
fn quality(figure: &FigureRecord) -> &'static str {
    let row = figure.id.as_deref().and_then(standing);
    match (figure.error_percent, row) {
        (Some(error), Some(row)) if error.abs() <= row.tolerance * 100.0 => "good",
        (Some(error), Some(row)) if error.abs() <= row.tolerance * 100.0 * FAIR_TIMES => "fair",
        (Some(_), Some(_)) => "poor",
        _ => "",
    }
}

/// What the figure says about the twin, where it is one's.
fn role(figure: &FigureRecord, run: &RunRecord) -> Markup {
    let row = figure.id.as_deref().and_then(standing).filter(|_| run.virtual_time);
    html! {
        @match row.filter(|_| figure.measured.is_some()) {
            Some(Standing { role: Role::Calibrated, .. }) => {
                " " span.role title="the twin was fitted to this row" { "fitted" }
            }
            Some(Standing { role: Role::Unexplained, reason, .. }) => {
                " " span.role title=[reason.as_deref()] { "unexplained" }
            }
            _ => {}
        }
    }
}

/// Why rows are not explained, each reason once.
fn reasons(figures: &[&FigureRecord], run: &RunRecord) -> Vec<&'static str> {
    let mut reasons = Vec::new();
    for figure in figures.iter().filter(|figure| run.virtual_time && figure.measured.is_some()) {
        let row =
            figure.id.as_deref().and_then(standing).filter(|row| row.role == Role::Unexplained);
        if let Some(reason) = row.and_then(|row| row.reason.as_deref())
            && !reasons.contains(&reason)
        {
            reasons.push(reason);
        }
    }
    reasons
}

/// An error with its sign; nothing is not minus nothing.
fn signed(percent: f64, decimals: usize) -> String {
    let text = format!("{percent:+.decimals$} %");
    if text.trim_start_matches(['+', '-', '0', '.']) == " %" {
        format!("{:.decimals$} %", 0.0)
    } else {
        text
    }
}

fn matrix_table(matrix: &Matrix<'_>, run: &RunRecord) -> Markup {
    html! {
        table {
            thead { tr { th {} @for column in &matrix.columns { th { (column) } } } }
            tbody {
                @for (row, cells) in &matrix.rows {
                    tr {
                        th scope="row" { (row) }
                        @for cell in cells {
                            td { @if let Some(figure) = cell { (cell_content(figure, run)) } }
                        }
                    }
                }
            }
        }
    }
}

fn cell_content(figure: &FigureRecord, run: &RunRecord) -> Markup {
    html! {
        (figure.measured_text())
        @if figure.published.is_some() {
            span.was {
                (figure.published_text())
                @if let Some(error) = figure.error_percent {
                    " " span class=(quality(figure)) { (signed(error, 0)) }
                }
                (role(figure, run))
            }
        }
    }
}

/// Figures that make no table of their own: one below the other, those of one row under its name.
fn list_table(figures: &[&FigureRecord], run: &RunRecord) -> Markup {
    let published = figures.iter().any(|figure| figure.published.is_some());
    html! {
        table {
            thead {
                tr { th {} th { "measured" } @if published { th { "published" } th { "error" } } }
            }
            tbody {
                @for group in figures.chunk_by(|one, other| one.row == other.row) {
                    tr.group { th colspan=(if published { "4" } else { "2" }) scope="rowgroup" { (group[0].row) } }
                    @for figure in group {
                        tr {
                            td.name { (figure.column) }
                            td { (figure.measured_text()) " " span.unit { (figure.unit) } }
                            @if published {
                                td { (figure.published_text()) }
                                td {
                                    @if let Some(error) = figure.error_percent {
                                        span class=(quality(figure)) { (signed(error, 1)) }
                                    }
                                    (role(figure, run))
                                }
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
