//! A fast drive in front of a slow one, row by row of a comparison of the kernel's caches: dm-cache (also as
//! lvmcache sets it up), dm-writecache and bcache, on a pair of emulated drives.
//!
//! The steps are one life: each finds what those before have left, as in the source, whose lengths of
//! steps and places are not told; ours are in the job files.

use super::measures::{read_iops, write_iops, write_mb};
use super::{
    Bound, Chart, Experiment, Figure, FigureRecord, Measure, Published, RunRecord, Series, Stage,
    Step,
};
use crate::bench::{Moment, Outcome};
use crate::fio::Direction::Read;

/// The source's fast drive.
const FAST_MIB: u64 = 1024;
/// What is used of the source's slow drive of 4 GiB: what a volume of class cache leaves of it.
const IMAGE_MIB: u64 = 4032;
/// Where hot and cold writes go, and how many MiB.
const HOT_AT_MIB: u64 = 256;
const COLD_AT_MIB: u64 = 3072;
const REGION_MIB: u64 = 128;
/// Where the working sets begin: behind what the fast drive got when everything was written first.
const SETS_AT_MIB: u64 = 960;
/// Where files are rewritten.
const FILES_AT_MIB: u64 = 3600;
/// So much is written at random while the landing log has room: half of one of 32 MiB.
const LANDING_MIB: u64 = 16;
/// A pass over a region, and all other rows (s).
const PASS_S: u64 = 10;
const ROW_S: u64 = 30;
/// Nobody asks for anything (s), for what waits for that.
const REST_S: u64 = 120;
/// A working set is used for so long before it counts (s).
const WARM_UP_S: u64 = 60;
/// Where Zipf's hottest place is, of everything: the same in each step, so that one finds what those before it have
/// made hot. Without a center a seed would decide, and all steps would have to draw the same places in the same order.
const ZIPF_CENTER: f64 = 0.5;
/// Of one step: what is fast has told its rate long before.
const REQUESTS_MAX: u64 = 400_000;

/// What was published, by the row: the disk alone, the SSD alone, dm-cache, lvmcache, dm-writecache, bcache
/// with its cut-off for streams, and without. 0: nothing was.
const PUBLISHED: [(&str, [f64; 7]); 21] = [
    (FILL, [110.0, 325.0, 325.0, 110.0, 282.0, 109.0, 103.0]),
    (FILL_ON, [83.0, 321.0, 83.0, 83.0, 86.0, 83.0, 81.0]),
    (SCATTERED, [179.0, 24_456.0, 177.0, 114.0, 9547.0, 5933.0, 165.0]),
    ("hot writes, pass 1", [424.0, 24_571.0, 14_630.0, 234.0, 1012.0, 158.0, 394.0]),
    ("hot writes, pass 2", [424.0, 24_571.0, 24_319.0, 402.0, 1728.0, 178.0, 10_660.0]),
    ("hot writes, pass 3", [424.0, 24_571.0, 24_579.0, 423.0, 2744.0, 177.0, 15_735.0]),
    ("cold writes, pass 1", [383.0, 24_571.0, 340.0, 214.0, 741.0, 145.0, 9627.0]),
    ("cold writes, pass 2", [383.0, 24_571.0, 15_891.0, 326.0, 1342.0, 149.0, 1034.0]),
    ("cold writes, pass 3", [383.0, 24_571.0, 19_149.0, 380.0, 1947.0, 158.0, 5274.0]),
    ("Zipf 1.2 reads, depth 1", [113.0, 8187.0, 305.0, 252.0, 95.0, 97.0, 491.0]),
    ("Zipf 1.2 reads, depth 16", [234.0, 44_906.0, 608.0, 652.0, 271.0, 874.0, 1060.0]),
    ("Zipf 0.8 reads, depth 1", [84.0, 0.0, 107.0, 81.0, 63.0, 27.0, 122.0]),
    ("Zipf 0.8 reads, depth 16", [156.0, 0.0, 195.0, 172.0, 169.0, 219.0, 214.0]),
    ("Zipf 1.2, 70 % reads, depth 1", [101.0, 0.0, 389.0, 341.0, 268.0, 945.0, 816.0]),
    ("Zipf 1.2, 70 % reads, depth 16", [223.0, 0.0, 526.0, 421.0, 902.0, 1030.0, 1859.0]),
    ("working set of a quarter", [209.0, 29_377.0, 26_056.0, 25_633.0, 237.0, 351.0, 316.0]),
    ("working set of three quarters", [180.0, 29_377.0, 852.0, 846.0, 202.0, 243.0, 222.0]),
    ("working set of one and a half", [159.0, 29_377.0, 315.0, 316.0, 180.0, 194.0, 184.0]),
    ("working set of three", [136.0, 29_377.0, 167.0, 194.0, 154.0, 164.0, 151.0]),
    (FLUSHED, [131.0, 326.0, 106.0, 99.0, 136.0, 161.0, 160.0]),
    (FILE_SYSTEM, [28.0, 160.0, 87.0, 27.0, 103.0, 93.0, 150.0]),
];
/// Whose they are, in that order.
const PUBLISHED_OF: [&str; 7] =
    ["disk", "SSD", "dm-cache", "lvmcache", "dm-writecache", "bcache", "bcache, no cut-off"];

/// The column of what is measured.
const RATE: &str = "here";
const SLOW: usize = 1;

const FILL: &str = "filled in order, first GiB (MB/s)";
const FILL_ON: &str = "filled in order, the rest (MB/s)";
const SCATTERED: &str = "scattered writes, the first 16 MiB";
const SCATTERED_ON: &str = "scattered writes, going on";
const IN_DEBT: &str = "Zipf 1.2 reads behind them, depth 1";
const FLUSHED: &str = "write and flush";
const FILE_SYSTEM: &str = "small rewrite of a file, two flushes";
const FILM: &str = "hot reads beside a film, 400 asked";
const FILM_MS: &str = "their mean (ms)";

/// See the head of the file.
pub struct Caches;

impl Experiment for Caches {
    fn name(&self) -> &str {
        "caches"
    }

    fn question(&self) -> &str {
        "What do a fast and a slow drive together do, beside either alone and beside the kernel's caches?"
    }

    fn source(&self) -> &str {
        "a comparison of dm-cache, lvmcache, dm-writecache and bcache on emulated drives in a virtual machine"
    }

    fn stage(&self) -> Stage {
        Stage::Drive
    }

    fn steps(&self, _: &str, size_bytes: u64) -> Vec<Step> {
        if size_bytes >> 20 < IMAGE_MIB {
            return Vec::new();
        }
        let parts =
            [filling(), scattered(), regions(), skewed(), working_sets(), flushed(), film()];
        let mut steps = parts.concat();
        steps[0].renew = true;
        steps
    }

    fn charts(&self, record: &RunRecord) -> Vec<Chart> {
        let mut chart = Chart::new(
            "caches",
            "Requests per second (streams: MB/s; the film: ms)",
            "",
            "per second",
        );
        chart.y_log = true;
        let measured = record.figures().filter(|figure| figure.column == RATE);
        let bars = measured.filter_map(|figure| Some((figure.row.clone(), figure.measured?)));
        chart.series.push(Series::bars(record.on.clone(), false, bars.collect()));
        for (index, name) in PUBLISHED_OF.iter().enumerate() {
            let rows = record.figures().filter(|figure| figure.column == RATE);
            let bars = rows.filter_map(|figure| {
                let (_, values) = PUBLISHED.iter().find(|(row, _)| *row == figure.row)?;
                Some((figure.row.clone(), values[index])).filter(|(_, value)| *value > 0.0)
            });
            chart.series.push(Series::bars(format!("{name}, published"), true, bars.collect()));
        }
        vec![chart]
    }

    /// What was published stands beside, in brackets.
    fn derived(&self, record: &RunRecord) -> Vec<FigureRecord> {
        let mut beside = Vec::new();
        for figure in record.figures().filter(|figure| figure.column == RATE) {
            let known = PUBLISHED.iter().find(|(row, _)| *row == figure.row);
            let Some((row, [disk, _, caches @ ..])) = known else { continue };
            let best = caches.iter().copied().fold(0.0, f64::max);
            for (column, value) in [("the disk alone", *disk), ("the best cache", best)] {
                beside.push(published(row, column, value));
            }
        }
        beside
    }

    fn notes(&self, _: &str) -> Vec<String> {
        vec![
            "Requests per second, where nothing else is said. In brackets what was published: of the disk alone, and of \
             the best of dm-cache, lvmcache, dm-writecache and bcache in that row. The source does not tell how long its \
             steps took, nor where on the drives they went."
                .to_owned(),
        ]
    }
}

fn published(row: &str, column: &str, value: f64) -> FigureRecord {
    FigureRecord {
        id: None,
        row: row.to_owned(),
        column: column.to_owned(),
        measured: None,
        published: Some(Published { min: value, max: value }),
        unit: String::new(),
        error_percent: None,
    }
}

/// A step that gives one row, unless that is empty.
fn step(name: &str, rest_s: u64, job: &str, row: &str, rate: Measure) -> Step {
    let figure = |column: &str, measure: Measure| Figure {
        id: None,
        row: row.to_owned(),
        column: column.to_owned(),
        unit: "",
        measure,
    };
    let figures = match row {
        "" => Vec::new(),
        _ => vec![figure(RATE, rate), figure("requests of the slow drive", slow_requests)],
    };
    Step {
        name: name.to_owned(),
        renew: false,
        rest_s,
        restart: false,
        cut: None,
        memory: None,
        job: format!("[global]\nioengine=libaio\ndirect=1\n\n[{name}]\n{job}"),
        figures,
        bound: Bound { seconds: None, requests: Some(REQUESTS_MAX) },
    }
}

fn for_seconds(seconds: u64, job: &str) -> String {
    format!("{job}norandommap\nruntime={seconds}\ntime_based\n")
}

/// An empty volume is written from the front to the back.
fn filling() -> Vec<Step> {
    let job = "rw=write\nbs=128k\niodepth=4\n";
    let rest_mib = IMAGE_MIB - FAST_MIB;
    vec![
        step("fill", 0, &format!("{job}size={FAST_MIB}m\n"), FILL, write_mb),
        step(
            "fill-on",
            0,
            &format!("{job}offset={FAST_MIB}m\nsize={rest_mib}m\n"),
            FILL_ON,
            write_mb,
        ),
    ]
}

/// Random writes over everything, as long as they land and longer; then somebody reads.
fn scattered() -> Vec<Step> {
    let job = format!("rw=randwrite\nbs=4k\niodepth=16\nsize={IMAGE_MIB}m\n");
    let landing = format!("{job}norandommap\nrandrepeat=0\nrandseed=1\nio_size={LANDING_MIB}m\n");
    let on = for_seconds(ROW_S, &format!("{job}randrepeat=0\nrandseed=2\n"));
    vec![
        step("scattered", REST_S, &landing, SCATTERED, write_iops),
        step("scattered-on", 0, &on, SCATTERED_ON, write_iops),
        step("in-debt", 0, &zipf("rw=randread\n", 1.2, 1, 7), IN_DEBT, read_iops),
    ]
}

/// Random writes within a region that was written first, and so is above, and within one that is below.
fn regions() -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, at_mib) in [("hot", HOT_AT_MIB), ("cold", COLD_AT_MIB)] {
        for pass in 1..=3 {
            let job = for_seconds(
                PASS_S,
                &format!(
                    "rw=randwrite\nbs=4k\niodepth=16\noffset={at_mib}m\nsize={REGION_MIB}m\nrandrepeat=0\nrandseed={pass}\n"
                ),
            );
            let rest_s = if pass == 1 { REST_S } else { 0 };
            let row = format!("{name} writes, pass {pass}");
            steps.push(step(&format!("{name}-{pass}"), rest_s, &job, &row, write_iops));
        }
    }
    steps
}

/// Requests over everything, of which few places get most; the same places in each step, in the order that the seed
/// makes. A step of the same seed would ask once more for what the one before it has just brought in.
fn zipf(access: &str, theta: f64, depth: u64, seed: u64) -> String {
    for_seconds(
        ROW_S,
        &format!(
            "{access}bs=4k\niodepth={depth}\nsize={IMAGE_MIB}m\nrandom_distribution=zipf:{theta}:{ZIPF_CENTER}\nrandrepeat=0\nrandseed={seed}\n"
        ),
    )
}

fn skewed() -> Vec<Step> {
    let mixed = "rw=randrw\nrwmixread=70\n";
    let mut steps = Vec::new();
    for (name, what, access, theta, seed) in [
        ("zipf-12", "Zipf 1.2 reads", "rw=randread\n", 1.2, 8),
        ("zipf-08", "Zipf 0.8 reads", "rw=randread\n", 0.8, 10),
        ("zipf-12-mixed", "Zipf 1.2, 70 % reads", mixed, 1.2, 12),
    ] {
        for (depth, seed) in [(1, seed), (16, seed + 1)] {
            let rest_s = if depth == 1 { REST_S } else { 0 };
            steps.push(step(
                &format!("{name}-{depth}"),
                rest_s,
                &zipf(access, theta, depth, seed),
                &format!("{what}, depth {depth}"),
                both_iops,
            ));
        }
    }
    steps
}

/// Random reads within parts of what the disk has, after a while of the same.
fn working_sets() -> Vec<Step> {
    let mut steps = Vec::new();
    for (name, row, size_mib) in [
        ("set-1", "working set of a quarter", FAST_MIB / 4),
        ("set-3", "working set of three quarters", FAST_MIB * 3 / 4),
        ("set-6", "working set of one and a half", FAST_MIB * 3 / 2),
        ("set-12", "working set of three", FAST_MIB * 3),
    ] {
        let job =
            format!("rw=randread\nbs=4k\niodepth=4\noffset={SETS_AT_MIB}m\nsize={size_mib}m\n");
        let warm_up = for_seconds(WARM_UP_S, &format!("{job}randrepeat=0\nrandseed=1\n"));
        steps.push(step(&format!("{name}-warm-up"), REST_S, &warm_up, "", read_iops));
        let counted = for_seconds(ROW_S, &format!("{job}randrepeat=0\nrandseed=2\n"));
        steps.push(step(name, 0, &counted, row, read_iops));
    }
    steps
}

/// Durable writes, one at a time: bare ones, and as a journalling file system makes them when a small file is
/// written anew: the block and the journal's, a flush, the commit, a flush. Both go to a place that few requests
/// have been to.
fn flushed() -> Vec<Step> {
    let job = "rw=randwrite\nbs=4k\nsize=64m\nrandrepeat=0\nrandseed=3\n";
    let place = format!("offset={FILES_AT_MIB}m\n");
    let bare = for_seconds(ROW_S, &format!("{job}{place}fsync=1\n"));
    let file = for_seconds(ROW_S, &format!("{job}{place}fsync=2\n"));
    vec![
        step("flush", REST_S, &bare, FLUSHED, write_iops),
        step("flush-twice", 0, &file, FILE_SYSTEM, rewrites),
    ]
}

/// Somebody plays a film from the disk, others read something small that has become hot.
fn film() -> Vec<Step> {
    let hot = format!("rw=randread\nbs=4k\nsize=64m\noffset={COLD_AT_MIB}m\n");
    let alone = for_seconds(WARM_UP_S, &hot);
    let beside = for_seconds(ROW_S, &format!("{hot}iodepth=4\nrate_iops=400\n"))
        + &for_seconds(ROW_S, "\n[the-film]\nrw=read\nbs=256k\noffset=2g\nsize=1g\nrate=20m\n");
    let mut last = step("film", 10, &beside, FILM, hot_iops);
    last.figures.extend(step("", 0, "", FILM_MS, hot_ms).figures.into_iter().take(1));
    vec![step("film-warm-up", REST_S, &alone, "", read_iops), last]
}

fn both_iops(outcome: &Outcome, rested: &[Moment]) -> Option<f64> {
    let (reads, writes) = (read_iops(outcome, rested), write_iops(outcome, rested));
    reads.map(|reads| reads + writes.unwrap_or(0.0))
}

/// A rewrite is four writes, two behind each flush.
fn rewrites(outcome: &Outcome, rested: &[Moment]) -> Option<f64> {
    write_iops(outcome, rested).map(|writes| writes / 4.0)
}

fn hot_iops(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    Some(outcome.report.jobs.first()?.direction(Read).iops)
}

fn hot_ms(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    outcome.mean_ms(Read)
}

/// A second, where there is a slow drive.
fn slow_requests(outcome: &Outcome, _: &[Moment]) -> Option<f64> {
    let known = outcome.moments.iter().any(|moment| moment.drives.len() > SLOW);
    let total = outcome.total(SLOW);
    known.then(|| (total.reads + total.writes) as f64 / outcome.seconds)
}
