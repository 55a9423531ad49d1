//! Where on a volume a trace is played.

use std::collections::BTreeMap;

use crate::trace::{Deed, Event};

/// Requests are moved in pieces of this size; it is the smallest extent a volume can have, so that
/// what was near stays near.
const PIECE_BYTES: u64 = 128 << 10;
/// What every drive can address.
const SECTOR_BYTES: u64 = 512;

/// Requests that fit a volume, and what they touch.
#[derive(Debug, Clone)]
pub struct Ground {
    /// The requests, in whole sectors.
    pub events: Vec<Event>,
    /// What they touch, as runs of (first byte, length) in whole pieces, in order.
    pub runs: Vec<(u64, u64)>,
    /// The gaps between what is touched were left out, because it ended beyond the volume.
    pub is_packed: bool,
}

impl Ground {
    /// The trace on a volume of so many bytes.
    ///
    /// # Errors
    /// A sentence, when even what it touches does not fit.
    pub fn new(events: &[Event], volume_bytes: u64) -> Result<Ground, String> {
        let events: Vec<Event> = events.iter().map(in_sectors).collect();
        // Piece of the trace, and where it lies.
        let mut pieces: BTreeMap<u64, u64> = BTreeMap::new();
        for event in events.iter().filter(|event| event.length > 0) {
            // A discard touches nothing that would have to be there.
            if event.deed != Deed::Discard {
                for piece in
                    event.offset / PIECE_BYTES..(event.offset + event.length).div_ceil(PIECE_BYTES)
                {
                    pieces.insert(piece, piece);
                }
            }
        }
        let touched_bytes = pieces.len() as u64 * PIECE_BYTES;
        if touched_bytes > volume_bytes {
            return Err(format!(
                "the trace touches {touched_bytes} bytes, and the volume has {volume_bytes}"
            ));
        }
        let end = pieces.keys().next_back().map_or(0, |last| (last + 1) * PIECE_BYTES);
        let is_packed = end > volume_bytes;
        if is_packed {
            for (rank, place) in pieces.values_mut().enumerate() {
                *place = rank as u64;
            }
        }
        let events = events
            .into_iter()
            .filter_map(|event| moved(event, &pieces, is_packed, volume_bytes))
            .collect();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for place in pieces.values().map(|piece| piece * PIECE_BYTES) {
            match runs.last_mut() {
                Some((at, length)) if *at + *length == place => *length += PIECE_BYTES,
                _ => runs.push((place, PIECE_BYTES)),
            }
        }
        Ok(Ground { events, runs, is_packed })
    }

    /// Bytes of what is touched.
    pub fn touched_bytes(&self) -> u64 {
        self.runs.iter().map(|(_, length)| length).sum()
    }
}

fn in_sectors(event: &Event) -> Event {
    let end = (event.offset + event.length).next_multiple_of(SECTOR_BYTES);
    let offset = event.offset / SECTOR_BYTES * SECTOR_BYTES;
    let length = if event.length == 0 { 0 } else { end - offset };
    Event { offset, length, ..*event }
}

/// The request at its place. Neighbouring pieces of one request stay neighbours when gaps are left
/// out: all of them are touched. Discards of what nothing else touches are dropped.
fn moved(
    event: Event,
    pieces: &BTreeMap<u64, u64>,
    is_packed: bool,
    volume_bytes: u64,
) -> Option<Event> {
    if event.length == 0 {
        return Some(event);
    }
    if !is_packed {
        let length = event.length.min(volume_bytes.saturating_sub(event.offset));
        return (length > 0).then_some(Event { length, ..event });
    }
    let first = event.offset / PIECE_BYTES;
    let last = (event.offset + event.length - 1) / PIECE_BYTES;
    if event.deed != Deed::Discard {
        let offset = pieces[&first] * PIECE_BYTES + event.offset % PIECE_BYTES;
        return Some(Event { offset, ..event });
    }
    // The touched pieces of a discard are neighbours in the packed order, whatever lay between.
    let mut touched = pieces.range(first..=last);
    let (low, place) = touched.next()?;
    let (high, end_place) = touched.next_back().unwrap_or((low, place));
    let from = if *low == first { event.offset % PIECE_BYTES } else { 0 };
    let to = if *high == last {
        (event.offset + event.length - 1) % PIECE_BYTES + 1
    } else {
        PIECE_BYTES
    };
    let offset = place * PIECE_BYTES + from;
    let length = (end_place * PIECE_BYTES + to).saturating_sub(offset);
    (length > 0).then_some(Event { offset, length, ..event })
}
