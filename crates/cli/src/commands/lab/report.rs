//! `bimetal lab report`: one page of what runs showed.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::failure::{Exit, Failure, OnPath, Outcome};
use crate::settings::Settings;

/// Write one page of what runs showed: tables, pictures, commands
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal lab report results                    (writes results/report.html)
  bimetal lab report results --output /tmp/drives.html

Reads what 'bimetal lab run --out' kept in DIR and in the directories in it. The page needs nothing
beside it: no network, no scripts. Runs that cannot be read are named and left out, and the exit code is 1.")]
pub struct ReportArguments {
    /// Where runs were kept
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where the page goes [default: DIR/report.html]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Written {
    page: PathBuf,
    runs: usize,
    figures: usize,
    /// What cannot be read, and why.
    left_out: Vec<String>,
}

/// Runs the command.
pub fn run(arguments: &ReportArguments, settings: &Settings) -> Outcome {
    let (runs, left_out) = lab::report::runs(&arguments.dir).map_err(Failure::failed)?;
    for problem in &left_out {
        let _ = writeln!(std::io::stderr(), "left out: {problem}");
    }
    if runs.is_empty() {
        return Err(Failure::failed(format!("{} holds no runs", arguments.dir.display())).hint(
            "keep one there: bimetal lab run working-set --on twin:wd5002abys --out DIR/name",
        ));
    }
    let page = arguments.output.clone().unwrap_or_else(|| arguments.dir.join("report.html"));
    std::fs::write(&page, lab::report::page(&runs)).on_path("write", &page)?;
    let figures = runs.iter().map(|run| run.figures().count()).sum();
    let written = Written { page, runs: runs.len(), figures, left_out };
    settings.output.show("lab report", &written, |written| {
        format!("{}: {} runs, {} figures\n", written.page.display(), written.runs, written.figures)
    })?;
    Ok(if written.left_out.is_empty() { Exit::Done } else { Exit::Failed })
}
