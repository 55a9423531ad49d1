//! A model that lives from event to event: its time, and what has finished until then.

use crate::model::Finished;

/// See the head of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Life {
    /// The moment it has come to (ns).
    pub(crate) now_ns: u64,
    /// Requests that have finished and whose ends have not been told.
    finished: Vec<Finished>,
}

impl Life {
    /// A request has finished now.
    pub(crate) fn end(&mut self, tag: u64) {
        self.finished.push(Finished { tag, at_ns: self.now_ns });
    }

    /// When there is something to tell, or else the next event.
    pub(crate) fn next_ns(&self, event_ns: Option<u64>) -> Option<u64> {
        self.finished.first().map_or(event_ns, |finished| Some(finished.at_ns))
    }

    /// Tells what has finished.
    pub(crate) fn tell(&mut self, finished: &mut Vec<Finished>) {
        finished.append(&mut self.finished);
    }

    /// Nobody is to hear of what has finished.
    pub(crate) fn forget(&mut self) {
        self.finished.clear();
    }
}

/// What has a life.
pub(crate) trait Living {
    /// Its life.
    fn life(&mut self) -> &mut Life;

    /// When the next thing happens in it.
    fn event_ns(&self) -> Option<u64>;

    /// Does what is due now.
    fn turn(&mut self);

    /// Lives on until then, event by event.
    fn live_until(&mut self, until_ns: u64) {
        while let Some(event_ns) = self.event_ns().filter(|ns| *ns <= until_ns) {
            let now_ns = &mut self.life().now_ns;
            *now_ns = event_ns.max(*now_ns);
            self.turn();
        }
        let now_ns = &mut self.life().now_ns;
        *now_ns = until_ns.max(*now_ns);
    }
}
