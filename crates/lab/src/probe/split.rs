//! At which size large requests are cut on their way to the drive, and by which limit.

use serde::{Deserialize, Serialize};

use super::{Identity, Measured};

/// Memory comes in pages, and those of one buffer seldom lie side by side.
const PAGE_KIB: u64 = 4;

/// See the head of the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Split {
    /// The largest size of requests that arrived, where they were cut (KiB).
    pub at_kib: Option<f64>,
    /// By what, or why that cannot be told.
    pub why: String,
}

/// Requests that arrive smaller than this share of what was asked for were cut.
const CUT_SHARE: f64 = 0.95;

/// What the measurements of growing requests say.
pub fn split(identity: &Identity, measured: &[Measured]) -> Split {
    let sizes = || {
        let reads = measured.iter().filter(|one| one.measure.random && one.measure.depth == 1);
        reads.filter_map(|one| Some((one.measure.block_bytes as f64 / 1024.0, one.arrived_kib?)))
    };
    if sizes().next().is_none() {
        let why = match identity.kind.as_str() {
            "block device" => "the kernel does not count requests to this device",
            "twin" => {
                "a twin has no kernel before it; its profile says how it cuts requests itself"
            }
            "file" => "requests to a file are counted by no one",
            _ => "requests behind the network are counted by no one here",
        };
        return Split { at_kib: None, why: why.to_owned() };
    }
    let cut = || sizes().filter(|(asked, arrived)| *arrived < asked * CUT_SHARE);
    let Some((asked, _)) = cut().next() else {
        let largest = sizes().map(|(asked, _)| asked).fold(0.0, f64::max);
        let why = format!("requests of {largest} KiB arrive whole: nothing cuts them");
        return Split { at_kib: None, why };
    };
    // What a cut leaves over is smaller than the limit: the largest mean is nearest to it.
    let at_kib = cut().map(|(_, arrived)| arrived).fold(0.0, f64::max);
    let why = reason(identity, asked, at_kib);
    Split { at_kib: Some(at_kib), why }
}

fn reason(identity: &Identity, asked: f64, at_kib: f64) -> String {
    let arrives = format!("requests of {asked} KiB arrive in pieces of {at_kib:.0} KiB");
    let Some(queue) = &identity.queue else {
        return format!("{arrives}; the kernel's limits are not known");
    };
    // Merged again, or cut once more at an odd place, a mean is a little off its limit.
    let near = |limit: u64| (at_kib / limit as f64 - 1.0).abs() < 0.05;
    let mut causes = Vec::new();
    if let Some(kib) = queue.max_sectors_kb.filter(|kib| near(*kib)) {
        let hardware = match queue.max_hw_sectors_kb {
            Some(hardware) if hardware > kib => {
                format!(" (can be set up to {hardware}, what the hardware takes)")
            }
            _ => " (all that the hardware takes)".to_owned(),
        };
        causes.push(format!("the kernel makes none larger: max_sectors_kb is {kib}{hardware}"));
    }
    if let Some(segments) = queue.max_segments.filter(|segments| near(segments * PAGE_KIB)) {
        causes.push(format!(
            "a request has at most {segments} pieces of memory (max_segments), and a piece is a page of \
             {PAGE_KIB} KiB where pages do not lie side by side"
        ));
    }
    match causes.as_slice() {
        [] => {
            let name = |value: Option<u64>| value.map_or("unknown".to_owned(), |v| v.to_string());
            format!(
                "{arrives}; that is neither max_sectors_kb ({}) nor max_segments ({}) of {PAGE_KIB} KiB",
                name(queue.max_sectors_kb),
                name(queue.max_segments)
            )
        }
        causes => format!("{arrives}: {}", causes.join("; and ")),
    }
}
