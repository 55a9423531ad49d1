//! The kernel world: carries out [`io::Op`]s on Linux files, block devices and sockets.
//!
//! * [`Kernel::start`] makes the executor and the handle to open things with.
//! * The ring (io_uring) is used where the kernel allows it; a pool of threads with `poll(2)` for
//!   the sockets stands in elsewhere, with the same semantics and the same tests.
//!
//! Who does what: `kernel` is the public face, `drive` opens drives and finds their facts,
//! `listen` binds and adopts sockets, `foreign` judges events and drivers, `desk` holds the operations under way and judges their
//! results, `ring` and `threads` carry them out, `workers` and `blocking` do what only a
//! blocked thread can do, `wakeup` wakes the world from other threads.
//!
//! It decides nothing about data: what is written where is the engine's business.

mod blocking;
mod desk;
mod drive;
mod foreign;
mod kernel;
mod listen;
mod ring;
mod sockets;
mod sysfs;
mod threads;
mod wakeup;
mod workers;

pub use drive::Access;
pub use kernel::{Backend, Kernel, KernelOptions};
