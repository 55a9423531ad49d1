//! A picture as data: what draws it decides how it looks.

use serde::{Deserialize, Serialize};

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// A line through its points.
    Line,
    /// A dot at each.
    Dots,
    /// A bar for each, named by its label.
    Bars,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What they are, for the legend.
    pub name: String,
    /// How they are drawn.
    pub shape: Shape,
    /// Published and not measured: drawn apart.
    pub published: bool,
    /// Along, up.
    pub points: Vec<(f64, f64)>,
    /// Names of the points, for bars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
}

impl Series {
    /// A measured line.
    pub fn line(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series {
            name: name.into(),
            shape: Shape::Line,
            published: false,
            points,
            labels: Vec::new(),
        }
    }

    /// Published points.
    pub fn published(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { shape: Shape::Dots, published: true, ..Series::line(name, points) }
    }

    /// Named bars.
    pub fn bars(name: impl Into<String>, published: bool, bars: Vec<(String, f64)>) -> Series {
        let points = bars.iter().enumerate().map(|(index, bar)| (index as f64, bar.1)).collect();
        let labels = bars.into_iter().map(|bar| bar.0).collect();
        Series { shape: Shape::Bars, published, labels, ..Series::line(name, points) }
    }
}

/// A place along that means something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// What.
    pub label: String,
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// Charts of several runs with one name are drawn as one.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// Along.
    pub x: String,
    /// Up.
    pub y: String,
    /// Steps of tens along.
    pub x_log: bool,
    /// Percentiles along, by their nines.
    #[serde(default)]
    pub x_nines: bool,
    /// Steps of tens up.
    pub y_log: bool,
    /// The points.
    pub series: Vec<Series>,
    /// Places along.
    #[serde(default)]
    pub marks: Vec<Mark>,
}

impl Chart {
    /// A chart with plain axes.
    pub fn new(name: &str, title: impl Into<String>, x: &str, y: &str) -> Chart {
        Chart {
            name: name.to_owned(),
            title: title.into(),
            x: x.to_owned(),
            y: y.to_owned(),
            x_log: false,
            x_nines: false,
            y_log: false,
            series: Vec::new(),
            marks: Vec::new(),
        }
    }
}
