//! Doors: each speaks a protocol on one side and calls an [`io::Volume`] on the other.

pub mod control;
pub mod fuse;
pub mod nbd;
