//! Attacks on volumes: seeds, an oracle, and power cuts at every point.
//!
//! * [`Oracle`] knows every value a block may hold; [`stamp`] makes data that names itself.
//! * [`Watched`] is a volume under the oracle's eyes, and [`Workload`] a seeded mixture of clients
//!   that check whatever they read.
//! * [`enumerate`] plays a [`Scenario`] once for each operation that its drives receive, cuts the
//!   power there, lets the caches lose what each rule says, and asks the oracle.
//! * [`Subject`] is what is attacked: the engine ([`Bimetal`], with its [`stories`]), or a volume
//!   made wrong on purpose, to show that the hunt would notice.

mod account;
mod allowed;
mod alone;
#[cfg(feature = "canaries")]
mod aviary;
mod bereft;
mod bimetal;
mod campaign;
mod deaths;
mod enumerate;
mod failure;
#[cfg(feature = "canaries")]
mod haunts;
mod history;
mod journal;
mod looks;
mod nature;
mod oracle;
mod play;
mod player;
mod report;
mod rot;
mod run;
mod scenario;
mod sector;
mod shrink;
mod steps;
mod stories;
mod subject;
mod swarm;
mod tale;
mod tally;
mod trace;
mod trial;
mod watched;
mod workload;

pub use allowed::Allowed;
pub use alone::Alone;
#[cfg(feature = "canaries")]
pub use aviary::{Caught, Chase, Ground, Hunter, hunt_canaries, hunt_canary};
pub use bimetal::{Bimetal, Cached, Keeping, Remarried, Widowed};
pub use campaign::{Bag, Campaign, Kill, Smaller};
pub use enumerate::enumerate;
pub use failure::{Cut, Failure, Fall};
#[cfg(feature = "canaries")]
pub use haunts::FREE;
pub use oracle::{BLOCK_BYTES, Deed, Flushing, Oracle, Reading};
pub use player::Wrong;
pub use report::{Effort, Report};
pub use run::{Found, run};
pub use scenario::{Curtain, Scenario, Stage};
pub use sector::{SECTOR_BYTES, Value, identify, stamp};
pub use shrink::{Shrunk, shrink};
pub use steps::Step;
pub use stories::{
    alone_stories, attach_stories, cache_stories, deferred_mixture, endurance, keeping_stories,
    mixture, stories,
};
pub use subject::{Prey, Subject};
pub use swarm::Trail;
pub use tale::{Tale, tales};
pub use tally::Tally;
pub use trial::{Damage, End, Life, Mischief, Phase, Setting, Trial};
pub use watched::{Trouble, Watched};
pub use workload::Workload;
