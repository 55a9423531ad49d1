//! Where bytes lie on the platters, and how far apart.
//!
//! The tracks are one spiral from the outside in, with the same density everywhere: the rate
//! falls with the radius, and the bytes up to a radius grow with its square. A place is told by
//! the turns of the spiral before it (its fraction is the angle) and by the stroke, which is 0
//! at the outer edge and 1 at the inner one. Changes of head are part of the rate.

/// The platters of one disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Geometry {
    size_bytes: f64,
    revolution_ns: f64,
    /// Bytes per nanosecond under the head at the outer edge.
    outer_rate: f64,
    /// The same at the inner edge.
    inner_rate: f64,
}

/// A place on the platters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    /// Turns of the spiral before it.
    pub(super) turns: f64,
    /// How far in: 0 at the outer edge, 1 at the inner one.
    pub(super) stroke: f64,
}

impl Geometry {
    /// # Panics
    /// When the outer rate is not above the inner one, or either is not positive.
    pub(super) fn new(size_bytes: u64, rpm: f64, outer_b_s: f64, inner_b_s: f64) -> Geometry {
        assert!(
            outer_b_s > inner_b_s && inner_b_s > 0.0,
            "outer tracks are longer than inner ones"
        );
        Geometry {
            size_bytes: size_bytes as f64,
            revolution_ns: 60e9 / rpm,
            outer_rate: outer_b_s / 1e9,
            inner_rate: inner_b_s / 1e9,
        }
    }

    pub(super) fn revolution_ns(&self) -> f64 {
        self.revolution_ns
    }

    /// What falls from the square of the rate over the whole disk.
    fn fall(&self) -> f64 {
        self.outer_rate * self.outer_rate - self.inner_rate * self.inner_rate
    }

    pub(super) fn place(&self, at: u64) -> Place {
        let share = (at as f64 / self.size_bytes).min(1.0);
        let rate = (self.outer_rate * self.outer_rate - self.fall() * share).sqrt();
        let turns_per_rate = 2.0 * self.size_bytes / (self.revolution_ns * self.fall());
        Place {
            turns: turns_per_rate * (self.outer_rate - rate),
            stroke: (self.outer_rate - rate) / (self.outer_rate - self.inner_rate),
        }
    }

    /// The byte so many turns from the outer edge; floor.
    pub(super) fn byte_at(&self, turns: f64) -> u64 {
        let turns_per_rate = 2.0 * self.size_bytes / (self.revolution_ns * self.fall());
        let rate = (self.outer_rate - turns / turns_per_rate).max(self.inner_rate);
        let share = (self.outer_rate * self.outer_rate - rate * rate) / self.fall();
        (share * self.size_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_takes_what_the_rate_says_at_both_edges() {
        let size_bytes = 500_000_000_000;
        let disk = Geometry::new(size_bytes, 7200.0, 120e6, 60e6);
        for (at, rate) in [(0, 120e6), (size_bytes - 10_000_000, 60e6)] {
            let turns = disk.place(at + 1_000_000).turns - disk.place(at).turns;
            let seconds = turns * 60.0 / 7200.0;
            assert!((1e6 / seconds / rate - 1.0).abs() < 0.001, "{}", 1e6 / seconds);
        }
        assert_eq!(disk.place(0), Place { turns: 0.0, stroke: 0.0 });
        assert!((disk.place(size_bytes).stroke - 1.0).abs() < 1e-9);
    }

    #[test]
    fn places_and_bytes_are_each_others_inverse() {
        let disk = Geometry::new(1_000_000_000_000, 5400.0, 140e6, 70e6);
        for at in [0, 4096, 123_456_789_012, 999_999_999_488] {
            assert!(disk.byte_at(disk.place(at).turns).abs_diff(at) < 512, "{at}");
        }
    }
}
