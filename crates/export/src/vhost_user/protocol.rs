//! The numbers of virtio block devices: features, requests, the configuration space.
//!
//! From the virtio standard, version 1.2, section 5.2; all little-endian. Sectors are 512 bytes
//! whatever the block size.

use io::VolumeInfo;

/// Bytes of what the standard calls a sector.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Most queues a front-end may use: more than any guest has processors to make use of.
pub(super) const QUEUES_MAX: u16 = 128;

/// Most places in one queue; also the bound on requests of a queue under way.
pub(super) const QUEUE_SIZE_MAX: u16 = 1024;

/// Data segments of one request, as advertised: with the header and the status byte a chain then
/// fits the common queue size of 128.
const SEGMENTS: u32 = 126;

/// Ranges of one request to trim or to write zeros, as advertised.
pub(super) const RANGES_MAX: usize = 32;

/// Sectors of one such range, as advertised: 1 GiB at a time keeps a request short enough for
/// others to go on beside it.
const RANGE_SECTORS_MAX: u32 = 1 << 21;

/// Feature bits.
pub(super) mod feature {
    pub(crate) const SEG_MAX: u64 = 1 << 2;
    pub(crate) const READ_ONLY: u64 = 1 << 5;
    pub(crate) const BLOCK_SIZE: u64 = 1 << 6;
    pub(crate) const FLUSH: u64 = 1 << 9;
    pub(crate) const TOPOLOGY: u64 = 1 << 10;
    pub(crate) const MULTI_QUEUE: u64 = 1 << 12;
    pub(crate) const DISCARD: u64 = 1 << 13;
    pub(crate) const WRITE_ZEROES: u64 = 1 << 14;
    pub(crate) const INDIRECT: u64 = 1 << 28;
    pub(crate) const EVENT_INDEX: u64 = 1 << 29;
    /// Not of virtio: the vhost-user protocol has features of its own.
    pub(crate) const PROTOCOL: u64 = 1 << 30;
    pub(crate) const VERSION_1: u64 = 1 << 32;
}

/// Kinds of requests.
pub(super) mod kind {
    pub(crate) const IN: u32 = 0;
    pub(crate) const OUT: u32 = 1;
    pub(crate) const FLUSH: u32 = 4;
    pub(crate) const GET_ID: u32 = 8;
    pub(crate) const DISCARD: u32 = 11;
    pub(crate) const WRITE_ZEROES: u32 = 13;
}

/// What a request's last byte says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// Bytes of the identity that a guest may ask for.
pub(super) const IDENTITY_BYTES: usize = 20;

/// What a volume offers.
///
/// Not offered: a cache that the guest switches on and off. A front-end does not repeat the
/// guest's choice to a back-end that was started anew, so it could not be kept.
pub(super) fn offered(info: &VolumeInfo) -> u64 {
    let mut features = feature::SEG_MAX
        | feature::BLOCK_SIZE
        | feature::FLUSH
        | feature::TOPOLOGY
        | feature::MULTI_QUEUE
        | feature::INDIRECT
        | feature::EVENT_INDEX
        | feature::PROTOCOL
        | feature::VERSION_1;
    features |= match info.read_only {
        true => feature::READ_ONLY,
        false => feature::DISCARD | feature::WRITE_ZEROES,
    };
    features
}

/// Bytes of the configuration space, its newest fields included; what is beyond reads as zeros.
const CONFIG_BYTES: usize = 96;

/// The configuration space of a volume.
pub(super) fn config(info: &VolumeInfo) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    let per_block = (info.preferred_bytes / info.sector_bytes).max(1);
    put(0, &(info.size_bytes / SECTOR_BYTES).to_le_bytes());
    put(12, &SEGMENTS.to_le_bytes());
    put(20, &info.sector_bytes.to_le_bytes());
    // How many logical blocks are a physical one, as a power of two; then the offset of the first
    // one, and the smallest good request in logical blocks.
    put(24, &[per_block.ilog2() as u8, 0]);
    put(26, &(per_block as u16).to_le_bytes());
    // There is a cache to flush.
    put(32, &[1]);
    put(34, &QUEUES_MAX.to_le_bytes());
    let alignment = (u64::from(info.preferred_bytes) / SECTOR_BYTES) as u32;
    put(36, &RANGE_SECTORS_MAX.to_le_bytes());
    put(40, &(RANGES_MAX as u32).to_le_bytes());
    put(44, &alignment.to_le_bytes());
    put(48, &RANGE_SECTORS_MAX.to_le_bytes());
    put(52, &(RANGES_MAX as u32).to_le_bytes());
    put(56, &[1]);
    space
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_says_what_the_volume_is() {
        let info = VolumeInfo {
            size_bytes: 3 << 30,
            sector_bytes: 512,
            preferred_bytes: 4096,
            transfer_bytes_max: 1 << 20,
            read_only: false,
        };
        let space = config(&info);
        assert_eq!(u64::from_le_bytes(space[..8].try_into().unwrap()), 3 << 21);
        assert_eq!(u32::from_le_bytes(space[20..24].try_into().unwrap()), 512);
        assert_eq!(space[24], 3, "eight sectors are a block");
        assert_eq!(u16::from_le_bytes(space[34..36].try_into().unwrap()), QUEUES_MAX);
        assert_ne!(offered(&info) & feature::DISCARD, 0);
        let read_only = VolumeInfo { read_only: true, ..info };
        assert_eq!(offered(&read_only) & feature::WRITE_ZEROES, 0);
        assert_ne!(offered(&read_only) & feature::READ_ONLY, 0);
    }
}
