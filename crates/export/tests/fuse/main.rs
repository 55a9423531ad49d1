//! The FUSE door and its loop devices against the kernel and its tools.
//!
//! Every test serves a volume in memory from a thread of its own and uses the file like any
//! program would. What this machine does not allow (no FUSE, not root, a tool missing) is skipped,
//! and said so on the terminal.

mod file;
mod killed;
mod loop_device;
#[path = "../memory/mod.rs"]
mod memory;
mod mount;
mod server;
