//! How many bytes of a part of a volume are in which place.

use std::ops::AddAssign;

use engine::Engine;
use io::units::human_bytes;
use io::{Place, Span, Volume, Worth};
use serde::{Deserialize, Serialize};

/// Bytes by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Tally {
    /// In slots of the fast drive.
    pub fast_bytes: u64,
    /// Of these: the slow drive has the same, as a cache's clean copies.
    #[serde(default)]
    pub both_bytes: u64,
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
        let spans = engine.places(at, length, usize::MAX);
        for span in &spans {
            *tally.of_place(span.place) += span.length;
        }
        if tally.fast_bytes > 0 {
            tally.both_bytes = on_both(&spans, &engine.worths(at, length, usize::MAX));
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
                let both = match (*name, self.both_bytes) {
                    ("fast", both @ 1..) => {
                        format!("; {} of it on the slow drive too", human_bytes(both))
                    }
                    _ => String::new(),
                };
                format!("{name} {} ({percent:.1} %{both})", human_bytes(*bytes))
            })
            .collect();
        if parts.is_empty() { "no data".to_owned() } else { parts.join(", ") }
    }
}

/// Bytes that are in slots of the fast drive and not dirty there. Both lists are about the same range.
fn on_both(spans: &[Span], worths: &[Worth]) -> u64 {
    let (mut both, mut span_end, mut at, mut worth_at) = (0, 0, 0, 0);
    let mut worths = worths.iter().peekable();
    for span in spans {
        span_end += span.length;
        while at < span_end {
            let Some(worth) = worths.peek() else { return both };
            let worth_end = worth_at + worth.length;
            let end = span_end.min(worth_end);
            if span.place == Place::Fast && !worth.dirty {
                both += end - at;
            }
            at = end;
            if at == worth_end {
                worth_at = worth_end;
                worths.next();
            }
        }
    }
    both
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.fast_bytes += other.fast_bytes;
        self.both_bytes += other.both_bytes;
        self.slow_bytes += other.slow_bytes;
        self.log_bytes += other.log_bytes;
        self.hole_bytes += other.hole_bytes;
        self.lost_bytes += other.lost_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_clean_on_the_fast_drive_is_on_both() {
        let span = |length, place| Span { length, place };
        let worth = |length, dirty| Worth { length, dirty, heat: 0 };
        let spans = [span(10, Place::Fast), span(5, Place::Slow), span(10, Place::Fast)];
        // Dirty up to 4, clean up to 18, dirty to the end.
        let worths = [worth(4, true), worth(14, false), worth(7, true)];
        assert_eq!(on_both(&spans, &worths), 6 + 3);
        let tally = Tally { fast_bytes: 20, both_bytes: 9, slow_bytes: 5, ..Tally::default() };
        assert_eq!(
            tally.words(),
            "fast 20 (80.0 %; 9 of it on the slow drive too), slow 5 (20.0 %)"
        );
    }
}
