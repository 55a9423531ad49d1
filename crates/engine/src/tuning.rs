//! What a person sets for a volume; kept in the superblocks, and in force at once.

use std::fmt;
use std::rc::Rc;
use std::str::FromStr;

use io::units::{GIB, MIB, human_bytes};

use crate::address::Tier;
use crate::checkpoint::write_superblocks;
use crate::error::Error;
use crate::shared::Shared;
use crate::stage::Stage;
use crate::wishes::{RANGES_MAX, Wish};

/// So much of the fast drive may be pinned.
const PINNED_PERCENT_MAX: u64 = 80;
/// Write-behind: less would not hold a large request, more is memory that nobody expects to be used.
const BEHIND_BYTES_MIN: u64 = MIB;
const BEHIND_BYTES_MAX: u64 = GIB;

/// The settings of a volume. All zero: as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tuning {
    /// Bytes that may be written to the fast drive a day before nothing moves there any more;
    /// `None`: no limit.
    pub wear_bytes_per_day: Option<u64>,
    /// The slow drive may sleep: nothing is done there that can wait.
    pub quiet: bool,
    /// RAM for extents that were read whole; `None`: a hundredth of the volume, at most 256 MiB.
    pub stage_bytes: Option<u64>,
    /// The most that is acknowledged before it is written; `None`: nothing is.
    pub behind_bytes: Option<u64>,
    /// Class span: while the slow drive has room, what goes up keeps its slot there.
    pub inclusion: bool,
}

/// One of them, changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TuningChange {
    /// See [`Tuning::wear_bytes_per_day`].
    Wear(Option<u64>),
    /// See [`Tuning::quiet`].
    Quiet(bool),
    /// See [`Tuning::stage_bytes`].
    Stage(Option<u64>),
    /// See [`Tuning::behind_bytes`].
    Behind(Option<u64>),
    /// See [`Tuning::inclusion`].
    Inclusion(bool),
}

impl TuningChange {
    /// The words on the command line, with what may follow.
    pub const NAMES: [&'static str; 5] =
        ["wear_gb_per_day", "quiet", "stage", "write_behind", "inclusion"];

    /// Reads the value of the setting `name`; `None` when there is no such setting.
    pub fn parse(name: &str, value: &str) -> Option<Result<TuningChange, String>> {
        Some(match name {
            "wear_gb_per_day" => wear(value).map(TuningChange::Wear),
            "quiet" => bool::from_str(value)
                .map(TuningChange::Quiet)
                .map_err(|_| format!("'{value}' is neither true nor false")),
            "stage" => stage(value).map(TuningChange::Stage),
            "write_behind" => behind(value).map(TuningChange::Behind),
            "inclusion" => match value {
                "on" => Ok(TuningChange::Inclusion(true)),
                "off" => Ok(TuningChange::Inclusion(false)),
                _ => Err(format!("'{value}' is neither on nor off")),
            },
            _ => return None,
        })
    }

    /// Its word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            TuningChange::Wear(_) => "wear_gb_per_day",
            TuningChange::Quiet(_) => "quiet",
            TuningChange::Stage(_) => "stage",
            TuningChange::Behind(_) => "write_behind",
            TuningChange::Inclusion(_) => "inclusion",
        }
    }
}

fn wear(value: &str) -> Result<Option<u64>, String> {
    if value == "none" {
        return Ok(None);
    }
    let refusal = || format!("'{value}' is not a number of gigabytes above 0, nor none");
    let gigabytes: f64 = value.parse().map_err(|_| refusal())?;
    let fits = (0.001..=1e9).contains(&gigabytes);
    if fits { Ok(Some((gigabytes * 1e9).round() as u64)) } else { Err(refusal()) }
}

fn stage(value: &str) -> Result<Option<u64>, String> {
    if value == "default" {
        return Ok(None);
    }
    let bytes = size(value).filter(|bytes| *bytes <= 1 << 40);
    bytes.map(Some).ok_or_else(|| format!("'{value}' is not a size such as 256M or 0, nor default"))
}

fn behind(value: &str) -> Result<Option<u64>, String> {
    if value == "off" {
        return Ok(None);
    }
    let bytes = size(value).filter(|bytes| (BEHIND_BYTES_MIN..=BEHIND_BYTES_MAX).contains(bytes));
    bytes.map(Some).ok_or_else(|| format!("'{value}' is not a size from 1M to 1G, nor off"))
}

/// Reads a number of bytes, MiB (`M`) or GiB (`G`).
fn size(value: &str) -> Option<u64> {
    let (digits, unit) = match value.as_bytes().last() {
        Some(b'M') => (&value[..value.len() - 1], MIB),
        Some(b'G') => (&value[..value.len() - 1], GIB),
        _ => (value, 1),
    };
    digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit))
}

/// Writes a number of bytes as [`size`] reads it.
fn size_text(bytes: u64) -> String {
    match [(GIB, "G"), (MIB, "M")]
        .into_iter()
        .find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit))
    {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

impl fmt::Display for TuningChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TuningChange::Wear(None) => f.write_str("none"),
            TuningChange::Wear(Some(bytes)) => write!(f, "{}", *bytes as f64 / 1e9),
            TuningChange::Quiet(quiet) => write!(f, "{quiet}"),
            TuningChange::Stage(None) => f.write_str("default"),
            TuningChange::Behind(None) | TuningChange::Inclusion(false) => f.write_str("off"),
            TuningChange::Inclusion(true) => f.write_str("on"),
            TuningChange::Stage(Some(bytes)) | TuningChange::Behind(Some(bytes)) => {
                f.write_str(&size_text(*bytes))
            }
        }
    }
}

impl Tuning {
    fn change(&mut self, change: TuningChange) {
        match change {
            TuningChange::Wear(limit) => self.wear_bytes_per_day = limit,
            TuningChange::Quiet(quiet) => self.quiet = quiet,
            TuningChange::Stage(bytes) => self.stage_bytes = bytes,
            TuningChange::Behind(bytes) => self.behind_bytes = bytes,
            TuningChange::Inclusion(on) => self.inclusion = on,
        }
    }
}

/// Changes a setting, now and for later openings.
pub(crate) async fn set(shared: &Rc<Shared>, change: TuningChange) -> Result<(), Error> {
    let _alone = shared.mode_turn.enter(1).await;
    shared.unpoisoned()?;
    if change == TuningChange::Inclusion(true)
        && let Some(problem) = shared.geometry.inclusion_problem()
    {
        return Err(Error::Unsuitable(problem));
    }
    write_superblocks(shared, |superblock| {
        superblock.tuning.change(change);
        // Before the first entry that names two places, on both drives; and what it has been told stays.
        superblock.two_places |= superblock.tuning.inclusion;
    })
    .await?;
    {
        let tuning = shared.superblock.borrow().tuning;
        let mut state = shared.state.borrow_mut();
        match change {
            TuningChange::Wear(limit) => {
                let written = shared.fast.traffic().write_bytes;
                state.placer.limit_wear(limit.unwrap_or(0), written, shared.io.now_ns());
            }
            TuningChange::Quiet(quiet) => state.quiet.set(quiet),
            TuningChange::Stage(_) => {
                let default = Stage::bytes_by_default(&shared.geometry);
                state.stage.resize(tuning.stage_bytes.unwrap_or(default), &shared.geometry);
            }
            TuningChange::Behind(bytes) => state.behind.resize(bytes.unwrap_or(0)),
            TuningChange::Inclusion(on) => {
                if on {
                    state.map.allow_two_places();
                }
                state.inclusion.set(on);
            }
        }
    }
    shared.janitor_work.wake_all();
    Ok(())
}

/// Wishes something for the extents of ranges, now and for later openings.
pub(crate) async fn wish(
    shared: &Rc<Shared>,
    ranges: &[(u64, u64)],
    wish: Option<Wish>,
) -> Result<(), Error> {
    let _alone = shared.mode_turn.enter(1).await;
    shared.unpoisoned()?;
    let extent_bytes = shared.geometry.extent_bytes;
    let mut wishes = shared.superblock.borrow().wishes.clone();
    for (at, length) in ranges.iter().filter(|(_, length)| *length > 0) {
        let (first, end) = (at / extent_bytes, (at + length).div_ceil(extent_bytes));
        wishes = wishes.with(first, end - first, wish).ok_or_else(|| {
            let text = format!(
                "a volume keeps wishes for {RANGES_MAX} ranges at most; make some of them one, or unpin some"
            );
            Error::Unsuitable(text)
        })?;
    }
    // The rest of the fast drive stays for what is written and what proves itself.
    let pinned_max = shared.geometry.layouts[Tier::Fast.index()].slots * PINNED_PERCENT_MAX / 100;
    if wishes.pinned() > pinned_max && wish == Some(Wish::Pinned) {
        let text = format!(
            "{} would be pinned, and {} fit ({PINNED_PERCENT_MAX} % of the fast drive)",
            human_bytes(wishes.pinned() * extent_bytes),
            human_bytes(pinned_max * extent_bytes)
        );
        return Err(Error::Unsuitable(text));
    }
    write_superblocks(shared, |superblock| superblock.wishes = wishes.clone()).await?;
    {
        let mut state = shared.state.borrow_mut();
        state.wishes = wishes;
        state.wish_hand.begin();
    }
    shared.janitor_work.wake_all();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_as_they_are_shown() {
        for (name, value) in [
            ("wear_gb_per_day", "40"),
            ("wear_gb_per_day", "0.5"),
            ("wear_gb_per_day", "none"),
            ("quiet", "true"),
            ("stage", "0"),
            ("stage", "default"),
            ("write_behind", "off"),
            ("stage", "512M"),
            ("stage", "2G"),
            ("stage", "4097"),
            ("write_behind", "16M"),
            ("inclusion", "on"),
            ("inclusion", "off"),
        ] {
            let change = TuningChange::parse(name, value).unwrap().unwrap();
            assert_eq!((change.name(), change.to_string()), (name, value.to_owned()));
        }
        let stage = TuningChange::parse("stage", "64M").unwrap();
        assert_eq!(stage, Ok(TuningChange::Stage(Some(64 << 20))));
        for (name, value) in [
            ("wear_gb_per_day", "0"),
            ("wear_gb_per_day", "-1"),
            ("wear_gb_per_day", "NaN"),
            ("quiet", "yes"),
            ("stage", "64T"),
            ("stage", "99999999999G"),
            ("write_behind", "0"),
            ("write_behind", "2G"),
            ("inclusion", "true"),
        ] {
            assert!(TuningChange::parse(name, value).unwrap().is_err(), "{name}={value}");
        }
        assert_eq!(TuningChange::parse("colour", "blue"), None);
    }
}
