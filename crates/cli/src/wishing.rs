//! Saying what is wished for ranges of a volume, while it is served or at rest, and listing it.

use std::str::FromStr;

use engine::{Engine, OpenOptions, Wish, Wishes};
use export::control::ControlRequest;
use io::units::{human_bytes, parse_bytes};
use serde::{Deserialize, Serialize};
use uring::{Access, Kernel, KernelOptions};

use crate::failure::{Exit, Failure, Outcome};
use crate::selection;
use crate::server::{ServerLock, ServerRecord};
use crate::settings::Settings;
use crate::survey;
use crate::volume_name::VolumeName;

/// A part of a volume, written `OFFSET+LENGTH`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// Its first byte.
    pub at: u64,
    /// Its bytes.
    pub length: u64,
}

impl FromStr for ByteRange {
    type Err = String;

    fn from_str(text: &str) -> Result<ByteRange, String> {
        let (at, length) = text
            .split_once('+')
            .ok_or_else(|| format!("'{text}' is not a range such as 20G+512M"))?;
        let (at, length) = (parse_bytes(at)?, parse_bytes(length)?);
        if length == 0 || at.checked_add(length).is_none() {
            return Err(format!("'{text}' is no range: it must have a length and an end"));
        }
        Ok(ByteRange { at, length })
    }
}

/// What is wished for a range.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wished {
    /// First byte.
    pub at: u64,
    /// Bytes.
    pub length: u64,
    /// `pinned`, `hot`, `cold` or `stream`.
    pub wish: String,
}

/// What is wished for a volume's ranges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Report {
    name: String,
    ranges: Vec<Wished>,
}

/// A volume's wishes in bytes.
pub fn wished(wishes: &Wishes, extent_bytes: u64) -> Vec<Wished> {
    let in_bytes = |range: &engine::WishRange| Wished {
        at: range.first * extent_bytes,
        length: range.count * extent_bytes,
        wish: range.wish.name().to_owned(),
    };
    wishes.ranges().iter().map(in_bytes).collect()
}

/// Wishes something for a range, or takes it back, and shows all that is wished then.
pub fn wish(
    settings: &Settings,
    command: &str,
    name: &VolumeName,
    range: ByteRange,
    wish: Option<Wish>,
) -> Outcome {
    let ranges = ask(settings, name, Some((range, wish)))?;
    show(settings, command, name, ranges)
}

/// Shows all that is wished.
pub fn list(settings: &Settings, command: &str, name: &VolumeName) -> Outcome {
    let ranges = ask(settings, name, None)?;
    show(settings, command, name, ranges)
}

fn show(settings: &Settings, command: &str, name: &VolumeName, ranges: Vec<Wished>) -> Outcome {
    let report = Report { name: name.to_string(), ranges };
    settings.output.show(command, &report, |report| {
        let mut text = format!("volume '{}':", report.name);
        if report.ranges.is_empty() {
            text.push_str(" nothing is wished for any range");
        }
        for Wished { at, length, wish } in &report.ranges {
            text.push_str(&format!(
                "\n  {wish:<7} {} from {}",
                human_bytes(*length),
                human_bytes(*at)
            ));
        }
        text + "\n"
    })?;
    Ok(Exit::Done)
}

fn ask(
    settings: &Settings,
    name: &VolumeName,
    change: Option<(ByteRange, Option<Wish>)>,
) -> Result<Vec<Wished>, Failure> {
    let selection = selection::by_name(settings, name)?;
    if ServerRecord::alive(settings, &selection.name)?.is_some() {
        let mut request = ControlRequest::new("wish");
        if let Some((range, wish)) = change {
            request = request
                .with("at", range.at)
                .with("length", range.length)
                .with("wish", wish.map_or("none", Wish::name));
        }
        let value = survey::ask(&settings.control_socket(&selection.name), &request)?;
        return serde_json::from_value(value).map_err(|error| {
            Failure::failed(format!("the server gave an answer of another version: {error}"))
        });
    }
    selection.verify_identity()?;
    let _lock = ServerLock::take(settings, &selection.name)?;
    let (io, kernel) = Kernel::start(KernelOptions::default())?;
    let fast = kernel.open_device(&selection.fast, Access::ReadWrite)?;
    let slow = kernel.open_device(&selection.slow, Access::ReadWrite)?;
    let outcome = io.block_on(async {
        let engine = Engine::open(&io, &fast, &slow, OpenOptions::default()).await?;
        let changed = match change {
            Some((range, wish)) => engine.wish(range.at, range.length, wish).await,
            None => Ok(()),
        };
        let ranges = wished(&engine.wishes(), engine.status().geometry.extent_bytes);
        engine.close().await?;
        changed.map(|()| ranges)
    });
    io.drop_tasks();
    outcome.map_err(Failure::failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_with_units_and_nonsense_is_refused() {
        let range = |text: &str| text.parse::<ByteRange>();
        assert_eq!(range("20G+512M"), Ok(ByteRange { at: 20 << 30, length: 512 << 20 }));
        assert_eq!(range("0+131072"), Ok(ByteRange { at: 0, length: 131_072 }));
        for bad in ["", "20G", "20G+", "+5", "5+0", "18446744073709551615+1", "a+b"] {
            assert!(range(bad).is_err(), "{bad}");
        }
    }
}
