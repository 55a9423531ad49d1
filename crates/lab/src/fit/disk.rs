//! The twin of a disk: turns, zones, seeks, what a command costs, and how it caches writes.

use twin::Condition;

use super::draft::Draft;
use super::knob::{Knob, turn};
use super::{add_way, head, wanted};
use crate::fio::Direction;
use crate::probe::{Measured, Measurements};

const MIB: f64 = 1_048_576.0;

/// What disks turn at.
const TURNS: [f64; 9] =
    [3600.0, 4200.0, 5400.0, 5700.0, 5900.0, 7200.0, 10_000.0, 10_500.0, 15_000.0];
/// What was measured is so near to one of these that it is that one.
const TURNS_NEAR: f64 = 0.06;

const TURNS_ROW: &str = "rand-read-4k-over-1-percent";
const ZONE_ROWS: [&str; 5] = [
    "seq-read-1m-at-000",
    "seq-read-1m-at-025",
    "seq-read-1m-at-050",
    "seq-read-1m-at-075",
    "seq-read-1m-at-100",
];

/// Where the inner tracks are not slower, or not measurably: the spiral needs some fall.
const FALL_MIN: f64 = 0.001;

/// The draft of a disk, all of its numbers found.
pub(super) fn draft(measurements: &Measurements, name: &str) -> Result<Draft, String> {
    let identity = &measurements.identity;
    let mut draft = Draft::new(head(identity, name, true, Condition::Used));
    add_way(&mut draft, measurements, &["link_mb_s"], 600.0);
    match identity.rpm {
        Some(rpm) => draft.set("rpm", f64::from(rpm), "the drive says so"),
        None => draft.fitted("rpm", turns(wanted(measurements, TURNS_ROW)?), &[TURNS_ROW]),
    }
    let (outer, inner) = zones(measurements)?;
    draft.fitted("outer_mib_s", outer, &ZONE_ROWS);
    draft.fitted(
        "inner_mib_s",
        inner.min(draft.value("outer_mib_s") * (1.0 - FALL_MIN)),
        &ZONE_ROWS,
    );
    for (number, value, source) in [
        ("seek_base_ms", 1.5, "of the kind"),
        ("seek_stroke_ms", 12.0, "of the kind"),
        ("write_settle_ms", 0.6, "of the kind: 0.5 to 1 ms"),
        ("read_command_us", 90.0, "of the kind"),
        ("write_command_us", 90.0, "of the kind"),
        ("read_ahead_kib", 2048.0, "of the kind"),
        ("read_on_times", 0.0, "of the kind: what comes ends reading ahead"),
        ("segments", 16.0, "of the kind"),
        ("pool_kib", 16_384.0, "of the kind"),
        ("pool_runs", 64.0, "of the kind"),
    ] {
        draft.set(number, value, source);
    }
    let written = measurements.measured.iter().any(|one| one.measure.direction == Direction::Write);
    turn(&mut draft, &knobs(identity.write_cache.unwrap_or(true), written), measurements)?;
    if !written {
        let read_us = draft.value("read_command_us");
        draft.set("write_command_us", read_us, "nothing was written: as for reads");
    }
    Ok(draft)
}

fn knobs(write_cache: bool, written: bool) -> Vec<Knob> {
    // One place in the queue or two is hardly told by reads, and without a cache by a factor of nearly three by a stream
    // of writes: with two the next command is there when the platter is.
    let queue_rows: &[&str] = match written && !write_cache {
        true => &["rand-read-4k-d32", "seq-write-1m-d8"],
        false => &["rand-read-4k-d32"],
    };
    let knob = |number, rows, range, whole| Knob { number, rows, range, whole };
    let mut knobs = vec![
        knob("read_command_us", &["seq-read-4k"], (1.0, 5_000.0), false),
        knob("seek_base_ms", &["rand-read-4k-over-0.1-percent"], (0.05, 20.0), false),
        knob("seek_stroke_ms", &["rand-read-4k-over-100-percent"], (0.1, 80.0), false),
        knob("queue_depth", queue_rows, (1.0, 32.0), true),
    ];
    if write_cache {
        knobs.push(knob("write_command_us", &["seq-write-4k"], (1.0, 5_000.0), false));
        knobs.push(knob("pool_runs", &["rand-write-4k"], (1.0, 4_096.0), true));
        knobs.push(knob("pool_kib", &["rand-write-1m"], (512.0, 524_288.0), true));
    } else {
        knobs.push(knob("write_settle_ms", &["rand-write-4k"], (0.01, 10.0), false));
    }
    knobs
}

/// Turns a minute. Within a small span the waits for the sector are spread evenly over a turn: their
/// deviation is a turn by the root of twelve, and 98 of 100 lie within 0.98 of it. The first is
/// enlarged by retries, the second by seeks: the smaller is nearer.
fn turns(small: &Measured) -> f64 {
    let latency = &small.latency_us;
    let turn_us = (latency.deviation * 12f64.sqrt()).min((latency.p99 - latency.p1) / 0.98);
    let found = (60e6 / turn_us.max(1.0)).clamp(1_000.0, 50_000.0);
    let nearest = TURNS
        .into_iter()
        .min_by(|one, other| (one / found - 1.0).abs().total_cmp(&(other / found - 1.0).abs()));
    nearest.filter(|turns| (turns / found - 1.0).abs() < TURNS_NEAR).unwrap_or(found)
}

/// The rates of the outermost and the innermost track (MiB/s): with the same density everywhere
/// the square of the rate falls evenly over the bytes; the straight line nearest to all places.
fn zones(measurements: &Measurements) -> Result<(f64, f64), String> {
    let mut points = Vec::new();
    for row in ZONE_ROWS {
        let one = wanted(measurements, row)?;
        let moved = one.requests as f64 * one.measure.block_bytes as f64;
        let at = one.measure.from_bytes as f64 + moved.min(one.measure.span_bytes as f64) / 2.0;
        let rate = one.mb_s * 1e6 / MIB;
        points.push((at / measurements.identity.size_bytes as f64, rate * rate));
    }
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let spread: f64 = points.iter().map(|p| (p.0 - x).powi(2)).sum();
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>() / spread;
    let outer = (y - slope * x).max(1.0).sqrt();
    let inner = (y + slope * (1.0 - x)).max(1.0).sqrt();
    Ok((outer, inner))
}
