//! What of a file has no place on a volume that can be told, and why.

use std::ops::AddAssign;
use std::path::Path;

use io::units::human_bytes;
use serde::Serialize;

/// Bytes by the reason, as the file system rounds them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Unplaced {
    /// The file system has given them no place yet.
    pub pending_bytes: u64,
    /// They lie among the file system's own data.
    pub inline_bytes: u64,
    /// They are compressed. Where their extent begins could be told, but not how much of the drive it takes,
    /// so that every answer would be about data of others too.
    pub compressed_bytes: u64,
}

impl Unplaced {
    /// All of them.
    pub fn bytes(&self) -> u64 {
        self.pending_bytes + self.inline_bytes + self.compressed_bytes
    }

    /// How much there is of which, as part of a sentence; empty when there is nothing.
    pub fn words(&self) -> String {
        let parts = [
            (self.pending_bytes, "has no place yet"),
            (self.inline_bytes, "lies among the file system's own data"),
            (self.compressed_bytes, "is compressed, and its place is not told"),
        ];
        let told = parts.iter().filter(|(bytes, _)| *bytes > 0);
        told.map(|(bytes, why)| format!("{} {why}", human_bytes(*bytes)))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// What can be done about it, by whoever wants the data at `path` on the fast drive.
    pub fn hint(&self, path: &Path) -> Option<String> {
        let path = path.display();
        if self.pending_bytes > 0 {
            return Some(format!("'sync -f {path}' gives new data its place"));
        }
        (self.compressed_bytes > 0).then(|| {
            format!("reading {path} counts as use, and brings up what is read again and again")
        })
    }
}

impl AddAssign for Unplaced {
    fn add_assign(&mut self, other: Unplaced) {
        self.pending_bytes += other.pending_bytes;
        self.inline_bytes += other.inline_bytes;
        self.compressed_bytes += other.compressed_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_and_what_can_be_done() {
        let path = Path::new("film");
        let mut unplaced = Unplaced::default();
        assert_eq!((unplaced.words(), unplaced.hint(path)), (String::new(), None));
        unplaced += Unplaced { compressed_bytes: 2 << 20, ..Unplaced::default() };
        assert_eq!(unplaced.words(), "2M is compressed, and its place is not told");
        assert!(unplaced.hint(path).unwrap().contains("reading film"));
        unplaced += Unplaced { pending_bytes: 4096, inline_bytes: 1, ..Unplaced::default() };
        assert_eq!(unplaced.bytes(), (2 << 20) + 4097);
        assert!(unplaced.words().starts_with("4K has no place yet, 1 lies among"), "{unplaced:?}");
        assert!(unplaced.hint(path).unwrap().contains("sync -f film"));
    }
}
