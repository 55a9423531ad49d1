//! What the clients asked and what they were told, in the order they asked, for a report that a
//! person reads.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

/// One request.
#[derive(Debug, Clone)]
pub struct Note {
    /// Which client; `None`: the look after a cut.
    pub client: Option<usize>,
    /// What it asked.
    pub what: String,
    /// The bytes of the volume that it was about, if it was about any.
    pub bytes: Option<Range<u64>>,
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
    pub fn begin(
        &self,
        client: Option<usize>,
        what: String,
        bytes: Option<Range<u64>>,
        begun_ns: u64,
    ) -> usize {
        let mut notes = self.0.borrow_mut();
        notes.push(Note { client, what, bytes, begun_ns, ended: None });
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

impl Note {
    /// A line that says when, who, what, in which extents, and how it was answered.
    pub fn tell(&self, extent_bytes: u64) -> String {
        let who = self.client.map_or(String::new(), |client| format!("client {client}: "));
        let begun_ms = self.begun_ns as f64 / 1e6;
        let extents = self
            .bytes
            .as_ref()
            .map_or(String::new(), |bytes| format!(" ({})", extents(bytes, extent_bytes)));
        let answer = match &self.ended {
            Some((ended_ns, how)) => format!("{how} at {:.3} ms", *ended_ns as f64 / 1e6),
            None => "never answered".to_owned(),
        };
        format!("{begun_ms:12.3} ms  {who}{}{extents} → {answer}", self.what)
    }
}

/// Which extents a range of the volume is in, and which of them it covers in part.
fn extents(bytes: &Range<u64>, extent_bytes: u64) -> String {
    let (first, end) = (bytes.start / extent_bytes, bytes.end.div_ceil(extent_bytes));
    let ragged = [bytes.start, bytes.end].iter().any(|at| !at.is_multiple_of(extent_bytes));
    match (end.saturating_sub(first), ragged) {
        (0 | 1, true) => format!("part of extent {first}"),
        (0 | 1, false) => format!("extent {first}, whole"),
        (_, true) => format!("crosses extents {first} to {}", end - 1),
        (_, false) => format!("extents {first} to {}, whole", end - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_names_the_extents_of_its_request() {
        assert_eq!(extents(&(4096..8192), 131_072), "part of extent 0");
        assert_eq!(extents(&(131_072..262_144), 131_072), "extent 1, whole");
        assert_eq!(extents(&(131_072..393_216), 131_072), "extents 1 to 2, whole");
        assert_eq!(extents(&(126_976..135_168), 131_072), "crosses extents 0 to 1");
    }
}
