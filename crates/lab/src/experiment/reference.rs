//! The published rows, by their ids.

use std::collections::HashMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// One file for each source.
const SOURCES: [&str; 5] = [
    include_str!("../../reference/thomas-krenn.toml"),
    include_str!("../../reference/anandtech-fusion.toml"),
    include_str!("../../reference/marcan-flush.toml"),
    include_str!("../../reference/n0derunner.toml"),
    include_str!("../../reference/admin-hybrid.toml"),
];

/// A published number, or the range that was published.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The lower end.
    pub min: f64,
    /// The upper end; the same where one number was published.
    pub max: f64,
}

impl Published {
    /// The middle of it.
    pub fn value(&self) -> f64 {
        f64::midpoint(self.min, self.max)
    }

    /// How far off `measured` is, in hundredths; 0 inside the range.
    pub fn error_percent(&self, measured: f64) -> f64 {
        let nearest = measured.clamp(self.min, self.max);
        if nearest == 0.0 { measured * 100.0 } else { (measured / nearest - 1.0) * 100.0 }
    }
}

#[derive(Deserialize)]
struct Row {
    id: String,
    value: Option<toml::Value>,
    min: Option<f64>,
    max: Option<f64>,
}

#[derive(Deserialize, Default)]
struct Table {
    #[serde(default)]
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Source {
    #[serde(default)]
    row: Vec<Row>,
    #[serde(default)]
    text_row: Vec<Row>,
    #[serde(default)]
    table: Table,
}

/// All published rows.
pub struct Reference;

impl Reference {
    /// The row of that id, if it is a number.
    pub fn published(id: &str) -> Option<Published> {
        static ROWS: OnceLock<HashMap<String, Published>> = OnceLock::new();
        ROWS.get_or_init(read).get(id).copied()
    }
}

fn read() -> HashMap<String, Published> {
    let mut rows = HashMap::new();
    for text in SOURCES {
        let source: Source = toml::from_str(text).expect("a test reads every published row");
        for row in source.row.into_iter().chain(source.text_row).chain(source.table.rows) {
            let value = row.value.and_then(|value| match value {
                toml::Value::Integer(value) => Some(value as f64),
                toml::Value::Float(value) => Some(value),
                _ => None,
            });
            if let Some((min, max)) = row.min.or(value).zip(row.max.or(value)) {
                rows.insert(row.id, Published { min, max });
            }
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_row_is_read() {
        assert!(read().len() > 500, "{}", read().len());
        let one = Reference::published("tk-re3-wcoff-t03-rd-j1").unwrap();
        assert_eq!(one, Published { min: 82.0, max: 82.0 });
        let range = Reference::published("at-fill-hdd-rate").unwrap();
        assert_eq!((range.min, range.max), (133.0, 175.0));
        assert_eq!(range.error_percent(150.0), 0.0);
        assert!((range.error_percent(350.0) - 100.0).abs() < 1e-9);
        assert_eq!(Reference::published("at-rnd-full-after"), None, "a sentence is no number");
    }
}
