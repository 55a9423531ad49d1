//! What a published row says, to stand beside a figure.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use crate::reference;

/// A published number, or the range that was published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The lower end.
    pub min: f64,
    /// The upper end; the same where one number was published.
    pub max: f64,
}

impl Published {
    /// The row of that id, if it is a number.
    pub fn row(id: &str) -> Option<Published> {
        static ROWS: OnceLock<HashMap<String, Published>> = OnceLock::new();
        let rows = ROWS.get_or_init(|| {
            let rows = reference::rows().into_iter();
            let numbers = rows.filter_map(|row| {
                let (min, max) = row.published()?;
                Some((row.id, Published { min, max }))
            });
            numbers.collect()
        });
        rows.get(id).copied()
    }

    /// The middle of it.
    pub fn value(&self) -> f64 {
        f64::midpoint(self.min, self.max)
    }

    /// How far off `measured` is, in hundredths; 0 inside the range. `None` beside a published 0, of
    /// which there are no hundredths.
    pub fn error_percent(&self, measured: f64) -> Option<f64> {
        let nearest = measured.clamp(self.min, self.max);
        if measured == nearest {
            return Some(0.0);
        }
        (nearest != 0.0).then(|| (measured / nearest - 1.0) * 100.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_numbers_ranges_or_nothing() {
        let one = Published::row("tk-re3-wcoff-t03-rd-j1").unwrap();
        assert_eq!(one, Published { min: 82.0, max: 82.0 });
        let range = Published::row("at-fill-hdd-rate").unwrap();
        assert_eq!((range.min, range.max), (133.0, 175.0));
        assert_eq!(range.error_percent(150.0), Some(0.0));
        assert!((range.error_percent(350.0).unwrap() - 100.0).abs() < 1e-9);
        let zero = Published::row("at-fill-hdd-activity").unwrap();
        assert_eq!((zero.error_percent(0.0), zero.error_percent(1.0)), (Some(0.0), None));
        assert_eq!(Published::row("at-rnd-full-after"), None, "a sentence is no number");
    }
}
