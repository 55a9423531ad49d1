//! Carries calls out on an io_uring.
//!
//! * One `io_uring_enter` a round submits what the round asked for, waits, and runs the kernel's
//!   deferred work; completions are then reaped in one batch. Of many requests the first are
//!   submitted sooner ([`SUBMITTED_TOGETHER`]).
//! * The arena is registered as fixed buffers and drives as fixed files where the kernel allows
//!   it; what cannot be registered works all the same.
//! * More entries than the submission queue holds wait in `backlog`; more completions than the
//!   completion queue holds wait in the kernel, which gives them out as room appears.
//! * Trims and zeroing go to workers: the kernel would run them on threads of its own anyway,
//!   and has no entry for some of them.
//! * Sockets must be blocking: on a non-blocking one the ring answers EAGAIN instead of waiting.
//!
//! Needs Linux 5.11 (timeouts passed to enter); uses more where there is more.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use io::{OpId, Park, Pool, Unpark};
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{EnterFlags, IoUring, opcode};

use crate::blocking;
use crate::desk::{Call, Desk, FileRef};
use crate::foreign;
use crate::kernel::now_ns;
use crate::wakeup::Wakeup;
use crate::workers::Workers;

/// Marks the read of the eventfd among the operations' numbers.
const WAKE: u64 = u64::MAX;

/// Marks cancellations, whose own outcome does not matter.
const CANCEL: u64 = u64::MAX - 1;

/// Places for registered drives. A volume has two drives; a stack of volumes has some more.
const FILES_MAX: u32 = 64;

/// Largest piece of memory the kernel registers as one buffer.
const PIECE_BYTES: usize = 1 << 30;

/// Places for memory that drivers lend: one for each place of a ublk device's queues.
const LENT_MAX: u16 = 512;

/// Most bytes one entry moves; the kernel's own bound is a little below 2 GiB.
const COUNT_MAX: usize = 1 << 30;

/// Bounds of the submission queue: a few entries keep one round in one system call even for a
/// single client; the upper one is the kernel's own.
const ENTRIES_MIN: u32 = 8;
const ENTRIES_MAX: u32 = 32 << 10;

/// So many entries are not kept waiting for the round to end: with more a drive rests while we work on the
/// requests of a deep queue, and we while it does. Each submission is a system call of its own: with less
/// the processor is the limit sooner. (docs/performance.md)
const SUBMITTED_TOGETHER: usize = 4;

/// A flush that takes no longer than this is quick: of drives whose cache survives a power cut, all are.
const QUICK_FLUSH_NS: u64 = 250 * io::units::MICROSECOND_NS;

/// A drive is quick after so many quick flushes in a row. Others are quick, too, when they have nothing to do.
const QUICK_IN_A_ROW: u8 = 16;

/// Threads for trims and zeroing: one long job should not hold up a short one.
const WORKERS_MAX: usize = 2;

/// See the head of the file.
pub(crate) struct Ring {
    ring: IoUring,
    backlog: VecDeque<Entry>,
    /// The registered arena: address and bytes.
    fixed: Option<(usize, usize)>,
    /// Empty places of the table of registered buffers, behind the arena's.
    lent_slots: Range<u16>,
    /// Quick flushes in a row of each registered drive, of those that had nothing beside them.
    quick_flushes: [u8; FILES_MAX as usize],
    /// Such a flush under way: of which drive, and since when.
    lone_flush: Option<(OpId, u32, u64)>,
    /// Registered drives so far; `None` when the table could not be registered.
    files: Option<u32>,
    wakeup: Arc<Wakeup>,
    /// The read of the eventfd is under way.
    wake_posted: bool,
    /// Where the kernel puts the eventfd's count.
    wake_count: Box<[u8; 8]>,
    workers: Workers,
    /// Kept between rounds for their allocations.
    reaped: Vec<(u64, i32)>,
    outcomes: Vec<(OpId, i64)>,
}

/// Why there is no ring, in words for [`crate::Kernel::describe`].
pub(crate) struct NoRing(pub(crate) String);

impl Ring {
    pub(crate) fn new(entries: u32, pool: &Pool, wakeup: Arc<Wakeup>) -> Result<Ring, NoRing> {
        Ring::with_levels(&Level::ALL, entries, pool, wakeup)
    }

    fn with_levels(
        levels: &[Level],
        entries: u32,
        pool: &Pool,
        wakeup: Arc<Wakeup>,
    ) -> Result<Ring, NoRing> {
        let entries = entries.clamp(ENTRIES_MIN, ENTRIES_MAX);
        let ring = build(levels, entries).map_err(|e| NoRing(why_not(&e)))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(NoRing("io_uring of this kernel is too old (5.11 is needed)".into()));
        }
        let (fixed, lent_slots) = register_buffers(&ring, pool);
        let files = ring.submitter().register_files(&[-1; FILES_MAX as usize]).ok().map(|()| 0);
        Ok(Ring {
            ring,
            backlog: VecDeque::new(),
            fixed,
            lent_slots,
            quick_flushes: [0; FILES_MAX as usize],
            lone_flush: None,
            files,
            workers: Workers::new(WORKERS_MAX, wakeup.clone()),
            wakeup,
            wake_posted: false,
            wake_count: Box::new([0; 8]),
            reaped: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    /// Bytes of the arena that are registered.
    pub(crate) fn registered_bytes(&self) -> usize {
        self.fixed.map_or(0, |(_, bytes)| bytes)
    }

    /// Where drivers may put memory that they lend.
    pub(crate) fn lent_slots(&self) -> Range<u16> {
        self.lent_slots.clone()
    }

    /// Registers a drive's descriptor; `None` when it must be named by its number.
    pub(crate) fn register(&mut self, fd: RawFd) -> Option<u32> {
        let slot = self.files.filter(|slot| *slot < FILES_MAX)?;
        self.ring.submitter().register_files_update(slot, &[fd]).ok()?;
        self.files = Some(slot + 1);
        Some(slot)
    }

    pub(crate) fn start(&mut self, desk: &mut Desk, id: OpId, call: Call) {
        if matches!(call, Call::Trim { .. } | Call::WriteZeroes { .. }) {
            if let Err(error) = self.workers.start(id, call) {
                desk.fail(id, error);
            }
            return;
        }
        if let Call::Flush { file } = call
            && self.flushed_here(desk, id, file)
        {
            return;
        }
        let entry = self.entry(&call).user_data(u64::from(id.0));
        self.push(entry);
    }

    /// Flushes a drive on this thread, if it is known to be quick and is asked for nothing else now. The ring
    /// would have a thread of the kernel's do it, and to wake that and be woken by it takes as long as a quick
    /// drive's flush. (docs/performance.md)
    fn flushed_here(&mut self, desk: &mut Desk, id: OpId, file: FileRef) -> bool {
        let Some(slot) = file.registered.filter(|_| desk.drive_operations() == 1) else {
            return false;
        };
        let begun_ns = now_ns();
        if self.quick_flushes[slot as usize] < QUICK_IN_A_ROW {
            self.lone_flush = Some((id, slot, begun_ns));
            return false;
        }
        // What is to be sent goes before.
        let _ = self.ring.submit();
        // SAFETY: the drive's descriptor is open, and the call has no memory.
        let outcome = unsafe { blocking::carry_out(&Call::Flush { file }) };
        self.note_flush(slot, now_ns() - begun_ns);
        self.settle(desk, id, outcome);
        true
    }

    fn note_flush(&mut self, slot: u32, took_ns: u64) {
        let in_a_row = &mut self.quick_flushes[slot as usize];
        *in_a_row = if took_ns <= QUICK_FLUSH_NS { in_a_row.saturating_add(1) } else { 0 };
    }

    /// Makes a waiting accept end.
    pub(crate) fn cancel(&mut self, id: OpId) {
        self.push(opcode::AsyncCancel::new(u64::from(id.0)).build().user_data(CANCEL));
    }

    pub(crate) fn poll(&mut self, desk: &mut Desk, park: Park) {
        self.post_wake();
        let waits = desk.ended.is_empty() && park != Park::Never;
        while self.refill() {
            if !self.enter(None) {
                break;
            }
        }
        match park {
            Park::Forever if waits => {
                self.enter(Some(None));
            }
            Park::Until(deadline_ns) if waits => {
                let rest = Duration::from_nanos(deadline_ns.saturating_sub(now_ns()));
                self.enter(Some(Some(rest)));
            }
            _ => {
                let queue = self.ring.submission();
                let needed = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
                drop(queue);
                if needed {
                    self.enter(None);
                }
            }
        }
        self.reap(desk);
    }

    /// Ends what is under way, for at most `patience`; false when something still is.
    pub(crate) fn wind_down(&mut self, desk: &mut Desk, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        let step_ns = 10 * io::units::MILLISECOND_NS;
        while desk.holding() > 0 && Instant::now() < deadline {
            desk.ended.clear();
            self.poll(desk, Park::Until(now_ns() + step_ns));
        }
        // The read of the eventfd writes into memory of ours, so it must end too.
        self.wakeup.unpark();
        while self.wake_posted && Instant::now() < deadline {
            self.refill();
            self.enter(Some(Some(Duration::from_nanos(step_ns))));
            self.reap(desk);
        }
        // At once, not when the kernel comes round to tearing the ring down: the drives should be
        // free for the next opener when the world has gone.
        let _ = self.ring.submitter().unregister_files();
        if self.wake_posted {
            Box::leak(std::mem::replace(&mut self.wake_count, Box::new([0; 8])));
        }
        let ended = desk.holding() == 0;
        if !ended {
            self.workers.detach();
        }
        ended
    }

    fn entry(&self, call: &Call) -> Entry {
        match *call {
            Call::Read { file, at, memory, length } => {
                let (fd, flags) = name(file);
                let count = length.min(COUNT_MAX) as u32;
                match self.piece(memory, count) {
                    Some(piece) => opcode::ReadFixed::new(fd, memory, count, piece)
                        .offset(at)
                        .build()
                        .flags(flags),
                    None => opcode::Read::new(fd, memory, count).offset(at).build().flags(flags),
                }
            }
            Call::ReadLent { file, at, slot, from, length } => {
                let (fd, flags) = name(file);
                // What is called an address counts from the front of the lent memory.
                let from = std::ptr::without_provenance_mut(from);
                opcode::ReadFixed::new(fd, from, length.min(COUNT_MAX) as u32, slot)
                    .offset(at)
                    .build()
                    .flags(flags)
            }
            Call::Write { file, at, memory, length } => {
                let (fd, flags) = name(file);
                let count = length.min(COUNT_MAX) as u32;
                match self.piece(memory, count) {
                    Some(piece) => opcode::WriteFixed::new(fd, memory, count, piece)
                        .offset(at)
                        .build()
                        .flags(flags),
                    None => opcode::Write::new(fd, memory, count).offset(at).build().flags(flags),
                }
            }
            Call::Flush { file } => {
                let (fd, flags) = name(file);
                let datasync = io_uring::types::FsyncFlags::DATASYNC;
                opcode::Fsync::new(fd).flags(datasync).build().flags(flags)
            }
            Call::Accept { fd } => {
                let none = std::ptr::null_mut();
                opcode::Accept::new(Fd(fd), none, none.cast()).flags(libc::SOCK_CLOEXEC).build()
            }
            Call::Receive { fd, memory, length } => {
                opcode::Recv::new(Fd(fd), memory, length.min(COUNT_MAX) as u32).build()
            }
            Call::Send { fd, memory, length } => {
                opcode::Send::new(Fd(fd), memory, length.min(COUNT_MAX) as u32)
                    .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                    .build()
            }
            Call::Wait { fd } => opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).build(),
            Call::Raise { fd } => {
                opcode::Write::new(Fd(fd), foreign::ONE.as_ptr(), foreign::ONE.len() as u32).build()
            }
            Call::Command { fd, code, payload } => {
                opcode::UringCmd16::new(Fd(fd), code).cmd(payload).build()
            }
            Call::Trim { .. } | Call::WriteZeroes { .. } => {
                unreachable!("trims and zeroing go to the workers")
            }
        }
    }

    /// Which registered piece holds all of the memory, if one does.
    fn piece(&self, memory: *mut u8, count: u32) -> Option<u16> {
        let (base, bytes) = self.fixed?;
        let from = (memory as usize).checked_sub(base)?;
        let to = from + count as usize;
        (to <= bytes && from / PIECE_BYTES == (to - 1) / PIECE_BYTES)
            .then_some((from / PIECE_BYTES) as u16)
    }

    fn push(&mut self, entry: Entry) {
        // Behind a backlog there is no overtaking: a cancellation must follow its operation.
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.backlog.push_back(entry);
        }
        if self.ring.submission().len() >= SUBMITTED_TOGETHER {
            // What the kernel does not take now it is given at the end of the round.
            let _ = self.ring.submit();
        }
    }

    fn try_push(&mut self, entry: &Entry) -> bool {
        // SAFETY: what the entry points to is a buffer on the desk, which stays there until the
        // completion has been reaped, or `wake_count`, which is leaked if its read outlives us.
        unsafe { self.ring.submission().push(entry).is_ok() }
    }

    /// Moves what fits from the backlog to the submission queue; true when something is left.
    fn refill(&mut self) -> bool {
        while let Some(entry) = self.backlog.front().cloned() {
            if !self.try_push(&entry) {
                return true;
            }
            self.backlog.pop_front();
        }
        false
    }

    fn post_wake(&mut self) {
        if self.wake_posted {
            return;
        }
        let fd = Fd(self.wakeup.as_fd().as_raw_fd());
        let entry = opcode::Read::new(fd, self.wake_count.as_mut_ptr(), 8).build().user_data(WAKE);
        self.push(entry);
        self.wake_posted = true;
    }

    /// Submits, and waits for a completion when asked to, for ever or for a time. False when the
    /// kernel took nothing for now.
    fn enter(&mut self, wait: Option<Option<Duration>>) -> bool {
        let queued = self.ring.submission().len() as u32;
        let submitter = self.ring.submitter();
        let outcome = match wait {
            Some(Some(time)) => {
                let time = Timespec::from(time);
                submitter.submit_with_args(1, &SubmitArgs::new().timespec(&time))
            }
            Some(None) => submitter.submit_and_wait(1),
            None => {
                let flags = EnterFlags::GETEVENTS.bits();
                // SAFETY: no argument is passed; the entries counted are in the queue.
                unsafe { submitter.enter::<libc::sigset_t>(queued, 0, flags, None) }
            }
        };
        let Err(error) = outcome else { return true };
        match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR) => true,
            // Out of memory for requests, or completions must be reaped first: the entries stay
            // in the queue for the next round.
            Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => false,
            // Every other error means that the ring or our use of it is broken; no operation can
            // be completed any more, and going on would hang every client without a word.
            _ => panic!("io_uring_enter failed: {error}"),
        }
    }

    fn reap(&mut self, desk: &mut Desk) {
        let mut reaped = std::mem::take(&mut self.reaped);
        reaped.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result())));
        for (number, result) in reaped.drain(..) {
            match number {
                WAKE => {
                    self.wake_posted = false;
                    self.wakeup.acknowledge();
                }
                CANCEL => {}
                number => self.settle(desk, OpId(number as u32), i64::from(result)),
            }
        }
        self.reaped = reaped;
        // After the acknowledgement: see the invariant in `wakeup`.
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.workers.collect(&mut outcomes);
        for (id, outcome) in outcomes.drain(..) {
            self.settle(desk, id, outcome);
        }
        self.outcomes = outcomes;
    }

    fn settle(&mut self, desk: &mut Desk, id: OpId, outcome: i64) {
        if let Some((_, slot, begun_ns)) = self.lone_flush.take_if(|(flush, ..)| *flush == id) {
            self.note_flush(slot, now_ns() - begun_ns);
        }
        if let Some(call) = desk.settle(id, outcome) {
            self.start(desk, id, call);
        }
    }
}

/// How an entry names a drive.
fn name(file: FileRef) -> (Fd, Flags) {
    match file.registered {
        Some(slot) => (Fd(slot as RawFd), Flags::FIXED_FILE),
        None => (Fd(file.fd), Flags::empty()),
    }
}

/// Makes the ring with the first of the levels that the kernel knows.
fn build(levels: &[Level], entries: u32) -> std::io::Result<IoUring> {
    // Completions for four submission queues: sockets and long flushes stay under way for many
    // rounds.
    let completions = (entries * 4).min(2 * ENTRIES_MAX);
    let mut refused = None;
    for &level in levels {
        let mut builder = IoUring::builder();
        builder.setup_clamp().setup_cqsize(completions).dontfork();
        if level != Level::Plain {
            builder.setup_coop_taskrun().setup_taskrun_flag().setup_submit_all();
        }
        if level == Level::Deferred {
            builder.setup_single_issuer().setup_defer_taskrun();
        }
        match builder.build(entries) {
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => refused = Some(e),
            outcome => return outcome,
        }
    }
    Err(refused.expect("every level was refused"))
}

/// Sets of flags, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    /// Linux 6.1: the kernel does its part of the work only when we enter it.
    Deferred,
    /// Linux 5.19: it does so whenever we are in it, and interrupts us never.
    Cooperative,
    /// Linux 5.6.
    Plain,
}

impl Level {
    const ALL: [Level; 3] = [Level::Deferred, Level::Cooperative, Level::Plain];
}

/// Registers the arena, and behind it empty places for what is lent: where both cannot be had, the arena
/// alone, and none of them where that cannot.
fn register_buffers(ring: &IoUring, pool: &Pool) -> (Option<(usize, usize)>, Range<u16>) {
    let arena = pool.arena();
    let (base, bytes) = arena.unwrap_or((std::ptr::null_mut(), 0));
    // In huge pages a large buffer is one piece of memory to a drive. In small ones a megabyte is more
    // pieces than many drives take at once, and so two requests.
    // SAFETY: a hint about memory that the pool owns; nothing in it changes.
    unsafe { libc::madvise(base.cast(), bytes, libc::MADV_HUGEPAGE) };
    let mut table: Vec<libc::iovec> = (0..bytes)
        .step_by(PIECE_BYTES)
        .map(|from| libc::iovec {
            iov_base: base.wrapping_add(from).cast(),
            iov_len: PIECE_BYTES.min(bytes - from),
        })
        .collect();
    let pieces = table.len();
    let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    table.extend([empty; LENT_MAX as usize]);
    // SAFETY: the pieces lie in the arena. The kernel pins its pages, so even an arena freed
    // before the ring leaves it nothing dangling; and only entries for live buffers use them.
    let register = |table: &[libc::iovec]| unsafe { ring.submitter().register_buffers(table) };
    let fixed = arena.map(|_| (base as usize, bytes));
    if register(&table).is_ok() {
        return (fixed, pieces as u16..pieces as u16 + LENT_MAX);
    }
    table.truncate(pieces);
    let registered = !table.is_empty() && register(&table).is_ok();
    (fixed.filter(|_| registered), 0..0)
}

fn why_not(error: &std::io::Error) -> String {
    let setting = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let setting = setting.as_deref().map_or("", str::trim);
    match error.raw_os_error() {
        Some(libc::EPERM) if matches!(setting, "1" | "2") => {
            format!("io_uring is disabled (kernel.io_uring_disabled={setting})")
        }
        Some(libc::EPERM | libc::EACCES) => {
            "io_uring is forbidden here (by a seccomp filter or security module)".into()
        }
        Some(libc::ENOSYS) => "this kernel has no io_uring".into(),
        Some(libc::ENOMEM) => {
            "io_uring finds no locked memory (raise RLIMIT_MEMLOCK or lower ring_entries)".into()
        }
        _ => format!("io_uring cannot be set up: {error}"),
    }
}

#[cfg(test)]
mod tests;
