//! A seeded mixture of clients that use a volume at the same time and check what they read.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;

use io::WaitList;
use io::units::KIB;
use twin::Random;

use crate::steps::{Source, Step, Temper};
use crate::subject::Prey;
use crate::watched::{Trouble, Watched};

/// The unit in which the volumes of stories place data.
const EXTENT_BYTES: u64 = 128 * KIB;

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

impl Workload {
    /// Runs all clients to their end, or to the first trouble.
    ///
    /// # Errors
    /// The first thing that went wrong.
    pub async fn run<V: Prey>(&self, watched: &Watched<V>) -> Result<(), Trouble> {
        run_clients(watched, self.clients(), self.patient).await
    }

    fn clients(&self) -> Vec<Vec<Step>> {
        let mut random = Random::new(self.seed);
        let temper = Temper::draw(&mut random, &self.span);
        let source = |random: &mut Random| Source {
            temper: temper.clone(),
            span: self.span.clone(),
            length_bytes_max: self.length_bytes_max,
            extent_bytes: EXTENT_BYTES,
            cursor: self.span.start,
            random: random.fork(),
            plans: Vec::new(),
        };
        let mut sources: Vec<Source> = (0..self.clients).map(|_| source(&mut random)).collect();
        let steps = |source: &mut Source| (0..self.steps).map(|_| source.next()).collect();
        sources.iter_mut().map(steps).collect()
    }
}

/// What the clients share.
struct Board {
    trouble: RefCell<Option<Trouble>>,
    working: Cell<usize>,
    changed: WaitList,
}

/// Has all clients do their steps at the same time, each one after the other, to their end or to
/// the first trouble. `patient`: refused requests are no trouble.
///
/// # Errors
/// The first thing that went wrong.
pub async fn run_clients<V: Prey>(
    watched: &Watched<V>,
    clients: Vec<Vec<Step>>,
    patient: bool,
) -> Result<(), Trouble> {
    let board = Rc::new(Board {
        trouble: RefCell::new(None),
        working: Cell::new(clients.len()),
        changed: WaitList::new(),
    });
    for (number, steps) in clients.into_iter().enumerate() {
        let watched = watched.for_client(number);
        let board = board.clone();
        watched.io().clone().spawn(async move {
            for step in steps {
                if board.trouble.borrow().is_some() {
                    break;
                }
                if let Err(trouble) = step.perform(&watched).await
                    && !(patient && matches!(trouble, Trouble::Refused(_)))
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
