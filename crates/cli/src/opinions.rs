//! What a running volume thinks of its extents, as it travels from its server.

use engine::{Engine, Opinion};
use export::control::{ControlReply, ControlRequest};
use io::Place;
use serde::{Deserialize, Serialize};

use crate::atlas::{self, Range};
use crate::failure::Failure;
use crate::survey;

/// Extents in one answer: each is looked for among thousands of decisions.
const EXTENTS_PER_ANSWER: u64 = 512;

/// What is thought of one extent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OpinionReport {
    /// Its first byte in the volume.
    pub at: u64,
    /// `fast`, `slow`, `hole` or `lost`.
    pub home: String,
    /// Some of it is in the landing log.
    pub in_log: bool,
    /// How often it was read lately.
    pub reads_lately: f64,
    /// The slow drive's time for these (ms).
    pub saved_ms: f64,
    /// Seconds since it was asked for; `null`: not lately, or not since the server started.
    pub asked_s_ago: Option<u64>,
    /// `pinned`, `hot`, `cold` or `stream`; `null`: nobody wishes anything for it.
    #[serde(default)]
    pub wish: Option<String>,
    /// The last decision; `null`: none that is remembered.
    pub verdict: Option<String>,
    /// Seconds since then.
    pub verdict_s_ago: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Answer {
    extent_bytes: u64,
    extents: Vec<OpinionReport>,
    /// Where the next question begins, if the answer was too long.
    next: Option<u64>,
}

impl From<Opinion> for OpinionReport {
    fn from(opinion: Opinion) -> OpinionReport {
        let home = match opinion.home {
            Place::Fast => "fast",
            Place::Slow => "slow",
            Place::Log => "log",
            Place::Hole => "hole",
            Place::Lost => "lost",
        };
        OpinionReport {
            at: opinion.at,
            home: home.to_owned(),
            in_log: opinion.in_log,
            reads_lately: opinion.count,
            saved_ms: opinion.saved_ms,
            asked_s_ago: opinion.asked_s_ago,
            wish: opinion.wish.map(|wish| wish.name().to_owned()),
            verdict: opinion.verdict.map(|(words, _)| words.to_owned()),
            verdict_s_ago: opinion.verdict.map(|(_, ago)| ago),
        }
    }
}

/// A server's answer to `why`, which asks about one range.
pub fn answer(engine: &Engine, request: &ControlRequest) -> ControlReply {
    let ranges = match atlas::ranges_of(request) {
        Ok(ranges) => ranges,
        Err(refusal) => return refusal,
    };
    let [(at, length)] = ranges[..] else {
        return ControlReply::failed("bad_ranges", "ask about one range");
    };
    let extent_bytes = engine.status().geometry.extent_bytes;
    let most = EXTENTS_PER_ANSWER * extent_bytes;
    let extents = engine.opinions(at, length.min(most)).into_iter().map(Into::into).collect();
    let next = (length > most).then(|| at + most);
    match serde_json::to_value(Answer { extent_bytes, extents, next }) {
        Ok(value) => ControlReply::Done(value),
        Err(error) => ControlReply::failed("internal", error.to_string()),
    }
}

/// What the server at `socket` thinks of a range, and how large its extents are.
pub fn ask(
    socket: &std::path::Path,
    (mut at, length): Range,
) -> Result<(u64, Vec<OpinionReport>), Failure> {
    let end = at + length;
    let mut extents = Vec::new();
    loop {
        let ranges = serde_json::json!([[at, end - at]]);
        let value = survey::ask(socket, &ControlRequest::new("why").with("ranges", ranges))?;
        let answer: Answer = serde_json::from_value(value).map_err(|error| {
            Failure::failed(format!("the server gave an answer of another version: {error}"))
        })?;
        extents.extend(answer.extents);
        match answer.next {
            Some(next) => at = next,
            None => return Ok((answer.extent_bytes, extents)),
        }
    }
}
