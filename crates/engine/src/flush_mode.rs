//! When a client's flush ends: once all is durable, or, in deferred mode, once its order is fixed,
//! with a bound on what a power cut may then take.

use std::fmt;
use std::str::FromStr;

use io::units::{GIB, MIB, MILLISECOND_NS, human_bytes, parse_bytes};

/// Shortest age bound: below it the drive would do nothing but flush.
const AGE_MS_MIN: u32 = 1;
/// Longest age bound. Beyond a minute "deferred" would only be another word for "lost".
const AGE_MS_MAX: u32 = 60_000;
/// Smallest byte bound: the largest request of a client fits.
const BYTES_MIN: u64 = MIB;
/// Largest byte bound: recovery looks as far behind a damaged record for one that says it was
/// durable.
const BYTES_MAX: u64 = 4 * GIB;
/// Byte bound when none is given: some tenths of a second of a fast drive's writing.
const BYTES_DEFAULT: u64 = 256 * MIB;

/// What a flush promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FlushMode {
    /// A flush is a flush.
    #[default]
    Strict,
    /// A flush ends when its order is fixed. A power cut leaves the state after some prefix of the
    /// writes, and the bound says how much may be missing.
    Deferred(Bound),
}

/// How much acknowledged work a power cut may take in deferred mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Nothing acknowledged longer ago than this, in milliseconds.
    pub age_ms: u32,
    /// No more than so many bytes.
    pub bytes: u64,
}

impl Bound {
    pub(crate) fn age_ns(self) -> u64 {
        u64::from(self.age_ms) * MILLISECOND_NS
    }

    /// Whether the numbers are within what is allowed.
    pub(crate) fn is_sound(self) -> bool {
        (AGE_MS_MIN..=AGE_MS_MAX).contains(&self.age_ms)
            && (BYTES_MIN..=BYTES_MAX).contains(&self.bytes)
    }
}

impl FlushMode {
    /// The bound of deferred mode.
    pub fn bound(self) -> Option<Bound> {
        match self {
            FlushMode::Strict => None,
            FlushMode::Deferred(bound) => Some(bound),
        }
    }
}

impl fmt::Display for FlushMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FlushMode::Strict => f.write_str("strict"),
            FlushMode::Deferred(Bound { age_ms, bytes }) => {
                write!(f, "deferred={age_ms},{}", human_bytes(*bytes))
            }
        }
    }
}

impl FromStr for FlushMode {
    type Err = String;

    /// Reads `strict` or `deferred=MS[,BYTES]`; `250`, `250ms` and `2s` are times.
    fn from_str(text: &str) -> Result<FlushMode, String> {
        let usage = "'strict' or 'deferred=MS[,BYTES]', as in deferred=250 or deferred=1s,64M";
        if text == "strict" {
            return Ok(FlushMode::Strict);
        }
        let Some(bound) = text.strip_prefix("deferred=") else {
            let both = text.contains("strict") && text.contains("deferred");
            let refusal = if both { "a volume is either strict or deferred" } else { "unknown" };
            return Err(format!("{refusal}: '{text}'; give {usage}"));
        };
        let (age, bytes) = match bound.split_once(',') {
            Some((age, bytes)) => (age, parse_bytes(bytes)?),
            None => (bound, BYTES_DEFAULT),
        };
        let (number, factor) = match (age.strip_suffix("ms"), age.strip_suffix('s')) {
            (Some(number), _) => (number, 1),
            (None, Some(number)) => (number, 1000),
            (None, None) => (age, 1),
        };
        let number: u32 =
            number.parse().map_err(|_| format!("'{age}' is not a time; give {usage}"))?;
        let bound = Bound { age_ms: number.saturating_mul(factor), bytes };
        if !(AGE_MS_MIN..=AGE_MS_MAX).contains(&bound.age_ms) {
            return Err(format!("'{age}' is not between {AGE_MS_MIN} ms and {AGE_MS_MAX} ms"));
        }
        if !bound.is_sound() {
            let (least, most) = (human_bytes(BYTES_MIN), human_bytes(BYTES_MAX));
            return Err(format!("{} is not between {least} and {most}", human_bytes(bytes)));
        }
        Ok(FlushMode::Deferred(bound))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_and_written_in_the_same_words() {
        let deferred = |age_ms, bytes| Ok(FlushMode::Deferred(Bound { age_ms, bytes }));
        assert_eq!("strict".parse(), Ok(FlushMode::Strict));
        assert_eq!("deferred=250".parse::<FlushMode>(), deferred(250, BYTES_DEFAULT));
        assert_eq!("deferred=250ms,64M".parse::<FlushMode>(), deferred(250, 64 * MIB));
        assert_eq!("deferred=2s".parse::<FlushMode>(), deferred(2000, BYTES_DEFAULT));
        for text in ["strict", "deferred=250,64M", "deferred=1,1M"] {
            assert_eq!(text.parse::<FlushMode>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_to_say_instead() {
        for text in [
            "",
            "lax",
            "deferred",
            "deferred=",
            "deferred=0",
            "deferred=61s",
            "deferred=1h",
            "deferred=10,1K",
            "deferred=10,99G",
            "deferred=99999999s",
            "strict,deferred=1",
        ] {
            let refusal = text.parse::<FlushMode>().unwrap_err();
            assert!(refusal.len() > 10, "{text}: {refusal}");
        }
        let refusal = "strict,deferred=1".parse::<FlushMode>().unwrap_err();
        assert!(refusal.contains("either"), "{refusal}");
    }
}
