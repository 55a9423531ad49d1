//! The compact format: a few bytes per request, to be appended to as long as requests come.
//!
//! The line [`HEAD`], then for each request an octet of what it was, and three numbers as LEB128:
//! microseconds since the request before, the first sector (512 bytes) as the zigzag of its distance
//! from the end of the request before, and its length in sectors. A flush has only the first number.

use super::{Deed, Event};

/// How a file begins.
pub const HEAD: &[u8] = b"bimetal trace 1\n";
/// Unit of places and lengths.
const SECTOR_BYTES: u64 = 512;
/// Octets of the longest number.
const NUMBER_OCTETS_MAX: usize = 10;

/// Writes requests one after the other.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    at_us: u64,
    sector: u64,
}

/// Reads them.
pub(super) struct Decoder<'a> {
    bytes: &'a [u8],
    at_us: u64,
    sector: u64,
}

impl Encoder {
    /// The request's octets. Ranges are widened to whole sectors.
    pub fn encode(&mut self, event: &Event, out: &mut Vec<u8>) {
        out.push(match event.deed {
            Deed::Read => b'R',
            Deed::Write => b'W',
            Deed::Flush => b'F',
            Deed::Discard => b'D',
        });
        push(out, event.at_us.saturating_sub(self.at_us));
        self.at_us = self.at_us.max(event.at_us);
        if event.deed == Deed::Flush {
            return;
        }
        let first = event.offset / SECTOR_BYTES;
        let end = (event.offset + event.length).div_ceil(SECTOR_BYTES);
        let distance = first as i64 - self.sector as i64;
        push(out, ((distance << 1) ^ (distance >> 63)) as u64);
        push(out, end - first);
        self.sector = end;
    }
}

fn push(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

impl<'a> Decoder<'a> {
    /// Of what follows the head.
    pub fn new(bytes: &'a [u8]) -> Decoder<'a> {
        Decoder { bytes, at_us: 0, sector: 0 }
    }

    /// The next request; `None` at the end, also when the last one was cut off while it was written.
    ///
    /// # Errors
    /// What cannot be a request.
    pub fn decode(&mut self) -> Result<Option<Event>, String> {
        let Some((kind, rest)) = self.bytes.split_first() else { return Ok(None) };
        let deed = match kind {
            b'R' => Deed::Read,
            b'W' => Deed::Write,
            b'F' => Deed::Flush,
            b'D' => Deed::Discard,
            other => return Err(format!("octet {other} is no kind of request")),
        };
        self.bytes = rest;
        let Some(pause_us) = self.number()? else { return Ok(None) };
        self.at_us = self.at_us.checked_add(pause_us).ok_or("its time overflows")?;
        if deed == Deed::Flush {
            return Ok(Some(Event { at_us: self.at_us, deed, offset: 0, length: 0 }));
        }
        let (Some(zigzag), Some(sectors)) = (self.number()?, self.number()?) else {
            return Ok(None);
        };
        let distance = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        let first = self.sector.checked_add_signed(distance).ok_or("its place overflows")?;
        let end = first.checked_add(sectors).ok_or("its length overflows")?;
        self.sector = end;
        let bytes = |sectors: u64| sectors.checked_mul(SECTOR_BYTES).ok_or("its place overflows");
        let (offset, end) = (bytes(first)?, bytes(end)?);
        Ok(Some(Event { at_us: self.at_us, deed, offset, length: end - offset }))
    }

    fn number(&mut self) -> Result<Option<u64>, String> {
        let mut number = 0u64;
        for (index, octet) in self.bytes.iter().enumerate().take(NUMBER_OCTETS_MAX) {
            let part = u64::from(octet & 0x7f);
            if index == NUMBER_OCTETS_MAX - 1 && part > 1 {
                break;
            }
            number |= part << (7 * index);
            if octet & 0x80 == 0 {
                self.bytes = &self.bytes[index + 1..];
                return Ok(Some(number));
            }
        }
        if self.bytes.len() >= NUMBER_OCTETS_MAX {
            return Err("a number is longer than 64 bits".to_owned());
        }
        self.bytes = &[];
        Ok(None)
    }
}
