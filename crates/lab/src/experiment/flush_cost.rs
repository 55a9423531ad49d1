//! Hector Martin's flush: a block rewritten over and over, with and without a flush after each.

use super::measures::write_iops;
use super::{Bound, Chart, Experiment, Figure, RunRecord, Series, Stage, Step};

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
        vec![
            step("flushed", "fsync=1\n", "flushed after each", rows.map(|rows| rows.0)),
            step("unflushed", "", "never flushed", rows.map(|rows| rows.1)),
        ]
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
        vec![chart]
    }

    fn notes(&self, _: &str) -> Vec<String> {
        vec![
            "The source rewrote a file through a file system, which may flush twice for each: on ext4 a \
             rate can be half of this."
                .to_owned(),
        ]
    }
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
