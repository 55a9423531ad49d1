//! What a disk has read beyond what it was asked for.
//!
//! * After a read the head stays on its track and goes on reading: the stream. It ends when the
//!   head leaves or the buffer of a segment is full.
//! * What streams have read stays readable in a few segments, the latest first.

use std::collections::VecDeque;

use super::geometry::Geometry;

/// A stream that the head reads.
#[derive(Debug, Clone, Copy)]
struct Stream {
    /// First byte that is in the buffer.
    start: u64,
    /// The head was there ...
    turns: f64,
    /// ... at this moment (ns).
    since_ns: f64,
    /// Where the buffer is full.
    end: u64,
}

impl Stream {
    /// The byte it has read up to.
    fn fill(&self, now_ns: f64, geometry: &Geometry) -> u64 {
        let turns = self.turns + (now_ns - self.since_ns).max(0.0) / geometry.revolution_ns();
        geometry.byte_at(turns).clamp(self.start, self.end)
    }
}

/// See the head of the file.
#[derive(Debug, Clone)]
pub(super) struct TrackBuffer {
    stream: Option<Stream>,
    /// Byte ranges, the latest last.
    segments: VecDeque<(u64, u64)>,
    segments_max: usize,
    ahead_bytes: u64,
}

impl TrackBuffer {
    pub(super) fn new(segments_max: usize, ahead_bytes: u64) -> TrackBuffer {
        TrackBuffer { stream: None, segments: VecDeque::new(), segments_max, ahead_bytes }
    }

    /// Whether the range is in the buffer.
    pub(super) fn holds(&self, start: u64, end: u64, now_ns: f64, geometry: &Geometry) -> bool {
        let covers = |from: u64, to: u64| from <= start && end <= to;
        self.segments.iter().any(|(from, to)| covers(*from, *to))
            || self
                .stream
                .is_some_and(|stream| stream.start <= start && end <= stream.fill(now_ns, geometry))
    }

    /// When the stream, still running, has begun before `at` and goes on to it: the turns it was
    /// at, and when.
    pub(super) fn joins(&self, at: u64, now_ns: f64, geometry: &Geometry) -> Option<(f64, f64)> {
        let stream = self.stream?;
        let fill = stream.fill(now_ns, geometry);
        // The byte the head is over is not read yet: a page of tolerance for the rounding.
        let reached = stream.start <= at && at <= fill + 1;
        (reached && fill < stream.end).then_some((stream.turns, stream.since_ns))
    }

    /// The byte that the head has read up to.
    pub(super) fn position(&self, now_ns: f64, geometry: &Geometry) -> Option<u64> {
        self.stream.map(|stream| stream.fill(now_ns, geometry))
    }

    /// The host has got `..end` out of the buffer, which makes room in it. A stream that stood
    /// still for want of room goes on when half of it is free, once its place comes round.
    pub(super) fn handed_out(&mut self, end: u64, now_ns: f64, geometry: &Geometry) {
        let Some(stream) = &mut self.stream else { return };
        let wanted = end + self.ahead_bytes;
        let fill = stream.fill(now_ns, geometry);
        if end < stream.start || fill < end || wanted <= stream.end {
            return;
        }
        if fill == stream.end {
            if fill - end > self.ahead_bytes / 2 {
                return;
            }
            let turned = now_ns / geometry.revolution_ns();
            stream.turns = geometry.place(fill).turns;
            let wait = (stream.turns - turned).rem_euclid(1.0);
            stream.since_ns = now_ns + wait * geometry.revolution_ns();
        }
        stream.end = wanted;
        stream.start = stream.start.max(end.saturating_sub(self.ahead_bytes));
    }

    /// The head has read `start..end` and goes on from there.
    pub(super) fn read_until(&mut self, start: u64, end: u64, turns: f64, now_ns: f64) {
        let begun = self.stream.filter(|stream| (stream.start..=stream.end).contains(&start));
        let kept = begun.map_or(start, |stream| stream.start.min(start));
        // A segment holds as much behind the head as before it.
        let start = kept.max(end.saturating_sub(self.ahead_bytes));
        let end = end + self.ahead_bytes;
        self.stream = Some(Stream { start, turns, since_ns: now_ns, end });
    }

    /// The head goes elsewhere.
    pub(super) fn leave(&mut self, now_ns: f64, geometry: &Geometry) {
        let Some(stream) = self.stream.take() else { return };
        if self.segments_max == 0 {
            return;
        }
        if self.segments.len() >= self.segments_max {
            self.segments.pop_front();
        }
        self.segments.push_back((stream.start, stream.fill(now_ns, geometry)));
    }

    pub(super) fn clear(&mut self) {
        self.stream = None;
        self.segments.clear();
    }
}
