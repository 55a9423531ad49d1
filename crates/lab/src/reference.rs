//! The published figures: one row per figure, with a stable id and its conditions.
//!
//! The files beside the sources of this crate hold what five publications printed. Rows marked
//! `external` there are context from elsewhere and are not read.

use serde::Deserialize;
use toml::Value;

const FILES: &[&str] = &[
    include_str!("../reference/thomas-krenn.toml"),
    include_str!("../reference/n0derunner.toml"),
    include_str!("../reference/marcan-flush.toml"),
    include_str!("../reference/anandtech-fusion.toml"),
    include_str!("../reference/admin-hybrid.toml"),
];

const CALIBRATION: &str = include_str!("../reference/calibration.toml");

/// One published figure.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    /// Stable name.
    pub id: String,
    /// The publication, filled in on reading.
    #[serde(default)]
    pub publication: String,
    /// Thomas-Krenn: which table.
    pub config: Option<String>,
    /// Which test: a line of the table, or its name.
    test: Option<Value>,
    /// The drive.
    pub device: Option<String>,
    /// `iops`, `throughput`, `latency`, ...
    #[serde(default)]
    pub metric: String,
    /// `seq`, `rnd`, `zipf`.
    #[serde(default)]
    pub pattern: String,
    /// What part of the drive.
    #[serde(default)]
    pub span: String,
    /// `read`, `write`.
    #[serde(default)]
    pub direction: String,
    /// Clients at a time.
    pub jobs: Option<u64>,
    /// The figure: a number, or words.
    value: Option<Value>,
    /// The figure, where it is a range.
    min: Option<f64>,
    max: Option<f64>,
    /// Unit as printed.
    #[serde(default)]
    pub unit: String,
    /// Whether each write was flushed.
    pub flush: Option<bool>,
    /// Requests under way.
    pub queue_depth: Option<u64>,
    /// `upper` or `lower` where the figure is a bound.
    pub bound: Option<String>,
    /// `specification` where the figure is the maker's.
    pub kind: Option<String>,
    /// What the source says about how it was taken.
    #[serde(default)]
    pub condition: String,
    /// What the reader of the source noted.
    #[serde(default)]
    pub note: String,
    /// Free text figures: what they are.
    #[serde(default)]
    pub what: String,
}

impl Row {
    /// Thomas-Krenn: which line of the table.
    pub fn line(&self) -> Option<i64> {
        self.test.as_ref().and_then(Value::as_integer)
    }

    /// The least and the greatest that was published; none when it is words.
    pub fn published(&self) -> Option<(f64, f64)> {
        let number = match &self.value {
            Some(Value::Integer(number)) => Some(*number as f64),
            Some(Value::Float(number)) => Some(*number),
            _ => None,
        };
        match (number, self.min, self.max) {
            (Some(number), _, _) => Some((number, number)),
            (None, Some(min), Some(max)) => Some((min, max)),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
struct File {
    source: Source,
    #[serde(default)]
    row: Vec<Row>,
    #[serde(default)]
    text_row: Vec<Row>,
    #[serde(default)]
    table: Table,
}

#[derive(Deserialize)]
struct Source {
    id: String,
}

#[derive(Deserialize, Default)]
struct Table {
    #[serde(default)]
    rows: Vec<Row>,
}

/// All rows, publication by publication, in the order of the files.
pub fn rows() -> Vec<Row> {
    let mut all = Vec::new();
    for text in FILES {
        let file: File = match toml::from_str(text) {
            Ok(file) => file,
            Err(error) => panic!("a test reads every file of the program: {error}"),
        };
        let rows = file.table.rows.into_iter().chain(file.row).chain(file.text_row);
        all.extend(rows.map(|row| Row { publication: file.source.id.clone(), ..row }));
    }
    all
}

/// Ids of the rows that a twin may be fitted to.
pub fn calibration() -> Vec<String> {
    #[derive(Deserialize)]
    struct Group {
        rows: Vec<String>,
    }
    let mut table: toml::Table =
        toml::from_str(CALIBRATION).expect("a test reads every file of the program");
    table.remove("schema");
    let groups = table.into_iter().filter_map(|(_, group)| group.try_into::<Group>().ok());
    groups.flat_map(|group| group.rows).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_published_row_is_read_once() {
        let rows = rows();
        let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        assert_eq!((rows.len(), ids.len()), (524, 524));
        let tables = rows.iter().filter(|row| row.config.is_some() && row.line().is_some());
        assert_eq!(tables.count(), 440);
    }

    #[test]
    fn rows_for_calibration_exist() {
        let ids: BTreeSet<String> = rows().into_iter().map(|row| row.id).collect();
        let calibration = calibration();
        assert!(calibration.len() > 60);
        assert!(calibration.iter().all(|id| ids.contains(id)));
    }
}
