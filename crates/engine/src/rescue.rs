//! What a damaged volume can still prove: kept while it is brought up with `rescue`.
//!
//! A record of the landing log that is damaged could have changed anything: written any block, moved
//! any extent, trimmed it. So from a gap in the log on nothing is believed that an earlier record or
//! an older page says, unless something sound proves it. Proofs are
//!
//! * of *where an extent lives*: a map page newer than the gap; the pages of a volume that was closed
//!   in order, which hold every change; a later record that gives the extent a home;
//! * of *nothing newer in the log*: a later record that replaces the whole extent, or says that what
//!   was logged before it, and the gap lies before it, is at home;
//! * of both: the slow drive's map page says that the slow drive has it, or that it is a hole, and the
//!   slow drive carries no mark of doubt for it (`doubts.rs`);
//! * of a block: a later record that has it.
//!
//! What is not proven is an error to read, never the older version.

use std::collections::BTreeSet;

use crate::address::{ExtentId, Home, Lsn};
use crate::format::map_page::ENTRIES_PER_PAGE;
use crate::state::State;

/// Findings told; beyond them only the number is.
const FINDINGS_MAX: usize = 20;

/// A bit per extent.
struct Extents(Vec<u64>);

impl Extents {
    fn none(extents: u64) -> Extents {
        Extents(vec![0; extents.div_ceil(64) as usize])
    }

    fn set(&mut self, extent: ExtentId, is: bool) {
        let (word, mask) = (extent.0 as usize / 64, 1 << (extent.0 % 64));
        self.0[word] = if is { self.0[word] | mask } else { self.0[word] & !mask };
    }

    fn has(&self, extent: ExtentId) -> bool {
        self.0[extent.0 as usize / 64] >> (extent.0 % 64) & 1 != 0
    }
}

/// What is proven of each extent, and what was found to be wrong.
pub(crate) struct Rescue {
    extents: u64,
    /// Nothing sound says where it lives.
    homeless: Extents,
    /// The log may have had newer blocks of it than are known.
    overtaken: Extents,
    /// The slow drive answers for it.
    vouched: Extents,
    /// End of the last gap in the log.
    gap_end: Lsn,
    findings: Vec<String>,
    findings_left_out: usize,
}

impl Rescue {
    pub fn new(extents: u64) -> Rescue {
        Rescue {
            extents,
            homeless: Extents::none(extents),
            overtaken: Extents::none(extents),
            vouched: Extents::none(extents),
            gap_end: Lsn(0),
            findings: Vec::new(),
            findings_left_out: 0,
        }
    }

    /// Something is wrong.
    pub fn note(&mut self, finding: String) {
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        } else {
            self.findings_left_out += 1;
        }
    }

    /// Everything that was found to be wrong.
    pub fn take_findings(&mut self) -> Vec<String> {
        let mut findings = std::mem::take(&mut self.findings);
        if self.findings_left_out > 0 {
            findings.push(format!("{} more of the kind", self.findings_left_out));
        }
        findings
    }

    /// The slow drive answers for the extent.
    pub fn vouch(&mut self, extent: ExtentId) {
        self.vouched.set(extent, true);
    }

    /// No sound copy of the page is left, or none of which is sure that it is the newest.
    pub fn lose_page(&mut self, page: u64) {
        for extent in extents_of(page, self.extents) {
            self.homeless.set(extent, true);
        }
    }

    /// The log has a gap before `end`. `pages_hold_it` tells of a page whether it has every change
    /// that was recorded in the gap.
    fn lose_log(&mut self, end: Lsn, pages_hold_it: impl Fn(u64) -> bool) {
        self.gap_end = end;
        for page in 0..self.extents.div_ceil(ENTRIES_PER_PAGE as u64) {
            let held = pages_hold_it(page);
            for extent in extents_of(page, self.extents) {
                let vouched = self.vouched.has(extent);
                if !vouched {
                    self.overtaken.set(extent, true);
                }
                if !vouched && !held {
                    self.homeless.set(extent, true);
                }
            }
        }
    }

    /// Nothing is proven of the extent.
    pub fn lose(&mut self, extent: ExtentId) {
        self.vouched.set(extent, false);
        self.homeless.set(extent, true);
        self.overtaken.set(extent, true);
    }

    /// A record says where the extent lives.
    pub fn settle_home(&mut self, extent: ExtentId) {
        self.homeless.set(extent, false);
    }

    /// A record replaces all of the extent.
    pub fn settle_whole(&mut self, extent: ExtentId) {
        self.homeless.set(extent, false);
        self.overtaken.set(extent, false);
    }

    /// A record says where the extent lives, and that what was logged `before` is there.
    pub fn settle_destaged(&mut self, extent: ExtentId, before: Lsn) {
        self.homeless.set(extent, false);
        if before >= self.gap_end {
            self.overtaken.set(extent, false);
        }
    }

    /// Whether what the extent's home holds may be given as current.
    pub fn is_proven(&self, extent: ExtentId) -> bool {
        !self.homeless.has(extent) && !self.overtaken.has(extent)
    }
}

fn extents_of(page: u64, extents: u64) -> impl Iterator<Item = ExtentId> {
    let first = page * ENTRIES_PER_PAGE as u64;
    (first..(first + ENTRIES_PER_PAGE as u64).min(extents)).map(ExtentId)
}

/// A gap in the log: nothing is known between what was replayed and `next`, where a sound record
/// begins; `None`: nothing is known of the rest. `pages_hold_it` as for [`Rescue::lose_log`].
pub(crate) fn skip_gap(state: &mut State, next: Option<Lsn>, pages_hold_it: impl Fn(u64) -> bool) {
    for extent in (0..state.map.extents()).map(ExtentId) {
        state.forget_logged(extent);
    }
    if let Some(next) = next {
        state.log.skip_to(next);
    }
    let rescue = state.rescue.as_mut().expect("gaps are refused otherwise");
    rescue.lose_log(next.unwrap_or(Lsn(u64::MAX)), pages_hold_it);
}

/// Takes the slots in use, and believes no two extents that claim the same one.
pub(crate) fn claim_slots(state: &mut State) {
    let Some(mut rescue) = state.rescue.take() else { return };
    let mut impossible: BTreeSet<Home> = BTreeSet::new();
    let homes = |state: &State| {
        let owned = |extent| state.owned_by(extent).into_iter().flatten();
        let homes = (0..state.map.extents()).map(ExtentId);
        homes.flat_map(|extent| owned(extent).map(move |home| (extent, home))).collect::<Vec<_>>()
    };
    for (extent, home) in homes(state) {
        if rescue.is_proven(extent) && !state.slots[home.tier.index()].claim(home.slot) {
            impossible.insert(home);
        }
    }
    if !impossible.is_empty() {
        for (extent, home) in homes(state) {
            if rescue.is_proven(extent) && impossible.contains(&home) {
                rescue.note(format!(
                    "extent {} is mapped to slot {} of the {} drive, which does not exist or \
                     belongs to another extent",
                    extent.0, home.slot.0, home.tier
                ));
                rescue.lose(extent);
            }
        }
    }
    state.rescue = Some(rescue);
}

/// What could not be proven counts as lost from now on.
pub(crate) fn settle(state: &mut State) {
    let Some(mut rescue) = state.rescue.take() else { return };
    let findings = rescue.take_findings();
    let extents = state.map.extents();
    let mut unproven = (0..extents).map(ExtentId).filter(|extent| !rescue.is_proven(*extent));
    if let Some(first) = unproven.next() {
        let loss = state.loss.get_or_insert_default();
        loss.mark_unknown(first, extents);
        unproven.for_each(|extent| loss.mark_unknown(extent, extents));
    }
    if !findings.is_empty() {
        state.loss.get_or_insert_default().damage = findings;
    }
}
