//! What may be found on the volume: for every 4 KiB block the contents it was given, oldest
//! first, back to the last one known durable.
//!
//! - A content is begun when its request is sent, completed when the reply is here.
//! - A flush that is acknowledged settles every content completed when the flush was sent: older
//!   ones must never be seen again.
//! - After a restart a block holds exactly one of its contents. That one is then the only one
//!   allowed: what was seen after a recovery must not change in the next.
//! - Every sector tells the version and the sector that it was written as, so that strangers'
//!   data, data of another place and torn data are told apart.
//!
//! Requests in flight at the same time must not overlap; the caller sees to that.

use std::collections::BTreeSet;
use std::ops::Range;

/// Bytes per sector: the smallest unit of a request.
pub const SECTOR_BYTES: usize = 512;
/// Sectors per block: the unit that a crash leaves whole.
pub const BLOCK_SECTORS: u64 = 8;

/// In flight: completed at no time yet.
const NEVER: u64 = u64::MAX;

#[derive(Clone)]
struct Content {
    /// Version of each sector; 0 is zeros.
    sectors: [u64; BLOCK_SECTORS as usize],
    /// The request that made it.
    request: u64,
    /// When it was completed, on the ledger's clock.
    completed: u64,
}

/// The contents of all blocks.
pub struct Ledger {
    blocks: Vec<Vec<Content>>,
    /// Blocks with more than one content.
    unsettled: BTreeSet<u64>,
    clock: u64,
    request: u64,
}

/// What a look at blocks after a restart has shown.
#[derive(Default, Clone, Copy)]
pub struct Verdict {
    /// Blocks that were looked at.
    pub blocks: u64,
    /// Of these, how many could have been one of several contents.
    pub open: u64,
    /// Of the open ones, how many have the newest content.
    pub newest: u64,
}

impl Ledger {
    /// Of a volume of zeros.
    pub fn new(size_bytes: u64) -> Ledger {
        let zeros = Content { sectors: [0; BLOCK_SECTORS as usize], request: 0, completed: 0 };
        let blocks = size_bytes / (SECTOR_BYTES as u64 * BLOCK_SECTORS);
        Ledger {
            blocks: vec![vec![zeros]; blocks as usize],
            unsettled: BTreeSet::new(),
            clock: 0,
            request: 0,
        }
    }

    /// Sectors of the volume.
    pub fn sectors(&self) -> u64 {
        self.blocks.len() as u64 * BLOCK_SECTORS
    }

    /// A change of these sectors is about to be sent; gives its number, which is also the
    /// version of its data unless it is `zeros`.
    pub fn begin(&mut self, sectors: Range<u64>, zeros: bool) -> u64 {
        self.request += 1;
        let version = if zeros { 0 } else { self.request };
        for block in blocks_of(&sectors) {
            let contents = &mut self.blocks[block as usize];
            let mut next = contents[contents.len() - 1].clone();
            for sector in 0..BLOCK_SECTORS {
                if sectors.contains(&(block * BLOCK_SECTORS + sector)) {
                    next.sectors[sector as usize] = version;
                }
            }
            next.request = self.request;
            next.completed = NEVER;
            contents.push(next);
            self.unsettled.insert(block);
        }
        self.request
    }

    /// The change was acknowledged, `durable` when it was forced to the drives.
    pub fn complete(&mut self, request: u64, sectors: Range<u64>, durable: bool) {
        self.clock += 1;
        for block in blocks_of(&sectors) {
            let contents = &mut self.blocks[block as usize];
            let place = contents.iter().position(|content| content.request == request);
            let Some(place) = place else { continue };
            contents[place].completed = self.clock;
            if durable {
                contents.drain(..place);
            }
            if contents.len() == 1 {
                self.unsettled.remove(&block);
            }
        }
    }

    /// A flush is about to be sent; gives what [`Ledger::flushed`] needs.
    pub fn flushing(&self) -> u64 {
        self.clock
    }

    /// The flush sent at that time was acknowledged.
    pub fn flushed(&mut self, sent: u64) {
        let blocks = &mut self.blocks;
        self.unsettled.retain(|&block| {
            let contents = &mut blocks[block as usize];
            if let Some(place) = contents.iter().rposition(|content| content.completed <= sent) {
                contents.drain(..place);
            }
            contents.len() > 1
        });
    }

    /// Compares what a running server reads with the newest content, which must not be in flight.
    pub fn compare(&self, sectors: Range<u64>, data: &[u8]) -> Result<(), String> {
        for (sector, found) in sectors.zip(data.chunks_exact(SECTOR_BYTES)) {
            let contents = &self.blocks[(sector / BLOCK_SECTORS) as usize];
            let newest = &contents[contents.len() - 1];
            let version = newest.sectors[(sector % BLOCK_SECTORS) as usize];
            if !is_sector(found, version, sector) {
                return Err(format!(
                    "sector {sector}: {} while serving, expected version {version}",
                    describe(found)
                ));
            }
        }
        Ok(())
    }

    /// Compares what was read after a restart with what may be there, and settles it.
    /// Each entry of the error tells of one block.
    pub fn judge(&mut self, first_block: u64, data: &[u8], verdict: &mut Verdict) -> Vec<String> {
        let mut wrong = Vec::new();
        for (block, found) in (first_block..).zip(data.chunks_exact(BLOCK_BYTES)) {
            let contents = &mut self.blocks[block as usize];
            let fits = |content: &Content| {
                content.sectors.iter().zip(found.chunks_exact(SECTOR_BYTES)).enumerate().all(
                    |(place, (&version, found))| {
                        is_sector(found, version, block * BLOCK_SECTORS + place as u64)
                    },
                )
            };
            verdict.blocks += 1;
            let Some(place) = contents.iter().rposition(fits) else {
                wrong.push(tell(block, found, contents));
                continue;
            };
            if contents.len() > 1 {
                verdict.open += 1;
                verdict.newest += u64::from(place + 1 == contents.len());
                contents.swap(0, place);
                contents.truncate(1);
                self.unsettled.remove(&block);
            }
            contents[0].completed = 0;
        }
        wrong
    }
}

const BLOCK_BYTES: usize = SECTOR_BYTES * BLOCK_SECTORS as usize;

fn blocks_of(sectors: &Range<u64>) -> Range<u64> {
    sectors.start / BLOCK_SECTORS..sectors.end.div_ceil(BLOCK_SECTORS)
}

/// Fills sectors from `first` on with what `version` writes there.
pub fn fill(data: &mut [u8], version: u64, first: u64) {
    for (sector, bytes) in (first..).zip(data.chunks_exact_mut(SECTOR_BYTES)) {
        let mut pair = [0; 16];
        pair[..8].copy_from_slice(&version.to_le_bytes());
        pair[8..].copy_from_slice(&sector.to_le_bytes());
        bytes.chunks_exact_mut(16).for_each(|place| place.copy_from_slice(&pair));
    }
}

fn is_sector(found: &[u8], version: u64, sector: u64) -> bool {
    let expected = if version == 0 { (0, 0) } else { (version, sector) };
    found.chunks_exact(16).all(|pair| pair_of(pair) == expected)
}

fn pair_of(pair: &[u8]) -> (u64, u64) {
    let number = |half: &[u8]| half.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
    (number(&pair[..8]), number(&pair[8..16]))
}

fn describe(found: &[u8]) -> String {
    let (version, sector) = pair_of(found);
    if is_sector(found, 0, 0) {
        "zeros".to_owned()
    } else if is_sector(found, version, sector) {
        format!("version {version} of sector {sector}")
    } else {
        format!("no whole sector (begins with {:02x?})", &found[..16])
    }
}

fn tell(block: u64, found: &[u8], contents: &[Content]) -> String {
    let found: Vec<String> = found.chunks_exact(SECTOR_BYTES).map(describe).collect();
    let allowed: Vec<String> = contents
        .iter()
        .map(|content| {
            let completed = match content.completed {
                NEVER => "in flight".to_owned(),
                time => format!("completed at {time}"),
            };
            format!("{:?} (request {}, {completed})", content.sectors, content.request)
        })
        .collect();
    format!("block {block}: found {found:?}, allowed {allowed:#?}")
}

#[test]
fn a_ledger_rejects_lost_foreign_torn_and_revived_blocks() {
    let mut ledger = Ledger::new(1 << 20);
    let mut verdict = Verdict::default();
    let block = |version| {
        let mut data = vec![0; BLOCK_BYTES];
        fill(&mut data, version, 8);
        data
    };
    let first = ledger.begin(8..16, false);
    ledger.complete(first, 8..16, false);
    let sent = ledger.flushing();
    let second = ledger.begin(8..16, false);
    ledger.complete(second, 8..16, false);
    ledger.flushed(sent);
    let mut torn = block(first);
    torn[600] ^= 1;
    let mut mixed = block(first);
    mixed[512..].copy_from_slice(&block(second)[512..]);
    for bad in [vec![0; BLOCK_BYTES], torn, mixed, block(77)] {
        assert_eq!(ledger.judge(1, &bad, &mut verdict).len(), 1);
    }
    assert_eq!(ledger.judge(2, &block(first), &mut verdict).len(), 1, "misdirected");
    assert!(ledger.judge(1, &block(first), &mut verdict).is_empty(), "an unflushed one is lost");
    assert_eq!(ledger.judge(1, &block(second), &mut verdict).len(), 1, "and does not come back");
}
