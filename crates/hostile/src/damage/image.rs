//! Two sound volumes, what is in them, and what each byte of their drives is for.

use std::collections::{BTreeMap, BTreeSet};

use engine::format::record::{Entry, decode_entries, decode_header};
use engine::format::superblock::{COPY_POSITIONS, Superblock};
use engine::{CreateOptions, Engine, Geometry, Lsn, Tier, create};
use io::units::{KIB, MIB};
use io::{Durability, Io, Volume, ZeroMode};
use twin::{DriveSpec, Simulation, Snapshot};

use super::{BLOCK_BYTES, Damage};
use crate::recovery::{on, open};

const FAST_BYTES: u64 = 16 * MIB;
const SLOW_BYTES: u64 = 64 * MIB;

/// What a block of a drive is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Region {
    /// A copy of the superblock.
    Superblock,
    /// A copy of a map page.
    Map,
    /// Header of a log record that something says was durable.
    Header,
    /// Data of such a record.
    LogData,
    /// Header or data of the last record, of which nothing says so.
    LastRecord,
    /// A slot.
    Home,
    /// Anything else.
    Unused,
}

/// What a volume holds, by extent; extents that are not named are zeros.
pub(super) type Content = BTreeMap<u64, Vec<u8>>;

/// A volume at rest.
pub struct Image {
    /// How it was left.
    pub name: &'static str,
    pub(super) snapshot: Snapshot,
    pub(super) geometry: Geometry,
    /// What it holds.
    pub(super) content: Content,
    /// What it held before the last record.
    pub(super) before: Content,
    /// What the drives held a session earlier.
    pub(super) earlier: Snapshot,
    /// Regions of the log, by position.
    log: BTreeMap<u64, Region>,
    /// Position of the last record.
    last_header: u64,
    /// All bytes of the drives.
    drives: [Vec<u8>; 2],
}

impl Image {
    /// What the block at this position is for.
    pub fn region(&self, tier: Tier, at: u64) -> Region {
        let at = at / BLOCK_BYTES * BLOCK_BYTES;
        let layout = &self.geometry.layouts[tier.index()];
        let inside = |start: u64, length: u64| (start..start + length).contains(&at);
        if COPY_POSITIONS.contains(&at) {
            Region::Superblock
        } else if inside(layout.map_at, self.geometry.map_pages() * 2 * BLOCK_BYTES) {
            Region::Map
        } else if inside(layout.slots_at, layout.slots * self.geometry.extent_bytes) {
            Region::Home
        } else if tier == Tier::Fast {
            self.log.get(&at).copied().unwrap_or(Region::Unused)
        } else {
            Region::Unused
        }
    }

    /// Whether the damage hits the last record: no other repeats it.
    pub(super) fn is_last_header(&self, damage: &Damage) -> bool {
        let (Damage::Byte(_, at, _) | Damage::Sector(_, at, _) | Damage::Unreadable(_, at)) =
            damage
        else {
            return false;
        };
        self.last_header == at / BLOCK_BYTES * BLOCK_BYTES
    }

    /// Blocks that are worth damaging: metadata, and some of everything else.
    pub(super) fn blocks_in_use(&self) -> Vec<(Tier, u64)> {
        let mut blocks = Vec::new();
        for tier in Tier::BOTH {
            let bytes = &self.drives[tier.index()];
            let mut others = 0;
            for at in (0..bytes.len() as u64).step_by(BLOCK_BYTES as usize) {
                let blank = bytes[at as usize..][..BLOCK_BYTES as usize].iter().all(|b| *b == 0);
                let chosen = match self.region(tier, at) {
                    Region::Home | Region::Unused => {
                        others += u64::from(!blank);
                        // One of sixteen that hold something, and of a thousand that do not.
                        !blank && others % 16 == 1 || blank && at / BLOCK_BYTES % 1024 == 5
                    }
                    _ => true,
                };
                if chosen {
                    blocks.push((tier, at));
                }
            }
        }
        blocks
    }

    pub(super) fn byte(&self, tier: Tier, at: u64) -> u8 {
        self.drives[tier.index()][at as usize]
    }

    pub(super) fn drive_bytes(&self, tier: Tier) -> u64 {
        self.drives[tier.index()].len() as u64
    }

    fn new(
        name: &'static str,
        simulation: &Simulation,
        geometry: &Geometry,
        earlier: Snapshot,
        [before, content]: [Content; 2],
    ) -> Image {
        let drives = simulation.drives();
        let bytes = [(drives[0], FAST_BYTES), (drives[1], SLOW_BYTES)]
            .map(|(drive, bytes)| simulation.peek(drive, 0, bytes as usize));
        let (log, last_header) = log_regions(&bytes[0], geometry);
        Image {
            name,
            snapshot: simulation.snapshot(),
            geometry: geometry.clone(),
            content,
            before,
            earlier,
            log,
            last_header,
            drives: bytes,
        }
    }
}

/// Walks the log as `docs/format.md` describes it, without the engine's recovery. Gives the position
/// of the last record too.
pub(super) fn log_regions(fast: &[u8], geometry: &Geometry) -> (BTreeMap<u64, Region>, u64) {
    let block = |at: u64| &fast[at as usize..][..BLOCK_BYTES as usize];
    let copies = [0, 1].map(|copy| Superblock::decode(block(COPY_POSITIONS[copy]), copy).unwrap());
    let [first, second] = copies;
    let superblock = if first.sequence > second.sequence { first } else { second };
    let layout = &geometry.layouts[0];
    let ring = layout.log_bytes / BLOCK_BYTES;
    let position = |lsn: u64| layout.log_at + lsn % ring * BLOCK_BYTES;
    let mut records = Vec::new();
    let mut lsn = superblock.log_tail.0;
    let mut claimed = superblock.log_durable.0;
    while let Some(header) = decode_header(block(position(lsn)), superblock.volume_tag(), Lsn(lsn))
    {
        let entries = decode_entries(block(position(lsn)), &header).unwrap();
        let data: usize = entries
            .iter()
            .map(|entry| if let Entry::Data { crcs, .. } = entry { crcs.len() } else { 0 })
            .sum();
        claimed = claimed.max(header.durable.0);
        records.push((lsn, data as u64));
        lsn += u64::from(header.blocks);
    }
    let mut regions = BTreeMap::new();
    let last = records.last().map_or(0, |(lsn, _)| position(*lsn));
    for (lsn, data) in records {
        let [header, body] = match lsn < claimed {
            true => [Region::Header, Region::LogData],
            false => [Region::LastRecord; 2],
        };
        regions.insert(position(lsn), header);
        regions.extend((lsn + 1..=lsn + data).map(|lsn| (position(lsn), body)));
    }
    (regions, last)
}

/// A volume that was closed in order, and one whose server was killed.
///
/// # Panics
/// When the engine cannot make them.
pub fn images() -> Vec<Image> {
    let simulation = Simulation::new(1);
    let spec = |spec: DriveSpec| DriveSpec { atomic_write_bytes: 4096, ..spec };
    simulation.add_drive(spec(DriveSpec::fast("fast", FAST_BYTES)));
    simulation.add_drive(spec(DriveSpec::slow("slow", SLOW_BYTES)));
    let geometry = on(&simulation, |io, fast, slow| async move {
        create(&io, &fast, &slow, CreateOptions::new("damage"), &|_, _| ()).await.unwrap().geometry
    });
    let mut content = Content::new();
    content = session(&simulation, &geometry, content, 1, true)[1].clone();
    let created = simulation.snapshot();
    content = session(&simulation, &geometry, content, 2, true)[1].clone();
    let contents = [content.clone(), content.clone()];
    let closed = Image::new("closed", &simulation, &geometry, created, contents);
    let contents = session(&simulation, &geometry, content, 3, false);
    let killed = Image::new("killed", &simulation, &geometry, closed.snapshot.clone(), contents);
    let last = |image: &Image| {
        image.log.values().filter(|region| **region == Region::LastRecord).collect::<Vec<_>>().len()
    };
    assert_eq!((last(&closed), last(&killed)), (0, 2), "one record of one block is the last");
    vec![closed, killed]
}

/// Writes a little of everything and flushes it, then one block more, and flushes that. Gives what
/// the volume held before that block, and after.
fn session(
    simulation: &Simulation,
    geometry: &Geometry,
    content: Content,
    version: u8,
    close: bool,
) -> [Content; 2] {
    let extent_bytes = geometry.extent_bytes;
    on(simulation, |io, fast, slow| async move {
        let engine = open(&io, &fast, &slow).await.unwrap();
        let mut work = Work { io, engine, content, extent_bytes, version };
        let v = u64::from(version);
        // Whole extents to fresh slots, in both pages of the map, some over older ones.
        for extent in [0, 1, 1 + v, 10 + v, 510, 510 + v] {
            work.put(extent * extent_bytes, extent_bytes).await;
        }
        work.flush().await;
        // Small ones, overlapping others, which go to the log.
        for at in [20 * extent_bytes, 20 * extent_bytes + v * 8 * KIB, 30 * extent_bytes] {
            work.put(at, 12 * KIB).await;
        }
        work.flush().await;
        work.zero(20 * extent_bytes + 4 * KIB, 4 * KIB).await;
        work.zero((10 + v) * extent_bytes, extent_bytes).await;
        work.flush().await;
        work.put(31 * extent_bytes, 4 * KIB).await;
        work.flush().await;
        let before = work.content.clone();
        work.put(31 * extent_bytes + v * 4 * KIB, 4 * KIB).await;
        work.flush().await;
        if close {
            work.engine.close().await.unwrap();
        }
        [before, work.content]
    })
}

/// A session's engine, and what it was given.
struct Work {
    io: Io,
    engine: Engine,
    content: Content,
    extent_bytes: u64,
    version: u8,
}

impl Work {
    async fn put(&mut self, at: u64, length: u64) {
        // Each sector differs from all others, of this session and of earlier ones.
        let bytes: Vec<u8> = (at / 512..(at + length) / 512)
            .flat_map(|sector| {
                let words = [sector << 8 | u64::from(self.version), sector ^ 0x5555_5555];
                words.map(u64::to_le_bytes).concat().repeat(32)
            })
            .collect();
        self.remember(at, &bytes);
        let mut buf = self.io.pool().take(bytes.len());
        buf.copy_from_slice(&bytes);
        self.engine.write(at, buf, Durability::Volatile).await.1.unwrap();
    }

    async fn zero(&mut self, at: u64, length: u64) {
        self.remember(at, &vec![0; length as usize]);
        let mode = ZeroMode::Deallocate;
        self.engine.write_zeroes(at, length, mode, Durability::Volatile).await.unwrap();
    }

    async fn flush(&self) {
        self.engine.flush().await.unwrap();
    }

    fn remember(&mut self, at: u64, bytes: &[u8]) {
        let extent = at / self.extent_bytes;
        let within = (at % self.extent_bytes) as usize;
        let whole = self.extent_bytes as usize;
        let held = self.content.entry(extent).or_insert_with(|| vec![0; whole]);
        held[within..within + bytes.len()].copy_from_slice(bytes);
    }
}

/// Extents that an image names, of both its contents.
pub(super) fn extents(image: &Image) -> BTreeSet<u64> {
    image.content.keys().chain(image.before.keys()).copied().collect()
}
