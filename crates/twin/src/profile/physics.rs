//! From the numbers of a profile to a model.

use super::number::Numbers;
use super::{Part, Setting};
use crate::disk::{Disk, DiskParameters};
use crate::model::Model;
use crate::random::Random;

const MIB: f64 = 1048576.0;

/// The physics of a part, ready to be put to work any number of times.
#[derive(Debug, Clone)]
pub(super) enum Physics {
    Disk(DiskParameters),
}

impl Physics {
    /// Reads the numbers of `part`, a drive of `size_bytes`.
    pub(super) fn of(part: &Part, size_bytes: u64) -> Result<Physics, String> {
        let numbers = Numbers::new(&part.numbers);
        let physics = match part.kind.as_str() {
            "disk" => Physics::Disk(disk(&numbers, size_bytes)?),
            kind => return Err(format!("no physics is called {kind}")),
        };
        numbers.end(&part.kind)?;
        Ok(physics)
    }

    pub(super) fn model(&self, setting: Setting, _: Random) -> Box<dyn Model> {
        match self {
            Physics::Disk(of) => Box::new(Disk::new(DiskParameters {
                write_cache: setting.write_cache,
                ..of.clone()
            })),
        }
    }
}

fn disk(numbers: &Numbers<'_>, size_bytes: u64) -> Result<DiskParameters, String> {
    let of = DiskParameters {
        size_bytes,
        rpm: numbers.positive("rpm")?,
        outer_b_s: numbers.positive("outer_mib_s")? * MIB,
        inner_b_s: numbers.positive("inner_mib_s")? * MIB,
        seek_base_ns: numbers.any("seek_base_ms")? * 1e6,
        seek_stroke_ns: numbers.any("seek_stroke_ms")? * 1e6,
        write_settle_ns: numbers.any("write_settle_ms")? * 1e6,
        read_command_ns: numbers.any("read_command_us")? * 1e3,
        write_command_ns: numbers.any("write_command_us")? * 1e3,
        link_b_s: numbers.positive("link_mb_s")? * 1e6,
        command_bytes_max: (numbers.positive("command_kib")? * 1024.0) as u64,
        queue_depth: numbers.positive("queue_depth")? as usize,
        read_ahead_bytes: (numbers.any("read_ahead_kib")? * 1024.0) as u64,
        segments: numbers.any("segments")? as usize,
        pool_bytes: (numbers.any("pool_kib")? * 1024.0) as u64,
        pool_runs: numbers.any("pool_runs")? as usize,
        write_cache: true,
    };
    if of.outer_b_s <= of.inner_b_s {
        return Err("outer_mib_s must be above inner_mib_s".to_owned());
    }
    if of.command_bytes_max < 512 {
        return Err("command_kib is below a sector".to_owned());
    }
    Ok(of)
}
