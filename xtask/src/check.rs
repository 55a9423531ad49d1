//! The whole gate, in the order in which failures are cheapest to find.

use crate::shell::{self, Outcome};
use crate::tidy;

/// Runs every step; stops at the first that fails.
pub fn run() -> Outcome {
    step("format", || cargo(&["fmt", "--all", "--check"]))?;
    step("tidy", tidy::run)?;
    step("lints", || {
        let lints = ["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--"];
        cargo(&[&lints[..], &["-D", "warnings"]].concat())
    })?;
    step("docs", || {
        let mut docs = shell::command("cargo");
        docs.args(["doc", "--workspace", "--no-deps", "--document-private-items", "--locked"]);
        docs.arg("--quiet").env("RUSTDOCFLAGS", "-D warnings");
        shell::run(&mut docs)
    })?;
    step("tests", || cargo(&["test", "--workspace", "--locked"]))
}

fn step(name: &str, deed: impl FnOnce() -> Outcome) -> Outcome {
    eprintln!("== {name}");
    deed().map_err(|message| format!("{name} failed: {message}"))
}

fn cargo(words: &[&str]) -> Outcome {
    shell::run(shell::command("cargo").args(words))
}
