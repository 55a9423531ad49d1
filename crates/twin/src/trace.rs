//! A fingerprint of everything that happened, so that two runs can be compared.

use crate::random::mix;

/// Folds events into 64 bits; keeps the latest as text when asked to.
#[derive(Clone, Default)]
pub(crate) struct Trace {
    hash: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn record(&mut self, now_ns: u64, event: u64, text: impl FnOnce() -> String) {
        self.hash = mix(self.hash ^ now_ns).wrapping_add(mix(event));
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now_ns} {}", text()));
        }
    }

    /// Whether text is kept.
    pub(crate) fn keeps_text(&self) -> bool {
        self.lines.is_some()
    }

    /// A line for those who read, which is not part of the fingerprint.
    pub(crate) fn note(&mut self, now_ns: u64, text: &str) {
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{now_ns} {text}"));
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    pub(crate) fn keep_text(&mut self) {
        self.lines.get_or_insert_default();
    }

    pub(crate) fn text(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}

/// A fingerprint of `bytes`, four lanes wide to keep pace with the simulation.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4];
    let (wide, rest) = bytes.as_chunks::<32>();
    for chunk in wide {
        for (lane, word) in lanes.iter_mut().zip(chunk.as_chunks::<8>().0) {
            *lane = (*lane ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *lane = lane.rotate_left(29);
        }
    }
    let mut hash = lanes.iter().fold(bytes.len() as u64, |hash, lane| mix(hash ^ lane));
    for byte in rest {
        hash = mix(hash ^ u64::from(*byte));
    }
    hash
}
