//! Waiting for a condition inside one thread.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Tasks that wait until someone changes something. Always re-check the condition: a wake means
/// "look again", not "it is true".
#[derive(Default)]
pub struct WaitList {
    wakers: RefCell<Vec<Waker>>,
}

impl WaitList {
    /// An empty list.
    pub fn new() -> WaitList {
        WaitList::default()
    }

    /// Waits until `condition` gives a value. It is tested at once and after each wake.
    pub async fn until<T>(&self, mut condition: impl FnMut() -> Option<T>) -> T {
        poll_fn(|context| match condition() {
            Some(value) => Poll::Ready(value),
            None => {
                self.register(context);
                Poll::Pending
            }
        })
        .await
    }

    /// Has the task of `context` woken by the next [`WaitList::wake_all`].
    pub fn register(&self, context: &Context<'_>) {
        let mut wakers = self.wakers.borrow_mut();
        // A task polled again for another reason must not queue twice.
        if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            wakers.push(context.waker().clone());
        }
    }

    /// Wakes everyone, in the order they came.
    pub fn wake_all(&self) {
        // Taken out first: a waker may run code that waits here again.
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
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
    waiting: WaitList,
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
            waiting: WaitList::new(),
        }))
    }

    /// Waits for `amount` units. An amount above the limit waits until it is alone.
    pub async fn enter(&self, amount: u64) -> Pass {
        let inner = &self.0;
        let ticket = inner.next_ticket.get();
        inner.next_ticket.set(ticket + 1);
        inner
            .waiting
            .until(|| {
                let used = inner.used.get();
                let fits = used == 0 || used + amount <= inner.limit;
                (inner.serving.get() == ticket && fits).then(|| {
                    inner.used.set(used + amount);
                    inner.serving.set(ticket + 1);
                })
            })
            .await;
        inner.waiting.wake_all();
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
        inner.waiting.wake_all();
    }
}
