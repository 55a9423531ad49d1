//! Replies on their way out.
//!
//! * Frames leave in the order they came. A frame is a head and, for data, a buffer.
//! * Small frames share one send buffer: one copy, one send for all that is ready. A frame with
//!   much data leaves in its own buffer, its head written into the headroom: no copy.
//! * What a frame releases (its request's place among those in flight) is handed out with the
//!   send that carries it, so that memory is bounded even when the peer does not read.

use std::collections::VecDeque;

use io::{Buf, Pool};

use super::reply::Head;

/// Data from this size on leaves in its own buffer. Copying 32 KiB costs about what another send
/// and its completion cost.
const OWN_SEND_BYTES_MIN: usize = 32 << 10;

/// A shared send buffer is at most this long: a buffer class of the pool.
const SHARED_BYTES_MAX: usize = 256 << 10;

/// What is free again once a frame has been sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Release {
    pub(super) requests: usize,
    pub(super) bytes: u64,
}

/// One reply, or a piece of one.
pub(super) struct Frame {
    pub(super) head: Head,
    pub(super) body: Option<Buf>,
    pub(super) release: Release,
}

impl Frame {
    fn bytes(&self) -> usize {
        self.head.as_bytes().len() + self.body.as_ref().map_or(0, |body| body.len())
    }

    /// Whether it can leave in its own buffer.
    fn carries_itself(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.headroom() >= self.head.as_bytes().len())
    }

    fn is_large(&self) -> bool {
        self.body.as_ref().is_some_and(|body| body.len() >= OWN_SEND_BYTES_MIN)
    }
}

/// Frames that wait for the socket.
#[derive(Default)]
pub(super) struct Outgoing {
    frames: VecDeque<Frame>,
}

impl Outgoing {
    pub(super) fn push(&mut self, frame: Frame) {
        self.frames.push_back(frame);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The next buffer to send, and what is released when it has been.
    pub(super) fn next(&mut self, pool: &Pool) -> Option<(Buf, Release)> {
        let front = self.frames.front()?;
        if front.carries_itself() && (front.is_large() || self.frames.len() == 1) {
            let frame = self.frames.pop_front().expect("seen above");
            let mut body = frame.body.expect("carries itself");
            let head = frame.head.as_bytes();
            body.grow_front(head.len());
            body[..head.len()].copy_from_slice(head);
            return Some((body, frame.release));
        }
        // The first frame goes in whatever its size; it may be large and without headroom.
        let mut bytes = 0;
        let mut count = 0;
        for frame in &self.frames {
            let own_way = frame.is_large() && frame.carries_itself();
            if count > 0 && (own_way || bytes + frame.bytes() > SHARED_BYTES_MAX) {
                break;
            }
            bytes += frame.bytes();
            count += 1;
        }
        let mut shared = pool.take(bytes);
        let mut release = Release::default();
        let mut at = 0;
        for frame in self.frames.drain(..count) {
            for part in [frame.head.as_bytes(), frame.body.as_deref().unwrap_or(&[])] {
                shared[at..at + part.len()].copy_from_slice(part);
                at += part.len();
            }
            release.requests += frame.release.requests;
            release.bytes += frame.release.bytes;
        }
        Some((shared, release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(pool: &Pool, cookie: u64, bytes: usize) -> Frame {
        let body = (bytes > 0).then(|| {
            let mut body = pool.take(bytes);
            body.fill(cookie as u8);
            body
        });
        let release = Release { requests: 1, bytes: bytes as u64 };
        Frame { head: Head::simple(cookie, 0), body, release }
    }

    #[test]
    fn small_frames_share_a_send_and_a_large_one_has_its_own() {
        let pool = Pool::new(0);
        let mut outgoing = Outgoing::default();
        for (cookie, bytes) in [(1, 0), (2, 4096), (3, 0), (4, 128 << 10), (5, 4096)] {
            outgoing.push(frame(&pool, cookie, bytes));
        }
        let (first, release) = outgoing.next(&pool).unwrap();
        assert_eq!(first.len(), 16 + (16 + 4096) + 16);
        assert_eq!(release, Release { requests: 3, bytes: 4096 });
        assert_eq!(first[16..32], *Head::simple(2, 0).as_bytes());
        assert_eq!(first[32], 2);
        let (second, _) = outgoing.next(&pool).unwrap();
        assert_eq!(second.len(), 16 + (128 << 10));
        assert_eq!(second[..16], *Head::simple(4, 0).as_bytes());
        let (third, _) = outgoing.next(&pool).unwrap();
        assert_eq!(third.len(), 16 + 4096);
        assert!(outgoing.next(&pool).is_none());
    }

    #[test]
    fn a_lone_frame_is_not_copied() {
        let pool = Pool::new(0);
        let mut outgoing = Outgoing::default();
        let lone = frame(&pool, 1, 4096);
        let address = lone.body.as_ref().unwrap().as_ptr();
        outgoing.push(lone);
        let (buf, _) = outgoing.next(&pool).unwrap();
        assert_eq!(buf[16..].as_ptr(), address);
    }

    #[test]
    fn a_shared_send_is_bounded() {
        let pool = Pool::new(0);
        let mut outgoing = Outgoing::default();
        for cookie in 0..100 {
            outgoing.push(frame(&pool, cookie, 16 << 10));
        }
        let mut requests = 0;
        while let Some((buf, release)) = outgoing.next(&pool) {
            assert!(buf.len() <= SHARED_BYTES_MAX);
            requests += release.requests;
        }
        assert_eq!(requests, 100);
    }
}
