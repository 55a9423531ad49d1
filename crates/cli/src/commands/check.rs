//! `bimetal check`: verifies every invariant of format and map on both drives, changing nothing.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use io::units::human_bytes;
use serde::Serialize;
use uring::{Access, Kernel, KernelOptions};

use crate::failure::{Exit, Failure, Outcome};
use crate::in_use;
use crate::progress;
use crate::selection::VolumeArgument;
use crate::server::ServerRecord;
use crate::settings::Settings;

/// Verify both drives of a volume that is not being served; changes nothing
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  bimetal check vol0
  bimetal check --fast fast.img --slow slow.img

Ends with exit code 0 when nothing is wrong (a volume that was not closed in order is not wrong: the
next start replays its log), and 3 when something is.")]
pub struct CheckArguments {
    #[command(flatten)]
    volume: VolumeArgument,
}

#[derive(Debug, Serialize)]
struct Check {
    name: String,
    /// It was closed in order.
    clean: bool,
    /// What is wrong and stays wrong.
    errors: Vec<String>,
    /// It can be served all the same: what is damaged is an error to read.
    opens: bool,
    /// What is damaged but has an intact copy: the next start for writing repairs it.
    repairable: Vec<String>,
    extents_mapped: Mapped,
    /// They are on both drives.
    extents_clean: u64,
    log_records: u64,
    log_dirty_bytes: u64,
    map_pages: u64,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Mapped {
    fast: u64,
    slow: u64,
}

/// Runs the command.
pub fn run(arguments: &CheckArguments, settings: &Settings) -> Outcome {
    let selection = arguments.volume.select(settings)?;
    if let Some(server) = ServerRecord::serving(settings, &selection)? {
        let name = &selection.name;
        return Err(Failure::refused(format!("volume '{name}' is served by {server}"))
            .hint("a check reads drives at rest: stop the server first"));
    }
    selection.verify_identity()?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let open = |path: &PathBuf| {
        let opened = kernel.open_device(path, Access::ReadOnly);
        opened.map_err(|error| in_use::opening_failed(path, error))
    };
    let (fast, slow) = (open(&selection.fast)?, open(&selection.slow)?);
    let bar = progress::steps("checking");
    let tell = |done: u64, total: u64| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let report = io.block_on(engine::check(&io, &fast, &slow, &tell)).map_err(damage)?;
    bar.finish_and_clear();
    let [fast, slow] = report.extents_mapped;
    let check = Check {
        name: report.name,
        clean: report.clean,
        errors: report.errors,
        opens: report.opens,
        repairable: report.repairable,
        extents_mapped: Mapped { fast, slow },
        extents_clean: report.extents_clean,
        log_records: report.log_records,
        log_dirty_bytes: report.log_dirty_bytes,
        map_pages: report.map_pages,
    };
    settings.output.show("check", &check, text)?;
    let sound = check.errors.is_empty() && check.repairable.is_empty();
    Ok(if sound { Exit::Done } else { Exit::Degraded })
}

/// What stands in the way of checking the volume at all. That is damage too, unless the drives are
/// merely the wrong ones.
fn damage(error: engine::Error) -> Failure {
    match error {
        engine::Error::Unfit { .. }
        | engine::Error::Superblock { .. }
        | engine::Error::Damaged(_) => {
            Failure { exit: Exit::Degraded, message: error.to_string(), hint: None }
        }
        error => error.into(),
    }
}

fn text(check: &Check) -> String {
    let mut text = String::new();
    let mut line = |line: String| writeln!(text, "{line}").expect("a string takes any text");
    let left = if check.clean { "closed in order" } else { "not closed in order" };
    line(format!("volume '{}' ({left})", check.name));
    let Mapped { fast, slow } = check.extents_mapped;
    // After an error in the map nothing was counted.
    if check.errors.is_empty() || fast + slow > 0 {
        let pages = check.map_pages;
        let both = match check.extents_clean {
            0 => String::new(),
            clean => format!(", {clean} of them on both"),
        };
        line(format!(
            "{pages} map pages, {fast} extents on the fast drive, {slow} on the slow one{both}"
        ));
    }
    if check.log_records > 0 {
        let dirty = human_bytes(check.log_dirty_bytes);
        line(format!("{} log records to replay, {dirty} only in the log", check.log_records));
    }
    for problem in &check.repairable {
        line(format!("repairable: {problem}"));
    }
    for problem in &check.errors {
        line(format!("error: {problem}"));
    }
    line(match (check.errors.is_empty(), check.repairable.is_empty()) {
        (true, true) => "nothing is wrong".to_owned(),
        (true, false) => "nothing is lost; serving the volume once repairs it".to_owned(),
        (false, _) if check.opens => {
            "some data is damaged: reading it gives an error. Serve the volume, copy what can be \
             read, then restore from a backup"
                .to_owned()
        }
        (false, _) => format!(
            "serving the volume is refused. 'bimetal serve {0} --rescue' serves what is certain, \
             read-only: copy that, then restore the rest from a backup. 'bimetal lost {0}' lists \
             what is not certain",
            check.name
        ),
    });
    text
}
