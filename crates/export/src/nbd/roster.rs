//! Who is connected, and how they are told to leave.
//!
//! A connection holds a [`Seat`] for as long as it lives. During the handshake it waits inside
//! the socket, so leaving means that the socket is shut down; afterwards it is woken and looks.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};

use io::{Socket, WaitList};

/// The connections of one server.
#[derive(Default)]
pub(super) struct Roster {
    seats: RefCell<Vec<Option<Guest>>>,
    taken: Cell<usize>,
    stopping: Cell<bool>,
    /// Woken whenever a seat becomes free.
    changed: WaitList,
}

struct Guest {
    socket: Socket,
    /// Still in the handshake.
    haggling: bool,
    waker: Option<Waker>,
}

impl Roster {
    /// Connections now.
    pub(super) fn taken(&self) -> usize {
        self.taken.get()
    }

    /// Whether no more connections are wanted.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Gives a seat, unless the server is stopping or `seats_max` are taken.
    pub(super) fn admit(self: &Rc<Roster>, socket: Socket, seats_max: usize) -> Option<Seat> {
        if self.stopping.get() || self.taken.get() >= seats_max {
            return None;
        }
        let mut seats = self.seats.borrow_mut();
        let index = seats.iter().position(Option::is_none).unwrap_or_else(|| {
            seats.push(None);
            seats.len() - 1
        });
        seats[index] = Some(Guest { socket, haggling: true, waker: None });
        self.taken.set(self.taken.get() + 1);
        Some(Seat { roster: self.clone(), index })
    }

    /// Asks everyone to leave and admits nobody any more.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        for guest in self.seats.borrow_mut().iter_mut().flatten() {
            if guest.haggling {
                guest.socket.shutdown();
            }
            if let Some(waker) = guest.waker.take() {
                waker.wake();
            }
        }
    }

    /// Waits until nobody is left.
    pub(super) async fn empty(&self) {
        self.changed.until(|| (self.taken.get() == 0).then_some(())).await;
    }
}

/// A place in the roster, free again when dropped.
pub(super) struct Seat {
    roster: Rc<Roster>,
    index: usize,
}

impl Seat {
    /// The handshake is over.
    pub(super) fn settle_in(&self) {
        self.with(|guest| guest.haggling = false);
    }

    /// Whether the connection must end; wakes the task once it must.
    pub(super) fn must_leave(&self, context: &mut Context<'_>) -> bool {
        if self.roster.stopping.get() {
            return true;
        }
        self.with(|guest| match &mut guest.waker {
            Some(known) => known.clone_from(context.waker()),
            unknown => *unknown = Some(context.waker().clone()),
        });
        false
    }

    fn with(&self, change: impl FnOnce(&mut Guest)) {
        if let Some(guest) = &mut self.roster.seats.borrow_mut()[self.index] {
            change(guest);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // The socket is dropped outside the borrow: closing it goes to the world.
        let guest = self.roster.seats.borrow_mut()[self.index].take();
        drop(guest);
        self.roster.taken.set(self.roster.taken.get() - 1);
        self.roster.changed.wake_all();
    }
}
