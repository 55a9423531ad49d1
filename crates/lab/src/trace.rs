//! Block traces: what somebody's drive was asked, in order.
//!
//! [`Trace::read`] knows the formats by their first line ([`Format`]) and zstd by its magic number.
//! Every line is somebody else's: one that cannot be understood is an error that names it.

mod blkparse;
mod compact;
mod csv;
mod footprint;
mod frames;
mod iolog;
mod msr;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

pub use footprint::Footprint;
pub use writer::Writer;

/// No drive ends above this; arithmetic on addresses stays far from overflow.
const END_MAX: u64 = 1 << 60;

/// No drive is asked to read or write more at once.
const REQUEST_BYTES_MAX: u64 = 4 << 30;

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deed {
    /// Data from the drive.
    Read,
    /// Data to the drive.
    Write,
    /// Cache to medium.
    Flush,
    /// A range is no longer needed.
    Discard,
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds since the first request.
    pub at_us: u64,
    /// What.
    pub deed: Deed,
    /// First byte; 0 for a flush.
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub length: u64,
}

impl Event {
    /// One that a drive could have been asked.
    fn verified(self) -> Result<Event, Problem> {
        let end = self.offset.checked_add(self.length);
        if end.is_none_or(|end| end > END_MAX) {
            return Err(Problem::Range(self.offset, self.length));
        }
        let moves = matches!(self.deed, Deed::Read | Deed::Write);
        if moves && self.length > REQUEST_BYTES_MAX {
            return Err(Problem::Long(self.length));
        }
        Ok(self)
    }
}

/// How a trace is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `t_us,op,offset,length` with op R, W, F or D; lines with `#` are comments.
    Csv,
    /// fio's `--write_iolog` of version 2: no times but `wait`.
    Iolog2,
    /// fio's `--write_iolog` of version 3: microseconds in front.
    Iolog3,
    /// Text of blkparse: the queue events (Q), or the issues (D) where there are none.
    Blkparse,
    /// Our own, a few bytes per request (`trace/compact.rs`).
    Compact,
    /// As of the Microsoft Research Cambridge traces: file times of 100 ns, host, disk, Read or
    /// Write, offset, size, response time.
    Msr,
}

/// A trace in memory.
#[derive(Debug, Clone)]
pub struct Trace {
    /// How it was written down.
    pub format: Format,
    /// Its requests, in the order of their issue.
    pub events: Vec<Event>,
}

/// Why a trace cannot be read.
#[derive(Debug)]
pub enum TraceError {
    /// The file.
    File {
        /// Which.
        path: PathBuf,
        /// What the kernel, or the decompressor, said.
        source: std::io::Error,
    },
    /// No format begins like this.
    Unknown {
        /// Which file.
        path: PathBuf,
        /// How it begins.
        found: String,
    },
    /// A line that is not of the format.
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: Problem,
    },
    /// Octets of the compact format that are no request.
    Octets {
        /// Which file.
        path: PathBuf,
        /// How many requests were read before.
        after: usize,
        /// What is wrong with them.
        problem: String,
    },
    /// Not one request.
    Empty {
        /// Which file.
        path: PathBuf,
    },
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// A field that should be there.
    Missing(&'static str),
    /// A field that is something else.
    Field(&'static str, String),
    /// A range that ends beyond what any drive has.
    Range(u64, u64),
    /// A read or a write of more bytes than any drive takes at once.
    Long(u64),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::Missing(name) => write!(f, "no {name}"),
            Problem::Field(name, found) => write!(f, "'{found}' is no {name}"),
            Problem::Range(offset, length) => {
                write!(f, "{length} bytes at {offset} end beyond any drive")
            }
            Problem::Long(length) => write!(f, "{length} bytes are more than any request has"),
        }
    }
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceError::File { path, source } => write!(f, "{}: {source}", path.display()),
            TraceError::Unknown { path, found } => write!(
                f,
                "{} is no trace of a known format: it begins with '{found}' (known: \
                 t_us,op,offset,length; fio iolog 2 and 3; blkparse text; MSR; the compact one of 'bimetal trace')",
                path.display()
            ),
            TraceError::Line { path, line, problem } => {
                write!(f, "{}, line {line}: {problem}", path.display())
            }
            TraceError::Octets { path, after, problem } => {
                write!(f, "{}, after {after} requests: {problem}", path.display())
            }
            TraceError::Empty { path } => write!(f, "{} has no requests", path.display()),
        }
    }
}

impl std::error::Error for TraceError {}

/// What a line says.
enum Said {
    /// A request.
    Event(Event),
    /// Several, in this order.
    Events(Vec<Event>),
    /// Nothing that concerns the drive.
    Nothing,
}

/// A format's reader, fed line by line.
trait Reader {
    fn line(&mut self, text: &str) -> Result<Said, Problem>;
    /// After the last line: what only the whole could tell.
    fn close(&mut self, _events: &mut Vec<Event>) {}
}

impl Trace {
    /// Reads a file, compressed with zstd or not.
    pub fn read(path: &Path) -> Result<Trace, TraceError> {
        let failed = |source| TraceError::File { path: path.to_owned(), source };
        let mut file = BufReader::new(File::open(path).map_err(failed)?);
        let start = file.fill_buf().map_err(failed)?;
        if frames::is_compressed(start) {
            Trace::parse(path, frames::Frames::new(file))
        } else {
            Trace::parse(path, file)
        }
    }

    /// Reads text; `path` is for messages.
    pub fn parse(path: &Path, text: impl Read) -> Result<Trace, TraceError> {
        let failed = |source| TraceError::File { path: path.to_owned(), source };
        let mut text = BufReader::new(text);
        let mut events: Vec<Event> = Vec::new();
        if text.fill_buf().map_err(failed)?.starts_with(compact::HEAD) {
            let mut bytes = Vec::new();
            text.read_to_end(&mut bytes).map_err(failed)?;
            events = compact(path, &bytes[compact::HEAD.len()..])?;
            return Trace::of(path, Format::Compact, events);
        }
        let mut known: Option<(Format, Box<dyn Reader>)> = None;
        for (index, bytes) in text.split(b'\n').enumerate() {
            let bytes = bytes.map_err(failed)?;
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let at_line =
                |problem| TraceError::Line { path: path.to_owned(), line: index + 1, problem };
            let reader = match &mut known {
                Some((_, reader)) => reader,
                None => {
                    let (format, reader, is_head) = begin(text).ok_or_else(|| {
                        let found = text.chars().take(60).collect();
                        TraceError::Unknown { path: path.to_owned(), found }
                    })?;
                    let (_, reader) = known.insert((format, reader));
                    if is_head {
                        continue;
                    }
                    reader
                }
            };
            match reader.line(text).map_err(at_line)? {
                Said::Event(event) => events.push(event.verified().map_err(at_line)?),
                Said::Events(several) => {
                    for event in several {
                        events.push(event.verified().map_err(at_line)?);
                    }
                }
                Said::Nothing => {}
            }
        }
        let Some((format, mut reader)) = known else {
            return Err(TraceError::Empty { path: path.to_owned() });
        };
        reader.close(&mut events);
        Trace::of(path, format, events)
    }

    /// Of these requests, with times from the first on.
    fn of(path: &Path, format: Format, mut events: Vec<Event>) -> Result<Trace, TraceError> {
        let Some(first) = events.iter().map(|event| event.at_us).min() else {
            return Err(TraceError::Empty { path: path.to_owned() });
        };
        for event in &mut events {
            event.at_us -= first;
        }
        Ok(Trace { format, events })
    }
}

/// What follows the head of the compact format.
fn compact(path: &Path, bytes: &[u8]) -> Result<Vec<Event>, TraceError> {
    let mut decoder = compact::Decoder::new(bytes);
    let mut events = Vec::new();
    loop {
        let wrong =
            |problem| TraceError::Octets { path: path.to_owned(), after: events.len(), problem };
        match decoder.decode().map_err(wrong)? {
            None => return Ok(events),
            Some(event) => {
                events.push(event.verified().map_err(|problem| wrong(problem.to_string()))?);
            }
        }
    }
}

/// The format that begins like this, its reader, and whether the line is only a heading.
fn begin(text: &str) -> Option<(Format, Box<dyn Reader>, bool)> {
    match text {
        "fio version 2 iolog" => {
            return Some((Format::Iolog2, Box::new(iolog::Two::default()), true));
        }
        "fio version 3 iolog" => return Some((Format::Iolog3, Box::new(iolog::Three), true)),
        "t_us,op,offset,length" => return Some((Format::Csv, Box::new(csv::Csv), true)),
        _ => {}
    }
    let commas = text.split(',').count();
    if commas == 4 && csv::Csv.line(text).is_ok() {
        Some((Format::Csv, Box::new(csv::Csv), false))
    } else if commas == 7 && msr::Msr.line(text).is_ok() {
        Some((Format::Msr, Box::new(msr::Msr), false))
    } else if commas == 7 && text.starts_with("Timestamp,") {
        Some((Format::Msr, Box::new(msr::Msr), true))
    } else if blkparse::looks_like(text) {
        Some((Format::Blkparse, Box::new(blkparse::Blkparse::default()), false))
    } else {
        None
    }
}

/// A field that is a number.
fn number(name: &'static str, field: Option<&str>) -> Result<u64, Problem> {
    let field = field.ok_or(Problem::Missing(name))?.trim();
    field.parse().map_err(|_| Problem::Field(name, field.to_owned()))
}
