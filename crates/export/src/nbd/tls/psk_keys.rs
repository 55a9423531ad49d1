//! Files of shared keys, as `psktool` writes them: one `USER:HEXKEY` per line.

use std::collections::BTreeMap;

/// Shortest key taken, in bytes: `psktool` makes 32.
const KEY_BYTES_MIN: usize = 16;
/// Longest key the protocol library takes, in bytes.
const KEY_BYTES_MAX: usize = 256;

/// The keys of a file, by user.
pub struct PskKeys(BTreeMap<Vec<u8>, Vec<u8>>);

impl PskKeys {
    /// Reads `USER:HEXKEY` lines; empty lines and lines that begin with `#` are passed over.
    ///
    /// # Errors
    /// Which line is wrong, and how.
    pub fn parse(text: &str) -> Result<PskKeys, String> {
        let mut keys = BTreeMap::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let number = index + 1;
            // The name may hold colons, the key cannot.
            let (user, digits) =
                line.rsplit_once(':').ok_or(format!("line {number} is not USER:HEXKEY"))?;
            let key =
                parse_hex(digits).ok_or(format!("line {number}: the key is not hexadecimal"))?;
            if !(KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
                return Err(format!(
                    "line {number}: the key has {} bytes, not {KEY_BYTES_MIN} to {KEY_BYTES_MAX}",
                    key.len()
                ));
            }
            if user.is_empty() || keys.insert(user.as_bytes().to_vec(), key).is_some() {
                return Err(format!("line {number}: the user is missing or was there before"));
            }
        }
        if keys.is_empty() {
            return Err("there is no key in this file (psktool makes one)".into());
        }
        Ok(PskKeys(keys))
    }

    /// How many users have a key.
    pub fn users(&self) -> usize {
        self.0.len()
    }

    /// The key of a user.
    pub fn of(&self, user: &[u8]) -> Option<&[u8]> {
        self.0.get(user).map(Vec::as_slice)
    }
}

fn parse_hex(digits: &str) -> Option<Vec<u8>> {
    let digits = digits.as_bytes();
    let value = |digit: u8| (digit as char).to_digit(16).map(|value| value as u8);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks_exact(2).map(|pair| Some(value(pair[0])? << 4 | value(pair[1])?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_are_read_as_psktool_writes_them() {
        let keys = PskKeys::parse("# made by psktool\n\nanna:00112233445566778899aabbCCDDEEFF\n");
        let keys = keys.unwrap();
        assert_eq!(keys.users(), 1);
        assert_eq!(keys.of(b"anna").unwrap()[15], 0xff);
    }

    #[test]
    fn a_bad_key_file_is_refused_with_its_line() {
        for (bad, expected) in [
            ("", "no key"),
            ("anna", "line 1"),
            ("\nanna:00", "line 2"),
            ("anna:zz112233445566778899aabbccddeeff", "hexadecimal"),
            ("anna:0112233445566778899aabbccddeeff", "hexadecimal"),
            (":00112233445566778899aabbccddeeff", "user is missing"),
        ] {
            let error = PskKeys::parse(bad).err().expect("refused");
            assert!(error.contains(expected), "{bad:?}: {error}");
        }
    }
}
