//! The other publications, as far as a drive alone can answer them.
//!
//! Figures that need a fused volume, a page cache or a file system are told as not run here.

use twin::{Bench, Kind, Load, Pattern, Profile, Random};

use super::Role;
use crate::reference::Row;

const SECOND_NS: u64 = 1_000_000_000;

/// Enough requests to know a rate.
const ENOUGH: u64 = 60_000;

/// Devices as the reference names them, and their twins.
pub const DEVICES: &[(&str, &str)] = &[
    ("st91000640ns", "st91000640ns"),
    ("al13seb900", "al13seb900"),
    ("mz7lm1t9", "mz7lm1t9"),
    ("apple-ans-m1", "apple-ans-m1"),
    ("wd-sn550-1tb", "wd-sn550-1tb"),
    ("samsung-860-evo-500", "samsung-860-evo-500"),
    ("usb3-flash-drive", "usb3-flash-drive"),
    ("fusion-ssd", "imac-fusion-ssd,fresh"),
    ("fusion-disk", "imac-fusion-disk"),
];

/// The drive that a row is about, if it alone can answer it.
pub fn device(row: &Row) -> Option<&str> {
    match row.id.as_str() {
        "at-fill-ssd-rate" => return Some("fusion-ssd"),
        "at-fill-hdd-rate" => return Some("fusion-disk"),
        "mf-ratio-sata" => return None,
        _ => {}
    }
    load(row, 1 << 40)?;
    row.device.as_deref()
}

/// A figure for each row.
pub fn play(profile: &Profile, rows: &[&Row]) -> Vec<(String, f64)> {
    let figure = |row: &&Row| {
        let load = load(row, profile.size_bytes())?;
        let measure = |load: &Load| {
            let mut bench = Bench::new(profile.model(Random::new(1)), Random::new(2));
            bench.run(load, 60 * SECOND_NS, ENOUGH)
        };
        let rate = measure(&load);
        let figure = match row.metric.as_str() {
            "latency" => rate.mean_ns() / 1e6,
            "throughput" => rate.per_second() * load.block_bytes as f64 / 1e6,
            "ratio" => {
                // The file system of this row sends one flush where the other sends two.
                let other = measure(&Load { flushes: 2 * load.flushes, ..load });
                rate.per_second() / other.per_second()
            }
            _ => rate.per_second(),
        };
        Some((row.id.clone(), figure))
    };
    rows.iter().filter_map(figure).collect()
}

/// What a row asks of a drive; none when a drive alone cannot answer it.
fn load(row: &Row, size_bytes: u64) -> Option<Load> {
    let load = |kind, pattern, block_bytes: u64, range_bytes: u64, clients| Load {
        kind,
        pattern,
        block_bytes,
        range: 0..range_bytes.min(size_bytes) / block_bytes * block_bytes,
        clients,
        flushes: 0,
    };
    let found = match row.id.as_str() {
        "at-fill-ssd-rate" | "at-fill-hdd-rate" => {
            load(Kind::Write, Pattern::Sequential, 128 << 10, size_bytes, 1)
        }
        "nr-sata-uniform-bound" => load(Kind::Read, Pattern::Random, 8 << 10, size_bytes, 1),
        "nr-ssd-seqrd" => load(Kind::Read, Pattern::Shared, 1 << 20, size_bytes, 8),
        "nr-ssd-seqwr" => load(Kind::Write, Pattern::Shared, 1 << 20, size_bytes, 8),
        "nr-ssd-rndrd" => load(Kind::Read, Pattern::Random, 4 << 10, size_bytes, 32),
        "nr-ssd-rndwr" => load(Kind::Write, Pattern::Random, 4 << 10, size_bytes, 32),
        _ if row.publication == "n0derunner" && row.metric == "latency" && row.pattern == "rnd" => {
            let gigabytes: u64 = row.span.strip_suffix(" GB")?.parse().ok()?;
            load(Kind::Read, Pattern::Random, 8 << 10, gigabytes * 1_000_000_000, 1)
        }
        "mf-860evo-vfat-factor" => {
            Load { flushes: 1, ..load(Kind::Write, Pattern::Random, 4 << 10, 1 << 20, 1) }
        }
        "mf-asahi-fsync" | "mf-tps" => {
            Load { flushes: 1, ..load(Kind::Write, Pattern::Random, 4 << 10, 1 << 20, 1) }
        }
        _ if row.publication == "marcan-flush" && row.metric == "iops" => {
            // ext4 sends two flushes for an fsync: for the data and behind the journal's commit.
            let linux = matches!(row.id.as_str(), "mf-sn550-flush" | "mf-860evo-flush");
            let flushes = if row.flush? { 1 + u32::from(linux) } else { 0 };
            Load { flushes, ..load(Kind::Write, Pattern::Random, 4 << 10, 1 << 20, 1) }
        }
        _ => return None,
    };
    Some(found)
}

/// Why a row has no figure of ours.
pub fn why_not(row: &Row) -> (Role, Option<String>) {
    let experiment = |what: &str| (Role::NotRun, Some(what.to_owned()));
    let none = |what: &str| (Role::NoMeasurement, Some(what.to_owned()));
    match row.publication.as_str() {
        _ if row.kind.as_deref() == Some("specification") => none("the maker's figure"),
        _ if matches!(row.metric.as_str(), "price" | "size" | "count" | "time" | "queue depth") => {
            none("a condition, not a result")
        }
        _ if row.published().is_none() => none("a behaviour, told in words"),
        "anandtech-fusion" => experiment("told of the volume, not measured"),
        "marcan-flush" => experiment("seen inside the drive or over a whole machine"),
        _ => experiment("follows from other rows"),
    }
}
