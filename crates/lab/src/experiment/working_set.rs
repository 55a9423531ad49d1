//! n0derunner's working set: one request at a time, over more and more of a disk.

use super::measures::read_ms;
use super::{Bound, Chart, Experiment, Figure, RunRecord, STEP_S, Series, Stage, Step, short};

/// Spans in GB, and their names in the published rows.
const SPANS: [(u64, &str); 3] = [(1, "1g"), (100, "100g"), (1000, "1000g")];

/// The step over all of a drive that is not as large as one of the spans.
const WHOLE: &str = "random-whole";

/// See the head of the file.
pub struct WorkingSet;

impl Experiment for WorkingSet {
    fn name(&self) -> &str {
        "working-set"
    }

    fn question(&self) -> &str {
        "How does the response time of a disk follow the part of it that is in use?"
    }

    fn source(&self) -> &str {
        "n0derunner, SATA on Nutanix. Some experimental data"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, bench: &str, size_bytes: u64) -> Vec<Step> {
        let drive = published_as(bench);
        let mut steps = Vec::new();
        let mut largest = 0;
        let whole_row = format!("random, all {} GB", short(size_bytes as f64 / 1e9));
        for (gigabytes, name) in SPANS {
            // The largest is the whole drive, as it was in the source for the disk of 900 GB.
            let asked = gigabytes * 1_000_000_000;
            let span = asked.min(size_bytes) / 8192 * 8192;
            if gigabytes > 1 && size_bytes < asked * 8 / 10 {
                continue;
            }
            let id = drive.map(|drive| format!("nr-{drive}-{name}"));
            let row = if span < asked / 8192 * 8192 {
                whole_row.clone()
            } else {
                format!("random, {gigabytes} GB")
            };
            steps.push(step(&format!("random-{name}"), &format!("size={span}\n"), id, row));
            largest = span;
        }
        if largest < size_bytes / 10 * 9 {
            steps.push(step(WHOLE, "", None, whole_row));
        }
        // The source gives no theta: fio's own default.
        let id = drive.filter(|drive| *drive == "sata").map(|_| "nr-sata-zipf".to_owned());
        steps.push(step(
            "zipf",
            "random_distribution=zipf:1.1\n",
            id,
            "Zipf 1.1, whole".to_owned(),
        ));
        steps
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let points = |published: bool| {
            let whole = record.size_bytes as f64 / 1e9;
            let named = SPANS.map(|(gigabytes, name)| (gigabytes as f64, format!("random-{name}")));
            let spans = named.into_iter().chain([(whole, WHOLE.to_owned())]).filter_map(
                |(gigabytes, name)| {
                    let figure = record.step(&name)?.figures.first()?;
                    let value = match published {
                        true => figure.published?.value(),
                        false => figure.measured?,
                    };
                    Some((gigabytes.min(whole), value))
                },
            );
            spans.collect::<Vec<_>>()
        };
        let mut chart = Chart::new(
            "working-set",
            "Response time over the span in use, 8 KiB random reads one at a time",
            "span (GB)",
            "ms",
        );
        chart.x_log = true;
        chart.series.push(Series::line(record.on.clone(), points(false)));
        let published = points(true);
        if !published.is_empty() {
            chart.series.push(Series::published(format!("{} published", record.on), published));
        }
        vec![chart]
    }
}

fn step(name: &str, span: &str, id: Option<String>, row: String) -> Step {
    Step {
        name: name.to_owned(),
        renew: true,
        rest_s: 0,
        restart: false,
        cut: None,
        memory: None,
        job: format!(
            "[{name}]\nioengine=psync\ndirect=1\nrw=randread\nbs=8k\n{span}runtime={STEP_S}\ntime_based\n"
        ),
        figures: vec![Figure {
            id,
            row,
            column: "response time".to_owned(),
            unit: "ms",
            measure: read_ms,
        }],
        bound: Bound { seconds: Some(STEP_S), requests: Some(1_000_000) },
    }
}

fn published_as(bench: &str) -> Option<&'static str> {
    let name = bench.strip_prefix("twin:")?.split(',').next()?;
    match name {
        "st91000640ns" => Some("sata"),
        "al13seb900" => Some("sas"),
        _ => None,
    }
}
