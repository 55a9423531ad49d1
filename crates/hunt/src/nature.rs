//! What a seed decides of a run: the drives, the shape of the volume, what clients do, when it falls
//! and how. Much of it is off in most runs, and some of it comes in bundles that lead to corners
//! which independent draws reach too seldom.

use std::ops::Range;

use engine::format::map_page::ENTRIES_PER_PAGE;
use engine::{Bound, CacheMode, FlushMode, Tier, Tuning, Wish};
use io::units::{GIB, KIB, MIB, MILLISECOND_NS, TIB};
use twin::mix;
use twin::{
    CacheLoss, CutPoint, DriveSpec, Fault, Faults, Harm, Latencies, Moment, Random, ReorderBound,
};

use crate::allowed::Allowed;
use crate::failure::Fall;
use crate::player::{Player, SURE_BOUND_NS, Stopped};
use crate::steps::{Source, Step, Temper};
use crate::trial::{Damage, End, Life, Mischief, Phase, Setting};

/// The smallest landing log, so that it is full and wraps soon.
const LANDING_BYTES: u64 = 4 * MIB;
/// Superblocks and map of the volumes of a hunt.
const FIXED_BYTES: u64 = 2 * MIB;
/// Operations of drives that opening takes: cuts among them meet a recovery.
const OPENING_OPERATIONS: u64 = 20;
/// Operations that destage, a checkpoint and a close take.
const BACKGROUND_OPERATIONS: u64 = 40;
/// What every request takes on drives that are in step.
const STEP_NS: u64 = 100_000;
/// Bounds of deferred mode, in milliseconds: from less than a flush to more than a life.
const BOUNDS_MS: [u32; 5] = [4, 40, 300, 1500, (SURE_BOUND_NS / MILLISECOND_NS) as u32];

/// An end whose fall is decided later.
fn falls_at(phase: Phase, point: Option<CutPoint>) -> End {
    End::Falls { phase, point, fall: Fall::Power(CacheLoss::LoseAll) }
}

fn moment(random: &mut Random) -> Moment {
    match random.below(4) {
        0 => Moment::Before,
        1 => Moment::Completed,
        _ => Moment::Submitted,
    }
}

fn loss(random: &mut Random) -> CacheLoss {
    match random.below(8) {
        0 => CacheLoss::KeepAll,
        1 => CacheLoss::LoseAll,
        2 | 3 => CacheLoss::Subset(random.bits()),
        4 => CacheLoss::Reordered(random.bits()),
        5 => CacheLoss::Bounded(random.bits(), ReorderBound::Changes(random.below(8))),
        _ => CacheLoss::Torn(random.bits()),
    }
}

/// Settings of placement: mostly as they come.
fn tuning(random: &mut Random) -> Tuning {
    if random.chance(50) {
        return Tuning::default();
    }
    Tuning {
        wear_bytes_per_day: random.chance(20).then(|| [MIB, GIB, TIB][random.below(3) as usize]),
        quiet: random.chance(30),
        stage_bytes: [None, Some(0), Some(512 * KIB), Some(8 * MIB)][random.below(4) as usize],
        behind_bytes: [None, Some(64 * KIB), Some(MIB), Some(8 * MIB)][random.below(4) as usize],
        inclusion: false,
    }
}

/// Something that is wished for a part of what clients use.
fn wish(random: &mut Random, extent_bytes: u64) -> Option<(u64, u64, Wish)> {
    let wish = Wish::ALL[random.below(4) as usize];
    let (first, count) = (random.below(40), 1 + random.below(8));
    random.chance(25).then_some((first * extent_bytes, count * extent_bytes, wish))
}

fn flush_mode(random: &mut Random) -> FlushMode {
    let age_ms = BOUNDS_MS[random.below(BOUNDS_MS.len() as u64) as usize];
    let bytes = [MIB, 4 * MIB, 64 * MIB][random.below(3) as usize];
    FlushMode::Deferred(Bound { age_ms, bytes })
}

/// One run in six is of class cache, and one in sixteen changes the mode of it while clients are at work. Drawn
/// apart, so that what else a seed decides stays as it is.
fn cache(seed: u64) -> (Option<CacheMode>, bool) {
    match Random::new(mix(seed ^ 0xcac4e)).below(48) {
        0..2 => (Some(CacheMode::WriteBack), false),
        2..4 => (Some(CacheMode::WriteThrough), false),
        4..5 => (Some(CacheMode::WriteAround), false),
        5..8 => (Some(CacheMode::WriteBack), true),
        _ => (None, false),
    }
}

/// Every third run of class span keeps below what goes up. Drawn apart, as well.
fn inclusion(seed: u64) -> bool {
    cache(seed).0.is_none() && Random::new(mix(seed ^ 0x1c1d)).chance(33)
}

/// What a run is about, if it is about something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Theme {
    Plain,
    /// So much is written, and in such pieces, that the log is full all the time.
    Pressed,
    /// Whole extents are written anew all the time, and made durable: slots change hands.
    Churning,
    /// Clients use what lives on the slow drive, rest in between, and change what has begun to move:
    /// marks of doubt come and go.
    Low,
    /// The volume is left alone again and again, and the map of one drive has always rotten when it is
    /// opened next.
    Rotten,
}

/// What a seed decides.
pub(crate) struct Nature {
    pub seed: u64,
    allowed: Allowed,
    theme: Theme,
    random: Random,
    pub setting: Setting,
    map_pages: u64,
    temper: Temper,
    span: Range<u64>,
    length_bytes_max: u64,
    clients: u64,
    steps: u64,
    pub lives: u64,
    probes: u64,
    /// Ways in which one cut falls.
    falls: u64,
    /// The first life fills so many extents.
    fill_extents: u64,
    /// It fills the whole volume.
    filled: bool,
    /// Percent of recoveries that are cut again.
    recuts: u64,
    /// Percent of lives with mischief, and with damage before them.
    mischief: u64,
    damage: u64,
    /// Percent of openings before which one drive is asked alone.
    alone: u64,
    /// Percent of lives in which what flushes promise is changed.
    promises: u64,
    /// The mode of the cache changes in each life.
    changes_mode: bool,
    lies: bool,
    /// A flush fails in each life, among many.
    flushes_fail: bool,
    /// The only drive whose map rots: of each page one drive's copies must do.
    rotting: Tier,
}

impl Nature {
    pub fn draw(seed: u64, allowed: Allowed) -> Nature {
        let mut random = Random::new(mix(seed ^ 0x5eed));
        let extent_bytes = match random.below(10) {
            0..=4 => 64 * KIB,
            5..=7 => 128 * KIB,
            8 => 256 * KIB,
            _ => 512 * KIB,
        };
        // Few slots on the fast drive: what is given up is soon used again.
        let fast_slots = 16 + if random.chance(60) { random.below(4) } else { random.below(40) };
        let slow_slots = 64 * MIB / extent_bytes + 10 + random.below(8) - fast_slots.min(40);
        let slow_slots = slow_slots.max(20);
        let fast_at = (FIXED_BYTES + LANDING_BYTES).next_multiple_of(extent_bytes);
        let slow_at = FIXED_BYTES.next_multiple_of(extent_bytes);
        let mut fast = DriveSpec::fast("fast", fast_at + fast_slots * extent_bytes);
        let mut slow = DriveSpec::slow("slow", slow_at + slow_slots * extent_bytes);
        let (cache, changes_mode) = cache(seed);
        // In class cache the slow drive alone is the volume's size.
        let counted = if cache.is_some() { slow_slots } else { fast_slots + slow_slots };
        let short = (64 * MIB + 16 * extent_bytes).saturating_sub(counted * extent_bytes);
        slow.size_bytes += short.next_multiple_of(extent_bytes);
        for drive in [&mut fast, &mut slow] {
            match random.below(8) {
                0 => drive.cache_bytes = 0,
                1 => drive.cache_bytes = 256 * KIB,
                2 => drive.sector_bytes = 4096,
                _ => {}
            }
            if random.chance(50) {
                drive.atomic_write_bytes = 4096;
            }
            if random.chance(60) {
                drive.latencies.channels = 1 + random.below(16) as usize;
            }
            match random.below(6) {
                0 => drive.latencies.jitter_percent = 1000,
                1 => {
                    // All requests take the same time: what began together ends together.
                    drive.latencies.jitter_percent = 0;
                    drive.latencies.kib_ns = 0;
                    drive.latencies.channels = 64;
                }
                _ => {}
            }
            if random.chance(15) {
                drive.latencies.flush_ns = 17_500_000;
            }
            if allowed.stalls && random.chance(40) {
                drive.latencies.stall_permille = 5 + random.below(150);
                drive.latencies.stall_ns =
                    [2, 20, 200, 2000][random.below(4) as usize] * MILLISECOND_NS;
                drive.latencies.channels = 4 + random.below(60) as usize;
            }
        }
        if random.chance(30) {
            // A drive of flash below: background work is quick, and meets clients elsewhere.
            slow.latencies = Latencies { channels: slow.latencies.channels, ..Latencies::flash() };
        }
        let theme = match random.below(100) {
            0..12 => Theme::Pressed,
            12..20 => Theme::Churning,
            20..36 => Theme::Low,
            36..44 => Theme::Rotten,
            _ => Theme::Plain,
        };
        let busy = matches!(theme, Theme::Pressed | Theme::Churning);
        let held = allowed.stalls && busy && random.chance(60);
        if held {
            // Reads hang for ages in which all else goes on: what they read must stay.
            let (permille, ns) =
                (50 + random.below(300), [100, 1000, 5000][random.below(3) as usize]);
            for drive in [&mut fast, &mut slow] {
                drive.latencies.stall_permille = permille;
                drive.latencies.stall_ns = ns * MILLISECOND_NS;
                drive.latencies.only_reads_stall = true;
                drive.latencies.channels = 64;
            }
        }
        if theme == Theme::Pressed && random.chance(50) {
            fast.latencies.flush_ns = 17_500_000;
        } else if random.chance(if busy { 40 } else { 10 }) {
            // In step: whatever began together ends together, on both drives.
            for drive in [&mut fast, &mut slow] {
                let of = &mut drive.latencies;
                for time in [&mut of.read_ns, &mut of.write_ns, &mut of.flush_ns, &mut of.trim_ns] {
                    *time = STEP_NS;
                }
                (of.kib_ns, of.jitter_percent, of.stall_permille, of.channels) = (0, 0, 0, 64);
            }
        }
        // A fast drive that fails in write-through is left behind for good, which the lives of a run do not
        // know of (`bereft.rs` has it die); and nothing is deferred there.
        let through = changes_mode || cache.is_some_and(CacheMode::brings_home);
        let defers = random.chance(30) && !through;
        let flush_mode =
            if defers && random.chance(70) { flush_mode(&mut random) } else { FlushMode::Strict };
        let promises = if defers { 20 + random.below(80) } else { 0 };
        // Drawn apart, so that the rest of a run is what it was without.
        let mut steering = Random::new(mix(seed ^ 0x7e57));
        let setting = Setting {
            fast,
            slow,
            extent_bytes,
            landing_bytes: LANDING_BYTES,
            flush_mode,
            cache,
            tuning: Tuning { inclusion: inclusion(seed), ..tuning(&mut steering) },
            wish: wish(&mut steering, extent_bytes),
        };
        let geometry = setting.geometry();
        let volume_bytes = geometry.volume_bytes;
        let extents = volume_bytes / extent_bytes;
        let filled = theme == Theme::Plain && random.chance(8);
        let fast_extents = geometry.layouts[0].slots;
        let fill_extents = match random.below(4) {
            _ if filled => extents,
            _ if theme == Theme::Low => fast_extents + 2 + random.below(12),
            0 | 1 => 0,
            2 => random.below(fast_extents),
            _ => fast_extents + random.below(12),
        };
        let span = match random.below(6) {
            // Filled in order, the fast drive has all but the last of them.
            _ if theme == Theme::Low => {
                (fast_extents - 6) * extent_bytes..fill_extents * extent_bytes
            }
            0..4 if busy => 0..extent_bytes * (2 + random.below(6)),
            0 => 0..extent_bytes * 2,
            1 => 0..extent_bytes * (2 + random.below(6)),
            2 => 0..extent_bytes * (8 + random.below(20)),
            3 => 0..volume_bytes,
            _ => {
                let count = 2 + random.below(12);
                let first = random.below(fill_extents.saturating_sub(count) + 1);
                first * extent_bytes..(first + count) * extent_bytes
            }
        };
        let length_bytes_max = match random.below(4) {
            0 => 64 * KIB,
            1 => 256 * KIB,
            _ => MIB,
        };
        let temper = Temper::draw(&mut random, &span);
        let clients = match random.below(4) {
            0 => 1,
            1 => 2,
            2 => 3 + random.below(6),
            _ => 8 + random.below(17),
        };
        let clients = match theme {
            Theme::Low => 1 + random.below(2),
            _ if held => clients.max(4 + random.below(8)),
            Theme::Pressed if random.chance(70) => 8 + random.below(16),
            _ => clients,
        };
        let requests_max = if random.chance(25) { 400 } else { 100 };
        // A log that was never emptied slows nobody down: the fullest are those of short lives.
        let short = theme == Theme::Pressed && !held && random.chance(70);
        let requests = if busy && !short { 300 } else { 20 } + random.below(requests_max);
        let length_bytes_max = match theme {
            Theme::Pressed => 256 * KIB - 4096,
            Theme::Churning => length_bytes_max.max(extent_bytes),
            Theme::Plain | Theme::Low | Theme::Rotten => length_bytes_max,
        };
        let temper = match theme {
            Theme::Plain if filled && random.chance(60) => temper.cramming(),
            Theme::Plain | Theme::Rotten => temper,
            Theme::Pressed => temper.pressing(),
            Theme::Churning => temper.churning(),
            Theme::Low => temper.stalking(),
        };
        let mut share = |percent_on, bound| {
            if random.chance(percent_on) { 1 + random.below(bound) } else { 0 }
        };
        Nature {
            seed,
            allowed,
            temper,
            map_pages: geometry.map_pages(),
            setting,
            span,
            length_bytes_max,
            clients,
            steps: requests.div_ceil(clients),
            lives: 2 + share(70, 4),
            probes: 2 + share(60, 4),
            falls: 1 + share(80, 4),
            fill_extents,
            filled,
            recuts: share(50, 40),
            mischief: if allowed.errors && !through { share(25, 60) } else { 0 },
            damage: match theme {
                Theme::Rotten if allowed.rot => 85,
                _ if allowed.rot || allowed.old => share(40, 60),
                _ => 0,
            },
            alone: if !allowed.lost {
                0
            } else if theme == Theme::Low {
                70
            } else {
                share(60, 60)
            },
            promises,
            changes_mode,
            theme,
            flushes_fail: allowed.errors && !through && busy && share(25, 1) > 0,
            lies: allowed.lies && !through && share(4, 1) > 0,
            rotting: if random.chance(70) { Tier::Fast } else { Tier::Slow },
            random,
        }
    }

    /// How often a life is played, each time to another end.
    pub fn probes_of(&self, number: u64) -> u64 {
        // To fill a volume takes long.
        let once = number == 0 && (self.filled || self.theme == Theme::Low);
        if once { 1 } else { self.probes }
    }

    /// How often what a fall left is looked at.
    pub fn looks_after(&mut self, end: End) -> u64 {
        match end {
            // What the process had written lies in the caches still.
            End::Falls { fall: Fall::Process, .. } if self.allowed.cuts => 3,
            _ => u64::from(self.random.chance(85)),
        }
    }

    /// How what `end` left is looked at; and another look, if the first is cut short.
    pub fn look(&mut self, end: End) -> (Life, Option<Life>) {
        let mut look = Life::look(self.random.bits());
        if self.allowed.rot && self.random.chance(self.damage) {
            look.damage.push(self.draw_map_damage());
        }
        let random = &mut self.random;
        if random.chance(70) {
            look.end = falls_at(Phase::Serving, None);
        }
        if random.chance(self.alone) {
            let survivor = if random.chance(35) { Tier::Fast } else { Tier::Slow };
            look.damage.push(Damage::Alone { survivor, seed: random.bits() });
        }
        let killed = matches!(end, End::Falls { fall: Fall::Process, .. });
        let recuts = if killed { 70 } else { self.recuts };
        if !(self.allowed.cuts && random.chance(recuts)) {
            return (look, None);
        }
        look.end = End::Falls {
            phase: Phase::Serving,
            point: Some(CutPoint {
                operation: random.below(OPENING_OPERATIONS),
                moment: moment(random),
            }),
            fall: Fall::Power(loss(random)),
        };
        (look, Some(Life::look(random.bits())))
    }

    /// Life `number`.
    pub fn life(&mut self, number: u64, after_close: bool) -> Life {
        let mut life = Life::look(self.random.bits());
        if number == 0 {
            life.clients = self.fill();
        }
        if life.clients.is_empty() || !(self.filled || self.theme == Theme::Low) {
            life.clients.extend(self.requests());
        }
        if self.random.chance(self.damage) {
            life.damage = (0..1 + self.random.below(2)).map(|_| self.draw_damage()).collect();
            life.damage.retain(|damage| match damage {
                Damage::OlderCopy { .. } => self.allowed.old,
                _ => self.allowed.rot,
            });
        }
        if after_close && self.allowed.rot && number > 0 && self.random.chance(35) {
            // So many that some of them are in use.
            let blocks = 1 + self.random.below(1500);
            life.damage.push(Damage::Log { blocks, seed: self.random.bits() });
        }
        if self.random.chance(self.promises) {
            self.change_promises(&mut life);
        }
        if self.setting.tuning.inclusion {
            self.change_inclusion(&mut life, number);
        }
        if self.changes_mode {
            self.change_mode(&mut life);
        }
        if self.flushes_fail {
            let after_ns = self.random.below(200 * MILLISECOND_NS);
            let fault = Fault::FailedFlush;
            life.mischief.push(Mischief::Strikes { after_ns, tier: Tier::Fast, fault, count: 1 });
        } else if self.random.chance(self.mischief) {
            life.mischief = (0..1 + self.random.below(3)).map(|_| self.draw_mischief()).collect();
        }
        if self.lies {
            let allowed = match self.random.below(3) {
                0 => &[Fault::LyingFlush][..],
                _ => &[Fault::LyingFlush, Fault::LostWrite, Fault::MisdirectedWrite, Fault::BitRot],
            };
            let faults = Faults::draw(self.random.bits(), allowed);
            life.mischief.push(Mischief::Habit { tier: self.tier(), faults });
        }
        life
    }

    /// Whole extents first to last, then a flush or not.
    fn fill(&mut self) -> Vec<Vec<Step>> {
        let extent = self.setting.extent_bytes;
        let mut steps: Vec<Step> = Vec::new();
        let most = (MIB / extent).max(1);
        let mut at = 0;
        while at < self.fill_extents {
            let count = most.min(self.fill_extents - at);
            steps.push(Step::Write { at: at * extent, length: count * extent, forced: false });
            at += count;
        }
        if steps.is_empty() {
            return Vec::new();
        }
        if self.random.chance(80) {
            steps.push(Step::Flush);
        }
        if self.theme == Theme::Low {
            steps.push(Step::Rest { ns: (9_000 + self.random.below(9_000)) * MILLISECOND_NS });
        } else if self.random.chance(50) {
            steps.push(Step::Rest { ns: self.random.below(20_000) * MILLISECOND_NS });
        }
        vec![steps]
    }

    fn requests(&mut self) -> Vec<Vec<Step>> {
        if self.random.chance(30) {
            // Each life another temper on the same ground.
            self.temper = Temper::draw(&mut self.random, &self.span);
        }
        let (span, steps) = (self.span.clone(), self.steps);
        (0..self.clients)
            .map(|_| {
                let mut source = Source {
                    temper: self.temper.clone(),
                    span: span.clone(),
                    length_bytes_max: self.length_bytes_max,
                    extent_bytes: self.setting.extent_bytes,
                    cursor: span.start,
                    random: self.random.fork(),
                    plans: Vec::new(),
                };
                (0..steps).map(|_| source.next()).collect()
            })
            .collect()
    }

    /// One client changes what flushes promise, now and then.
    fn change_promises(&mut self, life: &mut Life) {
        let random = &mut self.random;
        let Some(client) = life.clients.last_mut() else { return };
        let often = random.chance(40);
        let changes = if often { client.len() as u64 / 5 } else { random.below(3) };
        for _ in 0..1 + changes {
            let strict = random.chance(45);
            let mode = if strict { FlushMode::Strict } else { flush_mode(random) };
            let place = random.below(client.len() as u64 + 1) as usize;
            client.insert(place, Step::Promise { mode });
        }
    }

    /// In some lives one client has nothing kept below any more, and perhaps again later. Drawn apart, as
    /// what is kept is.
    fn change_inclusion(&mut self, life: &mut Life, number: u64) {
        let mut random = Random::new(mix(self.seed ^ 0x1c1d ^ (number + 1) << 32));
        let Some(client) = life.clients.last_mut() else { return };
        if !random.chance(40) {
            return;
        }
        let mut places = [0; 2].map(|_| random.below(client.len() as u64 + 1) as usize);
        places.sort_unstable();
        if random.chance(50) {
            client.insert(places[1], Step::Include { on: true });
        }
        client.insert(places[0], Step::Include { on: false });
        // An earlier life may have ended without.
        client.insert(0, Step::Include { on: true });
    }

    /// One client changes the mode of the cache, there and back.
    fn change_mode(&mut self, life: &mut Life) {
        let random = &mut self.random;
        let Some(client) = life.clients.last_mut() else { return };
        for _ in 0..1 + random.below(4) {
            let through = random.chance(60);
            let place = random.below(client.len() as u64 + 1) as usize;
            let mode = match through {
                true if place.is_multiple_of(3) => CacheMode::WriteAround,
                true => CacheMode::WriteThrough,
                false => CacheMode::WriteBack,
            };
            client.insert(place, Step::Mode { mode });
        }
    }

    fn tier(&mut self) -> Tier {
        if self.random.chance(50) { Tier::Fast } else { Tier::Slow }
    }

    fn draw_damage(&mut self) -> Damage {
        let tier = self.tier();
        match self.random.below(9) {
            0..=2 => Damage::Superblock { tier, copy: self.random.below(2) as usize },
            3..=6 => self.draw_map_damage(),
            _ => Damage::OlderCopy { tier },
        }
    }

    fn draw_map_damage(&mut self) -> Damage {
        let used = self.span.start / self.setting.extent_bytes / ENTRIES_PER_PAGE as u64;
        let page = if self.random.chance(60) { used } else { self.random.below(self.map_pages) };
        let tier = self.rotting;
        match self.random.below(4) {
            0 => Damage::MapSector { tier, page },
            _ => Damage::MapPage { tier, page },
        }
    }

    fn draw_mischief(&mut self) -> Mischief {
        let tier = self.tier();
        let after_ns = match self.random.below(3) {
            0 => 0,
            1 => self.random.below(10 * MILLISECOND_NS),
            _ => self.random.below(1000 * MILLISECOND_NS),
        };
        if self.random.chance(60) {
            let faults = [
                Fault::ReadError,
                Fault::BadSector,
                Fault::WriteError,
                Fault::PartialWrite,
                Fault::NoSpace,
                Fault::FailedFlush,
            ];
            let fault = faults[self.random.below(faults.len() as u64) as usize];
            return Mischief::Strikes { after_ns, tier, fault, count: 1 + self.random.below(2) };
        }
        let stalls = self.allowed.stalls;
        let allowed: Vec<Fault> = Fault::ALL
            .into_iter()
            .filter(|fault| match fault.harm() {
                // A drive that never answers again hangs whoever waits for it, and rightly so.
                Harm::Delay => stalls && *fault != Fault::EndlessHang,
                Harm::Refusal => true,
                Harm::Betrayal => false,
            })
            .collect();
        Mischief::Habit { tier, faults: Faults::draw(self.random.bits(), &allowed) }
    }

    /// When life `number` ends; how it falls is decided later.
    pub fn end(&mut self, number: u64, life: &Life) -> End {
        if number == 0 && self.theme == Theme::Low {
            // Filled, and vouched for.
            return End::Closed;
        }
        let falls = self.allowed.cuts || self.allowed.kills;
        if !falls || self.random.chance(15) {
            return End::Closed;
        }
        let random = &mut self.random;
        let estimate = OPENING_OPERATIONS + life.steps() as u64 * 2;
        let drawn = match self.theme {
            Theme::Rotten if random.chance(60) => 10,
            _ => random.below(16),
        };
        let (phase, operation) = match drawn {
            0 => (Phase::Serving, Some(random.below(OPENING_OPERATIONS))),
            1..=3 => (Phase::Serving, Some(random.below(OPENING_OPERATIONS + estimate / 4))),
            4..=8 => (Phase::Serving, Some(random.below(estimate))),
            9 => (Phase::Serving, None),
            10..=12 => (Phase::Idle, Some(random.below(BACKGROUND_OPERATIONS))),
            13 => (Phase::Idle, None),
            _ => (Phase::Closing, Some(random.below(BACKGROUND_OPERATIONS))),
        };
        falls_at(phase, operation.map(|operation| CutPoint { operation, moment: moment(random) }))
    }

    /// The ways in which what stopped falls.
    pub fn falls(&mut self, stopped: &Stopped, end: End) -> Vec<End> {
        let End::Falls { phase, point, .. } = end else { return vec![end] };
        let count = if Player::at_stake(stopped) == 0 { 1 } else { self.falls };
        (0..count)
            .map(|_| {
                let kill = self.allowed.kills && self.random.chance(12) || !self.allowed.cuts;
                let fall = if kill { Fall::Process } else { Fall::Power(loss(&mut self.random)) };
                End::Falls { phase, point, fall }
            })
            .collect()
    }
}
