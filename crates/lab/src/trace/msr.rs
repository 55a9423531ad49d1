//! The CSV of the Microsoft Research Cambridge traces.

use super::{Deed, Event, Problem, Reader, Said, number};

/// Windows counts time in units of 100 ns.
const TICKS_PER_US: u64 = 10;

pub(super) struct Msr;

impl Reader for Msr {
    fn line(&mut self, text: &str) -> Result<Said, Problem> {
        let mut fields = text.split(',');
        let at_us = number("time", fields.next())? / TICKS_PER_US;
        let deed = match fields.nth(2).map(str::trim) {
            Some(word) if word.eq_ignore_ascii_case("read") => Deed::Read,
            Some(word) if word.eq_ignore_ascii_case("write") => Deed::Write,
            Some(word) => return Err(Problem::Field("type (Read, Write)", word.to_owned())),
            None => return Err(Problem::Missing("type")),
        };
        let offset = number("offset", fields.next())?;
        let length = number("size", fields.next())?;
        Ok(Said::Event(Event { at_us, deed, offset, length }))
    }
}
