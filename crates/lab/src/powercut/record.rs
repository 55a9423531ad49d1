//! The witness's record: the run, then each acknowledged epoch with the time at which the witness
//! heard of it. One JSON value a line, appended as it comes, so that a record that breaks off is
//! a record still.

use std::fmt;
use std::io::BufRead;

use serde::{Deserialize, Serialize};

use super::plan::Run;

/// A drive has acknowledged the flush of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledged {
    /// Which epoch.
    pub epoch: u64,
    /// When the witness heard of it: milliseconds since the run began.
    pub at_ms: u64,
}

/// What a witness has heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The run.
    pub run: Run,
    /// Its acknowledged epochs, ascending without gaps from 1.
    pub acknowledged: Vec<Acknowledged>,
}

/// Why a record cannot be used.
#[derive(Debug)]
pub enum RecordError {
    /// It could not be read.
    Io(std::io::Error),
    /// What is wrong, in which line (counted from 1).
    Line(usize, String),
}

impl fmt::Display for RecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecordError::Io(error) => write!(f, "{error}"),
            RecordError::Line(line, problem) => write!(f, "line {line}: {problem}"),
        }
    }
}

impl std::error::Error for RecordError {}

impl Record {
    /// Reads a record. A last line without its end is left out: the witness was interrupted.
    pub fn read(mut from: impl BufRead) -> Result<Record, RecordError> {
        let mut record: Option<Record> = None;
        let mut text = String::new();
        for line in 1.. {
            text.clear();
            from.read_line(&mut text).map_err(RecordError::Io)?;
            if !text.ends_with('\n') {
                break;
            }
            let wrong = |problem: String| RecordError::Line(line, problem);
            let not_read = |error: serde_json::Error| wrong(error.to_string());
            let Some(record) = &mut record else {
                let run: Run = serde_json::from_str(&text).map_err(not_read)?;
                if let Some(problem) = run.problem() {
                    return Err(wrong(problem));
                }
                record = Some(Record { run, acknowledged: Vec::new() });
                continue;
            };
            let next: Acknowledged = serde_json::from_str(&text).map_err(not_read)?;
            let expected = record.epochs() + 1;
            if next.epoch != expected {
                let found = next.epoch;
                return Err(wrong(format!("epoch {found} where {expected} should follow")));
            }
            record.acknowledged.push(next);
        }
        record.ok_or_else(|| RecordError::Line(1, "there is no run in it".to_owned()))
    }

    /// The last acknowledged epoch; 0 when there is none.
    pub fn epochs(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// How long before the last acknowledgement that of `epoch` was heard, in milliseconds.
    pub fn age_ms(&self, epoch: u64) -> Option<u64> {
        let heard = self.acknowledged.get(usize::try_from(epoch).ok()?.checked_sub(1)?)?;
        Some(self.acknowledged.last()?.at_ms.saturating_sub(heard.at_ms))
    }
}

/// Appends a value as a line.
pub(super) fn append(to: &mut impl std::io::Write, value: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(value).map_err(std::io::Error::other)?;
    line.push(b'\n');
    to.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[&str]) -> String {
        let run = Run::new(3, "/dev/x", 1 << 26, 512).unwrap();
        let mut bytes = Vec::new();
        append(&mut bytes, &run).unwrap();
        String::from_utf8(bytes).unwrap() + &lines.concat()
    }

    #[test]
    fn a_record_is_read_as_far_as_it_goes() {
        let whole = text(&["{\"epoch\":1,\"at_ms\":5}\n", "{\"epoch\":2,\"at_ms\":9}\n", "{\"epo"]);
        let record = Record::read(whole.as_bytes()).unwrap();
        assert_eq!((record.epochs(), record.age_ms(1), record.age_ms(2)), (2, Some(4), Some(0)));
        assert_eq!(record.age_ms(3), None);
        assert_eq!(record.age_ms(0), None);
    }

    #[test]
    fn what_is_no_record_is_told_with_its_line() {
        let wrong = |text: &str| Record::read(text.as_bytes()).unwrap_err().to_string();
        assert!(wrong("").contains("no run"));
        assert!(wrong("hello\n").contains("line 1"));
        let gap = wrong(&text(&["{\"epoch\":2,\"at_ms\":5}\n"]));
        assert!(gap.contains("line 2: epoch 2 where 1 should follow"), "{gap}");
    }
}
