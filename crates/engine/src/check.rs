//! Offline check: reads both drives, changes nothing, and says everything that is wrong.

mod vouched;

use io::{Device, Io};

use crate::address::{BLOCK_BYTES, Lsn, Tier};
use crate::drive::Drive;
use crate::error::Error;
use crate::format::map_page::{PAGE_BYTES, PageCopy, examine};
use crate::format::superblock::{COPY_POSITIONS, SUPERBLOCK_BYTES, State as Left, Superblock};
use crate::geometry::Geometry;
use crate::recover::{Source, recover};
use crate::state::State;
use crate::superblocks::{self, Shorter, judge_pair};
use crate::verify::verify;

/// Map pages read at once (both copies: 1 MiB).
const PAGES_PER_READ: u64 = 128;
/// Findings listed per kind; beyond them only the number is told.
const FINDINGS_MAX: usize = 20;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckReport {
    /// Name of the volume.
    pub name: String,
    /// Whether it was closed in order.
    pub clean: bool,
    /// Shape of the volume.
    pub geometry: Geometry,
    /// What is wrong and cannot be repaired by opening the volume.
    pub errors: Vec<String>,
    /// The volume can be opened in spite of the errors.
    pub opens: bool,
    /// What is damaged but has an intact copy. Opening the volume for writing repairs it, except
    /// copies of map pages on the slow drive alone: those are rewritten when their page changes.
    pub repairable: Vec<String>,
    /// Extents that the fast and the slow drive have; clean copies are on both.
    pub extents_mapped: [u64; 2],
    /// Clean copies.
    pub extents_clean: u64,
    /// Log records that would be replayed.
    pub log_records: u64,
    /// Bytes whose newest version is in the log.
    pub log_dirty_bytes: u64,
    /// Map pages examined, all copies counted once.
    pub map_pages: u64,
}

/// Verifies every invariant of format and map on both drives. `progress` is told steps done and
/// total.
///
/// # Errors
/// When the drives are no volume, or cannot be read at all. What is merely damaged is in the report.
pub async fn check(
    io: &Io,
    fast: &Device,
    slow: &Device,
    progress: &dyn Fn(u64, u64),
) -> Result<CheckReport, Error> {
    let found = [superblocks::read(io, fast).await?, superblocks::read(io, slow).await?];
    let [fast_found, slow_found] = found;
    let stale =
        [&fast_found, &slow_found].map(|found| found.as_ref().map_or(0, |found| found.stale_copy));
    let pair = judge_pair((fast, fast_found), (slow, slow_found), Shorter::Refused)?;
    let drives = [
        Drive::new(Tier::Fast, fast.clone(), stale[0]),
        Drive::new(Tier::Slow, slow.clone(), stale[1]),
    ];
    let geometry = pair[0].geometry.clone();
    let mut report = CheckReport {
        name: pair[0].name.clone(),
        clean: pair.iter().all(|superblock| superblock.state == Left::Clean),
        geometry: geometry.clone(),
        errors: Vec::new(),
        opens: true,
        repairable: Vec::new(),
        extents_mapped: [0; 2],
        extents_clean: 0,
        log_records: 0,
        log_dirty_bytes: 0,
        map_pages: geometry.map_pages(),
    };
    let total = geometry.map_pages() * 2 + 2;
    check_superblocks(io, &drives, &mut report).await?;
    progress(1, total);
    let mut newest = [Vec::new(), Vec::new()];
    for (n, (drive, newest)) in (0..).zip(drives.iter().zip(&mut newest)) {
        let done = 1 + n * geometry.map_pages();
        let progress = |page| progress(done + page, total);
        *newest = check_pages(io, drive, &pair[0], &mut report, &progress).await?;
    }
    compare_pages(&newest, &drives, &mut report);
    let source = Source {
        io,
        fast: &drives[0],
        slow: &drives[1],
        superblock: &pair[0],
        doubt_page: pair[1].has_doubt_page(),
        rescue: false,
    };
    match recover(&source).await {
        Ok(mut state) => {
            let tag = pair[1].volume_tag();
            check_state(&mut state, &mut report);
            if report.clean && pair[1].has_doubt_page() {
                vouched::check(io, &drives[1], &state, (&newest, tag), &mut report).await?;
            }
        }
        Err(Error::Device(error)) => return Err(Error::Device(error)),
        Err(error) => {
            report.opens = false;
            report.errors.push(error.to_string());
        }
    }
    progress(total, total);
    Ok(report)
}

async fn check_superblocks(
    io: &Io,
    drives: &[Drive; 2],
    report: &mut CheckReport,
) -> Result<(), Error> {
    for drive in drives {
        for (copy, position) in COPY_POSITIONS.into_iter().enumerate() {
            let (buf, outcome) = drive.read(position, io.pool().take(SUPERBLOCK_BYTES)).await;
            let problem = match outcome {
                Err(error) => Some(error.to_string()),
                Ok(()) => {
                    Superblock::decode(&buf, copy).err().map(|problem| format!("{problem:?}"))
                }
            };
            if let Some(problem) = problem {
                report.repairable.push(format!(
                    "superblock copy {copy} of {} (byte {position}): {problem}",
                    drive.info().path
                ));
            }
        }
    }
    Ok(())
}

/// Looks at both copies of every page on one drive; gives the newer, or `Bad` where one is. A torn
/// older copy is no damage: the newer one and the log replace it.
async fn check_pages(
    io: &Io,
    drive: &Drive,
    superblock: &Superblock,
    report: &mut CheckReport,
    progress: &dyn Fn(u64),
) -> Result<Vec<PageCopy>, Error> {
    let geometry = &superblock.geometry;
    let tag = superblock.volume_tag();
    let mut newest = vec![PageCopy::Blank; geometry.map_pages() as usize];
    let mut bad = 0;
    let mut page = 0;
    while page < geometry.map_pages() {
        let count = PAGES_PER_READ.min(geometry.map_pages() - page);
        let buf = io.pool().take(count as usize * 2 * PAGE_BYTES);
        let position = geometry.map_page_position(drive.tier(), page, 0);
        let (mut buf, outcome) = drive.read(position, buf).await;
        for (n, bytes) in buf.chunks_exact_mut(PAGE_BYTES).enumerate() {
            let (number, copy) = (page + n as u64 / 2, n % 2);
            let mut readable = true;
            if outcome.is_err() {
                // Somewhere in this stretch is a sector that cannot be read: which copies are left?
                let position = geometry.map_page_position(drive.tier(), number, copy as u64);
                let (one, outcome) = drive.read(position, io.pool().take(PAGE_BYTES)).await;
                bytes.copy_from_slice(&one);
                readable = outcome.is_ok();
            }
            let found = if readable { examine(bytes, tag, number) } else { PageCopy::Bad };
            let newest = &mut newest[number as usize];
            match (found, *newest) {
                (PageCopy::Blank, _) | (PageCopy::Valid(_), PageCopy::Bad) => {}
                (PageCopy::Valid(one), PageCopy::Valid(other)) if one < other => {}
                (PageCopy::Valid(lsn), _) => *newest = PageCopy::Valid(lsn),
                (PageCopy::Bad, _) => {
                    *newest = PageCopy::Bad;
                    bad += 1;
                    if bad <= FINDINGS_MAX {
                        let what = if readable { "is damaged or torn" } else { "cannot be read" };
                        report.repairable.push(format!(
                            "map page {number}, copy {copy}, of {} {what}",
                            drive.info().path
                        ));
                    }
                }
            }
        }
        page += count;
        progress(page);
    }
    if bad > FINDINGS_MAX {
        let path = &drive.info().path;
        report.repairable.push(format!("{} more map page copies of {path}", bad - FINDINGS_MAX));
    }
    Ok(newest)
}

/// A page that is newer on one drive was not written to the other, or was lost there.
fn compare_pages(newest: &[Vec<PageCopy>; 2], drives: &[Drive; 2], report: &mut CheckReport) {
    let lsn = |copy: PageCopy| if let PageCopy::Valid(lsn) = copy { lsn } else { Lsn(0) };
    let mut differing = 0;
    for (page, (fast, slow)) in newest[0].iter().zip(&newest[1]).enumerate() {
        // What is damaged has been told already.
        if fast == slow || [fast, slow].contains(&&PageCopy::Bad) {
            continue;
        }
        differing += 1;
        if differing <= FINDINGS_MAX {
            let behind = if lsn(*fast) < lsn(*slow) { &drives[0] } else { &drives[1] };
            report.repairable.push(format!(
                "map page {page} of {} is older than the other drive's",
                behind.info().path
            ));
        }
    }
    if differing > FINDINGS_MAX {
        let more = differing - FINDINGS_MAX;
        report.repairable.push(format!("{more} more map pages are older on one drive"));
    }
}

/// Checks what recovery would bring up. (Homes within their drives and used once are checked by
/// recovery itself.)
fn check_state(state: &mut State, report: &mut CheckReport) {
    let log_at = state.geometry.layouts[0].log_at;
    for (lsn, _) in &state.damaged_headers {
        let place = lsn.0 % state.geometry.ring_blocks() * BLOCK_BYTES;
        report.repairable.push(format!(
            "the record of the landing log at {lsn} (byte {} of the drive): the next one repeats it",
            log_at + place
        ));
    }
    report.log_records = state.recovery.records;
    report.log_dirty_bytes = state.dirty_bytes();
    if state.recovery.blocks_damaged > 0 {
        report.errors.push(format!(
            "{} durable blocks in the landing log fail their checksum; reading them gives an error \
             until they are overwritten",
            state.recovery.blocks_damaged
        ));
    }
    for tier in Tier::BOTH {
        let slots = &state.slots[tier.index()];
        report.extents_mapped[tier.index()] = slots.slots() - slots.free();
    }
    report.extents_clean = state.map.clean();
    report.errors.extend(verify(state));
}
