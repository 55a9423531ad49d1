//! Traces written down, request by request, so that what is there can be read at any time.

use std::io::{self, Write};

use super::compact::{self, Encoder};
use super::{Deed, Event, Format};

/// The name of the file in an iolog: what fio is told to replace with `--replay_redirect`.
const IOLOG_FILE: &str = "volume";

/// Writes one format.
pub struct Writer<W> {
    out: W,
    format: Format,
    encoder: Encoder,
}

impl<W: Write> Writer<W> {
    /// Begins a trace.
    ///
    /// # Errors
    /// Those of `out`, and `Unsupported` for a format that is only read.
    pub fn new(mut out: W, format: Format) -> io::Result<Writer<W>> {
        match format {
            Format::Csv => writeln!(out, "t_us,op,offset,length")?,
            Format::Iolog3 => {
                write!(out, "fio version 3 iolog\n0 {IOLOG_FILE} add\n0 {IOLOG_FILE} open\n")?;
            }
            Format::Compact => out.write_all(compact::HEAD)?,
            Format::Iolog2 | Format::Blkparse | Format::Msr => {
                let problem = "traces are written as csv, fio iolog version 3, or compact";
                return Err(io::Error::new(io::ErrorKind::Unsupported, problem));
            }
        }
        Ok(Writer { out, format, encoder: Encoder::default() })
    }

    /// Adds requests, and hands everything to the file.
    ///
    /// # Errors
    /// Those of the file.
    pub fn add(&mut self, events: &[Event]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for event in events {
            let Event { at_us, deed, offset, length } = *event;
            match self.format {
                Format::Compact => self.encoder.encode(event, &mut bytes),
                Format::Iolog3 => {
                    let action = match deed {
                        Deed::Read => "read",
                        Deed::Write => "write",
                        Deed::Flush => "sync",
                        Deed::Discard => "trim",
                    };
                    writeln!(bytes, "{at_us} {IOLOG_FILE} {action} {offset} {length}")?;
                }
                _ => {
                    let op = match deed {
                        Deed::Read => 'R',
                        Deed::Write => 'W',
                        Deed::Flush => 'F',
                        Deed::Discard => 'D',
                    };
                    writeln!(bytes, "{at_us},{op},{offset},{length}")?;
                }
            }
        }
        self.out.write_all(&bytes)?;
        self.out.flush()
    }

    /// Ends the trace; one that was not ended can be read too.
    ///
    /// # Errors
    /// Those of the file.
    pub fn finish(mut self, at_us: u64) -> io::Result<W> {
        if self.format == Format::Iolog3 {
            writeln!(self.out, "{at_us} {IOLOG_FILE} close")?;
        }
        self.out.flush()?;
        Ok(self.out)
    }
}
