//! What streams will ask a drive for next, read beforehand.
//!
//! A piece is what the drive has at a place, as long as nobody writes there: each write takes away
//! the pieces it touches, those under way included, before the drive gets it. (Whoever begins a piece sees to
//! it that the place is not being written at that moment.)

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use io::units::SECOND_NS;
use io::{Buf, Transfer};

use crate::canary::canary;
use crate::marks::{self, Mark};

/// Bytes kept in all; a piece of an extent takes a buffer of twice that. With more streams at once than
/// that is enough for, some are served as they ask.
const BYTES_MAX: u64 = 8 << 20;
/// What nobody has asked for in this time makes room for others.
const STALE_NS: u64 = SECOND_NS;

/// The pieces of one drive.
#[derive(Default)]
pub(crate) struct Ahead {
    pieces: Vec<Piece>,
    bytes: u64,
}

struct Piece {
    at: u64,
    bytes: u64,
    content: Content,
    begun_ns: u64,
}

enum Content {
    UnderWay(Transfer),
    Here(Buf),
}

/// A range that was read beforehand.
pub(crate) enum Foreseen<T> {
    /// All of a piece, perhaps still under way.
    Coming(T),
    /// All of a piece.
    Whole(Buf),
    /// Copied out of a larger one.
    Copied,
}

impl Ahead {
    /// Whether the drive's range is there or on its way.
    pub fn covers(&self, at: u64) -> bool {
        self.pieces.iter().any(|piece| at.wrapping_sub(piece.at) < piece.bytes)
    }

    /// Whether there is room for a piece of so many bytes.
    pub fn has_room(&mut self, bytes: u64, now_ns: u64) -> bool {
        if self.pieces.iter().any(|piece| now_ns - piece.begun_ns >= STALE_NS) {
            self.retain(|piece| now_ns - piece.begun_ns < STALE_NS);
        }
        self.bytes + bytes <= BYTES_MAX
    }

    /// A read of a place has been submitted.
    pub fn begun(&mut self, at: u64, bytes: u64, transfer: Transfer, now_ns: u64) {
        self.bytes += bytes;
        self.pieces.push(Piece {
            at,
            bytes,
            content: Content::UnderWay(transfer),
            begun_ns: now_ns,
        });
    }

    /// The range is written, or about to be.
    pub fn written(&mut self, at: u64, bytes: u64) {
        let touched = |piece: &Piece| piece.at < at + bytes && at < piece.at + piece.bytes;
        if self.pieces.iter().any(touched) && !canary!(AheadKeptOverWrite) {
            marks::hit(Mark::ForeseenOverwritten);
            self.retain(|piece| !touched(piece));
        }
    }

    /// What is known of a range that a client asks for; `buf` is filled where only a part of a piece is
    /// wanted.
    pub fn take(&mut self, at: u64, buf: &mut Buf) -> Option<Foreseen<Transfer>> {
        let end = at + buf.len() as u64;
        let holds = |piece: &Piece| piece.at <= at && end <= piece.at + piece.bytes;
        let place = self.pieces.iter().position(holds)?;
        let piece = &mut self.pieces[place];
        if piece.bytes == buf.len() as u64 {
            return Some(match self.remove(place) {
                Content::UnderWay(transfer) => Foreseen::Coming(transfer),
                Content::Here(image) => Foreseen::Whole(image),
            });
        }
        if let Content::UnderWay(transfer) = &mut piece.content {
            let polled = Pin::new(transfer).poll(&mut Context::from_waker(Waker::noop()));
            match polled {
                Poll::Pending => return None,
                Poll::Ready((image, Ok(()))) => piece.content = Content::Here(image),
                Poll::Ready((_, Err(_))) => {
                    self.remove(place);
                    return None;
                }
            }
        }
        let Content::Here(image) = &piece.content else { return None };
        let skipped = (at - piece.at) as usize;
        let wanted = skipped..skipped + buf.len();
        buf.copy_from_slice(&image[wanted]);
        if end == piece.at + piece.bytes {
            self.remove(place);
        }
        Some(Foreseen::Copied)
    }

    fn remove(&mut self, place: usize) -> Content {
        let piece = self.pieces.swap_remove(place);
        self.bytes -= piece.bytes;
        piece.content
    }

    fn retain(&mut self, keeps: impl Fn(&Piece) -> bool) {
        self.pieces.retain(keeps);
        self.bytes = self.pieces.iter().map(|piece| piece.bytes).sum();
    }
}
