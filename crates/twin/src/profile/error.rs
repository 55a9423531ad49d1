//! Why a profile cannot be had.

use std::fmt;

/// See the head of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProfileError {
    /// No profile of that name is part of the program.
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        names: Vec<String>,
    },
    /// A choice behind the name that none knows.
    Choice(String),
    /// The file cannot be read: its name, and why.
    Unreadable(String, String),
    /// The file is not what it should be: its name, and what the reader says.
    Syntax(String, String),
    /// The file is of another version.
    Schema {
        /// Its name.
        origin: String,
        /// Its version.
        found: u32,
    },
    /// A number is missing, unknown or impossible: the file's name, and what is wrong.
    Number(String, String),
}

impl fmt::Display for ProfileError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::Unknown { name, names } => {
                write!(formatter, "no twin is called \"{name}\"; there are {}", names.join(", "))
            }
            ProfileError::Choice(word) => write!(
                formatter,
                "\"{word}\" is no condition of a twin: cache=on, cache=off, fresh, used, scale=1/N"
            ),
            ProfileError::Unreadable(origin, problem) => {
                write!(formatter, "cannot read {origin}: {problem}")
            }
            ProfileError::Syntax(origin, problem) => write!(formatter, "{origin}: {problem}"),
            ProfileError::Schema { origin, found } => {
                write!(formatter, "{origin}: schema {found}; this program reads schema 1")
            }
            ProfileError::Number(origin, problem) => write!(formatter, "{origin}: {problem}"),
        }
    }
}

impl std::error::Error for ProfileError {}
