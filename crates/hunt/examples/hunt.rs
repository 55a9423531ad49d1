//! Hunts with many seeds: `hunt FIRST_SEED SEEDS [STORY [STRIDE]]`. Without a story: mixtures; the
//! story `endurance` is for strides of some tens; `all` is all but that. Prints what it finds and
//! ends with 1 if it found anything.

use std::process::ExitCode;
use std::time::Instant;

use hunt::{Bimetal, Effort, deferred_mixture, endurance, enumerate, mixture, stories};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, otherwise: u64| {
        words.get(place).map_or(otherwise, |word| word.parse().expect("a number"))
    };
    let (first, count, stride) = (number(0, 0), number(1, 1), number(3, 1));
    let wanted = words.get(2);
    let effort = Effort { stride, recut_every: 40, ..Effort::default() };
    let mut found = 0;
    for seed in first..first + count {
        for atomic_write_bytes in [512, 4096] {
            let chosen = match wanted {
                None => vec![mixture(seed, atomic_write_bytes)],
                Some(name) if name == "deferred" => {
                    vec![deferred_mixture(seed, atomic_write_bytes)]
                }
                Some(name) if name == "endurance" => vec![endurance(seed, atomic_write_bytes)],
                Some(name) => {
                    let mut all = stories(seed, atomic_write_bytes);
                    all.retain(|story| name == "all" || story.name == name);
                    all
                }
            };
            for story in chosen {
                let begun = Instant::now();
                let report = enumerate(&Bimetal, &story, &effort);
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
    }
    if found == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
