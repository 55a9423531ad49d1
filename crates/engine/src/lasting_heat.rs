//! Heat that outlives a session: what was hot is written to the fast drive when the volume is closed, and
//! once in a while, and is known again after the next opening.
//!
//! Nothing depends on it (`format/heat_page.rs`). So it is not flushed, a page that cannot be written or
//! read is passed over, and a crash loses what was learnt since it was last written.

use io::Io;
use io::units::SECOND_NS;
use policy::{ExtentId, HeatLevel};

use crate::drive::Drive;
use crate::format::heat_page::{self, HEAT_AREAS, HEAT_PAGE_BYTES};
use crate::shared::Shared;
use crate::state::State;

/// While the volume is served it is written once in so long, when something was learnt.
const SAVE_EVERY_NS: u64 = 3600 * SECOND_NS;
/// Entries that are kept: they take three bytes each in most cases, of all that there is room for. At 128
/// KiB the hottest 42 GiB.
const ENTRIES_MAX: usize = 340_000;

/// When it was last written, and what was known then.
#[derive(Debug, Default)]
pub(crate) struct LastingHeat {
    saved_ns: u64,
    requests: u64,
}

impl LastingHeat {
    /// The volume is opened now.
    pub fn opened(now_ns: u64) -> LastingHeat {
        LastingHeat { saved_ns: now_ns, requests: 0 }
    }

    /// When it is to be written again; `None`: nobody has asked for anything since.
    pub fn due_ns(&self, requests: u64) -> Option<u64> {
        (requests != self.requests).then_some(self.saved_ns + SAVE_EVERY_NS)
    }
}

/// Writes what is hot now.
pub(crate) async fn save(shared: &Shared) {
    let now_ns = shared.io.now_ns();
    let hottest = {
        let mut state = shared.state.borrow_mut();
        let requests = state.placer.requests();
        if requests == state.lasting_heat.requests {
            return;
        }
        state.lasting_heat = LastingHeat { saved_ns: now_ns, requests };
        state.placer.heat.hottest(ENTRIES_MAX)
    };
    let (tag, saving) = {
        let superblock = shared.superblock.borrow();
        (superblock.volume_tag(), superblock.sequence)
    };
    let mut left: &[(ExtentId, HeatLevel)] = &hottest;
    let mut number = 0;
    for (at, pages_max) in HEAT_AREAS {
        let mut buf = shared.io.pool().take(pages_max * HEAT_PAGE_BYTES);
        let mut pages = 0;
        // A page without entries is one, too: nothing is hot any more.
        while pages < pages_max && (number == 0 || !left.is_empty()) {
            let from = pages * HEAT_PAGE_BYTES;
            let page = &mut buf[from..from + HEAT_PAGE_BYTES];
            left = heat_page::encode(page, (tag, saving, number), left);
            pages += 1;
            number += 1;
        }
        buf.truncate(pages * HEAT_PAGE_BYTES);
        if pages > 0 && shared.fast.write(at, buf).await.1.is_err() {
            return;
        }
    }
}

/// Takes up what was hot when it was last written.
pub(crate) async fn recall(io: &Io, fast: &Drive, volume_tag: u64, state: &mut State) {
    let mut areas = Vec::with_capacity(HEAT_AREAS.len());
    let mut first = 0;
    for (at, pages) in HEAT_AREAS {
        let (buf, outcome) = fast.read(at, io.pool().take(pages * HEAT_PAGE_BYTES)).await;
        if outcome.is_ok() {
            areas.push((first, buf));
        }
        first += pages as u32;
    }
    let pages = || {
        areas.iter().flat_map(|(first, buf)| {
            let numbered = (*first..).zip(buf.chunks_exact(HEAT_PAGE_BYTES));
            numbered.filter_map(|(number, page)| {
                heat_page::saving(page, volume_tag, number).map(|saving| (saving, page))
            })
        })
    };
    let Some(newest) = pages().map(|(saving, _)| saving).max() else { return };
    for (_, page) in pages().filter(|(saving, _)| *saving == newest) {
        for (extent, level) in heat_page::entries(page) {
            state.placer.heat.recall(extent, level);
        }
    }
}
