//! A policy in the comparison: what a replay asks beyond what the engine asks.

use super::ground::Extent;
use policy::{FastDrive, Heat, Policy};

/// A moment between two requests.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// The request that has just ended.
    pub request: u64,
    /// How long clients ask for nothing from now on, in seconds; infinite where the trace does not say.
    pub rest_s: f64,
}

/// See the head of the file.
pub trait Contender: Policy {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Whether it has a landing log in front of the slow drive.
    fn has_log(&self) -> bool {
        true
    }

    /// What is on the fast drive from the start, brought there before the clock runs.
    fn residents(&self) -> Vec<Extent> {
        Vec::new()
    }

    /// Extents to bring up now, without a request for them, each with the one to leave for it.
    fn plan(&mut self, _moment: Moment, _fast: &dyn FastDrive) -> Vec<(Extent, Option<Extent>)> {
        Vec::new()
    }
}

impl Contender for Heat {
    fn name(&self) -> &'static str {
        "heat"
    }
}
