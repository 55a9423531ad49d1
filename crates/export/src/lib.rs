//! Doors: each speaks a protocol on one side and calls an [`io::Volume`] on the other.
//!
//! * [`nbd`]: network block device, over unix sockets and TCP.
//! * [`fuse`]: the volume as one file, and that file as a loop device.
//! * [`ublk`]: the volume as a block device of this machine, without a mount.
//! * [`vhost_user`]: the volume as a virtio disk of a virtual machine.
//! * [`control`]: questions and orders to a running server.
//! * [`Metered`]: a volume that counts what passes through it, and records it for who wants a trace.

pub mod control;
pub mod fuse;
mod meter;
pub mod nbd;
mod recorder;
pub mod ublk;
pub mod vhost_user;

pub use meter::{KindMeter, LATENCY_MAX_NS, Meter, Metered};
pub use recorder::{Asked, AskedKind, Batch};
