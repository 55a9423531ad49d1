//! A seeded mixture of clients that use a volume at the same time and check what they read.
//!
//! The seed decides everything, also the temper of the run: how much of it is small or
//! large, in hot spots or streams, how often it flushes, trims and rests. So many short runs with
//! different seeds see more than a long one.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use io::units::MILLISECOND_NS;
use io::{Durability, Volume, WaitList, ZeroMode};
use twin::Random;

use crate::sector::SECTOR_BYTES;
use crate::watched::{Trouble, Watched};

/// Hot spots of a run. Few, so that clients meet there.
const SPOTS: usize = 4;

/// Bytes of a hot spot: half an extent, so that its neighbours stay cold.
const SPOT_BYTES: u64 = 64 << 10;

/// Longest rest of a client. Long enough for whatever a volume does only when idle.
const REST_NS_MAX: u64 = 3000 * MILLISECOND_NS;

/// What to run.
#[derive(Debug, Clone)]
pub struct Workload {
    /// Decides everything.
    pub seed: u64,
    /// Clients at the same time.
    pub clients: u64,
    /// Requests of each.
    pub steps: u64,
    /// Bytes of the volume they use; multiples of 4096.
    pub span: Range<u64>,
    /// Longest request in bytes; a multiple of 4096, at most 1 MiB.
    pub length_bytes_max: u64,
    /// Refused requests are no trouble: the drives are made to fail.
    pub patient: bool,
}

/// How a run behaves: shares in percent.
#[derive(Debug, Clone)]
struct Temper {
    spots: [u64; SPOTS],
    in_spots: u64,
    in_streams: u64,
    small: u64,
    large: u64,
    reads: u64,
    flushes: u64,
    trims: u64,
    zeroes: u64,
    forced: u64,
    rests: u64,
}

impl Temper {
    fn draw(random: &mut Random, span: &Range<u64>) -> Temper {
        let room = (span.end - span.start).saturating_sub(SPOT_BYTES) / 4096 + 1;
        Temper {
            spots: std::array::from_fn(|_| span.start + random.below(room) * 4096),
            in_spots: random.below(80),
            in_streams: random.below(50),
            small: random.below(50),
            large: random.below(20),
            reads: 10 + random.below(30),
            flushes: 1 + random.below(15),
            trims: random.below(12),
            zeroes: random.below(12),
            forced: random.below(10),
            rests: random.below(8),
        }
    }
}

/// What the clients share.
struct Board {
    trouble: RefCell<Option<Trouble>>,
    working: Cell<u64>,
    changed: WaitList,
}

impl Workload {
    /// Runs all clients to their end, or to the first trouble.
    ///
    /// # Errors
    /// The first thing that went wrong.
    pub async fn run<V: Volume + Clone>(&self, watched: &Watched<V>) -> Result<(), Trouble> {
        let mut random = Random::new(self.seed);
        let temper = Rc::new(Temper::draw(&mut random, &self.span));
        let board = Rc::new(Board {
            trouble: RefCell::new(None),
            working: Cell::new(self.clients),
            changed: WaitList::new(),
        });
        for _ in 0..self.clients {
            let mut client = Client {
                watched: watched.clone(),
                workload: self.clone(),
                temper: temper.clone(),
                cursor: self.span.start,
                random: random.fork(),
            };
            let board = board.clone();
            watched.io().spawn(async move {
                for _ in 0..client.workload.steps {
                    if board.trouble.borrow().is_some() {
                        break;
                    }
                    if let Err(trouble) = client.step().await
                        && !(client.workload.patient && matches!(trouble, Trouble::Refused(_)))
                    {
                        board.trouble.borrow_mut().get_or_insert(trouble);
                    }
                }
                board.working.set(board.working.get() - 1);
                board.changed.wake_all();
            });
        }
        board.changed.until(|| (board.working.get() == 0).then_some(())).await;
        let trouble = board.trouble.borrow_mut().take();
        trouble.map_or(Ok(()), Err)
    }
}

struct Client<V> {
    watched: Watched<V>,
    workload: Workload,
    temper: Rc<Temper>,
    /// Where its stream goes on.
    cursor: u64,
    random: Random,
}

impl<V: Volume + Clone> Client<V> {
    async fn step(&mut self) -> Result<(), Trouble> {
        let temper = self.temper.clone();
        let mut share = self.random.below(100);
        let mut falls = |percent: u64| {
            let hit = share < percent;
            share = share.wrapping_sub(percent);
            hit
        };
        if falls(temper.rests) {
            let rest_ns = self.random.below(REST_NS_MAX);
            self.watched.io().sleep(rest_ns).await;
            return Ok(());
        }
        if falls(temper.flushes) {
            return self.watched.flush().await;
        }
        let (reads, trims, zeroes) =
            (falls(temper.reads), falls(temper.trims), falls(temper.zeroes));
        let Range { start, end } = self.place();
        let forced = self.random.chance(temper.forced);
        let how = if forced { Durability::Durable } else { Durability::Volatile };
        if reads {
            self.watched.read(start, end - start).await
        } else if trims {
            self.watched.trim(start, end - start, how).await
        } else if zeroes {
            let mode = match self.random.chance(50) {
                true => ZeroMode::Allocate,
                false => ZeroMode::Deallocate,
            };
            self.watched.write_zeroes(start, end - start, mode, how).await
        } else {
            self.watched.write(start, end - start, how).await
        }
    }

    /// Draws a byte range.
    fn place(&mut self) -> Range<u64> {
        let (temper, random) = (self.temper.clone(), &mut self.random);
        let Range { start, end } = self.workload.span;
        let sector = SECTOR_BYTES as u64;
        let length = if random.chance(temper.small) {
            (1 + random.below(16)) * sector
        } else if random.chance(temper.large) {
            (1 + random.below(self.workload.length_bytes_max / 4096)) * 4096
        } else {
            (1 + random.below(8)) * 4096
        };
        let length = length.min(self.workload.length_bytes_max).min(end - start);
        let unit = if length % 4096 == 0 && !random.chance(10) { 4096 } else { sector };
        let at = if random.chance(temper.in_spots) {
            let spot = temper.spots[random.below(SPOTS as u64) as usize];
            spot + random.below(SPOT_BYTES / unit) * unit
        } else if random.chance(temper.in_streams) {
            self.cursor
        } else {
            start + random.below((end - start) / unit) * unit
        };
        let at = if at + length > end { end - length } else { at };
        self.cursor = if at + length >= end { start } else { at + length };
        at..at + length
    }
}
