//! A running volume: opening, serving, closing.

use std::rc::Rc;

use io::{
    Buf, Device, Durability, ErrorKind, Io, IoError, Lent, Span, Volume, VolumeInfo, Worth,
    ZeroMode,
};

use crate::address::{BLOCK_BYTES, ExtentId, Lsn, Tier};
use crate::behind;
use crate::cache_mode::CacheMode;
use crate::canary::canary;
use crate::checkpoint::{checkpoint, vouch, write_superblock};
use crate::doubts::Vouch;
use crate::error::{Error, Poison};
use crate::flush::{self, Owed, flush_all};
use crate::flush_mode::FlushMode;
use crate::format::superblock::State as Left;
use crate::geometry::Class;
use crate::loss::{self, LostRange};
use crate::marks::{self, Mark};
use crate::opening::{self, Member, OpenOptions};
use crate::quiet::WakeCause;
use crate::shared::Shared;
use crate::status::{BehindStatus, DriveStatus, Exposed, LogStatus, PolicyStatus, Status};
use crate::tuning::{self, TuningChange};
use crate::whereabouts::Opinion;
use crate::wishes::{Wish, Wishes};
use crate::{
    alone, deferred, homing, janitor, lasting_heat, read, verify, whereabouts, write, zero,
};

/// Largest buffer one call takes: a large record, and what keeps one request from holding up
/// others.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Smallest unit of access that clients may use.
const SECTOR_BYTES: u64 = 512;

/// A running volume. Clones are the same volume.
///
/// Requests must be awaited to their end: what a dropped one would have settled stays open.
#[derive(Clone)]
pub struct Engine(Rc<Shared>);

impl Engine {
    /// Opens the volume that lies on these drives, replays its log, and starts its background
    /// work.
    ///
    /// # Errors
    /// `NotAMember`, `Mismatch`, `Unfit`, `Superblock` or `Damaged` with what is wrong and what to do; then
    /// nothing was changed. Or a device's error.
    pub async fn open(
        io: &Io,
        fast: &Device,
        slow: &Device,
        options: OpenOptions,
    ) -> Result<Engine, Error> {
        let members = [Member::Here(fast.clone()), Member::Here(slow.clone())];
        Engine::open_members(io, members, options).await
    }

    /// As [`Engine::open`], also when a drive is gone: then with `options.degraded` what the other
    /// drive has can be read.
    ///
    /// # Errors
    /// As [`Engine::open`]; without `options.degraded` also `DriveGone` with what could be read.
    pub async fn open_members(
        io: &Io,
        members: [Member; 2],
        options: OpenOptions,
    ) -> Result<Engine, Error> {
        opening::open(io, members, options).await.map(Engine)
    }

    /// Closes the volume in order: waits for requests under way, makes everything durable, writes
    /// the map, and marks both drives clean. Further requests are refused.
    ///
    /// # Errors
    /// When the volume was poisoned, or a device fails; everything flushed before is safe.
    pub async fn close(&self) -> Result<(), Error> {
        let shared = &self.0;
        if shared.read_only {
            shared.state.borrow_mut().closing = true;
            return Ok(());
        }
        if shared.state.borrow().closing {
            // Somebody closes it already: both calls end when it is closed.
            shared.ended.until(|| shared.state.borrow().closed.then_some(())).await;
            let stopped = shared.state.borrow().stopped().cloned();
            return stopped.map_or(Ok(()), |cause| Err(Error::Poisoned(cause)));
        }
        if shared.is_alone() {
            return self.close_alone().await;
        }
        if let Err(error) = shared.unpoisoned() {
            // Nothing more can be made durable; the writer has nothing left to do.
            shared.state.borrow_mut().closed = true;
            shared.log_work.wake_all();
            shared.flush_work.wake_all();
            shared.behind_work.wake_all();
            return Err(error);
        }
        {
            let mut state = shared.state.borrow_mut();
            state.closing = true;
            // Whoever closes it knows that both drives are needed for that.
            state.quiet.set(false);
        }
        // It may have hours to go.
        self.cancel_homecoming();
        self.requests_ended().await;
        shared.janitor_work.wake_all();
        shared.janitor_work.until(|| shared.janitor_ended.get().then_some(())).await;
        let outcome = self.settle_all().await;
        if outcome.is_err() {
            shared.leave_failed_fast();
            if shared.is_alone() {
                return self.end_alone().await;
            }
        }
        shared.state.borrow_mut().closed = true;
        shared.log_work.wake_all();
        shared.flush_work.wake_all();
        shared.behind_work.wake_all();
        shared.ended.wake_all();
        outcome
    }

    /// As [`Engine::close`], of the slow drive alone.
    async fn close_alone(&self) -> Result<(), Error> {
        self.0.state.borrow_mut().closing = true;
        self.requests_ended().await;
        self.end_alone().await
    }

    /// Nothing that clients asked for is under way, what was acknowledged before it is written included.
    async fn requests_ended(&self) {
        let shared = &self.0;
        behind::hurry(shared);
        shared.ended.until(|| shared.state.borrow().requests_ended().then_some(())).await;
    }

    async fn end_alone(&self) -> Result<(), Error> {
        let shared = &self.0;
        let outcome = alone::close(shared).await;
        shared.state.borrow_mut().closed = true;
        for list in [&shared.log_work, &shared.flush_work, &shared.behind_work, &shared.ended] {
            list.wake_all();
        }
        outcome
    }

    async fn settle_all(&self) -> Result<(), Error> {
        let shared = &self.0;
        homing::end(shared).await?;
        flush_all(shared).await?;
        if canary!(CleanBeforeMap) {
            write_superblock(shared, |superblock| superblock.state = Left::Clean).await?;
        }
        vouch(shared, Vouch::Everything).await?;
        checkpoint(shared).await?;
        lasting_heat::save(shared).await;
        write_superblock(shared, |superblock| superblock.state = Left::Clean).await?;
        marks::hit(Mark::Closed);
        Ok(())
    }

    /// Changes what clients' flushes promise, now and for later openings. Everything that ended
    /// before the call is durable when it returns.
    ///
    /// # Errors
    /// When the volume takes no writes, or a device fails; then the volume is poisoned.
    pub async fn set_flush_mode(&self, mode: FlushMode) -> Result<(), Error> {
        if self.0.read_only {
            return Err(Error::ReadOnly);
        }
        self.refuse_alone()?;
        self.0.alive()?;
        let _request = Request::begin(&self.0);
        deferred::set_mode(&self.0, mode).await
    }

    /// Changes when writes are on the slow drive, now and for later openings. Into write-through it
    /// returns when everything is there.
    ///
    /// # Errors
    /// `Unsuitable` for a volume of another class, or in deferred durability; when the volume takes
    /// no writes, or a device fails.
    pub async fn set_cache_mode(&self, mode: CacheMode) -> Result<(), Error> {
        if self.0.read_only {
            return Err(Error::ReadOnly);
        }
        if self.0.is_alone() {
            let text = "the fast drive is gone: there is nothing to set a mode for";
            return Err(Error::Unsuitable(text.into()));
        }
        self.0.alive()?;
        let _request = Request::begin(&self.0);
        behind::all_written(&self.0).await;
        homing::set_mode(&self.0, mode).await
    }

    /// Class cache: brings home what only the fast drive has, and returns when all is there. What
    /// clients write meanwhile goes home at once.
    ///
    /// # Errors
    /// `Unsuitable` for a volume of another class, in deferred durability, or when it was cancelled;
    /// when the volume takes no writes, or a device fails.
    pub async fn bring_home(&self) -> Result<(), Error> {
        if self.0.read_only {
            return Err(Error::ReadOnly);
        }
        if self.0.is_alone() {
            let text = "the fast drive is gone: the slow one has all there is";
            return Err(Error::Unsuitable(text.into()));
        }
        self.0.alive()?;
        let _request = Request::begin(&self.0);
        behind::all_written(&self.0).await;
        homing::bring_home(&self.0).await
    }

    /// Ends [`Engine::bring_home`], or a change into write-through, if one is under way.
    pub fn cancel_homecoming(&self) {
        if let Some(homecoming) = &mut self.0.state.borrow_mut().homecoming {
            *homecoming = homing::Homecoming::Cancelled;
        }
    }

    /// Changes a setting of placement, now and for later openings.
    ///
    /// # Errors
    /// When the volume takes no writes, or a device fails.
    pub async fn tune(&self, change: TuningChange) -> Result<(), Error> {
        if self.0.read_only {
            return Err(Error::ReadOnly);
        }
        self.refuse_alone()?;
        self.0.alive()?;
        let _request = Request::begin(&self.0);
        tuning::set(&self.0, change).await
    }

    /// Wishes something for the extents of ranges (offset and length in bytes), now and for later
    /// openings, or nothing any more; for all of them or none. What is pinned moves when clients rest.
    ///
    /// # Errors
    /// `Unsuitable` when there are too many ranges, or more is pinned than fits; when the volume takes
    /// no writes, or a device fails.
    pub async fn wish(&self, ranges: &[(u64, u64)], wish: Option<Wish>) -> Result<(), Error> {
        for (at, length) in ranges {
            self.check(*at, *length, true)?;
        }
        self.refuse_alone()?;
        let _request = Request::begin(&self.0);
        tuning::wish(&self.0, ranges, wish).await
    }

    /// Refuses what is about two drives while there is one. The volume takes writes then, and nothing of it
    /// has failed, though the part of the engine that has both drives counts as stopped.
    fn refuse_alone(&self) -> Result<(), Error> {
        if !self.0.is_alone() {
            return Ok(());
        }
        let text = "the fast drive is gone, and nothing can be set or wished for the volume until \
                    attach-cache has given it a new one";
        Err(Error::Unsuitable(text.into()))
    }

    /// What is wished for ranges of the volume.
    pub fn wishes(&self) -> Wishes {
        self.0.state.borrow().wishes.clone()
    }

    /// Waits until the slow drive of a quiet volume is woken, if it was not since this was last asked;
    /// tells by what, last.
    pub async fn woken(&self) -> WakeCause {
        let told = self.0.state.borrow().quiet.told();
        told.until(|| self.0.state.borrow_mut().quiet.take_news()).await
    }

    /// Waits until the volume stops taking writes, or, as a cache in write-through, goes on without its fast
    /// drive (`Status::alone`); tells why.
    pub async fn stopped(&self) -> Poison {
        self.0.flush_work.until(|| self.0.state.borrow().poisoned.clone()).await
    }

    /// What can be seen of the volume now.
    pub fn status(&self) -> Status {
        let shared = &self.0;
        let state = shared.state.borrow();
        let superblock = shared.superblock.borrow();
        let drive = |tier: Tier| {
            let drive = shared.drive(tier);
            let slots = &state.slots[tier.index()];
            DriveStatus {
                tier,
                path: drive.info().path.clone(),
                drive_id: superblock.drive_ids[tier.index()],
                slots: slots.slots(),
                slots_free: slots.free(),
                traffic: drive.traffic(),
                first_error: drive.first_error(),
                gone: drive.gone(),
            }
        };
        let counters = &state.counters;
        let dirty_bytes = match shared.geometry.class {
            Class::Cache => state.map.dirty_bytes(shared.geometry.extent_bytes),
            Class::Span => 0,
        };
        Status {
            name: superblock.name.clone(),
            volume_id: superblock.volume_id,
            generation: superblock.generation,
            geometry: shared.geometry.clone(),
            read_only: shared.read_only,
            poisoned: state.stopped().cloned(),
            cache_mode: (shared.geometry.class == Class::Cache).then_some(superblock.cache_mode),
            alone: state.is_alone() && !shared.read_only,
            dirty_bytes: state.dirty_bytes() + dirty_bytes,
            loss: state
                .loss
                .as_ref()
                .filter(|_| !state.is_alone() || shared.read_only)
                .map(|loss| loss.summary.clone()),
            drives: [drive(Tier::Fast), drive(Tier::Slow)],
            reads: counters.reads,
            writes: counters.writes,
            trims: counters.trims,
            flushes_asked: counters.flushes_asked,
            served: counters.served,
            served_reads: counters.served_reads,
            flush_mode: state.exposure.mode(),
            exposed: Exposed {
                bytes: state.exposure.bytes(),
                age_ns: state.exposure.age_ns(shared.io.now_ns()),
            },
            behind: BehindStatus {
                bytes_max: state.behind.bytes_max(),
                bytes: state.behind.bytes(),
                age_ns: state.behind.age_ns(shared.io.now_ns()),
            },
            log: LogStatus {
                size_bytes: shared.geometry.layouts[0].log_bytes,
                used_bytes: state.log.used_blocks() * BLOCK_BYTES,
                dirty_bytes: state.dirty_bytes(),
                full_waits: counters.full_waits,
                checkpoints: counters.checkpoints,
                checkpoint_ns: counters.checkpoint_ns,
                map_pages_written: counters.map_pages_written,
            },
            moves: counters.moves,
            policy: PolicyStatus {
                decisions: state.placer.heat.decisions,
                stage_bytes_max: state.stage.bytes_max(&shared.geometry),
                stage_bytes: state.stage.memory_bytes(),
                read_us: state.placer.heat.costs.read_ms() * 1e3,
                around_us: state.placer.heat.costs.around_ms() * 1e3,
                ghosts: state.placer.ghosts.hit_ratios(),
                met: state.courtesy.met(),
                tuning: superblock.tuning,
                wakes: state.quiet.wakes(),
            },
            extents_mapped: state.map.mapped(),
            extents_clean: state.map.clean(),
            extents_in_part: state.map.in_part(),
            part_bytes: state.map.part_bytes(),
            memory_bytes: state.memory_bytes(),
            recovery: state.recovery,
        }
    }

    /// What cannot be read of a part of the volume, in order, neighbours of one cause merged. Ask in
    /// parts of a large volume: a call keeps everybody else waiting.
    pub fn lost_ranges(&self, at: u64, length: u64) -> Vec<LostRange> {
        let state = self.0.state.borrow();
        let end = at.saturating_add(length).min(self.0.geometry.volume_bytes);
        let extent_bytes = self.0.geometry.extent_bytes;
        loss::ranges(&state, at / extent_bytes..end.div_ceil(extent_bytes))
    }

    /// Checks a request's range, and that the volume takes requests of its kind.
    fn check(&self, at: u64, length: u64, writes: bool) -> Result<(), Error> {
        let size = self.0.geometry.volume_bytes;
        if at.checked_add(length).is_none_or(|end| end > size) {
            return Err(Error::Range(format!(
                "{length} bytes at {at} go beyond the end of the volume ({size})"
            )));
        }
        if !at.is_multiple_of(SECTOR_BYTES) || !length.is_multiple_of(SECTOR_BYTES) {
            return Err(Error::Range(format!(
                "{length} bytes at {at} are not in units of {SECTOR_BYTES}"
            )));
        }
        if writes {
            if self.0.read_only {
                return Err(Error::ReadOnly);
            }
            if !self.0.is_alone() {
                return self.0.alive();
            }
            if let Some(failed) = self.0.state.borrow().stopped() {
                return Err(Error::Poisoned(failed.clone()));
            }
        }
        if self.0.state.borrow().closing {
            return Err(Error::Poisoned("it was closed".to_owned().into()));
        }
        Ok(())
    }

    async fn read_any(&self, at: u64, buf: Buf) -> (Buf, Result<(), Error>) {
        if buf.is_empty() {
            return (buf, Ok(()));
        }
        let length = buf.len() as u64;
        if at.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES) {
            return read::read_blocks(&self.0, at, buf).await;
        }
        Box::pin(self.read_unaligned(at, buf)).await
    }

    async fn read_unaligned(&self, at: u64, mut buf: Buf) -> (Buf, Result<(), Error>) {
        let length = buf.len();
        let start = at / BLOCK_BYTES * BLOCK_BYTES;
        let end = (at + length as u64).next_multiple_of(BLOCK_BYTES);
        let blocks = self.0.io.pool().take((end - start) as usize);
        let (blocks, outcome) = read::read_blocks(&self.0, start, blocks).await;
        let offset = (at - start) as usize;
        buf.copy_from_slice(&blocks[offset..][..length]);
        (buf, outcome)
    }
}

/// Counts a request while it runs, so that the background knows when clients are idle.
pub(crate) struct Request<'a>(&'a Shared);

impl<'a> Request<'a> {
    pub(crate) fn begin(shared: &'a Shared) -> Request<'a> {
        let now_ns = shared.io.now_ns();
        let mut state = shared.state.borrow_mut();
        state.last_request_ns = now_ns;
        state.placer.set_clock(now_ns);
        state.requests_under_way += 1;
        Request(shared)
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let closing = {
            let mut state = self.0.state.borrow_mut();
            state.requests_under_way -= 1;
            state.closing
        };
        if closing {
            self.0.ended.wake_all();
        } else {
            janitor::wake_if_needed(self.0);
        }
    }
}

impl Volume for Engine {
    fn info(&self) -> VolumeInfo {
        VolumeInfo {
            size_bytes: self.0.geometry.volume_bytes,
            sector_bytes: SECTOR_BYTES as u32,
            preferred_bytes: BLOCK_BYTES as u32,
            transfer_bytes_max: TRANSFER_BYTES_MAX,
            read_only: self.0.read_only,
        }
    }

    async fn read(&self, at: u64, buf: Buf) -> (Buf, Result<(), IoError>) {
        let length = buf.len() as u64;
        if let Err(error) = self.check(at, length, false) {
            return (buf, Err(error.into()));
        }
        let _request = Request::begin(&self.0);
        if let Err(error) = behind::seen(&self.0, at, length).await {
            return (buf, Err(error.into()));
        }
        let (buf, outcome) = self.read_any(at, buf).await;
        let mut state = self.0.state.borrow_mut();
        state.counters.reads.count += 1;
        state.counters.reads.bytes += length;
        drop(state);
        (buf, outcome.map_err(IoError::from))
    }

    async fn read_lent(&self, at: u64, memory: Lent) -> bool {
        let length = u64::from(memory.bytes);
        let in_blocks = at.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        if length == 0 || !in_blocks || self.check(at, length, false).is_err() {
            return false;
        }
        let _request = Request::begin(&self.0);
        if behind::seen(&self.0, at, length).await.is_err() {
            return false;
        }
        let served = read::read_lent(&self.0, at, memory).await;
        if served {
            let mut state = self.0.state.borrow_mut();
            state.counters.reads.count += 1;
            state.counters.reads.bytes += length;
        }
        served
    }

    async fn write(&self, at: u64, buf: Buf, durability: Durability) -> (Buf, Result<(), IoError>) {
        let length = buf.len() as u64;
        if let Err(error) = self.check(at, length, true) {
            return (buf, Err(error.into()));
        }
        if length > u64::from(TRANSFER_BYTES_MAX) {
            let text = format!("a write of {length} bytes exceeds {TRANSFER_BYTES_MAX} at a time");
            return (buf, Err(IoError::new(ErrorKind::Range, text)));
        }
        let _request = Request::begin(&self.0);
        if durability == Durability::Durable {
            self.0.state.borrow_mut().counters.flushes_asked += 1;
        }
        let owed = Owed::by(&self.0, durability);
        let (buf, outcome) = match behind::take(&self.0, at, buf, durability).await {
            Ok(()) => (self.0.io.pool().take(0), Ok(())),
            Err(buf) if length == 0 => (buf, Ok(())),
            Err(buf) => write::write(&self.0, at, buf, owed).await,
        };
        let mut state = self.0.state.borrow_mut();
        state.counters.writes.count += 1;
        state.counters.writes.bytes += length;
        drop(state);
        (buf, outcome.map_err(IoError::from))
    }

    async fn flush(&self) -> Result<(), IoError> {
        if self.0.read_only {
            return Ok(());
        }
        self.check(0, 0, true)?;
        let _request = Request::begin(&self.0);
        self.0.state.borrow_mut().counters.flushes_asked += 1;
        let owed = Owed::flush(&self.0);
        if !canary!(FlushForgetsBehind) {
            behind::all_written(&self.0).await;
        }
        Ok(flush::settle(&self.0, owed).await?)
    }

    async fn trim(&self, at: u64, length: u64, durability: Durability) -> Result<(), IoError> {
        self.check(at, length, true)?;
        let _request = Request::begin(&self.0);
        self.count_trim(length);
        let owed = Owed::by(&self.0, durability);
        behind::seen(&self.0, at, length).await?;
        Ok(zero::trim(&self.0, at, length, owed).await?)
    }

    async fn write_zeroes(
        &self,
        at: u64,
        length: u64,
        mode: ZeroMode,
        durability: Durability,
    ) -> Result<(), IoError> {
        self.check(at, length, true)?;
        let _request = Request::begin(&self.0);
        self.count_trim(length);
        let owed = Owed::by(&self.0, durability);
        behind::seen(&self.0, at, length).await?;
        Ok(zero::write_zeroes(&self.0, at, length, mode, owed).await?)
    }

    async fn cache(&self, at: u64, length: u64) -> Result<(), IoError> {
        self.check(at, length, false)?;
        if length == 0 {
            return Ok(());
        }
        {
            let mut state = self.0.state.borrow_mut();
            let last = state.extent_of(at + length - 1);
            for extent in (state.extent_of(at).0..=last.0).map(ExtentId) {
                let mapping = state.map.get(extent);
                let below = mapping.home().is_some_and(|home| home.tier == Tier::Slow);
                if below || mapping.part().is_some() {
                    state.placer.request(extent);
                }
            }
        }
        janitor::wake_if_needed(&self.0);
        Ok(())
    }

    fn places(&self, at: u64, length: u64, spans_max: usize) -> Vec<Span> {
        whereabouts::places(&self.0, at, length, spans_max)
    }

    fn worths(&self, at: u64, length: u64, runs_max: usize) -> Vec<Worth> {
        whereabouts::worths(&self.0, at, length, runs_max)
    }
}

impl Engine {
    /// What the volume thinks of each extent of a range.
    pub fn opinions(&self, at: u64, length: u64) -> Vec<Opinion> {
        whereabouts::opinions(&self.0, at, length)
    }

    fn count_trim(&self, length: u64) {
        let mut state = self.0.state.borrow_mut();
        state.counters.trims.count += 1;
        state.counters.trims.bytes += length;
    }

    /// Recomputes every invariant of the memory and says which do not hold, for tests: at a moment
    /// when nothing is under way, such as after [`Engine::close`].
    pub fn verify(&self) -> Vec<String> {
        verify::verify(&mut self.0.state.borrow_mut())
    }

    /// Whether something that was acknowledged may be in this process's memory alone: in write-behind, and
    /// where the slow drive goes on alone. Otherwise what has ended is on the drives, and a client that outlives
    /// this process misses nothing.
    pub fn keeps_in_memory(&self) -> bool {
        let state = self.0.state.borrow();
        state.behind.bytes_max() > 0 || !state.behind.is_empty() || state.is_alone()
    }

    /// End of the log, for tests and reports: every change so far has a smaller LSN.
    pub fn log_end(&self) -> Lsn {
        self.0.state.borrow().log.end()
    }
}
