//! One run of the hunt: a seed decides the drives, the shape of the volume, what clients do and
//! what goes wrong, and switches much of that off altogether. What one feature hides, a run without
//! it shows.
//!
//! A run is a chain of lives. Each life is played several times from the same start, up to other
//! cut points, and each of these cuts falls in several ways; what is left is opened, looked at,
//! and perhaps closed and checked. One of the falls is where the next life begins.

use std::ops::Range;

use engine::Tier;
use io::units::{KIB, MIB, MILLISECOND_NS};
use twin::mix;
use twin::{
    CacheLoss, CutPoint, DriveSpec, Fault, Faults, Harm, Latencies, Moment, Random, ReorderBound,
};

use crate::failure::Fall;
use crate::player::{Player, Rest, Stopped, Wrong};
use crate::steps::{Source, Step, Temper};
use crate::tally::Tally;
use crate::trial::{Damage, End, Life, Mischief, Phase, Setting, Trial};

/// The smallest landing log, so that it is full and wraps soon.
const LANDING_BYTES: u64 = 4 * MIB;
/// Superblocks and map of the volumes of a hunt.
const FIXED_BYTES: u64 = 2 * MIB;
/// Operations of drives that opening takes: cuts among them meet a recovery.
const OPENING_OPERATIONS: u64 = 20;

/// Operations that destage, a checkpoint and a close take.
const BACKGROUND_OPERATIONS: u64 = 40;

/// What may go wrong besides cuts of power and deaths of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed {
    /// Power fails.
    pub cuts: bool,
    /// The process dies.
    pub kills: bool,
    /// Requests to drives fail, drives die or fill up.
    pub errors: bool,
    /// Drives stall.
    pub stalls: bool,
    /// What lies on the drives rots.
    pub rot: bool,
    /// Older copies of drives are offered.
    pub old: bool,
    /// Drives lie about flushes, lose or misplace writes, and rot while they are read. Then
    /// nothing is promised, but that nothing panics or hangs.
    pub lies: bool,
}

impl Allowed {
    /// Everything.
    pub const ALL: Allowed = Allowed {
        cuts: true,
        kills: true,
        errors: true,
        stalls: true,
        rot: true,
        old: true,
        lies: true,
    };
    /// Nothing.
    pub const NONE: Allowed = Allowed {
        cuts: false,
        kills: false,
        errors: false,
        stalls: false,
        rot: false,
        old: false,
        lies: false,
    };

    /// The names of all, in the order of the fields.
    pub const NAMES: [&str; 7] = ["cuts", "kills", "errors", "stalls", "rot", "old", "lies"];

    fn fields(&mut self) -> [&mut bool; 7] {
        [
            &mut self.cuts,
            &mut self.kills,
            &mut self.errors,
            &mut self.stalls,
            &mut self.rot,
            &mut self.old,
            &mut self.lies,
        ]
    }

    /// Those named; `None` when a name is not known.
    pub fn from_names<'a>(names: impl Iterator<Item = &'a str>) -> Option<Allowed> {
        let mut allowed = Allowed::NONE;
        for name in names {
            match name {
                "all" => allowed = Allowed::ALL,
                "none" => allowed = Allowed::NONE,
                name => {
                    let place = Allowed::NAMES.iter().position(|known| *known == name)?;
                    *allowed.fields()[place] = true;
                }
            }
        }
        Some(allowed)
    }

    /// As a list of names.
    pub fn names(mut self) -> String {
        if self == Allowed::ALL {
            return "all".into();
        }
        let fields = self.fields();
        let on: Vec<&str> =
            Allowed::NAMES.into_iter().zip(fields).filter(|(_, on)| **on).map(|(n, _)| n).collect();
        if on.is_empty() { "none".into() } else { on.join(",") }
    }
}

/// Something found.
#[derive(Debug, Clone)]
pub struct Found {
    /// How to get there, as it was drawn.
    pub trial: Trial,
    /// What is wrong.
    pub wrong: Wrong,
}

/// Plays the run of `seed`. Gives what was done, and what was found.
pub fn run(seed: u64, allowed: Allowed) -> (Tally, Option<Found>) {
    let mut nature = Nature::draw(seed, allowed);
    let setting = nature.setting.clone();
    let mut player = Player::new(&setting);
    let mut lives = Vec::new();
    let outcome = explore(&mut nature, &mut player, &mut lives);
    let mut tally = std::mem::take(&mut player.tally);
    tally.runs = 1;
    let found = outcome.err().map(|wrong| {
        let trial = Trial { seed, setting: setting.clone(), lives };
        Found { trial, wrong }
    });
    (tally, found)
}

/// `lives` are those that led to where it is; after an error the last of them is the wrong one.
fn explore(
    nature: &mut Nature,
    player: &mut Player<'_>,
    lives: &mut Vec<Life>,
) -> Result<(), Wrong> {
    let mut rest = player.make(nature.seed)?;
    for number in 0..nature.lives {
        let mut life = nature.life(number, rest.is_closed());
        let probes = if number == 0 && nature.filled { 1 } else { nature.probes };
        let mut next: Option<(Life, Rest)> = None;
        for _ in 0..probes {
            life.end = nature.end(&life);
            lives.push(life.clone());
            let stopped = player.live(&rest, &life)?;
            for end in nature.falls(&stopped, life.end) {
                let left = player.fall(&stopped, end);
                lives.last_mut().expect("just pushed").end = end;
                if nature.random.chance(85) {
                    aftermath(nature, player, &left, lives)?;
                }
                next = Some((Life { end, ..life.clone() }, left));
            }
            lives.pop();
        }
        let (life, left) = next.expect("a life is played at least once");
        lives.push(life);
        rest = left;
    }
    aftermath(nature, player, &rest, lives)
}

/// Opens what is left and looks at it; sometimes cuts that short and looks again, and sometimes
/// closes and checks.
fn aftermath(
    nature: &mut Nature,
    player: &mut Player<'_>,
    rest: &Rest,
    lives: &mut Vec<Life>,
) -> Result<(), Wrong> {
    let random = &mut nature.random;
    let mut look = Life::look(random.bits());
    if random.chance(70) {
        look.end = falls_at(Phase::Serving, None);
    }
    let again = nature.allowed.cuts && random.chance(nature.recuts);
    if again {
        look.end = End::Falls {
            phase: Phase::Serving,
            point: Some(CutPoint {
                operation: random.below(OPENING_OPERATIONS),
                moment: moment(random),
            }),
            fall: Fall::Power(loss(random)),
        };
    }
    lives.push(look.clone());
    let stopped = player.live(rest, &look)?;
    if again {
        let left = player.fall(&stopped, look.end);
        lives.push(Life::look(nature.random.bits()));
        player.live(&left, lives.last().expect("just pushed"))?;
        lives.pop();
    }
    lives.pop();
    Ok(())
}

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

/// What a seed decides.
struct Nature {
    seed: u64,
    allowed: Allowed,
    random: Random,
    setting: Setting,
    map_pages: u64,
    temper: Temper,
    span: Range<u64>,
    length_bytes_max: u64,
    clients: u64,
    steps: u64,
    lives: u64,
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
    lies: bool,
    /// The only drive whose map rots: of each page one drive's copies must do.
    rotting: Tier,
    /// The volume was closed in order once. Before, a page's first copy on the other drive may be
    /// torn by a cut with nothing older beside it: rot on top of that is two faults, and refused.
    map_is_whole: bool,
}

impl Nature {
    fn draw(seed: u64, allowed: Allowed) -> Nature {
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
        let short =
            (64 * MIB + 16 * extent_bytes).saturating_sub((fast_slots + slow_slots) * extent_bytes);
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
        let setting = Setting { fast, slow, extent_bytes, landing_bytes: LANDING_BYTES };
        let geometry = setting.geometry();
        let volume_bytes = geometry.volume_bytes;
        let extents = volume_bytes / extent_bytes;
        let filled = random.chance(9);
        let fill_extents = match random.below(4) {
            _ if filled => extents,
            0 | 1 => 0,
            2 => random.below(geometry.layouts[0].slots),
            _ => geometry.layouts[0].slots + random.below(12),
        };
        let span = match random.below(6) {
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
        // Now and then so much, and so large, that the log is full all the time.
        let pressed = random.chance(12);
        let requests_max = if random.chance(25) { 400 } else { 100 };
        let requests = if pressed { 300 } else { 20 } + random.below(requests_max);
        let length_bytes_max = if pressed { 256 * KIB - 4096 } else { length_bytes_max };
        let temper = match (filled, pressed) {
            (true, _) if random.chance(60) => temper.cramming(),
            (_, true) => temper.pressing(),
            _ => temper,
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
            mischief: if allowed.errors { share(25, 60) } else { 0 },
            damage: if allowed.rot || allowed.old { share(40, 60) } else { 0 },
            lies: allowed.lies && share(4, 1) > 0,
            rotting: if random.chance(70) { Tier::Fast } else { Tier::Slow },
            map_is_whole: false,
            random,
        }
    }

    fn life(&mut self, number: u64, after_close: bool) -> Life {
        self.map_is_whole |= after_close;
        let mut life = Life::look(self.random.bits());
        if number == 0 {
            life.clients = self.fill();
        }
        if life.clients.is_empty() || !self.filled {
            life.clients.extend(self.requests());
        }
        if self.random.chance(self.damage) {
            life.damage = (0..1 + self.random.below(2)).map(|_| self.draw_damage()).collect();
            let whole = self.map_is_whole;
            life.damage.retain(|damage| match damage {
                Damage::OlderCopy { .. } => self.allowed.old,
                Damage::MapPage { .. } | Damage::MapSector { .. } => self.allowed.rot && whole,
                _ => self.allowed.rot,
            });
        }
        if after_close && self.allowed.rot && number > 0 && self.random.chance(35) {
            // So many that some of them are in use.
            let blocks = 1 + self.random.below(1500);
            life.damage.push(Damage::Log { blocks, seed: self.random.bits() });
        }
        if self.random.chance(self.mischief) {
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
        if self.random.chance(50) {
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

    fn tier(&mut self) -> Tier {
        if self.random.chance(50) { Tier::Fast } else { Tier::Slow }
    }

    fn draw_damage(&mut self) -> Damage {
        let tier = self.tier();
        let page = self.random.below(self.map_pages);
        match self.random.below(9) {
            0..=2 => Damage::Superblock { tier, copy: self.random.below(2) as usize },
            3..=5 => Damage::MapPage { tier: self.rotting, page },
            6 => Damage::MapSector { tier: self.rotting, page },
            _ => Damage::OlderCopy { tier },
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

    fn end(&mut self, life: &Life) -> End {
        let falls = self.allowed.cuts || self.allowed.kills;
        if !falls || self.random.chance(15) {
            return End::Closed;
        }
        let random = &mut self.random;
        let estimate = OPENING_OPERATIONS + life.steps() as u64 * 2;
        let (phase, operation) = match random.below(16) {
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
    fn falls(&mut self, stopped: &Stopped, end: End) -> Vec<End> {
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
