//! The matrix of the Thomas-Krenn wiki, on twins: ten tests, reads and writes, one to 64 jobs.
//!
//! The source does not state the block sizes; 4 KiB for rates of I/O and 1 MiB for throughput explain
//! the disk's rows. Its MB is 2^20 bytes: a disk that wrote 10^6 would be 5 % faster than its data
//! sheet. Each job has one request under way, and all begin at the same place.
//!
//! A table is played on one drive without a break, as it was: test by test, first what reads, then what writes,
//! 60 s each with 30 s of rest between. What the drive had to do before, it remembers.

use twin::{Bench, Kind, Load, Pattern, Profile, Random};

use crate::reference::Row;

const SECOND_NS: u64 = 1_000_000_000;

/// Longest run of a test, and the pause behind it.
const RUN_NS: u64 = 60 * SECOND_NS;
const REST_NS: u64 = 30 * SECOND_NS;

/// So many requests are enough to know the rate where the drive stays as it is.
const ENOUGH: u64 = 60_000;

/// Where the matrix speaks of 5 GB.
const FIVE_GB: u64 = 5 * 1000 * 1000 * 1000;

const SMALL_BYTES: u64 = 4 << 10;
const LARGE_BYTES: u64 = 1 << 20;

/// Tables, and the twin in the condition of each.
pub const TABLES: &[(&str, &str)] = &[
    ("re3-wcoff", "wd5002abys,cache=off"),
    ("re3-wcon", "wd5002abys,cache=on"),
    ("x25m-wcoff-se", "ssdsa2m160g2gc,cache=off,fresh"),
    ("x25m-wcoff-used", "ssdsa2m160g2gc,cache=off,used"),
    ("x25m-wcon-used", "ssdsa2m160g2gc,cache=on,used"),
    ("r5hit", "raid5-4x-hus156060vl"),
    ("r5atp", "raid5-4x-atp-velocity-sii"),
    ("iod", "fusion-io-iodrive"),
    ("i320-cacheon", "ssdsa2cw160g310,cache=on"),
    ("i320-cacheoff", "ssdsa2cw160g310,cache=off"),
];

/// Plays one table on its twin: a figure for each of `rows`, in the unit of the row.
pub fn play(profile: &Profile, rows: &[&Row]) -> Vec<(String, f64)> {
    let mut bench = Bench::new(profile.model(Random::new(1)), Random::new(2));
    let (lines, refills): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.line().is_some());
    let mut order = lines;
    order.sort_by_key(|row| (row.line(), row.direction == "write", row.jobs));
    let mut figures = Vec::new();
    for row in order {
        let load = load(row, profile.size_bytes());
        // Cleaning remembers what was written; a disk and a controller do not for long.
        let lasting = load.kind == Kind::Write && profile.part().kind == "flash";
        let most = if lasting { u64::MAX } else { ENOUGH };
        let rate = bench.run(&load, RUN_NS, most);
        let figure = if row.metric == "iops" { rate.per_second() } else { rate.mib_per_second() };
        figures.push((row.id.clone(), figure));
        bench.rest(REST_NS);
    }
    figures.extend(refill(&mut bench, profile.size_bytes(), &refills));
    figures
}

/// The text below the ioDrive's table: large random writes of 64 jobs right after the drive was filled
/// without a break, and again after pauses. Neither the order of the fill nor the length of the pauses is told:
/// a fill at random and half a minute are taken.
fn refill(bench: &mut Bench, size_bytes: u64, rows: &[&Row]) -> Vec<(String, f64)> {
    if rows.is_empty() {
        return Vec::new();
    }
    let fill = Load {
        kind: Kind::Write,
        pattern: Pattern::Random,
        block_bytes: LARGE_BYTES,
        range: 0..size_bytes / LARGE_BYTES * LARGE_BYTES,
        clients: 1,
        flushes: 0,
    };
    bench.run(&fill, u64::MAX / 2, size_bytes / LARGE_BYTES);
    let random = Load { clients: 64, ..fill };
    let mut figures = Vec::new();
    for row in rows {
        figures.push((row.id.clone(), bench.run(&random, RUN_NS, u64::MAX).mib_per_second()));
        bench.rest(REST_NS);
    }
    figures
}

fn load(row: &Row, size_bytes: u64) -> Load {
    let block_bytes = if row.metric == "iops" { SMALL_BYTES } else { LARGE_BYTES };
    let whole = |bytes: u64| bytes / LARGE_BYTES * LARGE_BYTES;
    let range = match row.span.as_str() {
        "first10pct" => 0..whole(size_bytes / 10),
        "first5g" => 0..whole(FIVE_GB),
        "last5g" => whole(size_bytes - FIVE_GB)..whole(size_bytes),
        _ => 0..whole(size_bytes),
    };
    Load {
        kind: if row.direction == "write" { Kind::Write } else { Kind::Read },
        pattern: if row.pattern == "seq" { Pattern::Sequential } else { Pattern::Random },
        block_bytes,
        range,
        clients: row.jobs.unwrap_or(1),
        flushes: 0,
    }
}
