//! Questions put to drives, real and simulated.
//!
//! * [`fio`]: workloads as fio job files, played in any world.
//! * [`bench`]: where they are played: a twin, two twins fused by the engine, a real drive.
//! * [`experiment`]: the published experiments, as steps of such workloads, and what they showed.
//! * [`reference`] and [`compare`]: what was published, and how near the twins come.
//! * [`report`]: one page of it all.
//! * [`trace`], [`miss_ratio`] and [`placement`]: what somebody's drive was asked, and what
//!   caches and placement policies would have made of it.
//! * [`probe`] and [`fit`]: one's own drive is measured and becomes a twin.
//! * [`replay`]: traces played again on volumes of twins, and how large a fast drive should be.
//! * [`durability`]: what strict and deferred flushes cost over a drive that flushes slowly.
//! * [`flush`] and [`powercut`]: does a flush flush, how long does it take, and is it kept.

pub mod bench;
pub mod compare;
pub mod durability;
pub mod experiment;
pub mod fio;
pub mod fit;
pub mod flush;
pub mod miss_ratio;
pub mod placement;
pub mod powercut;
pub mod probe;
pub mod reference;
pub mod replay;
pub mod report;
pub mod trace;
