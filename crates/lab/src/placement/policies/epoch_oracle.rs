//! Knows what each epoch will ask for, and moves at its beginning what is worth the move.

use std::collections::BTreeSet;

use super::{Contender, Extent, FastDrive, Ground, Moment, Policy, costs};
use crate::trace::Event;

/// Epochs of a trace.
const EPOCHS: usize = 64;
/// Time of one move: a read of the whole extent, and the write of what leaves, now and then.
const MOVE_S: f64 = 12e-3;

/// See the head of the file.
pub struct EpochOracle {
    /// Worth of each extent touched, by epoch.
    worth_s: Vec<Vec<(Extent, f64)>>,
    epoch_requests: u64,
    epoch: usize,
    resident: BTreeSet<Extent>,
    slots: usize,
}

impl EpochOracle {
    /// For so many slots.
    pub fn new(events: &[Event], ground: &Ground, slots: usize) -> EpochOracle {
        let epoch_requests = (events.len() / EPOCHS).max(1);
        let epochs = events.len() / epoch_requests + 1;
        let mut worth = vec![std::collections::BTreeMap::<Extent, f64>::new(); epochs];
        costs(events, ground, |extent, request, taken_s, is_write| {
            let weight = if is_write { 0.3 } else { 1.0 };
            *worth[request / epoch_requests].entry(extent).or_default() += taken_s * weight;
        });
        EpochOracle {
            worth_s: worth.into_iter().map(|epoch| epoch.into_iter().collect()).collect(),
            epoch_requests: epoch_requests as u64,
            epoch: usize::MAX,
            resident: BTreeSet::new(),
            slots,
        }
    }
}

impl Policy for EpochOracle {}

impl Contender for EpochOracle {
    fn name(&self) -> &'static str {
        "epoch oracle"
    }

    fn plan(&mut self, moment: Moment, _: &dyn FastDrive) -> Vec<(Extent, Option<Extent>)> {
        let epoch = (moment.request / self.epoch_requests) as usize;
        if epoch == self.epoch {
            return Vec::new();
        }
        self.epoch = epoch;
        let coming = &self.worth_s[epoch];
        let worth_of = |extent: Extent| {
            coming
                .binary_search_by_key(&extent, |(extent, _)| *extent)
                .map_or(0.0, |place| coming[place].1)
        };
        let mut wanted: Vec<(Extent, f64)> = coming
            .iter()
            .copied()
            .filter(|(extent, worth_s)| *worth_s > MOVE_S && !self.resident.contains(extent))
            .collect();
        wanted.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut leaving: Vec<(Extent, f64)> =
            self.resident.iter().map(|extent| (*extent, worth_of(*extent))).collect();
        leaving.sort_by(|a, b| a.1.total_cmp(&b.1));
        let mut leaving = leaving.into_iter();
        let mut moves = Vec::new();
        for (extent, worth_s) in wanted {
            let victim = if self.resident.len() < self.slots {
                None
            } else {
                match leaving.next() {
                    Some((victim, victim_s)) if worth_s > victim_s + MOVE_S => Some(victim),
                    _ => break,
                }
            };
            if let Some(victim) = victim {
                self.resident.remove(&victim);
            }
            self.resident.insert(extent);
            moves.push((extent, victim));
        }
        moves
    }
}
