//! What a controller has in its memory for reading: whole lines, the latest read.

use std::collections::VecDeque;

use crate::medium::NumberMap;

/// Bytes of a line.
const LINE_BYTES: u64 = 64 << 10;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Line {
    /// Asked for.
    Coming,
    Here,
}

/// See the head of the file.
#[derive(Debug, Clone)]
pub(super) struct Lines {
    lines: NumberMap<Line>,
    /// In the order they came; may name lines that are gone.
    order: VecDeque<u64>,
    lines_max: usize,
}

impl Lines {
    pub(super) fn new(bytes_max: u64) -> Lines {
        let lines_max = (bytes_max / LINE_BYTES) as usize;
        Lines { lines: NumberMap::default(), order: VecDeque::new(), lines_max }
    }

    fn all(&self, at: u64, end: u64, fits: impl Fn(Line) -> bool) -> bool {
        let mut numbers = at / LINE_BYTES..end.div_ceil(LINE_BYTES);
        numbers.all(|number| self.lines.get(&number).is_some_and(|line| fits(*line)))
    }

    /// Whether all of the range is here.
    pub(super) fn holds(&self, at: u64, end: u64) -> bool {
        self.all(at, end, |line| line == Line::Here)
    }

    /// Whether all of the range is here or coming.
    pub(super) fn comes(&self, at: u64, end: u64) -> bool {
        self.all(at, end, |_| true)
    }

    /// The range has been asked for.
    pub(super) fn announce(&mut self, at: u64, end: u64) {
        for number in at / LINE_BYTES..end.div_ceil(LINE_BYTES) {
            self.lines.entry(number).or_insert(Line::Coming);
        }
    }

    /// The range has come: lines that it fills are kept.
    pub(super) fn add(&mut self, at: u64, end: u64) {
        for number in at.div_ceil(LINE_BYTES)..end / LINE_BYTES {
            if self.lines.insert(number, Line::Here) != Some(Line::Here) {
                self.order.push_back(number);
            }
        }
        while self.order.len() > self.lines_max {
            if let Some(number) = self.order.pop_front() {
                self.lines.remove(&number);
            }
        }
    }

    /// The range is no longer what it was.
    pub(super) fn forget(&mut self, at: u64, end: u64) {
        for number in at / LINE_BYTES..end.div_ceil(LINE_BYTES) {
            if self.lines.get(&number) == Some(&Line::Here) {
                self.lines.remove(&number);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        self.lines.clear();
        self.order.clear();
    }
}
