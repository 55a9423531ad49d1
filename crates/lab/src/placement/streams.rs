//! Sequences among the requests, many at once.

/// Sequences told apart.
const STREAMS_MAX: usize = 64;
/// A request this little ahead of a sequence's end continues it.
const GAP_BYTES: u64 = 64 << 10;
/// A sequence of so many bytes is a stream.
const STREAM_BYTES_MIN: u64 = 512 << 10;

#[derive(Debug, Clone, Copy)]
struct Sequence {
    end: u64,
    length: u64,
}

/// The sequences under way, the latest last.
#[derive(Debug, Default)]
pub(super) struct Streams(Vec<Sequence>);

impl Streams {
    /// Takes a request; true when it belongs to a stream.
    pub fn take(&mut self, at: u64, length: u64) -> bool {
        let end = at + length;
        let known = self
            .0
            .iter()
            .rposition(|sequence| (sequence.end..=sequence.end + GAP_BYTES).contains(&at));
        let mut sequence = match known {
            Some(place) => self.0.remove(place),
            None => {
                if self.0.len() == STREAMS_MAX {
                    self.0.remove(0);
                }
                Sequence { end: at, length: 0 }
            }
        };
        sequence.length += end - sequence.end;
        sequence.end = end;
        self.0.push(sequence);
        sequence.length >= STREAM_BYTES_MIN
    }
}
