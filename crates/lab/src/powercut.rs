//! Does a drive keep its word when the plug is pulled?
//!
//! A *writer* fills a part of the drive with sectors that say which write they are of, in epochs:
//! some writes, then a flush. After each flush that the drive has acknowledged it tells a
//! *witness* on another machine (or in another process, when only the drive loses power). After
//! the cut a *verifier* reads the drive and compares it with what the witness has recorded.
//!
//! * Everything that is written follows from the [`Run`]: place and length of each write, how many
//!   are under way at once, how many make an epoch. So the record need only name epochs.
//! * Within an epoch no two writes share a place; an epoch begins when the flush of the one before
//!   has been acknowledged. So an honest drive has one order of epochs.
//! * What the witness has recorded was acknowledged. What it has not recorded may have been: word
//!   may have been under way when the plug was pulled. That is in favour of the drive.

mod plan;
mod record;
mod sector;
mod verdict;
mod witness;
mod writer;

pub use plan::{Run, SLOT_BYTES, Write};
pub use record::{Acknowledged, Record, RecordError};
pub use verdict::{Order, Verdict, verify};
pub use witness::{Told, Wire, listen};
pub use writer::{End, Witness, Written, write};
