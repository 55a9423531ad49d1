//! Hunts every canary, and says how soon each was caught: `canaries [SECONDS [blind] [NAME…]]`, with at
//! most so many seconds for each (default 30); `blind` as somebody does who knows of none. Closes with the line `N of M caught`, and ends with 1
//! unless all were.

use std::process::ExitCode;
use std::time::Duration;

use engine::canary::Canary;
use hunt::{FREE, Hunter, hunt_canaries};

fn main() -> ExitCode {
    // A canary may make the engine panic: that is one way to be caught, and reported as such.
    std::panic::set_hook(Box::new(|_| ()));
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let seconds = words.first().map_or(30, |word| word.parse().expect("a number of seconds"));
    let blind = words.get(1).is_some_and(|word| word == "blind");
    if blind {
        words.remove(1);
    }
    let hunter = if blind { Hunter::Blind } else { Hunter::Knowing };
    let named = |canary: &Canary| words[1..].iter().any(|name| *name == format!("{canary:?}"));
    let wanted = |canary: &Canary| match words.len() {
        0 | 1 => !FREE.contains(canary),
        _ => named(canary),
    };
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let canaries: Vec<Canary> = Canary::ALL.iter().copied().filter(wanted).collect();
    let tell = |chase: &hunt::Chase| println!("{chase}");
    let budget = Duration::from_secs(seconds);
    let chases = hunt_canaries(&canaries, hunter, budget, threads, &tell);
    let caught = chases.iter().filter(|chase| chase.caught.is_some()).count();
    println!("{caught} of {} caught", canaries.len());
    if caught == canaries.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
