//! A number of the physics that is turned until the twin does what was measured.

use super::draft::Draft;
use super::rate;
use crate::probe::Measurements;

/// Halvings of the range: one part in four thousand of its logarithm.
const STEPS: u32 = 12;

/// A number that changes the rate by less than this over its whole range is not told by it.
const TELLING: f64 = 0.02;

/// Numbers lean on one another: they are turned so many times in turn.
const ROUNDS: usize = 3;

/// See the head of the file.
pub(super) struct Knob {
    /// The number.
    pub number: &'static str,
    /// The measurements that tell it.
    pub rows: &'static [&'static str],
    /// What such drives have at least, and at most.
    pub range: (f64, f64),
    /// It is a count.
    pub whole: bool,
}

/// Turns all of them. Those that no measurement tells stay as they are.
pub(super) fn turn(
    draft: &mut Draft,
    knobs: &[Knob],
    measurements: &Measurements,
) -> Result<(), String> {
    for _ in 0..ROUNDS {
        for knob in knobs {
            if let Some(value) = knob.best(draft, measurements)? {
                draft.fitted(knob.number, value, knob.rows);
            }
        }
    }
    Ok(())
}

impl Knob {
    fn best(&self, draft: &Draft, measurements: &Measurements) -> Result<Option<f64>, String> {
        let rows: Vec<_> = self.rows.iter().filter_map(|row| measurements.get(row)).collect();
        if rows.len() < self.rows.len() {
            return Ok(None);
        }
        let profile = draft.profile()?;
        let error = |value: f64| {
            let turned = profile.with_number(self.number, value).map_err(|e| e.to_string())?;
            let each = rows.iter().map(|row| (rate(&turned, row) / row.iops).max(1e-9).ln());
            Ok::<f64, String>(each.sum::<f64>() / rows.len() as f64)
        };
        let at = |share: f64| {
            let value = self.range.0 * (self.range.1 / self.range.0).powf(share);
            if self.whole { value.round().max(1.0) } else { value }
        };
        let (first, last) = (error(at(0.0))?, error(at(1.0))?);
        if (first - last).abs() < TELLING {
            return Ok(None);
        }
        if first.signum() == last.signum() {
            // No value gives what was measured; the nearer end is the best there is.
            return Ok(Some(at(if first.abs() < last.abs() { 0.0 } else { 1.0 })));
        }
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..STEPS {
            let middle = (low + high) / 2.0;
            if error(at(middle))?.signum() == first.signum() {
                low = middle;
            } else {
                high = middle;
            }
        }
        if !self.whole {
            return Ok(Some(at((low + high) / 2.0)));
        }
        // Of the counts on both sides the one that comes nearer: a hundredth of noise is no reason for one more.
        let (below, above) = (error(at(low))?.abs(), error(at(high))?.abs());
        Ok(Some(at(if below <= above { low } else { high })))
    }
}
