//! The best fixed set in hindsight: what a person who knew the future would have put on the fast
//! drive and left there.

use super::{Contender, Extent, Ground, Policy, costs};
use crate::placement::replay::{Setup, replay};
use crate::trace::Event;

/// How much a write's time counts beside a read's, tried one after the other: the log takes a part of
/// the writes' cost away, and how much depends on the trace.
const WRITE_WEIGHTS: [f64; 4] = [0.0, 0.1, 0.3, 1.0];

/// See the head of the file.
pub struct Fixed {
    chosen: Vec<Extent>,
}

impl Fixed {
    /// The best of a few for so many slots; without a stage, which is none of its merit.
    pub fn best(events: &[Event], ground: &Ground, slots: usize, setup: &Setup) -> Fixed {
        let setup = Setup { stage: 0, ..*setup };
        let sets = WRITE_WEIGHTS.map(|weight| {
            let mut worth = vec![0.0; ground.extents()];
            costs(events, ground, |extent, _, taken_s, is_write| {
                worth[extent.index()] += taken_s * if is_write { weight } else { 1.0 };
            });
            let mut ranked: Vec<Extent> = (0..ground.extents() as u64).map(Extent).collect();
            ranked.sort_by(|a, b| worth[b.index()].total_cmp(&worth[a.index()]));
            ranked.truncate(slots);
            Fixed { chosen: ranked }
        });
        let busy_s = |mut set: Fixed| {
            let outcome = replay(events, ground, &setup, &mut set);
            (outcome.slow_busy_s, set)
        };
        let best = sets.into_iter().map(busy_s).min_by(|a, b| a.0.total_cmp(&b.0));
        best.expect("some weights").1
    }
}

impl Policy for Fixed {}

impl Contender for Fixed {
    fn name(&self) -> &'static str {
        "static"
    }

    fn residents(&self) -> Vec<Extent> {
        self.chosen.clone()
    }
}
