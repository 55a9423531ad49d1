//! Asks what a trace asked.
//!
//! * At the trace's own pace a request is asked at its time, whatever became of those before it, as
//!   long as fewer than [`UNDER_WAY_MAX`] are under way; how far it falls behind then is told.
//! * As fast as it goes, so many are under way at any time.
//! * A latency is the time from the asking to the end. A flush asks for what has ended before it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use io::{Gate, Io, IoError, WaitList};
use serde::Serialize;

use super::{Latency, Outcome};
use crate::fio::{Latencies, Target};
use crate::trace::{Deed, Event};

/// Requests under way at the trace's own pace.
const UNDER_WAY_MAX: u64 = 256;
/// Largest piece of one request; longer ones are asked piece by piece.
const TRANSFER_BYTES_MAX: u64 = 1 << 20;

/// How fast a trace is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Speed {
    /// At its own times.
    Original,
    /// With so many requests under way at any time.
    Max(u64),
}

/// What was measured.
#[derive(Debug)]
pub struct Played {
    counted: Counted,
    began_ns: u64,
    ended_ns: u64,
    behind_ns: u64,
    /// The first request that failed, and why: nothing was asked after it.
    pub error: Option<(Event, IoError)>,
}

#[derive(Debug, Default)]
struct Counted {
    reads: Latencies,
    writes: Latencies,
    flushes: Latencies,
    discards: u64,
    read_bytes: u64,
    write_bytes: u64,
}

struct Player<T> {
    target: T,
    counted: RefCell<Counted>,
    error: RefCell<Option<(Event, IoError)>>,
    under_way: Cell<u64>,
    ended: WaitList,
}

/// Plays the requests; `origin_us` is the time in the trace that is now. `progress` is told how many
/// have been asked, now and then.
pub async fn play<T: Target>(
    target: &T,
    events: &[Event],
    origin_us: u64,
    speed: Speed,
    progress: &dyn Fn(u64),
) -> Played {
    let io: &Io = target.io();
    let began_ns = io.now_ns();
    let limit = match speed {
        Speed::Original => UNDER_WAY_MAX,
        Speed::Max(depth) => depth.max(1),
    };
    let gate = Gate::new(limit);
    let player = Rc::new(Player {
        target: target.clone(),
        counted: RefCell::default(),
        error: RefCell::default(),
        under_way: Cell::new(0),
        ended: WaitList::new(),
    });
    let mut behind_ns = 0;
    let mut told = 0;
    for (index, event) in events.iter().enumerate() {
        if speed == Speed::Original {
            let due_ns = began_ns + event.at_us.saturating_sub(origin_us) * 1000;
            let now_ns = io.now_ns();
            if due_ns > now_ns {
                io.sleep(due_ns - now_ns).await;
            }
            let pass = gate.enter(1).await;
            behind_ns = behind_ns.max(io.now_ns().saturating_sub(due_ns));
            player.start(*event, pass);
        } else {
            let pass = gate.enter(1).await;
            player.start(*event, pass);
        }
        if player.error.borrow().is_some() {
            break;
        }
        if index as u64 >= told + 512 {
            progress(index as u64 - told);
            told = index as u64;
        }
    }
    player.ended.until(|| (player.under_way.get() == 0).then_some(())).await;
    progress(events.len() as u64 - told);
    let (counted, error) = (player.counted.take(), player.error.take());
    Played { counted, began_ns, ended_ns: io.now_ns(), behind_ns, error }
}

impl<T: Target> Player<T> {
    fn start(self: &Rc<Self>, event: Event, pass: io::Pass) {
        self.under_way.set(self.under_way.get() + 1);
        let player = self.clone();
        self.target.io().spawn(async move {
            let outcome = player.carry_out(event).await;
            if let Err(error) = outcome {
                player.error.borrow_mut().get_or_insert((event, error));
            }
            player.under_way.set(player.under_way.get() - 1);
            drop(pass);
            player.ended.wake_all();
        });
    }

    async fn carry_out(&self, event: Event) -> Result<(), IoError> {
        let io = self.target.io();
        let began_ns = io.now_ns();
        let Event { deed, offset, length, .. } = event;
        let mut at = offset;
        while at < offset + length && matches!(deed, Deed::Read | Deed::Write) {
            let bytes = (offset + length - at).min(TRANSFER_BYTES_MAX) as usize;
            if deed == Deed::Read {
                self.target.read(at, io.pool().take(bytes)).await.1?;
            } else {
                self.target.write(at, self.target.blank(bytes)).await.1?;
            }
            at += bytes as u64;
        }
        match deed {
            Deed::Flush => self.target.flush().await?,
            Deed::Discard => self.target.trim(offset, length).await?,
            Deed::Read | Deed::Write => {}
        }
        let latency_ns = io.now_ns() - began_ns;
        let mut counted = self.counted.borrow_mut();
        match deed {
            Deed::Read => {
                counted.reads.note(latency_ns);
                counted.read_bytes += length;
            }
            Deed::Write => {
                counted.writes.note(latency_ns);
                counted.write_bytes += length;
            }
            Deed::Flush => counted.flushes.note(latency_ns),
            Deed::Discard => counted.discards += 1,
        }
        Ok(())
    }
}

impl Played {
    /// Whether every request was answered.
    ///
    /// # Errors
    /// A sentence about the first that was not.
    pub fn check(&self) -> Result<(), String> {
        match &self.error {
            None => Ok(()),
            Some((event, error)) => Err(format!(
                "a request of the trace failed ({:?} of {} bytes at {}): {error}",
                event.deed, event.length, event.offset
            )),
        }
    }

    /// What was measured right after this becomes part of it.
    pub fn absorb(&mut self, next: Played) {
        let Counted { reads, writes, flushes, discards, read_bytes, write_bytes } = &next.counted;
        self.counted.reads.add(reads);
        self.counted.writes.add(writes);
        self.counted.flushes.add(flushes);
        self.counted.discards += discards;
        self.counted.read_bytes += read_bytes;
        self.counted.write_bytes += write_bytes;
        self.ended_ns = next.ended_ns;
        self.behind_ns = self.behind_ns.max(next.behind_ns);
        self.error = self.error.take().or(next.error);
    }

    /// In numbers, without what only the drives know.
    pub fn outcome(&self) -> Outcome {
        let Counted { reads, writes, flushes, discards, read_bytes, write_bytes } = &self.counted;
        let mut all = reads.clone();
        all.add(writes);
        Outcome {
            requests: all.count() + flushes.count() + discards,
            reads: reads.count(),
            writes: writes.count(),
            flushes: flushes.count(),
            discards: *discards,
            read_bytes: *read_bytes,
            write_bytes: *write_bytes,
            seconds: (self.ended_ns - self.began_ns) as f64 / 1e9,
            behind_ms: self.behind_ns as f64 / 1e6,
            latency: Latency::of(&all),
            read_latency: Latency::of(reads),
            write_latency: Latency::of(writes),
            flush_latency: Latency::of(flushes),
            volume: None,
            drive: None,
        }
    }
}
