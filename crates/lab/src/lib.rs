//! Questions put to drives, real and simulated: does a flush flush, and how long does it take.
//!
//! Everything here works on an [`io::Device`], so the same experiment runs on a disk behind the
//! kernel and on a twin in virtual time. It knows nothing of bimetal volumes.

pub mod compare;
pub mod fio;
pub mod flush;
pub mod powercut;
pub mod reference;
