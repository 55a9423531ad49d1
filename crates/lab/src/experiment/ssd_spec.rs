//! n0derunner's check of a data sheet: what a drive does at the depths that it advertises.

use super::measures::{read_iops, read_mb, write_iops, write_mb};
use super::{Bound, Chart, Experiment, Figure, Measure, RunRecord, Series, Stage, Step};

/// What is advertised: name, pattern, block, depth, unit, row of the source.
type Claim = (&'static str, &'static str, &'static str, u64, &'static str, Measure, &'static str);

const CLAIMS: [Claim; 4] = [
    ("sequential-read", "read", "1m", 8, "MB/s", read_mb, "nr-ssd-seqrd"),
    ("sequential-write", "write", "1m", 8, "MB/s", write_mb, "nr-ssd-seqwr"),
    ("random-read", "randread", "4k", 32, "io/s", read_iops, "nr-ssd-rndrd"),
    ("random-write", "randwrite", "4k", 32, "io/s", write_iops, "nr-ssd-rndwr"),
];

/// See the head of the file.
pub struct SsdSpec;

impl Experiment for SsdSpec {
    fn name(&self) -> &str {
        "ssd-spec"
    }

    fn question(&self) -> &str {
        "Does an SSD do what its data sheet says, at the depths it says it for?"
    }

    fn source(&self) -> &str {
        "n0derunner, How to identify SSD types and measure performance"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, bench: &str, _: u64) -> Vec<Step> {
        let measured = bench.starts_with("twin:mz7lm1t9");
        // The drive that the advertised column is of.
        let advertised = measured || bench.starts_with("twin:samsung-850-evo-1tb");
        let steps = CLAIMS.iter().enumerate().map(|(index, claim)| {
            let (name, pattern, block, depth, unit, measure, id) = *claim;
            let figure = |id: String, published: bool, column: &str| Figure {
                id: published.then_some(id),
                row: name.replace('-', " "),
                column: format!("{column}, depth {depth}"),
                unit,
                measure,
            };
            Step {
                name: name.to_owned(),
                renew: index == 0,
                rest_s: 0,
                restart: false,
                cut: None,
                memory: None,
                job: format!(
                    "[{name}]\nioengine=libaio\ndirect=1\nrw={pattern}\nbs={block}\niodepth={depth}\n\
                     runtime=30\ntime_based\n"
                ),
                figures: vec![
                    figure(id.to_owned(), measured, "measured by the source"),
                    figure(format!("{id}-spec"), advertised, "advertised"),
                ],
                bound: Bound { seconds: Some(30), requests: Some(2_000_000) },
            }
        });
        steps.collect()
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let chart = |unit: &str, title: &str| {
            let of = |advertised: bool, published: bool| {
                let all = record.figures().filter(|figure| figure.unit == unit);
                all.filter(|figure| figure.column.starts_with("advertised") == advertised)
                    .filter_map(|figure| {
                        let value = match published {
                            true => figure.published?.value(),
                            false => figure.measured?,
                        };
                        Some((figure.row.clone(), value))
                    })
                    .collect::<Vec<_>>()
            };
            let mut chart = Chart::new(&format!("ssd-spec-{unit}:{}", record.on), title, "", unit);
            let all = [
                ("measured here", false, of(false, false)),
                ("measured by the source", true, of(false, true)),
                ("advertised", true, of(true, true)),
            ];
            for (name, published, bars) in all {
                if !bars.is_empty() {
                    chart.series.push(Series::bars(name, published, bars));
                }
            }
            chart
        };
        vec![chart("MB/s", "Sequential, depth 8"), chart("io/s", "Random 4 KiB, depth 32")]
    }
}
