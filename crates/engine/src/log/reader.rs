//! Reads the ring forwards from the tail, a few pieces ahead, for recovery and check.

use std::collections::VecDeque;

use io::{Buf, Io, IoError, Transfer};

use crate::address::{BLOCK_BYTES, Lsn};
use crate::drive::{Drive, Watched};

/// Blocks per read: 1 MiB, where every drive reaches its full rate.
const PIECE_BLOCKS: u64 = 256;
/// Reads under way.
const PIECES_AHEAD: usize = 4;

enum Piece {
    UnderWay(Watched<Transfer>),
    /// With the offsets of blocks that could not be read, and why.
    Here(Buf, Vec<(usize, IoError)>),
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

    /// Goes to `lsn`, which may lie before one asked for earlier.
    pub fn seek(&mut self, lsn: Lsn) {
        self.pieces.clear();
        self.next = lsn.0;
    }

    /// Bytes read from the drive so far.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// The block at `lsn`, which must not lie before one asked for earlier, or why it cannot be
    /// read. `None`: beyond one lap.
    pub async fn block(&mut self, lsn: Lsn) -> Option<Result<&[u8], &IoError>> {
        if lsn.0 >= self.end {
            return None;
        }
        while self.pieces.front().is_some_and(|(start, blocks, _)| start + blocks <= lsn.0) {
            self.pieces.pop_front();
        }
        self.read_ahead();
        let (start, _, piece) = self.pieces.front_mut().expect("read ahead of lsn");
        assert!(*start <= lsn.0, "the window only moves forwards");
        let offset = ((lsn.0 - *start) * BLOCK_BYTES) as usize;
        if let Piece::UnderWay(transfer) = piece {
            let (mut buf, outcome) = transfer.await;
            let mut unreadable = Vec::new();
            if outcome.is_err() {
                let position = self.ring_at + *start % self.ring_blocks * BLOCK_BYTES;
                unreadable = read_singly(&self.io, &self.drive, position, &mut buf).await;
            }
            *piece = Piece::Here(buf, unreadable);
        }
        let Piece::Here(buf, unreadable) = piece else { unreachable!("just arrived") };
        if let Some((_, error)) = unreadable.iter().find(|(at, _)| *at == offset) {
            return Some(Err(error));
        }
        Some(Ok(&buf[offset..offset + BLOCK_BYTES as usize]))
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

/// Reads block by block what could not be read at once; gives the offsets that fail alone.
async fn read_singly(
    io: &Io,
    drive: &Drive,
    position: u64,
    buf: &mut Buf,
) -> Vec<(usize, IoError)> {
    let mut unreadable = Vec::new();
    for offset in (0..buf.len()).step_by(BLOCK_BYTES as usize) {
        let block = io.pool().take(BLOCK_BYTES as usize);
        let (block, outcome) = drive.read(position + offset as u64, block).await;
        match outcome {
            Ok(()) => buf[offset..offset + block.len()].copy_from_slice(&block),
            Err(error) => unreadable.push((offset, error)),
        }
    }
    unreadable
}
