//! What is printed and written: medians, ratios and their spread.

use std::fmt;

use serde_json::{Value, json};

use super::machine::Machine;
use super::server::Kind;
use super::steps::Step;

/// One turn of one server.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Requests per second.
    pub per_second: f64,
    /// CPU of the server per request, in µs.
    pub cpu_us: f64,
}

/// One row: for each of [`Kind::ALL`] a sample per repetition.
pub struct Row {
    pub step: Step,
    pub samples: Vec<Vec<Sample>>,
}

/// The rate of bimetal over that of others: of medians, and its range over the repetitions.
struct Ratio {
    median: f64,
    least: f64,
    most: f64,
    against: Kind,
}

impl Row {
    pub fn new(step: Step, servers: usize) -> Row {
        Row { step, samples: vec![Vec::new(); servers] }
    }

    fn median(&self, kind: Kind, of: impl Fn(&Sample) -> f64) -> f64 {
        let mut values: Vec<f64> = self.samples[position(kind)].iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    }

    fn rate(&self, kind: Kind) -> f64 {
        self.median(kind, |sample| sample.per_second)
    }

    /// Against the fastest of the other servers that are `eligible`.
    fn ratio(&self, eligible: impl Fn(Kind) -> bool) -> Ratio {
        let others = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Bimetal && eligible(*kind));
        let against = others
            .max_by(|one, other| self.rate(*one).total_cmp(&self.rate(*other)))
            .expect("there are other servers of both sorts");
        let pairs = self.samples[position(Kind::Bimetal)].iter();
        let ratios: Vec<f64> = pairs
            .zip(&self.samples[position(against)])
            .map(|(ours, theirs)| ours.per_second / theirs.per_second)
            .collect();
        Ratio {
            median: self.rate(Kind::Bimetal) / self.rate(against),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
            against,
        }
    }

    fn to_json(&self) -> Value {
        let servers: serde_json::Map<String, Value> = Kind::ALL
            .into_iter()
            .map(|kind| {
                let samples = &self.samples[position(kind)];
                let rates: Vec<f64> = samples.iter().map(|sample| sample.per_second).collect();
                let value = json!({
                    "per_second": self.rate(kind),
                    "cpu_us": self.median(kind, |sample| sample.cpu_us),
                    "per_second_each": rates,
                });
                (kind.name().to_owned(), value)
            })
            .collect();
        json!({
            "row": self.step.name,
            "block_bytes": self.step.block_bytes,
            "depth": self.step.depth,
            "servers": servers,
            "ratio_without_page_cache": self.ratio(|kind| !kind.page_cache()).to_json(),
            "ratio_with_page_cache": self.ratio(Kind::page_cache).to_json(),
        })
    }
}

impl Ratio {
    fn to_json(&self) -> Value {
        let Ratio { median, least, most, against } = self;
        json!({ "median": median, "least": least, "most": most, "against": against.name() })
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.2} ({:.2}-{:.2})", self.median, self.least, self.most);
        formatter.pad(&text)
    }
}

fn position(kind: Kind) -> usize {
    Kind::ALL.iter().position(|other| *other == kind).expect("ALL holds every kind")
}

/// Everything a run found out.
pub struct Report {
    pub machine: Machine,
    pub turn_seconds: f64,
    pub rows: Vec<Row>,
    /// What the example `in_process` printed.
    pub in_process: Value,
}

impl Report {
    /// The report as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "output_version": 1,
            "machine": self.machine.to_json(),
            "turn_seconds": self.turn_seconds,
            "rows": self.rows.iter().map(Row::to_json).collect::<Vec<_>>(),
            "in_process": self.in_process["in_process"],
        })
    }

    fn servers_table(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:<32}", "per second (CPU µs per request)")?;
        for kind in Kind::ALL {
            write!(formatter, " {:>19}", kind.name())?;
        }
        writeln!(formatter)?;
        for row in &self.rows {
            write!(formatter, "{:<32}", row.step.name)?;
            for kind in Kind::ALL {
                let cpu_us = row.median(kind, |sample| sample.cpu_us);
                let text = format!("{:.0} ({cpu_us:.1})", row.rate(kind));
                write!(formatter, " {text:>19}")?;
            }
            writeln!(formatter)?;
        }
        Ok(())
    }

    fn ratios_table(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "\n{:<32} {:>18} {:<20} {:>18} {:<20}",
            "bimetal is (least-most) times", "without page cache", "", "with page cache", ""
        )?;
        for row in &self.rows {
            let (direct, cached) =
                (row.ratio(|kind| !kind.page_cache()), row.ratio(Kind::page_cache));
            writeln!(
                formatter,
                "{:<32} {direct:>18} {:<20} {cached:>18} {:<20}",
                row.step.name,
                direct.against.name(),
                cached.against.name()
            )?;
        }
        Ok(())
    }

    fn in_process_table(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "\n{:<32} {:>10} {:>10} {:>6} {:>10} {:>8}",
            "the engine in process", "engine/s", "raw/s", "ratio", "engine µs", "raw µs"
        )?;
        for row in self.in_process["in_process"].as_array().into_iter().flatten() {
            let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
            let (engine, raw) = (number("engine_per_second"), number("raw_per_second"));
            writeln!(
                formatter,
                "{:<32} {engine:>10.0} {raw:>10.0} {:>6.2} {:>10.1} {:>8.1}",
                row["row"].as_str().unwrap_or("?"),
                engine / raw,
                number("engine_cpu_us"),
                number("raw_cpu_us")
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.servers_table(formatter)?;
        self.ratios_table(formatter)?;
        self.in_process_table(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::steps::STEPS;

    /// A row in which each server has these rates in its repetitions.
    fn row(rates: [[f64; 3]; 5]) -> Row {
        let sample = |per_second| Sample { per_second, cpu_us: 1.0 };
        Row { step: STEPS[0], samples: rates.map(|each| each.map(sample).to_vec()).to_vec() }
    }

    #[test]
    fn the_ratio_is_that_of_medians_against_the_fastest_eligible_server() {
        let row = row([
            [300.0, 100.0, 200.0],
            [50.0, 1000.0, 100.0],
            [90.0, 90.0, 90.0],
            [400.0, 400.0, 400.0],
            [1.0, 1.0, 1.0],
        ]);
        let direct = row.ratio(|kind| !kind.page_cache());
        assert_eq!(direct.against, Kind::NbdkitNoCache);
        assert_eq!((direct.median, direct.least, direct.most), (2.0, 0.1, 6.0));
        let cached = row.ratio(Kind::page_cache);
        assert_eq!(cached.against, Kind::Nbdkit);
        assert_eq!((cached.median, cached.least, cached.most), (0.5, 0.25, 0.75));
    }
}
