//! Plays the stories of the engine, with all that can be done at a cut: `tales SEED [STRIDE [NAME…]]`, where a
//! name is a part of one, or `canary=…` for an engine that is wrong. Prints what it finds and ends with 1
//! if it found anything.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use engine::canary::{Canary, release};
use hunt::{Effort, tales};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, otherwise: u64| {
        words.get(place).map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let (seed, stride) = (number(0, 1), number(1, 1));
    let (canaries, names): (Vec<&str>, Vec<&str>) =
        words.iter().skip(2).map(String::as_str).partition(|word| word.starts_with("canary="));
    let canary = canaries.first().map(|word| &word["canary=".len()..]);
    let canary = canary.map(|name| {
        let is_it = |canary: &&Canary| format!("{canary:?}") == name;
        *Canary::ALL.iter().find(is_it).unwrap_or_else(|| panic!("there is no canary {name}"))
    });
    release(canary);
    let wanted = |name: &str| names.is_empty() || names.iter().any(|word| name.contains(word));
    let mut found = 0;
    for atomic_write_bytes in [512, 4096] {
        let all = tales(seed, atomic_write_bytes);
        for tale in all.into_iter().filter(|tale| wanted(tale.name())) {
            let begun = Instant::now();
            let effort = Effort {
                stride: stride * tale.stride(),
                failures_max: 2,
                threads: if canary.is_some() { 1 } else { 2 },
                after_opening: false,
                ..Effort::exhausting(Some(begun + Duration::from_secs(600)))
            };
            let report = tale.report(&effort);
            println!(
                "seed {seed}, atomic {atomic_write_bytes}, {}: {} operations, {} cases, {:.1} s",
                report.scenario,
                report.operations,
                report.cases,
                begun.elapsed().as_secs_f64()
            );
            for failure in &report.failures {
                println!("{failure}");
            }
            found += report.failures.len();
        }
    }
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
