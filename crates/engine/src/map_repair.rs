//! Writes map pages anew of which opening found damaged copies, and headers of the log, so that one
//! opening repairs all that it has met, whether or not their extents ever change again.

use io::Io;

use crate::canary::canary;
use crate::drive::Drive;
use crate::error::Error;
use crate::format::map_page::{PAGE_BYTES, encode};
use crate::state::State;

/// Pages written at once: 1 MiB on each drive.
const PAGES_PER_STEP: usize = 256;

/// Writes every header that recovery found damaged, and both copies on both drives of every page that
/// it found damaged, or newer on one drive than on the other.
/// All that the map holds must be durable in the log.
///
/// The older copies first, durable before the newer ones are touched: some whole copy exists at
/// every moment, and all of them agree.
pub(crate) async fn repair(
    io: &Io,
    drives: [&Drive; 2],
    state: &mut State,
    volume_tag: u64,
) -> Result<(), Error> {
    for (lsn, block) in std::mem::take(&mut state.damaged_headers) {
        let mut buf = io.pool().take(block.len());
        buf.copy_from_slice(&block);
        drives[0].write(state.log.position(lsn), buf).await.1?;
    }
    let damaged = std::mem::take(&mut state.damaged_pages);
    let mut entries = Vec::new();
    for pages in damaged.chunks(PAGES_PER_STEP) {
        for round in 0..2 {
            let mut under_way = Vec::with_capacity(pages.len() * 2);
            for page in pages {
                let copy = if round == 0 {
                    state.map.older_copy(*page)
                } else {
                    1 - state.map.older_copy(*page)
                };
                state.map.page_entries(*page, &mut entries);
                for drive in drives {
                    let mut buf = io.pool().take(PAGE_BYTES);
                    encode(&mut buf, volume_tag, *page, state.log.end(), &entries);
                    let position = state.geometry.map_page_position(drive.tier(), *page, copy);
                    under_way.push(drive.write(position, buf));
                }
            }
            for transfer in under_way {
                transfer.await.1?;
            }
            if round == 0 && canary!(RepairedTogether) {
                continue;
            }
            for flush in drives.map(Drive::flush) {
                flush.await?;
            }
        }
    }
    Ok(())
}
