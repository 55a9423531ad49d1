//! How much memory this machine has, and what is too much to ask of it.

use std::fs;

use engine::TuningChange;
use io::units::human_bytes;

use crate::failure::Failure;

/// Of the machine's memory, so much at most may be set aside for what was read: programs and the system's own
/// cache need the rest.
const STAGE_SHARE: u64 = 2;

/// Refuses what the machine could never give: it would not fail now, but when so much has been read.
pub fn verify(change: TuningChange) -> Result<(), Failure> {
    let TuningChange::Stage(Some(bytes)) = change else { return Ok(()) };
    let Some(memory) = total_bytes() else { return Ok(()) };
    if bytes <= memory / STAGE_SHARE {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "stage={change} is more than half of this machine's memory, which has {}",
        human_bytes(memory)
    ))
    .hint(format!(
        "at most {}; 'stage=default' is seldom too little",
        human_bytes(memory / STAGE_SHARE)
    )))
}

/// All of it, in bytes; `None` where the kernel does not say.
fn total_bytes() -> Option<u64> {
    parse(&fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    // "MemTotal:       24593956 kB", where kB are 1024 bytes.
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_much_there_is() {
        assert_eq!(parse("MemTotal:       24593956 kB\nMemFree: 1 kB\n"), Some(24_593_956 << 10));
        assert_eq!(parse("MemFree: 1 kB\n"), None);
        assert!(total_bytes().is_none_or(|bytes| bytes > 1 << 20));
    }
}
