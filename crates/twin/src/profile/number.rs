//! The numbers of a profile, each with its source.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Part;

/// One number.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// In the unit that its name ends with.
    pub value: f64,
    /// Where it is from: a data sheet, an article, an argument.
    pub source: String,
    /// The published rows it was fitted to; none for a number that was not fitted.
    #[serde(default)]
    pub rows: Vec<String>,
    /// It was chosen by looking at published rows to which nothing may be fitted: no better than a
    /// fitted number, and counted as one.
    #[serde(default)]
    pub chosen: bool,
}

impl Number {
    /// Whether published or measured rows have told it.
    pub fn is_told_by_rows(&self) -> bool {
        self.chosen || !self.rows.is_empty()
    }
}

/// Takes the numbers of a part one by one, and knows which nobody took.
pub(super) struct Numbers<'a> {
    of: &'a BTreeMap<String, Number>,
    taken: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(of: &'a BTreeMap<String, Number>) -> Numbers<'a> {
        Numbers { of, taken: RefCell::default() }
    }

    /// A positive number.
    pub(super) fn positive(&self, name: &'static str) -> Result<f64, String> {
        match self.any(name)? {
            value if value > 0.0 => Ok(value),
            value => Err(format!("{name} must be positive, it is {value}")),
        }
    }

    /// A number that is not negative.
    pub(super) fn any(&self, name: &'static str) -> Result<f64, String> {
        self.taken.borrow_mut().insert(name);
        let number = self.of.get(name).ok_or_else(|| format!("{name} is missing"))?;
        match number.value {
            value if value.is_finite() && (0.0..=1e15).contains(&value) => Ok(value),
            value => Err(format!("{name} cannot be {value}")),
        }
    }

    /// One that most drives of the kind do not need, nor profiles of before there was such a number.
    pub(super) fn any_or(&self, name: &'static str, otherwise: f64) -> Result<f64, String> {
        if self.of.contains_key(name) { self.any(name) } else { Ok(otherwise) }
    }

    /// Complains about numbers that nobody took.
    pub(super) fn end(&self, kind: &str) -> Result<(), String> {
        let taken = self.taken.borrow();
        match self.of.keys().find(|name| !taken.contains(name.as_str())) {
            Some(name) => Err(format!("a {kind} has no number {name}")),
            None => Ok(()),
        }
    }
}

impl Part {
    /// Changes a number; `behind.` goes to what stands behind.
    pub(super) fn set(&mut self, name: &str, value: f64) -> Result<(), String> {
        if let Some(inner) = name.strip_prefix("behind.") {
            let behind = self.behind.as_mut();
            return behind
                .ok_or_else(|| format!("nothing stands behind a {}", self.kind))?
                .set(inner, value);
        }
        let number = self.numbers.get_mut(name);
        number.ok_or_else(|| format!("a {} has no number {name}", self.kind))?.value = value;
        Ok(())
    }

    /// The part and those behind it, from the front.
    pub fn chain(&self) -> impl Iterator<Item = &Part> {
        std::iter::successors(Some(self), |part| part.behind.as_deref())
    }
}
