//! Class cache: when a write is on the slow drive, where every extent has its home.

use std::fmt;
use std::str::FromStr;

/// What a flush promises of the slow drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CacheMode {
    /// A flush ends when the fast drive has everything; the slow one gets it later. Losing the
    /// fast drive loses what was not at home yet.
    WriteBack,
    /// A flush ends when both drives have everything. Losing the fast drive loses nothing, and the
    /// volume goes on without it. The default, as it is of other caches: who wants to depend on
    /// the fast drive says so.
    #[default]
    WriteThrough,
    /// As write-through, but what is written does not stay on the fast drive: a write takes the copy
    /// of its extent away instead of changing it. The fast drive holds what was read.
    WriteAround,
}

impl CacheMode {
    /// The word used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CacheMode::WriteBack => "writeback",
            CacheMode::WriteThrough => "writethrough",
            CacheMode::WriteAround => "writearound",
        }
    }

    /// Whether a flush brings home what it covers: then the slow drive has everything, and the volume
    /// goes on without the fast one.
    pub fn brings_home(self) -> bool {
        self != CacheMode::WriteBack
    }

    /// Its number in a superblock.
    pub(crate) fn number(self) -> u32 {
        match self {
            CacheMode::WriteBack => 0,
            CacheMode::WriteThrough => 1,
            CacheMode::WriteAround => 2,
        }
    }

    pub(crate) fn numbered(number: u32) -> Option<CacheMode> {
        let all = [CacheMode::WriteBack, CacheMode::WriteThrough, CacheMode::WriteAround];
        all.into_iter().find(|mode| mode.number() == number)
    }
}

impl fmt::Display for CacheMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for CacheMode {
    type Err = String;

    fn from_str(text: &str) -> Result<CacheMode, String> {
        match text {
            "writeback" => Ok(CacheMode::WriteBack),
            "writethrough" => Ok(CacheMode::WriteThrough),
            "writearound" => Ok(CacheMode::WriteAround),
            _ => Err(format!(
                "unknown mode '{text}'; give 'writethrough', 'writearound' or 'writeback'"
            )),
        }
    }
}
