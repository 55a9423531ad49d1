//! Attacks on volumes: seeds, an oracle, and power cuts at every point.
//!
//! * [`Oracle`] knows every value a block may hold; [`stamp`] makes data that names itself.
//! * [`Watched`] is a volume under the oracle's eyes, and [`Workload`] a seeded mixture of clients
//!   that check whatever they read.
//! * [`enumerate`] plays a [`Scenario`] once for each operation that its drives receive, cuts the
//!   power there, lets the caches lose what each rule says, and asks the oracle.
//! * [`Subject`] is what is attacked: the engine ([`Bimetal`], with its [`stories`]), or a volume
//!   made wrong on purpose, to show that the hunt would notice.

mod alone;
mod bimetal;
mod enumerate;
mod failure;
mod history;
mod oracle;
mod play;
mod report;
mod scenario;
mod sector;
mod stories;
mod subject;
mod watched;
mod workload;

pub use alone::Alone;
pub use bimetal::Bimetal;
pub use enumerate::enumerate;
pub use failure::{Cut, Failure, Fall};
pub use oracle::{BLOCK_BYTES, Deed, Flushing, Oracle, Reading};
pub use report::{Effort, Report};
pub use scenario::{Curtain, Scenario, Stage};
pub use sector::{SECTOR_BYTES, Value, identify, stamp};
pub use stories::{deferred_mixture, endurance, mixture, stories};
pub use subject::{Subject, Survivor};
pub use watched::{Trouble, Watched};
pub use workload::Workload;
