//! What the kernel's ublk driver and its servers say to each other: numbers and layouts.
//!
//! From the description in the kernel's `include/uapi/linux/ublk_cmd.h`. All in host byte order.
//! Only what is used here is named.

/// Where devices are made and ended.
pub(super) const CONTROL_PATH: &str = "/dev/ublk-control";

/// `_IOC` of type `u`: direction, size of what is passed, number.
const fn ioctl(direction: u32, bytes: usize, number: u32) -> u32 {
    direction << 30 | (bytes as u32) << 16 | (b'u' as u32) << 8 | number
}

const READ: u32 = 2;
const READ_WRITE: u32 = 3;

/// Commands to the control device.
pub(super) mod control {
    use super::{READ, READ_WRITE, ioctl};

    pub(crate) const COMMAND_BYTES: usize = 32;
    pub(crate) const GET_INFO: u32 = ioctl(READ, COMMAND_BYTES, 0x02);
    pub(crate) const ADD: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x04);
    pub(crate) const DELETE: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x05);
    pub(crate) const START: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x06);
    pub(crate) const STOP: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x07);
    pub(crate) const SET_PARAMETERS: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x08);
    pub(crate) const START_RECOVERY: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x10);
    pub(crate) const END_RECOVERY: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x11);
}

/// Commands to a device, for one place of one queue.
pub(super) mod place {
    use super::{READ_WRITE, ioctl};

    const COMMAND_BYTES: usize = 16;
    /// Answered when there is a request.
    pub(crate) const FETCH: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x20);
    /// Ends the request, and fetches the next.
    pub(crate) const COMMIT_AND_FETCH: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x21);

    /// Puts the memory of the request into the ring's table of buffers. Answered at once.
    pub(crate) const LEND: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x23);
    /// Takes it out again. Answered at once.
    pub(crate) const TAKE_BACK: u32 = ioctl(READ_WRITE, COMMAND_BYTES, 0x24);

    /// A command that fetches. `result` is bytes or a negative errno.
    pub(crate) fn command(queue: u16, tag: u16, result: i32) -> [u8; COMMAND_BYTES] {
        with_slot(queue, tag, result, 0)
    }

    /// A command about the request's memory, and its place in the table.
    pub(crate) fn memory(queue: u16, tag: u16, slot: u16) -> [u8; COMMAND_BYTES] {
        with_slot(queue, tag, 0, u64::from(slot))
    }

    fn with_slot(queue: u16, tag: u16, result: i32, slot: u64) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[..2].copy_from_slice(&queue.to_ne_bytes());
        bytes[2..4].copy_from_slice(&tag.to_ne_bytes());
        bytes[4..8].copy_from_slice(&result.to_ne_bytes());
        bytes[8..].copy_from_slice(&slot.to_ne_bytes());
        bytes
    }
}

/// Features of a device.
pub(super) mod feature {
    /// The memory of requests can be lent to our ring (Linux 6.15).
    pub(crate) const LENDS: u64 = 1 << 0;
    /// A device outlives its server.
    pub(crate) const RECOVERY: u64 = 1 << 3;
    /// What its server had not answered is given to the next.
    pub(crate) const RECOVERY_REISSUE: u64 = 1 << 4;
    /// Data is copied by reading and writing the device's file.
    pub(crate) const USER_COPY: u64 = 1 << 7;
}

/// States of a device.
pub(super) mod state {
    pub(crate) const DEAD: u16 = 0;
    pub(crate) const LIVE: u16 = 1;
    pub(crate) const QUIESCED: u16 = 2;
}

/// Kinds of requests.
pub(super) mod kind {
    pub(crate) const READ: u32 = 0;
    pub(crate) const WRITE: u32 = 1;
    pub(crate) const FLUSH: u32 = 2;
    pub(crate) const DISCARD: u32 = 3;
    pub(crate) const WRITE_ZEROES: u32 = 5;
    /// The kind among a request's flags.
    pub(crate) const MASK: u32 = 0xff;
}

/// Flags of requests.
pub(super) mod flag {
    pub(crate) const FORCE_UNIT_ACCESS: u32 = 1 << 13;
    pub(crate) const NO_UNMAP: u32 = 1 << 15;
}

/// A device, as the driver and its server describe it to each other.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) queue_depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) request_bytes_max: u32,
    pub(super) id: u32,
    pub(super) server_pid: i32,
    pub(super) pad1: u32,
    pub(super) features: u64,
    /// The server's own: the driver only keeps it.
    pub(super) mark: u64,
    pub(super) owner_uid: u32,
    pub(super) owner_gid: u32,
    pub(super) reserved: [u64; 2],
}

/// What kind of disk a device is.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Parameters {
    /// Of all this.
    pub(super) bytes: u32,
    /// Which of the parts below count.
    pub(super) parts: u32,
    pub(super) basic: Basic,
    pub(super) discard: Discard,
}

impl Parameters {
    pub(super) const BASIC: u32 = 1 << 0;
    pub(super) const DISCARD: u32 = 1 << 1;
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Basic {
    pub(super) attributes: u32,
    /// Block sizes as powers of two.
    pub(super) logical_shift: u8,
    pub(super) physical_shift: u8,
    pub(super) optimal_shift: u8,
    pub(super) smallest_shift: u8,
    pub(super) request_sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) size_sectors: u64,
    pub(super) boundary_mask: u64,
}

impl Basic {
    pub(super) const READ_ONLY: u32 = 1 << 0;
    pub(super) const ROTATIONAL: u32 = 1 << 1;
    pub(super) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(super) const FORCE_UNIT_ACCESS: u32 = 1 << 3;
}

#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Discard {
    pub(super) alignment_bytes: u32,
    pub(super) granularity_bytes: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) zero_sectors_max: u32,
    pub(super) discard_segments_max: u16,
    pub(super) reserved: u16,
}

/// The bit of a device's mark that says that the disk takes no writes.
pub(super) const MARK_READ_ONLY: u64 = 1;

/// One request, in the memory that the driver shares.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Request {
    /// Kind and flags.
    pub(super) what: u32,
    pub(super) sectors: u32,
    pub(super) first_sector: u64,
    address: u64,
}

/// Bytes of the driver's sectors, whatever a device's block size.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Most places of a queue; what queues have in the device's file lies as far apart as if they all
/// had as many.
const QUEUE_DEPTH_MAX: usize = 4096;

/// Where the data of requests begins in a device's file.
const DATA_AT: u64 = 0x8000_0000;

/// Where the requests of a queue are in the device's file, for mapping.
pub(super) fn requests_at(queue: u16, page_bytes: usize) -> u64 {
    let stride = (QUEUE_DEPTH_MAX * size_of::<Request>()).next_multiple_of(page_bytes);
    u64::from(queue) * stride as u64
}

/// Where the data of a request is in the device's file, for reading and writing.
pub(super) fn data_at(queue: u16, tag: u16) -> u64 {
    DATA_AT + (u64::from(queue) << 41) + (u64::from(tag) << 25)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    /// As a C compiler lays the kernel's structures out.
    #[test]
    fn layouts_are_the_kernel_s() {
        assert_eq!(size_of::<DeviceInfo>(), 64);
        assert_eq!(offset_of!(DeviceInfo, request_bytes_max), 8);
        assert_eq!(offset_of!(DeviceInfo, server_pid), 16);
        assert_eq!(offset_of!(DeviceInfo, features), 24);
        assert_eq!(offset_of!(DeviceInfo, mark), 32);
        assert_eq!(offset_of!(DeviceInfo, owner_uid), 40);
        assert_eq!(size_of::<Request>(), 24);
        assert_eq!(offset_of!(Request, first_sector), 8);
        assert_eq!(size_of::<Basic>(), 32);
        assert_eq!(offset_of!(Basic, size_sectors), 16);
        assert_eq!(offset_of!(Parameters, basic), 8);
        assert_eq!(offset_of!(Parameters, discard), 40);
        assert_eq!(size_of::<Discard>(), 20);
        assert_eq!(offset_of!(Discard, discard_segments_max), 16);
    }

    #[test]
    fn numbers_are_the_kernel_s() {
        assert_eq!(control::ADD, 0xc020_7504);
        assert_eq!(control::GET_INFO, 0x8020_7502);
        assert_eq!(control::END_RECOVERY, 0xc020_7511);
        assert_eq!(place::FETCH, 0xc010_7520);
        assert_eq!(place::COMMIT_AND_FETCH, 0xc010_7521);
        assert_eq!(place::LEND, 0xc010_7523);
        assert_eq!(place::TAKE_BACK, 0xc010_7524);
        assert_eq!(place::memory(1, 2, 300)[8..], 300u64.to_ne_bytes());
        assert_eq!(requests_at(3, 4096), 3 * 98_304);
        assert_eq!(data_at(1, 2), 0x8000_0000 + (1 << 41) + (2 << 25));
        let command = place::command(1, 0x203, -5);
        assert_eq!(u16::from_ne_bytes([command[2], command[3]]), 0x203);
        assert_eq!(i32::from_ne_bytes(command[4..8].try_into().unwrap()), -5);
        assert_eq!(command[8..], [0; 8]);
    }
}
