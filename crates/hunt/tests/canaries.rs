//! Every canary, an engine that is wrong on purpose, must be caught, but for those that are known to be
//! free: the proof that the hunt can find something. `cargo x canaries` hunts single ones, for longer.

mod told;

use std::time::Duration;

use engine::canary::Canary;
use hunt::{Chase, FREE, Hunter, hunt_canaries};

/// At most so long for each; nearly all are caught in the first second or two. Generous, because the
/// machine may be busy with something else.
const BUDGET: Duration = Duration::from_secs(240);

#[test]
fn every_canary_is_caught() {
    // A canary may make the engine panic: that is one way to be caught, and reported as such.
    std::panic::set_hook(Box::new(|_| ()));
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let canaries: Vec<Canary> =
        Canary::ALL.iter().copied().filter(|canary| !FREE.contains(canary)).collect();
    let chases =
        hunt_canaries(&canaries, Hunter::Knowing, BUDGET, threads, &|chase| println!("{chase}"));
    let _ = std::panic::take_hook();
    let free: Vec<String> =
        chases.iter().filter(|chase| chase.caught.is_none()).map(Chase::to_string).collect();
    let (caught, all) = (chases.len() - free.len(), chases.len());
    told::tell(&format!("canaries: {caught} of {all} caught"));
    assert!(free.is_empty(), "{caught} of {all} caught\n{}", free.join("\n"));
}
