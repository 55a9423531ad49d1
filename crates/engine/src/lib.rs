//! The hybrid disk: two drives become one crash-safe volume.
//!
//! Plain structs decide (`plan_…`, `settle_…`), short async functions wait. Everything waited for
//! comes through the `io` crate, so the same code runs on real drives and in simulation.

mod accesses;
mod address;
mod ahead;
mod alone;
mod attach_cache;
mod backoff;
mod behind;
mod cache_mode;
pub mod canary;
mod carry;
mod check;
mod checkpoint;
mod checksum;
mod cleaning;
mod courtesy;
mod create;
mod deferred;
mod demise;
mod destage;
mod doubts;
mod drive;
mod engine;
mod error;
mod exposure;
mod fast_view;
mod fixed_map;
mod flush;
mod flush_mode;
pub mod format;
mod geometry;
mod guards;
mod homing;
mod inclusion;
mod janitor;
mod kept;
mod lasting_heat;
mod line;
mod log;
mod loss;
mod lull;
mod map;
mod map_repair;
pub mod marks;
mod mover;
mod opening;
mod pace;
mod page_counts;
mod placer;
mod quiet;
mod read;
mod recover;
mod rescue;
mod shared;
mod slots;
mod stage;
mod staging;
mod state;
mod status;
mod superblocks;
mod tuning;
mod verify;
mod whereabouts;
mod wish_hand;
mod wishes;
mod write;
mod zero;

pub use address::{BLOCK_BYTES, BlockId, ExtentId, Home, Lsn, SlotId, Tier};
pub use attach_cache::{attach_cache, can_attach_cache, with_new_fast};
pub use cache_mode::CacheMode;
pub use check::{CheckReport, check};
pub use create::{Identity, Inspection, create, destroy, inspect};
pub use engine::Engine;
pub use error::{Error, Poison};
pub use flush_mode::{Bound, FlushMode};
pub use format::superblock::{State, Superblock, Uuid};
pub use geometry::{Class, CreateOptions, Geometry, Layout, name_problem, plan};
pub use loss::{LossCause, LossSummary, LostRange};
pub use opening::{Member, OpenOptions};
pub use placer::Placement;
pub use policy::{Decisions, GHOST_QUARTERS, HeatLevel};

pub use quiet::{WakeCause, Wakes};
pub use status::{
    BehindStatus, DriveStatus, DriveUse, Exposed, LogStatus, Moves, PolicyStatus, Recovery,
    RequestUse, Served, Status,
};
pub use superblocks::judge;
pub use tuning::{Tuning, TuningChange};
pub use whereabouts::Opinion;
pub use wishes::{Wish, WishRange, Wishes};
