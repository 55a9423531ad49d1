//! A hash map that is the same in every run. The standard map's random seed would make two runs
//! of one seed differ; ours mixes with constants. Keys are our own counters, not a stranger's
//! choice, so there is no flooding to defend against.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A hash map with fixed mixing.
pub(crate) type FixedMap<K, V> = HashMap<K, V, BuildHasherDefault<FixedHasher>>;

/// Multiply and fold: one multiplication spreads consecutive numbers over the whole word, the
/// fold brings the well-mixed upper half down to where the table takes its index from.
#[derive(Default)]
pub(crate) struct FixedHasher(u64);

impl Hasher for FixedHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}
