//! Reading around: which reads bring their whole extent into the stage, and what becomes of those
//! that leave it.

use std::rc::Rc;

use io::{Buf, Transfer};
use policy::{FastDrive, Measured, Occasion, Policy, Refusal, Touch, Verdict};

use crate::address::{ExtentId, Tier};
use crate::canary::canary;
use crate::drive::Watched;
use crate::error::Error;
use crate::marks::{self, Mark};
use crate::placer::Request;
use crate::read::{Part, Parts, Source};
use crate::shared::Shared;
use crate::stage::Leaving;
use crate::state::State;
use crate::wishes::Wish;

/// Extents on their way down that others wait for, at most, while there are some that leave at once.
const WAITED_FOR_MAX: usize = 16;

/// Has parts that must be read from the slow drive bring their extents along, where the policy says so.
pub(crate) fn look_around(state: &mut State, request: &Request, at: u64, parts: Parts) -> Parts {
    let extent_bytes = state.geometry.extent_bytes;
    let mut chosen = Parts::new();
    let mut cursor = at;
    for part in parts {
        let end = cursor + part.bytes as u64;
        let Source::Home { tier: Tier::Slow, position } = part.source else {
            cursor = end;
            chosen.push(part);
            continue;
        };
        let (begin, mut direct_from) = (cursor, cursor);
        // What is not brought along stays one read, however many extents it goes over.
        let direct = |from: u64, to: u64| Part {
            source: Source::Home { tier: Tier::Slow, position: position + from - begin },
            bytes: (to - from) as usize,
        };
        while cursor < end {
            let extent = state.extent_of(cursor);
            let start = extent.0 * extent_bytes;
            let until = end.min(start + extent_bytes);
            if brings_along(state, request, extent, until - cursor) {
                if direct_from < cursor {
                    chosen.push(direct(direct_from, cursor));
                }
                let offset = (cursor - start) as usize;
                let position = position + cursor - begin - offset as u64;
                let by_stream = request.is_stream();
                let source = Source::Around { extent, position, offset, by_stream };
                chosen.push(Part { source, bytes: (until - cursor) as usize });
                direct_from = until;
            }
            cursor = until;
        }
        if direct_from < end {
            chosen.push(direct(direct_from, end));
        }
    }
    chosen
}

fn brings_along(state: &mut State, request: &Request, extent: ExtentId, bytes: u64) -> bool {
    // A home that is being written would be met half old and half new.
    let mapping = state.map.get(extent);
    let written = mapping.moving() || state.guards.home_written(extent);
    let held = written && !canary!(StageReadUnderWrite);
    if held || !state.stage.takes(extent) || state.placer.overwrites_below() {
        state.placer.missed(extent, request);
        return false;
    }
    let wish = state.wishes.of(extent);
    if wish == Some(Wish::Cold) {
        state.placer.heat.overrule(extent, Verdict::WishedBelow);
        return false;
    }
    let touch = request.touch(extent, bytes, false);
    let touch = Touch { is_stream: touch.is_stream || wish == Some(Wish::Stream), ..touch };
    let wanted = matches!(wish, Some(Wish::Hot | Wish::Pinned));
    let (placer, view) = state.placer_and_view();
    if !wanted && placer.heat.reads_around(&touch, &view).is_err() {
        // What is no hotter than all that is above would only be in the way of others in the line.
        if wish.is_none() && placer.heat.finds_room(extent, &view) {
            placer.missed(extent, request);
        }
        return false;
    }
    state.stage.expect(extent);
    true
}

/// A read of a whole extent for a part of it.
pub(crate) struct Around {
    extent: ExtentId,
    position: u64,
    offset: usize,
    by_stream: bool,
    transfer: Watched<Transfer>,
    begun_ns: u64,
    /// The slow drive's operations when it began, if it had the drive for itself then.
    alone_since: Option<u64>,
}

impl Around {
    /// Submits it. The stage expects it.
    pub fn begin(
        shared: &Shared,
        extent: ExtentId,
        position: u64,
        offset: usize,
        by_stream: bool,
    ) -> Around {
        marks::hit(Mark::ReadAround);
        let image = shared.io.pool().take(shared.geometry.extent_bytes as usize);
        let idle = shared.slow.is_idle();
        let transfer = shared.slow.read(position, image);
        let alone_since = idle.then(|| shared.slow.operations());
        let begun_ns = shared.io.now_ns();
        Around { extent, position, offset, by_stream, transfer, begun_ns, alone_since }
    }

    /// Waits for it, fills the client's buffer, and stages the rest.
    pub async fn arrive(self, shared: &Rc<Shared>, mut buf: Buf) -> (Buf, Result<(), Error>) {
        let Around { extent, offset, .. } = self;
        let (image, outcome) = self.transfer.await;
        if outcome.is_err() {
            // Something else in the extent cannot be read, perhaps.
            shared.state.borrow_mut().stage.give_up(extent);
            marks::hit(Mark::AroundFailed);
            let (buf, outcome) = shared.slow.read(self.position + offset as u64, buf).await;
            return (buf, outcome.map_err(Error::from));
        }
        let end = offset + buf.len();
        buf.copy_from_slice(&image[offset..end]);
        let now_ns = shared.io.now_ns();
        let mut state = shared.state.borrow_mut();
        if self.alone_since == Some(shared.slow.operations()) {
            let taken_ms = (now_ns - self.begun_ns) as f64 / 1e6;
            let bytes = image.len() as u64;
            let what = if self.by_stream { Measured::Stream(bytes) } else { Measured::Around };
            state.placer.heat.took(what, taken_ms);
        }
        if let Some(leaving) = state.stage.arrived(extent, &image, self.by_stream) {
            leave(&mut state, leaving, shared.fast.traffic().write_bytes, now_ns);
        }
        (buf, Ok(()))
    }
}

/// An extent leaves the stage: up, or away.
fn leave(state: &mut State, leaving: Leaving, fast_written: u64, now_ns: u64) {
    let Leaving { extent, touched, by_stream } = leaving;
    if !by_stream {
        state.placer.heat.left_stage(touched);
    }
    if admit(state, extent, Occasion::LeavesStage { touched }, fast_written, now_ns) {
        state.stage.enter(extent);
    } else {
        state.stage.forget(extent);
    }
}

/// Whether an extent of the slow drive may go up now. Who must leave for it is in the line of those
/// that leave.
pub(crate) fn admit(
    state: &mut State,
    extent: ExtentId,
    occasion: Occasion,
    fast_written: u64,
    now_ns: u64,
) -> bool {
    let wish = state.wishes.of(extent);
    if matches!(wish, Some(Wish::Cold | Wish::Stream)) {
        state.placer.heat.overrule(extent, Verdict::WishedBelow);
        return false;
    }
    let coming = (state.stage.entering() + 1) * state.geometry.extent_bytes;
    if !state.placer.wear_covers(coming, fast_written, now_ns) {
        state.placer.heat.overrule(extent, Verdict::Wear);
        return false;
    }
    let full = !state.stage.has_room_to_enter() || state.placer.leaving_is_full();
    if full && !matches!(occasion, Occasion::Rest | Occasion::StagedAtRest) {
        state.placer.heat.overrule(extent, Verdict::Stays(Refusal::NoSlot));
        if state.placer.heat.is_hot(extent) {
            state.placer.later(extent);
        }
        return false;
    }
    if state.map.get(extent).part().is_some() {
        // It has its slot already.
        let wanted = matches!(wish, Some(Wish::Hot | Wish::Pinned));
        return wanted || state.placer.heat.is_hot(extent);
    }
    // What goes up in part costs the slow drive nothing, and so shall what leaves for it. Of those that have to
    // wait for the slow drive few may be waited for: images for whose slots they should leave fill the stage.
    let many_wait = state.placer.leaving() >= WAITED_FOR_MAX.min(state.stage.entering_max() / 2);
    let for_free = occasion == Occasion::DestagedInPart || many_wait && state.map.clean() > 0;
    let (placer, mut view) = state.placer_and_view();
    view.for_free = for_free;
    if matches!(wish, Some(Wish::Hot | Wish::Pinned)) {
        let leaving = if view.free() == 0 { placer.heat.coldest(&view) } else { None };
        if view.free() == 0 && leaving.is_none() {
            placer.heat.overrule(extent, Verdict::Stays(Refusal::NoSlot));
            return false;
        }
        if let Some(leaving) = leaving {
            placer.heat.overrule(leaving, Verdict::GivesWay);
        }
        placer.leaves(leaving);
        placer.heat.overrule(extent, Verdict::WishedUp);
        return true;
    }
    match placer.heat.admit(extent, occasion, &view) {
        Ok(leaving) => {
            placer.leaves(leaving);
            true
        }
        Err(refusal) => {
            if refusal == Refusal::Budget {
                placer.later(extent);
            }
            false
        }
    }
}
