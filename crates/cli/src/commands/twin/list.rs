//! `bimetal twin list`: which twins there are.

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;
use twin::{Condition, Profile};

use crate::failure::{Exit, Outcome};
use crate::settings::Settings;
use crate::table::{Align, Table};

/// List the twins
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal twin list
  bimetal --json twin list")]
pub struct ListArguments {}

#[derive(Debug, Serialize)]
struct Report {
    twins: Vec<Line>,
}

#[derive(Debug, Serialize)]
struct Line {
    name: String,
    title: String,
    size_bytes: u64,
    rotational: bool,
    write_cache: bool,
    condition: &'static str,
    /// Of its numbers, how many were fitted to published rows, or chosen by looking at them.
    numbers: usize,
    fitted: usize,
}

/// Runs the command.
pub fn run(_: &ListArguments, settings: &Settings) -> Outcome {
    let twins = Profile::list().iter().map(line).collect();
    settings.output.show("twin list", &Report { twins }, text)?;
    Ok(Exit::Done)
}

fn line(profile: &Profile) -> Line {
    let numbers = || profile.part().chain().flat_map(|part| part.numbers.values());
    Line {
        name: profile.name().to_owned(),
        title: profile.title().to_owned(),
        size_bytes: profile.size_bytes(),
        rotational: profile.rotational(),
        write_cache: profile.setting().write_cache,
        condition: match profile.setting().condition {
            Condition::Fresh => "fresh",
            Condition::Used => "used",
        },
        numbers: numbers().count(),
        fitted: numbers().filter(|number| number.is_told_by_rows()).count(),
    }
}

fn text(report: &Report) -> String {
    let mut table = Table::new(&[
        ("NAME", Align::Left),
        ("SIZE", Align::Right),
        ("CACHE", Align::Left),
        ("STATE", Align::Left),
        ("FITTED", Align::Right),
        ("DRIVE", Align::Left),
    ]);
    for line in &report.twins {
        table.row([
            line.name.clone(),
            human_bytes(line.size_bytes),
            if line.write_cache { "on" } else { "off" }.to_owned(),
            line.condition.to_owned(),
            format!("{} of {}", line.fitted, line.numbers),
            line.title.clone(),
        ]);
    }
    table.render()
}
