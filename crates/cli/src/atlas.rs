//! Where the data of a volume is and how hot it is, asked of its server, or of its drives when nobody serves it.

use std::ops::AddAssign;

use engine::{Engine, OpenOptions};
use export::control::{ControlReply, ControlRequest, Refusal};
use io::units::GIB;
use io::{Io, Volume};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use uring::{Access, Kernel, KernelOptions};

use crate::failure::Failure;
use crate::part_heat::PartHeat;
use crate::selection::Selection;
use crate::server::{ServerLock, ServerRecord};
use crate::settings::Settings;
use crate::survey;
use crate::tally::Tally;

/// What one question may be about: its answer takes a server some tens of milliseconds.
const BYTES_PER_QUESTION: u64 = 64 * GIB;
/// Ranges in one question; a request to the control socket has at most 64 KiB.
const RANGES_PER_QUESTION: usize = 1024;

/// Ranges that are asked about: first byte, bytes.
pub type Range = (u64, u64);

/// The answer to `where`: one tally for each range, and how large the volume is.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    size_bytes: u64,
    tallies: Vec<Tally>,
}

/// The answer to `heat`, for each range.
#[derive(Debug, Serialize, Deserialize)]
struct HeatAnswer {
    heats: Vec<PartHeat>,
}

/// Somebody who can tell.
pub enum Atlas {
    /// The server.
    Server(std::path::PathBuf),
    /// The volume itself, opened for this.
    Opened(Box<Opened>),
}

/// A volume that nobody serves.
pub struct Opened {
    io: Io,
    engine: Engine,
    _lock: ServerLock,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.io.drop_tasks();
    }
}

impl Atlas {
    /// Of that volume; whatever is gone or damaged is told as lost.
    pub fn open(settings: &Settings, selection: &Selection) -> Result<Atlas, Failure> {
        if ServerRecord::serving(settings, selection)?.is_some_and(|server| server.ready) {
            return Ok(Atlas::Server(settings.control_socket(&selection.name)));
        }
        let lock = ServerLock::take(settings, &selection.name)?;
        let (io, kernel) = Kernel::start(KernelOptions::default())?;
        let members = selection.open(&kernel, Access::ReadOnly)?;
        let options =
            OpenOptions { read_only: true, degraded: true, rescue: true, ..OpenOptions::default() };
        let opened = io.block_on(Engine::open_members(&io, members, options));
        let engine = opened.map_err(Failure::failed)?;
        Ok(Atlas::Opened(Box::new(Opened { io, engine, _lock: lock })))
    }

    /// Size of the volume.
    pub fn size_bytes(&self) -> Result<u64, Failure> {
        Ok(self.ask(&[(0, 0)])?.size_bytes)
    }

    /// One tally for each range.
    pub fn tallies(&self, ranges: &[Range]) -> Result<Vec<Tally>, Failure> {
        in_questions(ranges, |asked| Ok(self.ask(asked)?.tallies))
    }

    /// How hot each range is. Of a volume at rest: as it was written down when it was closed, or within the
    /// hour before its server was killed.
    pub fn heats(&self, ranges: &[Range]) -> Result<Vec<PartHeat>, Failure> {
        in_questions(ranges, |asked| match self {
            Atlas::Opened(opened) => Ok(tell_heat(&opened.engine, asked).heats),
            Atlas::Server(socket) => Ok(question::<HeatAnswer>(socket, "heat", asked)?.heats),
        })
    }

    fn ask(&self, ranges: &[Range]) -> Result<Answer, Failure> {
        match self {
            Atlas::Opened(opened) => Ok(tell(&opened.engine, ranges)),
            Atlas::Server(socket) => question(socket, "where", ranges),
        }
    }
}

/// Asks about ranges in questions that a server answers in a moment, and adds up what it says of each.
fn in_questions<T: Clone + Default + AddAssign>(
    ranges: &[Range],
    ask: impl Fn(&[Range]) -> Result<Vec<T>, Failure>,
) -> Result<Vec<T>, Failure> {
    let mut sums = vec![T::default(); ranges.len()];
    // Pieces that are small enough, and whose they are.
    let mut pieces: Vec<(usize, Range)> = Vec::new();
    for (index, (at, length)) in ranges.iter().enumerate() {
        let mut done = 0;
        while done < *length {
            let bytes = (length - done).min(BYTES_PER_QUESTION);
            pieces.push((index, (at + done, bytes)));
            done += bytes;
        }
    }
    let mut rest = &pieces[..];
    while !rest.is_empty() {
        let mut bytes = 0;
        let count = rest
            .iter()
            .take(RANGES_PER_QUESTION)
            .take_while(|(_, (_, length))| {
                bytes += length;
                bytes <= BYTES_PER_QUESTION
            })
            .count();
        let (now, later) = rest.split_at(count);
        let asked: Vec<Range> = now.iter().map(|(_, range)| *range).collect();
        for ((index, _), part) in now.iter().zip(ask(&asked)?) {
            sums[*index] += part;
        }
        rest = later;
    }
    Ok(sums)
}

fn question<T: DeserializeOwned>(
    socket: &std::path::Path,
    command: &str,
    ranges: &[Range],
) -> Result<T, Failure> {
    let ranges = serde_json::to_value(ranges).map_err(Failure::failed)?;
    let request = ControlRequest::new(command).with("ranges", ranges);
    serde_json::from_value(survey::ask(socket, &request)?).map_err(|error| {
        Failure::failed(format!("the server gave an answer of another version: {error}"))
    })
}

/// In order, with what overlaps or follows at once made one: files are often laid side by side, and some
/// share what they have.
pub fn joined(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable();
    let mut joined: Vec<Range> = Vec::new();
    for (at, length) in ranges {
        match joined.last_mut() {
            Some((first, so_far)) if at <= *first + *so_far => {
                *so_far = (*so_far).max(at + length - *first);
            }
            _ => joined.push((at, length)),
        }
    }
    joined
}

/// A server's answer to `where`.
pub fn answer(engine: &Engine, request: &ControlRequest) -> ControlReply {
    reply(request, |ranges| tell(engine, ranges))
}

/// A server's answer to `heat`.
pub fn answer_heat(engine: &Engine, request: &ControlRequest) -> ControlReply {
    reply(request, |ranges| tell_heat(engine, ranges))
}

fn reply<T: Serialize>(request: &ControlRequest, tell: impl FnOnce(&[Range]) -> T) -> ControlReply {
    let ranges = match ranges_of(request) {
        Ok(ranges) => ranges,
        Err(refusal) => return refusal,
    };
    match serde_json::to_value(tell(&ranges)) {
        Ok(value) => ControlReply::Done(value),
        Err(error) => ControlReply::failed("internal", error.to_string()),
    }
}

fn tell(engine: &Engine, ranges: &[Range]) -> Answer {
    let tallies = ranges.iter().map(|(at, length)| Tally::of(engine, *at, *length)).collect();
    Answer { size_bytes: engine.info().size_bytes, tallies }
}

fn tell_heat(engine: &Engine, ranges: &[Range]) -> HeatAnswer {
    let extent_bytes = engine.status().geometry.extent_bytes;
    let heat = |(at, length): &Range| PartHeat::of(engine, *at, *length, extent_bytes);
    HeatAnswer { heats: ranges.iter().map(heat).collect() }
}

/// A server's answer to `warm`: the ranges are to come to the fast drive.
pub async fn warm(engine: &Engine, request: &ControlRequest) -> ControlReply {
    let ranges = match ranges_of(request) {
        Ok(ranges) => ranges,
        Err(refusal) => return refusal,
    };
    let facts = engine.info();
    // Asking would be taken, and nothing would ever come.
    if engine.status().alone {
        let text = "the fast drive is gone: there is nothing to bring data to";
        let hint = "'bimetal attach-cache NAME --fast DEV' gives the cache a new one";
        return refused(text, hint);
    }
    if facts.read_only {
        return refused(
            "the volume is served read-only: nothing of it moves",
            "serve it for writing",
        );
    }
    let size_bytes = facts.size_bytes;
    for (at, length) in ranges {
        let length = length.min(size_bytes.saturating_sub(at));
        if length > 0
            && let Err(error) = engine.cache(at, length).await
        {
            return ControlReply::failed("failed", error.to_string());
        }
    }
    ControlReply::Done(serde_json::Value::Null)
}

fn refused(message: &str, hint: &str) -> ControlReply {
    ControlReply::Failed(Refusal {
        code: "failed".to_owned(),
        message: message.to_owned(),
        hint: Some(hint.to_owned()),
    })
}

/// The ranges that a request names.
pub fn ranges_of(request: &ControlRequest) -> Result<Vec<Range>, ControlReply> {
    let ranges = request.arguments.get("ranges").cloned().unwrap_or_default();
    let ranges: Vec<Range> = serde_json::from_value(ranges)
        .map_err(|error| ControlReply::failed("bad_ranges", error.to_string()))?;
    let bytes = ranges.iter().fold(0u64, |sum, (_, length)| sum.saturating_add(*length));
    if bytes > BYTES_PER_QUESTION || ranges.len() > RANGES_PER_QUESTION {
        let limit = "ask for at most 64 GiB and 1024 ranges at once";
        return Err(ControlReply::failed("too_much", limit));
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_touch_become_one() {
        let ranges = vec![(30, 10), (0, 10), (5, 10), (40, 1), (100, 5)];
        assert_eq!(joined(ranges), [(0, 15), (30, 11), (100, 5)]);
    }

    #[test]
    fn large_ranges_are_asked_about_in_pieces_and_added_up() {
        let ranges = [(0, 3 * BYTES_PER_QUESTION / 2), (7, 1), (9, 0)];
        let asked = in_questions(&ranges, |asked| {
            assert!(asked.iter().map(|(_, length)| length).sum::<u64>() <= BYTES_PER_QUESTION);
            Ok(asked.iter().map(|(_, length)| *length).collect())
        });
        assert_eq!(asked.unwrap(), ranges.map(|(_, length)| length));
    }
}
