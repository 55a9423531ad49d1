//! How a command ends: its exit code, and what it says when it did not do what was asked.
//!
//! Exit codes are part of the interface: 0 ok, 1 failed, 2 usage, 3 degraded, 4 refused for
//! safety. A refusal always names what would override it.

use std::fmt;
use std::process::ExitCode;

use serde::Serialize;

/// The exit codes scripts rely on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Done.
    Done,
    /// Not done: the world said no.
    Failed,
    /// The command line made no sense.
    Usage,
    /// Done or shown, and the volume is not healthy.
    Degraded,
    /// Not done, because it might destroy something; the message says what overrides.
    Refused,
    /// What a command given to `serve --run` ended with.
    #[serde(untagged)]
    Other(u8),
}

impl Exit {
    /// The number the process ends with.
    pub fn number(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::Degraded => 3,
            Exit::Refused => 4,
            Exit::Other(number) => number,
        }
    }

    /// The exit code with this number.
    pub fn from_number(number: u8) -> Exit {
        match number {
            0 => Exit::Done,
            1 => Exit::Failed,
            2 => Exit::Usage,
            3 => Exit::Degraded,
            4 => Exit::Refused,
            other => Exit::Other(other),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}

/// Why a command did not do what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What the process ends with.
    pub exit: Exit,
    /// What happened and where, without a full stop at the end.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Failure {
    /// Something outside said no.
    pub fn failed(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Failed, message: message.to_string(), hint: None }
    }

    /// The command line made no sense.
    pub fn usage(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Usage, message: message.to_string(), hint: None }
    }

    /// It might destroy something.
    pub fn refused(message: impl fmt::Display) -> Failure {
        Failure { exit: Exit::Refused, message: message.to_string(), hint: None }
    }

    /// The same failure with advice.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Failure {
        self.hint = Some(hint.to_string());
        self
    }

    /// The same failure with more said about where it happened.
    #[must_use]
    pub fn within(mut self, context: impl fmt::Display) -> Failure {
        self.message = format!("{context}: {}", self.message);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

impl From<io::IoError> for Failure {
    fn from(error: io::IoError) -> Failure {
        let failure = Failure::failed(&error);
        // Somebody else has it: a refusal that waiting or ending the other overrides.
        let cause = std::io::Error::from_raw_os_error(error.errno).kind();
        let busy = cause == std::io::ErrorKind::ResourceBusy;
        Failure { exit: if busy { Exit::Refused } else { failure.exit }, ..failure }
    }
}

impl From<engine::Error> for Failure {
    fn from(error: engine::Error) -> Failure {
        match error {
            engine::Error::Device(error) => error.into(),
            // Going on could destroy something; the message says which drives would do.
            engine::Error::Mismatch(_) | engine::Error::Unfit { .. } => Failure::refused(error),
            error => Failure::failed(error),
        }
    }
}

/// What every command returns.
pub type Outcome = Result<Exit, Failure>;

/// Turns an operating system error into a failure that says what was tried on which path.
pub trait OnPath<T> {
    /// `deed` completes the sentence "cannot … PATH".
    fn on_path(self, deed: &str, path: &std::path::Path) -> Result<T, Failure>;
}

impl<T, E: Into<std::io::Error>> OnPath<T> for Result<T, E> {
    fn on_path(self, deed: &str, path: &std::path::Path) -> Result<T, Failure> {
        self.map_err(|error| {
            let error: std::io::Error = error.into();
            Failure::failed(format!("cannot {deed} {}: {error}", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_keep_their_numbers() {
        for number in 0..=255 {
            assert_eq!(Exit::from_number(number).number(), number);
        }
        assert_eq!(Exit::Refused.number(), 4);
        assert_eq!(Exit::Degraded.number(), 3);
    }
}
