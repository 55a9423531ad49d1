//! The writer: epoch after epoch until the drive, the witness or the clock ends it.

use std::collections::VecDeque;

use io::{Buf, Device, IoError, Transfer};

use super::plan::{Run, Write};
use super::sector;

/// Hears of each epoch whose flush the drive has acknowledged.
pub trait Witness {
    /// The epoch's writes are durable, says the drive.
    fn flushed(&mut self, epoch: u64) -> Result<(), String>;
}

/// What a writer has done.
#[derive(Debug)]
pub struct Written {
    /// Epochs whose flush was acknowledged.
    pub epochs: u64,
    /// Writes of those epochs.
    pub writes: u64,
    /// Why it ended.
    pub end: End,
}

/// Why a writer ended.
#[derive(Debug)]
pub enum End {
    /// It was told to.
    Asked,
    /// The drive failed a request: the plug of the drive was pulled, if all is well.
    Drive(IoError),
    /// Nobody hears the acknowledgements any more.
    Witness(String),
}

/// Writes and flushes, from epoch 1 on, until something ends it. `go_on` is asked before each
/// epoch, with the number of epochs that are done.
pub async fn write(
    device: &Device,
    run: &Run,
    witness: &mut dyn Witness,
    mut go_on: impl FnMut(u64) -> bool,
) -> Written {
    let mut written = Written { epochs: 0, writes: 0, end: End::Asked };
    for epoch in 1.. {
        if !go_on(written.epochs) {
            break;
        }
        match write_epoch(device, run, epoch).await {
            Ok(writes) => written.writes += writes,
            Err(error) => {
                written.end = End::Drive(error);
                break;
            }
        }
        written.epochs = epoch;
        if let Err(problem) = witness.flushed(epoch) {
            written.end = End::Witness(problem);
            break;
        }
    }
    written
}

/// Writes one epoch and flushes it; gives how many writes it had.
async fn write_epoch(device: &Device, run: &Run, epoch: u64) -> Result<u64, IoError> {
    let depth = run.depth(epoch);
    let mut under_way: VecDeque<Transfer> = VecDeque::with_capacity(depth);
    let mut writes = 0;
    for write in run.writes(epoch) {
        if under_way.len() == depth {
            finish(&mut under_way).await?;
        }
        under_way.push_back(device.write(write.at, content(device, run, &write)));
        writes += 1;
    }
    while !under_way.is_empty() {
        finish(&mut under_way).await?;
    }
    device.flush().await?;
    Ok(writes)
}

/// Waits for the oldest of the transfers.
async fn finish(under_way: &mut VecDeque<Transfer>) -> Result<(), IoError> {
    let oldest = under_way.pop_front().expect("the caller looked");
    oldest.await.1
}

fn content(device: &Device, run: &Run, write: &Write) -> Buf {
    let mut buf = device.io().pool().take(write.length as usize);
    sector::fill(&mut buf, run.id, write.sequence, write.at, device.io().now_ns());
    buf
}
