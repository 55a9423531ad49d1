//! The machine's trace for those who read it: what lies where on the drives, what went wrong there, what a fall
//! decided, and where the engine was.

use engine::marks::Marks;
use engine::{Geometry, Tier};
use twin::Fault;

/// Whether a line says what became of a change that a fall decided about.
pub(crate) fn is_fate(line: &str) -> bool {
    line.contains(" of a change: ")
}

/// Whether a line says that something was made to go wrong.
pub(crate) fn is_fault(line: &str) -> bool {
    line.ends_with(" with an error")
        || Fault::ALL.iter().any(|it| line.ends_with(&format!(": {it}")))
}

/// The branches of the engine that were taken last.
pub(crate) fn last_marks(marks: &Marks) -> String {
    let recent: Vec<String> = marks.recent.iter().map(|mark| format!("{mark:?}")).collect();
    format!("the engine's last marks: {}", recent.join(", "))
}

/// A line of the machine's trace, with the time in milliseconds and what lies at its place on the drive.
pub(crate) fn place(geometry: &Geometry, line: &str) -> String {
    let (time, rest) = line.split_once(' ').unwrap_or(("", line));
    let line = match time.parse::<u64>() {
        Ok(now_ns) => format!("{:12.3} ms  {rest}", now_ns as f64 / 1e6),
        Err(_) => line.to_owned(),
    };
    // Of what has no content nobody wants to see its fingerprint.
    let line = line.trim_end_matches(" content 0000000000000000").to_owned();
    let words: Vec<&str> = line.split(' ').collect();
    let number = |after: &str| {
        let at = words.iter().position(|word| *word == after)?;
        words.get(at + 1)?.trim_end_matches(':').parse::<u64>().ok()
    };
    let (Some(drive), Some(at)) = (number("drive"), number("at")) else { return line };
    let tier = if drive == 0 { Tier::Fast } else { Tier::Slow };
    let told = line.replacen(&format!("drive {drive}"), &format!("{tier} drive"), 1);
    if number("length") == Some(0) {
        return told.replace(" at 0 length 0", "");
    }
    format!("{told} ({})", area(geometry, tier, at))
}

/// What lies at byte `at` of a drive.
fn area(geometry: &Geometry, tier: Tier, at: u64) -> String {
    let layout = &geometry.layouts[tier.index()];
    if at < layout.map_at {
        return format!("superblock copy {}", u64::from(at >= 512 << 10));
    }
    if at < layout.map_at + layout.map_bytes {
        let block = (at - layout.map_at) / 4096;
        return format!("map page {} copy {}", block / 2, block % 2);
    }
    if at < layout.log_at + layout.log_bytes {
        return format!("landing log block {}", (at - layout.log_at) / 4096);
    }
    let offset = at.saturating_sub(layout.slots_at);
    format!("slot {} + {}", offset / geometry.extent_bytes, offset % geometry.extent_bytes)
}
