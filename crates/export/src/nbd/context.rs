//! Metadata contexts: what `BLOCK_STATUS` can tell about a range.
//!
//! * `base:allocation`: bit 0 set for a hole, bit 1 for zeros (the protocol's own context).
//! * `bimetal:tier`: where the range is now: 0 fast drive, 1 slow drive, 2 landing log, 3 hole,
//!   4 lost (reading it is an error).
//!
//! Ids are fixed: 1 and 2. They are valid for one connection, as the protocol wants it.

use io::{Place, Span};

use super::protocol::allocation;

/// One context this server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Allocation,
    Tier,
}

impl Context {
    pub(super) const ALL: [Context; 2] = [Context::Allocation, Context::Tier];

    pub(super) fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::Tier => "bimetal:tier",
        }
    }

    pub(super) fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::Tier => 2,
        }
    }

    /// Whether a listing query asks for it: by its name, or by its namespace alone (`base:`).
    pub(super) fn is_listed_by(self, query: &[u8]) -> bool {
        let name = self.name().as_bytes();
        query == name || (query.ends_with(b":") && name.starts_with(query))
    }

    /// The state flags of a place.
    pub(super) fn state(self, place: Place) -> u32 {
        match (self, place) {
            (Context::Allocation, Place::Hole) => allocation::HOLE | allocation::ZERO,
            (Context::Allocation, _) => 0,
            (Context::Tier, Place::Fast) => 0,
            (Context::Tier, Place::Slow) => 1,
            (Context::Tier, Place::Log) => 2,
            (Context::Tier, Place::Hole) => 3,
            (Context::Tier, Place::Lost) => 4,
        }
    }

    /// Turns spans into descriptors (length, flags), neighbours of one state merged. At most
    /// `length` bytes are described; `one` keeps only the first.
    pub(super) fn describe(self, spans: &[Span], length: u32, one: bool) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::with_capacity(if one { 1 } else { spans.len() });
        let mut left = u64::from(length);
        for span in spans {
            // Fits: `left` started as a u32.
            let bytes = span.length.min(left) as u32;
            if bytes == 0 {
                break;
            }
            let state = self.state(span.place);
            match runs.last_mut() {
                Some((run, known)) if *known == state => *run += bytes,
                Some(_) if one => break,
                _ => runs.push((bytes, state)),
            }
            left -= u64::from(bytes);
        }
        runs
    }
}

/// The contexts a client has selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contexts {
    allocation: bool,
    tier: bool,
}

impl Contexts {
    /// None selected.
    pub(super) const NONE: Contexts = Contexts { allocation: false, tier: false };

    pub(super) fn select(&mut self, context: Context) {
        match context {
            Context::Allocation => self.allocation = true,
            Context::Tier => self.tier = true,
        }
    }

    pub(super) fn any(self) -> bool {
        self.allocation || self.tier
    }

    pub(super) fn selected(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().filter(move |context| match context {
            Context::Allocation => self.allocation,
            Context::Tier => self.tier,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPANS: [Span; 5] = [
        Span { length: 4096, place: Place::Fast },
        Span { length: 8192, place: Place::Log },
        Span { length: 4096, place: Place::Hole },
        Span { length: 4096, place: Place::Hole },
        Span { length: 1 << 40, place: Place::Slow },
    ];

    #[test]
    fn neighbours_of_one_state_are_one_run() {
        let runs = Context::Allocation.describe(&SPANS, 65536, false);
        assert_eq!(runs, [(12288, 0), (8192, 3), (45056, 0)]);
        let runs = Context::Tier.describe(&SPANS, 65536, false);
        assert_eq!(runs, [(4096, 0), (8192, 2), (8192, 3), (45056, 1)]);
    }

    #[test]
    fn a_single_run_is_as_long_as_it_can_be_and_never_beyond_the_request() {
        assert_eq!(Context::Allocation.describe(&SPANS, u32::MAX, true), [(12288, 0)]);
        assert_eq!(Context::Tier.describe(&SPANS, 512, true), [(512, 0)]);
    }

    #[test]
    fn a_namespace_alone_lists_its_contexts_and_nothing_else() {
        assert!(Context::Allocation.is_listed_by(b"base:"));
        assert!(!Context::Allocation.is_listed_by(b"bimetal:"));
        assert!(!Context::Tier.is_listed_by(b"bimetal:ti"));
        assert!(Context::Tier.is_listed_by(b"bimetal:tier"));
        assert!(!Context::Tier.is_listed_by(b""));
    }
}
