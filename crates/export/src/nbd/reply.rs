//! The fixed parts of replies, as bytes.
//!
//! A [`Head`] is what stands in front of a reply's data. It is small and lives inline, so that a
//! reply costs no allocation; it ends up in a shared send buffer or in the headroom of the data.

use super::protocol::{CHUNK_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// The longest head: a chunk's 20 bytes, an offset and a length.
const HEAD_BYTES_MAX: usize = 32;

/// Error messages are cut to this many bytes; clients only log them.
const MESSAGE_BYTES_MAX: usize = 512;

/// Bytes in front of a reply's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    bytes: [u8; HEAD_BYTES_MAX],
    len: usize,
}

impl Head {
    /// Nothing: the data continues the frame before it.
    pub(super) const EMPTY: Head = Head { bytes: [0; HEAD_BYTES_MAX], len: 0 };

    /// A simple reply; a successful read's data follows it.
    pub(super) fn simple(cookie: u64, error: u32) -> Head {
        let mut head = Head::EMPTY;
        head.put(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        head.put(&error.to_be_bytes());
        head.put(&cookie.to_be_bytes());
        head
    }

    /// `length` bytes of data at `at` follow.
    pub(super) fn data(cookie: u64, done: bool, at: u64, length: u32) -> Head {
        // Reads are at most 32 MiB, so the sum cannot overflow.
        let mut head = Head::chunk(cookie, done, chunk::OFFSET_DATA, length + 8);
        head.put(&at.to_be_bytes());
        head
    }

    /// `length` bytes at `at` are zeros; nothing follows.
    pub(super) fn hole(cookie: u64, done: bool, at: u64, length: u32) -> Head {
        let mut head = Head::chunk(cookie, done, chunk::OFFSET_HOLE, 12);
        head.put(&at.to_be_bytes());
        head.put(&length.to_be_bytes());
        head
    }

    /// The end of a reply without data.
    pub(super) fn none(cookie: u64) -> Head {
        Head::chunk(cookie, true, chunk::NONE, 0)
    }

    /// Any chunk; `length` bytes follow.
    pub(super) fn chunk(cookie: u64, done: bool, kind: u16, length: u32) -> Head {
        let mut head = Head::EMPTY;
        head.put(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
        head.put(&(if done { CHUNK_DONE } else { 0 }).to_be_bytes());
        head.put(&kind.to_be_bytes());
        head.put(&cookie.to_be_bytes());
        head.put(&length.to_be_bytes());
        head
    }

    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

/// The payload of an error chunk: number, message, and where it happened if one place is known.
/// Gives the chunk's kind and its payload.
pub(super) fn error_payload(error: u32, message: &str, at: Option<u64>) -> (u16, Vec<u8>) {
    let mut end = message.len().min(MESSAGE_BYTES_MAX);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let mut payload = Vec::with_capacity(14 + end);
    payload.extend_from_slice(&error.to_be_bytes());
    payload.extend_from_slice(&(end as u16).to_be_bytes());
    payload.extend_from_slice(&message.as_bytes()[..end]);
    match at {
        Some(at) => {
            payload.extend_from_slice(&at.to_be_bytes());
            (chunk::ERROR_OFFSET, payload)
        }
        None => (chunk::ERROR, payload),
    }
}

/// The payload of a block status chunk.
pub(super) fn status_payload(context_id: u32, runs: &[(u32, u32)]) -> Vec<u8> {
    let mut payload = Vec::with_capacity(4 + runs.len() * 8);
    payload.extend_from_slice(&context_id.to_be_bytes());
    for (length, state) in runs {
        payload.extend_from_slice(&length.to_be_bytes());
        payload.extend_from_slice(&state.to_be_bytes());
    }
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_the_lengths_the_protocol_gives_them() {
        assert_eq!(Head::simple(7, 5).as_bytes().len(), 16);
        assert_eq!(Head::none(7).as_bytes().len(), 20);
        assert_eq!(Head::data(7, true, 4096, 512).as_bytes().len(), 28);
        assert_eq!(Head::hole(7, false, 4096, 512).as_bytes().len(), 32);
    }

    #[test]
    fn a_data_chunk_counts_its_offset_in_its_length() {
        let head = Head::data(0x0102_0304_0506_0708, true, 0x1000, 0x200);
        let expected = [
            0x66, 0x8e, 0x33, 0xef, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 2, 8, 0, 0, 0, 0, 0,
            0, 0x10, 0,
        ];
        assert_eq!(head.as_bytes(), expected);
    }

    #[test]
    fn a_long_message_is_cut_between_characters() {
        let message = "ü".repeat(400);
        let (kind, payload) = error_payload(5, &message, Some(9));
        assert_eq!(kind, chunk::ERROR_OFFSET);
        let len = usize::from(u16::from_be_bytes([payload[4], payload[5]]));
        assert_eq!(payload.len(), 4 + 2 + len + 8);
        assert!(len <= MESSAGE_BYTES_MAX);
        assert!(std::str::from_utf8(&payload[6..6 + len]).is_ok());
    }
}
