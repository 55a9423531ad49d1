//! The seam: everything bimetal waits for goes through this crate.
//!
//! * [`Io`]: one single-threaded, deterministic executor with tasks, a clock and timers.
//! * [`World`]: what stands behind it. Production is io_uring (or a thread pool where the
//!   kernel refuses io_uring); tests and the laboratory are simulated drives under virtual time.
//! * [`Device`], [`Socket`], [`Listener`]: handles that submit operations to the world.
//! * [`Buf`] and [`Pool`]: owned, 4 KiB-aligned buffers from one arena, with headroom.
//! * [`Event`], [`Driver`], [`Watch`]: what other processes and drivers give a door to work with.
//! * [`Hands`]: tasks that take one job after another.
//! * [`mailbox()`]: values from other threads, awaited by a task.
//! * [`Volume`]: what a door (NBD, FUSE, …) serves.
//!
//! The crate knows nothing about tiers, protocols or the kernel. It depends on std alone.

mod buf;
mod device;
mod error;
mod executor;
mod foreign;
mod hands;
mod mailbox;
mod op;
mod socket;
pub mod units;
mod volume;
mod wait;
mod world;

pub use buf::{Buf, HEADROOM_BYTES, Pool, PoolUse};
pub use device::{Command, Device, DeviceInfo, Transfer};
pub use error::{ErrorKind, IoError};
pub use executor::{Io, Sleep};
pub use foreign::{Commanding, Driver, Event, Raising, Waiting, Watch};
pub use hands::Hands;
pub use mailbox::{Receiver, Sender, Undelivered, mailbox};
pub use op::{Completed, DeviceId, Lent, Op, OpId, SocketId};
pub use socket::{Accepting, Listener, Socket, Transferring};
pub use volume::{Durability, Place, Span, Volume, VolumeInfo, Worth, ZeroMode};
pub use wait::{Gate, Pass, WaitList, WaitPlace};
pub use world::{Foreign, Park, Unpark, World};
