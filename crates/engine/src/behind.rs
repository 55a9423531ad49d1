//! Write-behind: a bounded part of what clients write is acknowledged before it has reached a drive,
//! as any drive with a cache of its own does.
//!
//! * What is acknowledged so is *behind*: nobody sees anything else from then on. Who asks for the
//!   same blocks waits until they are written; a flush waits for all that is behind when it comes.
//! * Off unless it was set. Never where order is promised (deferred durability), and not for parts of
//!   a block, which are read first.
//! * Writes gather behind for a moment and begin together, at once when somebody waits for them: to
//!   hand a drive one write costs nearly as much as to hand it thirty. Where a flush came after every few of
//!   them lately, the first does not wait for others: the drive works while the answer travels and the flush comes.
//! * Beyond the size, and while the oldest write behind waits for longer than [`AGE_NS_MAX`], a write
//!   is acknowledged when it is written, as ever: a drive that hangs stops clients.
//! * A write behind that fails stops the volume, for its client was told otherwise: no flush succeeds
//!   any more, and reading what was lost is an error.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;

use io::{Buf, Durability, Hands};

use crate::address::BLOCK_BYTES;
use crate::alone;
use crate::canary::canary;
use crate::engine::Request;
use crate::error::{Error, Poison};
use crate::fixed_map::FixedMap;
use crate::flush::Owed;
use crate::marks::{self, Mark};
use crate::shared::Shared;
use crate::state::State;
use crate::write::write;

/// Nothing more goes behind while something has waited there for this long.
const AGE_NS_MAX: u64 = io::units::SECOND_NS;
/// Writes on their way at once: what keeps a drive busy. The rest waits in memory, where it is in
/// nobody's way.
const UNDER_WAY_MAX: usize = 64;
/// So many begin together without waiting for more.
const GATHERED_ENOUGH: usize = 32;
/// Fewer wait this long for others: a few round trips of a client that writes one by one.
const GATHER_NS: u64 = 500 * io::units::MICROSECOND_NS;
/// With no more writes than this from one flush to the next, the next one is near.
const FEW: u64 = 4;

/// A write that was acknowledged and has not begun.
struct Job {
    at: u64,
    buf: Buf,
}

/// A write that was acknowledged, until all before it are done too.
struct Entry {
    since_ns: u64,
    bytes: u64,
    done: bool,
}

/// What is behind.
#[derive(Default)]
pub(crate) struct Behind {
    /// The most that may be; 0: it is off.
    bytes_max: u64,
    bytes: u64,
    /// Of `entries` the last ones.
    waiting: VecDeque<Job>,
    /// Somebody waits for what waits.
    urgent: bool,
    under_way: usize,
    /// The number of the next write when the last flush came, and how many there had been since the one before.
    flushed_at: u64,
    last_run: Option<u64>,
    /// Oldest first; the first one has the number `first`.
    entries: VecDeque<Entry>,
    first: u64,
    /// The blocks of writes that are not done, with the number of the write.
    blocks: FixedMap<u64, u64>,
    /// What was acknowledged and could not be written.
    lost: Vec<Range<u64>>,
}

impl Behind {
    pub fn new(bytes_max: u64) -> Behind {
        Behind { bytes_max, ..Behind::default() }
    }

    /// Changes the bound. What is behind already is written all the same.
    pub fn resize(&mut self, bytes_max: u64) {
        self.bytes_max = bytes_max;
    }

    pub fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Bytes behind now.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How long the oldest has been waiting.
    pub fn age_ns(&self, now_ns: u64) -> u64 {
        self.entries.front().map_or(0, |entry| now_ns.saturating_sub(entry.since_ns))
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    fn has_room(&self, bytes: u64, now_ns: u64) -> bool {
        self.bytes + bytes <= self.bytes_max && self.age_ns(now_ns) < AGE_NS_MAX
    }

    /// Whether something of the range is behind.
    pub fn overlaps(&self, at: u64, length: u64) -> bool {
        !self.blocks.is_empty() && blocks(at, length).any(|block| self.blocks.contains_key(&block))
    }

    pub fn is_lost(&self, at: u64, length: u64) -> bool {
        self.lost.iter().any(|lost| lost.start < at + length && at < lost.end)
    }

    /// The number of the next write.
    fn next(&self) -> u64 {
        self.first + self.entries.len() as u64
    }

    /// A client has asked for a flush.
    fn flushed(&mut self) {
        let next = self.next();
        // Flushes of others that write elsewhere say nothing.
        if next != self.flushed_at {
            self.last_run = Some(next - self.flushed_at);
            self.flushed_at = next;
        }
    }

    /// Whether a flush is likely to come soon.
    fn flush_is_near(&self) -> bool {
        self.last_run.is_some_and(|run| run <= FEW) && self.next() - self.flushed_at <= FEW
    }

    /// Says whether the one who begins must look.
    fn take(&mut self, at: u64, buf: Buf, now_ns: u64) -> bool {
        let number = self.next();
        let bytes = buf.len() as u64;
        self.bytes += bytes;
        self.entries.push_back(Entry { since_ns: now_ns, bytes, done: false });
        for block in blocks(at, bytes) {
            self.blocks.insert(block, number);
        }
        self.waiting.push_back(Job { at, buf });
        self.waiting.len() == 1 || self.waiting.len() == GATHERED_ENOUGH
    }

    /// When to begin what waits, on the clock; `None` while nothing can.
    fn due_ns(&self) -> Option<u64> {
        if self.waiting.is_empty() || self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        let oldest = &self.entries[self.entries.len() - self.waiting.len()];
        let at_once = self.urgent
            || self.waiting.len() >= GATHERED_ENOUGH
            || self.under_way == 0 && self.flush_is_near();
        Some(oldest.since_ns + if at_once { 0 } else { GATHER_NS })
    }

    /// The write to begin now, with its number.
    fn begin(&mut self) -> Option<(u64, Job)> {
        if self.under_way >= UNDER_WAY_MAX {
            return None;
        }
        let number = self.first + (self.entries.len() - self.waiting.len()) as u64;
        let job = self.waiting.pop_front();
        self.urgent &= !self.waiting.is_empty();
        self.under_way += usize::from(job.is_some());
        job.map(|job| (number, job))
    }

    fn settle(&mut self, number: u64, at: u64) {
        self.under_way -= 1;
        let entry = &mut self.entries[(number - self.first) as usize];
        entry.done = true;
        let bytes = entry.bytes;
        self.bytes -= bytes;
        for block in blocks(at, bytes) {
            if self.blocks.get(&block) == Some(&number) {
                self.blocks.remove(&block);
            }
        }
        while self.entries.front().is_some_and(|entry| entry.done) {
            self.entries.pop_front();
            self.first += 1;
        }
    }
}

fn blocks(at: u64, length: u64) -> Range<u64> {
    at / BLOCK_BYTES..(at + length).div_ceil(BLOCK_BYTES)
}

/// Takes a client's write, which may be acknowledged then; or gives it back, to be written first.
/// Nothing of its blocks is behind in either case.
pub(crate) async fn take(
    shared: &Rc<Shared>,
    at: u64,
    buf: Buf,
    durability: Durability,
) -> Result<(), Buf> {
    let length = buf.len() as u64;
    if !canary!(BehindOvertaken) {
        until_written(shared, at, length).await;
    }
    let whole = at.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
    if !whole || length == 0 || durability == Durability::Durable {
        return Err(buf);
    }
    let looks = {
        let mut state = shared.state.borrow_mut();
        let now_ns = shared.io.now_ns();
        if !takes(&state, length, now_ns) {
            return Err(buf);
        }
        state.behind.take(at, buf, now_ns)
    };
    if looks {
        shared.behind_work.wake_all();
    }
    Ok(())
}

fn takes(state: &State, length: u64, now_ns: u64) -> bool {
    if state.behind.bytes_max == 0 {
        return false;
    }
    let ordered = state.exposure.ordered() && !canary!(BehindInDeferred);
    if ordered || state.poisoned.is_some() {
        return false;
    }
    let room = state.behind.has_room(length, now_ns);
    if !room {
        marks::hit(Mark::BehindFull);
    }
    room
}

/// Waits until nothing of the range is behind.
async fn until_written(shared: &Shared, at: u64, length: u64) {
    if !shared.state.borrow().behind.overlaps(at, length) {
        return;
    }
    marks::hit(Mark::BehindWaitedFor);
    hurry(shared);
    shared
        .behind_written
        .until(|| (!shared.state.borrow().behind.overlaps(at, length)).then_some(()))
        .await;
}

/// Has whoever asks for the range see what was acknowledged of it.
///
/// # Errors
/// When some of that could not be written.
pub(crate) async fn seen(shared: &Shared, at: u64, length: u64) -> Result<(), Error> {
    if !canary!(BehindNotSeen) {
        until_written(shared, at, length).await;
    }
    let state = shared.state.borrow();
    if state.behind.is_lost(at, length) && !canary!(BehindLossForgotten) {
        let cause = state.poisoned.clone().unwrap_or_else(|| "it was lost".to_owned().into());
        return Err(Error::Poisoned(cause));
    }
    Ok(())
}

/// Waits until all that is behind when it is called is written, or lost: then the volume is poisoned.
pub(crate) async fn all_written(shared: &Shared) {
    let end = {
        let behind = &mut shared.state.borrow_mut().behind;
        behind.flushed();
        behind.next()
    };
    hurry(shared);
    shared.behind_written.until(|| (shared.state.borrow().behind.first >= end).then_some(())).await;
}

/// Has all that waits begin now.
pub(crate) fn hurry(shared: &Shared) {
    let waits = {
        let behind = &mut shared.state.borrow_mut().behind;
        behind.urgent = !behind.waiting.is_empty();
        behind.urgent
    };
    if waits {
        shared.behind_work.wake_all();
    }
}

/// Begins what waits, until the volume is closed.
pub(crate) async fn run(shared: Rc<Shared>) {
    let hands = {
        let known = shared.clone();
        Hands::new(&shared.io, move |(number, job)| carry_out(known.clone(), number, job))
    };
    loop {
        let due_ns = {
            let state = shared.state.borrow();
            if state.closed {
                return;
            }
            state.behind.due_ns()
        };
        if due_ns.is_none_or(|due_ns| due_ns > shared.io.now_ns()) {
            shared.woken_or_at(&shared.behind_work, due_ns).await;
            continue;
        }
        loop {
            let next = shared.state.borrow_mut().behind.begin();
            let Some((number, job)) = next else { break };
            hands.give((number, job));
        }
    }
}

async fn carry_out(shared: Rc<Shared>, number: u64, Job { at, buf }: Job) {
    let length = buf.len() as u64;
    let request = Request::begin(&shared);
    let (_, outcome) = write(&shared, at, buf, Owed::Bound).await;
    if let Err(error) = outcome {
        marks::hit(Mark::BehindFailed);
        shared.state.borrow_mut().behind.lost.push(at..at + length);
        if !matches!(error, Error::Poisoned(_)) && !canary!(BehindFailureIgnored) {
            let what = "a write that was acknowledged before it reached its drive failed";
            if shared.is_alone() {
                alone::lose_write(&shared, what, error);
            } else {
                shared.poison(Poison::by(what, error));
            }
        }
    }
    let waits = {
        let behind = &mut shared.state.borrow_mut().behind;
        behind.settle(number, at);
        !behind.waiting.is_empty()
    };
    shared.behind_written.wake_all();
    if waits {
        shared.behind_work.wake_all();
    }
    drop(request);
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Pool;

    fn block_of(pool: &Pool) -> Buf {
        pool.take_zeroed(BLOCK_BYTES as usize)
    }

    #[test]
    fn what_is_behind_is_bounded_by_size_and_by_age() {
        let pool = Pool::new(0);
        let mut behind = Behind::new(2 * BLOCK_BYTES);
        assert!(behind.has_room(2 * BLOCK_BYTES, 0) && !behind.has_room(3 * BLOCK_BYTES, 0));
        behind.take(0, block_of(&pool), 5);
        assert!(behind.has_room(BLOCK_BYTES, 6) && !behind.has_room(2 * BLOCK_BYTES, 6));
        assert!(!behind.has_room(BLOCK_BYTES, 5 + AGE_NS_MAX), "the first one hangs");
        assert_eq!((behind.bytes(), behind.age_ns(7)), (BLOCK_BYTES, 2));
    }

    #[test]
    fn writes_that_end_out_of_order_are_over_when_all_before_them_are() {
        let pool = Pool::new(0);
        let mut behind = Behind::new(64 * BLOCK_BYTES);
        for n in 0..3 {
            assert_eq!(behind.take(n * BLOCK_BYTES, block_of(&pool), n), n == 0);
        }
        let numbers: Vec<u64> = (0..3).map(|_| behind.begin().unwrap().0).collect();
        assert_eq!(numbers, [0, 1, 2]);
        behind.settle(1, BLOCK_BYTES);
        assert!(!behind.overlaps(BLOCK_BYTES, BLOCK_BYTES) && behind.overlaps(0, BLOCK_BYTES));
        assert_eq!((behind.first, behind.bytes()), (0, 2 * BLOCK_BYTES));
        behind.settle(0, 0);
        assert_eq!((behind.first, behind.age_ns(10)), (2, 8));
        behind.settle(2, 2 * BLOCK_BYTES);
        assert!(behind.is_empty() && behind.blocks.is_empty() && behind.begin().is_none());
        assert_eq!(behind.under_way, 0);
    }

    #[test]
    fn few_writes_gather_and_many_or_awaited_ones_begin_at_once() {
        let pool = Pool::new(0);
        let mut behind = Behind::new(256 * BLOCK_BYTES);
        assert_eq!(behind.due_ns(), None);
        behind.take(0, block_of(&pool), 7);
        assert_eq!(behind.due_ns(), Some(7 + GATHER_NS));
        behind.urgent = true;
        assert_eq!(behind.due_ns(), Some(7));
        assert!(behind.begin().is_some() && behind.begin().is_none());
        assert!(!behind.urgent, "what comes later may gather again");
        let looks = (1..=64).filter(|n| behind.take(n * BLOCK_BYTES, block_of(&pool), *n));
        assert_eq!(looks.collect::<Vec<_>>(), [1, GATHERED_ENOUGH as u64]);
        assert_eq!(behind.due_ns(), Some(1));
        assert_eq!(std::iter::from_fn(|| behind.begin()).count(), UNDER_WAY_MAX - 1);
        assert_eq!(behind.due_ns(), None, "the drive has enough to do");
        behind.settle(0, 0);
        assert_eq!(behind.due_ns(), Some(64 + GATHER_NS));
    }

    #[test]
    fn the_first_write_behind_does_not_wait_where_flushes_come_often() {
        let pool = Pool::new(0);
        let mut behind = Behind::new(256 * BLOCK_BYTES);
        let write = |behind: &mut Behind, n: u64| {
            behind.take(n * BLOCK_BYTES, block_of(&pool), n);
        };
        write(&mut behind, 0);
        assert_eq!(behind.due_ns(), Some(GATHER_NS), "nothing is known yet");
        behind.flushed();
        behind.begin();
        behind.settle(0, 0);
        write(&mut behind, 1);
        assert_eq!(behind.due_ns(), Some(1), "one write, one flush: another is near");
        behind.begin();
        write(&mut behind, 2);
        assert_eq!(behind.due_ns(), Some(2 + GATHER_NS), "the drive works already");
        behind.settle(1, BLOCK_BYTES);
        assert_eq!(behind.due_ns(), Some(2));
        (3..6).for_each(|n| write(&mut behind, n));
        assert_eq!(behind.due_ns(), Some(2 + GATHER_NS), "more than a few and no flush");
        behind.flushed();
        behind.flushed();
        while let Some((number, job)) = behind.begin() {
            behind.settle(number, job.at);
        }
        write(&mut behind, 6);
        assert_eq!(behind.due_ns(), Some(6 + GATHER_NS), "the last run was longer");
    }
}
