//! Hunts every canary, and says how soon each was caught: `canaries [SECONDS [NAME…]]`, with at
//! most so many seconds for each (default 30). Closes with the line `N of M caught`, and ends with 1
//! unless all were.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use engine::canary::Canary;
use hunt::{ELUSIVE, hunt_canary};

/// The seed of the first run for each canary.
const FIRST_SEED: u64 = 1;

fn main() -> ExitCode {
    // A canary may make the engine panic: that is one way to be caught, and reported as such.
    std::panic::set_hook(Box::new(|_| ()));
    let words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.first().map_or(30, |word| word.parse().expect("a number of seconds"));
    let named = |canary: &Canary| words[1..].iter().any(|name| *name == format!("{canary:?}"));
    let wanted = |canary: &Canary| match words.len() {
        0 | 1 => !ELUSIVE.contains(canary),
        _ => named(canary),
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let canaries: Vec<Canary> = Canary::ALL.iter().copied().filter(wanted).collect();
    let mut caught = 0;
    for canary in &canaries {
        let begun = Instant::now();
        let outcome = hunt_canary(*canary, FIRST_SEED, Duration::from_secs(seconds), threads);
        let took = begun.elapsed().as_secs_f64();
        match outcome {
            Some(one) => {
                caught += 1;
                let first = one.message.lines().next().unwrap_or_default();
                let short: String = first.chars().take(110).collect();
                println!("{canary:?}: caught in {} after {took:.1} s: {short}", one.ground);
            }
            None => println!("{canary:?}: NOT caught in {took:.0} s"),
        }
    }
    println!("{caught} of {} caught", canaries.len());
    if caught == canaries.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
