//! What is printed and written: medians, ratios and their spread.

use std::fmt;

use serde_json::{Value, json};

use super::door::Door;
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
    /// Bytes that the server had read from the drive, as a share of what its client asked for.
    pub from_drive: f64,
}

/// Columns of a row's name, and of a table's.
const NAME_WIDTH: usize = 46;
/// A row of reads of which the drive gave less than this was served from the page cache.
const FROM_DRIVE_MIN: f64 = 0.9;

/// One row at one door: for each of its contestants a sample per repetition.
pub struct Row {
    pub door: Door,
    pub step: Step,
    pub samples: Vec<Vec<Sample>>,
}

/// The rate of one of ours over that of others: of medians, and its range over the repetitions.
struct Ratio {
    median: f64,
    least: f64,
    most: f64,
    against: Kind,
}

/// Against whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Against {
    /// Those whose drive gave what was read, and had what was written when that was acknowledged:
    /// measured for reads, since one that is asked to leave the page cache alone may not.
    Drive,
    /// The others.
    Memory,
}

impl Row {
    pub fn new(door: Door, step: Step) -> Row {
        Row { door, step, samples: vec![Vec::new(); door.contestants().len()] }
    }

    fn samples(&self, kind: Kind) -> &[Sample] {
        let place = self.door.contestants().iter().position(|other| *other == kind);
        &self.samples[place.expect("who is asked for takes part")]
    }

    fn contestants(&self) -> impl Iterator<Item = Kind> {
        self.door.contestants().iter().copied()
    }

    fn median(&self, kind: Kind, of: impl Fn(&Sample) -> f64) -> f64 {
        let mut values: Vec<f64> = self.samples(kind).iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let (lower, upper) = ((values.len() - 1) / 2, values.len() / 2);
        f64::midpoint(values[lower], values[upper])
    }

    /// Requests per second, the median.
    pub fn rate(&self, kind: Kind) -> f64 {
        self.median(kind, |sample| sample.per_second)
    }

    /// CPU time of the server for each, the median, in µs.
    pub fn cpu_us(&self, kind: Kind) -> f64 {
        self.median(kind, |sample| sample.cpu_us)
    }

    fn uses_memory(&self, kind: Kind) -> bool {
        // Here nobody has anything else.
        if self.door == Door::Memory {
            return false;
        }
        // What is read through a simulated disk is no drive's to the kernel.
        match self.step.mix.writes() || self.step.paced {
            true => kind.keeps_writes(),
            false => self.median(kind, |sample| sample.from_drive) < FROM_DRIVE_MIN,
        }
    }

    /// Of one of ours against the fastest of the other servers of a sort; `None` when either is missing.
    fn ratio(&self, ours: Kind, against: Against) -> Option<Ratio> {
        self.contestants().find(|kind| *kind == ours)?;
        // What is flushed has reached everybody's drive.
        let of_sort =
            |kind| self.step.flush || self.uses_memory(kind) == (against == Against::Memory);
        let others = self.contestants().filter(|kind| !kind.ours() && of_sort(*kind));
        let against = others.max_by(|one, other| self.rate(*one).total_cmp(&self.rate(*other)))?;
        let pairs = self.samples(ours).iter();
        let ratios: Vec<f64> = pairs
            .zip(self.samples(against))
            .map(|(ours, theirs)| ours.per_second / theirs.per_second)
            .collect();
        Some(Ratio {
            median: self.rate(ours) / self.rate(against),
            least: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            most: ratios.iter().copied().fold(0.0, f64::max),
            against,
        })
    }

    fn to_json(&self) -> Value {
        let servers: serde_json::Map<String, Value> = self
            .contestants()
            .map(|kind| {
                let samples = self.samples(kind);
                let rates: Vec<f64> = samples.iter().map(|sample| sample.per_second).collect();
                let value = json!({
                    "per_second": self.rate(kind),
                    "cpu_us": self.cpu_us(kind),
                    "from_drive": self.median(kind, |sample| sample.from_drive),
                    "per_second_each": rates,
                });
                (kind.name().to_owned(), value)
            })
            .collect();
        json!({
            "door": self.door.to_string(),
            "row": self.step.name,
            "block_bytes": self.step.block_bytes,
            "depth": self.step.depth,
            "jobs": self.step.jobs,
            "servers": servers,
            "ratio_without_page_cache": json_of(self.ratio(Kind::Bimetal, Against::Drive)),
            "ratio_with_page_cache": json_of(self.ratio(Kind::BimetalBehind, Against::Memory)),
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

fn json_of(ratio: Option<Ratio>) -> Option<Value> {
    ratio.map(|ratio| ratio.to_json())
}

/// Everything a run found out.
pub struct Report {
    pub machine: Machine,
    /// What it was asked for beside what it does anyway.
    pub options: String,
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

    /// The doors that were measured, in order.
    pub fn doors(&self) -> Vec<Door> {
        let mut doors: Vec<Door> = self.rows.iter().map(|row| row.door).collect();
        doors.dedup();
        doors
    }

    /// The rows of a door.
    pub fn rows_of(&self, door: Door) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.door == door)
    }

    fn in_process_table(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            formatter,
            "{:<NAME_WIDTH$} {:>10} {:>10} {:>6} {:>10} {:>6} {:>10} {:>8} {:>8}",
            "the engine in process",
            "engine/s",
            "raw/s",
            "ratio",
            "fio/s",
            "ratio",
            "engine µs",
            "raw µs",
            "fio µs"
        )?;
        for row in self.in_process["in_process"].as_array().into_iter().flatten() {
            let number = |name: &str| row[name].as_f64().unwrap_or(f64::NAN);
            let (engine, raw, fio) =
                (number("engine_per_second"), number("raw_per_second"), number("fio_per_second"));
            writeln!(
                formatter,
                "{:<NAME_WIDTH$} {engine:>10.0} {raw:>10.0} {:>6.2} {fio:>10.0} {:>6.2} {:>10.1} {:>8.1} {:>8.1}",
                row["row"].as_str().unwrap_or("?"),
                engine / raw,
                engine / fio,
                number("engine_cpu_us"),
                number("raw_cpu_us"),
                number("fio_cpu_us")
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    /// What was measured last; the doors' tables are printed as they end ([`DoorTables`]).
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.in_process_table(formatter)
    }
}

/// The tables of one door.
pub struct DoorTables<'a>(pub Door, pub &'a [Row]);

impl DoorTables<'_> {
    fn servers(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DoorTables(door, rows) = self;
        let head = format!("{door}, per second (CPU µs each)");
        write!(formatter, "{head:<NAME_WIDTH$}")?;
        for kind in door.contestants() {
            write!(formatter, " {:>19}", kind.name())?;
        }
        writeln!(formatter)?;
        for row in *rows {
            write!(formatter, "{:<NAME_WIDTH$}", row.step.name)?;
            for kind in row.contestants() {
                let text = format!("{:.0} ({:.1})", row.rate(kind), row.cpu_us(kind));
                write!(formatter, " {text:>19}")?;
            }
            writeln!(formatter)?;
        }
        Ok(())
    }

    fn ratios(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DoorTables(door, rows) = self;
        let behind = door.contestants().contains(&Kind::BimetalBehind);
        let head = format!("{door}: bimetal is (least-most) times");
        write!(formatter, "\n{head:<NAME_WIDTH$} ")?;
        match behind {
            true => writeln!(formatter, "{:<39}behind, memory", "from the drive")?,
            false if *door == Door::Memory => writeln!(formatter, "from memory")?,
            false => writeln!(formatter, "from the drive")?,
        }
        for row in *rows {
            let told = |ours, against| match row.ratio(ours, against) {
                Some(ratio) => format!("{ratio} {}", ratio.against.name()),
                None => "-".to_owned(),
            };
            let drive = told(Kind::Bimetal, Against::Drive);
            write!(formatter, "{:<NAME_WIDTH$} ", row.step.name)?;
            match behind {
                true => {
                    let memory = told(Kind::BimetalBehind, Against::Memory);
                    writeln!(formatter, "{drive:<39}{memory}")?;
                }
                false => writeln!(formatter, "{drive}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for DoorTables<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.servers(formatter)?;
        self.ratios(formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::steps::STEPS;

    /// A row in which each server has these rates in its repetitions, and so much from its drive.
    fn row(servers: [([f64; 3], f64); 7]) -> Row {
        row_of(STEPS[0], servers)
    }

    fn row_of(step: Step, servers: [([f64; 3], f64); 7]) -> Row {
        let samples = |(rates, from_drive): ([f64; 3], f64)| {
            rates.map(|per_second| Sample { per_second, cpu_us: 1.0, from_drive }).to_vec()
        };
        Row { door: Door::Nbd, step, samples: servers.map(samples).to_vec() }
    }

    #[test]
    fn the_ratio_is_that_of_medians_against_the_fastest_eligible_server() {
        let row = row([
            ([300.0, 100.0, 200.0], 1.0),
            ([800.0, 800.0, 800.0], 1.0),
            ([50.0, 1000.0, 100.0], 1.0),
            ([90.0, 90.0, 90.0], 1.0),
            ([80.0, 80.0, 80.0], 1.0),
            ([400.0, 400.0, 400.0], 0.1),
            ([1.0, 1.0, 1.0], 0.0),
        ]);
        let drive = row.ratio(Kind::Bimetal, Against::Drive).unwrap();
        assert_eq!(drive.against, Kind::NbdkitNoCache);
        assert_eq!((drive.median, drive.least, drive.most), (2.0, 0.1, 6.0));
        let memory = row.ratio(Kind::BimetalBehind, Against::Memory).unwrap();
        assert_eq!((memory.against, memory.median), (Kind::Nbdkit, 2.0));
    }

    #[test]
    fn of_an_even_number_of_repetitions_the_middle_two_count() {
        let sample = |per_second| Sample { per_second, cpu_us: 1.0, from_drive: 1.0 };
        let mut row = Row::new(Door::Fuse, STEPS[0]);
        row.samples[0] = [40.0, 10.0, 30.0, 20.0].map(sample).to_vec();
        assert_eq!(row.rate(Kind::Bimetal), 25.0);
    }

    #[test]
    fn who_reads_from_memory_is_seen_and_not_believed() {
        let mut servers = [([100.0; 3], 1.0); 7];
        servers[2] = ([900.0; 3], 0.01);
        let row = row(servers);
        assert_ne!(row.ratio(Kind::Bimetal, Against::Drive).unwrap().against, Kind::NbdkitNoCache);
        let memory = row.ratio(Kind::BimetalBehind, Against::Memory).unwrap();
        assert_eq!(memory.against, Kind::NbdkitNoCache);
    }

    #[test]
    fn who_acknowledges_before_the_drive_has_it_is_beside_write_behind_unless_it_flushes() {
        let mut servers = [([100.0; 3], 1.0); 7];
        servers[2] = ([900.0; 3], 1.0);
        let named = |name| *STEPS.iter().find(|step| step.name == name).unwrap();
        let written = row_of(named("4K random write, depth 1"), servers);
        let drive = written.ratio(Kind::Bimetal, Against::Drive).unwrap();
        assert_ne!(drive.against, Kind::NbdkitNoCache);
        let behind = written.ratio(Kind::BimetalBehind, Against::Memory).unwrap();
        assert_eq!(behind.against, Kind::NbdkitNoCache);
        let flushed = row_of(named("4K write + flush, depth 1"), servers);
        for (ours, sort) in
            [(Kind::Bimetal, Against::Drive), (Kind::BimetalBehind, Against::Memory)]
        {
            assert_eq!(flushed.ratio(ours, sort).unwrap().against, Kind::NbdkitNoCache);
        }
    }
}
