//! A story in which power will fail: what the drives are, what happened before, and the act during
//! which the cut comes.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use io::units::MIB;
use twin::{CacheLoss, DriveSpec, Simulation};

use crate::watched::{Trouble, Watched};

/// Where an act plays.
#[derive(Clone)]
pub struct Stage<V> {
    /// The open volume, watched.
    pub volume: Watched<V>,
    /// The machine, for counters and faults.
    pub machine: Simulation,
}

type Playing = Pin<Box<dyn Future<Output = Result<(), Trouble>>>>;
type Act<V> = Box<dyn Fn(Stage<V>) -> Playing + Send + Sync>;

/// How the preparation ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curtain {
    /// The volume is closed well.
    Closed,
    /// Power fails and the caches lose this: the act begins with a recovery.
    Cut(CacheLoss),
    /// The process dies; what it had written lies in the caches still when the act begins.
    Killed,
}

/// A story. The act is: make the volume if the scenario is `fresh`, open it, play, and close it
/// if the scenario is `closing`.
pub struct Scenario<V> {
    /// Its name in reports.
    pub name: &'static str,
    /// Decides everything.
    pub seed: u64,
    /// The fast drive.
    pub fast: DriveSpec,
    /// The slow drive.
    pub slow: DriveSpec,
    /// The volume is made during the act; nothing is prepared.
    pub fresh: bool,
    /// The volume is closed at the end of the act.
    pub closing: bool,
    /// How the preparation ends.
    pub curtain: Curtain,
    /// Bytes of the volume that life after the cut uses.
    pub span: Range<u64>,
    /// It is about the opening of the act, too: cuts begin there.
    pub about_opening: bool,
    /// It is played to its end only: what it does to the drives is more than a cut may.
    pub uncut: bool,
    /// What is left after a cut is closed, and not used on: a cut then would tear what a drive may tear.
    pub ends_with_cut: bool,
    /// Where time counts, cuts come at each so many-th operation: the longest stories have the most.
    pub stride: u64,
    prepare: Act<V>,
    act: Act<V>,
}

impl<V: 'static> Scenario<V> {
    /// A story without content over two drives.
    pub fn new(name: &'static str, seed: u64, fast: DriveSpec, slow: DriveSpec) -> Scenario<V> {
        Scenario {
            name,
            seed,
            fast,
            slow,
            fresh: false,
            closing: false,
            curtain: Curtain::Closed,
            span: 0..2 * MIB,
            about_opening: false,
            uncut: false,
            ends_with_cut: false,
            stride: 1,
            prepare: Box::new(|_| Box::pin(async { Ok(()) })),
            act: Box::new(|_| Box::pin(async { Ok(()) })),
        }
    }

    /// What happens before, without cuts.
    #[must_use]
    pub fn prepare<F>(mut self, prepare: impl Fn(Stage<V>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Trouble>> + 'static,
    {
        self.prepare = Box::new(move |stage| Box::pin(prepare(stage)));
        self
    }

    /// What happens while power may fail.
    #[must_use]
    pub fn act<F>(mut self, act: impl Fn(Stage<V>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), Trouble>> + 'static,
    {
        self.act = Box::new(move |stage| Box::pin(act(stage)));
        self
    }

    /// The volume is made during the act.
    #[must_use]
    pub fn fresh(mut self) -> Self {
        self.fresh = true;
        self
    }

    /// The volume is closed at the end of the act.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.closing = true;
        self
    }

    /// The preparation ends with this cut instead of a close.
    #[must_use]
    pub fn after_cut(mut self, loss: CacheLoss) -> Self {
        self.curtain = Curtain::Cut(loss);
        self
    }

    /// The preparation ends with the death of the process instead of a close.
    #[must_use]
    pub fn after_kill(mut self) -> Self {
        self.curtain = Curtain::Killed;
        self
    }

    /// Cuts begin with the opening of the act.
    #[must_use]
    pub fn about_opening(mut self) -> Self {
        self.about_opening = true;
        self
    }

    /// It is played to its end, and not cut.
    #[must_use]
    pub fn uncut(mut self) -> Self {
        self.uncut = true;
        self
    }

    /// What is left after a cut is not used on.
    #[must_use]
    pub fn ending_with_cut(mut self) -> Self {
        self.ends_with_cut = true;
        self
    }

    /// Where time counts, cuts come at each `stride`-th operation.
    #[must_use]
    pub fn in_strides(mut self, stride: u64) -> Self {
        self.stride = stride;
        self
    }

    pub(crate) async fn play_prepare(&self, stage: Stage<V>) -> Result<(), Trouble> {
        (self.prepare)(stage).await
    }

    pub(crate) async fn play_act(&self, stage: Stage<V>) -> Result<(), Trouble> {
        (self.act)(stage).await
    }
}
