//! The operations a world carries out. The world owns an operation's buffer until it completes,
//! so a dropped future can never leave the kernel writing into freed memory.

use crate::{Buf, IoError};

/// Names one operation in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u32);

/// Names a device of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceId(pub u32);

/// Names a socket, a listener, or another descriptor that a world has adopted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SocketId(pub u32);

/// Memory of the kernel that a driver lends: operations name it by the number under which the driver has
/// put it into the world's table, and data gets there without passing through memory of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lent {
    /// Its number: one of [`crate::Io::lent_slots`].
    pub slot: u16,
    /// Bytes to fill, from its front.
    pub bytes: u32,
}

/// One operation. Offsets and lengths are bytes.
#[derive(Debug)]
pub enum Op {
    /// Fill all of `buf` from the device.
    Read {
        /// Where from.
        device: DeviceId,
        /// Byte offset on the device.
        at: u64,
        /// Filled completely, or the operation fails.
        buf: Buf,
    },
    /// Fill lent memory from the device.
    ReadLent {
        /// Where from.
        device: DeviceId,
        /// Byte offset on the device.
        at: u64,
        /// Filled completely, or the operation fails.
        memory: Lent,
    },
    /// Write all of `buf` to the device. Volatile until a flush.
    Write {
        /// Where to.
        device: DeviceId,
        /// Byte offset on the device.
        at: u64,
        /// Written completely, or the operation fails.
        buf: Buf,
    },
    /// Make every write that completed before this operation was submitted durable.
    Flush {
        /// Which device.
        device: DeviceId,
    },
    /// Tell the device that a range is no longer needed; its content becomes undefined.
    Trim {
        /// Which device.
        device: DeviceId,
        /// Byte offset.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// Make a range read as zeros; the device may deallocate it.
    WriteZeroes {
        /// Which device.
        device: DeviceId,
        /// Byte offset.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// Accept one connection; the result is the new socket's id.
    Accept {
        /// The listener.
        listener: SocketId,
    },
    /// Receive at least one byte into the front of `buf`; the result is the count, 0 at the end.
    Receive {
        /// The connection.
        socket: SocketId,
        /// Filled from its front.
        buf: Buf,
    },
    /// Send all of `buf`, unless the connection ends; the result is the count.
    Send {
        /// The connection.
        socket: SocketId,
        /// What to send.
        buf: Buf,
    },
    /// Wait until somebody raises the event, and take what it counts, which is the result. Of what is only watched
    /// nothing is taken.
    Wait {
        /// The event, or what is watched.
        event: SocketId,
    },
    /// Raise the event by one.
    Raise {
        /// The event.
        event: SocketId,
    },
    /// Give a driver a command; the result is what it answers, whenever it does.
    Command {
        /// The driver's file.
        driver: SocketId,
        /// What the driver knows the command by.
        code: u32,
        /// The command itself.
        payload: [u8; 16],
    },
}

/// An operation that has ended.
#[derive(Debug)]
pub struct Completed {
    /// Which one.
    pub id: OpId,
    /// The buffer it was given, if any.
    pub buf: Option<Buf>,
    /// Bytes moved, a new socket's id, or 0; what that means stands at each [`Op`].
    pub result: Result<u64, IoError>,
}
