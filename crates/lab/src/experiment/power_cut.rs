//! What a drive keeps when its plug is pulled, and what it would keep if flushes were acknowledged and
//! not done, by the drive or by a system that sends none: how fast, and how much is lost.

use super::measures::write_iops;
use super::{
    Bound, Chart, Experiment, Figure, Measure, RunRecord, Series, Stage, Step, flush_cost,
};
use crate::bench::{Cut, Moment, Outcome, WRITTEN_BYTES_MAX};
use crate::powercut::{Order, Verdict};

/// Writing goes on for so long before a plug is pulled.
const WRITE_S: u64 = 8;
/// As long as the source waited after its last write.
const IDLE_S: u64 = 5;

/// Cuts: name, row of the table, and how.
const CUTS: [(&str, &str, Cut); 5] = [
    ("honest-lost", "flushes done, cache lost", cut(false, 0, false)),
    ("honest-reordered", "flushes done, cache partly written", cut(false, 0, true)),
    ("lying-lost", "flushes not done, cache lost", cut(true, 0, false)),
    ("lying-reordered", "flushes not done, cache partly written", cut(true, 0, true)),
    ("lying-idle", "flushes not done, then five seconds idle", cut(true, IDLE_S, false)),
];

const fn cut(lying: bool, idle_s: u64, reordered: bool) -> Cut {
    Cut { write_s: WRITE_S, idle_s, lying, reordered }
}

/// See the head of the file.
pub struct PowerCut;

impl Experiment for PowerCut {
    fn name(&self) -> &str {
        "powercut"
    }

    fn question(&self) -> &str {
        "What is left of acknowledged writes when the plug is pulled, with flushes and without?"
    }

    fn source(&self) -> &str {
        "Hector Martin (marcan), thread on flush cost, February 2022"
    }

    fn stage(&self) -> Stage {
        Stage::Twin
    }

    fn steps(&self, bench: &str, size_bytes: u64) -> Vec<Step> {
        // The rates first, as the flush experiment measures them.
        let mut steps = flush_cost::FlushCost.steps(bench, size_bytes);
        for (name, row, cut) in CUTS {
            let figure = |column: &str, unit, measure: Measure| Figure {
                id: None,
                row: row.to_owned(),
                column: column.to_owned(),
                unit,
                measure,
            };
            steps.push(Step {
                name: name.to_owned(),
                renew: true,
                rest_s: 0,
                restart: false,
                cut: Some(cut),
                memory: None,
                job: String::new(),
                figures: vec![
                    figure("acknowledged writes", "", |o, _| {
                        of(o, |v| v.writes_acknowledged as f64)
                    }),
                    figure("of these lost", "", |o, _| of(o, |v| v.writes_lost as f64)),
                    figure("oldest lost, before the end", "ms", oldest_lost_ms),
                    figure("later kept, earlier lost", "", |o, _| {
                        of(o, |v| f64::from(u8::from(v.order == Order::Broken)))
                    }),
                ],
                bound: Bound::default(),
            });
        }
        steps
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let lost = CUTS.iter().filter_map(|(name, row, _)| {
            let verdict = record.step(name)?.outcome.verdict.as_ref()?;
            let share = verdict.writes_lost as f64 / verdict.writes_acknowledged.max(1) as f64;
            Some(((*row).to_owned(), share * 100.0))
        });
        let mut lost_chart =
            Chart::new("powercut", "Acknowledged writes that a power cut took", "", "% of them");
        lost_chart.series.push(Series::bars(record.on.clone(), false, lost.collect()));
        let rates = ["flushed", "unflushed"].iter().filter_map(|name| {
            let rate = write_iops(&record.step(name)?.outcome, &[])?;
            Some(((*name).to_owned(), rate))
        });
        let mut rate_chart =
            Chart::new("powercut-rates", "What not flushing gains", "", "writes/s");
        rate_chart.y_log = true;
        rate_chart.series.push(Series::bars(record.on.clone(), false, rates.collect()));
        vec![rate_chart, lost_chart]
    }

    fn notes(&self, _: &str) -> Vec<String> {
        vec![
            format!(
                "The plug is pulled after {WRITE_S} s of writing, or {} GiB, in epochs of 1 to 64 writes of up to 64 KiB, each ended by a \
                 flush; what is left is read and judged as 'bimetal lab powercut' does on real drives.",
                WRITTEN_BYTES_MAX >> 30
            ),
            "A write that a later one of the same place covers cannot be seen to be lost. How much a cache holds is \
             the twin's; that nothing writes it back while it has room is the worst that a drive may do."
                .to_owned(),
        ]
    }
}

fn of(outcome: &Outcome, what: fn(&Verdict) -> f64) -> Option<f64> {
    outcome.verdict.as_ref().map(what)
}

fn oldest_lost_ms(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    outcome.verdict.as_ref()?.oldest_lost_age_ms.map(|ms| ms as f64)
}
