//! How a model that stands before others speaks to one of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::model::{Finished, Model, Request};

/// A model behind another one: whether it knows an end at submission or later makes no difference
/// to who asks.
pub(crate) struct Port {
    model: Box<dyn Model>,
    /// Ends that are known: when, and whose.
    told: BinaryHeap<Reverse<(u64, u64)>>,
    /// Requests whose ends are not known.
    asked: usize,
}

impl Clone for Port {
    fn clone(&self) -> Port {
        Port { model: self.model.duplicate(), told: self.told.clone(), asked: self.asked }
    }
}

impl Port {
    pub(crate) fn new(model: Box<dyn Model>) -> Port {
        Port { model, told: BinaryHeap::new(), asked: 0 }
    }

    pub(crate) fn submit(&mut self, now_ns: u64, tag: u64, request: &Request) {
        match self.model.submit(now_ns, tag, request) {
            Some(done_ns) => self.told.push(Reverse((done_ns.max(now_ns), tag))),
            None => self.asked += 1,
        }
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        let told_ns = self.told.peek().map(|Reverse((done_ns, _))| *done_ns);
        let own_ns = if self.asked > 0 { self.model.next_ns() } else { None };
        told_ns.into_iter().chain(own_ns).min()
    }

    pub(crate) fn advance(&mut self, now_ns: u64, finished: &mut Vec<Finished>) {
        if self.asked > 0 {
            let before = finished.len();
            self.model.advance(now_ns, finished);
            self.asked -= finished.len() - before;
        }
        while let Some(Reverse((at_ns, tag))) = self.told.peek().copied()
            && at_ns <= now_ns
        {
            self.told.pop();
            finished.push(Finished { tag, at_ns });
        }
    }

    pub(crate) fn reset(&mut self) {
        self.model.reset();
        self.told.clear();
        self.asked = 0;
    }
}
