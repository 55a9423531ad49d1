//! Where the data of a volume is, asked of its server, or of its drives when nobody serves it.

use engine::{Engine, OpenOptions};
use export::control::{ControlReply, ControlRequest};
use io::units::GIB;
use io::{Io, Volume};
use serde::{Deserialize, Serialize};
use uring::{Access, Kernel, KernelOptions};

use crate::failure::Failure;
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

/// The answer: one tally for each range, and how large the volume is.
#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    size_bytes: u64,
    tallies: Vec<Tally>,
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
        let mut tallies = vec![Tally::default(); ranges.len()];
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
            let answer = self.ask(&asked)?;
            for ((index, _), tally) in now.iter().zip(answer.tallies) {
                tallies[*index] += tally;
            }
            rest = later;
        }
        Ok(tallies)
    }

    fn ask(&self, ranges: &[Range]) -> Result<Answer, Failure> {
        match self {
            Atlas::Opened(opened) => Ok(tell(&opened.engine, ranges)),
            Atlas::Server(socket) => {
                let ranges = serde_json::to_value(ranges).map_err(Failure::failed)?;
                let request = ControlRequest::new("where").with("ranges", ranges);
                serde_json::from_value(survey::ask(socket, &request)?).map_err(|error| {
                    Failure::failed(format!(
                        "the server gave an answer of another version: {error}"
                    ))
                })
            }
        }
    }
}

/// A server's answer to `where`.
pub fn answer(engine: &Engine, request: &ControlRequest) -> ControlReply {
    let ranges = match ranges_of(request) {
        Ok(ranges) => ranges,
        Err(refusal) => return refusal,
    };
    match serde_json::to_value(tell(engine, &ranges)) {
        Ok(value) => ControlReply::Done(value),
        Err(error) => ControlReply::failed("internal", error.to_string()),
    }
}

fn tell(engine: &Engine, ranges: &[Range]) -> Answer {
    let tallies = ranges.iter().map(|(at, length)| Tally::of(engine, *at, *length)).collect();
    Answer { size_bytes: engine.info().size_bytes, tallies }
}

/// A server's answer to `warm`: the ranges are to come to the fast drive.
pub async fn warm(engine: &Engine, request: &ControlRequest) -> ControlReply {
    let ranges = match ranges_of(request) {
        Ok(ranges) => ranges,
        Err(refusal) => return refusal,
    };
    let size_bytes = engine.info().size_bytes;
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
