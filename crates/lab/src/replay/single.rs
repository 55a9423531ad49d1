//! A trace on one twin, for comparison: what the disk alone, or flash alone, would have made of it.

use twin::{DriveSpec, Profile, Simulation};

use super::{Ground, Outcome, Speed, play};

/// Plays the whole of the trace on the twin of that name.
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
        let played = play(&device, after, origin_us, speed, progress).await;
        (warmed, played)
    };
    let (warmed, played) = simulation.run(&io, run).done();
    warmed.check()?;
    played.check()?;
    Ok(played.outcome())
}
