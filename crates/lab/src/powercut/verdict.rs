//! The verifier: what the drive holds after the cut, against what it had acknowledged.
//!
//! A unit of 512 bytes must show the newest acknowledged write of its place or a later one: then
//! the word was kept. And when any write of an epoch is there, all of the epochs before it must
//! be: then, lost or not, the order was kept, and what is on the drive is the state of some
//! moment. A write counts as lost when a unit, of which it is the newest acknowledged writer,
//! shows something older or nothing.

use std::collections::BTreeSet;

use io::{Device, IoError};
use serde::{Deserialize, Serialize};

use super::plan::{Run, Write, epoch_of};
use super::record::Record;
use super::sector::{self, UNIT_BYTES, Unit};

/// Bytes read in one go: enough to be fast, small enough for progress.
const CHUNK_BYTES: u64 = 1 << 20;

/// Inside a block of this size nothing may tear on drives that promise so.
const BLOCK_UNITS: usize = 4096 / UNIT_BYTES;

/// Whether the epochs that are there came one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Everything before the newest epoch that is there, is there.
    Kept,
    /// A later epoch is there while one before it is not, or not wholly.
    Broken,
}

/// What a cut has shown of a drive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The drive that was read.
    pub drive: String,
    /// How the drive was called that was written: it may have another name now.
    pub written_as: String,
    /// Every acknowledged write is there, whole.
    pub kept_its_word: bool,
    /// Whether the order of flushes was kept.
    pub order: Order,
    /// Flushes that the witness has recorded as acknowledged.
    pub epochs_acknowledged: u64,
    /// Writes that they covered.
    pub writes_acknowledged: u64,
    /// The newest epoch of which something is there.
    pub epoch_newest_seen: u64,
    /// Acknowledged writes that are lost, of those not overwritten by later ones that are there.
    pub writes_lost: u64,
    /// The oldest epoch with a lost write.
    pub epoch_oldest_lost: Option<u64>,
    /// How long before the last acknowledgement that epoch had been acknowledged.
    pub oldest_lost_age_ms: Option<u64>,
    /// Writes that were not acknowledged and are there in part: allowed.
    pub writes_torn_unacknowledged: u64,
    /// Blocks of 4096 bytes that are partly of one write and partly older.
    pub blocks_torn: u64,
    /// Units of 512 bytes that are neither old nor new: torn inside, or damaged.
    pub units_damaged: u64,
    /// Units whose content belongs elsewhere.
    pub units_misplaced: u64,
}

/// Reads the span of the record's run on `device` and judges. `tell` hears how many bytes of how
/// many are read.
pub async fn verify(
    device: &Device,
    record: &Record,
    tell: impl Fn(u64, u64),
) -> Result<Verdict, IoError> {
    let seen = Seen::read(device, &record.run, tell).await?;
    let drive = device.info().path.clone();
    Ok(Verdict { drive, ..judge(record, &seen) })
}

/// What each unit of the span shows.
struct Seen {
    /// Sequence number by unit; 0 for none.
    units: Vec<u64>,
    damaged: u64,
    misplaced: u64,
}

impl Seen {
    async fn read(device: &Device, run: &Run, tell: impl Fn(u64, u64)) -> Result<Seen, IoError> {
        let units = Vec::with_capacity((run.span_bytes / UNIT_BYTES as u64) as usize);
        let mut seen = Seen { units, damaged: 0, misplaced: 0 };
        let mut buf = device.io().pool().take(CHUNK_BYTES as usize);
        for at in (0..run.span_bytes).step_by(CHUNK_BYTES as usize) {
            let (chunk, outcome) = device.read(at, buf).await;
            outcome?;
            for (index, unit) in (0..).zip(chunk.as_chunks::<UNIT_BYTES>().0) {
                seen.note(sector::read(unit, run.id, at + index * UNIT_BYTES as u64));
            }
            buf = chunk;
            tell(at + CHUNK_BYTES, run.span_bytes);
        }
        Ok(seen)
    }

    fn note(&mut self, unit: Unit) {
        let sequence = match unit {
            Unit::Foreign => 0,
            Unit::Of(sequence) => sequence,
            Unit::Misplaced(_) => {
                self.misplaced += 1;
                0
            }
            Unit::Damaged => {
                self.damaged += 1;
                0
            }
        };
        self.units.push(sequence);
    }
}

fn judge(record: &Record, seen: &Seen) -> Verdict {
    let run = &record.run;
    let acknowledged = record.epochs();
    let newest = epoch_of(seen.units.iter().copied().max().unwrap_or(0));
    // By unit: the newest acknowledged writer, and the newest of an epoch before the newest seen.
    let mut owed = vec![0u64; seen.units.len()];
    let mut ordered = vec![0u64; seen.units.len()];
    let (mut writes, mut torn, mut blocks_torn) = (0, 0, 0);
    for epoch in 1..=acknowledged.max(newest) {
        for write in run.writes(epoch) {
            let units = units_of(&write);
            if epoch <= acknowledged {
                writes += 1;
                owed[units.clone()].fill(write.sequence);
            }
            if epoch < newest {
                ordered[units.clone()].fill(write.sequence);
            }
            let (partly, blocks) = tears(&seen.units[units], write.sequence);
            torn += u64::from(partly && epoch > acknowledged);
            blocks_torn += blocks;
        }
    }
    let shown = || seen.units.iter();
    let lost: BTreeSet<u64> = owed
        .iter()
        .zip(shown())
        .filter(|(owed, shown)| shown < owed)
        .map(|(owed, _)| *owed)
        .collect();
    let holes = ordered.iter().zip(shown()).any(|(before, shown)| shown < before);
    let oldest = lost.first().map(|sequence| epoch_of(*sequence));
    Verdict {
        drive: run.drive.clone(),
        written_as: run.drive.clone(),
        kept_its_word: lost.is_empty(),
        order: if holes { Order::Broken } else { Order::Kept },
        epochs_acknowledged: acknowledged,
        writes_acknowledged: writes,
        epoch_newest_seen: newest,
        writes_lost: lost.len() as u64,
        epoch_oldest_lost: oldest,
        oldest_lost_age_ms: oldest.and_then(|epoch| record.age_ms(epoch)),
        writes_torn_unacknowledged: torn,
        blocks_torn,
        units_damaged: seen.damaged,
        units_misplaced: seen.misplaced,
    }
}

fn units_of(write: &Write) -> std::ops::Range<usize> {
    let unit = UNIT_BYTES as u64;
    (write.at / unit) as usize..((write.at + write.length) / unit) as usize
}

/// Whether a write is there in part, and in how many of its blocks the seam lies.
fn tears(units: &[u64], sequence: u64) -> (bool, u64) {
    let mixed =
        |units: &[u64]| units.contains(&sequence) && units.iter().any(|shown| *shown < sequence);
    (mixed(units), units.chunks(BLOCK_UNITS).filter(|block| mixed(block)).count() as u64)
}

impl Verdict {
    /// The verdict in a sentence.
    pub fn sentence(&self) -> String {
        let kept = match (self.kept_its_word, self.order) {
            (true, Order::Kept) => "kept its word: every acknowledged write is there".to_owned(),
            (true, Order::Broken) => "kept what it had acknowledged, but wrote a later epoch \
                                      before an earlier one was whole"
                .to_owned(),
            (false, _) if self.epoch_newest_seen == 0 => format!(
                "BROKE ITS WORD: it holds nothing of this run, all {} acknowledged writes are lost; or it \
                 is not the drive that was written, then called {}",
                self.writes_acknowledged, self.written_as
            ),
            (false, order) => {
                let order = match order {
                    Order::Kept => "the order was kept: it holds an older state",
                    Order::Broken => "the order was broken: it holds a state that never was",
                };
                let lost = self.writes_lost;
                format!("BROKE ITS WORD: lost {lost} acknowledged writes; {order}")
            }
        };
        format!("{} {kept}", self.drive)
    }
}

#[cfg(test)]
mod tests;
