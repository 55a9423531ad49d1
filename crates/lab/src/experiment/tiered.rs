//! A volume whose use is skewed, as uses are: most of it comes from the fast drive, and what does not
//! takes the slow drive's time.

use super::measures::read_ms;
use super::{Bound, Chart, Experiment, Figure, Measure, RunRecord, Series, Stage, Step};
use crate::bench::{Moment, Outcome};
use crate::fio::Direction;

/// How much of the volume is in use.
const IN_USE: &str = "256g";
/// fio's Zipf with this theta: a use in which few extents have most of the requests.
const PATTERN: &str = "random_distribution=zipf:1.1\n";

/// See the head of the file.
pub struct Tiered;

impl Experiment for Tiered {
    fn name(&self) -> &str {
        "tiered"
    }

    fn question(&self) -> &str {
        "How much of a skewed use does the fast drive serve, and how long do the rest wait?"
    }

    fn source(&self) -> &str {
        "n0derunner, SATA on Nutanix (the tiered use it argues for)"
    }

    fn stage(&self) -> Stage {
        Stage::Volume
    }

    fn steps(&self, _: &str, _: u64) -> Vec<Step> {
        let figure = |column: &str, unit, measure: Measure| Figure {
            id: None,
            row: String::new(),
            column: column.to_owned(),
            unit,
            measure,
        };
        let read = |name: &str, rest_s, seconds: u64, row: &str| {
            let figures = [
                figure("from the fast drive", "%", fast_share as Measure),
                figure("mean response time", "ms", read_ms),
                figure("median", "ms", median_ms),
                figure("99th percentile", "ms", p99_ms),
            ];
            let named = figures.map(|figure| Figure { row: row.to_owned(), ..figure });
            Step {
                name: name.to_owned(),
                renew: false,
                rest_s,
                restart: false,
                cut: None,
                memory: None,
                job: format!(
                    "[{name}]\nioengine=psync\ndirect=1\nrw=randread\nbs=8k\nsize={IN_USE}\n{PATTERN}\
                     randrepeat=0\nrandseed=7\nruntime={seconds}\ntime_based\n"
                ),
                figures: named.into(),
                bound: Bound { seconds: Some(seconds), requests: Some(2_000_000) },
            }
        };
        let fill = Step {
            name: "fill".to_owned(),
            renew: true,
            rest_s: 0,
            restart: false,
            cut: None,
            memory: None,
            job: format!(
                "[fill]\nioengine=libaio\ndirect=1\nrw=write\nbs=1m\niodepth=4\nsize={IN_USE}\n"
            ),
            figures: Vec::new(),
            bound: Bound::default(),
        };
        vec![
            fill,
            read("first", 60, 300, "first five minutes"),
            read("learning", 300, 1800, "half an hour"),
            read("learned", 600, 300, "five minutes after a rest"),
        ]
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let mut chart = Chart::new(
            &format!("tiered:{}", record.on),
            "Share of reads that the fast drive serves",
            "minutes of use",
            "%",
        );
        let mut points = Vec::new();
        let mut before_s = 0;
        for step in record.steps.iter().skip(1) {
            let moments = &step.outcome.moments;
            for minute in moments.chunks(60) {
                let sum = |drive: usize| -> u64 {
                    minute
                        .iter()
                        .filter_map(|moment| moment.drives.get(drive))
                        .map(|t| t.reads)
                        .sum()
                };
                let (fast, slow) = (sum(0), sum(1));
                if fast + slow > 0 {
                    let at_s = before_s + minute.last().map_or(0, |moment| moment.at_s);
                    points.push((at_s as f64 / 60.0, fast as f64 * 100.0 / (fast + slow) as f64));
                }
            }
            before_s += moments.last().map_or(0, |moment| moment.at_s);
        }
        chart.series.push(Series::line("fast drive", points));
        vec![chart]
    }
}

fn fast_share(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    let (fast, slow) = (outcome.total(0).reads, outcome.total(1).reads);
    (fast + slow > 0).then(|| fast as f64 * 100.0 / (fast + slow) as f64)
}

fn percentile_ms(outcome: &Outcome, wanted: f64) -> Option<f64> {
    let job = outcome.report.jobs.first()?;
    let list = job.direction(Direction::Read).clat_ns.percentile.as_ref()?;
    list.0.iter().find(|(at, _)| *at >= wanted).map(|(_, ns)| *ns as f64 / 1e6)
}

fn median_ms(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    percentile_ms(outcome, 50.0)
}

fn p99_ms(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    percentile_ms(outcome, 99.0)
}
