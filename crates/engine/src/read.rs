//! Reading: log first, then map; the parts of one request are read in parallel, each into its own
//! piece of the caller's buffer. What must be read from the slow drive may bring its whole extent
//! along (`stage.rs`).

use std::rc::Rc;

use io::{Buf, HEADROOM_BYTES, IoError, Lent, Transfer};
use smallvec::{SmallVec, smallvec};

use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Lsn, Tier};
use crate::ahead::Foreseen;
use crate::canary::canary;
use crate::checksum::crc32c;
use crate::drive::Watched;
use crate::error::Error;
use crate::log::Logged;
use crate::loss::LossCause;
use crate::marks::{self, Mark};
use crate::placer::Access;
use crate::quiet::WakeCause;
use crate::shared::{AccessPass, Looks, Shared};
use crate::staging::{self, Around};
use crate::state::State;

const BLOCK: usize = BLOCK_BYTES as usize;
/// So much of the fast drive is read beyond what a stream asks for.
const AHEAD_BYTES: u64 = 1 << 20;
/// What is read at a time for a stream of small requests.
const PIECE_BYTES: u64 = 128 << 10;
/// Less than this in one place is not worth a place among the pieces.
const PART_BYTES_MIN: usize = 32 << 10;

/// Where a part of a request is read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nowhere: zeros.
    Zeros,
    /// Nowhere: the block is damaged, and known to be.
    Lost,
    /// Nowhere: this drive is gone, or something is damaged.
    Gone(Option<Tier>, LossCause),
    /// A home, or neighbouring homes.
    Home { tier: Tier, position: u64 },
    /// The stage: at this offset in the extent's image.
    Staged { extent: ExtentId, offset: usize },
    /// The slow home of an extent, read as a whole for what is at this offset.
    Around { extent: ExtentId, position: u64, offset: usize, by_stream: bool },
    /// Memory: blocks that are on their way home.
    Memory { first: BlockId, count: u64 },
    /// Neighbouring blocks of the log, from this LSN; each block has its CRC.
    Log { lsn: Lsn, position: u64, crcs: SmallVec<[u32; 4]> },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub source: Source,
    pub bytes: usize,
}

/// The parts of a request: one, mostly, which needs no memory of its own.
pub(crate) type Parts = SmallVec<[Part; 1]>;

/// Reads whole blocks.
pub(crate) async fn read_blocks(
    shared: &Rc<Shared>,
    at: u64,
    buf: Buf,
) -> (Buf, Result<(), Error>) {
    let mut buf = buf;
    loop {
        let was_alone = shared.is_alone();
        let pass = AccessPass::begin(shared, Looks::AtLogToo);
        let (parts, needs) = {
            let state = shared.state.borrow();
            plan(&state, at, buf.len())
        };
        if let Some(end) = needs {
            // The newest version is on its way to the log. Look again when it is there: it may
            // have moved on by then.
            drop(pass);
            marks::hit(Mark::ReadWaitedForRecord);
            match shared.log_written(end).await {
                Err(error) if was_alone || !shared.is_alone() => return (buf, Err(error)),
                _ => continue,
            }
        }
        let (parts, goes_on) = observe(shared, at, parts, buf.len());
        let outcome;
        (buf, outcome) = carry_out(shared, at, parts, goes_on, buf).await;
        drop(pass);
        // The fast drive may have died meanwhile, and the slow one has it.
        if outcome.is_ok() || was_alone || !shared.is_alone() {
            return (buf, outcome);
        }
    }
}

/// Reads whole blocks into memory that a driver lends, where all of them are in one place on the fast drive,
/// which nothing has to be computed from. False: they are not, or could not be read, and are to be read as ever.
pub(crate) async fn read_lent(shared: &Rc<Shared>, at: u64, memory: Lent) -> bool {
    let length = memory.bytes as usize;
    let _pass = AccessPass::begin(shared, Looks::AtLogToo);
    let (parts, _) = plan(&shared.state.borrow(), at, length);
    let [Part { source: Source::Home { tier: Tier::Fast, position }, .. }] = parts[..] else {
        return false;
    };
    if shared.fast.is_read_ahead(position) {
        return false;
    }
    let (_, goes_on) = observe(shared, at, parts, length);
    marks::hit(Mark::ReadLent);
    let reading = shared.fast.read_lent(position, memory);
    if goes_on {
        read_ahead(shared, at, length as u64);
    }
    reading.await.is_ok()
}

/// Cuts the request into parts. The second value: this much of the log must be written first.
fn plan(state: &State, at: u64, length: usize) -> (Parts, Option<Lsn>) {
    let mut parts = Parts::new();
    let extent_bytes = state.geometry.extent_bytes;
    let end = at + length as u64;
    let mut needs = None;
    let mut cursor = at;
    while cursor < end {
        let extent = state.extent_of(cursor);
        let extent_start = extent.0 * extent_bytes;
        let piece_end = end.min(extent_start + extent_bytes);
        let mapping = state.map.get(extent);
        let home = |offset| home_source(state, extent, offset);
        if !mapping.in_log() && mapping.part().is_none() {
            let bytes = (piece_end - cursor) as usize;
            push(&mut parts, home(cursor - extent_start), bytes);
            cursor = piece_end;
            continue;
        }
        while cursor < piece_end {
            let block = BlockId(cursor / BLOCK_BYTES);
            let source = match state.log.lookup(block) {
                Some(Logged::Data { .. }) if state.kept.get(block).is_some() => {
                    Source::Memory { first: block, count: 1 }
                }
                Some(Logged::Data { .. }) if state.is_gone(Tier::Fast) => {
                    Source::Gone(Some(Tier::Fast), LossCause::LivedThere)
                }
                Some(Logged::Data { lsn, crc }) => {
                    if lsn >= state.log.written() && !canary!(ReadBeforeWritten) {
                        needs = needs.max(Some(Lsn(lsn.0 + 1)));
                    }
                    Source::Log { lsn, position: state.log.position(lsn), crcs: smallvec![crc] }
                }
                Some(Logged::Zero { .. }) if canary!(ZerosReadHome) => home(cursor - extent_start),
                Some(Logged::Zero { .. }) => Source::Zeros,
                Some(Logged::Lost { .. }) => Source::Lost,
                None => home(cursor - extent_start),
            };
            push(&mut parts, source, BLOCK);
            cursor += BLOCK_BYTES;
        }
    }
    (parts, needs)
}

fn home_source(state: &State, extent: ExtentId, offset: u64) -> Source {
    if let Some(cause) = state.loss_at_home(extent) {
        let gone = Tier::BOTH.into_iter().find(|tier| state.is_gone(*tier));
        return Source::Gone(gone, cause);
    }
    // Of a copy in part the original has what the copy has not.
    let below = state.map.get(extent).part().and_then(|(part, original)| {
        (!part.has(offset / BLOCK_BYTES) && !canary!(PartReadAsWhole)).then_some(original)
    });
    match below.or_else(|| state.readable_home(extent)) {
        Some(home) if home.tier == Tier::Slow && state.stage.has(extent) => {
            Source::Staged { extent, offset: offset as usize }
        }
        Some(home) => {
            Source::Home { tier: home.tier, position: state.geometry.position(home) + offset }
        }
        None => Source::Zeros,
    }
}

/// Appends a part, merging it with the last one when they are neighbours on the drive.
fn push(parts: &mut Parts, source: Source, bytes: usize) {
    if let Some(last) = parts.last_mut() {
        let behind = last.bytes as u64;
        let merges = match (&mut last.source, &source) {
            (Source::Zeros, Source::Zeros) => true,
            (Source::Memory { first, count }, Source::Memory { first: first2, .. })
                if first.0 + *count == first2.0 =>
            {
                *count += 1;
                true
            }
            (
                Source::Staged { extent, offset },
                Source::Staged { extent: extent2, offset: offset2 },
            ) => extent == extent2 && *offset as u64 + behind == *offset2 as u64,
            (Source::Gone(tier, cause), Source::Gone(tier2, cause2)) => {
                tier == tier2 && cause == cause2
            }
            (
                Source::Home { tier, position },
                Source::Home { tier: tier2, position: position2 },
            ) => (tier == tier2 || canary!(ReadOfBothMerged)) && *position + behind == *position2,
            (
                Source::Log { position, crcs, .. },
                Source::Log { position: position2, crcs: crcs2, .. },
            ) if *position + behind == *position2 => {
                crcs.extend_from_slice(crcs2);
                true
            }
            _ => false,
        };
        if merges {
            last.bytes += bytes;
            return;
        }
    }
    parts.push(Part { source, bytes });
}

/// Tells the policy of the request, counts where it is served, and has it bring along what is worth
/// bringing. The second value: it belongs to a stream of what is not below, which will go on.
fn observe(shared: &Shared, at: u64, parts: Parts, length: usize) -> (Parts, bool) {
    let mut state = shared.state.borrow_mut();
    let state = &mut *state;
    let map = &state.map;
    let request = state.placer.observe(Access::Read, at, length as u64, |extent| {
        map.get(extent).home().map(|home| home.tier)
    });
    let below =
        parts.iter().any(|part| matches!(part.source, Source::Home { tier: Tier::Slow, .. }));
    state.courtesy.request(below);
    if below {
        state.quiet.used(WakeCause::Read, shared.io.now_ns());
    }
    let parts = if below { staging::look_around(state, &request, at, parts) } else { parts };
    for part in &parts {
        let bytes = part.bytes as u64;
        for served in [&mut state.counters.served, &mut state.counters.served_reads] {
            match part.source {
                Source::Zeros => served.hole_bytes += bytes,
                Source::Home { tier: Tier::Fast, .. } => served.fast_bytes += bytes,
                Source::Home { tier: Tier::Slow, .. } | Source::Around { .. } => {
                    served.slow_bytes += bytes;
                }
                Source::Staged { .. } => served.stage_bytes += bytes,
                Source::Log { .. } | Source::Memory { .. } | Source::Lost => {
                    served.log_bytes += bytes;
                }
                Source::Gone(..) => {}
            }
        }
    }
    (parts, request.is_stream() && !below)
}

/// Reads of the fast drive what a stream will ask for next: in pieces of the size it asks for, so that an
/// answer is one of them, or of [`PIECE_BYTES`] where it asks for less.
///
/// A piece must not be begun at a home to which a write is under way, since only writes that are submitted
/// later take it away. Clients' writes in place hold the extent ([`crate::guards`]). Everything else is written where
/// no plan looks until it is settled: fresh slots, what moves, and blocks that the log still has.
fn read_ahead(shared: &Shared, at: u64, length: u64) {
    let state = shared.state.borrow();
    let extent_bytes = state.geometry.extent_bytes;
    let small = PIECE_BYTES.min(extent_bytes);
    let (first, piece) = match length < small {
        // The first request in a piece sees to it for all of them.
        true if at % small >= length => return,
        true => ((at + length).next_multiple_of(small), small),
        false => (at + length, length),
    };
    let until = (at + length + AHEAD_BYTES).min(state.geometry.volume_bytes);
    let mut cursor = first;
    while cursor < until {
        let end = (cursor + piece).min(state.geometry.volume_bytes);
        let extents = (cursor / extent_bytes..end.div_ceil(extent_bytes)).map(ExtentId);
        let begins = |source: &Source| match source {
            Source::Home { tier: Tier::Fast, position } => shared.fast.is_read_ahead(*position),
            _ => false,
        };
        // Most are under way since the request before this one.
        if !begins(&home_source(&state, state.extent_of(cursor), cursor % extent_bytes)) {
            let mut busy = extents.filter(|extent| {
                state.guards.home_written(*extent) || state.map.get(*extent).moving()
            });
            if busy.next().is_some() && !canary!(AheadBegunUnderWrite) {
                return;
            }
            for part in plan(&state, cursor, (end - cursor) as usize).0 {
                if let Source::Home { tier: Tier::Fast, position } = part.source
                    && part.bytes >= PART_BYTES_MIN
                {
                    shared.fast.read_ahead(position, part.bytes);
                }
            }
        }
        cursor = end;
    }
}

async fn carry_out(
    shared: &Rc<Shared>,
    at: u64,
    mut parts: Parts,
    goes_on: bool,
    mut buf: Buf,
) -> (Buf, Result<(), Error>) {
    let length = buf.len() as u64;
    // What is asked for goes first.
    let read_on = || {
        if goes_on {
            read_ahead(shared, at, length);
        }
    };
    if parts.len() == 1 {
        let part = parts.pop().expect("one part");
        let submitted = submit(shared, &part.source, buf);
        read_on();
        return ended(shared, submitted, &part.source, at).await;
    }
    let mut under_way = Vec::with_capacity(parts.len());
    for part in parts {
        let piece = buf.split_to(part.bytes);
        under_way.push((submit(shared, &part.source, piece), part));
    }
    read_on();
    Box::pin(all_ended(shared, at, under_way, buf)).await
}

/// The pieces of a request, joined. What is left of `buf` is its empty end; they are joined in front of it.
async fn all_ended(
    shared: &Rc<Shared>,
    at: u64,
    under_way: Vec<(Submitted, Part)>,
    buf: Buf,
) -> (Buf, Result<(), Error>) {
    let mut whole: Option<Buf> = None;
    let mut result = Ok(());
    let mut offset = at;
    for (submitted, part) in under_way {
        let (piece, outcome) = ended(shared, submitted, &part.source, offset).await;
        result = result.and(outcome);
        offset += part.bytes as u64;
        match &mut whole {
            Some(whole) => whole.unsplit(piece),
            None => whole = Some(piece),
        }
    }
    let mut whole = whole.expect("a request has parts");
    whole.unsplit(buf);
    (whole, result)
}

/// What there is of a part when it has ended.
///
/// What few requests wait for is in boxes of its own here and below: each request is moved as a whole some five
/// times before it waits, and would be twice as large with all that might become of it.
async fn ended(
    shared: &Rc<Shared>,
    submitted: Submitted,
    source: &Source,
    at: u64,
) -> (Buf, Result<(), Error>) {
    match submitted {
        Submitted::Done(buf) => {
            let outcome = verify(source, at, &buf);
            (buf, outcome)
        }
        Submitted::UnderWay(transfer) => {
            let (buf, outcome) = arrived(shared, source, at, transfer.await).await;
            let outcome = outcome.and_then(|()| verify(source, at, &buf));
            (buf, outcome)
        }
        Submitted::Around(around, buf) => Box::pin(around.arrive(shared, buf)).await,
        Submitted::Ahead(transfer, buf) => {
            let foreseen = transfer.await;
            came_ahead(shared, source, at, foreseen, buf).await
        }
    }
}

/// What has arrived of a part; where a copy could not be read, what it was made of.
async fn arrived(
    shared: &Rc<Shared>,
    source: &Source,
    at: u64,
    (buf, outcome): (Buf, Result<(), IoError>),
) -> (Buf, Result<(), Error>) {
    match (outcome, source) {
        (Ok(()), _) => (buf, Ok(())),
        (Err(error), Source::Home { tier: Tier::Fast, .. }) => {
            Box::pin(read_originals(shared, at, buf, error)).await
        }
        (Err(error), _) => (buf, Err(error.into())),
    }
}

/// What was read ahead has arrived; if it could not be read, it is tried once more.
async fn came_ahead(
    shared: &Rc<Shared>,
    source: &Source,
    at: u64,
    (image, outcome): (Buf, Result<(), IoError>),
    buf: Buf,
) -> (Buf, Result<(), Error>) {
    match (outcome, source) {
        (Ok(()), _) => (instead(image, buf), Ok(())),
        (Err(_), Source::Home { tier, position }) => {
            let again = async {
                let again = shared.drive(*tier).read(*position, buf).await;
                arrived(shared, source, at, again).await
            };
            Box::pin(again).await
        }
        (Err(error), _) => (buf, Err(error.into())),
    }
}

/// The content of `image`, without a copy where the caller cannot tell one buffer from the other.
fn instead(image: Buf, mut buf: Buf) -> Buf {
    if buf.is_whole() && buf.headroom() == HEADROOM_BYTES {
        return image;
    }
    buf.copy_from_slice(&image);
    buf
}

/// Reads from the slow drive what could not be read from the fast one, if all of it is clean. Extent by
/// extent: others beside the one that is bad may be good above and bad below.
async fn read_originals(
    shared: &Rc<Shared>,
    at: u64,
    mut buf: Buf,
    error: IoError,
) -> (Buf, Result<(), Error>) {
    let Some(pieces) = originals(&shared.state.borrow(), at, buf.len() as u64) else {
        return (buf, Err(error.into()));
    };
    marks::hit(Mark::ReadFromOriginal);
    let mut outcome = Ok(());
    let mut whole: Option<Buf> = None;
    for Piece { extent, original, copy, bytes } in pieces {
        let (mut piece, mut read) = shared.slow.read(original, buf.split_to(bytes)).await;
        match copy {
            // The copy's slot is written as a whole when it is used again, which is what has a drive
            // replace a sector.
            Some(_) if read.is_ok() => {
                shared.state.borrow_mut().bad_copies.insert(extent);
            }
            Some(copy) => (piece, read) = shared.fast.read(copy, piece).await,
            None => {}
        }
        outcome = outcome.and(read.map_err(Error::from));
        match &mut whole {
            Some(whole) => whole.unsplit(piece),
            None => whole = Some(piece),
        }
    }
    let mut whole = whole.expect("a part has bytes");
    whole.unsplit(buf);
    (whole, outcome)
}

/// What is read of one extent: where its copy has it, and what that was made of.
struct Piece {
    extent: ExtentId,
    original: u64,
    /// `None`: it was given up meanwhile, and what it was made of is the home.
    copy: Option<u64>,
    bytes: usize,
}

/// The extents of a range, each by itself. `None`: some of it is on the fast drive alone.
fn originals(state: &State, at: u64, length: u64) -> Option<Vec<Piece>> {
    let extent_bytes = state.geometry.extent_bytes;
    let end = at + length;
    let pieces = (at / extent_bytes..end.div_ceil(extent_bytes)).map(ExtentId).map(|extent| {
        let mapping = state.map.get(extent);
        let home = mapping.home()?;
        let (mut original, copy) = match home.tier {
            Tier::Slow => (Some(home), None),
            Tier::Fast => (mapping.original(), Some(home)),
        };
        if canary!(DirtyReadFromOriginal) {
            original = original.or(state.geometry.own_slot(extent));
        }
        let start = at.max(extent.0 * extent_bytes);
        let inside = start % extent_bytes;
        Some(Piece {
            extent,
            original: state.geometry.position(original?) + inside,
            copy: copy.map(|home| state.geometry.position(home) + inside),
            bytes: (end.min((extent.0 + 1) * extent_bytes) - start) as usize,
        })
    });
    pieces.collect()
}

enum Submitted {
    Done(Buf),
    UnderWay(Watched<Transfer>),
    Around(Around, Buf),
    /// It was submitted before the client asked; the client's own buffer.
    Ahead(Watched<Transfer>, Buf),
}

fn submit(shared: &Shared, source: &Source, mut buf: Buf) -> Submitted {
    match source {
        Source::Zeros | Source::Lost | Source::Gone(..) => {
            buf.fill(0);
            Submitted::Done(buf)
        }
        // Not waited for in between: what the plan saw is still there.
        Source::Memory { first, .. } => {
            let state = shared.state.borrow();
            for (block, bytes) in (first.0..).zip(buf.chunks_exact_mut(BLOCK)) {
                let kept = state.kept.get(BlockId(block)).expect("kept when it was planned");
                bytes.copy_from_slice(kept);
            }
            drop(state);
            Submitted::Done(buf)
        }
        // The same.
        Source::Staged { extent, offset } => {
            let mut state = shared.state.borrow_mut();
            marks::hit(Mark::ReadStaged);
            let image = state.stage.get(*extent).expect("staged when it was planned");
            let end = *offset + buf.len();
            buf.copy_from_slice(&image[*offset..end]);
            Submitted::Done(buf)
        }
        Source::Around { extent, position, offset, by_stream } => {
            Submitted::Around(Around::begin(shared, *extent, *position, *offset, *by_stream), buf)
        }
        Source::Home { tier, position } => {
            let drive = shared.drive(*tier);
            let foreseen = drive.foreseen(*position, &mut buf);
            if foreseen.is_some() {
                marks::hit(Mark::ReadForeseen);
            }
            match foreseen {
                None => Submitted::UnderWay(drive.read(*position, buf)),
                Some(Foreseen::Coming(transfer)) => Submitted::Ahead(transfer, buf),
                Some(Foreseen::Whole(image)) => Submitted::Done(instead(image, buf)),
                Some(Foreseen::Copied) => Submitted::Done(buf),
            }
        }
        Source::Log { position, .. } => Submitted::UnderWay(shared.fast.read(*position, buf)),
    }
}

fn verify(source: &Source, at: u64, data: &[u8]) -> Result<(), Error> {
    let crcs = match source {
        Source::Log { crcs, .. } => crcs,
        Source::Lost => return Err(Error::Checksum { tier: Tier::Fast, at }),
        Source::Gone(gone, cause) => return Err(Error::Lost { gone: *gone, at, cause: *cause }),
        Source::Zeros | Source::Memory { .. } | Source::Home { .. } => return Ok(()),
        Source::Staged { .. } | Source::Around { .. } => return Ok(()),
    };
    for (n, (block, crc)) in data.chunks_exact(BLOCK).zip(crcs).enumerate() {
        if crc32c(block) != *crc && !canary!(ReadUnchecked) {
            return Err(Error::Checksum { tier: Tier::Fast, at: at + n as u64 * BLOCK_BYTES });
        }
    }
    Ok(())
}
