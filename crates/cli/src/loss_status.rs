//! What is lost of a volume, as `status` and `lost` show it.

use engine::{LossCause, LossSummary, Tier};
use io::units::human_bytes;
use serde::{Deserialize, Serialize};

/// How much cannot be read, in bytes, because a drive is gone or because of damage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LossStatus {
    /// Why the fast drive cannot be used; `None` when it is well.
    pub fast_gone: Option<String>,
    /// Why the slow drive cannot be used; `None` when it is well.
    pub slow_gone: Option<String>,
    /// What else is damaged beyond repair, a sentence each.
    #[serde(default)]
    pub damage: Vec<String>,
    /// Data that can be read.
    pub readable_bytes: u64,
    /// Data that lived on the drive that is gone.
    pub lost_bytes: u64,
    /// Data of which there is a version that may be too old: counts as lost.
    pub maybe_newer_bytes: u64,
    /// Space of which nothing is known, but that may have been written: reading it is an error.
    pub maybe_written_bytes: u64,
    /// Data whose newest version is damaged in the landing log.
    pub damaged_bytes: u64,
}

/// A range that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRange {
    /// Byte offset in the volume.
    pub at: u64,
    /// Bytes.
    pub length: u64,
    /// Why.
    pub cause: Cause,
}

/// Why a range cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It lived on the drive that is gone.
    Lost,
    /// What there is may be too old.
    MaybeNewer,
    /// Nothing is known, but something may have been written.
    MaybeWritten,
    /// It is damaged in the landing log.
    Damaged,
}

impl Cause {
    /// What it means.
    pub fn words(self) -> &'static str {
        match self {
            Cause::Lost => "lost: lived on the drive that is gone",
            Cause::MaybeNewer => "counts as lost: may have been newer in what is gone or damaged",
            Cause::MaybeWritten => "nothing is known of it: may have been written",

            Cause::Damaged => "damaged in the landing log",
        }
    }
}

/// A part of the list of lost ranges, as a server gives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostPart {
    /// How much is lost in all.
    pub loss: Option<LossStatus>,
    /// The volume goes on without its fast drive, and nothing is missing.
    #[serde(default)]
    pub alone: bool,
    /// Ranges, in order.
    pub ranges: Vec<LostRange>,
    /// Where the next part begins; `None`: this was the last.
    pub next: Option<u64>,
}

impl From<LossSummary> for LossStatus {
    fn from(summary: LossSummary) -> LossStatus {
        let [fast_gone, slow_gone] = summary.gone;
        LossStatus {
            fast_gone,
            slow_gone,
            damage: summary.damage,
            readable_bytes: summary.readable_bytes,
            lost_bytes: summary.lost_bytes,
            maybe_newer_bytes: summary.maybe_newer_bytes,
            maybe_written_bytes: summary.maybe_written_bytes,
            damaged_bytes: summary.damaged_bytes,
        }
    }
}

impl From<engine::LostRange> for LostRange {
    fn from(range: engine::LostRange) -> LostRange {
        let cause = match range.cause {
            LossCause::LivedThere => Cause::Lost,
            LossCause::MaybeNewer => Cause::MaybeNewer,
            LossCause::MaybeWritten => Cause::MaybeWritten,
            LossCause::Damaged => Cause::Damaged,
        };
        LostRange { at: range.at, length: range.length, cause }
    }
}

impl LossStatus {
    /// The drive that is gone, and why.
    pub fn gone(&self) -> Option<(Tier, &str)> {
        let fast = self.fast_gone.as_deref().map(|why| (Tier::Fast, why));
        fast.or(self.slow_gone.as_deref().map(|why| (Tier::Slow, why)))
    }

    /// What is lost, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("{} of data can be read", human_bytes(self.readable_bytes))];
        for (bytes, cause) in [
            (self.lost_bytes, Cause::Lost),
            (self.maybe_newer_bytes, Cause::MaybeNewer),
            (self.maybe_written_bytes, Cause::MaybeWritten),
            (self.damaged_bytes, Cause::Damaged),
        ] {
            if bytes > 0 {
                lines.push(format!("{} {}", human_bytes(bytes), cause.words()));
            }
        }
        lines
    }
}
