//! Reads the ring forwards from the tail, a few pieces ahead, for recovery and check.

use std::collections::VecDeque;

use io::{Buf, Io, Transfer};

use crate::address::{BLOCK_BYTES, Lsn};
use crate::drive::{Drive, Watched};
use crate::error::Error;

/// Blocks per read: 1 MiB, where every drive reaches its full rate.
const PIECE_BLOCKS: u64 = 256;
/// Reads under way.
const PIECES_AHEAD: usize = 4;

enum Piece {
    UnderWay(Watched<Transfer>),
    Here(Buf),
}

/// A window that moves over the ring, at most once around.
pub(crate) struct LogReader {
    io: Io,
    drive: Drive,
    ring_at: u64,
    ring_blocks: u64,
    /// Pieces in order, with their first LSN and length in blocks.
    pieces: VecDeque<(u64, u64, Piece)>,
    next: u64,
    end: u64,
    bytes_read: u64,
}

impl LogReader {
    pub fn new(io: &Io, drive: &Drive, ring_at: u64, ring_blocks: u64, tail: Lsn) -> LogReader {
        LogReader {
            io: io.clone(),
            drive: drive.clone(),
            ring_at,
            ring_blocks,
            pieces: VecDeque::new(),
            next: tail.0,
            end: tail.0 + ring_blocks,
            bytes_read: 0,
        }
    }

    /// Bytes read from the drive so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The block at `lsn`, which must not lie before one asked for earlier. `None`: beyond one lap.
    pub async fn block(&mut self, lsn: Lsn) -> Result<Option<&[u8]>, Error> {
        if lsn.0 >= self.end {
            return Ok(None);
        }
        while self.pieces.front().is_some_and(|(start, blocks, _)| start + blocks <= lsn.0) {
            if let Some((_, _, Piece::UnderWay(transfer))) = self.pieces.pop_front() {
                // Skipped over: still to be waited for, its buffer is in use.
                transfer.await.1?;
            }
        }
        self.read_ahead();
        let (start, _, piece) = self.pieces.front_mut().expect("read ahead of lsn");
        assert!(*start <= lsn.0, "the window only moves forwards");
        let offset = ((lsn.0 - *start) * BLOCK_BYTES) as usize;
        if let Piece::UnderWay(transfer) = piece {
            let (buf, outcome) = transfer.await;
            outcome?;
            *piece = Piece::Here(buf);
        }
        let Piece::Here(buf) = piece else { unreachable!("just arrived") };
        Ok(Some(&buf[offset..offset + BLOCK_BYTES as usize]))
    }

    fn read_ahead(&mut self) {
        while self.pieces.len() < PIECES_AHEAD && self.next < self.end {
            let place = self.next % self.ring_blocks;
            let blocks = PIECE_BLOCKS.min(self.ring_blocks - place).min(self.end - self.next);
            let buf = self.io.pool().take((blocks * BLOCK_BYTES) as usize);
            let transfer = self.drive.read(self.ring_at + place * BLOCK_BYTES, buf);
            self.bytes_read += blocks * BLOCK_BYTES;
            self.pieces.push_back((self.next, blocks, Piece::UnderWay(transfer)));
            self.next += blocks;
        }
    }
}
