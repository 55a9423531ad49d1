//! Hunts every canary: an engine that is wrong on purpose. The proof that the hunt can find something.

use clap::Args;

use crate::shell::{self, Outcome};

/// At most so long for each: most are caught within one.
const SECONDS: u64 = 60;

/// Which, and for how long
#[derive(Debug, Args)]
pub struct CanariesArguments {
    /// At most so long for each
    #[arg(long, value_name = "SECONDS", default_value_t = SECONDS)]
    seconds: u64,
    /// Hunt as `bimetal hunt` does, without knowing where each was caught before
    #[arg(long)]
    blind: bool,
    /// Only these, by name
    names: Vec<String>,
}

/// Runs them; the last line says how many of how many were caught.
pub fn run(arguments: &CanariesArguments) -> Outcome {
    let mut hunt = shell::command("cargo");
    // As the tests are compiled, which the engine is in earnest: this is one of them.
    hunt.args(["run", "--locked", "--quiet", "--package", "bimetal-hunt"]);
    hunt.args(["--features", "canaries", "--example", "canaries", "--"]);
    hunt.arg(arguments.seconds.to_string())
        .args(arguments.blind.then_some("blind"))
        .args(&arguments.names);
    shell::run(&mut hunt)
}
