//! What requests cost the slow drive, as measured: so that a disk, a flash drive and a drive across a
//! network are each judged by what they are.
//!
//! Small reads are not measured by themselves: hardly any are left once whole extents are read. What
//! one would have taken is what the whole extent took, less the time its other bytes took to pass.

/// Weight of the latest measurement.
const SMOOTHING: f64 = 1.0 / 32.0;
/// Of the latest request of a stream: there are many of them.
const STREAM_SMOOTHING: f64 = 1.0 / 256.0;
/// So many measurements are enough.
const ENOUGH: u64 = 16;
/// A disk of 7200 rpm, until enough has been measured: positioning, and 150 MB/s.
const POSITIONING_MS: f64 = 8.0;
const BYTE_MS: f64 = 1e3 / 150e6;
/// How fast bytes pass is the best that was seen lately; with each measurement that much of it is
/// forgotten.
const FORGETTING: f64 = 1.01;

/// Costs of requests that had the drive for themselves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    extent_bytes: f64,
    around_ms: f64,
    arounds: u64,
    byte_ms: f64,
    stream_byte_ms: f64,
    streams: u64,
}

/// A read of the slow drive that is worth measuring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measured {
    /// Of a whole extent, somewhere.
    Around,
    /// Of so many bytes, where another read had ended.
    Stream(u64),
}

impl Costs {
    pub(crate) fn new(extent_bytes: u64) -> Costs {
        let extent_bytes = extent_bytes as f64;
        let around_ms = POSITIONING_MS + extent_bytes * BYTE_MS;
        Costs {
            extent_bytes,
            around_ms,
            arounds: 0,
            byte_ms: BYTE_MS,
            stream_byte_ms: BYTE_MS,
            streams: 0,
        }
    }

    pub(crate) fn took(&mut self, what: Measured, taken_ms: f64) {
        match what {
            Measured::Around => {
                self.arounds += 1;
                // The first ones are averaged, later ones smoothed.
                let weight = SMOOTHING.max(1.0 / self.arounds as f64);
                self.around_ms += (taken_ms - self.around_ms) * weight;
            }
            Measured::Stream(bytes) => {
                let measured_ms = taken_ms / bytes.max(1) as f64;
                let known_ms = if self.streams == 0 { f64::MAX } else { self.byte_ms };
                self.byte_ms = measured_ms.min(known_ms * FORGETTING);
                self.streams += 1;
                let weight = STREAM_SMOOTHING.max(1.0 / self.streams as f64);
                self.stream_byte_ms += (measured_ms - self.stream_byte_ms) * weight;
            }
        }
    }

    /// What the read of a whole extent costs, in milliseconds.
    pub fn around_ms(&self) -> f64 {
        if self.arounds >= ENOUGH {
            self.around_ms
        } else {
            POSITIONING_MS + self.extent_bytes * BYTE_MS
        }
    }

    /// What a small read costs, in milliseconds.
    pub fn read_ms(&self) -> f64 {
        let around_ms = self.around_ms();
        (around_ms - self.passing_ms()).max(around_ms * 0.05)
    }

    /// What so many bytes cost within a stream, as a share of what a small read costs; for a whole extent at
    /// most 1. Next to nothing where the head stays, and more the more streams tear each other apart.
    pub fn stream_share(&self, bytes: u64) -> f64 {
        let byte_ms = if self.streams >= ENOUGH { self.stream_byte_ms } else { BYTE_MS };
        let whole = (self.extent_bytes * byte_ms / self.read_ms()).min(1.0);
        whole * bytes as f64 / self.extent_bytes
    }

    /// What the bytes of an extent take to pass, in milliseconds.
    fn passing_ms(&self) -> f64 {
        let byte_ms = if self.streams >= ENOUGH { self.byte_ms } else { BYTE_MS };
        // With enough of one and not of the other they may contradict each other.
        (self.extent_bytes * byte_ms).min(self.around_ms())
    }

    /// The share of extents read whole that must be asked for again for that to pay.
    pub(crate) fn around_share_min(&self) -> f64 {
        (self.passing_ms() / self.read_ms()).clamp(0.02, 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_costs_what_its_bytes_took_however_they_were_asked_for() {
        let mut costs = Costs::new(128 << 10);
        let whole = costs.stream_share(128 << 10);
        assert!((0.1..0.12).contains(&whole), "{whole}");
        assert!((32.0 * costs.stream_share(4 << 10) - whole).abs() < 1e-9);
        // Streams that tear each other apart: every request positions.
        for _ in 0..2000 {
            costs.took(Measured::Around, 9.0);
            costs.took(Measured::Stream(64 << 10), 8.5);
        }
        assert_eq!(costs.stream_share(128 << 10), 1.0);
        assert_eq!(32.0 * costs.stream_share(4 << 10), 1.0);
    }

    #[test]
    fn reading_around_must_pay_more_often_on_flash_than_on_a_disk() {
        let mut disk = Costs::new(128 << 10);
        assert!((0.1..0.12).contains(&disk.around_share_min()));
        let mut flash = disk;
        for _ in 0..100 {
            disk.took(Measured::Around, 12.0);
            disk.took(Measured::Stream(64 << 10), 0.5);
            flash.took(Measured::Around, 0.35);
            flash.took(Measured::Stream(64 << 10), 0.15);
        }
        assert!((0.08..0.1).contains(&disk.around_share_min()), "{}", disk.around_share_min());
        assert!(flash.around_share_min() > 0.9, "{}", flash.around_share_min());
        assert!((10.9..11.1).contains(&disk.read_ms()), "{}", disk.read_ms());
    }
}
