//! The page of a run: what the tables say, in the layout of the laboratory's runs, from which
//! `bimetal lab report` draws it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::door::Door;
use super::table::{Report, Row};

/// The laboratory's layout of a run.
const SCHEMA: u32 = 1;
/// Requests of so much or more are told in MB/s.
const LARGE_BYTES: u64 = 64 << 10;

/// Writes a run for each door into `directory`, and the page beside them.
pub fn write(report: &Report, directory: &Path, bimetal: &Path) -> Result<PathBuf> {
    let runs = directory.join("bench-runs");
    if runs.exists() {
        fs::remove_dir_all(&runs).context("clearing what an earlier run left")?;
    }
    for (place, door) in report.doors().into_iter().enumerate() {
        keep(&runs, &format!("{place}"), &of_door(report, door))?;
    }
    keep(&runs, "in-process", &in_process(report))?;
    let page = directory.join("bench.html");
    let output = Command::new(bimetal)
        .args(["lab", "report"])
        .arg(&runs)
        .arg("--output")
        .arg(&page)
        .output()
        .context("running bimetal lab report")?;
    if !output.status.success() {
        bail!("bimetal lab report: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(page)
}

fn keep(directory: &Path, name: &str, run: &Value) -> Result<()> {
    let place = directory.join(name);
    fs::create_dir_all(&place).with_context(|| format!("making {}", place.display()))?;
    let file = place.join("run.json");
    fs::write(&file, run.to_string()).with_context(|| format!("writing {}", file.display()))
}

fn of_door(report: &Report, door: Door) -> Value {
    let rows: Vec<&Row> = report.rows_of(door).collect();
    let (large, small): (Vec<&Row>, Vec<&Row>) =
        rows.iter().copied().partition(|row| row.step.block_bytes >= LARGE_BYTES);
    let rate = |row: &Row, kind| row.rate(kind);
    let mb = |row: &Row, kind| row.rate(kind) * row.step.block_bytes as f64 / 1e6;
    let cpu = |row: &Row, kind| row.cpu_us(kind);
    let chart =
        |name: &str, title: &str, unit: &str, rows: &[&Row], of: &dyn Fn(&Row, _) -> f64| {
            let series = door.contestants().iter().map(|kind| {
                let bars = rows.iter().map(|row| (row.step.name, of(row, *kind))).collect();
                bars_of(kind.name(), bars)
            });
            let series = series.collect();
            // The page says which door it is.
            chart_of(&format!("{name}:{door}"), title, unit, series)
        };
    let charts = vec![
        chart("small", "small requests, median", "requests/s", &small, &rate),
        chart("large", "large requests, median", "MB/s", &large, &mb),
        chart("cpu", "CPU time of the server for a small request", "µs", &small, &cpu),
    ];
    let figures = rows.iter().flat_map(|row| {
        door.contestants()
            .iter()
            .map(|kind| figure(row.step.name, kind.name(), "requests/s", Some(row.rate(*kind))))
    });
    run(report, &door.to_string(), figures.collect(), charts)
}

fn in_process(report: &Report) -> Value {
    let rows = report.in_process["in_process"].as_array().cloned().unwrap_or_default();
    let sides = [
        ("the engine", "engine_per_second"),
        ("raw io_uring", "raw_per_second"),
        ("fio's io_uring", "fio_per_second"),
    ];
    let name = |row: &Value| row["row"].as_str().unwrap_or("?").to_owned();
    let series = sides.iter().map(|(side, key)| {
        let bars: Vec<(String, f64)> =
            rows.iter().filter_map(|row| Some((name(row), row[*key].as_f64()?))).collect();
        bars_of(side, bars.iter().map(|(name, value)| (name.as_str(), *value)).collect())
    });
    let title = "the engine in process, beside raw io_uring on a file of the same kind, median";
    let charts = vec![chart_of("in process", title, "requests/s", series.collect())];
    let figures = rows.iter().flat_map(|row| {
        sides.iter().map(|(side, key)| figure(&name(row), side, "requests/s", row[*key].as_f64()))
    });
    run(report, "in process", figures.collect(), charts)
}

fn run(report: &Report, on: &str, figures: Vec<Value>, charts: Vec<Value>) -> Value {
    json!({
        "schema": SCHEMA,
        "experiment": "doors",
        "question": "What does a request cost at each door, beside the servers one would take instead?",
        "source": "",
        "on": on,
        "size_bytes": super::steps::SPAN_BYTES,
        "drives": [],
        "virtual_time": false,
        "command": format!("cargo x bench{}", report.options),
        "options": { "seed": 0, "step_seconds": null },
        "notes": [
            report.machine.to_string(),
            format!("Medians of turns of {} s, interleaved.", report.turn_seconds),
        ],
        "steps": [],
        "steps_total": 0,
        "derived": figures,
        "charts": charts,
    })
}

fn figure(row: &str, column: &str, unit: &str, measured: Option<f64>) -> Value {
    json!({
        "id": null, "row": row, "column": column, "measured": measured, "published": null, "unit": unit,
        "error_percent": null,
    })
}

fn chart_of(name: &str, title: &str, unit: &str, series: Vec<Value>) -> Value {
    json!({
        "name": name, "title": title, "x": "", "y": unit, "x_log": false, "y_log": false, "series": series,
    })
}

fn bars_of(name: &str, bars: Vec<(&str, f64)>) -> Value {
    let points: Vec<(f64, f64)> =
        bars.iter().enumerate().map(|(place, bar)| (place as f64, bar.1)).collect();
    let labels: Vec<&str> = bars.iter().map(|bar| bar.0).collect();
    json!({ "name": name, "shape": "bars", "published": false, "points": points, "labels": labels })
}
