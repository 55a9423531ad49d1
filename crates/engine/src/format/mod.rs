//! Bytes on the drives. `docs/format.md` draws what these modules encode and decode.
//!
//! All integers are little-endian. Decoders take bytes nobody has checked: they return an error
//! or `None`, never panic, and check identity, then version, then CRC, then fields.

pub mod doubt_page;
pub mod heat_page;
pub mod map_page;
pub mod record;
pub mod superblock;

/// Reads a little-endian u64 at a fixed offset of a structure whose size is known.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// Reads a little-endian u32 at a fixed offset of a structure whose size is known.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Writes a little-endian u64.
pub(crate) fn put_u64(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Writes a little-endian u32.
pub(crate) fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}
