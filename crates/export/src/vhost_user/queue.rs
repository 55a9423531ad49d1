//! One queue at work.
//!
//! One task does it all, in rounds: put what the volume finished into the used ring and tell the
//! guest once, take everything that is available and begin it at once, wait for a kick. Requests
//! run side by side and are answered as they end.
//!
//! * At most as many requests are under way as the queue has places, and none begins while all
//!   queues together have [`BYTES_MAX`] bytes under way; it stays in the queue's memory.
//! * Calls into the volume are never abandoned: a queue that is to stop first ends what it took.
//! * A guest that breaks the rules breaks its queue: nothing more is taken from it or told it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::num::Wrapping;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use io::{
    Durability, Event, Io, IoError, Raising, Volume, VolumeInfo, WaitList, WaitPlace, Waiting,
    ZeroMode,
};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::GuestAddress;

use super::chain::{Chain, Malformed, Table};
use super::guest_memory::GuestMemory;
use super::in_flight::{Area, InFlight};
use super::protocol::{IDENTITY_BYTES, QUEUE_SIZE_MAX, Status};
use super::request::{Asked, HEADER_BYTES, Spot};
use crate::nbd::crew::{Crew, Deed, Done, Job, Ticket};

/// Bytes of requests of all queues under way: 64 of the largest a guest makes by itself.
const BYTES_MAX: u64 = 64 << 20;

/// What all queues of a door have under way together. A guest chooses how many queues it has: what
/// it can hold of our memory must not grow with them.
#[derive(Default)]
pub(super) struct Budget {
    bytes: Cell<u64>,
    /// Woken whenever bytes are given back.
    freed: WaitList,
}

impl Budget {
    fn has_room(&self) -> bool {
        self.bytes.get() < BYTES_MAX
    }

    fn take(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn give_back(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() - bytes);
        self.freed.wake_all();
    }
}

/// How a queue is laid out and agreed upon.
pub(super) struct Layout {
    pub(super) index: u16,
    pub(super) size: u16,
    pub(super) table: GuestAddress,
    pub(super) available: GuestAddress,
    pub(super) used: GuestAddress,
    /// Where in the available ring to go on, if nothing in flight says better.
    pub(super) base: u16,
    pub(super) memory: Arc<GuestMemory>,
    pub(super) in_flight: Option<Arc<Area>>,
    pub(super) event_index: bool,
    pub(super) indirect: bool,
    /// The guest knows no flushes: every write must be durable when it is answered.
    pub(super) write_through: bool,
}

/// The eventfds of a queue.
pub(super) struct Events {
    /// The guest wants us to look.
    pub(super) kick: Event,
    /// We want the guest to look; none where it looks by itself.
    pub(super) call: Option<Event>,
    /// The queue is broken.
    pub(super) error: Option<Event>,
}

/// What may change while a queue runs.
pub(super) enum Change {
    Enabled(bool),
    Call(Option<Event>),
    Memory(Arc<GuestMemory>),
    Stop,
}

/// How a running queue is led.
#[derive(Default)]
pub(super) struct Reins {
    changes: RefCell<VecDeque<Change>>,
    changed: WaitList,
    /// Where in the available ring to go on, once the queue has stopped.
    stopped_at: Cell<Option<u16>>,
    stopped: WaitList,
}

impl Reins {
    pub(super) fn change(&self, change: Change) {
        self.changes.borrow_mut().push_back(change);
        self.changed.wake_all();
    }

    /// Waits until everything taken is answered; gives where in the available ring to go on.
    pub(super) async fn stop(&self) -> u16 {
        self.change(Change::Stop);
        self.stopped.until(|| self.stopped_at.get()).await
    }
}

/// A request under way, at the place of its head. Kept for its allocations when it has ended.
#[derive(Default)]
struct Entry {
    busy: bool,
    chain: Chain,
    /// Where a read begins on the volume, in bytes.
    at: u64,
    /// What it counts for the [`Budget`].
    bytes: u64,
    parts_left: u32,
    status: Option<Status>,
    /// Bytes written for the guest besides the status.
    written: u64,
}

/// A queue, as its task has it.
pub(super) struct Server<V> {
    io: Io,
    info: VolumeInfo,
    identity: [u8; IDENTITY_BYTES],
    queue: Queue,
    table: Table,
    memory: Arc<GuestMemory>,
    in_flight: Option<InFlight>,
    durability: Durability,
    events: Events,
    reins: Rc<Reins>,
    place: Option<WaitPlace>,
    waiting: Option<Waiting>,
    raising: Option<Raising>,
    raise_again: bool,
    enabled: bool,
    stopping: bool,
    broken: Option<String>,
    /// The rings lie in the guest's memory, as it is now.
    rings_valid: bool,
    /// The available ring is to be looked at.
    look: bool,
    /// Taken from the ring and not begun.
    taken: VecDeque<u16>,
    entries: Vec<Entry>,
    crew: Crew<V>,
    /// Jobs that wait for a free member.
    backlog: VecDeque<Job>,
    under_way: usize,
    budget: Rc<Budget>,
    budget_place: Option<WaitPlace>,
    /// Ended, and not yet in the used ring: head and bytes written.
    finished: Vec<(u16, u32)>,
    /// Kept for its allocation.
    done: Vec<Done>,
}

/// So many answers are not kept waiting for those behind them: a guest that looks by itself, and the drive,
/// go on with these while we work on the others.
const ANSWERED_TOGETHER: usize = 4;

impl<V: Volume> Server<V> {
    /// A queue that has not begun.
    ///
    /// # Errors
    /// The layout is none: what of it, in words.
    pub(super) fn new(
        io: Io,
        volume: Rc<V>,
        identity: [u8; IDENTITY_BYTES],
        layout: Layout,
        events: Events,
        budget: Rc<Budget>,
    ) -> Result<(Server<V>, Rc<Reins>), String> {
        let memory = layout.memory;
        let mut queue = Queue::new(QUEUE_SIZE_MAX).expect("a power of two");
        queue.try_set_size(layout.size).map_err(|e| e.to_string())?;
        queue.try_set_desc_table_address(layout.table).map_err(|e| e.to_string())?;
        queue.try_set_avail_ring_address(layout.available).map_err(|e| e.to_string())?;
        queue.try_set_used_ring_address(layout.used).map_err(|e| e.to_string())?;
        queue.set_event_idx(layout.event_index);
        queue.set_ready(true);
        if !queue.is_valid(&*memory) {
            return Err("its rings do not lie in the guest's memory".into());
        }
        let used = queue.used_idx(&*memory, Ordering::Acquire).map_err(|e| e.to_string())?;
        queue.set_next_used(used.0);
        queue.set_next_avail(layout.base);
        let mut entries: Vec<Entry> = (0..layout.size).map(|_| Entry::default()).collect();
        let mut taken = VecDeque::new();
        let mut in_flight = None;
        if let Some(area) = layout.in_flight {
            let (part, heads) = InFlight::begin(area, layout.index, layout.size, used.0)
                .map_err(|e| e.to_string())?;
            // All that was taken is either answered or among the heads.
            queue.set_next_avail((used + Wrapping(heads.len() as u16)).0);
            for head in &heads {
                entries[usize::from(*head)].busy = true;
            }
            taken.extend(heads);
            in_flight = Some(part);
        }
        let reins = Rc::<Reins>::default();
        let durability = match layout.write_through {
            true => Durability::Durable,
            false => Durability::Volatile,
        };
        let server = Server {
            crew: Crew::new(volume.clone(), usize::from(layout.size)),
            info: volume.info(),
            io,
            identity,
            queue,
            table: Table { at: layout.table, size: layout.size, indirect_allowed: layout.indirect },
            memory,
            in_flight,
            durability,
            events,
            reins: reins.clone(),
            place: None,
            waiting: None,
            raising: None,
            // Who was here before us may have answered and not said so.
            raise_again: true,
            enabled: false,
            stopping: false,
            broken: None,
            rings_valid: true,
            // A kick may have come to who was here before us.
            look: true,
            taken,
            entries,
            backlog: VecDeque::new(),
            under_way: 0,
            budget,
            budget_place: None,
            finished: Vec::new(),
            done: Vec::new(),
        };
        Ok((server, reins))
    }

    /// Serves until stopped. Gives what the guest did wrong, if that was the end of it.
    pub(super) async fn run(mut self, mut report: impl FnMut(&str)) {
        let mut reported = false;
        poll_fn(|context| {
            let over = self.poll(context);
            if let Some(broken) = &self.broken
                && !reported
            {
                reported = true;
                report(broken);
            }
            over
        })
        .await;
        self.reins.stopped_at.set(Some(self.queue.next_avail()));
        self.reins.stopped.wake_all();
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            self.take_changes(context);
            let mut moved = self.collect(context);
            // The guest may go on with these while we look at what it has put there meanwhile, which
            // need not wait for its kick.
            self.publish();
            self.look |= moved;
            moved |= self.poll_kick(context);
            moved |= self.gather();
            moved |= self.begin_taken(context);
            self.publish();
            self.poll_raise(context);
            if self.is_over() {
                return Poll::Ready(());
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn is_over(&self) -> bool {
        let nothing_left = self.taken.is_empty() || self.broken.is_some();
        self.stopping && self.under_way == 0 && nothing_left
    }

    fn take_changes(&mut self, context: &mut Context<'_>) {
        self.reins.changed.register(&mut self.place, context);
        loop {
            let change = self.reins.changes.borrow_mut().pop_front();
            match change {
                Some(Change::Enabled(enabled)) => {
                    self.enabled = enabled;
                    self.look = true;
                }
                Some(Change::Call(call)) => {
                    self.events.call = call;
                    // What was put into the ring meanwhile may have been told to nobody.
                    self.raise_again = true;
                }
                Some(Change::Memory(memory)) => {
                    // A front-end may take a region away and give it again: the queue is broken
                    // only if it is used in between.
                    self.rings_valid = self.queue.is_valid(&*memory);
                    self.memory = memory;
                }
                Some(Change::Stop) => {
                    self.stopping = true;
                    self.events.kick.shutdown();
                }
                None => return,
            }
        }
    }

    fn poll_kick(&mut self, context: &mut Context<'_>) -> bool {
        if self.stopping || self.broken.is_some() {
            return false;
        }
        let mut kicked = false;
        loop {
            let kick = &self.events.kick;
            let waiting = self.waiting.get_or_insert_with(|| kick.wait());
            let Poll::Ready(outcome) = Pin::new(waiting).poll(context) else { return kicked };
            self.waiting = None;
            match outcome {
                Ok(_) => {
                    self.look = true;
                    kicked = true;
                }
                Err(error) => {
                    self.break_off(format!("its kicks cannot be heard: {error}"));
                    return true;
                }
            }
        }
    }

    /// Takes what is available.
    fn gather(&mut self) -> bool {
        if !self.look || !self.enabled || self.stopping || self.broken.is_some() {
            return false;
        }
        self.look = false;
        let before = self.taken.len();
        let outcome = loop {
            match self.gather_once() {
                Ok(true) => {}
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(_) => {}
            Err(malformed) => self.break_off(malformed.to_string()),
        }
        self.taken.len() > before
    }

    /// True when more has come meanwhile.
    fn gather_once(&mut self) -> Result<bool, Malformed> {
        if !self.rings_valid {
            return Err(Malformed::Queue);
        }
        let memory = &*self.memory;
        self.queue.disable_notification(memory).map_err(|_| Malformed::Queue)?;
        each_head(&mut self.queue, memory, |head| {
            let entry = self
                .entries
                .get_mut(usize::from(head))
                .ok_or(Malformed::Index(head, self.table.size))?;
            if std::mem::replace(&mut entry.busy, true) {
                return Err(Malformed::Busy(head));
            }
            if let Some(in_flight) = &mut self.in_flight {
                in_flight.take(head);
            }
            self.taken.push_back(head);
            Ok(())
        })?;
        self.queue.enable_notification(memory).map_err(|_| Malformed::Queue)
    }

    /// Begins what was taken, as far as there is room.
    fn begin_taken(&mut self, context: &Context<'_>) -> bool {
        let mut moved = false;
        let may = self.enabled || self.stopping;
        while may && self.broken.is_none() && !self.taken.is_empty() {
            if !self.budget.has_room() {
                self.budget.freed.register(&mut self.budget_place, context);
                break;
            }
            let Some(head) = self.taken.pop_front() else { break };
            moved = true;
            if let Err(malformed) = self.begin(head) {
                self.break_off(malformed.to_string());
            }
        }
        moved
    }

    fn begin(&mut self, head: u16) -> Result<(), Malformed> {
        let entry = &mut self.entries[usize::from(head)];
        entry.chain.follow(&self.memory, self.table, head)?;
        let asked = Asked::parse(&self.memory, &entry.chain, &self.info)?;
        entry.bytes = entry.chain.readable.bytes() + entry.chain.writable.bytes();
        entry.status = None;
        entry.written = 0;
        self.budget.take(entry.bytes);
        self.under_way += 1;
        // One more than there are parts, so that none ends it before all have begun.
        entry.parts_left = 1;
        match asked {
            Asked::Read { at, length } => self.begin_read(head, at, length),
            Asked::Write { at, length } => self.begin_write(head, at, length),
            Asked::Flush => self.launch(head, 0, Deed::Flush),
            Asked::Identity => self.identify(head),
            Asked::Trim(spots) => {
                for Spot { at, length, .. } in spots.iter().filter(|spot| spot.length > 0) {
                    let durability = self.durability;
                    self.launch(head, at, Deed::Trim { at, length, durability });
                }
            }
            Asked::Zero(spots) => {
                for Spot { at, length, unmap } in spots.iter().filter(|spot| spot.length > 0) {
                    let mode = if unmap { ZeroMode::Deallocate } else { ZeroMode::Allocate };
                    let durability = self.durability;
                    self.launch(head, at, Deed::WriteZeroes { at, length, mode, durability });
                }
            }
            Asked::Refused(status) => self.fail(head, status),
        }
        self.end_part(head);
        Ok(())
    }

    fn begin_read(&mut self, head: u16, at: u64, length: u64) {
        let entry = &mut self.entries[usize::from(head)];
        entry.at = at;
        entry.written = length;
        for (at, length) in parts(at, length, self.info.transfer_bytes_max) {
            let buf = self.io.pool().take(length);
            self.launch(head, at, Deed::Read { at, buf });
        }
    }

    fn begin_write(&mut self, head: u16, at: u64, length: u64) {
        let first = at;
        for (at, length) in parts(at, length, self.info.transfer_bytes_max) {
            let mut buf = self.io.pool().take(length);
            let data = &self.entries[usize::from(head)].chain.readable;
            if data.read(&self.memory, HEADER_BYTES + (at - first), &mut buf).is_err() {
                return self.fail(head, Status::IoError);
            }
            let durability = self.durability;
            self.launch(head, at, Deed::Write { at, buf, durability });
        }
    }

    fn identify(&mut self, head: u16) {
        let entry = &mut self.entries[usize::from(head)];
        let wanted = (entry.chain.writable.bytes() - 1).min(IDENTITY_BYTES as u64) as usize;
        entry.written = wanted as u64;
        if entry.chain.writable.write(&self.memory, 0, &self.identity[..wanted]).is_err() {
            self.fail(head, Status::IoError);
        }
    }

    fn launch(&mut self, head: u16, at: u64, deed: Deed) {
        self.entries[usize::from(head)].parts_left += 1;
        let ticket = Ticket { request: u32::from(head), part: 0, at };
        self.start(Job { ticket, deed });
    }

    fn start(&mut self, job: Job) {
        if !self.crew.has_room() {
            self.backlog.push_back(job);
        } else if let Some(done) = self.crew.start(job) {
            self.settle(done);
        }
    }

    fn collect(&mut self, context: &mut Context<'_>) -> bool {
        let mut done = std::mem::take(&mut self.done);
        self.crew.collect(context, &mut done, ANSWERED_TOGETHER);
        let moved = !done.is_empty();
        for finished in done.drain(..) {
            self.settle(finished);
        }
        self.done = done;
        while self.crew.has_room()
            && let Some(job) = self.backlog.pop_front()
        {
            self.start(job);
        }
        moved
    }

    fn settle(&mut self, done: Done) {
        let head = done.ticket.request as u16;
        let entry = &self.entries[usize::from(head)];
        let told = match (&done.result, &done.buf) {
            (Ok(()), Some(buf)) => {
                let skipped = done.ticket.at - entry.at;
                entry.chain.writable.write(&self.memory, skipped, buf).is_ok()
            }
            (Ok(()), None) => true,
            (Err(_), _) => false,
        };
        if !told {
            let unsupported = |error: &IoError| error.kind == io::ErrorKind::Unsupported;
            let status = match &done.result {
                Err(error) if unsupported(error) => Status::Unsupported,
                _ => Status::IoError,
            };
            self.fail(head, status);
        }
        self.end_part(head);
    }

    /// The first failure of a request is its answer.
    fn fail(&mut self, head: u16, status: Status) {
        let entry = &mut self.entries[usize::from(head)];
        entry.status.get_or_insert(status);
        entry.written = 0;
    }

    fn end_part(&mut self, head: u16) {
        let entry = &mut self.entries[usize::from(head)];
        entry.parts_left -= 1;
        if entry.parts_left > 0 {
            return;
        }
        let status = entry.status.unwrap_or(Status::Ok) as u8;
        let place = entry.chain.writable.bytes() - 1;
        // Where there is no memory there is nobody to tell.
        let told = entry.chain.writable.write(&self.memory, place, &[status]).is_ok();
        let written = if told { entry.written + 1 } else { 0 };
        entry.busy = false;
        self.budget.give_back(entry.bytes);
        self.under_way -= 1;
        self.finished.push((head, written as u32));
    }

    /// Puts what has ended into the used ring, and tells the guest if it wants to know.
    fn publish(&mut self) {
        if self.finished.is_empty() {
            return;
        }
        let mut finished = std::mem::take(&mut self.finished);
        if self.broken.is_none()
            && let Err(error) = self.put(&finished)
        {
            self.break_off(error.to_string());
        }
        finished.clear();
        self.finished = finished;
    }

    fn put(&mut self, finished: &[(u16, u32)]) -> Result<(), virtio_queue::Error> {
        let memory = &*self.memory;
        for (head, written) in finished {
            if let Some(in_flight) = &self.in_flight {
                in_flight.answer(*head);
            }
            self.queue.add_used(memory, *head, *written)?;
            if let Some(in_flight) = &self.in_flight {
                in_flight.answered(*head, self.queue.next_used());
            }
        }
        self.raise_again |= self.queue.needs_notification(memory)?;
        Ok(())
    }

    /// One at a time: a front-end that does not take its calls must not pile them up here.
    fn poll_raise(&mut self, context: &mut Context<'_>) {
        loop {
            if let Some(raising) = &mut self.raising {
                let Poll::Ready(outcome) = Pin::new(raising).poll(context) else { return };
                self.raising = None;
                if let Err(error) = outcome {
                    self.break_off(format!("its calls are not taken: {error}"));
                }
            }
            if !std::mem::take(&mut self.raise_again) || self.broken.is_some() {
                return;
            }
            self.raising = self.events.call.as_ref().map(Event::raise);
        }
    }

    fn break_off(&mut self, why: String) {
        if self.broken.is_none() {
            self.broken = Some(why);
            self.taken.clear();
            if let Some(error) = &self.events.error {
                drop(error.raise());
            }
        }
    }
}

/// Takes the heads that are available out of the ring.
fn each_head(
    queue: &mut Queue,
    memory: &GuestMemory,
    mut take: impl FnMut(u16) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let before = Wrapping(queue.next_avail());
    let index = queue.avail_idx(memory, Ordering::Acquire).map_err(|_| Malformed::Queue)?;
    let heads = queue.iter(memory).map_err(|error| match error {
        virtio_queue::Error::InvalidAvailRingIndex => Malformed::Available,
        _ => Malformed::Queue,
    })?;
    for chain in heads {
        take(chain.head_index())?;
    }
    // It stops where it cannot read the ring, as if nothing more were there: looking again and
    // again would then never end.
    if Wrapping(queue.next_avail()) - before < index - before {
        return Err(Malformed::Queue);
    }
    Ok(())
}

/// Cuts a range of bytes into parts that the volume takes.
fn parts(at: u64, length: u64, most: u32) -> impl Iterator<Item = (u64, usize)> {
    let most = u64::from(most);
    (0..length.div_ceil(most)).map(move |part| {
        let skipped = part * most;
        (at + skipped, (length - skipped).min(most) as usize)
    })
}

#[cfg(test)]
mod tests;
