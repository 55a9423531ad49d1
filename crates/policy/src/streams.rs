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
    end: u64,
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

/// The sequences under way, the latest last.
#[derive(Debug, Default)]
pub struct Streams(Vec<Sequence>);

impl Streams {
    /// Takes a request.
    pub fn take(&mut self, at: u64, length: u64) -> Standing {
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
                Sequence { end: at, length: 0, asked: 0 }
            }
        };
        sequence.length += end - sequence.end;
        sequence.asked += length;
        sequence.end = end;
        self.0.push(sequence);
        let is_dense = sequence.asked * 2 >= sequence.length;
        let is_stream = sequence.length >= STREAM_BYTES_MIN && is_dense;
        Standing { continues: known.is_some(), is_stream }
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
