//! Sizes, times and how people write them.

/// Bytes in a kibibyte.
pub const KIB: u64 = 1 << 10;
/// Bytes in a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Bytes in a gibibyte.
pub const GIB: u64 = 1 << 30;
/// Bytes in a tebibyte.
pub const TIB: u64 = 1 << 40;

/// Nanoseconds in a microsecond.
pub const MICROSECOND_NS: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLISECOND_NS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECOND_NS: u64 = 1_000_000_000;

/// Writes a byte count as people do: `1.5G`, `128K`, `512`. Binary units, one decimal at most,
/// rounded to nearest. For exact numbers print the integer.
pub fn human_bytes(bytes: u64) -> String {
    const NAMES: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];
    let mut unit = 0;
    let mut value = bytes as f64;
    // 1023.95 would print as 1024.0: step up before it does.
    while value >= 1023.95 && unit + 1 < NAMES.len() {
        value /= 1024.0;
        unit += 1;
    }
    let text = format!("{value:.1}");
    format!("{}{}", text.strip_suffix(".0").unwrap_or(&text), NAMES[unit])
}

/// The same number as [`parse_bytes`] reads it, in the largest unit that leaves no fraction: `1310848K`.
pub fn exact_bytes(bytes: u64) -> String {
    let units = [(1 << 40, "T"), (GIB, "G"), (MIB, "M"), (KIB, "K")];
    match units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit)) {
        Some((unit, name)) => format!("{}{name}", bytes / unit),
        None => bytes.to_string(),
    }
}

/// Reads `4096`, `128K`, `1.5G`, `2TiB` (binary units, case-insensitive) as bytes.
///
/// # Errors
/// A sentence that says what was wrong, for the command line to print.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, suffix) = trimmed.split_at(digits);
    let shift = match suffix.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        "P" | "PB" | "PIB" => 50,
        other => return Err(format!("'{other}' in '{text}' is not a unit (use K, M, G, T or P)")),
    };
    let too_large = || format!("'{text}' is larger than 2^63 bytes");
    if let Ok(whole) = number.parse::<u64>() {
        let bytes = u128::from(whole) << shift;
        return u64::try_from(bytes).ok().filter(|b| *b < 1 << 63).ok_or_else(too_large);
    }
    let value: f64 =
        number.parse().map_err(|_| format!("'{text}' is not a size (try 4096, 128K or 1.5G)"))?;
    let bytes = value * (1u64 << shift) as f64;
    if bytes < 9.2e18 { Ok(bytes.round() as u64) } else { Err(too_large()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_are_shown_exactly_can_be_read_again() {
        let shown = [0, 1, 1023, 1024, 131_072, 1_342_308_352, 3 << 40, 5 << 30].map(exact_bytes);
        assert_eq!(shown, ["0", "1", "1023", "1K", "128K", "1310848K", "3T", "5G"]);
        for text in shown {
            assert_eq!(exact_bytes(parse_bytes(&text).unwrap()), text);
        }
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        assert_eq!(parse_bytes("4096"), Ok(4096));
        assert_eq!(parse_bytes("128K"), Ok(128 * KIB));
        assert_eq!(parse_bytes("1.5g"), Ok(3 * GIB / 2));
        assert_eq!(parse_bytes("64TiB"), Ok(64 * TIB));
        for bad in ["", "K", "12Q", "-4K", "1.2.3", "99999999999999999999", "9000000P"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sizes_are_written_short() {
        assert_eq!(human_bytes(0), "0");
        assert_eq!(human_bytes(512), "512");
        assert_eq!(human_bytes(128 * KIB), "128K");
        assert_eq!(human_bytes(3 * GIB / 2), "1.5G");
        assert_eq!(human_bytes(MIB - 1), "1M");
    }
}
