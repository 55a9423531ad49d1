//! How big everything is and where it lies. Pure arithmetic; `docs/format.md` draws it.
//!
//! Fast drive: `superblocks (first MiB) | map pages | landing log | slots`.
//! Slow drive: `superblocks (first MiB) | map pages | slots`.
//! Everything after the first MiB starts on a MiB, so that slots are aligned for any drive.

use crate::cache_mode::CacheMode;
use crate::flush_mode::FlushMode;
use crate::tuning::Tuning;
use io::DeviceInfo;
use io::units::{GIB, KIB, MIB, TIB, human_bytes};

use crate::address::{BLOCK_BYTES, ExtentId, Home, SlotId, Tier};
use crate::error::Error;
use crate::format::map_page::{
    ENTRIES_PER_PAGE, PAGE_BYTES, PART_BLOCKS_MAX, PART_SLOTS_MAX, TWO_PLACES_SLOTS_MAX,
};

/// What losing a drive means, and what the capacities do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Capacity of both drives added up. Losing one drive loses what was on it.
    Span,
    /// Capacity of the slow drive, where every extent has its own slot; the fast one holds copies.
    Cache,
}

impl Class {
    /// The word used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Class::Span => "span",
            Class::Cache => "cache",
        }
    }
}

/// What a person chooses at `create`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateOptions {
    /// Name of the volume: 1 to 63 letters, digits, `-`, `_`, `.`; not starting with `.` or `-`.
    pub name: String,
    /// Safety class.
    pub class: Class,
    /// Bytes per extent: a power of two, 64 KiB to 4 MiB.
    pub extent_bytes: u64,
    /// Bytes of the landing log; `None` chooses 1/32 of the fast drive, 4 MiB to 4 GiB.
    pub landing_bytes: Option<u64>,
    /// What clients' flushes promise.
    pub flush_mode: FlushMode,
    /// Class cache: when a write is at home.
    pub cache_mode: CacheMode,
    /// Settings of placement.
    pub tuning: Tuning,
}

impl CreateOptions {
    /// The defaults for a volume of that name: class span, extents of 128 KiB.
    pub fn new(name: impl Into<String>) -> CreateOptions {
        CreateOptions {
            name: name.into(),
            class: Class::Span,
            extent_bytes: 128 * KIB,
            landing_bytes: None,
            flush_mode: FlushMode::Strict,
            cache_mode: CacheMode::default(),
            tuning: Tuning::default(),
        }
    }
}

/// The parts of one drive. Offsets and lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// Size of the drive when it joined; a larger drive is fine, a smaller one is not.
    pub drive_bytes: u64,
    /// Start of the map pages.
    pub map_at: u64,
    /// Length of the map pages, both copies.
    pub map_bytes: u64,
    /// Start of the landing log (fast drive only).
    pub log_at: u64,
    /// Length of the landing log (0 on the slow drive).
    pub log_bytes: u64,
    /// Start of the slots.
    pub slots_at: u64,
    /// Number of slots.
    pub slots: u64,
}

/// The shape of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Safety class.
    pub class: Class,
    /// Bytes per extent and slot.
    pub extent_bytes: u64,
    /// What clients see.
    pub volume_bytes: u64,
    /// The fast and the slow drive, in this order.
    pub layouts: [Layout; 2],
}

/// Where the metadata that follows the superblocks begins.
pub const SUPERBLOCK_AREA_BYTES: u64 = MIB;
/// The smallest volume: below this the fixed areas outweigh the data.
pub const VOLUME_BYTES_MIN: u64 = 64 * MIB;
/// The largest volume that is tested. The format itself has room for 2^40 slots per drive.
pub const VOLUME_BYTES_MAX: u64 = 128 * TIB;
/// Memory for when extents were asked for and what was decided about them last.
const REMEMBERED_BYTES: u64 = 3 * MIB / 2;
/// The smallest landing log: room for the reserve of internal records and several large requests.
pub const LANDING_BYTES_MIN: u64 = 4 * MIB;
/// The largest: log positions are kept in 31 bits of blocks; 64 GiB is far beyond any use.
pub const LANDING_BYTES_MAX: u64 = 64 * GIB;

impl Geometry {
    /// Number of extents of the volume.
    pub fn extents(&self) -> u64 {
        self.volume_bytes / self.extent_bytes
    }

    /// Number of map pages (exact: the last one may be partly used).
    pub fn map_pages(&self) -> u64 {
        self.extents().div_ceil(ENTRIES_PER_PAGE as u64)
    }

    /// Blocks per extent.
    pub fn extent_blocks(&self) -> u64 {
        self.extent_bytes / BLOCK_BYTES
    }

    /// Blocks in the landing log's ring.
    pub fn ring_blocks(&self) -> u64 {
        self.layouts[0].log_bytes / BLOCK_BYTES
    }

    /// The slot of the slow drive that is an extent's own, in class cache.
    pub fn own_slot(&self, extent: ExtentId) -> Option<Home> {
        let slot = SlotId(extent.0);
        (self.class == Class::Cache).then_some(Home { tier: Tier::Slow, slot })
    }

    /// Whether a map entry can name a slot of each drive: 4 TiB of fast slots and 2 PiB of slow ones,
    /// at 128 KiB.
    pub fn fits_two_places(&self) -> bool {
        self.layouts.iter().zip(TWO_PLACES_SLOTS_MAX).all(|(layout, most)| layout.slots <= most)
    }

    /// Whether a map entry can name a slot of the fast drive and each block of an extent: 16 TiB of fast
    /// slots at 128 KiB, and no larger extents.
    pub fn fits_parts(&self) -> bool {
        let slots = self.layouts[Tier::Fast.index()].slots;
        self.class == Class::Cache
            && slots <= PART_SLOTS_MAX
            && self.extent_blocks() <= PART_BLOCKS_MAX
    }

    /// Byte offset of a slot on its drive.
    pub fn position(&self, home: Home) -> u64 {
        self.layouts[home.tier.index()].slots_at + home.slot.0 * self.extent_bytes
    }

    /// Why the volume cannot keep below what went up, if it cannot.
    pub fn inclusion_problem(&self) -> Option<String> {
        if self.class == Class::Cache {
            return Some(
                "inclusion is of class span: in class cache everything has its place on the slow \
                 drive"
                    .into(),
            );
        }
        let most = TWO_PLACES_SLOTS_MAX.map(|slots| human_bytes(slots * self.extent_bytes));
        (!self.fits_two_places()).then(|| {
            format!(
                "inclusion is possible with up to {} on the fast drive and {} on the slow one, with \
                 extents of {}; larger extents allow more",
                most[0],
                most[1],
                human_bytes(self.extent_bytes)
            )
        })
    }

    /// Byte offset of one copy (0 or 1) of a map page, on the given drive.
    pub fn map_page_position(&self, tier: Tier, page: u64, copy: u64) -> u64 {
        self.layouts[tier.index()].map_at + (page * 2 + copy) * PAGE_BYTES as u64
    }

    /// RAM for the map, heat and slot bitmaps when every extent is in use, in bytes: 11 bytes per
    /// extent, one bit per slot, four bytes and three bits per map page, and what is remembered of single extents,
    /// whatever the size. Untouched parts of a sparse volume cost address space only.
    pub fn map_memory_bytes(&self) -> u64 {
        let slots = self.layouts[0].slots + self.layouts[1].slots;
        self.extents() * 11 + slots / 8 + self.map_pages() * 35 / 8 + REMEMBERED_BYTES
    }

    /// The most RAM that the log's index takes, in bytes, when every log block holds live data:
    /// 8 bytes for the ring's owner table, and up to 40 for the hash table just after it has
    /// doubled (17 bytes a slot, load between 7/16 and 7/8).
    pub fn log_memory_bytes_max(&self) -> u64 {
        self.ring_blocks() * 48
    }

    /// Whether the layouts are free of overlap and fit their drives: superblocks are bytes from
    /// outside and are believed only after this.
    pub fn problem(&self) -> Option<String> {
        let extent = self.extent_bytes;
        if !extent.is_power_of_two() || !(64 * KIB..=4 * MIB).contains(&extent) {
            return Some(format!("extent size {extent} is not a power of two from 64K to 4M"));
        }
        if self.volume_bytes == 0
            || !self.volume_bytes.is_multiple_of(extent)
            || self.volume_bytes > VOLUME_BYTES_MAX
        {
            return Some(format!("volume size {} is impossible", self.volume_bytes));
        }
        let pages_bytes = self.map_pages() * 2 * PAGE_BYTES as u64;
        let mut slots_total = 0u64;
        for tier in Tier::BOTH {
            let layout = &self.layouts[tier.index()];
            let map_end = layout.map_at.checked_add(layout.map_bytes);
            let log_end = layout.log_at.checked_add(layout.log_bytes);
            let slots_end = layout
                .slots
                .checked_mul(extent)
                .and_then(|bytes| bytes.checked_add(layout.slots_at));
            let (Some(map_end), Some(log_end), Some(slots_end)) = (map_end, log_end, slots_end)
            else {
                return Some(format!("areas of the {tier} drive overflow"));
            };
            let ordered = layout.map_at >= SUPERBLOCK_AREA_BYTES
                && layout.map_bytes >= pages_bytes
                && (layout.log_bytes == 0 || layout.log_at >= map_end)
                && layout.slots_at >= map_end.max(log_end)
                && slots_end <= layout.drive_bytes;
            let aligned = [layout.map_at, layout.log_at, layout.log_bytes, layout.slots_at]
                .iter()
                .all(|offset| offset.is_multiple_of(BLOCK_BYTES));
            if !ordered || !aligned || layout.slots > 1 << 40 {
                return Some(format!("areas of the {tier} drive overlap or exceed it"));
            }
            slots_total += layout.slots;
        }
        let log_bytes = self.layouts[0].log_bytes;
        if !(LANDING_BYTES_MIN..=LANDING_BYTES_MAX).contains(&log_bytes)
            || self.layouts[1].log_bytes != 0
        {
            return Some(format!("landing log of {log_bytes} bytes is impossible"));
        }
        let slots_enough = match self.class {
            Class::Span => self.extents() < slots_total,
            Class::Cache => self.extents() <= self.layouts[Tier::Slow.index()].slots,
        };
        if !slots_enough {
            return Some("there are fewer slots than extents".into());
        }
        None
    }
}

/// Says what `create` would make of these drives, without touching them.
///
/// # Errors
/// `Error::Geometry` with what is wrong and what would do.
pub fn plan(
    fast: &DeviceInfo,
    slow: &DeviceInfo,
    options: &CreateOptions,
) -> Result<Geometry, Error> {
    let refuse = |text: String| Err(Error::Geometry(text));
    if let Some(problem) = name_problem(&options.name) {
        return refuse(problem);
    }
    let extent = options.extent_bytes;
    if options.class == Class::Cache
        && options.cache_mode.brings_home()
        && options.flush_mode != FlushMode::Strict
    {
        return refuse(
            "a write-through cache brings home what a flush covers, which deferred durability does \
             not: choose strict durability, or a write-back cache"
                .into(),
        );
    }
    if !extent.is_power_of_two() || !(64 * KIB..=4 * MIB).contains(&extent) {
        return refuse(format!(
            "extent size {} is not a power of two from 64K to 4M (128K is the default)",
            human_bytes(extent)
        ));
    }
    let landing = match options.landing_bytes {
        Some(bytes) => bytes,
        None => (fast.size_bytes / 32).clamp(LANDING_BYTES_MIN, 4 * GIB) / MIB * MIB,
    };
    if !landing.is_multiple_of(MIB) || !(LANDING_BYTES_MIN..=LANDING_BYTES_MAX).contains(&landing) {
        return refuse(format!(
            "a landing log of {} is not possible: whole MiB from {} to {}",
            human_bytes(landing),
            human_bytes(LANDING_BYTES_MIN),
            human_bytes(LANDING_BYTES_MAX)
        ));
    }
    // An upper bound on the extents fixes the map's size before the slots are counted.
    let extents_max = (fast.size_bytes / extent).saturating_add(slow.size_bytes / extent);
    let pages = extents_max.div_ceil(ENTRIES_PER_PAGE as u64);
    let map_bytes = (pages * 2 * PAGE_BYTES as u64).next_multiple_of(MIB);
    let layout = |info: &DeviceInfo, log_bytes: u64| {
        let log_at = SUPERBLOCK_AREA_BYTES + map_bytes;
        let slots_at = (log_at + log_bytes).next_multiple_of(extent);
        Layout {
            drive_bytes: info.size_bytes,
            map_at: SUPERBLOCK_AREA_BYTES,
            map_bytes,
            log_at,
            log_bytes,
            slots_at,
            slots: info.size_bytes.saturating_sub(slots_at) / extent,
        }
    };
    let layouts = [layout(fast, landing), layout(slow, 0)];
    for (info, layout) in [fast, slow].into_iter().zip(&layouts) {
        if layout.slots < 16 {
            let needed = layout.slots_at + 16 * extent;
            return refuse(format!(
                "{} is too small for the {} drive: it has {}, and these options need at least {}",
                info.path,
                if layout.log_bytes > 0 { "fast" } else { "slow" },
                human_bytes(info.size_bytes),
                human_bytes(needed.next_multiple_of(MIB))
            ));
        }
    }
    let extents = match options.class {
        Class::Span => layouts[0].slots + layouts[1].slots - spare_slots(layouts[1].slots),
        // Each has its own slot, and nothing ever needs another.
        Class::Cache => layouts[1].slots,
    };
    let volume_bytes = extents * extent;
    if volume_bytes < VOLUME_BYTES_MIN {
        return refuse(format!(
            "these drives make a volume of {}; the smallest is {}",
            human_bytes(volume_bytes),
            human_bytes(VOLUME_BYTES_MIN)
        ));
    }
    if volume_bytes > VOLUME_BYTES_MAX {
        return refuse(format!(
            "these drives make a volume of {}; the largest is {}",
            human_bytes(volume_bytes),
            human_bytes(VOLUME_BYTES_MAX)
        ));
    }
    let geometry = Geometry { class: options.class, extent_bytes: extent, volume_bytes, layouts };
    if let Some(problem) = geometry.problem() {
        return refuse(problem);
    }
    if options.tuning.inclusion
        && let Some(problem) = geometry.inclusion_problem()
    {
        return refuse(problem);
    }
    Ok(geometry)
}

/// Slots of the slow drive that are not counted into the volume, so that moves and
/// copy-on-write always find a free one, also on a full volume: 1/1024, at least 8, at most 1024.
fn spare_slots(slow_slots: u64) -> u64 {
    (slow_slots / 1024).clamp(8, 1024)
}

/// Why `name` cannot name a volume, if it cannot.
pub fn name_problem(name: &str) -> Option<String> {
    let fits = (1..=63).contains(&name.len());
    let characters = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let start = name.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
    (!(fits && characters && start)).then(|| {
        format!(
            "'{}' cannot name a volume: 1 to 63 letters, digits, '-', '_' or '.', starting with \
             a letter, digit or '_'",
            name.escape_debug()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drive(path: &str, size_bytes: u64) -> DeviceInfo {
        DeviceInfo {
            path: path.into(),
            size_bytes,
            sector_bytes: 512,
            atomic_write_bytes: 4096,
            rotational: None,
            read_only: false,
        }
    }

    #[test]
    fn every_size_from_the_smallest_to_the_largest_has_a_sound_layout() {
        for (fast, slow) in [
            (16 * MIB, 64 * MIB),
            (GIB, 8 * GIB),
            (121 * GIB, TIB),
            (TIB, 16 * TIB),
            (4 * TIB, 64 * TIB),
            (GIB + 12_345 * 512, 8 * GIB + 512),
        ] {
            for extent_bytes in [64 * KIB, 128 * KIB, MIB] {
                let options = CreateOptions { extent_bytes, ..CreateOptions::new("v") };
                let Ok(geometry) = plan(&drive("f", fast), &drive("s", slow), &options) else {
                    assert!(fast == 16 * MIB && extent_bytes == MIB);
                    continue;
                };
                assert_eq!(geometry.problem(), None);
                // What is not data: superblocks, map, log, spares, at most 4 MiB of rounding.
                let spare = spare_slots(geometry.layouts[1].slots) * extent_bytes;
                let overhead = 2 * SUPERBLOCK_AREA_BYTES
                    + 2 * geometry.layouts[0].map_bytes
                    + geometry.layouts[0].log_bytes
                    + spare;
                assert!(geometry.volume_bytes + overhead + 4 * MIB + extent_bytes >= fast + slow);
            }
        }
    }

    #[test]
    fn memory_for_map_and_heat_stays_below_96_mib_per_tib() {
        let options = CreateOptions::new("v");
        for slow in [TIB, 16 * TIB, 64 * TIB] {
            let geometry = plan(&drive("f", slow / 8), &drive("s", slow), &options).unwrap();
            let per_tib =
                geometry.map_memory_bytes() as f64 / (geometry.volume_bytes as f64 / TIB as f64);
            assert!(per_tib <= 96.0 * MIB as f64, "{per_tib}");
        }
    }

    #[test]
    fn impossible_wishes_are_refused_with_what_would_do() {
        let fast = drive("/f", GIB);
        let slow = drive("/s", 8 * GIB);
        let with = |change: fn(&mut CreateOptions)| {
            let mut options = CreateOptions::new("v");
            change(&mut options);
            plan(&fast, &slow, &options).unwrap_err().to_string()
        };
        assert!(with(|o| o.extent_bytes = 100_000).contains("power of two"));
        assert!(with(|o| o.extent_bytes = 8 * MIB).contains("64K to 4M"));
        assert!(with(|o| o.landing_bytes = Some(1000)).contains("landing log"));
        assert!(with(|o| o.landing_bytes = Some(2 * GIB)).contains("/f is too small"));
        for name in ["", "a/b", "-x", ".hidden", "ä", &"x".repeat(64)] {
            assert!(name_problem(name).is_some(), "{name}");
        }
        let tiny = plan(&drive("/f", 0), &slow, &CreateOptions::new("v")).unwrap_err();
        assert!(tiny.to_string().contains("/f is too small"), "{tiny}");
    }
}
