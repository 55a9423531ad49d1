//! What a command prints: a value first, text rendered from that value.
//!
//! So the JSON and the text can never disagree. Every JSON document begins with
//! `output_version`; `major` changes when a script that reads it must change, `minor` when
//! something was added.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::failure::{Exit, Failure};

const MAJOR: u32 = 1;
const MINOR: u32 = 0;

/// Where results go: standard output, as JSON or as text.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// Print JSON.
    pub json: bool,
}

#[derive(Serialize)]
struct Version<'a> {
    command: &'a str,
    major: u32,
    minor: u32,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    output_version: Version<'a>,
    #[serde(flatten)]
    value: &'a T,
}

#[derive(Serialize)]
struct ErrorValue<'a> {
    error: ErrorFields<'a>,
}

#[derive(Serialize)]
struct ErrorFields<'a> {
    exit_code: u8,
    message: &'a str,
    hint: Option<&'a str>,
}

impl Output {
    /// Whether text may have colours: it goes to a terminal that can show them, and nobody has said no
    /// (<https://no-color.org>).
    pub fn takes_colours(&self) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        !self.json && std::io::stdout().is_terminal() && !is_set("NO_COLOR") && !is_dumb
    }

    /// Prints `value`: as one line of JSON under the versioned header, or as what `text` makes
    /// of it.
    pub fn show<T: Serialize>(
        &self,
        command: &str,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> Result<(), Failure> {
        let line = if self.json { document(command, value)? } else { text(value) };
        print(&line)
    }

    /// Says on standard error what went wrong and, for scripts, as JSON on standard output.
    pub fn complain(&self, command: &str, failure: &Failure) {
        // A closed standard error must not turn a failure into a panic.
        let _ = writeln!(std::io::stderr(), "bimetal: {failure}");
        if self.json {
            let value = ErrorValue {
                error: ErrorFields {
                    exit_code: failure.exit.number(),
                    message: &failure.message,
                    hint: failure.hint.as_deref(),
                },
            };
            let _ = document(command, &value).and_then(|line| print(&line));
        }
    }
}

/// A line of JSON with the versioned header.
fn document<T: Serialize>(command: &str, value: &T) -> Result<String, Failure> {
    let versioned =
        Versioned { output_version: Version { command, major: MAJOR, minor: MINOR }, value };
    serde_json::to_string(&versioned)
        .map_err(|error| Failure::failed(format!("cannot write the result as JSON: {error}")))
}

/// Writes to standard output and ends quietly when its reader has gone (`bimetal list | head`).
fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let newline = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    match write!(stdout, "{text}{newline}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            std::process::exit(i32::from(Exit::Done.number()))
        }
        Err(error) => Err(Failure::failed(format!("cannot write to standard output: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Fact {
        size_bytes: u64,
    }

    #[test]
    fn json_begins_with_its_version() {
        let line = document("list", &Fact { size_bytes: 7 }).unwrap();
        assert_eq!(
            line,
            r#"{"output_version":{"command":"list","major":1,"minor":0},"size_bytes":7}"#
        );
    }
}
