//! Numbers as fio writes them: `4k`, `10%`, `60s`, `500us`.
//!
//! fio's `kb_base=1024` is taken for granted: `k` is 1024 and `ki` is 1000, which is the opposite of
//! what the rest of the world means, and what every job file relies on.

use io::units::SECOND_NS;

/// A number of bytes, or a share of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Bytes(u64),
    /// So many hundredths of the target's size.
    Percent(u64),
}

impl Amount {
    /// Reads `4096`, `4k`, `1g` or `10%`.
    pub(super) fn parse(text: &str) -> Result<Amount, String> {
        if let Some(number) = text.strip_suffix('%') {
            return match number.trim().parse() {
                Ok(percent @ 0..=100) => Ok(Amount::Percent(percent)),
                _ => Err(format!("'{text}' is not a percentage from 0% to 100%")),
            };
        }
        bytes(text).map(Amount::Bytes)
    }

    /// In bytes of a target of that size, rounded down.
    pub fn of(self, whole_bytes: u64) -> u64 {
        match self {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => {
                (u128::from(whole_bytes) * u128::from(percent) / 100) as u64
            }
        }
    }
}

/// Reads a number of bytes.
pub(super) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let unit = unit.to_ascii_lowercase();
    let factor: u64 = match unit.as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1 << 10,
        "m" | "mb" => 1 << 20,
        "g" | "gb" => 1 << 30,
        "t" | "tb" => 1 << 40,
        "p" | "pb" => 1 << 50,
        "ki" | "kib" => 1_000,
        "mi" | "mib" => 1_000_000,
        "gi" | "gib" => 1_000_000_000,
        "ti" | "tib" => 1_000_000_000_000,
        "pi" | "pib" => 1_000_000_000_000_000,
        _ => return Err(format!("'{text}' is not a size (try 4096, 4k or 1g)")),
    };
    scaled(number, factor).ok_or_else(|| format!("'{text}' is not a size (try 4096, 4k or 1g)"))
}

/// Reads a time; a bare number is in units of `unit_ns`.
pub(super) fn time_ns(text: &str, unit_ns: u64) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" => unit_ns,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => SECOND_NS,
        "m" => 60 * SECOND_NS,
        "h" => 3600 * SECOND_NS,
        "d" => 24 * 3600 * SECOND_NS,
        _ => return Err(format!("'{text}' is not a time (try 60, 60s, 5m or 500us)")),
    };
    scaled(number, factor).ok_or_else(|| format!("'{text}' is not a time (try 60, 60s or 500us)"))
}

/// Reads a whole number without a unit.
pub(super) fn count(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("'{text}' is not a whole number"))
}

/// Reads a switch: nothing or 1 is on, 0 is off.
pub(super) fn switch(value: Option<&str>) -> Result<bool, String> {
    match value {
        None | Some("1") => Ok(true),
        Some("0") => Ok(false),
        Some(other) => Err(format!("'{other}' is neither 0 nor 1")),
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

fn scaled(number: &str, factor: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let value: f64 = number.parse().ok()?;
    let scaled = value * factor as f64;
    (scaled < 9e18).then_some(scaled as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_mean_what_fio_means() {
        assert_eq!(bytes("4k"), Ok(4096));
        assert_eq!(bytes("4KB"), Ok(4096));
        assert_eq!(bytes("4kib"), Ok(4000));
        assert_eq!(bytes("1.5m"), Ok(3 << 19));
        assert_eq!(Amount::parse("10%").map(|a| a.of(1005)), Ok(100));
        for bad in ["", "k", "4q", "-1", "0x1000", "101%", "99999999999g"] {
            assert!(Amount::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_mean_what_fio_means() {
        assert_eq!(time_ns("60", SECOND_NS), Ok(60 * SECOND_NS));
        assert_eq!(time_ns("5m", SECOND_NS), Ok(300 * SECOND_NS));
        assert_eq!(time_ns("200", 1_000), Ok(200_000));
        assert_eq!(time_ns("2ms", 1_000), Ok(2_000_000));
        assert!(time_ns("2 weeks", 1_000).is_err());
    }
}
