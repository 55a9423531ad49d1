//! Further looks at what a fall or a close has left: each drive alone, and each drive's map rotten.

use std::cell::RefCell;
use std::rc::Rc;

use engine::Tier;
use twin::{Simulation, mix};

use crate::alone::look_alone;
use crate::enumerate::{Hunt, Rest, Then};
use crate::failure::Cut;
use crate::oracle::Oracle;
use crate::player::Wrong;
use crate::subject::Subject;

impl<S: Subject> Hunt<'_, S> {
    /// Opens each drive alone after a fall; nothing is changed by that.
    pub(crate) fn look_at_each_alone(&self, order: u64, fallen: &Rest, cuts: &[Cut]) -> bool {
        for survivor in Tier::BOTH {
            match look_alone(
                self.subject,
                &fallen.snapshot,
                survivor,
                &fallen.oracle,
                (order, false),
            ) {
                Ok(seen) => self.alone.lock().expect("no panic")[survivor.index()].add(seen),
                Err(Wrong { stage, message }) => {
                    self.record(order, cuts.to_vec(), stage, message);
                    return false;
                }
            }
        }
        true
    }

    /// The newer copies of a drive's map rot, and the other drive is lost.
    fn look_alone_at_rotten(&self, order: u64, fallen: &Rest, cuts: &[Cut], closed: bool) -> bool {
        for survivor in Tier::BOTH {
            let simulation = Simulation::wake(&fallen.snapshot);
            if !self.subject.spoil_newer_copies(&simulation, survivor, closed) {
                continue;
            }
            let rotten = simulation.snapshot();
            let seen = look_alone(self.subject, &rotten, survivor, &fallen.oracle, (order, true));
            if let Err(Wrong { stage, message }) = seen {
                let message =
                    format!("{message}\nBefore this the newer copies of its map had rotten.");
                self.record(order, cuts.to_vec(), stage, message);
                return false;
            }
        }
        true
    }

    /// The map of each drive rots after a fall, where it may.
    pub(crate) fn rot(&self, order: u64, fallen: &Rest, cut: Cut) -> bool {
        self.look_at_rotten(order, fallen, &[cut], Then::Close)
            && self.look_alone_at_rotten(order, fallen, &[cut], false)
    }

    /// Opens both drives when all of the map has rotten on one of them, and when the newer copies have.
    fn look_at_rotten(&self, order: u64, fallen: &Rest, cuts: &[Cut], then: Then) -> bool {
        for (tier, newer) in Tier::BOTH.into_iter().flat_map(|tier| [(tier, false), (tier, true)]) {
            let simulation = Simulation::wake(&fallen.snapshot);
            let spoilt = match newer {
                true => self.subject.spoil_newer_copies(&simulation, tier, then == Then::Leave),
                false => self.subject.spoil_map(&simulation, tier),
            };
            if !spoilt {
                continue;
            }
            let oracle = Rc::new(RefCell::new(fallen.oracle.clone()));
            let case = (order, mix(order ^ 0x407));
            if !self.aftermath(case, &simulation, &oracle, true, cuts.to_vec(), then) {
                let what = if newer { "the newer copies of the map" } else { "the map" };
                self.explain(order, &format!("Before this {what} of the {tier} drive had rotten."));
                return false;
            }
        }
        true
    }

    /// After a close: each drive alone, and each drive's map rotten.
    pub(crate) fn look_after_close(
        &self,
        order: u64,
        simulation: &Simulation,
        oracle: &Oracle,
        cuts: &[Cut],
    ) -> bool {
        // What was under way ends.
        simulation.boot();
        let closed = Rest { snapshot: simulation.snapshot(), oracle: oracle.clone(), made: true };
        let right = self.look_at_each_alone(order, &closed, cuts)
            && self.look_alone_at_rotten(order, &closed, cuts, true)
            && self.look_at_rotten(order, &closed, cuts, Then::Leave);
        if !right {
            self.explain(order, "Before this the volume had been opened and closed.");
        }
        right
    }

    /// After a second cut: each drive alone, of what the first recovery had seen.
    pub(crate) fn look_alone_again(
        &self,
        order: u64,
        simulation: &Simulation,
        oracle: &RefCell<Oracle>,
        cuts: &[Cut],
    ) -> bool {
        let oracle = oracle.borrow().clone();
        let fallen = Rest { snapshot: simulation.snapshot(), oracle, made: true };
        let right = self.look_at_each_alone(order, &fallen, cuts);
        if !right {
            self.explain(order, "Before this the volume had been opened after a first fall.");
        }
        right
    }
}
