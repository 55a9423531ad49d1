//! Figures in the layout of a published table: rows, columns, a figure where they meet.

use super::record::FigureRecord;

/// More columns than this are not read side by side.
const COLUMNS_MAX: usize = 8;

/// See the head of the file.
#[derive(Debug)]
pub struct Matrix<'a> {
    /// Names of the columns, with the unit where all figures of one have the same.
    pub columns: Vec<String>,
    /// Names of the rows, each with a cell for each column.
    pub rows: Vec<(&'a str, Vec<Option<&'a FigureRecord>>)>,
}

impl<'a> Matrix<'a> {
    /// The figures as a table; `None` where a third of its cells or more would be empty.
    pub fn of(figures: &[&'a FigureRecord]) -> Option<Matrix<'a>> {
        let mut names: Vec<&str> = Vec::new();
        let mut columns: Vec<&str> = Vec::new();
        for figure in figures {
            if !names.contains(&figure.row.as_str()) {
                names.push(&figure.row);
            }
            if !columns.contains(&figure.column.as_str()) {
                columns.push(&figure.column);
            }
        }
        let cells = names.len() * columns.len();
        if figures.len() * 3 < cells * 2 || columns.len() > COLUMNS_MAX {
            return None;
        }
        let cell = |row: &str, column: &str| {
            figures.iter().find(|figure| figure.row == row && figure.column == column).copied()
        };
        let rows = names
            .into_iter()
            .map(|row| (row, columns.iter().map(|column| cell(row, column)).collect()))
            .collect();
        let columns = columns.into_iter().map(|column| {
            let mut units = figures.iter().filter(|figure| figure.column == column);
            let unit = units.next().map_or("", |figure| &figure.unit);
            if unit.is_empty() || units.any(|figure| figure.unit != unit) {
                column.to_owned()
            } else {
                format!("{column} ({unit})")
            }
        });
        let columns = columns.collect();
        Some(Matrix { columns, rows })
    }
}

/// A number as a table has it: three digits, or all before the point.
pub fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 || value == 0.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

impl FigureRecord {
    /// What was measured, in short.
    pub fn measured_text(&self) -> String {
        self.measured.map_or_else(|| "-".to_owned(), short)
    }

    /// What was published, in short; nothing where nothing was.
    pub fn published_text(&self) -> String {
        match self.published {
            None => String::new(),
            Some(row) if row.min == row.max => short(row.min),
            Some(row) => format!("{} to {}", short(row.min), short(row.max)),
        }
    }
}
