//! The policies to compare: what is published, what knows the future, and our own.

mod clairvoyant;
mod epoch_oracle;
mod fixed;
mod fusion;
mod lru;
mod multi_queue;
mod order;
mod s3_fifo;

pub use clairvoyant::Clairvoyant;
pub use epoch_oracle::EpochOracle;
pub use fixed::Fixed;
pub use fusion::Fusion;
pub use lru::Lru;
pub use multi_queue::MultiQueue;
pub use s3_fifo::S3Fifo;

use super::contender::{Contender, Moment};
use super::ground::{Extent, Ground};
use super::slow_drive::SlowDrive;
use crate::trace::{Deed, Event};
pub use policy::Heat;
use policy::{FastDrive, Occasion, Policy, Refusal, Touch};

/// No placement at all: the log alone, or not even that.
pub struct Nothing;

impl Policy for Nothing {}

impl Contender for Nothing {
    fn name(&self) -> &'static str {
        "log only"
    }
}

/// Time that the parts of each request would take on the slow drive alone: extent, request, seconds,
/// and whether it writes. What offline policies plan with.
fn costs(events: &[Event], ground: &Ground, mut tell: impl FnMut(Extent, usize, f64, bool)) {
    let mut slow = SlowDrive::default();
    for (request, event) in events.iter().enumerate() {
        let is_write = event.deed == Deed::Write;
        for part in ground.parts(event) {
            let taken_s = if is_write {
                slow.write(part.at, part.length)
            } else {
                slow.read(part.at, part.length)
            };
            tell(part.extent, request, taken_s, is_write);
        }
    }
}
