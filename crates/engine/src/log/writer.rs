//! Writes sealed records to the fast drive: the group commit.
//!
//! One task polls the writes under way itself, so that a record costs no task of its own. It runs
//! after the tasks that appended in the same round, and takes what they appended as one record:
//! no delay is added at depth 1, and under load a record carries what gathered while the previous
//! ones were being written.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use io::{Buf, Transfer};

use crate::address::Lsn;
use crate::canary::canary;
use crate::drive::Watched;
use crate::error::Poison;
use crate::shared::Shared;

/// Records being written at once. Two would keep a drive busy; more let a deep queue through
/// when the drive is parallel. Beyond eight records only grow smaller, and each costs a header.
const RECORDS_IN_FLIGHT_MAX: usize = 8;

/// Runs until the engine is closed.
pub(crate) async fn run(shared: Rc<Shared>) {
    let mut under_way: Vec<(Lsn, Watched<Transfer>)> = Vec::with_capacity(RECORDS_IN_FLIGHT_MAX);
    let mut place = None;
    poll_fn(|context| {
        settle_done(&shared, &mut under_way, context);
        let stop = submit_waiting(&shared, &mut under_way);
        if stop && under_way.is_empty() {
            return Poll::Ready(());
        }
        // New transfers must be polled once to know whom to wake.
        settle_done(&shared, &mut under_way, context);
        shared.log_work.register(&mut place, context);
        Poll::Pending
    })
    .await;
}

fn settle_done(
    shared: &Shared,
    under_way: &mut Vec<(Lsn, Watched<Transfer>)>,
    context: &mut Context<'_>,
) {
    under_way.retain_mut(|(lsn, transfer)| match Pin::new(transfer).poll(context) {
        Poll::Pending => true,
        Poll::Ready(outcome) => {
            settle(shared, *lsn, outcome);
            false
        }
    });
}

fn settle(shared: &Shared, lsn: Lsn, (_, outcome): (Buf, Result<(), io::IoError>)) {
    match outcome {
        Err(_) if canary!(LogFailureIgnored) => {
            shared.state.borrow_mut().log.settle_written(lsn);
            let written = shared.state.borrow().log.written();
            shared.written.wake_until(written);
        }
        Ok(()) => {
            let written = {
                let mut state = shared.state.borrow_mut();
                state.log.settle_written(lsn);
                state.log.written()
            };
            shared.written.wake_until(written);
        }
        Err(error) => shared.poison(Poison::by("writing the landing log failed", error)),
    }
}

/// Says whether to stop: the engine is closed and nothing waits to be written.
fn submit_waiting(shared: &Shared, under_way: &mut Vec<(Lsn, Watched<Transfer>)>) -> bool {
    while under_way.len() < RECORDS_IN_FLIGHT_MAX {
        let mut state = shared.state.borrow_mut();
        if state.poisoned.is_some() {
            // The log has a hole now; what comes after it could not be replayed.
            return state.closed;
        }
        let Some(sealed) = state.log.next_sealed() else { return state.closed };
        drop(state);
        under_way.push((sealed.lsn, shared.fast.write(sealed.position, sealed.buf)));
    }
    false
}
