//! Sequences among the requests, many at once. A client's file read from front to back is one,
//! whoever else reads in between. Small reads all over a small hot place are none, although each of them
//! begins near where some other has ended: a sequence asks for at least half of what it passes.

/// Sequences told apart.
const STREAMS_MAX: usize = 64;
/// A request this little ahead of a sequence's end continues it.
const GAP_BYTES: u64 = 64 << 10;
/// A sequence of so many bytes is a stream.
const STREAM_BYTES_MIN: u64 = 512 << 10;

#[derive(Debug, Clone, Copy)]
struct Sequence {
    /// From its beginning to its end.
    length: u64,
    /// Of that, what was asked for.
    asked: u64,
}

/// How a request stands to those before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// It goes on where another one ended, or nearly.
    pub continues: bool,
    /// It belongs to a long sequence.
    pub is_stream: bool,
}

/// The sequences under way. What every request is compared with lies side by side, so that it is
/// done in a few instructions for all of them.
#[derive(Debug, Default)]
pub struct Streams {
    /// Where each one ends.
    ends: Vec<u64>,
    /// The request that was its last, counted from the first.
    used: Vec<u64>,
    sequences: Vec<Sequence>,
    requests: u64,
}

impl Streams {
    /// Takes a request.
    pub fn take(&mut self, at: u64, length: u64) -> Standing {
        let known = self.known(at);
        let place = known.unwrap_or_else(|| self.begin(at));
        let end = at + length;
        let sequence = &mut self.sequences[place];
        sequence.length += end - self.ends[place];
        sequence.asked += length;
        self.ends[place] = end;
        self.used[place] = self.requests;
        self.requests += 1;
        let is_dense = sequence.asked * 2 >= sequence.length;
        let is_stream = sequence.length >= STREAM_BYTES_MIN && is_dense;
        Standing { continues: known.is_some(), is_stream }
    }

    /// The latest sequence that goes on there.
    fn known(&self, at: u64) -> Option<usize> {
        let goes_on = |end: u64| at.wrapping_sub(end) <= GAP_BYTES;
        // Most requests continue nothing: this is what they cost.
        if !self.ends.iter().fold(false, |any, end| any | goes_on(*end)) {
            return None;
        }
        let those = (0..self.ends.len()).filter(|place| goes_on(self.ends[*place]));
        those.max_by_key(|place| self.used[*place])
    }

    /// A new sequence in the place of the one that was not continued for longest.
    fn begin(&mut self, at: u64) -> usize {
        let sequence = Sequence { length: 0, asked: 0 };
        if self.ends.len() < STREAMS_MAX {
            self.ends.push(at);
            self.used.push(self.requests);
            self.sequences.push(sequence);
            return self.ends.len() - 1;
        }
        let oldest = self.used.iter().copied().fold(u64::MAX, u64::min);
        let place = self.used.iter().position(|used| *used == oldest).expect("one is the oldest");
        self.ends[place] = at;
        self.sequences[place] = sequence;
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_interleaved_streams_are_told_apart() {
        let mut streams = Streams::default();
        for piece in 0..100u64 {
            for client in 0..60 {
                let standing = streams.take((client << 24) + (piece << 16), 64 << 10);
                let expected = Standing { continues: piece > 0, is_stream: piece >= 7 };
                assert_eq!(standing, expected, "client {client}, piece {piece}");
            }
        }
        assert_eq!(streams.take(1 << 40, 4096), Standing::default());
    }

    #[test]
    fn small_reads_all_over_a_hot_place_are_no_stream() {
        let mut streams = Streams::default();
        let taken = (0..20_000u64).filter(|n| {
            let place = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 53;
            streams.take(place * 4096, 4096).is_stream
        });
        assert!(taken.count() < 200);
    }
}
