//! A profile in the making.

use twin::{Number, Profile, ProfileFile};

/// What a volatile cache holds where nothing is told: what drives of today carry for writes.
pub(super) const VOLATILE_BYTES: u64 = 64 << 20;

/// Figures of a fitted number that mean something.
const FIGURES: i32 = 4;

/// See the head of the file.
pub(super) struct Draft {
    file: ProfileFile,
}

impl Draft {
    pub fn new(file: ProfileFile) -> Draft {
        Draft { file }
    }

    /// A number that is known, or assumed.
    pub fn set(&mut self, name: &str, value: f64, source: &str) {
        self.put(name, value, source, &[]);
    }

    /// A number that was found by these measurements.
    pub fn fitted(&mut self, name: &str, value: f64, rows: &[&str]) {
        self.put(name, rounded(value), "fitted", rows);
    }

    fn put(&mut self, name: &str, value: f64, source: &str, rows: &[&str]) {
        let rows = rows.iter().map(|row| (*row).to_owned()).collect();
        let number = Number { value, source: source.to_owned(), rows, chosen: false };
        self.file.part.numbers.insert(name.to_owned(), number);
    }

    /// The value of a number that was set.
    pub fn value(&self, name: &str) -> f64 {
        self.file.part.numbers.get(name).map_or(0.0, |number| number.value)
    }

    pub fn profile(&self) -> Result<Profile, String> {
        let name = &self.file.name;
        Profile::of(name, self.file.clone()).map_err(|error| error.to_string())
    }
}

fn rounded(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let step = 10f64.powi(FIGURES - 1 - value.abs().log10().floor() as i32);
    (value * step).round() / step
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn four_figures_are_kept() {
        let found = [123_456.7, 1.23456, 0.0123456, 7200.0].map(rounded);
        assert_eq!(found, [123_500.0, 1.235, 0.01235, 7200.0]);
    }
}
