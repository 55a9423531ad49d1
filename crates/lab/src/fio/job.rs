//! One job of a job file, with every option it may have.

use io::units::SECOND_NS;
use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::blocks::Blocks;
use super::distribution::Distribution;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Trims.
    Trim,
}

impl Direction {
    /// All, in fio's order.
    pub const ALL: [Direction; 3] = [Direction::Read, Direction::Write, Direction::Trim];

    /// As fio says it.
    pub fn name(self) -> &'static str {
        match self {
            Direction::Read => "read",
            Direction::Write => "write",
            Direction::Trim => "trim",
        }
    }

    /// Its place in [`Direction::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }
}

/// One value for each direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerDirection<T>(pub [T; 3]);

impl<T> PerDirection<T> {
    /// That of a direction.
    pub fn get(&self, direction: Direction) -> &T {
        &self.0[direction.index()]
    }

    /// That of a direction, to change.
    pub fn get_mut(&mut self, direction: Direction) -> &mut T {
        &mut self.0[direction.index()]
    }
}

impl<T: Clone> PerDirection<T> {
    /// Reads a value with fio's commas: `READ,WRITE,TRIM`, where what is left out is as the one before.
    pub(super) fn parse(
        text: &str,
        one: impl Fn(&str) -> Result<T, String>,
    ) -> Result<PerDirection<T>, String> {
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        if fields.len() > 3 {
            return Err(format!("'{text}' has more than three values (read, write, trim)"));
        }
        let mut values: Vec<T> = Vec::with_capacity(3);
        for field in fields {
            match (field, values.last()) {
                ("", Some(before)) => values.push(before.clone()),
                (field, _) => values.push(one(field)?),
            }
        }
        while values.len() < 3 {
            let before = values.last().cloned().ok_or("nothing is said")?;
            values.push(before);
        }
        let values: [T; 3] = values.try_into().map_err(|_| "nothing is said".to_owned())?;
        Ok(PerDirection(values))
    }
}

/// How a job goes over its region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    /// What it does; `None` for a mixture of reads and writes.
    pub direction: Option<Direction>,
    /// Anywhere, not one after the other.
    pub random: bool,
}

impl Access {
    pub(super) fn parse(text: &str) -> Result<Access, String> {
        use Direction::{Read, Trim, Write};
        let (direction, random) = match text {
            "read" => (Some(Read), false),
            "write" => (Some(Write), false),
            "trim" => (Some(Trim), false),
            "randread" => (Some(Read), true),
            "randwrite" => (Some(Write), true),
            "randtrim" => (Some(Trim), true),
            "rw" | "readwrite" => (None, false),
            "randrw" => (None, true),
            _ => {
                return Err(format!(
                    "'{text}' is not known (read, write, rw, randread, randwrite, randrw, trim, \
                     randtrim)"
                ));
            }
        };
        Ok(Access { direction, random })
    }

    /// Whether it ever does that.
    pub fn does(&self, direction: Direction) -> bool {
        match self.direction {
            Some(only) => only == direction,
            None => direction != Direction::Trim,
        }
    }
}

/// One job. Offsets and sizes are bytes, times nanoseconds of the world's clock.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its section's name.
    pub name: String,
    /// Its options as they were written, without those of `[global]`.
    pub options: Vec<(String, String)>,
    /// What it does.
    pub access: Access,
    /// Of a hundred requests of a mixture so many read.
    pub read_percent: u64,
    /// How large its requests are.
    pub blocks: PerDirection<Blocks>,
    /// Requests under way at once.
    pub depth: u64,
    /// An engine that waits for each request, whatever the depth.
    pub synchronous: bool,
    /// Copies of the job at the same time.
    pub copies: u64,
    /// Where its region begins.
    pub offset: Amount,
    /// How much further the region of each next copy begins.
    pub offset_increment: Amount,
    /// How long the region is; to the end of the target when not said.
    pub size: Option<Amount>,
    /// How much is moved before it ends; its region's size when not said.
    pub io_size: Option<Amount>,
    /// The longest it runs.
    pub runtime_ns: Option<u64>,
    /// It runs so long also when it is through before.
    pub time_based: bool,
    /// The first so long is not counted.
    pub ramp_ns: u64,
    /// It begins so much later.
    pub start_delay_ns: u64,
    /// Which blocks random requests go to.
    pub distribution: Distribution,
    /// A block may be visited again before all were.
    pub no_random_map: bool,
    /// Decides all that is drawn.
    pub seed: u64,
    /// Bytes per second at most.
    pub rate: PerDirection<Option<u64>>,
    /// Requests per second at most.
    pub rate_iops: PerDirection<Option<u64>>,
    /// It stops so long after every `think_blocks` requests.
    pub think_ns: u64,
    /// See `think_ns`.
    pub think_blocks: u64,
    /// A flush after so many writes; 0: none.
    pub flush_every: u64,
    /// A flush when it ends.
    pub end_flush: bool,
    /// It begins when all jobs before it have ended.
    pub barrier: bool,
    /// How often it goes over its region.
    pub loops: u64,
    /// Its copies are reported as one.
    pub group_reporting: bool,
}

impl Job {
    pub(super) fn new(name: &str) -> Job {
        Job {
            name: name.to_owned(),
            options: Vec::new(),
            access: Access { direction: Some(Direction::Read), random: false },
            read_percent: 50,
            blocks: PerDirection([const { Blocks::One(4096) }; 3]),
            depth: 1,
            // fio's default engine is psync.
            synchronous: true,
            copies: 1,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            size: None,
            io_size: None,
            runtime_ns: None,
            time_based: false,
            ramp_ns: 0,
            start_delay_ns: 0,
            distribution: Distribution::Uniform,
            no_random_map: false,
            seed: 0,
            rate: PerDirection::default(),
            rate_iops: PerDirection::default(),
            think_ns: 0,
            think_blocks: 1,
            flush_every: 0,
            end_flush: false,
            barrier: false,
            loops: 1,
            group_reporting: false,
        }
    }

    /// Requests of one copy under way at once.
    pub fn lanes(&self) -> u64 {
        if self.synchronous { 1 } else { self.depth }
    }

    /// It changes what the target holds.
    pub fn changes_target(&self) -> bool {
        self.access.does(Direction::Write) || self.access.does(Direction::Trim)
    }

    /// The region of a copy on a target of that size: first byte and length, in whole blocks.
    pub fn region(&self, target_bytes: u64, copy: u64) -> (u64, u64) {
        let unit = self.alignment();
        let increment = self.offset_increment.of(target_bytes);
        let start = self.offset.of(target_bytes) + increment * copy;
        let start = (start / unit * unit).min(target_bytes);
        let left = target_bytes - start;
        let length = self.size.map_or(left, |size| size.of(target_bytes).min(left));
        (start, length / unit * unit)
    }

    /// What every offset is a multiple of.
    pub fn alignment(&self) -> u64 {
        let used = Direction::ALL.into_iter().filter(|direction| self.access.does(*direction));
        used.map(|direction| self.blocks.get(direction).min()).max().unwrap_or(512)
    }

    /// All its requests have the same size, so that a block can be told visited or not.
    pub(super) fn has_one_size(&self) -> bool {
        let unit = self.alignment();
        let used = Direction::ALL.into_iter().filter(|direction| self.access.does(*direction));
        used.map(|direction| self.blocks.get(direction))
            .all(|blocks| blocks.min() == unit && blocks.max() == unit)
    }

    /// The longest it can take that its options tell (ns).
    pub fn time_max_ns(&self) -> Option<u64> {
        self.runtime_ns.map(|ns| ns + self.ramp_ns + self.start_delay_ns)
    }

    /// What cannot be together, in words.
    pub(super) fn problem(&self) -> Option<String> {
        if self.time_based && self.runtime_ns.is_none() {
            return Some("time_based needs runtime".to_owned());
        }
        if self.ramp_ns > 3600 * SECOND_NS {
            return Some("ramp_time is above an hour".to_owned());
        }
        let limited = |direction| {
            self.rate.get(direction).is_some() && self.rate_iops.get(direction).is_some()
        };
        if Direction::ALL.into_iter().any(limited) {
            return Some("rate and rate_iops exclude each other".to_owned());
        }
        None
    }
}
