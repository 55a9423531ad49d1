//! How many bytes of a part of a volume are in which place.

use std::ops::AddAssign;

use engine::Engine;
use io::units::human_bytes;
use io::{Place, Volume};
use serde::{Deserialize, Serialize};

/// Bytes by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// In slots of the fast drive.
    pub fast_bytes: u64,
    /// In slots of the slow drive.
    pub slow_bytes: u64,
    /// In the landing log.
    pub log_bytes: u64,
    /// Nowhere: they read as zeros.
    pub hole_bytes: u64,
    /// Lost, or not certain.
    pub lost_bytes: u64,
}

impl Tally {
    /// Of a range of a volume.
    pub fn of(engine: &Engine, at: u64, length: u64) -> Tally {
        let mut tally = Tally::default();
        for span in engine.places(at, length, usize::MAX) {
            *tally.of_place(span.place) += span.length;
        }
        tally
    }

    fn of_place(&mut self, place: Place) -> &mut u64 {
        match place {
            Place::Fast => &mut self.fast_bytes,
            Place::Slow => &mut self.slow_bytes,
            Place::Log => &mut self.log_bytes,
            Place::Hole => &mut self.hole_bytes,
            Place::Lost => &mut self.lost_bytes,
        }
    }

    /// Those that are data.
    pub fn data_bytes(&self) -> u64 {
        self.fast_bytes + self.slow_bytes + self.log_bytes + self.lost_bytes
    }

    /// In words, with shares of what is data.
    pub fn words(&self) -> String {
        let data = self.data_bytes();
        let parts = [
            ("fast", self.fast_bytes),
            ("landing log", self.log_bytes),
            ("slow", self.slow_bytes),
            ("lost", self.lost_bytes),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(_, bytes)| *bytes > 0)
            .map(|(name, bytes)| {
                let percent = *bytes as f64 * 100.0 / data as f64;
                format!("{name} {} ({percent:.1} %)", human_bytes(*bytes))
            })
            .collect();
        if parts.is_empty() { "no data".to_owned() } else { parts.join(", ") }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.fast_bytes += other.fast_bytes;
        self.slow_bytes += other.slow_bytes;
        self.log_bytes += other.log_bytes;
        self.hole_bytes += other.hole_bytes;
        self.lost_bytes += other.lost_bytes;
    }
}
