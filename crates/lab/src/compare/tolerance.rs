//! How far a twin may be off.
//!
//! * 5 %: random reads, flushless small writes and streams of a disk.
//! * 10 %: large random requests and cached writes of a disk, reads of RAID5, PCIe flash, SSDs.
//! * 25 %: writes of RAID5, a used X25-M, the passes over a Fusion drive.
//! * Where the source measured the same thing twice and differs from itself by more, by that.

use crate::reference::Row;

/// The tolerance of a row, as a share.
pub(super) fn of(row: &Row, all: &[Row]) -> f64 {
    plain(row).max(own_spread(row, all).unwrap_or(0.0))
}

fn plain(row: &Row) -> f64 {
    let writes = row.direction == "write";
    let line = row.line().unwrap_or(0);
    match row.config.as_deref() {
        Some("re3-wcoff") if line >= 8 => 0.10,
        Some("re3-wcon") if line >= 8 || (writes && matches!(line, 3 | 4)) => 0.10,
        Some("re3-wcoff" | "re3-wcon") => 0.05,
        Some("r5hit") if writes => 0.25,
        Some("x25m-wcoff-used" | "x25m-wcon-used") => 0.25,
        Some(_) => 0.10,
        None if row.publication == "anandtech-fusion" => 0.25,
        // Printed to half a millisecond: the rounding alone is 2 to 6 %.
        None if row.metric == "latency" => {
            0.05_f64.max(0.25 / row.published().map_or(1.0, |(v, _)| v))
        }
        None => 0.10,
    }
}

/// Lines 1 and 2, and 5 and 7, of a table are the same measurement: the run is too short for the
/// span to matter.
fn own_spread(row: &Row, all: &[Row]) -> Option<f64> {
    let twin = match row.line()? {
        1 => 2,
        2 => 1,
        5 => 7,
        7 => 5,
        _ => return None,
    };
    let other = all.iter().find(|other| {
        other.line() == Some(twin)
            && (&other.config, &other.direction, other.jobs)
                == (&row.config, &row.direction, row.jobs)
    })?;
    let (one, other) = (row.published()?.0, other.published()?.0);
    Some((one - other).abs() / ((one + other) / 2.0))
}
