//! What each option of a job file means here.
//!
//! Three kinds: those that shape the work are kept in the [`Job`]; those that only say how fio
//! itself does it (engine, files, logs) are taken and mean nothing here; all others are refused,
//! because to leave them out would measure something else than was asked for.

use io::units::{MICROSECOND_NS, SECOND_NS};

use super::amount::{self, Amount};
use super::blocks::Blocks;
use super::distribution::Distribution;
use super::job::{Access, Job, PerDirection};

/// Engines that keep several requests under way.
const ENGINES_ASYNC: &[&str] = &["libaio", "io_uring", "posixaio", "nbd"];
/// Engines that wait for each.
const ENGINES_SYNC: &[&str] = &["psync", "sync", "vsync", "pvsync", "pvsync2"];

/// How fio itself works, or what it prints: no part of the workload.
const SAYS_NOTHING_HERE: &[&str] = &[
    "filename",
    "directory",
    "description",
    "thread",
    "invalidate",
    "randrepeat",
    "random_generator",
    "allow_mounted_write",
    "disable_lat",
    "disable_clat",
    "disable_slat",
    "disable_bw_measurement",
    "gtod_reduce",
    "clat_percentiles",
    "lat_percentiles",
    "percentile_list",
    "log_avg_msec",
    "write_bw_log",
    "write_lat_log",
    "write_iops_log",
    "per_job_logs",
    "refill_buffers",
    "uri",
];

/// Sets one option of a job.
///
/// # Errors
/// What is wrong with it, in words.
pub(super) fn set(job: &mut Job, option: &str, value: Option<&str>) -> Result<(), String> {
    let text = value.unwrap_or_default();
    let needed = || value.ok_or_else(|| "it needs a value".to_owned());
    match option {
        "rw" | "readwrite" => job.access = Access::parse(needed()?)?,
        "bs" | "blocksize" => job.blocks = PerDirection::parse(needed()?, Blocks::one)?,
        "bsrange" | "blocksize_range" => {
            job.blocks = PerDirection::parse(needed()?, Blocks::range)?;
        }
        "bssplit" => job.blocks = PerDirection::parse(needed()?, Blocks::split)?,
        "rwmixread" => job.read_percent = percent(needed()?)?,
        "rwmixwrite" => job.read_percent = 100 - percent(needed()?)?,
        "iodepth" => job.depth = at_least(1, 4096, needed()?)?,
        "ioengine" => job.synchronous = is_synchronous(needed()?)?,
        "numjobs" => job.copies = at_least(1, 4096, needed()?)?,
        "offset" => job.offset = Amount::parse(needed()?)?,
        "offset_increment" => job.offset_increment = Amount::parse(needed()?)?,
        "size" => job.size = Some(Amount::parse(needed()?)?),
        // To fio it is how long the file shall be made, whatever the size of the region.
        "filesize" => {
            return Err(
                "what it runs on has the size it has: say size= for a part of it".to_owned()
            );
        }
        "io_size" | "io_limit" => job.io_size = Some(Amount::parse(needed()?)?),
        "runtime" => job.runtime_ns = Some(amount::time_ns(needed()?, SECOND_NS)?),
        "time_based" => job.time_based = amount::switch(value)?,
        "ramp_time" => job.ramp_ns = amount::time_ns(needed()?, SECOND_NS)?,
        "startdelay" => job.start_delay_ns = amount::time_ns(needed()?, SECOND_NS)?,
        "random_distribution" => job.distribution = Distribution::parse(needed()?)?,
        "norandommap" => job.no_random_map = amount::switch(value)?,
        "randseed" => job.seed = amount::count(needed()?)?,
        "rate" => job.rate = PerDirection::parse(needed()?, limit)?,
        "rate_iops" => job.rate_iops = PerDirection::parse(needed()?, limit)?,
        "thinktime" => job.think_ns = amount::time_ns(needed()?, MICROSECOND_NS)?,
        "thinktime_blocks" => job.think_blocks = at_least(1, u64::MAX, needed()?)?,
        // A flush of a drive has no metadata to leave out.
        "fsync" | "fdatasync" => job.flush_every = amount::count(needed()?)?,
        "end_fsync" => job.end_flush = amount::switch(value)?,
        "stonewall" | "wait_for_previous" => job.barrier = amount::switch(value)?,
        "loops" => job.loops = at_least(1, u64::MAX, needed()?)?,
        "group_reporting" => job.group_reporting = amount::switch(value)?,
        "direct" => {
            if !amount::switch(value)? {
                return Err(no_page_cache());
            }
        }
        "buffered" => {
            if amount::switch(value)? {
                return Err(no_page_cache());
            }
        }
        "nrfiles" | "verify" | "do_verify" | "zonemode" | "sync" => {
            let allowed = if option == "nrfiles" { "1" } else { "0" };
            if text != allowed && !(option == "zonemode" && text == "none") {
                return Err(format!("only {option}={allowed} can be played"));
            }
        }
        _ if SAYS_NOTHING_HERE.contains(&option) => {}
        _ => return Err("it is not of the options that can be played".to_owned()),
    }
    Ok(())
}

fn is_synchronous(engine: &str) -> Result<bool, String> {
    if ENGINES_ASYNC.contains(&engine) {
        return Ok(false);
    }
    if ENGINES_SYNC.contains(&engine) {
        return Ok(true);
    }
    Err(format!(
        "'{engine}' is not of the engines that can be played ({}; one request at a time: {})",
        ENGINES_ASYNC.join(", "),
        ENGINES_SYNC.join(", ")
    ))
}

fn no_page_cache() -> String {
    "nothing here has a page cache: say direct=1".to_owned()
}

fn percent(text: &str) -> Result<u64, String> {
    match amount::count(text)? {
        percent @ 0..=100 => Ok(percent),
        other => Err(format!("{other} is above 100")),
    }
}

fn at_least(min: u64, max: u64, text: &str) -> Result<u64, String> {
    match amount::bytes(text)? {
        value if (min..=max).contains(&value) => Ok(value),
        value => Err(format!("{value} is not from {min} to {max}")),
    }
}

fn limit(text: &str) -> Result<Option<u64>, String> {
    Ok(Some(amount::bytes(text)?).filter(|limit| *limit > 0))
}
