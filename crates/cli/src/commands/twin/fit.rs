//! `bimetal twin fit`: from measurements of a drive to a twin of it.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use lab::fit::{Fit, Line, fit};
use lab::probe::Measurements;
use serde::Serialize;
use twin::Condition;

use super::stem;
use crate::failure::{Exit, Failure, Outcome};
use crate::new_file;
use crate::settings::Settings;
use crate::table::{Align, Table};

/// Make a twin of a drive that was probed
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal probe /dev/sdb --out sdb.json
  bimetal twin fit --from sdb.json --out sdb.toml
  bimetal twin show ./sdb.toml
  bimetal lab run thomas-krenn --on twin:./sdb.toml

Each number of the twin says which measurements it was fitted to, or that it is of the kind; measurements that
fitted nothing are predicted, and the table says how well.")]
pub struct FitArguments {
    /// What 'bimetal probe --out' kept
    #[arg(long, value_name = "MEASUREMENTS.json")]
    from: PathBuf,
    /// Where the profile goes; beside the measurements, ending in .toml, unless said
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Its name; that of the file unless said
    #[arg(long)]
    name: Option<String>,
    /// In what condition a flash drive was measured
    #[arg(long, value_enum, default_value_t = Worn::Used)]
    condition: Worn,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Worn {
    /// Nothing was on it
    Fresh,
    /// It has been written over several times
    Used,
}

#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    file: &'a Path,
    /// Of the measurements that nothing was fitted to.
    check_error: Option<f64>,
    lines: &'a [Line],
}

/// Runs the command.
pub fn run(arguments: &FitArguments, settings: &Settings) -> Outcome {
    let measurements = Measurements::load(&arguments.from).map_err(Failure::failed)?;
    let file = match &arguments.out {
        Some(path) => path.clone(),
        None => arguments.from.with_extension("toml"),
    };
    new_file::refuse_existing(&file)?;
    let name = arguments.name.clone().unwrap_or_else(|| stem(&file));
    let condition = match arguments.condition {
        Worn::Fresh => Condition::Fresh,
        Worn::Used => Condition::Used,
    };
    let made = fit(&measurements, &name, condition).map_err(Failure::failed)?;
    new_file::write(&file, &made.profile.file().to_toml())?;
    let report = Report {
        name: made.profile.name(),
        file: &file,
        check_error: made.check_error(),
        lines: &made.lines,
    };
    settings.output.show("twin fit", &report, |_| text(&file, &made))?;
    Ok(Exit::Done)
}

/// What was measured beside what the twin does.
pub fn text(file: &Path, made: &Fit) -> String {
    let mut table = Table::new(&[
        ("io/s", Align::Left),
        ("MEASURED", Align::Right),
        ("TWIN", Align::Right),
        ("ERROR", Align::Right),
        ("", Align::Left),
    ]);
    for line in &made.lines {
        table.row([
            line.id.clone(),
            format!("{:.1}", line.measured),
            format!("{:.1}", line.twin),
            format!("{:+.1} %", line.error * 100.0),
            if line.fitted { "fitted" } else { "predicted" }.to_owned(),
        ]);
    }
    let name = made.profile.name();
    let mut text = format!("twin {name} in {}\n\n{}", file.display(), table.render());
    if let (Some(error), Some(worst)) = (made.check_error(), made.worst()) {
        text += &format!(
            "median error of what was predicted: {:.1} %; the worst: {} with {:+.1} %\n",
            error * 100.0,
            worst.id,
            worst.error * 100.0
        );
    }
    // A name without a slash would be looked for among those built in.
    let slash = if file.components().count() == 1 { "./" } else { "" };
    text + &format!("use it: bimetal lab run working-set --on twin:{slash}{}\n", file.display())
}
