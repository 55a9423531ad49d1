//! When clients rest, by the times of a trace.
//!
//! A trace in which nobody ever rests has no clock, as those of the ARC paper, whose requests are numbered: such
//! a one is given [`RESTS_WITHOUT_CLOCK`] rests at equal distances, each as long as anybody wants.

use crate::trace::{Deed, Event};

/// A pause of so many seconds is a rest, as the engine has it.
const REST_S: f64 = 0.1;
/// As many as the epoch oracle has epochs: of a machine's months about one each night.
const RESTS_WITHOUT_CLOCK: usize = 64;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Rests {
    /// By request, what is left of the pause behind it once that is known to be a rest, in seconds; 0 behind most.
    after_s: Vec<f64>,
}

impl Rests {
    pub fn of(events: &[Event]) -> Rests {
        let mut after_s = vec![0.0; events.len()];
        // A flush moves nothing: what follows it follows the read or write before.
        let mut last = None;
        for (request, pair) in events.windows(2).enumerate() {
            if matches!(pair[0].deed, Deed::Read | Deed::Write) {
                last = Some(request);
            }
            let pause_s = pair[1].at_us.saturating_sub(pair[0].at_us) as f64 / 1e6;
            if let Some(last) = last
                && pause_s > REST_S
            {
                after_s[last] += pause_s - REST_S;
            }
        }
        if after_s.iter().all(|rest_s| *rest_s == 0.0) {
            let apart = events.len().div_ceil(RESTS_WITHOUT_CLOCK).max(1);
            after_s
                .iter_mut()
                .skip(apart - 1)
                .step_by(apart)
                .for_each(|rest_s| *rest_s = f64::INFINITY);
        }
        Rests { after_s }
    }

    /// How long clients let the drives work behind that request, in seconds.
    pub fn after_s(&self, request: usize) -> f64 {
        self.after_s[request]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at_us: u64, deed: Deed) -> Event {
        Event { at_us, deed, offset: 0, length: if deed == Deed::Flush { 0 } else { 4096 } }
    }

    #[test]
    fn a_pause_of_more_than_a_tenth_of_a_second_is_a_rest() {
        let events = [
            at(0, Deed::Write),
            at(10, Deed::Flush),
            at(2_100_010, Deed::Read),
            at(2_200_010, Deed::Read),
        ];
        let rests = Rests::of(&events);
        let after: Vec<f64> = (0..4).map(|request| rests.after_s(request)).collect();
        assert_eq!(after, [2.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn without_a_clock_there_are_rests_all_the_same() {
        let events: Vec<Event> = (0..6400).map(|n| at(n * 1000, Deed::Read)).collect();
        let rests = Rests::of(&events);
        let resting = (0..6400).filter(|request| rests.after_s(*request) > 0.0);
        assert_eq!(resting.collect::<Vec<_>>()[..2], [99, 199]);
    }
}
