//! `bimetal twin show`: the numbers of one twin, and where each is from.

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;
use twin::{Number, Part};

use crate::failure::{Exit, Outcome};
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Show the numbers of a twin, and where each is from
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal twin show wd5002abys
  bimetal --json twin show ssdsa2m160g2gc,cache=off,fresh")]
pub struct ShowArguments {
    /// A name of 'twin list', or a file
    #[arg(value_name = "NAME")]
    name: String,
}

#[derive(Debug, Serialize)]
struct Report {
    name: String,
    title: String,
    about: String,
    size_bytes: u64,
    explains: Vec<String>,
    /// From the host's side to the drive's.
    parts: Vec<ShownPart>,
}

#[derive(Debug, Serialize)]
struct ShownPart {
    kind: String,
    numbers: Vec<ShownNumber>,
}

#[derive(Debug, Serialize)]
struct ShownNumber {
    name: String,
    #[serde(flatten)]
    number: Number,
}

/// Runs the command.
pub fn run(arguments: &ShowArguments, settings: &Settings) -> Outcome {
    let profile = super::profile(&arguments.name)?;
    let part = |part: &Part| ShownPart {
        kind: part.kind.clone(),
        numbers: part
            .numbers
            .iter()
            .map(|(name, number)| ShownNumber { name: name.clone(), number: number.clone() })
            .collect(),
    };
    let report = Report {
        name: profile.name().to_owned(),
        title: profile.title().to_owned(),
        about: profile.about().to_owned(),
        size_bytes: profile.size_bytes(),
        explains: profile.explains().to_vec(),
        parts: profile.part().chain().map(part).collect(),
    };
    settings.output.show("twin show", &report, text)?;
    Ok(Exit::Done)
}

fn text(report: &Report) -> String {
    let mut text =
        format!("{}: {}, {}\n", report.name, report.title, human_bytes(report.size_bytes));
    if !report.about.is_empty() {
        text.push_str(&format!("{}\n", report.about));
    }
    if !report.explains.is_empty() {
        text.push_str(&format!("explains {}\n", report.explains.join(", ")));
    }
    for part in &report.parts {
        let mut table = Table::new(&[
            (&part.kind.to_uppercase(), Align::Left),
            ("VALUE", Align::Right),
            ("SOURCE", Align::Left),
        ]);
        for ShownNumber { name, number } in &part.numbers {
            let fitted = match number.rows.as_slice() {
                [] if number.chosen => " [chosen by looking at rows]".to_owned(),
                [] => String::new(),
                rows => format!(" [{}]", rows.join(", ")),
            };
            let source = format!("{}{fitted}", number.source);
            table.row([name.clone(), number.value.to_string(), source]);
        }
        text.push_str(&format!("\n{}", table.render()));
    }
    text
}
