//! What blkparse prints: `8,0  1  42  0.000104000  913  Q  WS 1049608 + 8 [kworker]`.
//!
//! Each request appears several times on its way. Queued (Q) is what was asked for; where a trace
//! has no such events, issued (D) is taken, which the scheduler has merged and sorted.

use super::{Deed, Event, Problem, Reader, Said, number};

/// Unit of addresses in block traces, whatever the drive's sectors.
const SECTOR_BYTES: u64 = 512;

/// No trace lasts longer (about 3,000 years): times stay far from overflow.
const SECONDS_MAX: u64 = 100_000_000_000;

#[derive(Default)]
pub(super) struct Blkparse {
    queued_any: bool,
    issued: Vec<Event>,
}

/// Whether a line may be an event of blkparse: device, processor, number, time.
pub(super) fn looks_like(text: &str) -> bool {
    begins_like(text) && text.split_whitespace().nth(3).is_some_and(|field| time_us(field).is_ok())
}

/// The same, whatever its time is.
fn begins_like(text: &str) -> bool {
    let mut fields = text.split_whitespace();
    let device = fields.next().and_then(|field| field.split_once(','));
    device
        .is_some_and(|(major, minor)| major.parse::<u32>().is_ok() && minor.parse::<u32>().is_ok())
        && fields.next().is_some_and(|field| field.parse::<u32>().is_ok())
        && fields.next().is_some_and(|field| field.parse::<u64>().is_ok())
        && fields.next().is_some()
}

impl Reader for Blkparse {
    fn line(&mut self, text: &str) -> Result<Said, Problem> {
        // The summary at the end, and messages between, are no events.
        if !begins_like(text) {
            return Ok(Said::Nothing);
        }
        let fields: Vec<&str> = text.split_whitespace().collect();
        let at_us = time_us(fields[3])?;
        let (Some(action), Some(kind)) = (fields.get(5), fields.get(6)) else {
            return Ok(Said::Nothing);
        };
        let queued = *action == "Q";
        if !queued && *action != "D" {
            return Ok(Said::Nothing);
        }
        let has_range = fields.get(8) == Some(&"+");
        let (offset, length) = if has_range {
            let sectors = |name, field| {
                let sectors = number(name, fields.get(field).copied())?;
                sectors.checked_mul(SECTOR_BYTES).ok_or(Problem::Range(sectors, 0))
            };
            (sectors("sector", 7)?, sectors("count of sectors", 9)?)
        } else {
            (0, 0)
        };
        // Letters: D discard, R read, W write, F flush (before it, or after), S, A, M, N: manners.
        let deed = if kind.contains('D') {
            Deed::Discard
        } else if kind.contains('R') {
            Deed::Read
        } else if kind.contains('W') && length > 0 {
            Deed::Write
        } else if kind.contains('F') {
            Deed::Flush
        } else {
            return Ok(Said::Nothing);
        };
        if deed != Deed::Flush && length == 0 {
            return Ok(Said::Nothing);
        }
        let flush = Event { at_us, deed: Deed::Flush, offset: 0, length: 0 };
        let event = if deed == Deed::Flush { flush } else { Event { at_us, deed, offset, length } };
        let mut asked = Vec::with_capacity(3);
        let (before, after) =
            kind.split_once('W').filter(|_| deed == Deed::Write).unwrap_or_default();
        asked.extend(before.contains('F').then_some(flush));
        asked.push(event);
        asked.extend(after.contains('F').then_some(flush));
        if queued {
            self.queued_any = true;
            self.issued = Vec::new();
            return Ok(Said::Events(asked));
        }
        if !self.queued_any {
            self.issued.extend(asked);
        }
        Ok(Said::Nothing)
    }

    fn close(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.issued);
    }
}

/// Seconds with a fraction of nanoseconds.
fn time_us(field: &str) -> Result<u64, Problem> {
    let wrong = || Problem::Field("time", field.to_owned());
    let (seconds, fraction) = field.split_once('.').ok_or_else(wrong)?;
    if fraction.len() != 9 {
        return Err(wrong());
    }
    let seconds: u64 = seconds.parse().map_err(|_| wrong())?;
    let fraction_ns: u64 = fraction.parse().map_err(|_| wrong())?;
    if seconds > SECONDS_MAX {
        return Err(wrong());
    }
    Ok(seconds * 1_000_000 + fraction_ns / 1000)
}
