//! Metadata contexts: what `BLOCK_STATUS` can tell about a range.
//!
//! * `base:allocation`: bit 0 set for a hole, bit 1 for zeros (the protocol's own context).
//! * `bimetal:tier`: where the range is now: 0 fast drive, 1 slow drive, 2 landing log, 3 hole,
//!   4 lost (reading it is an error).
//! * `bimetal:dirty`: 1 where the slow drive does not have the newest state, else 0.
//! * `bimetal:heat`: how often it was read lately, in sixteenths.
//!
//! Ids are fixed: 1 to 4. They are valid for one connection, as the protocol wants it.

use io::{Place, Span, Volume};

use super::protocol::allocation;

/// One context this server knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    Allocation,
    Tier,
    Dirty,
    Heat,
}

impl Context {
    pub(super) const ALL: [Context; 4] =
        [Context::Allocation, Context::Tier, Context::Dirty, Context::Heat];

    pub(super) fn name(self) -> &'static str {
        match self {
            Context::Allocation => "base:allocation",
            Context::Tier => "bimetal:tier",
            Context::Dirty => "bimetal:dirty",
            Context::Heat => "bimetal:heat",
        }
    }

    pub(super) fn id(self) -> u32 {
        match self {
            Context::Allocation => 1,
            Context::Tier => 2,
            Context::Dirty => 3,
            Context::Heat => 4,
        }
    }

    /// Whether a listing query asks for it: by its name, or by its namespace alone (`base:`).
    pub(super) fn is_listed_by(self, query: &[u8]) -> bool {
        let name = self.name().as_bytes();
        query == name || (query.ends_with(b":") && name.starts_with(query))
    }

    /// What the volume knows of a range, as descriptors (length, flags), neighbours of one state
    /// merged. At most `length` bytes are described, in at most `runs_max` pieces; `one` keeps only the
    /// first descriptor.
    pub(super) fn describe(
        self,
        volume: &impl Volume,
        at: u64,
        length: u32,
        runs_max: usize,
        one: bool,
    ) -> Vec<(u32, u32)> {
        let bytes = u64::from(length);
        match self {
            Context::Allocation | Context::Tier => {
                let spans = volume.places(at, bytes, runs_max);
                let runs = spans.iter().map(|span| (span.length, self.state(*span)));
                merged(runs, length, one)
            }
            Context::Dirty => {
                let worths = volume.worths(at, bytes, runs_max);
                merged(worths.iter().map(|w| (w.length, u32::from(w.dirty))), length, one)
            }
            Context::Heat => {
                let worths = volume.worths(at, bytes, runs_max);
                merged(worths.iter().map(|w| (w.length, w.heat)), length, one)
            }
        }
    }

    /// The state flags of a span.
    fn state(self, span: Span) -> u32 {
        match (self, span.place) {
            (Context::Allocation, Place::Hole) => allocation::HOLE | allocation::ZERO,
            (Context::Allocation, _) => 0,
            (_, Place::Fast) => 0,
            (_, Place::Slow) => 1,
            (_, Place::Log) => 2,
            (_, Place::Hole) => 3,
            (_, Place::Lost) => 4,
        }
    }
}

fn merged(runs: impl Iterator<Item = (u64, u32)>, length: u32, one: bool) -> Vec<(u32, u32)> {
    let mut merged: Vec<(u32, u32)> = Vec::new();
    let mut left = u64::from(length);
    for (bytes, state) in runs {
        // Fits: `left` started as a u32.
        let bytes = bytes.min(left) as u32;
        if bytes == 0 {
            break;
        }
        match merged.last_mut() {
            Some((run, known)) if *known == state => *run += bytes,
            Some(_) if one => break,
            _ => merged.push((bytes, state)),
        }
        left -= u64::from(bytes);
    }
    merged
}

/// The contexts a client has selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Contexts([bool; Context::ALL.len()]);

impl Contexts {
    /// None selected.
    pub(super) const NONE: Contexts = Contexts([false; Context::ALL.len()]);

    pub(super) fn select(&mut self, context: Context) {
        self.0[context as usize] = true;
    }

    pub(super) fn any(self) -> bool {
        self.0.contains(&true)
    }

    pub(super) fn selected(self) -> impl Iterator<Item = Context> {
        Context::ALL.into_iter().filter(move |context| self.0[*context as usize])
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

    fn described(context: Context, length: u32, one: bool) -> Vec<(u32, u32)> {
        merged(SPANS.iter().map(|span| (span.length, context.state(*span))), length, one)
    }

    #[test]
    fn neighbours_of_one_state_are_one_run() {
        let runs = described(Context::Allocation, 65536, false);
        assert_eq!(runs, [(12288, 0), (8192, 3), (45056, 0)]);
        let runs = described(Context::Tier, 65536, false);
        assert_eq!(runs, [(4096, 0), (8192, 2), (8192, 3), (45056, 1)]);
    }

    #[test]
    fn a_single_run_is_as_long_as_it_can_be_and_never_beyond_the_request() {
        assert_eq!(described(Context::Allocation, u32::MAX, true), [(12288, 0)]);
        assert_eq!(described(Context::Tier, 512, true), [(512, 0)]);
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
