//! The twin of a flash drive: what a command costs, how many pages are read and programmed at a time,
//! and what a flush takes.

use twin::Condition;

use super::draft::Draft;
use super::knob::{Knob, turn};
use super::{add_way, head};
use crate::probe::Measurements;

/// The draft of a flash drive, all of its numbers found.
pub(super) fn draft(
    measurements: &Measurements,
    name: &str,
    condition: Condition,
) -> Result<Draft, String> {
    let identity = &measurements.identity;
    let mut draft = Draft::new(head(identity, name, false, condition));
    add_way(&mut draft, measurements, &["link_read_mb_s", "link_write_mb_s"], 550.0);
    let cached = identity.write_cache.unwrap_or(true);
    for (number, value, source) in [
        ("page_kib", 4.0, "unit of the map, of the kind"),
        ("read_way_us", 20.0, "of the kind"),
        ("write_way_us", 20.0, "of the kind"),
        ("read_command_us", 5.0, "of the kind"),
        ("write_command_us", 5.0, "of the kind"),
        ("read_lanes", 32.0, "of the kind"),
        ("read_page_us", 60.0, "of the kind"),
        ("read_next_us", 10.0, "of the kind"),
        ("program_lanes", 256.0, "of the kind"),
        ("program_us", 900.0, "of the kind"),
        ("unit_kib", 4.0, "as the page"),
        ("reads_ahead", 1.0, "of the kind"),
        ("reads_blank", 1.0, "measured as it was found: what was never written may be read faster"),
        ("spare_percent", 7.37, "of the kind: 2^30 of flash for each 10^9 bytes"),
        ("idle_free_percent", 50.0, "of the kind: cleans when idle"),
        ("idle_effort_percent", 50.0, "of the kind"),
        ("buffer_kib", 8192.0, "of the kind"),
        ("flush_us", if cached { 1_000.0 } else { 0.0 }, "of the kind"),
    ] {
        draft.set(number, value, source);
    }
    turn(&mut draft, &knobs(cached), measurements)?;
    Ok(draft)
}

fn knobs(cached: bool) -> Vec<Knob> {
    let knob = |number, rows, range, whole| Knob { number, rows, range, whole };
    let mut knobs = vec![
        knob("link_read_mb_s", &["seq-read-1m-d8"], (5.0, 20_000.0), false),
        knob("read_way_us", &["seq-read-4k"], (0.5, 5_000.0), false),
        knob("read_page_us", &["rand-read-4k-over-100-percent"], (1.0, 20_000.0), false),
        knob("read_next_us", &["rand-read-1024k"], (0.5, 5_000.0), false),
        knob("read_command_us", &["rand-read-4k-d64"], (0.2, 2_000.0), false),
        knob("read_lanes", &["rand-read-4k-d8"], (1.0, 1_024.0), true),
        knob("link_write_mb_s", &["seq-write-1m-d8"], (1.0, 20_000.0), false),
        knob("write_command_us", &["seq-write-4k-d32"], (0.2, 2_000.0), false),
    ];
    if cached {
        knobs.push(knob("write_way_us", &["seq-write-4k"], (0.5, 20_000.0), false));
        knobs.push(knob("program_lanes", &["rand-write-4k-d32"], (1.0, 4_096.0), true));
        knobs.push(knob("flush_us", &["rand-write-4k-flush"], (1.0, 200_000.0), false));
    } else {
        knobs.push(knob("program_us", &["rand-write-4k"], (5.0, 100_000.0), false));
        knobs.push(knob("program_lanes", &["rand-write-4k-d32"], (1.0, 4_096.0), true));
    }
    knobs
}
