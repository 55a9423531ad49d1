//! A trace on one twin, for comparison: what the disk alone, or flash alone, would have made of it.

use twin::{DriveSpec, Profile, Simulation};

use super::{DriveOutcome, Ground, Outcome, Speed, play};

/// Plays the trace on the twin of that name; the first `warm_up` of the requests without counting.
///
/// # Errors
/// A sentence, when there is no such twin, it is too small, or a request fails.
pub fn alone(
    choice: &str,
    ground: &Ground,
    warm_up: usize,
    speed: Speed,
    seed: u64,
    progress: &dyn Fn(u64),
) -> Result<Outcome, String> {
    let profile = Profile::named(choice).map_err(|error| error.to_string())?;
    let simulation = Simulation::new(seed);
    let drive = simulation.add_drive(DriveSpec { keeps_content: false, ..profile.spec(choice) });
    let io = simulation.boot();
    let device = simulation.device(&io, drive);
    let (before, after) = ground.events.split_at(warm_up.min(ground.events.len()));
    let first_us = before.first().map_or(0, |event| event.at_us);
    let run = async {
        let warmed = play(&device, before, first_us, speed, progress).await;
        let origin_us = before.last().or(after.first()).map_or(0, |event| event.at_us);
        let before_ns = simulation.counters(drive).busy_ns;
        let played = play(&device, after, origin_us, speed, progress).await;
        (warmed, played, simulation.counters(drive).busy_ns - before_ns)
    };
    let (warmed, played, busy_ns) = simulation.run(&io, run).done();
    warmed.check()?;
    played.check()?;
    let outcome = played.outcome();
    let busy_s = busy_ns as f64 / 1e9;
    let drive = DriveOutcome { busy_s, busy_share: busy_s / outcome.seconds.max(1e-9) };
    Ok(Outcome { drive: Some(drive), ..outcome })
}
