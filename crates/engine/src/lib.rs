//! The hybrid disk: two drives become one crash-safe volume.
//!
//! Plain structs decide (`plan_…`, `settle_…`), short async functions wait. Everything waited for
//! comes through the `io` crate, so the same code runs on real drives and in simulation.

mod address;
mod checksum;
mod create;
mod error;
pub mod format;
mod geometry;
mod status;
mod superblocks;

pub use address::{BLOCK_BYTES, BlockId, ExtentId, Home, Lsn, SlotId, Tier};
pub use create::{Identity, Inspection, create, destroy, inspect};
pub use error::Error;
pub use format::superblock::{State, Superblock, Uuid};
pub use geometry::{Class, CreateOptions, Geometry, Layout, name_problem, plan};
pub use status::{DriveStatus, DriveUse, LogStatus, Moves, Recovery, RequestUse, Served, Status};
