//! How much memory this machine has.

use std::fs;

/// All of it, in bytes; `None` where the kernel does not say.
pub fn total_bytes() -> Option<u64> {
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
