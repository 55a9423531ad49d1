//! Tasks that are used again: each does one job at a time and then takes the next.
//!
//! After the first few jobs, a job costs neither a task nor an allocation. It begins as a task of its own would, in the
//! next round.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::Io;

/// Where a job is laid for one who waits for it.
struct Seat<J> {
    job: Cell<Option<J>>,
    waker: RefCell<Waker>,
}

struct Board<J> {
    idle: RefCell<Vec<Rc<Seat<J>>>>,
    /// Nobody will have jobs any more.
    over: Cell<bool>,
}

impl<J> Board<J> {
    /// Waits for the next job; `None`: there will be none.
    async fn next(&self, seat: &Rc<Seat<J>>) -> Option<J> {
        self.idle.borrow_mut().push(seat.clone());
        poll_fn(|context| match seat.job.take() {
            Some(job) => Poll::Ready(Some(job)),
            None if self.over.get() => Poll::Ready(None),
            None => {
                seat.waker.borrow_mut().clone_from(context.waker());
                Poll::Pending
            }
        })
        .await
    }
}

/// As many tasks as there have ever been jobs at once, which all do the same with their jobs. When this is
/// dropped, those at work end their job and go.
pub struct Hands<J> {
    board: Rc<Board<J>>,
    hire: Box<dyn Fn(J)>,
}

impl<J: 'static> Hands<J> {
    /// None at first. `work` does a job.
    pub fn new<W, F>(io: &Io, work: W) -> Hands<J>
    where
        W: Fn(J) -> F + 'static,
        F: Future<Output = ()> + 'static,
    {
        let board = Rc::new(Board { idle: RefCell::default(), over: Cell::new(false) });
        let (io, work, known) = (io.clone(), Rc::new(work), board.clone());
        let hire = move |first: J| {
            let (board, work) = (known.clone(), work.clone());
            io.spawn(async move {
                let waker = RefCell::new(Waker::noop().clone());
                let seat = Rc::new(Seat { job: Cell::new(None), waker });
                let mut job = Some(first);
                while let Some(taken) = job {
                    work(taken).await;
                    job = board.next(&seat).await;
                }
            });
        };
        Hands { board, hire: Box::new(hire) }
    }

    /// Has a job done.
    pub fn give(&self, job: J) {
        let idle = self.board.idle.borrow_mut().pop();
        match idle {
            Some(seat) => {
                seat.job.set(Some(job));
                seat.waker.borrow().wake_by_ref();
            }
            None => (self.hire)(job),
        }
    }
}

impl<J> Drop for Hands<J> {
    fn drop(&mut self) {
        self.board.over.set(true);
        for seat in self.board.idle.take() {
            seat.waker.borrow().wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Completed, Op, OpId, Park, Pool, SocketId, World};

    /// A world in which nothing happens.
    struct Still;

    impl World for Still {
        fn now_ns(&self) -> u64 {
            0
        }
        fn random(&mut self) -> u64 {
            4
        }
        fn submit(&mut self, _: OpId, op: Op) {
            panic!("nobody asks for this here: {op:?}");
        }
        fn poll(&mut self, _: Park, _: &mut Vec<Completed>) {}
        fn shutdown(&mut self, _: SocketId) {}
        fn close(&mut self, _: SocketId) {}
    }

    #[test]
    fn a_second_job_is_done_by_who_did_the_first_and_all_go_at_the_end() {
        let io = Io::new(Box::new(Still), Pool::new(0));
        let alive = Rc::new(());
        let done: Rc<RefCell<Vec<u32>>> = Rc::default();
        let work = {
            let (io, alive, done) = (io.clone(), alive.clone(), done.clone());
            move |job: u32| {
                let (io, alive, done) = (io.clone(), alive.clone(), done.clone());
                async move {
                    io.yield_now().await;
                    done.borrow_mut().push(job);
                    drop(alive);
                }
            }
        };
        let hands = Hands::new(&io, work);
        io.block_on(async {
            for turn in 0..3 {
                hands.give(2 * turn);
                hands.give(2 * turn + 1);
                for _ in 0..4 {
                    io.yield_now().await;
                }
                assert_eq!(hands.board.idle.borrow().len(), 2, "no more than were needed at once");
            }
            assert_eq!(*done.borrow(), [0, 1, 2, 3, 4, 5]);
            // One that is at work ends its job all the same.
            hands.give(6);
            drop(hands);
            for _ in 0..4 {
                io.yield_now().await;
            }
        });
        assert_eq!(done.borrow().last(), Some(&6));
        assert_eq!(Rc::strong_count(&alive), 1, "nobody is left");
    }
}
