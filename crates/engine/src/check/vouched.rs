//! What the slow drive vouches for, if it were all that is left, must be so (L1 to L3 of
//! docs/durability.md). Of a volume that was closed in order only: after a crash, what the log has
//! beyond the last flush is there by luck, and needs no mark of doubt.

use io::Io;

use super::{CheckReport, FINDINGS_MAX};
use crate::address::{ExtentId, Tier};
use crate::drive::Drive;
use crate::error::Error;
use crate::format::map_page::{ENTRIES_PER_PAGE, PAGE_BYTES, PageCopy, entries, examine};
use crate::state::State;

/// Compares each entry of the slow drive's map with the truth, unless it is in doubt. `newest`: of each
/// page, by drive, the newest copy; `tag`: the volume's, in its pages.
pub(super) async fn check(
    io: &Io,
    slow: &Drive,
    state: &State,
    (newest, tag): (&[Vec<PageCopy>; 2], u64),
    report: &mut CheckReport,
) -> Result<(), Error> {
    let geometry = &state.geometry;
    let mut wrong = 0;
    for (page, (on_fast, on_slow)) in (0..).zip(newest[0].iter().zip(&newest[1])) {
        // What is damaged or older has been told, and without the other drive the damaged counts as
        // unknown (L5).
        if on_fast != on_slow || *on_slow == PageCopy::Bad {
            continue;
        }
        let position = geometry.map_page_position(Tier::Slow, page, 0);
        let (buf, outcome) = slow.read(position, io.pool().take(2 * PAGE_BYTES)).await;
        outcome?;
        let blank = [0; PAGE_BYTES];
        let mut copies = buf.chunks_exact(PAGE_BYTES);
        let bytes = copies.find(|bytes| examine(bytes, tag, page) == *on_slow).unwrap_or(&blank);
        let first = page * ENTRIES_PER_PAGE as u64;
        for (extent, raw) in (first..state.map.extents()).map(ExtentId).zip(entries(bytes)) {
            let mapping = state.map.get(extent);
            let known = state.map.form().decode(raw, extent) == Some(mapping.residence());
            // What lives on the fast drive is lost with it anyway, and its blocks in the log too.
            let newer_in_log = mapping.in_log() && !mapping.is_on_fast_alone();
            if state.doubts.is_marked(extent) || known && !newer_in_log {
                continue;
            }
            wrong += 1;
            if wrong <= FINDINGS_MAX {
                let what = if known { "has newer blocks in the log" } else { "lives elsewhere" };
                report.errors.push(format!(
                    "{} vouches for extent {}, which {what}: without the other drive old data would \
                     be given for it",
                    slow.info().path,
                    extent.0
                ));
            }
        }
    }
    if wrong > FINDINGS_MAX {
        let path = &slow.info().path;
        report.errors.push(format!("{path} vouches for {} more extents", wrong - FINDINGS_MAX));
    }
    Ok(())
}
