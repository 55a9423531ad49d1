//! Waiting for a condition inside one thread.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Tasks that wait until someone changes something. Always re-check the condition: a wake means
/// "look again", not "it is true".
#[derive(Default)]
pub struct WaitList {
    wakers: RefCell<Vec<Waker>>,
    /// Wakes so far.
    round: Cell<u64>,
}

/// Where a task stands in a [`WaitList`], so that it is found again without a search when the task
/// is polled for another reason.
#[derive(Debug, Clone, Copy)]
pub struct WaitPlace {
    round: u64,
    index: usize,
}

impl WaitList {
    /// An empty list.
    pub fn new() -> WaitList {
        WaitList::default()
    }

    /// Waits until `condition` gives a value. It is tested at once and after each wake.
    pub async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        let mut place = None;
        poll_fn(|context| match condition() {
            Some(value) => Poll::Ready(value),
            None => {
                self.register(&mut place, context);
                Poll::Pending
            }
        })
        .await
    }

    /// Has the task of `context` woken by the next [`WaitList::wake_all`]. `place` is what the
    /// task was given before, so that it does not queue twice.
    pub fn register(&self, place: &mut Option<WaitPlace>, context: &Context<'_>) {
        let mut wakers = self.wakers.borrow_mut();
        let round = self.round.get();
        match place {
            Some(known) if known.round == round => {
                wakers[known.index].clone_from(context.waker());
            }
            _ => {
                *place = Some(WaitPlace { round, index: wakers.len() });
                wakers.push(context.waker().clone());
            }
        }
    }

    /// Wakes everyone, in the order they came.
    pub fn wake_all(&self) {
        // Taken out first: a waker may run code that waits here again.
        let mut wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        self.round.set(self.round.get() + 1);
        for waker in wakers.drain(..) {
            waker.wake();
        }
        // Its memory serves the next round.
        let mut list = self.wakers.borrow_mut();
        if list.capacity() == 0 {
            *list = wakers;
        }
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.wakers.borrow().is_empty()
    }
}

/// A bound on something shared (requests in flight, bytes in buffers), first come first served.
///
/// Clones share the bound. [`Gate::enter`] waits for room; dropping the pass gives it back.
#[derive(Clone)]
pub struct Gate(Rc<GateInner>);

struct GateInner {
    limit: u64,
    used: Cell<u64>,
    next_ticket: Cell<u64>,
    serving: Cell<u64>,
    /// Who waits, by ticket. Only the one whose turn it is can go in, so only that one is woken:
    /// waking all for each pass would cost the square of their number.
    waiting: RefCell<BTreeMap<u64, Waker>>,
    /// Tickets of those who do not wait any more, and whose turn has not come.
    given_up: RefCell<BTreeSet<u64>>,
}

impl GateInner {
    /// The turn is over: the next one's is here.
    fn serve_next(&self) {
        self.serving.set(self.serving.get() + 1);
        while self.given_up.borrow_mut().remove(&self.serving.get()) {
            self.serving.set(self.serving.get() + 1);
        }
    }

    fn wake_next(&self) {
        let waker = self.waiting.borrow_mut().remove(&self.serving.get());
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A place in the line before a [`Gate`]: who leaves it must not keep those behind waiting.
struct Standing<'a> {
    inner: &'a GateInner,
    ticket: u64,
    is_through: bool,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        if self.is_through {
            return;
        }
        self.inner.waiting.borrow_mut().remove(&self.ticket);
        if self.inner.serving.get() == self.ticket {
            self.inner.serve_next();
            self.inner.wake_next();
        } else {
            self.inner.given_up.borrow_mut().insert(self.ticket);
        }
    }
}

/// A share of a [`Gate`], given back on drop.
pub struct Pass {
    gate: Gate,
    amount: u64,
}

impl Gate {
    /// A gate that lets `limit` units through at a time.
    pub fn new(limit: u64) -> Gate {
        Gate(Rc::new(GateInner {
            limit,
            used: Cell::new(0),
            next_ticket: Cell::new(0),
            serving: Cell::new(0),
            waiting: RefCell::default(),
            given_up: RefCell::default(),
        }))
    }

    /// Waits for `amount` units. An amount above the limit waits until it is alone. Who stops waiting leaves the line.
    pub async fn enter(&self, amount: u64) -> Pass {
        let inner = &self.0;
        let ticket = inner.next_ticket.get();
        inner.next_ticket.set(ticket + 1);
        let mut standing = Standing { inner, ticket, is_through: false };
        poll_fn(|context| {
            let used = inner.used.get();
            let fits = used == 0 || used + amount <= inner.limit;
            if inner.serving.get() == ticket && fits {
                inner.used.set(used + amount);
                inner.serve_next();
                return Poll::Ready(());
            }
            inner.waiting.borrow_mut().insert(ticket, context.waker().clone());
            Poll::Pending
        })
        .await;
        standing.is_through = true;
        inner.wake_next();
        Pass { gate: self.clone(), amount }
    }

    /// Units inside now.
    pub fn used(&self) -> u64 {
        self.0.used.get()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let inner = &self.gate.0;
        inner.used.set(inner.used.get() - self.amount);
        inner.wake_next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_polled_again_waits_once_in_each_round() {
        let (list, count) = (WaitList::new(), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let context = Context::from_waker(&waker);
        let mut places = [None; 3];
        for woken in [3, 6] {
            for place in &mut places {
                list.register(place, &context);
                list.register(place, &context);
            }
            list.wake_all();
            assert_eq!(count.0.load(Ordering::Relaxed), woken);
            assert!(list.is_empty());
        }
    }

    #[test]
    fn a_gate_wakes_only_the_one_whose_turn_it_is() {
        let (gate, count) = (Gate::new(1), Arc::new(Count::default()));
        let waker = Waker::from(count.clone());
        let mut context = Context::from_waker(&waker);
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(gate.enter(1))).collect();
        let mut inside: Vec<Pass> = Vec::new();
        for one in &mut waiting {
            if let Poll::Ready(pass) = one.as_mut().poll(&mut context) {
                inside.push(pass);
            }
        }
        for next in &mut waiting[1..] {
            assert_eq!(inside.len(), 1);
            inside.clear();
            let Poll::Ready(pass) = next.as_mut().poll(&mut context) else { panic!("its turn") };
            inside.push(pass);
        }
        // One wake for each pass that ended, and one by each that went in, to no avail.
        assert!(count.0.load(Ordering::Relaxed) < 2000, "{count:?}", count = count.0);
    }

    #[test]
    fn who_stops_waiting_keeps_nobody_from_a_gate() {
        let gate = Gate::new(1);
        let mut context = Context::from_waker(Waker::noop());
        let mut waiting: Vec<_> = (0..5).map(|_| Some(Box::pin(gate.enter(1)))).collect();
        let mut inside: Vec<Option<Pass>> = Vec::new();
        for one in waiting.iter_mut().flatten() {
            inside.push(match one.as_mut().poll(&mut context) {
                Poll::Ready(pass) => Some(pass),
                Poll::Pending => None,
            });
        }
        // The third before its turn has come, the second in its turn, which has not been noticed.
        waiting[2] = None;
        inside.clear();
        waiting[1] = None;
        let next = waiting[3].as_mut().expect("it waits").as_mut().poll(&mut context);
        assert!(next.is_ready(), "those before it have left");
        drop(next);
        assert!(waiting[4].as_mut().expect("it waits").as_mut().poll(&mut context).is_ready());
    }
}
