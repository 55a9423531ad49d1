//! What the clients asked and what they were told, in the order they asked, for a report that a
//! person reads.

use std::cell::RefCell;
use std::rc::Rc;

/// One request.
#[derive(Debug, Clone)]
pub struct Note {
    /// Which client; `None`: the look after a cut.
    pub client: Option<usize>,
    /// What it asked.
    pub what: String,
    /// When, on the virtual clock.
    pub begun_ns: u64,
    /// When it was answered, and how; `None`: never.
    pub ended: Option<(u64, String)>,
}

/// A list of requests. Clones are the same list.
#[derive(Debug, Clone, Default)]
pub struct Journal(Rc<RefCell<Vec<Note>>>);

impl Journal {
    /// A request begins; gives its number.
    pub fn begin(&self, client: Option<usize>, what: String, begun_ns: u64) -> usize {
        let mut notes = self.0.borrow_mut();
        notes.push(Note { client, what, begun_ns, ended: None });
        notes.len() - 1
    }

    /// The request has been answered.
    pub fn end(&self, number: usize, ended_ns: u64, how: String) {
        self.0.borrow_mut()[number].ended = Some((ended_ns, how));
    }

    /// All so far, first first; the list is empty afterwards.
    pub fn take(&self) -> Vec<Note> {
        std::mem::take(&mut self.0.borrow_mut())
    }
}
