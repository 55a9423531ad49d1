//! `cargo x`: the commands of people who work on bimetal.

mod bench;
mod canaries;
mod check;
mod demo;
mod fuzz;
mod manifest;
mod scale;
mod shell;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Commands of people who work on bimetal
#[derive(Debug, Parser)]
#[command(name = "cargo x")]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// The whole gate: format, lints, docs, tidiness, tests
    Check,
    /// What no compiler checks: file headers, arrows between rooms, licences, banned words
    Tidy,
    /// Hunt engines that are wrong on purpose; fails unless every one is caught
    Canaries(canaries::CanariesArguments),
    /// Fuse two file-backed drives under ./run, fill them with a real tree, restart, verify
    Demo(demo::DemoArguments),
    /// Measure the NBD door beside nbdkit and qemu-nbd
    Bench(bench::BenchArguments),
    /// Measure what a volume costs as it grows to 64 TiB
    Scale(scale::ScaleArguments),
    /// Fuzz the decoders of bytes that somebody else wrote (needs a nightly compiler)
    Fuzz(fuzz::FuzzArguments),
}

fn main() -> ExitCode {
    let outcome = match CommandLine::parse().verb {
        Verb::Check => check::run(),
        Verb::Tidy => tidy::run(),
        Verb::Canaries(arguments) => canaries::run(&arguments),
        Verb::Demo(arguments) => demo::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Scale(arguments) => scale::run(&arguments),
        Verb::Fuzz(arguments) => fuzz::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
