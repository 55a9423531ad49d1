//! From the measurements of a drive to a twin of it.
//!
//! * The physics is that of every twin. Numbers that a measurement tells directly are taken from it;
//!   others are turned until the twin, asked the same, gives the same rate. Each has the names of
//!   the measurements it was fitted to.
//! * What nothing measured tells is *of the kind*, and says so.
//! * All measurements that fitted nothing are a check: they are predicted, and the error is told.

mod disk;
mod draft;
mod flash;
mod knob;

use std::collections::BTreeSet;

use serde::Serialize;
use twin::{Bench, Condition, Kind, Load, Pattern, Profile, ProfileFile, Random};

use self::draft::Draft;
use crate::fio::Direction;
use crate::probe::{Identity, Measured, Measurements};

/// So many requests tell a rate.
const ENOUGH: u64 = 10_000;

/// A mean response time above this (ms) is that of an arm.
const DISK_MS: f64 = 2.0;

/// A measurement beside what the twin does.
#[derive(Debug, Clone, Serialize)]
pub struct Line {
    /// The measurement.
    pub id: String,
    /// Requests per second of the drive.
    pub measured: f64,
    /// Of the twin.
    pub twin: f64,
    /// The difference as a share of what was measured.
    pub error: f64,
    /// A number of the twin was fitted to it.
    pub fitted: bool,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Fit {
    /// The twin.
    pub profile: Profile,
    /// All measurements.
    pub lines: Vec<Line>,
}

/// Makes a twin called `name` of a drive. `condition` is that of a flash drive as it was measured.
///
/// # Errors
/// A sentence: what was measured is not enough, or not of this world.
pub fn fit(measurements: &Measurements, name: &str, condition: Condition) -> Result<Fit, String> {
    if name.is_empty() || name.contains([',', '/', '+']) {
        return Err(format!("'{name}' is no name for a twin: no comma, slash or plus"));
    }
    let draft = match is_disk(measurements)? {
        true => disk::draft(measurements, name)?,
        false => flash::draft(measurements, name, condition)?,
    };
    let profile = draft.profile()?;
    let rows = profile.part().chain().flat_map(|part| part.numbers.values());
    let fitted: BTreeSet<String> = rows.flat_map(|number| number.rows.clone()).collect();
    let lines = measurements.measured.iter().map(|one| {
        let (measured, twin) = (one.iops, rate(&profile, one));
        let (id, fitted) = (one.measure.id.clone(), fitted.contains(&one.measure.id));
        Line { id, measured, twin, error: twin / measured - 1.0, fitted }
    });
    let lines = lines.collect();
    Ok(Fit { profile, lines })
}

impl Fit {
    /// The median of the errors of what was not fitted, without their signs.
    pub fn check_error(&self) -> Option<f64> {
        let mut errors: Vec<f64> =
            self.lines.iter().filter(|line| !line.fitted).map(|line| line.error.abs()).collect();
        errors.sort_by(f64::total_cmp);
        errors.get(errors.len() / 2).copied()
    }

    /// What was not fitted and is missed most.
    pub fn worst(&self) -> Option<&Line> {
        let checked = self.lines.iter().filter(|line| !line.fitted);
        checked.max_by(|one, other| one.error.abs().total_cmp(&other.error.abs()))
    }
}

fn is_disk(measurements: &Measurements) -> Result<bool, String> {
    if let Some(rotational) = measurements.identity.rotational {
        return Ok(rotational);
    }
    let whole = wanted(measurements, "rand-read-4k-over-100-percent")?;
    Ok(whole.latency_us.mean > DISK_MS * 1e3)
}

fn wanted<'a>(measurements: &'a Measurements, id: &str) -> Result<&'a Measured, String> {
    measurements.get(id).ok_or_else(|| format!("the measurement {id} is missing"))
}

/// Requests per second of the twin when it is asked what was measured.
fn rate(profile: &Profile, of: &Measured) -> f64 {
    let measure = &of.measure;
    let load = Load {
        kind: match measure.direction {
            Direction::Read => Kind::Read,
            Direction::Write => Kind::Write,
            Direction::Trim => Kind::Trim,
        },
        pattern: if measure.random { Pattern::Random } else { Pattern::Shared },
        block_bytes: measure.block_bytes,
        range: measure.from_bytes..measure.from_bytes + measure.span_bytes,
        clients: measure.depth,
        flushes: u32::from(measure.flush),
    };
    let mut bench = Bench::new(profile.model(Random::new(1)), Random::new(2));
    let for_ns = (of.seconds * 1e9) as u64;
    bench.run(&load, for_ns.max(1), ENOUGH.min(of.requests.max(1))).per_second()
}

/// What all kinds of drives have in common.
fn head(identity: &Identity, name: &str, rotational: bool, condition: Condition) -> ProfileFile {
    let write_cache = identity.write_cache.unwrap_or(true);
    let title = identity.model.clone().unwrap_or_else(|| identity.place.clone());
    ProfileFile {
        schema: twin::PROFILE_SCHEMA,
        name: name.to_owned(),
        title,
        about: format!("Fitted to what 'bimetal probe' measured of {}.", identity.place),
        size_bytes: identity.size_bytes,
        sector_bytes: identity.sector_bytes.filter(|bytes| *bytes == 4096).unwrap_or(512),
        rotational,
        volatile_bytes: if write_cache { draft::VOLATILE_BYTES } else { 0 },
        setting: twin::Setting { write_cache, condition },
        explains: Vec::new(),
        part: twin::Part {
            kind: if rotational { "disk" } else { "flash" }.to_owned(),
            numbers: Default::default(),
            behind: None,
        },
    }
}

/// What the way to the drive tells of every kind: its link, where it is cut, how deep it queues.
fn add_way(draft: &mut Draft, measurements: &Measurements, link: &[&'static str], link_mb_s: f64) {
    let Measurements { identity, split, .. } = measurements;
    for number in link {
        match &identity.link {
            Some(link) => draft.set(number, link.mb_s, &link.name),
            None => draft.set(number, link_mb_s, "not told: as fast as such links are"),
        }
    }
    let queue = identity.queue.clone().unwrap_or_default();
    match (split.at_kib, queue.max_sectors_kb) {
        (Some(kib), _) => draft.set("command_kib", kib.round(), &split.why),
        (None, Some(kib)) => draft.set("command_kib", kib as f64, "max_sectors_kb of the kernel"),
        (None, None) => draft.set("command_kib", 512.0, "not told: max_sectors_kb of Linux"),
    }
    match queue.device_depth.or(queue.requests_max) {
        Some(depth) => draft.set("queue_depth", depth.clamp(1, 1024) as f64, "the kernel's"),
        None => draft.set("queue_depth", 32.0, "not told: of the kind"),
    }
}

#[cfg(test)]
mod tests;
