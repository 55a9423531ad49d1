//! From the numbers of a profile to a model.

use super::number::Numbers;
use super::{Part, Setting};
use crate::controller::{Controller, ControllerParameters};
use crate::disk::{Disk, DiskParameters};
use crate::flash::{Flash, FlashParameters};
use crate::model::Model;
use crate::raid5::Raid5;
use crate::random::Random;

const MIB: f64 = 1048576.0;

/// The physics of a part, ready to be put to work any number of times.
#[derive(Debug, Clone)]
pub(super) enum Physics {
    Disk(DiskParameters),
    Flash(Box<FlashParameters>),
    Raid5 { members: usize, unit_bytes: u64, member: Box<Physics> },
    Controller(Box<Front>),
}

/// A controller and what stands behind it.
#[derive(Debug, Clone)]
pub(super) struct Front {
    cached: ControllerParameters,
    bypassed: ControllerParameters,
    /// Whether the drives' own write cache is on: with the controller's caches, and without.
    drive_cache: [bool; 2],
    behind: Physics,
}

impl Physics {
    /// Reads the numbers of `part`, a drive of `size_bytes`.
    pub(super) fn of(part: &Part, size_bytes: u64) -> Result<Physics, String> {
        let numbers = Numbers::new(&part.numbers);
        let behind = |size_bytes| match &part.behind {
            Some(behind) => Physics::of(behind, size_bytes),
            None => Err(format!("a {} needs something behind it", part.kind)),
        };
        let physics = match part.kind.as_str() {
            "disk" => Physics::Disk(disk(&numbers, size_bytes)?),
            "flash" => Physics::Flash(Box::new(flash(&numbers, size_bytes)?)),
            "raid5" => {
                let members = numbers.positive("members")? as usize;
                if !(3..=64).contains(&members) {
                    return Err(format!("members must be 3 to 64, there are {members}"));
                }
                let unit_bytes = (numbers.positive("unit_kib")? * 1024.0) as u64;
                if unit_bytes < 512 {
                    return Err("unit_kib is below a sector".to_owned());
                }
                let member = Box::new(behind(size_bytes.div_ceil(members as u64 - 1))?);
                Physics::Raid5 { members, unit_bytes, member }
            }
            "controller" => Physics::Controller(Box::new(Front {
                cached: controller(&numbers, true)?,
                bypassed: controller(&numbers, false)?,
                drive_cache: [
                    numbers.any("drive_cache")? > 0.0,
                    numbers.any("bypassed_drive_cache")? > 0.0,
                ],
                behind: behind(size_bytes)?,
            })),
            kind => return Err(format!("no physics is called {kind}")),
        };
        numbers.end(&part.kind)?;
        match (&physics, &part.behind) {
            (Physics::Disk(_) | Physics::Flash(_), Some(_)) => {
                Err(format!("nothing can stand behind a {}", part.kind))
            }
            _ => Ok(physics),
        }
    }

    pub(super) fn model(&self, setting: Setting, mut random: Random) -> Box<dyn Model> {
        let write_cache = setting.write_cache;
        match self {
            Physics::Disk(of) => Box::new(Disk::new(DiskParameters { write_cache, ..of.clone() })),
            Physics::Flash(of) => {
                let of = FlashParameters { write_cache, ..FlashParameters::clone(of) };
                Box::new(Flash::new(of, setting.condition, random))
            }
            Physics::Raid5 { members, unit_bytes, member } => {
                let members = (0..*members).map(|_| member.model(setting, random.fork()));
                Box::new(Raid5::new(members.collect(), *unit_bytes))
            }
            Physics::Controller(front) => {
                let of = if write_cache { &front.cached } else { &front.bypassed };
                let drive_cache = front.drive_cache[usize::from(!write_cache)];
                let behind = Setting { write_cache: drive_cache, ..setting };
                Box::new(Controller::new(of.clone(), front.behind.model(behind, random)))
            }
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
        read_on_times: numbers.any("read_on_times")?,
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

fn flash(numbers: &Numbers<'_>, size_bytes: u64) -> Result<FlashParameters, String> {
    let of = FlashParameters {
        size_bytes,
        page_bytes: (numbers.positive("page_kib")? * 1024.0) as u64,
        read_way_ns: numbers.any("read_way_us")? * 1e3,
        write_way_ns: numbers.any("write_way_us")? * 1e3,
        read_command_ns: numbers.any("read_command_us")? * 1e3,
        write_command_ns: numbers.any("write_command_us")? * 1e3,
        link_read_b_s: numbers.positive("link_read_mb_s")? * 1e6,
        link_write_b_s: numbers.positive("link_write_mb_s")? * 1e6,
        command_bytes_max: (numbers.positive("command_kib")? * 1024.0) as u64,
        queue_depth: numbers.positive("queue_depth")? as usize,
        read_lanes: numbers.positive("read_lanes")? as usize,
        read_page_ns: numbers.any("read_page_us")? * 1e3,
        read_next_ns: numbers.any("read_next_us")? * 1e3,
        program_lanes: numbers.positive("program_lanes")? as usize,
        program_ns: numbers.any("program_us")? * 1e3,
        unit_pages: (numbers.positive("unit_kib")? / numbers.positive("page_kib")?).ceil() as u64,
        reads_ahead: numbers.any("reads_ahead")? > 0.0,
        reads_blank: numbers.any("reads_blank")? > 0.0,
        reads_stale: numbers.any_or("reads_stale", 0.0)? > 0.0,
        spare: numbers.positive("spare_percent")? / 100.0,
        idle_free: numbers.any("idle_free_percent")? / 100.0,
        idle_effort: numbers.any("idle_effort_percent")? / 100.0,
        buffer_bytes: (numbers.any("buffer_kib")? * 1024.0) as u64,
        flush_ns: numbers.any("flush_us")? * 1e3,
        write_cache: true,
    };
    if of.page_bytes < 512 || of.command_bytes_max < 512 {
        return Err("page_kib and command_kib must not be below a sector".to_owned());
    }
    if of.read_lanes > 4096 || of.program_lanes > 4096 || of.queue_depth > 65_536 {
        return Err("more than 4096 lanes or a queue deeper than 65,536".to_owned());
    }
    Ok(of)
}

fn controller(numbers: &Numbers<'_>, cached: bool) -> Result<ControllerParameters, String> {
    let either = |name, bypassed| {
        numbers.any(name).and_then(|us| {
            let other_us = numbers.any(bypassed)?;
            Ok(if cached { us } else { other_us } * 1e3)
        })
    };
    let of = ControllerParameters {
        read_way_ns: either("read_way_us", "bypassed_read_way_us")?,
        write_way_ns: either("write_way_us", "bypassed_write_way_us")?,
        read_command_ns: either("read_command_us", "bypassed_read_command_us")?,
        write_command_ns: either("write_command_us", "bypassed_write_command_us")?,
        miss_ns: numbers.any("miss_us")? * 1e3,
        memory_b_s: numbers.positive("memory_mb_s")? * 1e6,
        command_bytes_max: (numbers.positive("command_kib")? * 1024.0) as u64,
        read_cache_bytes: (numbers.any("read_cache_kib")? * 1024.0) as u64,
        read_ahead_bytes: (numbers.any("read_ahead_kib")? * 1024.0) as u64,
        pool_bytes: (numbers.any("pool_kib")? * 1024.0) as u64,
        pool_runs: numbers.any("pool_runs")? as usize,
        destages: numbers.positive("destages")? as usize,
        stripe_bytes: (numbers.positive("stripe_kib")? * 1024.0) as u64,
        cached,
    };
    if of.stripe_bytes < 512 || of.command_bytes_max < 512 {
        return Err("stripe_kib and command_kib must not be below a sector".to_owned());
    }
    Ok(of)
}
