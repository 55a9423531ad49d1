//! What the engine refuses or reports, each with what, where, and what to do.

use std::fmt;

use io::{ErrorKind, IoError};

use crate::Tier;
use crate::loss::{LossCause, LossSummary};

/// A failed engine operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// A device operation failed.
    Device(IoError),
    /// The options or drives cannot make a volume; nothing was changed.
    Geometry(String),
    /// The drive carries no bimetal superblock.
    NotAMember {
        /// Path of the drive.
        path: String,
        /// What was found instead.
        found: String,
    },
    /// A superblock is there but damaged or of an unknown version.
    Superblock {
        /// Path of the drive.
        path: String,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Both drives are members, but do not belong together as given.
    Mismatch(String),
    /// A drive is the volume's, but not as the volume left it: truncated, or an earlier copy.
    Unfit {
        /// Which drive.
        tier: Tier,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// Metadata is damaged beyond what the copies can repair.
    Damaged(String),
    /// The volume stopped itself after a failed write or flush.
    Poisoned(Poison),
    /// The volume is not of the kind that this can be done with; nothing was changed.
    Unsuitable(String),
    /// The volume was opened read-only.
    ReadOnly,
    /// A drive is gone, and to go on without it was not asked for; nothing was changed.
    DriveGone {
        /// Which, where it should be, and why it cannot be used.
        problem: String,
        /// What could be read without it.
        loss: Box<LossSummary>,
    },
    /// The range cannot be read because a drive is gone, or because of damage.
    Lost {
        /// Which drive is gone.
        gone: Option<Tier>,
        /// Byte offset in the volume.
        at: u64,
        /// Why.
        cause: LossCause,
    },
    /// Outside the volume, or not in 512-byte units.
    Range(String),
    /// A block in the landing log did not match its checksum.
    Checksum {
        /// Which drive it was read from.
        tier: Tier,
        /// Byte offset in the volume.
        at: u64,
    },
}

/// Why a volume stopped itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Poison {
    /// In words.
    pub cause: String,
    /// Kind of the failure behind it.
    pub kind: ErrorKind,
}

impl Poison {
    /// What failed, and how.
    pub(crate) fn by(deed: &str, error: impl Into<IoError>) -> Poison {
        let error: IoError = error.into();
        Poison { cause: format!("{deed}: {error}"), kind: error.kind }
    }
}

impl From<String> for Poison {
    fn from(cause: String) -> Poison {
        Poison { cause, kind: ErrorKind::Io }
    }
}

impl fmt::Display for Poison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Device(error) => write!(f, "{error}"),
            Error::Geometry(text)
            | Error::Mismatch(text)
            | Error::Damaged(text)
            | Error::Unsuitable(text) => f.write_str(text),
            Error::Unfit { problem, .. } => f.write_str(problem),
            Error::NotAMember { path, found } => {
                write!(f, "{path} is not part of a bimetal volume: {found}")
            }
            Error::Superblock { path, problem } => write!(f, "superblock of {path}: {problem}"),
            Error::Poisoned(cause) => write!(
                f,
                "the volume has stopped taking writes: {cause}. Everything flushed before is \
                 safe; mend the cause, then serve the volume again"
            ),
            Error::DriveGone { problem, loss } => {
                write!(f, "{problem}. Nothing was changed. Without it {loss}")
            }
            Error::Lost { gone, at, cause } => {
                let text = match cause {
                    LossCause::LivedThere => "its data lived on",
                    LossCause::MaybeNewer => "its newest data may have been on",
                    LossCause::MaybeWritten => "it may have been written on",
                    LossCause::Damaged => "its data is damaged on",
                };
                write!(f, "volume offset {at} is lost: {text} ")?;
                match gone {
                    Some(tier) => write!(f, "the {tier} drive, which is gone"),
                    None => f.write_str("what is damaged"),
                }
            }
            Error::ReadOnly => f.write_str("the volume is read-only"),
            Error::Range(text) => f.write_str(text),
            Error::Checksum { tier, at } => write!(
                f,
                "checksum mismatch in the landing log on the {tier} drive, for volume offset {at}"
            ),
        }
    }
}

impl std::error::Error for Error {}

impl From<IoError> for Error {
    fn from(error: IoError) -> Error {
        Error::Device(error)
    }
}

impl From<Error> for IoError {
    fn from(error: Error) -> IoError {
        let kind = match &error {
            Error::Device(error) => return error.clone(),
            // Whoever asks may then wait for space instead of giving up.
            Error::Poisoned(poison) if poison.kind == ErrorKind::NoSpace => ErrorKind::NoSpace,
            Error::Poisoned(_) | Error::ReadOnly => ErrorKind::ReadOnly,
            Error::Range(_) => ErrorKind::Range,
            _ => ErrorKind::Io,
        };
        IoError::new(kind, error.to_string())
    }
}
