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
}

impl CacheMode {
    /// The word used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            CacheMode::WriteBack => "writeback",
            CacheMode::WriteThrough => "writethrough",
        }
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
            _ => Err(format!("unknown mode '{text}'; give 'writethrough' or 'writeback'")),
        }
    }
}
