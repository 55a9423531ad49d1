//! Keeps changes to one sector from overtaking each other while a part of it is rewritten.
//!
//! The file takes any byte range, the volume whole sectors only. A change that begins or ends
//! inside a sector therefore reads that sector, alters its part and writes it back; a write that
//! lands in between would be undone by it. So every change announces its range here:
//!
//! * changes to whole sectors never wait for one another (the volume orders them as it likes);
//! * a change with a part of a sector waits for every earlier one that overlaps it, and later
//!   ones that overlap wait for it. Order is order of arrival, so nobody starves.
//!
//! It knows the changes that come through this door alone. Other doors write whole sectors; one
//! that writes the very sector this door is rewriting a part of loses against it or wins over it,
//! as two writers of one sector do anywhere.

use std::cell::{Cell, RefCell};

use io::WaitList;

/// The changes under way.
#[derive(Default)]
pub(super) struct Sectors {
    changes: RefCell<Vec<Change>>,
    next_ticket: Cell<u64>,
    /// Changes in `changes` that rewrite parts of sectors; while 0, nobody needs to look.
    partial: Cell<usize>,
    waiting: WaitList,
}

struct Change {
    ticket: u64,
    start: u64,
    end: u64,
    partial: bool,
}

/// A change under way; over when dropped.
pub(super) struct Changing<'a> {
    sectors: &'a Sectors,
    ticket: u64,
}

impl Sectors {
    /// Announces a change of the sectors from byte `start` up to `end`, and waits until it may
    /// begin. `partial`: it will read a sector and write it back.
    pub(super) async fn change(&self, start: u64, end: u64, partial: bool) -> Changing<'_> {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.changes.borrow_mut().push(Change { ticket, start, end, partial });
        self.partial.set(self.partial.get() + usize::from(partial));
        // Made before the wait, so that a change given up while it waits is forgotten too.
        let changing = Changing { sectors: self, ticket };
        if self.partial.get() > 0 {
            self.waiting
                .until(|| (!self.in_the_way(ticket, start, end, partial)).then_some(()))
                .await;
        }
        changing
    }

    fn in_the_way(&self, ticket: u64, start: u64, end: u64, partial: bool) -> bool {
        self.changes.borrow().iter().any(|earlier| {
            earlier.ticket < ticket
                && (earlier.partial || partial)
                && earlier.start < end
                && start < earlier.end
        })
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let sectors = self.sectors;
        let mut changes = sectors.changes.borrow_mut();
        let Some(index) = changes.iter().position(|change| change.ticket == self.ticket) else {
            return;
        };
        // The order in the list does not matter: tickets tell who came first.
        let change = changes.swap_remove(index);
        drop(changes);
        sectors.partial.set(sectors.partial.get() - usize::from(change.partial));
        sectors.waiting.wake_all();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn ready<F: Future>(future: F) -> F::Output {
        match poll(pin!(future)) {
            Poll::Ready(value) => value,
            Poll::Pending => panic!("it should not have to wait"),
        }
    }

    #[test]
    fn whole_sectors_never_wait_for_one_another() {
        let sectors = Sectors::default();
        let _first = ready(sectors.change(0, 4096, false));
        let _second = ready(sectors.change(512, 1024, false));
        let _elsewhere = ready(sectors.change(8192, 8704, true));
    }

    #[test]
    fn a_partial_change_waits_for_earlier_ones_and_later_ones_wait_for_it() {
        let sectors = Sectors::default();
        let first = ready(sectors.change(0, 1024, false));
        let mut partial = pin!(sectors.change(512, 1024, true));
        assert!(poll(partial.as_mut()).is_pending());
        // Arrived later than the partial one: lets it go first although only `first` is running.
        let mut later = pin!(sectors.change(512, 2048, false));
        assert!(poll(later.as_mut()).is_pending());
        drop(first);
        assert!(poll(later.as_mut()).is_pending());
        let Poll::Ready(running) = poll(partial.as_mut()) else { panic!("nothing is in its way") };
        assert!(poll(later.as_mut()).is_pending());
        drop(running);
        assert!(poll(later.as_mut()).is_ready());
        assert_eq!(sectors.partial.get(), 0);
    }

    #[test]
    fn a_change_given_up_while_it_waits_is_forgotten() {
        let sectors = Sectors::default();
        let first = ready(sectors.change(0, 512, true));
        {
            let mut given_up = pin!(sectors.change(0, 512, true));
            assert!(poll(given_up.as_mut()).is_pending());
        }
        drop(first);
        drop(ready(sectors.change(0, 512, true)));
        assert!(sectors.changes.borrow().is_empty());
    }
}
