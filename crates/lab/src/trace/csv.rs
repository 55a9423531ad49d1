//! `t_us,op,offset,length`.

use super::{Deed, Event, Problem, Reader, Said, number};

pub(super) struct Csv;

impl Reader for Csv {
    fn line(&mut self, text: &str) -> Result<Said, Problem> {
        let mut fields = text.split(',');
        let at_us = number("time", fields.next())?;
        let deed = match fields.next().map(str::trim) {
            Some("R") => Deed::Read,
            Some("W") => Deed::Write,
            Some("F") => Deed::Flush,
            Some("D") => Deed::Discard,
            Some(other) => return Err(Problem::Field("operation (R, W, F, D)", other.to_owned())),
            None => return Err(Problem::Missing("operation")),
        };
        let offset = number("offset", fields.next())?;
        let length = number("length", fields.next())?;
        Ok(Said::Event(Event { at_us, deed, offset, length }))
    }
}
