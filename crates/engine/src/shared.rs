//! What every part of a running volume shares: the drives, the state, and the lists of those who
//! wait for it to change.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;

use io::{Gate, Io, WaitList};

use crate::accesses::Epoch;
use crate::address::{ExtentId, Home, Lsn, Tier};
use crate::drive::{Drive, Flushed};
use crate::error::{Error, Poison};
use crate::format::superblock::Superblock;
use crate::geometry::Geometry;
use crate::guards::Hold;
use crate::line::Place;
use crate::log::waits::WrittenWaits;
use crate::marks::{self, Mark};
use crate::state::State;

pub(crate) struct Shared {
    pub io: Io,
    pub fast: Drive,
    pub slow: Drive,
    pub geometry: Geometry,
    /// As last written to the drives; `role` is the fast drive's.
    pub superblock: RefCell<Superblock>,
    pub read_only: bool,
    pub state: RefCell<State>,
    /// The log writer waits here for records.
    pub log_work: WaitList,
    /// Who waits for records to be written.
    pub written: WrittenWaits,
    /// A flush ended.
    pub flushed: WaitList,
    /// The log's tail moved: there is room for the volume's own records. Clients wait in
    /// `State::room_line`.
    pub room: WaitList,
    /// An extent was released by its writer.
    pub released: WaitList,
    /// An access ended that someone may wait for.
    pub accessed: WaitList,
    /// The janitor waits here for something to do.
    pub janitor_work: WaitList,
    /// The flusher of deferred mode waits here for something to flush.
    pub flush_work: WaitList,
    /// The one who begins what was acknowledged before it is written waits here.
    pub behind_work: WaitList,
    /// Something that was acknowledged before it was written is written.
    pub behind_written: WaitList,
    /// Held while a superblock is written.
    pub superblock_turn: Gate,
    /// Held while something is done in the background, or a flush brings home what the log has.
    pub background: Gate,
    /// Held while the slow drive gets ready to go on alone.
    pub alone_turn: Gate,
    /// Held while the flush mode changes.
    pub mode_turn: Gate,
    /// Requests ended while the volume is being closed.
    pub ended: WaitList,
    /// The janitor has ended.
    pub janitor_ended: Cell<bool>,
    /// Callers that wait for accesses to end, so that ending one is cheap when there is none.
    pub drain_waiters: Cell<u32>,
}

impl Shared {
    /// Of a volume on whose state nothing waits yet.
    pub fn new(
        io: &Io,
        [fast, slow]: [Drive; 2],
        superblock: Superblock,
        state: State,
        read_only: bool,
    ) -> Shared {
        Shared {
            io: io.clone(),
            fast,
            slow,
            geometry: superblock.geometry.clone(),
            superblock: RefCell::new(superblock),
            read_only,
            state: RefCell::new(state),
            log_work: WaitList::new(),
            written: WrittenWaits::default(),
            flushed: WaitList::new(),
            room: WaitList::new(),
            released: WaitList::new(),
            accessed: WaitList::new(),
            janitor_work: WaitList::new(),
            flush_work: WaitList::new(),
            behind_work: WaitList::new(),
            behind_written: WaitList::new(),
            superblock_turn: Gate::new(1),
            background: Gate::new(1),
            alone_turn: Gate::new(1),
            mode_turn: Gate::new(1),
            ended: WaitList::new(),
            janitor_ended: Cell::new(false),
            drain_waiters: Cell::new(0),
        }
    }

    pub fn drive(&self, tier: Tier) -> &Drive {
        match tier {
            Tier::Fast => &self.fast,
            Tier::Slow => &self.slow,
        }
    }

    pub fn position(&self, home: Home) -> u64 {
        self.geometry.position(home)
    }

    /// Stops the volume: no write or flush succeeds from now on. The first cause stays.
    ///
    /// In write-through, when it is the fast drive that has failed, the slow one goes on alone:
    /// what is under way ends here and is done again there.
    pub fn poison(&self, cause: impl Into<Poison>) {
        let cause: Poison = cause.into();
        let alone = {
            let state = self.state.borrow();
            state.through && !state.is_alone() && self.fast.has_failed()
        };
        if alone {
            self.fast.declare_gone(cause.cause.clone());
            self.state.borrow_mut().go_alone(cause.cause.clone());
        }
        {
            let mut state = self.state.borrow_mut();
            if state.poisoned.is_none() {
                marks::hit(Mark::Poisoned);
                state.poisoned = Some(cause);
                state.log.put_back_carried();
            }
        }
        for list in [
            &self.log_work,
            &self.flushed,
            &self.room,
            &self.released,
            &self.accessed,
            &self.janitor_work,
            &self.flush_work,
            &self.behind_work,
        ] {
            list.wake_all();
        }
        self.written.wake_all();
        self.state.borrow().room_line.wake_all();
    }

    /// After a failure in the background: in write-through a fast drive that does not take writes
    /// any more is left behind.
    pub fn leave_failed_fast(&self) {
        let leave = {
            let state = self.state.borrow();
            state.through && !state.is_alone() && self.fast.has_failed()
        };
        if leave {
            let why = self.fast.first_error().map(|error| error.to_string()).unwrap_or_default();
            self.poison(why);
        }
    }

    /// Has those look again who wait for room in the log.
    pub fn wake_room(&self) {
        self.room.wake_all();
        self.state.borrow().room_line.wake_first();
    }

    /// `Err` once the volume is poisoned. Requests under way while it is being closed go on.
    pub fn unpoisoned(&self) -> Result<(), Error> {
        match &self.state.borrow().poisoned {
            Some(cause) => Err(Error::Poisoned(cause.clone())),
            None => Ok(()),
        }
    }

    /// `Err` for new requests once the volume is poisoned or being closed.
    pub fn alive(&self) -> Result<(), Error> {
        self.unpoisoned()?;
        if self.state.borrow().closing {
            return Err(Error::Poisoned("it was closed".to_owned().into()));
        }
        Ok(())
    }

    /// Flushes one drive for the volume's own work. After a failed flush nobody knows which writes
    /// the drive has dropped, and the next flush may say nothing of it: the volume stops.
    pub async fn flush_drive(&self, tier: Tier) -> Result<Flushed, Error> {
        let outcome = self.drive(tier).flush().await;
        if let Err(error) = &outcome {
            self.poison(Poison::by("a flush failed", error.clone()));
        }
        Ok(outcome?)
    }

    /// Waits for a wake-up of the list, or until a moment on the clock.
    pub async fn woken_or_at(&self, list: &WaitList, until_ns: Option<u64>) {
        let now_ns = self.io.now_ns();
        let mut alarm = until_ns.map(|until| Box::pin(self.io.sleep(until.saturating_sub(now_ns))));
        let mut place = None;
        poll_fn(|context| {
            if let Some(alarm) = &mut alarm
                && alarm.as_mut().poll(context).is_ready()
            {
                return Poll::Ready(());
            }
            if place.is_some() {
                // Woken, and not by the alarm.
                return Poll::Ready(());
            }
            list.register(&mut place, context);
            Poll::Pending
        })
        .await;
    }

    /// Waits until everything before `end` is written to the log.
    pub async fn log_written(&self, end: Lsn) -> Result<(), Error> {
        self.log_work.wake_all();
        let mut ticket = None;
        poll_fn(|context| {
            let state = self.state.borrow();
            if state.log.written() >= end {
                return Poll::Ready(Ok(()));
            }
            if let Some(cause) = &state.poisoned {
                return Poll::Ready(Err(Error::Poisoned(cause.clone())));
            }
            drop(state);
            self.written.register(end, &mut ticket, context);
            Poll::Pending
        })
        .await
    }

    /// Waits until every access that looked at the log in this epoch or before has ended.
    pub async fn log_accesses_ended(&self, epoch: Epoch) {
        if self.state.borrow().log_accesses.ended() <= epoch {
            marks::hit(Mark::TailWaitedForReaders);
        }
        self.drain_waiters.set(self.drain_waiters.get() + 1);
        self.accessed
            .until(|| (self.state.borrow().log_accesses.ended() > epoch).then_some(()))
            .await;
        self.drain_waiters.set(self.drain_waiters.get() - 1);
    }

    /// Waits until every access that looked at homes in this epoch or before has ended.
    pub async fn home_accesses_ended(&self, epoch: Epoch) {
        self.drain_waiters.set(self.drain_waiters.get() + 1);
        self.accessed
            .until(|| (self.state.borrow().home_accesses.ended() > epoch).then_some(()))
            .await;
        self.drain_waiters.set(self.drain_waiters.get() - 1);
    }

    /// Waits in line until the log has `enough` room for a client's request, and has the janitor
    /// make some. The place in the line is kept until it is dropped: the caller appends first.
    pub async fn wait_for_room(self: &Rc<Self>, enough: impl Fn(&State) -> bool) -> RoomTurn {
        let place = self.state.borrow_mut().room_line.join();
        let turn = RoomTurn { shared: self.clone(), place };
        self.janitor_work.wake_all();
        poll_fn(|context| {
            let mut state = self.state.borrow_mut();
            let its_turn = state.room_line.is_turn(Some(place)) && enough(&state);
            if state.poisoned.is_some() || its_turn {
                return Poll::Ready(());
            }
            state.room_line.register(place, context);
            Poll::Pending
        })
        .await;
        turn
    }

    /// Waits until the log has room for `blocks` of the volume's own records, which may use the
    /// reserve that clients may not.
    pub async fn internal_room(&self, blocks: u64) -> Result<(), Error> {
        self.room
            .until(|| {
                let state = self.state.borrow();
                if let Some(cause) = &state.poisoned {
                    return Some(Err(Error::Poisoned(cause.clone())));
                }
                (state.log.room_blocks() >= blocks).then_some(Ok(()))
            })
            .await
    }
}

/// What an access may have looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Looks {
    /// Homes only. Such an access may wait for log space.
    AtHomes,
    /// Homes and places in the log. Such an access must not wait for log space, because the tail
    /// waits for it.
    AtLogToo,
}

/// An access to the drives: while it lives, nothing it may have looked up is reused.
pub(crate) struct AccessPass {
    shared: Rc<Shared>,
    homes: Epoch,
    log: Option<Epoch>,
}

impl AccessPass {
    pub fn begin(shared: &Rc<Shared>, looks: Looks) -> AccessPass {
        let mut state = shared.state.borrow_mut();
        let homes = state.home_accesses.enter();
        let log = (looks == Looks::AtLogToo).then(|| state.log_accesses.enter());
        drop(state);
        AccessPass { shared: shared.clone(), homes, log }
    }
}

impl Drop for AccessPass {
    fn drop(&mut self) {
        let mut state = self.shared.state.borrow_mut();
        state.home_accesses.leave(self.homes);
        if let Some(epoch) = self.log {
            state.log_accesses.leave(epoch);
        }
        drop(state);
        if self.shared.drain_waiters.get() > 0 {
            self.shared.accessed.wake_all();
        }
    }
}

/// A place in the line for log space.
pub(crate) struct RoomTurn {
    shared: Rc<Shared>,
    place: Place,
}

impl RoomTurn {
    pub fn place(&self) -> Place {
        self.place
    }
}

impl Drop for RoomTurn {
    fn drop(&mut self) {
        self.shared.state.borrow_mut().room_line.leave(self.place);
        self.shared.wake_room();
    }
}

/// A request's hold on extents.
pub(crate) struct GuardPass {
    shared: Rc<Shared>,
    first: ExtentId,
    count: u64,
    hold: Hold,
}

impl GuardPass {
    pub fn begin(shared: &Rc<Shared>, first: ExtentId, count: u64, hold: Hold) -> GuardPass {
        shared.state.borrow_mut().guards.enter(first, count, hold);
        GuardPass::entered(shared, first, count, hold)
    }

    /// For a hold that has been entered already.
    pub fn entered(shared: &Rc<Shared>, first: ExtentId, count: u64, hold: Hold) -> GuardPass {
        GuardPass { shared: shared.clone(), first, count, hold }
    }
}

impl Drop for GuardPass {
    fn drop(&mut self) {
        self.shared.state.borrow_mut().guards.leave(self.first, self.count, self.hold);
        if !self.shared.released.is_empty() {
            self.shared.released.wake_all();
        }
    }
}
