//! A trial: everything that decides one run of a volume from its making to its last look, written
//! out, so that it can be played again, and with parts left out.

use std::fmt;

use engine::{CacheMode, Class, CreateOptions, FlushMode, Geometry, Tier, Tuning, Wish};
use io::DeviceInfo;
use twin::{CutPoint, DriveSpec, Fault, Faults, Harm};

use crate::failure::Fall;
use crate::steps::Step;

/// The drives and the shape of the volume.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The fast drive.
    pub fast: DriveSpec,
    /// The slow drive.
    pub slow: DriveSpec,
    /// Bytes of an extent.
    pub extent_bytes: u64,
    /// Bytes of the landing log.
    pub landing_bytes: u64,
    /// What flushes promise at first.
    pub flush_mode: FlushMode,
    /// Of class cache, in this mode at first; otherwise of class span.
    pub cache: Option<CacheMode>,
    /// Settings of placement.
    pub tuning: Tuning,
    /// What is wished for a range while clients are served: offset, length, wish.
    pub wish: Option<(u64, u64, Wish)>,
}

impl Setting {
    /// What the volume is made with.
    pub fn options(&self) -> CreateOptions {
        CreateOptions {
            extent_bytes: self.extent_bytes,
            landing_bytes: Some(self.landing_bytes),
            flush_mode: self.flush_mode,
            tuning: self.tuning,
            class: if self.cache.is_some() { Class::Cache } else { Class::Span },
            cache_mode: self.cache.unwrap_or_default(),
            ..CreateOptions::new("prey")
        }
    }

    /// Its drives neither stall nor dawdle.
    pub fn is_punctual(&self) -> bool {
        [&self.fast, &self.slow].iter().all(|drive| {
            let latencies = &drive.latencies;
            latencies.stall_permille == 0 && latencies.jitter_percent <= 100
        })
    }

    /// Its shape.
    ///
    /// # Panics
    /// When no volume can be made of the drives.
    pub fn geometry(&self) -> Geometry {
        let info = |spec: &DriveSpec| DeviceInfo {
            path: spec.path.clone(),
            size_bytes: spec.size_bytes,
            sector_bytes: spec.sector_bytes,
            atomic_write_bytes: spec.atomic_write_bytes,
            rotational: Some(spec.rotational),
            read_only: false,
        };
        engine::plan(&info(&self.fast), &info(&self.slow), &self.options())
            .expect("a setting makes a volume")
    }
}

/// Something that a drive does to its content while nobody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// A copy of the superblock rots, if the other one is whole.
    Superblock {
        /// Whose.
        tier: Tier,
        /// Which.
        copy: usize,
    },
    /// Both copies of a map page rot on one drive, if the other drive or the log has what they hold.
    MapPage {
        /// On which.
        tier: Tier,
        /// Which page, modulo their number.
        page: u64,
    },
    /// A sector of both copies cannot be read on one drive, if the other drive or the log has what they
    /// hold.
    MapSector {
        /// On which.
        tier: Tier,
        /// Which page, modulo their number.
        page: u64,
    },
    /// Blocks of the landing log rot, after a close in order.
    Log {
        /// How many.
        blocks: u64,
        /// Decides which.
        seed: u64,
    },
    /// Somebody offers an older copy of this drive: it must be refused. Then the right one is back.
    OlderCopy {
        /// Of which.
        tier: Tier,
    },
    /// The other drive is missing: what this one gives alone must be true. Then both are back.
    Alone {
        /// Which is left.
        survivor: Tier,
        /// Decides what is looked at.
        seed: u64,
    },
}

/// Something that a drive does wrong while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mischief {
    /// The next requests that can meet a fault do.
    Strikes {
        /// Virtual time after the volume came up.
        after_ns: u64,
        /// Of which drive.
        tier: Tier,
        /// Which fault.
        fault: Fault,
        /// How many.
        count: u64,
    },
    /// The drive goes wrong by itself now and then, once the volume has come up.
    Habit {
        /// Which.
        tier: Tier,
        /// How, and how often.
        faults: Faults,
    },
}

impl Mischief {
    /// The worst that it may lead to.
    pub fn harm(&self) -> Harm {
        match self {
            Mischief::Strikes { fault, .. } => fault.harm(),
            Mischief::Habit { faults, .. } => {
                faults.iter().map(|(fault, _)| fault.harm()).max().unwrap_or(Harm::Delay)
            }
        }
    }
}

/// A part of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// The volume is opened and serves clients.
    Serving,
    /// The clients are done, and the volume does what it does when idle.
    Idle,
    /// The volume is being closed.
    Closing,
}

/// How a life ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The volume is closed and checked.
    Closed,
    /// At this point, or when the phase is over, something fails.
    Falls {
        /// From when on the drives' operations are counted.
        phase: Phase,
        /// When; `None`: at its end.
        point: Option<CutPoint>,
        /// What.
        fall: Fall,
    },
}

/// From one opening of the volume to what ends it.
#[derive(Debug, Clone)]
pub struct Life {
    /// Before.
    pub damage: Vec<Damage>,
    /// Decides what of all that must be there is looked at after the opening.
    pub look_seed: u64,
    /// What drives do wrong.
    pub mischief: Vec<Mischief>,
    /// What each client asks.
    pub clients: Vec<Vec<Step>>,
    /// Its end.
    pub end: End,
}

impl Life {
    /// A life that opens, looks, closes and checks.
    pub fn look(look_seed: u64) -> Life {
        Life {
            damage: Vec::new(),
            look_seed,
            mischief: Vec::new(),
            clients: Vec::new(),
            end: End::Closed,
        }
    }

    /// Requests of all clients.
    pub fn steps(&self) -> usize {
        self.clients.iter().map(Vec::len).sum()
    }

    /// The worst that its mischief may lead to.
    pub fn harm(&self) -> Harm {
        self.mischief.iter().map(Mischief::harm).max().unwrap_or(Harm::Delay)
    }

    /// All that goes wrong is that flushes mean nothing: what is lost is lost when power fails.
    pub fn only_flushes_lie(&self) -> bool {
        self.mischief.iter().all(|one| match one {
            Mischief::Strikes { fault, .. } => {
                fault.harm() < Harm::Betrayal || *fault == Fault::LyingFlush
            }
            Mischief::Habit { faults, .. } => faults
                .iter()
                .all(|(fault, _)| fault.harm() < Harm::Betrayal || fault == Fault::LyingFlush),
        })
    }
}

/// All lives of a volume.
#[derive(Debug, Clone)]
pub struct Trial {
    /// Decides what is left to chance: latencies, torn sectors, names.
    pub seed: u64,
    /// The drives.
    pub setting: Setting,
    /// First to last. The volume is made before the first.
    pub lives: Vec<Life>,
}

impl Trial {
    /// Requests of all clients in all lives.
    pub fn steps(&self) -> usize {
        self.lives.iter().map(Life::steps).sum()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Superblock { tier, copy } => {
                write!(f, "superblock copy {copy} of the {tier} drive rots")
            }
            Damage::MapPage { tier, page } => {
                write!(f, "map page {page} rots on the {tier} drive, both copies")
            }
            Damage::MapSector { tier, page } => {
                write!(f, "map page {page} of the {tier} drive cannot be read, both copies")
            }
            Damage::Log { blocks, .. } => write!(f, "{blocks} blocks of the landing log rot"),
            Damage::OlderCopy { tier } => {
                write!(f, "an older copy of the {tier} drive is offered, and taken away again")
            }
            Damage::Alone { survivor, .. } => {
                write!(f, "only the {survivor} drive is there; then the other one is back")
            }
        }
    }
}

impl fmt::Display for Mischief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mischief::Strikes { after_ns, tier, fault, count } => {
                let after_ms = *after_ns as f64 / 1e6;
                write!(f, "after {after_ms:.1} ms on the {tier} drive: {fault}, {count} times")
            }
            Mischief::Habit { tier, faults } => {
                let rates = faults.iter().map(|(fault, rate_ppm)| format!("{fault} {rate_ppm}"));
                let rates = rates.collect::<Vec<_>>().join(", ");
                write!(f, "the {tier} drive goes wrong, of a million requests: {rates}")
            }
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Closed => write!(f, "closed in order, and checked"),
            End::Falls { phase, point, fall } => {
                let cut = crate::failure::Cut { point: *point, fall: *fall };
                match phase {
                    Phase::Serving => write!(f, "{cut}"),
                    Phase::Idle => write!(f, "{cut}, counted from when the clients were done"),
                    Phase::Closing => write!(f, "{cut}, counted from the beginning of the close"),
                }
            }
        }
    }
}
