//! A trace played through a volume of two drives under one policy.
//!
//! * Reads are answered by the log, the stage, the fast drive, else by the slow drive.
//! * Writes go to the fast drive where the extent lives there, else to the log; a stream finds the
//!   log only while it is less than half full.
//! * A promoted extent keeps its copy below until it is written: leaving is free as long.
//! * When clients rest is taken from the trace's times ([`Rests`]); moves in a rest are in nobody's way, but cost the
//!   slow drive's time as all others do.
//! * What is left in the log at the end is brought home, and counts.

use hdrhistogram::Histogram;

use super::Row;
use super::contender::{Contender, Moment};
use super::ground::{Extent, Ground, PAGE_BYTES, Part};
use super::landing::Landing;
use super::rests::Rests;
use super::slow_drive::SlowDrive;
use super::stage::{Stage, Staged};
use crate::trace::{Deed, Event};
use policy::{Decisions, FastDrive, Measured, Occasion, Standing, Streams, Touch};

/// Time of a request that the slow drive has no part in.
const FAST_US: f64 = 100.0;

/// Share of the fast drive that the landing log takes, and its largest size.
const LOG_SHARE: f64 = 0.04;
const LOG_BYTES_MAX: f64 = (4u64 << 30) as f64;

/// What leaves the log at once, to be sorted by address: one part in so many of the log.
const DESTAGE_PARTS: usize = 8;

/// The fast drive and the RAM.
#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Extents that fit on the fast drive beside the log.
    pub slots: usize,
    /// Bytes of the landing log.
    pub log_bytes: u64,
    /// Extents that fit into the stage.
    pub stage: usize,
}

impl Setup {
    /// No fast drive.
    pub fn bare() -> Setup {
        Setup { slots: 0, log_bytes: 0, stage: 0 }
    }

    /// A fast drive of so many percent of what the trace touches, log included, with a stage of
    /// 1 % of what it touches, at least four extents.
    pub fn percent_of(ground: &Ground, percent: f64) -> Setup {
        let fast = (ground.extents() as f64 * percent / 100.0).max(1.0);
        let bytes = fast * ground.extent_bytes() as f64;
        let log_bytes = (bytes * LOG_SHARE).min(LOG_BYTES_MAX);
        let slots = (fast - log_bytes / ground.extent_bytes() as f64).max(1.0) as usize;
        let stage = (ground.extents() / 100).max(4);
        Setup { slots, log_bytes: log_bytes as u64, stage }
    }
}

/// What came of it.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Reads asked, and those that did not need the slow drive.
    pub reads: u64,
    /// See `reads`.
    pub read_hits: u64,
    /// Bytes that clients read or wrote.
    pub client_bytes: u64,
    /// Time the slow drive was busy.
    pub slow_busy_s: f64,
    /// Of that, bringing blocks of the log home.
    pub destage_s: f64,
    /// Bytes that moves wrote to the fast drive.
    pub promoted_bytes: u64,
    /// Bytes that moves brought back to the slow drive.
    pub demoted_bytes: u64,
    /// Sum of the requests' times.
    pub total_us: f64,
    /// Requests.
    pub requests: u64,
    /// Half of the requests took no longer, 99 of 100, and 999 of 1000.
    pub p50_us: f64,
    /// See `p50_us`.
    pub p99_us: f64,
    /// See `p50_us`.
    pub p999_us: f64,
    /// What the policy allowed and refused, by reason.
    pub decisions: Decisions,
}

impl Outcome {
    pub(super) fn row(&self, trace: &str, policy: &str, percent: f64, bare_s: f64) -> Row {
        let share = |bytes: u64| bytes as f64 / self.client_bytes.max(1) as f64;
        Row {
            trace: trace.to_owned(),
            policy: policy.to_owned(),
            size_percent: percent,
            read_hit: self.read_hits as f64 / self.reads.max(1) as f64,
            slow_busy_s: self.slow_busy_s,
            destage_s: self.destage_s,
            slow_busy_percent: 100.0 * self.slow_busy_s / bare_s,
            fast_written_per_byte: share(self.promoted_bytes),
            moved_per_byte: share(self.promoted_bytes + self.demoted_bytes),
            mean_us: self.total_us / self.requests.max(1) as f64,
            p50_us: self.p50_us,
            p99_us: self.p99_us,
            p999_us: self.p999_us,
            decisions: self.decisions.named().into_iter().collect(),
        }
    }
}

/// Plays all of it.
pub fn replay(
    events: &[Event],
    ground: &Ground,
    setup: &Setup,
    policy: &mut dyn Contender,
) -> Outcome {
    let log_bytes = if policy.has_log() { setup.log_bytes } else { 0 };
    let mut volume = Volume {
        ground,
        policy,
        slow: SlowDrive::default(),
        landing: Landing::new(log_bytes),
        stage: Stage::new(setup.stage),
        streams: Streams::default(),
        residence: vec![Residence::Slow; ground.extents()],
        free: setup.slots,
        outcome: Outcome::default(),
    };
    for extent in volume.policy.residents() {
        volume.residence[extent.index()] = Residence::Clean;
        volume.free -= 1;
    }
    let rests = Rests::of(events);
    // Latencies from a tenth of a millisecond to minutes, two digits.
    let mut latencies = Histogram::<u64>::new_with_bounds(1, 600_000_000, 2).expect("bounds");
    for (request, event) in events.iter().enumerate() {
        let taken_us = match event.deed {
            Deed::Read | Deed::Write if event.length > 0 => volume.serve(request as u64, event),
            _ => continue,
        };
        volume.move_planned(Moment { request: request as u64, rest_s: rests.after_s(request) });
        volume.outcome.requests += 1;
        volume.outcome.total_us += taken_us;
        latencies.saturating_record(taken_us as u64);
    }
    volume.settle_debts();
    let mut outcome = volume.outcome;
    outcome.slow_busy_s = volume.slow.busy_s;
    let within = |share: f64| latencies.value_at_quantile(share) as f64;
    (outcome.p50_us, outcome.p99_us, outcome.p999_us) = (within(0.5), within(0.99), within(0.999));
    outcome
}

/// Where an extent's home is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Residence {
    Slow,
    /// On the fast drive, and the copy below is as new.
    Clean,
    /// On the fast drive, newer than below.
    Dirty,
}

/// What the policy is shown of the fast drive.
struct View<'a> {
    residence: &'a [Residence],
    free: usize,
}

impl FastDrive for View<'_> {
    fn free(&self) -> u64 {
        self.free as u64
    }

    fn may_leave(&self, extent: Extent) -> bool {
        self.residence[extent.index()] != Residence::Slow
    }
}

struct Volume<'a> {
    ground: &'a Ground,
    policy: &'a mut dyn Contender,
    slow: SlowDrive,
    landing: Landing,
    stage: Stage,
    streams: Streams,
    residence: Vec<Residence>,
    free: usize,
    outcome: Outcome,
}

impl Volume<'_> {
    /// One request; its time in microseconds.
    fn serve(&mut self, request: u64, event: &Event) -> f64 {
        let is_write = event.deed == Deed::Write;
        let Standing { continues, is_stream } = self.streams.take(event.offset, event.length);
        self.outcome.client_bytes += event.length;
        let ground = self.ground;
        let mut slow_s = 0.0;
        for part in ground.parts(event) {
            let is_resident = self.residence[part.extent.index()] != Residence::Slow;
            let (extent, bytes) = (part.extent, part.length);
            let touch = Touch { extent, is_write, is_stream, is_resident, bytes, request };
            self.policy.observe(&touch);
            slow_s += if is_write {
                self.write(&part, is_stream)
            } else {
                self.read(&part, &touch, continues)
            };
        }
        if !is_write {
            self.outcome.reads += 1;
            self.outcome.read_hits += u64::from(slow_s == 0.0);
        }
        FAST_US + slow_s * 1e6
    }

    /// What the policy wants up without a request for it, in the order of addresses.
    fn move_planned(&mut self, moment: Moment) {
        let ground = self.ground;
        let view = View { residence: &self.residence, free: self.free };
        let mut plan = self.policy.plan(moment, &view);
        plan.sort_by_key(|(extent, _)| ground.address(*extent));
        for (extent, leaving) in plan {
            if self.residence[extent.index()] == Residence::Slow {
                self.slow.read(ground.address(extent), ground.extent_bytes());
                self.promote(extent, leaving);
                self.outcome.decisions.count_admission(Occasion::Rest, &Ok(()));
            }
        }
    }

    fn read(&mut self, part: &Part, touch: &Touch, continues: bool) -> f64 {
        let extent = part.extent;
        if self.residence[extent.index()] != Residence::Slow
            || self.landing.holds(extent, part.pages) == part.pages.1 - part.pages.0
            || self.stage.touch(extent)
        {
            return 0.0;
        }
        let view = View { residence: &self.residence, free: self.free };
        let around = self.stage.is_there().then(|| self.policy.reads_around(touch, &view));
        if let Some(decision) = around {
            self.outcome.decisions.count_around(decision);
        }
        if around == Some(Ok(())) {
            // The client waits for its part; the rest passes under the head behind it.
            let extent_bytes = self.ground.extent_bytes();
            let address = self.ground.address(extent);
            let taken_s = self.slow.read(address, extent_bytes);
            if !continues {
                self.policy.took(Measured::Around, taken_s * 1e3);
            }
            let behind = address + extent_bytes - (part.at + part.length);
            if let Some(Staged { extent, touched, by_stream }) =
                self.stage.enter(extent, touch.is_stream)
            {
                if !by_stream {
                    self.policy.left_stage(touched);
                }
                self.consider(extent, Occasion::LeavesStage { touched });
            }
            return taken_s - SlowDrive::transfer_s(behind);
        }
        match self.consider(extent, Occasion::Missed { is_stream: touch.is_stream }) {
            // All of it was read, this part too.
            Some(taken_s) => taken_s,
            None => {
                let taken_s = self.slow.read(part.at, part.length);
                if touch.is_stream {
                    self.policy.took(Measured::Stream(part.length), taken_s * 1e3);
                }
                taken_s
            }
        }
    }

    fn write(&mut self, part: &Part, is_stream: bool) -> f64 {
        let residence = &mut self.residence[part.extent.index()];
        if *residence != Residence::Slow {
            *residence = Residence::Dirty;
            return 0.0;
        }
        if !self.landing.is_there() || (is_stream && self.landing.is_half_full()) {
            return self.slow.write(part.at, part.length);
        }
        self.landing.write(part.extent, part.pages);
        if self.landing.is_over_full() {
            let batch = self.landing.oldest(self.landing.capacity_pages() / DESTAGE_PARTS + 1);
            self.destage(batch);
        }
        0.0
    }

    /// Brings blocks of the log home, sorted by address.
    fn destage(&mut self, mut batch: Vec<Extent>) {
        batch.sort_by_key(|extent| self.ground.address(*extent));
        for extent in batch {
            let extent_pages = (self.ground.extent_bytes() / PAGE_BYTES) as u16;
            if self.residence[extent.index()] == Residence::Slow {
                let pieces = self.landing.runs(extent, extent_pages).len();
                self.consider(extent, Occasion::Destaged { pieces });
            }
            let Some(pages) = self.landing.take(extent) else { continue };
            if self.residence[extent.index()] != Residence::Slow {
                self.residence[extent.index()] = Residence::Dirty;
                continue;
            }
            let address = self.ground.address(extent);
            for (first, behind) in pages.runs(extent_pages) {
                let length = u64::from(behind - first) * PAGE_BYTES;
                self.outcome.destage_s +=
                    self.slow.write(address + u64::from(first) * PAGE_BYTES, length);
            }
        }
    }

    /// Asks the policy whether an extent may go up, and takes it there. The time it took to read
    /// it, if it goes.
    fn consider(&mut self, extent: Extent, occasion: Occasion) -> Option<f64> {
        if self.residence[extent.index()] != Residence::Slow {
            return None;
        }
        let view = View { residence: &self.residence, free: self.free };
        let decision = self.policy.admit(extent, occasion, &view);
        self.outcome.decisions.count_admission(occasion, &decision);
        let leaving = decision.ok()?;
        assert!(self.free > 0 || leaving.is_some(), "the policy chooses who leaves");
        let mut taken_s = 0.0;
        // From the stage all of it is in RAM; otherwise the rest must be read.
        if !matches!(occasion, Occasion::LeavesStage { .. }) && !self.stage.has(extent) {
            let pages = (0, (self.ground.extent_bytes() / PAGE_BYTES) as u16);
            if self.landing.holds(extent, pages) < pages.1 {
                let address = self.ground.address(extent);
                taken_s = self.slow.read(address, self.ground.extent_bytes());
            }
        }
        self.promote(extent, leaving);
        Some(taken_s)
    }

    fn promote(&mut self, extent: Extent, leaving: Option<Extent>) {
        if let Some(leaving) = leaving {
            self.demote(leaving);
        }
        self.free -= 1;
        let newer = self.landing.take(extent).is_some();
        self.residence[extent.index()] = if newer { Residence::Dirty } else { Residence::Clean };
        self.outcome.promoted_bytes += self.ground.extent_bytes();
    }

    fn demote(&mut self, extent: Extent) {
        let residence = std::mem::replace(&mut self.residence[extent.index()], Residence::Slow);
        assert!(residence != Residence::Slow, "only what is there can leave");
        self.free += 1;
        if residence == Residence::Dirty {
            self.slow.write(self.ground.address(extent), self.ground.extent_bytes());
            self.outcome.demoted_bytes += self.ground.extent_bytes();
        }
    }

    /// At the end: the log is brought home. What lives above stays there.
    fn settle_debts(&mut self) {
        let mut rest = self.landing.all();
        rest.sort_by_key(|extent| self.ground.address(*extent));
        for extent in rest {
            let Some(pages) = self.landing.take(extent) else { continue };
            let address = self.ground.address(extent);
            let extent_pages = (self.ground.extent_bytes() / PAGE_BYTES) as u16;
            for (first, behind) in pages.runs(extent_pages) {
                let length = u64::from(behind - first) * PAGE_BYTES;
                self.outcome.destage_s +=
                    self.slow.write(address + u64::from(first) * PAGE_BYTES, length);
            }
        }
    }
}
