//! Axes: from numbers to places on the paper, and the numbers written beside them.

/// How numbers lie on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    Plain,
    /// Steps of tens.
    Log,
    /// Percentiles, by what is left of them: 99 % is as far from 90 % as that from 0.
    Nines,
}

impl Scale {
    pub fn log(log: bool) -> Scale {
        if log { Scale::Log } else { Scale::Plain }
    }
}

/// One axis of a chart.
#[derive(Debug, Clone)]
pub(super) struct Axis {
    low: f64,
    high: f64,
    scale: Scale,
    /// Where the axis begins and ends on the paper.
    from: f64,
    to: f64,
}

/// How many ticks an axis has, roughly.
const TICKS: f64 = 5.0;

/// Percentiles that an axis of them names.
const NINES: [(f64, &str); 5] =
    [(0.0, "0"), (90.0, "90 %"), (99.0, "99 %"), (99.9, "99.9 %"), (99.99, "99.99 %")];
/// Where one of percentiles ends: it has no 100.
const NINES_MAX: f64 = 99.99;

impl Axis {
    /// An axis that holds all of `values`. A plain one begins at 0 if `from_zero`.
    pub fn new(
        values: impl Iterator<Item = f64>,
        scale: Scale,
        from_zero: bool,
        (from, to): (f64, f64),
    ) -> Axis {
        if scale == Scale::Nines {
            return Axis { low: 0.0, high: nines(NINES_MAX), scale, from, to };
        }
        let log = scale == Scale::Log;
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(|value| value.is_finite() && (!log || *value > 0.0)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if log { (1.0, 10.0) } else { (0.0, 1.0) };
        }
        if log {
            // Whole steps of tens.
            (low, high) = (low.log10().floor(), high.log10().ceil());
            if low == high {
                high += 1.0;
            }
        } else {
            if from_zero {
                low = low.min(0.0);
                high = if high <= 0.0 { 1.0 } else { high * 1.06 };
            }
            if low == high {
                high = low + 1.0;
            }
        }
        Axis { low, high, scale, from, to }
    }

    /// Where a number is on the paper; what lies below the axis is at its beginning.
    pub fn place(&self, value: f64) -> f64 {
        let value = match self.scale {
            Scale::Plain => value,
            Scale::Log => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Nines => nines(value),
        };
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    /// Where the axis begins on the paper.
    pub fn start(&self) -> f64 {
        self.from
    }

    /// The numbers written at the axis, with their text.
    pub fn ticks(&self) -> Vec<(f64, String)> {
        if self.scale == Scale::Nines {
            return NINES.map(|(value, text)| (value, text.to_owned())).to_vec();
        }
        if self.scale == Scale::Log {
            let (low, high) = (self.low as i32, self.high as i32);
            let step = ((high - low) / 6).max(1) as usize;
            let powers = (low..=high).step_by(step).map(|power| 10f64.powi(power));
            return powers.map(|value| (value, label(value))).collect();
        }
        let rough = (self.high - self.low) / TICKS;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        let first = (self.low / step).ceil() as i64;
        let last = (self.high / step).floor() as i64;
        (first..=last).map(|index| index as f64 * step).map(|value| (value, label(value))).collect()
    }
}

/// How many nines a percentile has: 1 of 90, 2 of 99.
fn nines(percent: f64) -> f64 {
    -(1.0 - percent.clamp(0.0, NINES_MAX) / 100.0).log10()
}

/// A number as people read it at an axis or a bar: three digits, thousands as `k`.
pub(super) fn label(value: f64) -> String {
    let (value, suffix) = match value.abs() {
        size if size >= 1e6 => (value / 1e6, "M"),
        size if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    };
    let text =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{text}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_places_and_round_ticks() {
        let axis = Axis::new([0.0, 322.0].into_iter(), Scale::Plain, true, (100.0, 0.0));
        assert_eq!(axis.place(0.0), 100.0);
        let ticks: Vec<String> = axis.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(ticks, ["0", "100", "200", "300"]);
        let tens = Axis::new([46.0, 40_000.0].into_iter(), Scale::Log, false, (0.0, 1.0));
        let ticks: Vec<String> = tens.ticks().into_iter().map(|tick| tick.1).collect();
        assert_eq!(ticks, ["10", "100", "1000", "10k", "100k"]);
        assert!((tens.place(1000.0) - 0.5).abs() < 1e-9);
        let nines = Axis::new([50.0, 99.9].into_iter(), Scale::Nines, false, (0.0, 4.0));
        assert!((nines.place(99.0) - 2.0).abs() < 1e-9 && (nines.place(100.0) - 4.0).abs() < 1e-9);
        let empty = Axis::new(std::iter::empty(), Scale::Log, false, (0.0, 1.0));
        assert!(empty.place(f64::NAN).is_finite() || !empty.ticks().is_empty());
    }

    #[test]
    fn labels_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.51, "0.51"),
            (7.0, "7"),
            (12.5, "12.5"),
            (133.0, "133"),
            (10443.0, "10.4k"),
            (2.5e6, "2.5M"),
        ] {
            assert_eq!(label(value), text);
        }
    }
}
