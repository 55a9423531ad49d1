//! The result in the layout of `fio --output-format=json` (version 3), so that what reads fio's
//! output reads this too.
//!
//! What has no meaning here (processor time, page faults of fio, disk_util) is there and zero: tools
//! expect the fields. Submission takes no time in a simulation: `slat` is 0 and `lat` is `clat`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::job::{Direction, PerDirection};
use super::job_file::JobFile;
use super::play::{Played, PlayedJob};
use super::tally::{Latencies, Tally};
use super::track::{SLICE_NS, Track};

/// fio's default list.
const PERCENTILES: [f64; 17] = [
    1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95,
    99.99,
];
/// Upper bounds of fio's latency buckets, in ns or µs.
const FINE: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];
/// Those in ms; what is above the last has a bucket of its own.
const COARSE: [u64; 11] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000, 2000];

/// The whole document.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Which fio wrote it; this one says so.
    #[serde(rename = "fio version")]
    pub fio_version: String,
    /// Seconds since 1970 when it was written; 0 in virtual time.
    pub timestamp: u64,
    /// The same in ms.
    pub timestamp_ms: u64,
    /// The same in words.
    pub time: String,
    /// Options of `[global]`.
    #[serde(rename = "global options", default)]
    pub global_options: BTreeMap<String, String>,
    /// Each copy of each job, or each job where it reports its copies as one.
    pub jobs: Vec<JobReport>,
    /// Nothing here.
    #[serde(default)]
    pub disk_util: Vec<serde_json::Value>,
}

/// One job.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct JobReport {
    /// Its section's name.
    pub jobname: String,
    /// Which group of jobs it ran in.
    pub groupid: u32,
    /// An errno, 0 when nothing failed.
    pub error: i32,
    /// Always 0.
    #[serde(default)]
    pub eta: u64,
    /// Seconds it took.
    #[serde(default)]
    pub elapsed: u64,
    /// Its own options as they were written.
    #[serde(rename = "job options", default)]
    pub job_options: BTreeMap<String, String>,
    /// Reads.
    pub read: DirectionReport,
    /// Writes.
    pub write: DirectionReport,
    /// Trims.
    pub trim: DirectionReport,
    /// Flushes.
    #[serde(default)]
    pub sync: SyncReport,
    /// Milliseconds it ran, over all copies.
    #[serde(default)]
    pub job_runtime: u64,
    /// Share of requests (%) below each number of ns.
    #[serde(default)]
    pub latency_ns: BTreeMap<String, f64>,
    /// Share of requests (%) below each number of µs.
    #[serde(default)]
    pub latency_us: BTreeMap<String, f64>,
    /// Share of requests (%) below each number of ms.
    #[serde(default)]
    pub latency_ms: BTreeMap<String, f64>,
    /// What fio measures of itself, and what is for its tools only.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

/// One direction of a job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct DirectionReport {
    /// Bytes moved.
    pub io_bytes: u64,
    /// The same in KiB.
    pub io_kbytes: u64,
    /// Bytes per second.
    pub bw_bytes: u64,
    /// KiB per second.
    pub bw: u64,
    /// Requests per second.
    pub iops: f64,
    /// Milliseconds.
    pub runtime: u64,
    /// Requests.
    pub total_ios: u64,
    /// Always 0.
    pub short_ios: u64,
    /// Always 0.
    pub drop_ios: u64,
    /// Until it was submitted.
    pub slat_ns: LatencyReport,
    /// From then until it was done.
    pub clat_ns: LatencyReport,
    /// Both.
    pub lat_ns: LatencyReport,
    /// Smallest bandwidth of half a second, KiB/s.
    pub bw_min: u64,
    /// Largest.
    pub bw_max: u64,
    /// Share of its group's bandwidth (%).
    pub bw_agg: f64,
    /// Mean.
    pub bw_mean: f64,
    /// Standard deviation.
    pub bw_dev: f64,
    /// How many half seconds.
    pub bw_samples: u64,
    /// Smallest rate of half a second.
    pub iops_min: u64,
    /// Largest.
    pub iops_max: u64,
    /// Mean.
    pub iops_mean: f64,
    /// Standard deviation.
    pub iops_stddev: f64,
    /// How many half seconds.
    pub iops_samples: u64,
}

/// A distribution of latencies, in ns.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LatencyReport {
    /// The smallest.
    pub min: u64,
    /// The largest.
    pub max: u64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation.
    pub stddev: f64,
    /// How many.
    #[serde(rename = "N")]
    pub count: u64,
    /// By hundredths, as fio writes them: `99.900000`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentile: Option<Percentiles>,
}

/// Percentiles in ascending order of their numbers, which is not that of their text.
#[derive(Debug, Clone, Default)]
pub struct Percentiles(pub Vec<(f64, u64)>);

impl Serialize for Percentiles {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(at, ns)| (format!("{at:.6}"), ns)))
    }
}

impl<'de> Deserialize<'de> for Percentiles {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Percentiles, D::Error> {
        let map = BTreeMap::<String, u64>::deserialize(deserializer)?;
        let mut list: Vec<(f64, u64)> = Vec::with_capacity(map.len());
        for (at, ns) in map {
            list.push((at.parse().map_err(serde::de::Error::custom)?, ns));
        }
        list.sort_by(|one, other| one.0.total_cmp(&other.0));
        Ok(Percentiles(list))
    }
}

/// Flushes.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct SyncReport {
    /// How many.
    pub total_ios: u64,
    /// How long they took.
    #[serde(default)]
    pub lat_ns: LatencyReport,
}

impl Report {
    /// That of a run without a job.
    pub fn empty() -> Report {
        Report {
            fio_version: concat!("bimetal-", env!("CARGO_PKG_VERSION"), " (fio-3 layout)").into(),
            timestamp: 0,
            timestamp_ms: 0,
            time: "virtual".into(),
            global_options: BTreeMap::new(),
            jobs: Vec::new(),
            disk_util: Vec::new(),
        }
    }

    /// The report of a run.
    pub fn of(file: &JobFile, played: &Played) -> Report {
        let mut jobs: Vec<JobReport> = Vec::new();
        let mut rest = &played.jobs[..];
        while let Some(first) = rest.first() {
            let same = rest.iter().take_while(|other| std::rc::Rc::ptr_eq(&first.job, &other.job));
            let count = if first.job.group_reporting { same.count() } else { 1 };
            let (together, after) = rest.split_at(count);
            jobs.push(job_report(together));
            rest = after;
        }
        let global_options = file.global.iter().cloned().collect();
        Report { global_options, jobs, ..Report::empty() }
    }
}

impl JobReport {
    /// That of a direction.
    pub fn direction(&self, direction: Direction) -> &DirectionReport {
        match direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
            Direction::Trim => &self.trim,
        }
    }
}

fn job_report(copies: &[PlayedJob]) -> JobReport {
    let first = &copies[0];
    let mut tallies: PerDirection<Tally> = PerDirection::default();
    let (mut flushes, mut track) = (Latencies::default(), Track::default());
    for copy in copies {
        for direction in Direction::ALL {
            tallies.get_mut(direction).add(copy.tallies.get(direction));
        }
        flushes.add(&copy.flushes);
        track.add(&copy.track);
    }
    let runtime_ns = copies.iter().map(|copy| copy.runtime_ns).max().unwrap_or(0);
    let report =
        |direction| direction_report(direction, tallies.get(direction), &track, runtime_ns);
    let mut all = Latencies::default();
    Direction::ALL.iter().for_each(|direction| all.add(&tallies.get(*direction).latencies));
    let error = copies.iter().find_map(|copy| copy.error.as_ref());
    let cut_short = copies.iter().any(|copy| copy.cut_short);
    JobReport {
        jobname: first.job.name.clone(),
        groupid: first.group,
        // fio wants an errno; what has none is EIO.
        error: error.map_or(0, |error| if error.errno == 0 { 5 } else { error.errno }),
        eta: 0,
        elapsed: runtime_ns.div_ceil(1_000_000_000),
        job_options: first.job.options.iter().cloned().collect(),
        read: report(Direction::Read),
        write: report(Direction::Write),
        trim: report(Direction::Trim),
        sync: SyncReport { total_ios: flushes.count(), lat_ns: latency_report(&flushes, true) },
        job_runtime: copies.iter().map(|copy| copy.runtime_ns / 1_000_000).sum(),
        latency_ns: buckets(&all, &FINE, 1, 0),
        latency_us: buckets(&all, &FINE, 1_000, 1_000),
        latency_ms: buckets(&all, &COARSE, 1_000_000, 1_000_000),
        other: other(first.depth, error.map(ToString::to_string), cut_short),
    }
}

fn direction_report(
    direction: Direction,
    tally: &Tally,
    track: &Track,
    runtime_ns: u64,
) -> DirectionReport {
    let latencies = &tally.latencies;
    // A direction that never was has no runtime, as in fio.
    let runtime_ns = if tally.requests == 0 { 0 } else { runtime_ns };
    let seconds = runtime_ns.max(1) as f64 / 1e9;
    let bw_bytes = (tally.bytes as f64 / seconds) as u64;
    let slices: Vec<_> = track.whole(direction, runtime_ns).collect();
    let per_second = 1_000_000_000 / SLICE_NS;
    let bandwidths = Samples::of(slices.iter().map(|slice| slice.bytes * per_second / 1024));
    let rates = Samples::of(slices.iter().map(|slice| slice.requests * per_second));
    DirectionReport {
        io_bytes: tally.bytes,
        io_kbytes: tally.bytes / 1024,
        bw_bytes,
        bw: bw_bytes / 1024,
        iops: tally.requests as f64 / seconds,
        runtime: runtime_ns / 1_000_000,
        total_ios: tally.requests,
        short_ios: 0,
        drop_ios: 0,
        slat_ns: LatencyReport::default(),
        clat_ns: latency_report(latencies, true),
        lat_ns: latency_report(latencies, false),
        bw_min: bandwidths.min,
        bw_max: bandwidths.max,
        bw_agg: if tally.requests == 0 { 0.0 } else { 100.0 },
        bw_mean: bandwidths.mean,
        bw_dev: bandwidths.deviation,
        bw_samples: bandwidths.count,
        iops_min: rates.min,
        iops_max: rates.max,
        iops_mean: rates.mean,
        iops_stddev: rates.deviation,
        iops_samples: rates.count,
    }
}

fn latency_report(latencies: &Latencies, with_percentiles: bool) -> LatencyReport {
    let list = || PERCENTILES.iter().map(|at| (*at, latencies.percentile(*at))).collect();
    LatencyReport {
        min: latencies.min(),
        max: latencies.max(),
        mean: latencies.mean(),
        stddev: latencies.deviation(),
        count: latencies.count(),
        percentile: (with_percentiles && latencies.count() > 0).then(|| Percentiles(list())),
    }
}

/// Shares of the requests between neighbouring bounds, from `from_ns` on; above the last bound of
/// [`COARSE`] is a bucket named `>=2000`.
fn buckets(
    latencies: &Latencies,
    bounds: &[u64],
    unit_ns: u64,
    from_ns: u64,
) -> BTreeMap<String, f64> {
    let total = latencies.count().max(1) as f64;
    let share = |count: u64| count as f64 * 100.0 / total;
    let mut shares = BTreeMap::new();
    let mut low = from_ns;
    for bound in bounds {
        let high = bound * unit_ns;
        shares.insert(bound.to_string(), share(latencies.between(low, high)));
        low = high;
    }
    if bounds.len() == COARSE.len() {
        shares.insert(">=2000".to_owned(), share(latencies.between(low, u64::MAX)));
    }
    shares
}

struct Samples {
    min: u64,
    max: u64,
    mean: f64,
    deviation: f64,
    count: u64,
}

impl Samples {
    fn of(values: impl Iterator<Item = u64>) -> Samples {
        let values: Vec<u64> = values.collect();
        let count = values.len();
        let mean = values.iter().sum::<u64>() as f64 / count.max(1) as f64;
        let spread: f64 = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum();
        Samples {
            min: values.iter().copied().min().unwrap_or(0),
            max: values.iter().copied().max().unwrap_or(0),
            mean,
            deviation: (spread / count.saturating_sub(1).max(1) as f64).sqrt(),
            count: count as u64,
        }
    }
}

fn other(
    depth: u64,
    error: Option<String>,
    cut_short: bool,
) -> BTreeMap<String, serde_json::Value> {
    use serde_json::{Value, json};
    let level = |name: &str| depth_bucket(depth) == name;
    let names = ["1", "2", "4", "8", "16", "32", ">=64"];
    let levels: serde_json::Map<String, Value> = names
        .iter()
        .map(|name| ((*name).to_owned(), json!(if level(name) { 100.0 } else { 0.0 })))
        .collect();
    let submitted = || {
        let names = ["0", "4", "8", "16", "32", "64", ">=64"];
        let pairs = names
            .iter()
            .map(|name| ((*name).to_owned(), json!(if *name == "4" { 100.0 } else { 0.0 })));
        Value::Object(pairs.collect())
    };
    let mut other = BTreeMap::from([
        ("usr_cpu".to_owned(), json!(0.0)),
        ("sys_cpu".to_owned(), json!(0.0)),
        ("ctx".to_owned(), json!(0)),
        ("majf".to_owned(), json!(0)),
        ("minf".to_owned(), json!(0)),
        ("iodepth_level".to_owned(), Value::Object(levels)),
        ("iodepth_submit".to_owned(), submitted()),
        ("iodepth_complete".to_owned(), submitted()),
        ("latency_depth".to_owned(), json!(depth)),
        ("latency_target".to_owned(), json!(0)),
        ("latency_percentile".to_owned(), json!(100.0)),
        ("latency_window".to_owned(), json!(0)),
    ]);
    if let Some(error) = error {
        other.insert("bimetal error".to_owned(), json!(error));
    }
    if cut_short {
        other.insert("bimetal cut short".to_owned(), json!(true));
    }
    other
}

fn depth_bucket(depth: u64) -> &'static str {
    match depth {
        0..=1 => "1",
        2..=3 => "2",
        4..=7 => "4",
        8..=15 => "8",
        16..=31 => "16",
        32..=63 => "32",
        _ => ">=64",
    }
}
