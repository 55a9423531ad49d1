//! A NAND drive: electronics, a link, lanes of chips, a page map with cleaning, a write buffer.
//!
//! * A command waits on its way (which others may do at the same time), passes the electronics one
//!   after the other, moves its data over the link, and reads or programs pages in lanes.
//! * Pages of a range are spread over the lanes; of two commands that want the same lane one waits.
//! * A stream is read ahead, where the drive has memory for that: its pages need no wait for a lane.
//!   A page never written needs none at all, on most drives.
//! * A write takes whole units of the map; less than that wastes the rest.
//! * With the write cache on, a write ends in the buffer, and waits only when that is full; the
//!   lanes program as fast as they can. Without, it ends when its pages are programmed.
//! * What cleaning moves takes time from the lanes, all alike; when nothing is asked for, the drive
//!   cleans ahead.
//!
//! Everything is first come first served, so the end of a request is known when it is
//! submitted. Not modelled: reads that wait for programs, SLC caches of drives with three bits
//! a cell, heat.

mod page_map;

use self::page_map::{Cleaning, PageMap};
use crate::model::{Kind, Model, Request};
use crate::profile::Condition;
use crate::random::{Random, mix};

/// Streams that the drive recognises at a time.
const STREAMS_MAX: usize = 16;

/// How often a used drive has been written over in random order: then shares no longer change.
const WORN_TIMES: f64 = 3.0;

/// What one NAND drive is like.
#[derive(Debug, Clone)]
pub(crate) struct FlashParameters {
    pub(crate) size_bytes: u64,
    pub(crate) page_bytes: u64,
    /// Time on the way of a read; others may be on theirs.
    pub(crate) read_way_ns: f64,
    pub(crate) write_way_ns: f64,
    /// Time in the electronics, one command at a time.
    pub(crate) read_command_ns: f64,
    pub(crate) write_command_ns: f64,
    pub(crate) link_read_b_s: f64,
    pub(crate) link_write_b_s: f64,
    pub(crate) command_bytes_max: u64,
    pub(crate) queue_depth: usize,
    /// Groups of chips that read at the same time.
    pub(crate) read_lanes: usize,
    /// The first page of a command on a lane.
    pub(crate) read_page_ns: f64,
    /// Each further one.
    pub(crate) read_next_ns: f64,
    pub(crate) program_lanes: usize,
    pub(crate) program_ns: f64,
    /// What a smaller write takes the place of: chips program several planes at once, and some
    /// drives map no finer.
    pub(crate) unit_pages: u64,
    /// The drive has memory to read ahead of streams.
    pub(crate) reads_ahead: bool,
    /// A page that was never written takes as long to read as any.
    pub(crate) reads_blank: bool,
    /// Cleaning reads a block whole, to find out what of it is valid.
    pub(crate) reads_stale: bool,
    /// Of the size, in addition.
    pub(crate) spare: f64,
    /// Share of the spare that it keeps erased when there is time.
    pub(crate) idle_free: f64,
    /// Share of the lanes that cleaning ahead uses.
    pub(crate) idle_effort: f64,
    pub(crate) buffer_bytes: u64,
    pub(crate) flush_ns: f64,
    pub(crate) write_cache: bool,
}

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Flash {
    of: FlashParameters,
    map: PageMap,
    /// When each place in the queue is free (ns).
    slots: Vec<f64>,
    electronics_free_ns: f64,
    link_read_free_ns: f64,
    link_write_free_ns: f64,
    read_lanes: Vec<f64>,
    program_lanes: Vec<f64>,
    /// Where the next command begins.
    next_lane: usize,
    /// Commands that were programmed.
    writes: u64,
    /// When all that was cached will have been programmed (ns).
    programmed_ns: f64,
    /// Until when idle time has been used (ns).
    rested_ns: f64,
    /// Time for cleaning ahead that was too short for a block (pages).
    rest_pages: f64,
    /// Where recognised streams go on, the latest last.
    streams: Vec<u64>,
    /// The latest end of a write (ns).
    written_ns: f64,
    /// Where the latest write ended (byte).
    written_to: u64,
}

impl Flash {
    pub(crate) fn new(of: FlashParameters, condition: Condition, mut random: Random) -> Flash {
        let pages = (of.size_bytes / of.page_bytes).max(1);
        let mut map = PageMap::new(pages, of.spare, of.idle_free);
        if condition == Condition::Used {
            map.wear_in(WORN_TIMES, &mut random);
        }
        Flash {
            map,
            slots: vec![0.0; of.queue_depth.max(1)],
            electronics_free_ns: 0.0,
            link_read_free_ns: 0.0,
            link_write_free_ns: 0.0,
            read_lanes: vec![0.0; of.read_lanes.max(1)],
            program_lanes: vec![0.0; of.program_lanes.max(1)],
            next_lane: 0,
            writes: 0,
            programmed_ns: 0.0,
            rested_ns: 0.0,
            rest_pages: 0.0,
            streams: Vec::new(),
            written_ns: 0.0,
            written_to: u64::MAX,
            of,
        }
    }

    /// Takes the place in the queue that is free first: which, and from when on.
    fn slot(&self, now_ns: f64) -> (usize, f64) {
        let mut first = 0;
        for (index, free_ns) in self.slots.iter().enumerate() {
            if *free_ns <= now_ns {
                return (index, now_ns);
            }
            if *free_ns < self.slots[first] {
                first = index;
            }
        }
        (first, self.slots[first])
    }

    fn read(&mut self, now_ns: f64, at: u64, length: u64) -> f64 {
        let (slot, free_ns) = self.slot(now_ns + self.of.read_way_ns);
        let ready_ns = free_ns.max(self.electronics_free_ns) + self.of.read_command_ns;
        self.electronics_free_ns = ready_ns;
        let moved_ns = length as f64 * 1e9 / self.of.link_read_b_s;
        self.link_read_free_ns = self.link_read_free_ns.max(ready_ns) + moved_ns;
        let mut done_ns = self.link_read_free_ns;
        let stream = self.is_stream(at, length);
        if !(stream && self.of.reads_ahead) {
            let last_ns = self.of.page_bytes.min(length) as f64 * 1e9 / self.of.link_read_b_s;
            done_ns = done_ns.max(self.read_pages(ready_ns, at, length, stream) + last_ns);
        }
        self.slots[slot] = done_ns;
        done_ns
    }

    /// Whether a read goes on where an earlier one ended.
    fn is_stream(&mut self, at: u64, length: u64) -> bool {
        let known = self.streams.iter().position(|next| *next == at);
        match known {
            Some(index) => _ = self.streams.remove(index),
            None if self.streams.len() >= STREAMS_MAX => _ = self.streams.remove(0),
            None => {}
        }
        self.streams.push(at + length);
        known.is_some()
    }

    /// Reads the pages in their lanes; says when the last one is there.
    fn read_pages(&mut self, ready_ns: f64, at: u64, length: u64, stream: bool) -> f64 {
        let page = at / self.of.page_bytes;
        let count = (at + length).div_ceil(self.of.page_bytes) - page;
        if !self.of.reads_blank && !self.map.holds(page) {
            return ready_ns;
        }
        let lanes = self.read_lanes.len() as u64;
        // Neighbours lie in neighbouring lanes, groups of them anywhere.
        let first = mix(page / lanes).wrapping_add(page) % lanes;
        let mut done_ns = ready_ns;
        for index in 0..count.min(lanes) {
            let pages = (count - index).div_ceil(lanes);
            let lane = &mut self.read_lanes[((first + index) % lanes) as usize];
            // What comes behind the page before it lies in the chips' registers.
            let first_ns = if stream { self.of.read_next_ns } else { self.of.read_page_ns };
            let taken_ns = first_ns + (pages - 1) as f64 * self.of.read_next_ns;
            *lane = lane.max(ready_ns) + taken_ns;
            done_ns = done_ns.max(*lane);
        }
        done_ns
    }

    fn write(&mut self, now_ns: f64, at: u64, length: u64) -> f64 {
        self.rest(now_ns);
        let (slot, free_ns) = self.slot(now_ns + self.of.write_way_ns);
        let ready_ns = free_ns.max(self.electronics_free_ns) + self.of.write_command_ns;
        self.electronics_free_ns = ready_ns;
        let moved_ns = length as f64 * 1e9 / self.of.link_write_b_s;
        self.link_write_free_ns = self.link_write_free_ns.max(ready_ns) + moved_ns;
        let page = at / self.of.page_bytes;
        let pages = (at + length).div_ceil(self.of.page_bytes) - page;
        // A write that goes on where the one before it ended fills its unit up.
        let count = if at == self.written_to {
            pages
        } else {
            pages.next_multiple_of(self.of.unit_pages.max(1))
        };
        self.written_to = at + length;
        let cleaning = self.map.write(page, count);
        let done_ns = if self.of.write_cache {
            self.buffered(ready_ns, count as f64, cleaning)
        } else {
            self.programmed(ready_ns, pages, cleaning)
        };
        let done_ns = done_ns.max(self.link_write_free_ns);
        self.written_ns = self.written_ns.max(done_ns);
        self.slots[slot] = done_ns;
        done_ns
    }

    /// Pages go into the buffer and are programmed behind it.
    fn buffered(&mut self, ready_ns: f64, count: f64, cleaning: Cleaning) -> f64 {
        let lanes = self.program_lanes.len() as f64;
        let page_ns = self.of.program_ns / lanes;
        let each_ns = page_ns + self.cleaning_ns(cleaning) / lanes / count.max(1.0);
        self.programmed_ns = self.programmed_ns.max(ready_ns) + each_ns * count;
        let buffer_pages = (self.of.buffer_bytes / self.of.page_bytes) as f64;
        ready_ns.max(self.programmed_ns - buffer_pages * each_ns)
    }

    /// Pages are programmed in their lanes; says when the last one is.
    fn programmed(&mut self, ready_ns: f64, count: u64, cleaning: Cleaning) -> f64 {
        let lanes = self.program_lanes.len();
        if cleaning != Cleaning::default() {
            let share_ns = self.cleaning_ns(cleaning) / lanes as f64;
            for lane in &mut self.program_lanes {
                *lane = lane.max(ready_ns) + share_ns;
            }
        }
        let mut done_ns = ready_ns;
        for index in 0..lanes.min(count as usize) {
            let pages = (count - index as u64).div_ceil(lanes as u64);
            let lane = &mut self.program_lanes[(self.next_lane + index) % lanes];
            *lane = lane.max(ready_ns) + pages as f64 * self.of.program_ns;
            done_ns = done_ns.max(*lane);
        }
        // Who writes next does not know which lane is free.
        self.writes += 1;
        self.next_lane = (mix(self.writes) % lanes as u64) as usize;
        done_ns
    }

    /// Time of a lane that cleaning takes.
    fn cleaning_ns(&self, Cleaning { moved, stale }: Cleaning) -> f64 {
        moved * (self.of.program_ns + self.of.read_next_ns) + stale * self.stale_ns()
    }

    /// Time of a lane for a stale page that is cleaned away.
    fn stale_ns(&self) -> f64 {
        if self.of.reads_stale { self.of.read_next_ns } else { 0.0 }
    }

    /// The lanes had nothing to do until now: they have cleaned ahead.
    fn rest(&mut self, now_ns: f64) {
        let busy_ns = self.program_lanes.iter().copied().fold(self.programmed_ns, f64::max);
        let idle_ns = now_ns - busy_ns.max(self.rested_ns);
        if idle_ns <= 0.0 || self.of.idle_effort == 0.0 {
            return;
        }
        self.rested_ns = now_ns;
        let moved_ns = self.of.program_ns + self.of.read_next_ns;
        let time_ns = idle_ns * self.of.idle_effort * self.program_lanes.len() as f64;
        let pages = self.rest_pages + time_ns / moved_ns;
        let left = self.map.clean_ahead(pages, self.stale_ns() / moved_ns);
        // What was not needed does not add up; what was too little for a block does.
        let block_pages = (self.of.size_bytes / self.of.page_bytes) as f64 / 1000.0;
        self.rest_pages = left.min(block_pages);
    }
}

impl Model for Flash {
    fn submit(&mut self, now_ns: u64, _: u64, request: &Request) -> Option<u64> {
        let Request { kind, at, length } = *request;
        let now = now_ns as f64;
        let page = at / self.of.page_bytes;
        let done_ns = match kind {
            Kind::Read | Kind::Write => {
                let mut done_ns = now;
                for begin in (0..length.max(1)).step_by(self.of.command_bytes_max as usize) {
                    let part = (length - begin).min(self.of.command_bytes_max);
                    let ended_ns = match kind {
                        Kind::Read => self.read(now, at + begin, part),
                        _ => self.write(now, at + begin, part),
                    };
                    done_ns = f64::max(done_ns, ended_ns);
                }
                done_ns
            }
            Kind::Flush if self.of.write_cache => {
                // Those on their way are not covered, but they pass before.
                now.max(self.programmed_ns).max(self.written_ns) + self.of.flush_ns
            }
            Kind::Flush => now + self.of.write_way_ns,
            Kind::Trim => {
                self.map.trim(page, length / self.of.page_bytes);
                now + self.of.write_way_ns + self.of.write_command_ns
            }
            // Zeroes are not programmed: the map forgets the pages.
            Kind::WriteZeroes => {
                self.map.trim(page, length / self.of.page_bytes);
                now + self.of.write_way_ns + self.of.write_command_ns
            }
        };
        Some(done_ns.ceil() as u64)
    }

    fn duplicate(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }

    fn reset(&mut self) {
        // What was buffered has been programmed or is lost: either way nothing is under way.
        self.slots.fill(0.0);
        self.read_lanes.fill(0.0);
        self.program_lanes.fill(0.0);
        self.streams.clear();
        (self.electronics_free_ns, self.programmed_ns, self.written_ns) = (0.0, 0.0, 0.0);
        (self.link_read_free_ns, self.link_write_free_ns) = (0.0, 0.0);
    }
}

#[cfg(test)]
mod tests;
