//! Response times of the steps of a run, by percentile.

use crate::experiment::{Chart, RunRecord, Series};
use crate::fio::Direction;

/// Steps shown at most: there are so many colours.
const SHOWN_MAX: usize = 6;
/// Of more jobs than these some would say nothing of the others.
const JOBS_MAX: usize = 48;
/// What takes less comes from memory (ms).
const LEAST_MS: f64 = 1e-3;
/// Where no request took so many times as long as another there is nothing to see.
const TELLING_TIMES: f64 = 1.2;

/// The picture; `None` where no step has percentiles.
pub(super) fn latency_chart(run: &RunRecord) -> Option<Chart> {
    let mut all: Vec<Series> = Vec::new();
    for step in &run.steps {
        for job in &step.outcome.report.jobs {
            for direction in Direction::ALL {
                let report = job.direction(direction);
                let list = report.clat_ns.percentile.as_ref().filter(|_| report.total_ios > 0);
                let Some(list) = list else { continue };
                let points: Vec<(f64, f64)> = list
                    .0
                    .iter()
                    .map(|(percent, ns)| (*percent, (*ns as f64 / 1e6).max(LEAST_MS)))
                    .collect();
                let both = Direction::ALL.iter().filter(|it| job.direction(**it).total_ios > 0);
                let name = match both.count() {
                    1 => job.jobname.clone(),
                    _ => format!("{}, {}", job.jobname, format!("{direction:?}").to_lowercase()),
                };
                all.push(Series::line(name, points));
            }
        }
    }
    all.retain(|series| series.points.len() > 1);
    let times = || all.iter().flat_map(|series| &series.points).map(|point| point.1);
    let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(0.0, f64::max));
    if all.is_empty() || all.len() > JOBS_MAX || most < least * TELLING_TIMES {
        return None;
    }
    let shown = all.len().min(SHOWN_MAX);
    let title = match all.len() == shown {
        true => "Response times: so many of 100 requests took no longer".to_owned(),
        false => format!("Response times of {shown} of the {} steps, by percentile", all.len()),
    };
    let mut chart = Chart::new("latency", title, "requests", "ms");
    (chart.x_nines, chart.y_log) = (true, true);
    chart.series = (0..shown).map(|index| all[index * all.len() / shown].clone()).collect();
    Some(chart)
}
