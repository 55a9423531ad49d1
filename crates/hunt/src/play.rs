//! One boot of a machine: something is done to a volume on it, and ends well, with a power cut,
//! or wrongly. Panics and hangs are ways to go wrong.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use io::units::SECOND_NS;
use io::{Device, Io, Pool};
use twin::{DriveId, Outcome, Simulation};

/// Virtual time after which something that has not ended never will. A day: hundreds of times
/// what the longest scenario takes.
const PATIENCE_NS: u64 = 86_400 * SECOND_NS;

thread_local! {
    /// Buffers of all machines of a thread. What they held before is for the next one to stumble
    /// over, if it believes that a new buffer is empty.
    static POOL: Pool = Pool::new(0);
}

/// A machine with the two drives of a volume.
#[derive(Clone)]
pub(crate) struct Machine {
    pub(crate) simulation: Simulation,
    pub(crate) fast: DriveId,
    pub(crate) slow: DriveId,
}

/// What is being done now, for the report.
pub(crate) type Label = Rc<Cell<&'static str>>;

/// How it ended.
pub(crate) enum Ended {
    Well,
    PowerCut,
    Wrong { stage: &'static str, message: String },
}

impl Machine {
    /// Of a simulation with two drives, the fast one first.
    pub(crate) fn of(simulation: &Simulation) -> Machine {
        let [fast, slow] = simulation.drives()[..] else { panic!("a volume has two drives") };
        Machine { simulation: simulation.clone(), fast, slow }
    }

    /// Boots, and does what `make` makes.
    pub(crate) fn play<F>(&self, make: impl FnOnce(Io, Device, Device, Label) -> F) -> Ended
    where
        F: Future<Output = Result<(), String>>,
    {
        let mut simulation = self.simulation.clone();
        POOL.with(|pool| simulation.use_pool(pool));
        let io = simulation.boot();
        let fast = self.simulation.device(&io, self.fast);
        let slow = self.simulation.device(&io, self.slow);
        let label: Label = Rc::new(Cell::new("starting"));
        let played = catch_unwind(AssertUnwindSafe(|| {
            let future = make(io.clone(), fast, slow, label.clone());
            let outcome = self.simulation.run(&io, bounded(&io, future));
            // Tasks hold the executor that holds them; without this neither would ever go.
            io.drop_tasks();
            outcome
        }));
        let wrong = |message| Ended::Wrong { stage: label.get(), message };
        match played {
            Ok(Outcome::Done(Some(Ok(())))) => Ended::Well,
            Ok(Outcome::Done(Some(Err(message)))) => wrong(message),
            Ok(Outcome::Done(None)) => wrong("it hangs: a day of virtual time has passed".into()),
            Ok(Outcome::PowerCut) => Ended::PowerCut,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                wrong(format!("panic: {}", text.unwrap_or("(without words)")))
            }
        }
    }
}

/// `None` when the future has not ended before the patience did.
async fn bounded<T>(io: &Io, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let mut sleep = pin!(io.sleep(PATIENCE_NS));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(value) => Poll::Ready(Some(value)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}
