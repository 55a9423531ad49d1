//! Waiting for a condition inside one thread.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
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
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        self.round.set(self.round.get() + 1);
        for waker in wakers {
            waker.wake();
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
}

impl GateInner {
    fn wake_next(&self) {
        let waker = self.waiting.borrow_mut().remove(&self.serving.get());
        if let Some(waker) = waker {
            waker.wake();
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
        }))
    }

    /// Waits for `amount` units. An amount above the limit waits until it is alone.
    pub async fn enter(&self, amount: u64) -> Pass {
        let inner = &self.0;
        let ticket = inner.next_ticket.get();
        inner.next_ticket.set(ticket + 1);
        poll_fn(|context| {
            let used = inner.used.get();
            let fits = used == 0 || used + amount <= inner.limit;
            if inner.serving.get() == ticket && fits {
                inner.used.set(used + amount);
                inner.serving.set(ticket + 1);
                return Poll::Ready(());
            }
            inner.waiting.borrow_mut().insert(ticket, context.waker().clone());
            Poll::Pending
        })
        .await;
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
}
