//! Who waits for which part of the log to be written. Only those whose part is written are woken:
//! with hundreds of requests in flight, waking all for each record would cost more than the record.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::task::{Context, Waker};

use crate::address::Lsn;

/// Waiting tasks in order of the LSN they wait for.
#[derive(Default)]
pub(crate) struct WrittenWaits {
    waiting: RefCell<BTreeMap<(Lsn, u64), Waker>>,
    sequence: Cell<u64>,
}

/// A task's place; give it to [`WrittenWaits::register`] again when polled anew.
pub(crate) type Ticket = (Lsn, u64);

impl WrittenWaits {
    /// Has the task woken once everything before `end` is written.
    pub fn register(&self, end: Lsn, ticket: &mut Option<Ticket>, context: &Context<'_>) {
        let key = *ticket.get_or_insert_with(|| {
            let sequence = self.sequence.get();
            self.sequence.set(sequence + 1);
            (end, sequence)
        });
        self.waiting.borrow_mut().insert(key, context.waker().clone());
    }

    /// Wakes those who wait for what is written now.
    pub fn wake_until(&self, written: Lsn) {
        let rest = self.waiting.borrow_mut().split_off(&(Lsn(written.0 + 1), 0));
        // Taken out before waking: a waker may run code that registers again.
        let ready = std::mem::replace(&mut *self.waiting.borrow_mut(), rest);
        for waker in ready.into_values() {
            waker.wake();
        }
    }

    /// Wakes everyone: the volume was poisoned.
    pub fn wake_all(&self) {
        self.wake_until(Lsn(u64::MAX - 1));
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
    fn only_those_whose_part_is_written_are_woken() {
        let waits = WrittenWaits::default();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let context = Context::from_waker(&waker);
        let mut tickets = [None; 4];
        for (end, ticket) in [5, 9, 9, 20].into_iter().zip(&mut tickets) {
            waits.register(Lsn(end), ticket, &context);
            waits.register(Lsn(end), ticket, &context);
        }
        waits.wake_until(Lsn(9));
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
        waits.wake_until(Lsn(19));
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
        waits.wake_all();
        assert_eq!(count.0.load(Ordering::Relaxed), 4);
    }
}
