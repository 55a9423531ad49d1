//! What a run writes: a pure function of its identity.

use serde::{Deserialize, Serialize};

/// Version of runs: what older ones planned cannot be verified by newer rules.
const VERSION: u32 = 1;

/// A write lies in a slot of this many bytes and begins where it does. The longest write fills
/// it.
pub const SLOT_BYTES: u64 = 64 << 10;

/// Sequence numbers of an epoch begin at its number times this; so many writes it has at most.
pub(super) const EPOCH_WRITES_MAX: u64 = 64;

/// How many writes are under way at once: one, as a journal writes; a few; a full queue.
const DEPTHS: [usize; 3] = [1, 4, 32];

/// One run of the writer, from which everything it writes follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Of this form and of the rules.
    pub bimetal_powercut: u32,
    /// Drawn anew for each run: sectors of older runs are not taken for its own.
    pub id: u64,
    /// How the drive was called where it was written; for people.
    pub drive: String,
    /// Bytes of the drive that are written, from its beginning: a power of two of slots.
    pub span_bytes: u64,
    /// The drive's sector: 512 or 4096.
    pub sector_bytes: u32,
}

/// One write of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// Its number, ascending over the run; its epoch is part of it.
    pub sequence: u64,
    /// First byte on the drive.
    pub at: u64,
    /// Bytes: 512 (or a sector) to [`SLOT_BYTES`].
    pub length: u64,
}

impl Run {
    /// A run over as much of `span_bytes` as makes a power of two of slots.
    pub fn new(id: u64, drive: &str, span_bytes: u64, sector_bytes: u32) -> Result<Run, String> {
        let slots = span_bytes / SLOT_BYTES;
        if slots < EPOCH_WRITES_MAX {
            let least = EPOCH_WRITES_MAX * SLOT_BYTES;
            return Err(format!("{span_bytes} bytes are too few: {least} are the least"));
        }
        // The largest power of two that is not above it.
        let span_bytes = (1 << slots.ilog2()) * SLOT_BYTES;
        let drive = drive.to_owned();
        Ok(Run { bimetal_powercut: VERSION, id, drive, span_bytes, sector_bytes })
    }

    /// What is wrong with a run that somebody else has written down.
    pub fn problem(&self) -> Option<String> {
        if self.bimetal_powercut != VERSION {
            let version = self.bimetal_powercut;
            return Some(format!("it has version {version}, this program knows {VERSION}"));
        }
        if !matches!(self.sector_bytes, 512 | 4096) {
            return Some(format!("sectors of {} bytes do not exist", self.sector_bytes));
        }
        let slots = self.span_bytes / SLOT_BYTES;
        let whole = self.span_bytes.is_multiple_of(SLOT_BYTES) && slots.is_power_of_two();
        if !whole || slots < EPOCH_WRITES_MAX {
            return Some(format!("a span of {} bytes cannot have been", self.span_bytes));
        }
        None
    }

    /// How many writes of an epoch are under way at once.
    pub fn depth(&self, epoch: u64) -> usize {
        DEPTHS[(self.draw(epoch, 1) % DEPTHS.len() as u64) as usize]
    }

    /// The writes of an epoch, in the order in which they are submitted. Epochs count from 1.
    pub fn writes(&self, epoch: u64) -> impl Iterator<Item = Write> + use<> {
        let slots = self.span_bytes / SLOT_BYTES;
        // A third of the epochs are one write and a flush, as a database commits.
        let count = match self.draw(epoch, 2) % 3 {
            0 => 1,
            1 => 1 + self.draw(epoch, 3) % 8,
            _ => 1 + self.draw(epoch, 3) % EPOCH_WRITES_MAX,
        };
        let first = self.draw(epoch, 4);
        // Odd, and the slots a power of two: all places of the epoch differ.
        let stride = self.draw(epoch, 5) | 1;
        let (id, sector_bytes) = (self.id, u64::from(self.sector_bytes));
        (0..count).map(move |index| {
            let sequence = epoch * EPOCH_WRITES_MAX + index;
            let slot = first.wrapping_add(stride.wrapping_mul(index)) % slots;
            let length = [sector_bytes, 4096, 16384, SLOT_BYTES][(mix(id ^ sequence) % 4) as usize];
            Write { sequence, at: slot * SLOT_BYTES, length }
        })
    }

    fn draw(&self, epoch: u64, what: u64) -> u64 {
        mix(self.id ^ mix(epoch.wrapping_mul(8) ^ what))
    }
}

/// The epoch that a sequence number belongs to.
pub(super) fn epoch_of(sequence: u64) -> u64 {
    sequence / EPOCH_WRITES_MAX
}

/// Scatters `value` over 64 bits (the finalizer of SplitMix64).
pub(super) fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_writes_of_an_epoch_lie_apart_and_inside_the_span() {
        let run = Run::new(7, "x", 100 * SLOT_BYTES, 512).unwrap();
        assert_eq!(run.span_bytes, 64 * SLOT_BYTES);
        let mut counts = [0; 3];
        for epoch in 1..500 {
            let writes: Vec<Write> = run.writes(epoch).collect();
            let mut places: Vec<u64> = writes.iter().map(|write| write.at).collect();
            places.sort_unstable();
            places.dedup();
            assert_eq!(places.len(), writes.len());
            assert!(places.iter().all(|at| at + SLOT_BYTES <= run.span_bytes));
            assert!(writes.iter().all(|write| epoch_of(write.sequence) == epoch));
            let depth = run.depth(epoch);
            counts[DEPTHS.iter().position(|known| *known == depth).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| *count > 100), "{counts:?}");
    }

    #[test]
    fn runs_that_cannot_be_are_named() {
        assert!(Run::new(1, "x", 1 << 20, 512).unwrap_err().contains("too few"));
        let run = Run::new(1, "x", 1 << 30, 512).unwrap();
        assert_eq!(run.problem(), None);
        assert!(Run { bimetal_powercut: 9, ..run.clone() }.problem().is_some());
        assert!(Run { sector_bytes: 0, ..run.clone() }.problem().is_some());
        assert!(Run { span_bytes: 3 * SLOT_BYTES, ..run }.problem().is_some());
    }
}
