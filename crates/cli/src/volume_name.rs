//! Names of volumes: they become file names, socket names and NBD export names.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A checked name: letters, digits, `.`, `_` and `-`, as the superblocks take it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VolumeName(String);

impl VolumeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for VolumeName {
    type Err = String;

    fn from_str(text: &str) -> Result<VolumeName, String> {
        match engine::name_problem(text) {
            None => Ok(VolumeName(text.to_owned())),
            Some(problem) => Err(problem),
        }
    }
}

impl TryFrom<String> for VolumeName {
    type Error = String;

    fn try_from(text: String) -> Result<VolumeName, String> {
        text.parse()
    }
}

impl From<VolumeName> for String {
    fn from(name: VolumeName) -> String {
        name.0
    }
}

impl fmt::Display for VolumeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_as_file_names() {
        for good in ["vol0", "a", "0", "my.disk_2-b"] {
            assert_eq!(good.parse::<VolumeName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(64);
        for bad in ["", ".", "..", "-rf", "a/b", "a b", "ä", "a\0b", "a\n", &long] {
            assert!(bad.parse::<VolumeName>().is_err(), "{bad:?}");
        }
    }
}
