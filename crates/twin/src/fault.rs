//! What drives do wrong: the kinds, how often a drive does each by itself, and how often it did.
//!
//! docs/simulation.md says of each kind what it is, who has seen it, and which promise survives it.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use crate::model::Kind;
use crate::random::{Random, mix};

/// One way in which a drive goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A request takes longer by [`Faults::spike_ns`].
    Spike,
    /// The drive answers nothing for [`Faults::hang_ns`], then goes on where it stopped.
    Hang,
    /// The drive answers nothing any more until its power is cycled.
    EndlessHang,
    /// A read fails; the next one of the same place may work.
    ReadError,
    /// A sector cannot be read until it is written.
    BadSector,
    /// A write, zeroing or trim fails and has changed nothing.
    WriteError,
    /// A write fails and has changed some of its atomic units.
    PartialWrite,
    /// A write fails for want of space behind the drive, having done its front part.
    NoSpace,
    /// A flush fails. Until the power is cycled later ones succeed and do nothing.
    FailedFlush,
    /// The drive is gone: what is in flight fails, and so does everything after.
    Death,
    /// A flush says it is done and has done nothing.
    LyingFlush,
    /// A write is acknowledged and never happens.
    LostWrite,
    /// A write is acknowledged and happens at another place.
    MisdirectedWrite,
    /// One bit of what is read has changed on the medium.
    BitRot,
    /// The drive comes back as it was some time ago. By hand only: see
    /// [`crate::Simulation::return_old_drive`].
    OldDrive,
}

/// The worst that a fault may lead to, whatever stands on the drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// Time. Every promise holds.
    Delay,
    /// Errors: a request fails and says so. Nothing acknowledged is lost in silence.
    Refusal,
    /// What the drive acknowledged is gone or changed, and nobody was told.
    Betrayal,
}

impl Fault {
    /// Every kind, in a fixed order.
    pub const ALL: [Fault; 15] = [
        Fault::Spike,
        Fault::Hang,
        Fault::EndlessHang,
        Fault::ReadError,
        Fault::BadSector,
        Fault::WriteError,
        Fault::PartialWrite,
        Fault::NoSpace,
        Fault::FailedFlush,
        Fault::Death,
        Fault::LyingFlush,
        Fault::LostWrite,
        Fault::MisdirectedWrite,
        Fault::BitRot,
        Fault::OldDrive,
    ];

    /// Its name, in lists and reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Spike => "spike",
            Fault::Hang => "hang",
            Fault::EndlessHang => "endless-hang",
            Fault::ReadError => "read-error",
            Fault::BadSector => "bad-sector",
            Fault::WriteError => "write-error",
            Fault::PartialWrite => "partial-write",
            Fault::NoSpace => "no-space",
            Fault::FailedFlush => "failed-flush",
            Fault::Death => "death",
            Fault::LyingFlush => "lying-flush",
            Fault::LostWrite => "lost-write",
            Fault::MisdirectedWrite => "misdirected-write",
            Fault::BitRot => "bit-rot",
            Fault::OldDrive => "old-drive",
        }
    }

    /// The worst it may lead to.
    pub fn harm(self) -> Harm {
        match self {
            Fault::Spike | Fault::Hang | Fault::EndlessHang => Harm::Delay,
            Fault::ReadError
            | Fault::BadSector
            | Fault::WriteError
            | Fault::PartialWrite
            | Fault::NoSpace
            | Fault::FailedFlush
            | Fault::Death => Harm::Refusal,
            Fault::LyingFlush
            | Fault::LostWrite
            | Fault::MisdirectedWrite
            | Fault::BitRot
            | Fault::OldDrive => Harm::Betrayal,
        }
    }

    /// Whether a request of that kind can meet it.
    pub fn strikes(self, kind: Kind) -> bool {
        match self {
            Fault::Spike | Fault::Hang | Fault::EndlessHang | Fault::Death => true,
            Fault::ReadError | Fault::BadSector | Fault::BitRot => kind == Kind::Read,
            Fault::WriteError => matches!(kind, Kind::Write | Kind::Trim | Kind::WriteZeroes),
            Fault::PartialWrite | Fault::NoSpace | Fault::LostWrite | Fault::MisdirectedWrite => {
                kind == Kind::Write
            }
            Fault::FailedFlush | Fault::LyingFlush => kind == Kind::Flush,
            Fault::OldDrive => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(name: &str) -> Result<Fault, String> {
        Fault::ALL.into_iter().find(|fault| fault.name() == name).ok_or_else(|| {
            let known = Fault::ALL.map(Fault::name).join(", ");
            format!("there is no fault called '{name}' (there are {known})")
        })
    }
}

/// How often a drive goes wrong by itself, and how: its profile, decided by its seed. A drive
/// is made with [`Faults::none`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    /// Of a million requests that can meet the fault so many do, by place in [`Fault::ALL`].
    rates_ppm: [u32; Fault::ALL.len()],
    /// Decides which.
    pub seed: u64,
    /// How much longer a request takes that meets a [`Fault::Spike`].
    pub spike_ns: Range<u64>,
    /// How long a [`Fault::Hang`] lasts.
    pub hang_ns: Range<u64>,
}

/// A fault with this rate strikes each request that can meet it.
pub const ALWAYS_PPM: u32 = 1_000_000;

impl Faults {
    /// A drive that does everything right.
    pub fn none() -> Faults {
        Faults {
            rates_ppm: [0; _],
            seed: 0,
            spike_ns: 20_000_000..2_000_000_000,
            hang_ns: 2_000_000_000..120_000_000_000,
        }
    }

    /// Which requests meet the faults is decided by `seed`.
    #[must_use]
    pub fn seeded(self, seed: u64) -> Faults {
        Faults { seed, ..self }
    }

    /// Of a million requests that can meet `fault`, `rate_ppm` do.
    #[must_use]
    pub fn with(mut self, fault: Fault, rate_ppm: u32) -> Faults {
        self.rates_ppm[fault as usize] = rate_ppm.min(ALWAYS_PPM);
        self
    }

    /// A profile drawn by `seed`: each of the `allowed` faults is on or off with even odds, at a
    /// rate between one in a hundred and one in ten thousand requests, the final ones (death,
    /// endless hang) ten times rarer. Everything off, or one thing alone, is as likely as much
    /// at once: a fault that is always there hides what happens without it.
    pub fn draw(seed: u64, allowed: &[Fault]) -> Faults {
        let mut random = Random::new(mix(seed));
        let mut faults = Faults::none().seeded(random.bits());
        for fault in Fault::ALL {
            // Drawn for each, so that allowing one changes nothing for the others.
            let (on, scale, step) = (random.chance(50), random.below(3), 1 + random.below(10));
            if on && allowed.contains(&fault) {
                let rate_ppm = [1000, 100, 10][scale as usize] * step as u32;
                let last = matches!(fault, Fault::Death | Fault::EndlessHang);
                faults = faults.with(fault, if last { rate_ppm.div_ceil(10) } else { rate_ppm });
            }
        }
        faults
    }

    /// Of a million requests that can meet `fault`, so many do.
    pub fn rate_ppm(&self, fault: Fault) -> u32 {
        self.rates_ppm[fault as usize]
    }

    /// The faults it has, with their rates.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u32)> + '_ {
        Fault::ALL.into_iter().zip(self.rates_ppm).filter(|(_, rate_ppm)| *rate_ppm > 0)
    }

    /// Whether it has none.
    pub fn is_none(&self) -> bool {
        self.rates_ppm == [0; _]
    }
}

impl Default for Faults {
    fn default() -> Faults {
        Faults::none()
    }
}

/// How often each fault has struck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FaultCounts([u64; Fault::ALL.len()]);

impl FaultCounts {
    /// How often this one has.
    pub fn of(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    /// Those that have struck, with how often.
    pub fn iter(&self) -> impl Iterator<Item = (Fault, u64)> + '_ {
        Fault::ALL.into_iter().zip(self.0).filter(|(_, count)| *count > 0)
    }

    /// All together.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: &FaultCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(crate) fn count(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_its_place_and_a_name_that_leads_back() {
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index);
            assert_eq!(fault.name().parse(), Ok(fault));
        }
        assert!("gremlin".parse::<Fault>().unwrap_err().contains("bit-rot"));
    }

    #[test]
    fn a_drawn_profile_has_only_what_is_allowed_and_varies() {
        let allowed = [Fault::Spike, Fault::BitRot, Fault::Death];
        let drawn: Vec<Faults> = (0..64).map(|seed| Faults::draw(seed, &allowed)).collect();
        assert_eq!(drawn[5], Faults::draw(5, &allowed));
        for faults in &drawn {
            assert!(faults.iter().all(|(fault, _)| allowed.contains(&fault)));
        }
        for fault in allowed {
            let on = drawn.iter().filter(|faults| faults.rate_ppm(fault) > 0).count();
            assert!((16..48).contains(&on), "{fault} was on in {on} of 64");
        }
        assert!(drawn.iter().any(Faults::is_none));
        // What else is allowed does not change a fault's draw.
        assert_eq!(
            Faults::draw(3, &Fault::ALL).rate_ppm(Fault::Spike),
            drawn[3].rate_ppm(Fault::Spike)
        );
    }
}
