//! Received bytes that are not understood yet.
//!
//! * One buffer, from which whole batches of requests are parsed; what is left over (a piece of a
//!   header) moves to the front before the next receive.
//! * The window follows the traffic: it grows while receives fill it, shrinks when several in a row
//!   leave it empty, and drops to its least when large payloads come, so that these are received
//!   straight into their own buffers and an idle connection holds little memory.

use io::{Buf, Pool};

/// Window sizes in bytes; they are buffer classes of the pool. 256 KiB takes 64 writes of 4 KiB
/// in one receive, where the cost of a receive no longer shows.
const WINDOW_BYTES: [usize; 4] = [4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// A receive that uses less than 1/8 of the window counts as small.
const SHRINK_BELOW: usize = 8;

/// So many small receives in a row let the window shrink. One is not enough: the receive after a
/// full one often brings the last bytes of the same request, and a window that shrank on it would
/// cost writes of 4 KiB, one at a time, a second receive each.
const SHRINK_AFTER: u32 = 8;

/// The bytes between the socket and the parser.
pub(super) struct Inbox {
    pool: Pool,
    /// While a receive is in flight: only the left-over bytes in front of it.
    buf: Option<Buf>,
    start: usize,
    end: usize,
    /// Index in [`WINDOW_BYTES`].
    window: usize,
    /// Small receives in a row.
    small: u32,
}

impl Inbox {
    pub(super) fn new(pool: Pool) -> Inbox {
        Inbox { pool, buf: None, start: 0, end: 0, window: 0, small: 0 }
    }

    /// The bytes received and not consumed.
    pub(super) fn unread(&self) -> &[u8] {
        self.buf.as_ref().map_or(&[], |buf| &buf[self.start..self.end])
    }

    /// The next `bytes` are done with.
    pub(super) fn consume(&mut self, bytes: usize) {
        assert!(bytes <= self.end - self.start, "consumes what was received");
        self.start += bytes;
    }

    /// Gives the buffer to receive into, with room until at least `needed` unread bytes are there.
    /// [`Inbox::arrived`] must follow.
    pub(super) fn prepare(&mut self, needed: usize) -> Buf {
        let kept = self.end - self.start;
        let size = WINDOW_BYTES[self.window].max(needed).max(kept + 1);
        let mut whole = match self.buf.take() {
            Some(mut buf) if buf.len() >= size && buf.len() <= 2 * size => {
                buf.copy_within(self.start..self.end, 0);
                buf
            }
            old => {
                let mut buf = self.pool.take(size);
                if let Some(old) = old {
                    buf[..kept].copy_from_slice(&old[self.start..self.end]);
                }
                buf
            }
        };
        self.buf = Some(whole.split_to(kept));
        (self.start, self.end) = (0, kept);
        whole
    }

    /// Takes the buffer of [`Inbox::prepare`] back, with `bytes` received.
    pub(super) fn arrived(&mut self, buf: Buf, bytes: usize) {
        let room = buf.len();
        self.buf.as_mut().expect("prepared before").unsplit(buf);
        self.end += bytes;
        if bytes >= WINDOW_BYTES[self.window] / SHRINK_BELOW {
            self.small = 0;
        } else {
            self.small += 1;
        }
        if bytes == room {
            self.window = (self.window + 1).min(WINDOW_BYTES.len() - 1);
        } else if self.small == SHRINK_AFTER {
            self.window = self.window.saturating_sub(1);
            self.small = 0;
        }
    }

    /// Payloads with a buffer of their own are coming: only headers should land here.
    pub(super) fn expect_payloads(&mut self) {
        self.window = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive(inbox: &mut Inbox, bytes: &[u8]) {
        let mut buf = inbox.prepare(1);
        let count = bytes.len().min(buf.len());
        buf[..count].copy_from_slice(&bytes[..count]);
        inbox.arrived(buf, count);
    }

    #[test]
    fn left_over_bytes_stay_in_front_of_what_comes_next() {
        let mut inbox = Inbox::new(Pool::new(0));
        receive(&mut inbox, b"one two th");
        inbox.consume(8);
        receive(&mut inbox, b"ree");
        assert_eq!(inbox.unread(), b"three");
        inbox.consume(5);
        receive(&mut inbox, b"four");
        assert_eq!(inbox.unread(), b"four");
    }

    #[test]
    fn the_window_grows_while_it_is_filled_and_shrinks_when_it_is_not() {
        let mut inbox = Inbox::new(Pool::new(0));
        let flood = vec![7; 1 << 20];
        for expected in WINDOW_BYTES {
            receive(&mut inbox, &flood);
            assert_eq!(inbox.unread().len(), expected);
            inbox.consume(expected);
        }
        for _ in 0..WINDOW_BYTES.len() as u32 * SHRINK_AFTER {
            receive(&mut inbox, b"little");
            inbox.consume(6);
        }
        assert_eq!(inbox.prepare(1).len(), WINDOW_BYTES[0]);
    }

    #[test]
    fn requests_a_little_longer_than_the_window_arrive_whole_after_the_first() {
        let mut inbox = Inbox::new(Pool::new(0));
        let request = vec![7; 28 + 4096];
        let mut receives = 0;
        for _ in 0..100 {
            let mut left = &request[..];
            while !left.is_empty() {
                let before = inbox.unread().len();
                receive(&mut inbox, left);
                left = &left[inbox.unread().len() - before..];
                receives += 1;
            }
            inbox.consume(request.len());
        }
        assert_eq!(receives, 101);
    }

    #[test]
    fn a_message_longer_than_the_window_gets_its_room() {
        let mut inbox = Inbox::new(Pool::new(0));
        receive(&mut inbox, b"head");
        let buf = inbox.prepare(50_000);
        assert_eq!(buf.len(), 50_000 - 4);
        inbox.arrived(buf, 10);
        assert_eq!(&inbox.unread()[..4], b"head");
    }
}
