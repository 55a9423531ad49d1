//! The control door: a running server answers questions and takes orders.
//!
//! One line of JSON is a request, one line of JSON its reply, over a unix socket that only its
//! owner may open:
//!
//! ```text
//! {"command":"status","volume":"tank"}
//! {"ok":true,"value":{"state":"healthy"}}
//! {"ok":false,"error":{"code":"unknown_command","message":"…","hint":"…"}}
//! ```
//!
//! * [`ControlServer`] serves on the executor; what commands mean is its handler's business.
//! * [`call`] asks from another process, blocking, with a deadline.
//! * [`bind`] makes the socket file, and says who is in the way when it cannot.
//!
//! Several requests may follow one another on a connection; replies come in the same order.

mod client;
mod server;
mod socket_file;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use client::{CallError, call};
pub use server::ControlServer;
pub use socket_file::bind;
pub(crate) use socket_file::bind_as;

/// Longest request line in bytes, its end included. Commands carry names and numbers, not data.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// What is asked: a command, and whatever belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlRequest {
    /// The name of the command.
    pub command: String,
    /// Everything else in the line.
    #[serde(flatten)]
    pub arguments: Map<String, Value>,
}

impl ControlRequest {
    /// A request without arguments.
    pub fn new(command: impl Into<String>) -> ControlRequest {
        ControlRequest { command: command.into(), arguments: Map::new() }
    }

    /// The same request with one argument more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<Value>) -> ControlRequest {
        self.arguments.insert(name.into(), value.into());
        self
    }
}

/// The answer: a value, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "ReplyLine", into = "ReplyLine")]
pub enum ControlReply {
    /// It was done; the value may be `null`.
    Done(Value),
    /// It was not.
    Failed(Refusal),
}

/// Why a command was not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// A stable word for programs, such as `unknown_command`.
    pub code: String,
    /// A sentence for people: what happened and where.
    pub message: String,
    /// What to do about it, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl ControlReply {
    /// A refusal without a hint.
    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> ControlReply {
        ControlReply::Failed(Refusal { code: code.into(), message: message.into(), hint: None })
    }
}

/// A reply as it stands in its line.
#[derive(Serialize, Deserialize)]
struct ReplyLine {
    ok: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Refusal>,
}

impl From<ReplyLine> for ControlReply {
    fn from(line: ReplyLine) -> ControlReply {
        match line {
            ReplyLine { ok: true, value, .. } => ControlReply::Done(value.unwrap_or(Value::Null)),
            ReplyLine { error: Some(refusal), .. } => ControlReply::Failed(refusal),
            ReplyLine { .. } => ControlReply::failed("unexplained", "refused without a reason"),
        }
    }
}

impl From<ControlReply> for ReplyLine {
    fn from(reply: ControlReply) -> ReplyLine {
        match reply {
            ControlReply::Done(value) => ReplyLine { ok: true, value: Some(value), error: None },
            ControlReply::Failed(refusal) => {
                ReplyLine { ok: false, value: None, error: Some(refusal) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_look_as_documented() {
        let request = ControlRequest::new("status").with("volume", "tank");
        let line = serde_json::to_string(&request).unwrap();
        assert_eq!(line, r#"{"command":"status","volume":"tank"}"#);
        assert_eq!(serde_json::from_str::<ControlRequest>(&line).unwrap(), request);

        let done = ControlReply::Done(json!({"state": "healthy"}));
        let line = serde_json::to_string(&done).unwrap();
        assert_eq!(line, r#"{"ok":true,"value":{"state":"healthy"}}"#);
        assert_eq!(serde_json::from_str::<ControlReply>(&line).unwrap(), done);

        let failed = ControlReply::failed("busy", "a check is running");
        let line = serde_json::to_string(&failed).unwrap();
        assert_eq!(line, r#"{"ok":false,"error":{"code":"busy","message":"a check is running"}}"#);
        assert_eq!(serde_json::from_str::<ControlReply>(&line).unwrap(), failed);
    }
}
