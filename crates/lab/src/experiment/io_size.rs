//! Why no requests of 1 MiB arrive: the kernel cuts them at 512 KiB, by its own limit
//! (`max_sectors_kb`) and by the number of memory pages one request may be spread over.
//!
//! On a real drive the kernel's counters say how large the requests were that arrived. A twin has
//! no kernel before it: there the cut is made by asking for what the kernel would have made of it.

use super::measures::{read_iops, read_mib, read_ms};
use super::{Bound, Chart, Experiment, Figure, Measure, RunRecord, Series, Stage, Step};
use crate::bench::{Moment, Outcome};

/// What is asked for, and how many at once: the third is the first after the kernel's cut.
const SIZES: [(&str, &str, u64); 5] = [
    ("one-mib", "1m", 1),
    ("half-mib", "512k", 1),
    ("one-mib-cut-in-two", "512k", 2),
    ("one-mib-cut-in-eight", "128k", 8),
    ("four-kib", "4k", 1),
];

/// See the head of the file.
pub struct IoSize;

impl Experiment for IoSize {
    fn name(&self) -> &str {
        "io-size"
    }

    fn question(&self) -> &str {
        "Why does a drive see no requests of 1 MiB, and what does it cost?"
    }

    fn source(&self) -> &str {
        "n0derunner, Why does my SSD not issue 1MB IO's?"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, _: &str, _: u64) -> Vec<Step> {
        let steps = SIZES.iter().map(|(name, block, depth)| {
            let figure = |column: &str, unit, measure: Measure| Figure {
                id: None,
                row: name.replace('-', " "),
                column: column.to_owned(),
                unit,
                measure,
            };
            Step {
                name: (*name).to_owned(),
                renew: true,
                rest_s: 0,
                restart: false,
                cut: None,
                memory: None,
                job: format!(
                    "[{name}]\nioengine=libaio\ndirect=1\nrw=read\nbs={block}\niodepth={depth}\nruntime=20\n\
                     time_based\n"
                ),
                figures: vec![
                    figure("throughput", "MB/s", read_mib),
                    figure("requests asked for", "io/s", read_iops),
                    figure("response time", "ms", read_ms),
                    figure("size of requests that arrived", "KiB", arrived_kib),
                ],
                bound: Bound { seconds: Some(20), requests: Some(500_000) },
            }
        });
        steps.collect()
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let bars = record.figures().filter(|figure| figure.column == "throughput");
        let bars = bars.filter_map(|figure| Some((figure.row.clone(), figure.measured?)));
        let mut chart = Chart::new("io-size", "Sequential reads by request size", "", "MB/s");
        chart.series.push(Series::bars(record.on.clone(), false, bars.collect()));
        vec![chart]
    }

    fn notes(&self, bench: &str) -> Vec<String> {
        if bench.starts_with("twin:") {
            return vec![
                "A twin has no kernel before it: 'cut in two' asks for what the kernel makes of 1 MiB, two \
                 requests of 512 KiB at once."
                    .to_owned(),
            ];
        }
        Vec::new()
    }
}

fn arrived_kib(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    let traffic = outcome.total(0);
    (traffic.reads > 0).then(|| traffic.read_bytes as f64 / traffic.reads as f64 / 1024.0)
}
