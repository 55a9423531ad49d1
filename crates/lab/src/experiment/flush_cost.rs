//! Hector Martin's flush: a block rewritten over and over, with and without a flush after each.

use super::measures::write_iops;
use super::{
    Bound, Chart, Experiment, Figure, FigureRecord, Published, RunRecord, Series, Stage, Step,
};

/// Rows of a file on ext4, which flushes twice for each rewrite.
const TWICE: &[&str] = &["mf-sn550-flush", "mf-860evo-flush"];

/// See the head of the file.
pub struct FlushCost;

impl Experiment for FlushCost {
    fn name(&self) -> &str {
        "flush"
    }

    fn question(&self) -> &str {
        "How many writes per second are durable, and how many only seem so?"
    }

    fn source(&self) -> &str {
        "Hector Martin (marcan), thread on flush cost, February 2022"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, bench: &str, _: u64) -> Vec<Step> {
        let rows = published_as(bench);
        let step = |name: &str, flush: &str, row: &str, id: Option<&str>| Step {
            name: name.to_owned(),
            renew: true,
            rest_s: 0,
            restart: false,
            cut: None,
            memory: None,
            job: format!(
                "[{name}]\nioengine=psync\ndirect=1\nrw=randwrite\nbs=4k\nsize=64m\n{flush}runtime=20\n\
                 time_based\n"
            ),
            figures: vec![Figure {
                id: id.map(str::to_owned),
                row: row.to_owned(),
                column: "writes".to_owned(),
                unit: "io/s",
                measure: write_iops,
            }],
            bound: Bound { seconds: Some(20), requests: Some(1_000_000) },
        };
        let once = rows.map(|rows| rows.0).filter(|id| !TWICE.contains(id));
        vec![
            step("flushed", "fsync=1\n", "flushed after each", once),
            step("unflushed", "", "never flushed", rows.map(|rows| rows.1)),
        ]
    }

    fn derived(&self, record: &RunRecord) -> Vec<FigureRecord> {
        let rates: Vec<f64> = record
            .steps
            .iter()
            .flat_map(|step| &step.figures)
            .filter_map(|it| it.measured)
            .collect();
        let [flushed, unflushed] = rates[..] else { return Vec::new() };
        let cost_s = (1.0 / flushed - 1.0 / unflushed).max(0.0);
        let twice = 1.0 / (1.0 / unflushed + 2.0 * cost_s);
        let id = published_as(&record.on).map(|rows| rows.0).filter(|id| TWICE.contains(id));
        let row = "flushed twice after each, as ext4 does";
        vec![FigureRecord::of(id, row, "writes", "io/s", Some(twice))]
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let mut chart =
            Chart::new("flush", "Small writes per second, flushed and not", "", "writes/s");
        chart.y_log = true;
        for (published, kind) in [(false, ""), (true, " published")] {
            let bars: Vec<_> = record
                .figures()
                .filter_map(|figure| {
                    let value = match published {
                        true => figure.published?.value(),
                        false => figure.measured?,
                    };
                    Some((figure.row.clone(), value))
                })
                .collect();
            if !bars.is_empty() {
                chart.series.push(Series::bars(format!("{}{kind}", record.on), published, bars));
            }
        }
        vec![chart, cost_chart(record)]
    }

    fn notes(&self, _: &str) -> Vec<String> {
        vec![
            "The source rewrote a file through a file system. ext4 flushes twice for each rewrite; the rate of that \
             is calculated from the two that were measured."
                .to_owned(),
        ]
    }
}

/// Writes per second over what a flush costs; a drive on the line does nothing else in that time.
fn cost_chart(record: &RunRecord) -> Chart {
    let title = "Flushed writes per second over the cost of a flush";
    let mut chart = Chart::new("flush-cost", title, "ms for a flush", "writes/s");
    (chart.x_log, chart.y_log) = (true, true);
    let bound = (-8..=8).map(|quarter| 10f64.powf(f64::from(quarter) / 4.0));
    let bound = bound.map(|ms| (ms, 1000.0 / ms)).collect();
    chart.series.push(Series::line("nothing but the flush", bound));
    let rates: Vec<f64> =
        record.steps.iter().flat_map(|step| &step.figures).filter_map(|it| it.measured).collect();
    let published = published_as(&record.on).and_then(|(flushed, unflushed)| {
        let flushes = if TWICE.contains(&flushed) { 2.0 } else { 1.0 };
        let [flushed, unflushed] = [flushed, unflushed].map(Published::row);
        Some((flushed?.value(), unflushed?.value(), flushes))
    });
    let measured = match rates[..] {
        [flushed, unflushed] => Some((flushed, unflushed, 1.0)),
        _ => None,
    };
    for (rates, is_published, kind) in [(measured, false, ""), (published, true, " published")] {
        let Some((flushed, unflushed, flushes)) = rates.filter(|rates| rates.0 < rates.1) else {
            continue;
        };
        let cost_ms = (1e3 / flushed - 1e3 / unflushed) / flushes;
        // As many as there would be with one flush each.
        let once = 1e3 / (1e3 / unflushed + cost_ms);
        let dot = Series::published(format!("{}{kind}", record.on), vec![(cost_ms, once)]);
        chart.series.push(Series { published: is_published, ..dot });
    }
    chart
}

/// Rows of a drive, flushed and not.
fn published_as(bench: &str) -> Option<(&'static str, &'static str)> {
    let name = bench.strip_prefix("twin:")?.split(',').next()?;
    match name {
        "apple-ans-m1" => Some(("mf-m1-fat32-flush", "mf-m1-fat32-noflush")),
        "wd-sn550-1tb" => Some(("mf-sn550-flush", "mf-sn550-noflush")),
        "samsung-860-evo-500" => Some(("mf-860evo-flush", "mf-860evo-noflush")),
        "usb3-flash-drive" => Some(("mf-usb-fat32-flush", "mf-usb-noflush")),
        _ => None,
    }
}
