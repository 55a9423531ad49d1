//! `cargo x fuzz`: each decoder of bytes that somebody else wrote, under a fuzzer, for some time.

use std::fs;
use std::path::Path;

use clap::Args;

use crate::shell::{self, Outcome};

/// The version that is known to work.
const CARGO_FUZZ: &str = "0.13.2";
/// Inputs longer than this find nothing that shorter ones do not.
const INPUT_BYTES_MAX: u32 = 8192;
/// One input that takes longer than this is a bug: the slowest takes some milliseconds.
const INPUT_SECONDS_MAX: u32 = 20;

/// What to fuzz, and for how long.
#[derive(Debug, Args)]
#[command(after_help = "Example: cargo x fuzz --seconds 600 recovery nbd_transmission")]
pub struct FuzzArguments {
    /// Seconds per target
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    seconds: u64,
    /// Only these targets
    targets: Vec<String>,
}

/// Runs the targets one after the other; stops at the first that fails.
pub fn run(arguments: &FuzzArguments) -> Outcome {
    let nightly = shell::command("cargo").args(["+nightly", "--version"]).output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        eprintln!("fuzzing needs a nightly compiler: installing it with rustup (some minutes)");
        let words = ["toolchain", "install", "nightly", "--profile", "minimal"];
        shell::run(shell::command("rustup").args(words)).map_err(|message| {
            format!(
                "{message}\nThe nightly compiler could not be installed. Where rustup is missing see \
                 https://rustup.rs; then 'rustup toolchain install nightly' says what stands in the \
                 way. 'cargo test -p bimetal-hostile' replays all known inputs without it."
            )
        })?;
    }
    let installed = shell::command("cargo").args(["fuzz", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        eprintln!("cargo-fuzz is missing: installing version {CARGO_FUZZ} (some minutes)");
        let words = ["install", "cargo-fuzz", "--version", CARGO_FUZZ, "--locked"];
        shell::run(shell::command("cargo").args(words))?;
    }
    let fuzz = shell::root().join("fuzz");
    let known = targets(&fuzz)?;
    let chosen = if arguments.targets.is_empty() { &known } else { &arguments.targets };
    for target in chosen {
        if !known.contains(target) {
            return Err(format!("there is no target '{target}'; there are {}", known.join(", ")));
        }
        eprintln!("== {target}, {} s", arguments.seconds);
        fuzz_one(&fuzz, target, arguments.seconds)?;
    }
    Ok(())
}

fn fuzz_one(fuzz: &Path, target: &str, seconds: u64) -> Outcome {
    let corpus = fuzz.join("corpus").join(target);
    fs::create_dir_all(&corpus).map_err(|error| format!("{}: {error}", corpus.display()))?;
    let mut command = shell::command("cargo");
    command.args(["+nightly", "fuzz", "run", "--fuzz-dir"]).arg(fuzz).arg(target);
    // What is found goes to the first directory; the second one is committed.
    command.arg(corpus).arg(fuzz.join("seeds").join(target)).arg("--");
    command.arg(format!("-max_total_time={seconds}"));
    command.arg(format!("-max_len={INPUT_BYTES_MAX}"));
    command.arg(format!("-timeout={INPUT_SECONDS_MAX}"));
    shell::run(&mut command).map_err(|message| {
        format!(
            "{message}\nThe input is in fuzz/artifacts/{target}. Once it is mended, put the input \
             into fuzz/seeds/{target} under a name that says what it was: a plain test replays it."
        )
    })
}

fn targets(fuzz: &Path) -> Result<Vec<String>, String> {
    let dir = fuzz.join("fuzz_targets");
    let entries = fs::read_dir(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}
