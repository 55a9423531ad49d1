//! AnandTech's month with a Fusion Drive: the fill and its hand-over, random writes over everything, over
//! 8 GB three times with rests between, and over a volume that is 80 % full.
//!
//! Made twice: with bimetal's own placement (`fusion:FAST+SLOW`), and with one that behaves as Apple's was
//! seen to (`apple-fusion:FAST+SLOW`), whose rows stand beside the published ones.

use super::measures::write_mb;
use super::{
    Bound, Chart, Experiment, Figure, FigureRecord, Mark, Measure, RunRecord, Series, Stage, Step,
    StepRecord,
};
use crate::bench::{Moment, Outcome};

/// Random writes of the 8 GB passes and of the whole: as long as the source's.
const PASS_S: u64 = 180;
/// What the source calls waiting for the movement to end.
const REST_S: u64 = 600;
/// The first part of the fill is written as published; the rest, all on the slow drive, in larger
/// requests, because a terabyte of small ones shows nothing more.
const FILL_SLOWLY_BYTES: u64 = 160_000_000_000;
/// The passes that go over a part of the volume.
const PART_BYTES: u64 = 8_000_000_000;
/// What the source's volume had. A smaller one has smaller parts and shorter passes, so that as large a
/// share of them is touched.
const FULL_BYTES: u64 = 1_100_000_000_000;
/// The shortest pass: the seconds at both ends are not whole.
const PASS_S_MIN: u64 = 10;

const FAST: usize = 0;
const SLOW: usize = 1;

/// The figure that grows with the drives, and the published one.
const HAND_OVER: &str = "hand-over after";
const HAND_OVER_ROW: &str = "at-fill-switch";

/// See the head of the file.
pub struct Fusion;

/// Whether the volume is as large as the published one, or larger.
fn is_full_size(size_bytes: u64) -> bool {
    size_bytes as f64 > 0.9 * FULL_BYTES as f64
}

impl Experiment for Fusion {
    fn name(&self) -> &str {
        "fusion"
    }

    fn question(&self) -> &str {
        "When does a fused volume hand over from its fast to its slow drive, and what do random writes get?"
    }

    fn source(&self) -> &str {
        "AnandTech, A Month with Apple's Fusion Drive (2013), page Under the Hood"
    }

    fn stage(&self) -> Stage {
        Stage::Volume
    }

    fn steps(&self, bench: &str, size_bytes: u64) -> Vec<Step> {
        // Published rows are Apple's: bimetal's own placement stands beside nothing.
        let apple = bench.starts_with("apple-fusion:");
        let figure = |id: &str, row: &str, column: &str, unit, measure: Measure| Figure {
            id: (apple && !id.is_empty()).then(|| id.to_owned()),
            row: row.to_owned(),
            column: column.to_owned(),
            unit,
            measure,
        };
        let step = |name: &str, rest_s, job: String, figures| Step {
            name: name.to_owned(),
            renew: false,
            rest_s,
            restart: false,
            cut: None,
            memory: None,
            job: format!("[{name}]\nioengine=libaio\ndirect=1\n{job}"),
            figures,
            bound: Bound::default(),
        };
        let fill = "fill, 128 KiB, depth 1";
        let share = (size_bytes as f64 / FULL_BYTES as f64).min(1.0);
        let part = |bytes: u64| (bytes as f64 * share) as u64 >> 20 << 20;
        let slowly = part(FILL_SLOWLY_BYTES);
        let pass_s = ((PASS_S as f64 * share) as u64).max(PASS_S_MIN);
        let random = |size: &str, seed: u64| {
            format!(
                "rw=randwrite\nbs=4k\niodepth=16\n{size}norandommap\nrandrepeat=0\nrandseed={seed}\nruntime={pass_s}\n\
                 time_based\n"
            )
        };
        let whole = "4 KiB random, whole volume, depth 16";
        let pass = |number: u64, rest_s, figures| {
            step(
                &format!("8gb-pass-{number}"),
                rest_s,
                random(&format!("size={}\n", part(PART_BYTES)), number),
                figures,
            )
        };
        let passes = "4 KiB random, first 8 GB";
        let mut first = step(
            "fill",
            0,
            format!("rw=write\nbs=128k\niodepth=1\nio_size={slowly}\n"),
            vec![
                figure("at-fill-ssd-rate", fill, "rate on the fast drive", "MB/s", fast_fill_mb),
                figure(
                    "at-fill-hdd-activity",
                    fill,
                    "slow drive meanwhile",
                    "MB/s",
                    slow_meanwhile_mb,
                ),
                figure(
                    if is_full_size(size_bytes) { HAND_OVER_ROW } else { "" },
                    fill,
                    HAND_OVER,
                    "GB",
                    hand_over_gb,
                ),
                figure("at-fill-hdd-rate", fill, "rate on the slow drive", "MB/s", slow_fill_mb),
            ],
        );
        first.renew = true;
        let eighty = (size_bytes / 10 * 8) >> 20 << 20;
        let mut refill = step(
            "fill-80-percent",
            0,
            format!("rw=write\nbs=1m\niodepth=1\nsize={eighty}\n"),
            Vec::new(),
        );
        refill.renew = true;
        vec![
            first,
            step(
                "fill-rest",
                0,
                format!("rw=write\nbs=1m\niodepth=1\noffset={slowly}\n"),
                Vec::new(),
            ),
            step(
                "whole-random",
                REST_S,
                random("", 1),
                vec![
                    figure("at-rnd-full", whole, "average", "MB/s", write_mb),
                    figure("", whole, "slow drive's writes to one of the fast", "", slow_per_fast),
                ],
            ),
            pass(
                1,
                REST_S,
                vec![
                    figure("", passes, "moved in the rest before pass 1", "MB", moved_mb),
                    figure("at-8g-run1", passes, "pass 1, average", "MB/s", write_mb),
                ],
            ),
            pass(
                2,
                REST_S,
                vec![
                    figure("", passes, "moved in the rest before pass 2", "MB", moved_mb),
                    figure("at-8g-run2", passes, "pass 2, average", "MB/s", write_mb),
                ],
            ),
            pass(
                3,
                REST_S,
                vec![
                    figure("", passes, "moved in the rest before pass 3", "MB", moved_mb),
                    figure("at-8g-run3-peak", passes, "pass 3, best second", "MB/s", best_mb),
                    figure("at-8g-run3-min", passes, "pass 3, worst second", "MB/s", worst_mb),
                ],
            ),
            refill,
            step(
                "full-random",
                REST_S,
                random(&format!("size={eighty}\n"), 5),
                vec![
                    figure("", "4 KiB random, volume 80 % full", "average", "MB/s", write_mb),
                    figure(
                        "at-full-split",
                        "4 KiB random, volume 80 % full",
                        "slow drive's writes to one of the fast",
                        "",
                        slow_per_fast,
                    ),
                ],
            ),
        ]
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let mut charts = Vec::new();
        if let Some(step) = record.step("fill") {
            charts.push(fill_chart(record, step));
        }
        let passes = ["whole-random", "8gb-pass-1", "8gb-pass-2", "8gb-pass-3"];
        let steps: Vec<&StepRecord> = passes.iter().filter_map(|name| record.step(name)).collect();
        if !steps.is_empty() {
            charts.push(activity_chart(record, &steps));
        }
        charts
    }

    fn derived(&self, record: &RunRecord) -> Vec<FigureRecord> {
        if is_full_size(record.size_bytes) || !record.on.starts_with("apple-fusion:") {
            return Vec::new();
        }
        // What the engine keeps for itself does not shrink as the drives do.
        let times = (FULL_BYTES as f64 / record.size_bytes as f64).round();
        let own = record.figures().find(|figure| figure.column == HAND_OVER);
        let full = own.and_then(|own| Some((own, own.measured? * times)));
        let figure = full.map(|(own, gb)| {
            FigureRecord::of(Some(HAND_OVER_ROW), &own.row, "as of the full size", "GB", Some(gb))
        });
        figure.into_iter().collect()
    }

    fn notes(&self, bench: &str) -> Vec<String> {
        let placement = if bench.starts_with("apple-fusion:") {
            "Placement as Apple's was seen to be: new allocations land on the fast drive, what lives on the \
             slow drive is overwritten there, and what is written or read again moves up in rests."
        } else {
            "bimetal's own placement: small writes land in the log on the fast drive wherever they live, and \
             go down sorted."
        };
        vec![
            placement.to_owned(),
            "The volume's engine is the one that ships; the drives are twins; nothing is fitted to these rows \
             but what calibrated the twins."
                .to_owned(),
            "The source does not state the depth of its 8 GB passes; 16 is stated for the test before.".to_owned(),
        ]
    }
}

fn written(moment: &Moment, drive: usize) -> u64 {
    moment.drives.get(drive).map_or(0, |traffic| traffic.write_bytes)
}

/// The moment at which the slow drive takes more than the fast one for the first time, and until the
/// end of the fill.
fn hand_over(moments: &[Moment]) -> Option<usize> {
    let last_fast = moments.iter().rposition(|m| written(m, FAST) > written(m, SLOW))?;
    (last_fast + 1 < moments.len()).then_some(last_fast + 1)
}

fn sum(moments: &[Moment], drive: usize) -> u64 {
    moments.iter().map(|moment| written(moment, drive)).sum()
}

fn mean_mb(moments: &[Moment], drive: usize) -> Option<f64> {
    // The seconds at both ends are not whole.
    let inner = moments.get(1..moments.len().checked_sub(1)?)?;
    (!inner.is_empty()).then(|| sum(inner, drive) as f64 / inner.len() as f64 / 1e6)
}

fn fast_fill_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    mean_mb(&outcome.moments[..hand_over(&outcome.moments)?], FAST)
}

fn slow_meanwhile_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    mean_mb(&outcome.moments[..hand_over(&outcome.moments)?], SLOW)
}

fn slow_fill_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    mean_mb(&outcome.moments[hand_over(&outcome.moments)?..], SLOW)
}

fn hand_over_gb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    let before = &outcome.moments[..hand_over(&outcome.moments)?];
    Some((sum(before, FAST) + sum(before, SLOW)) as f64 / 1e9)
}

fn slow_per_fast(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    let (fast, slow) = (outcome.total(FAST).writes, outcome.total(SLOW).writes);
    (fast > 0).then(|| slow as f64 / fast as f64)
}

fn moved_mb(_: &Outcome, rested: &[Moment]) -> Option<f64> {
    Some((sum(rested, FAST) + sum(rested, SLOW)) as f64 / 1e6)
}

/// The client's bandwidth of each whole second, MB/s.
fn seconds_mb(outcome: &Outcome) -> Vec<f64> {
    // Half seconds, in KiB/s, by the log.
    let Some((_, log)) = outcome.logs.iter().find(|(name, _)| name.contains("_bw.")) else {
        return Vec::new();
    };
    let values: Vec<f64> = log
        .lines()
        .filter_map(|line| line.split(", ").nth(1)?.parse::<f64>().ok())
        .map(|kib| kib * 1024.0 / 1e6)
        .collect();
    values.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect()
}

fn best_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    seconds_mb(outcome).into_iter().reduce(f64::max)
}

fn worst_mb(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    seconds_mb(outcome).into_iter().reduce(f64::min)
}

/// Rates of both drives over what has been written, a point for each GB.
fn fill_chart(record: &RunRecord, step: &StepRecord) -> Chart {
    let mut chart = Chart::new(
        &format!("fusion-fill:{}", record.on),
        "Filling an empty volume: which drive takes the writes",
        "GB written",
        "MB/s",
    );
    let moments = &step.outcome.moments;
    let mut lines = [Vec::new(), Vec::new()];
    let (mut gigabytes, mut bytes, mut from) = (0.0, [0u64; 2], 0);
    for (index, moment) in moments.iter().enumerate() {
        for (drive, sum) in bytes.iter_mut().enumerate() {
            *sum += written(moment, drive);
        }
        let total = (bytes[0] + bytes[1]) as f64 / 1e9;
        if total >= 1.0 {
            let seconds = (index + 1 - from) as f64;
            for (line, bytes) in lines.iter_mut().zip(bytes) {
                line.push((gigabytes + total / 2.0, bytes as f64 / 1e6 / seconds));
            }
            (gigabytes, bytes, from) = (gigabytes + total, [0; 2], index + 1);
        }
    }
    let [fast, slow] = lines;
    chart.series.push(Series::line("fast drive", fast));
    chart.series.push(Series::line("slow drive", slow));
    if let Some(at) = hand_over_gb(&step.outcome, &[]) {
        chart.marks.push(Mark { at, label: format!("hand-over at {at:.0} GB") });
    }
    chart
}

/// Both drives over time, rests included, a point for each five seconds.
fn activity_chart(record: &RunRecord, steps: &[&StepRecord]) -> Chart {
    let mut chart = Chart::new(
        &format!("fusion-activity:{}", record.on),
        "What both drives do during random writes, and in the rests between",
        "minutes",
        "MB/s, read and written",
    );
    chart.y_log = true;
    let mut lines = [Vec::new(), Vec::new()];
    let mut began_s = 0.0;
    for step in steps {
        let parts =
            [(&step.rested, step.rest_s as f64), (&step.outcome.moments, step.outcome.seconds)];
        for (number, (moments, seconds)) in parts.into_iter().enumerate() {
            if number == 1 {
                chart.marks.push(Mark { at: began_s / 60.0, label: step.name.clone() });
            }
            for five in moments.chunks(5) {
                let at_s = began_s + five.last().map_or(0, |moment| moment.at_s) as f64;
                for (drive, line) in lines.iter_mut().enumerate() {
                    let traffic = five.iter().filter_map(|moment| moment.drives.get(drive));
                    let bytes: u64 = traffic.map(|t| t.read_bytes + t.write_bytes).sum();
                    line.push((at_s / 60.0, bytes as f64 / 1e6 / five.len() as f64));
                }
            }
            began_s += seconds;
        }
    }
    let [fast, slow] = lines;
    chart.series.push(Series::line("fast drive", fast));
    chart.series.push(Series::line("slow drive", slow));
    chart
}
