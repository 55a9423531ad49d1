//! fio's iologs: what `--write_iolog` writes and `--read_iolog` plays.
//!
//! A log may name several files; they are taken for one drive.

use super::{Deed, Event, Problem, Reader, Said, number};

/// Version 2: `FILE ACTION [OFFSET LENGTH]`; time passes by `wait`, in microseconds (fio's HOWTO).
#[derive(Default)]
pub(super) struct Two {
    at_us: u64,
}

/// Version 3: `TIME FILE ACTION [OFFSET LENGTH]`, in microseconds since the start.
pub(super) struct Three;

impl Reader for Two {
    fn line(&mut self, text: &str) -> Result<Said, Problem> {
        let mut fields = text.split_whitespace();
        fields.next().ok_or(Problem::Missing("file"))?;
        let action = fields.next().ok_or(Problem::Missing("action"))?;
        if action == "wait" {
            self.at_us = self.at_us.saturating_add(number("time", fields.next())?);
            return Ok(Said::Nothing);
        }
        deed(self.at_us, action, fields)
    }
}

impl Reader for Three {
    fn line(&mut self, text: &str) -> Result<Said, Problem> {
        let mut fields = text.split_whitespace();
        let at_us = number("time", fields.next())?;
        fields.next().ok_or(Problem::Missing("file"))?;
        let action = fields.next().ok_or(Problem::Missing("action"))?;
        deed(at_us, action, fields)
    }
}

fn deed<'a>(
    at_us: u64,
    action: &str,
    mut fields: impl Iterator<Item = &'a str>,
) -> Result<Said, Problem> {
    let deed = match action {
        "read" => Deed::Read,
        "write" => Deed::Write,
        "trim" => Deed::Discard,
        "sync" | "datasync" => {
            return Ok(Said::Event(Event { at_us, deed: Deed::Flush, offset: 0, length: 0 }));
        }
        "add" | "open" | "close" => return Ok(Said::Nothing),
        other => return Err(Problem::Field("action of an iolog", other.to_owned())),
    };
    let offset = number("offset", fields.next())?;
    let length = number("length", fields.next())?;
    Ok(Said::Event(Event { at_us, deed, offset, length }))
}
