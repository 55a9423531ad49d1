//! What a request asks for, once its chain has been followed.

use io::VolumeInfo;

use super::chain::{Chain, Malformed};
use super::guest_memory::GuestMemory;
use super::protocol::{RANGES_MAX, SECTOR_BYTES, Status, kind};

/// Bytes of a request's header: its kind, four bytes of no meaning, its first sector.
pub(super) const HEADER_BYTES: u64 = 16;

/// Bytes of one range to trim or to write zeros: first sector, sectors, flags.
const RANGE_BYTES: u64 = 16;

/// The range may be deallocated.
const UNMAP: u32 = 1;

/// What a request asks for. Offsets and lengths are bytes, and lie in the volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Read {
        at: u64,
        length: u64,
    },
    Write {
        at: u64,
        length: u64,
    },
    Flush,
    Identity,
    Trim(Spots),
    Zero(Spots),
    /// Nothing is done, and this is the answer.
    Refused(Status),
}

/// Ranges of the volume, and whether each may be deallocated.
#[derive(Debug, PartialEq, Eq, Default)]
pub(super) struct Spots {
    count: usize,
    spots: [Spot; RANGES_MAX],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spot {
    pub(super) at: u64,
    pub(super) length: u64,
    pub(super) unmap: bool,
}

impl Spots {
    pub(super) fn iter(&self) -> impl Iterator<Item = Spot> {
        self.spots[..self.count].iter().copied()
    }
}

impl Asked {
    /// Understands a request. Its last byte to write is for the status.
    pub(super) fn parse(
        memory: &GuestMemory,
        chain: &Chain,
        info: &VolumeInfo,
    ) -> Result<Asked, Malformed> {
        let (readable, writable) = (chain.readable.bytes(), chain.writable.bytes());
        if readable < HEADER_BYTES || writable < 1 {
            return Err(Malformed::Short(readable, writable));
        }
        let mut header = [0; HEADER_BYTES as usize];
        if chain.readable.read(memory, 0, &mut header).is_err() {
            return Ok(Asked::Refused(Status::IoError));
        }
        let (asked, sector) = (number(&header[..4]) as u32, number(&header[8..]));
        let (given, wanted) = (readable - HEADER_BYTES, writable - 1);
        Ok(match asked {
            kind::IN => match place(info, sector, wanted) {
                Some(at) => Asked::Read { at, length: wanted },
                None => Asked::Refused(Status::IoError),
            },
            kind::OUT => match place(info, sector, given) {
                Some(at) if !info.read_only => Asked::Write { at, length: given },
                _ => Asked::Refused(Status::IoError),
            },
            kind::FLUSH => Asked::Flush,
            kind::GET_ID => Asked::Identity,
            kind::DISCARD | kind::WRITE_ZEROES if info.read_only => Asked::Refused(Status::IoError),
            kind::DISCARD => match spots(memory, chain, info) {
                // Trims have no flags.
                Ok(spots) if spots.iter().any(|spot| spot.unmap) => {
                    Asked::Refused(Status::Unsupported)
                }
                Ok(spots) => Asked::Trim(spots),
                Err(status) => Asked::Refused(status),
            },
            kind::WRITE_ZEROES => match spots(memory, chain, info) {
                Ok(spots) => Asked::Zero(spots),
                Err(status) => Asked::Refused(status),
            },
            _ => Asked::Refused(Status::Unsupported),
        })
    }
}

fn spots(memory: &GuestMemory, chain: &Chain, info: &VolumeInfo) -> Result<Spots, Status> {
    let bytes = chain.readable.bytes() - HEADER_BYTES;
    let count = (bytes / RANGE_BYTES) as usize;
    if count == 0 || count > RANGES_MAX || !bytes.is_multiple_of(RANGE_BYTES) {
        return Err(Status::IoError);
    }
    let mut spots = Spots { count, ..Spots::default() };
    for (index, spot) in spots.spots[..count].iter_mut().enumerate() {
        let mut range = [0; RANGE_BYTES as usize];
        let from = HEADER_BYTES + index as u64 * RANGE_BYTES;
        chain.readable.read(memory, from, &mut range).map_err(|_| Status::IoError)?;
        let flags = number(&range[12..]) as u32;
        if flags & !UNMAP != 0 {
            return Err(Status::Unsupported);
        }
        let length = number(&range[8..12]) * SECTOR_BYTES;
        let at = place(info, number(&range[..8]), length).ok_or(Status::IoError)?;
        *spot = Spot { at, length, unmap: flags & UNMAP != 0 };
    }
    Ok(spots)
}

/// Where a request begins in bytes; `None` when not all of it is in the volume, or when it is not
/// made of whole sectors.
fn place(info: &VolumeInfo, sector: u64, length: u64) -> Option<u64> {
    let at = sector.checked_mul(SECTOR_BYTES)?;
    let end = at.checked_add(length)?;
    let unit = u64::from(info.sector_bytes);
    let whole = at.is_multiple_of(unit) && length.is_multiple_of(unit);
    (whole && end <= info.size_bytes).then_some(at)
}

/// At most eight bytes as a number.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests;
