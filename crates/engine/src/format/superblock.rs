//! The superblock: who a drive is, whom it belongs to, and how the volume was last left.
//!
//! * Two copies per drive, [`COPY_POSITIONS`]; writers write and flush one, then the other, so
//!   that a cut leaves at least one whole, and rot of one loses nothing.
//! * `generation` counts openings for writing. Both drives carry it; the opening protocol
//!   (`docs/durability.md`) writes `Opening` on both before `Open` on either, so two drives that
//!   differ by more than one unfinished opening are not of the same moment.
//! * `session` is random per opening: two drives with the same generation but other sessions have
//!   been written apart from each other.
//! * The log fields are kept on the fast drive; the slow drive's are as of its last write.

use super::map_page::EntryForm;
use super::{put_u32, put_u64, u32_at, u64_at};
use crate::address::{Lsn, Tier};
use crate::cache_mode::CacheMode;
use crate::checksum::crc32c_around;
use crate::flush_mode::{Bound, FlushMode};
use crate::geometry::{Class, Geometry, Layout, name_problem};
use crate::tuning::Tuning;
use crate::wishes::{RANGES_MAX, Wish, WishRange, Wishes};

/// Bytes in a superblock.
pub const SUPERBLOCK_BYTES: usize = 4096;
/// Where the two copies lie. The first 4 KiB of a drive stay zero, for boot code and so that no
/// other system's signature is mistaken for ours; the copies are far enough apart that a
/// partition table or the start of a file system written by mistake spares the second.
pub const COPY_POSITIONS: [u64; 2] = [4096, 512 << 10];

const MAGIC: &[u8; 16] = b"bimetal-volume\r\n";
const VERSION: u32 = 1;
/// Features this version understands; an unknown incompatible one forbids opening, an unknown
/// read-only-compatible one forbids writing.
const INCOMPATIBLE_KNOWN: u64 = CACHE_CLASS | TWO_PLACES | IN_PARTS;
const READ_ONLY_COMPATIBLE_KNOWN: u64 = DOUBT_PAGE;
/// The slow drive keeps a doubt page (`doubt_page.rs`); who writes the volume must keep it true.
pub const DOUBT_PAGE: u64 = 1;
/// The volume is of class cache: map entries may be clean copies, and a slow slot has one extent.
const CACHE_CLASS: u64 = 1;
/// Class span: map entries may be clean copies, and name the slots of both drives.
const TWO_PLACES: u64 = 2;
/// Class cache: map entries may say which blocks of an extent are on the fast drive.
const IN_PARTS: u64 = 4;

const AT_MAGIC: usize = 0;
const AT_VERSION: usize = AT_MAGIC + 16;
const AT_ROLE: usize = AT_VERSION + 4;
const AT_POSITION: usize = AT_ROLE + 4;
const AT_VOLUME_ID: usize = AT_POSITION + 8;
const AT_DRIVE_IDS: usize = AT_VOLUME_ID + 16;
const AT_NAME: usize = AT_DRIVE_IDS + 32;
const AT_CLASS: usize = AT_NAME + 64;
const AT_STATE: usize = AT_CLASS + 4;
const AT_FEATURES: usize = AT_STATE + 4;
const AT_EXTENT_BYTES: usize = AT_FEATURES + 24;
const AT_VOLUME_BYTES: usize = AT_EXTENT_BYTES + 8;
const AT_LAYOUTS: usize = AT_VOLUME_BYTES + 8;
const LAYOUT_BYTES: usize = 7 * 8;
const AT_GENERATION: usize = AT_LAYOUTS + 2 * LAYOUT_BYTES;
const AT_SESSION: usize = AT_GENERATION + 8;
const AT_SEQUENCE: usize = AT_SESSION + 8;
const AT_LOG_TAIL: usize = AT_SEQUENCE + 8;
const AT_LOG_SESSION_START: usize = AT_LOG_TAIL + 8;
const AT_LOG_DURABLE: usize = AT_LOG_SESSION_START + 8;
const AT_FLUSH_BYTES: usize = AT_LOG_DURABLE + 8;
const AT_FLUSH_AGE_MS: usize = AT_FLUSH_BYTES + 8;
const AT_CACHE_MODE: usize = AT_FLUSH_AGE_MS + 4;
const AT_ALONE: usize = AT_CACHE_MODE + 4;
const AT_WEAR: usize = AT_ALONE + 4;
const AT_STAGE: usize = AT_WEAR + 8;
const AT_QUIET: usize = AT_STAGE + 8;
const AT_WISHES: usize = AT_QUIET + 4;
/// First extent, extents, what: eight, eight and four bytes.
const WISH_BYTES: usize = 20;
const AT_BEHIND: usize = AT_WISHES + 4 + RANGES_MAX * WISH_BYTES;
const AT_INCLUSION: usize = AT_BEHIND + 8;
const AT_END: usize = AT_INCLUSION + 4;
const AT_CRC: usize = SUPERBLOCK_BYTES - 4;
const _: () = assert!(AT_END <= AT_CRC && AT_GENERATION.is_multiple_of(8));

/// A random identity (UUID version 4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// Makes one from 128 random bits.
    pub fn from_random(high: u64, low: u64) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        // RFC 9562: version 4, variant 10.
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Uuid(bytes)
    }

    /// Reads the usual form `8-4-4-4-12` of hexadecimal digits.
    pub fn parse(text: &str) -> Option<Uuid> {
        let digits: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
        let dashes = text.match_indices('-').map(|(at, _)| at).eq([8, 13, 18, 23]);
        if digits.len() != 32 || !dashes || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let mut bytes = [0; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Uuid(bytes))
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            if [4, 6, 8, 10].contains(&index) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Uuid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// How the volume was left on this drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// `create` has not finished.
    Creating,
    /// An opening had begun; in this generation nothing was written yet.
    Opening,
    /// In use, or left by a crash.
    Open,
    /// Closed in order.
    Clean,
}

/// One drive's superblock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Which drive of the two this is.
    pub role: Tier,
    /// Identity of the volume.
    pub volume_id: Uuid,
    /// Identities of the fast and the slow drive.
    pub drive_ids: [Uuid; 2],
    /// Name given at `create`.
    pub name: String,
    /// How the volume was left.
    pub state: State,
    /// Shape of the volume.
    pub geometry: Geometry,
    /// Opening for writing, counted from 1.
    pub generation: u64,
    /// Random mark of that opening.
    pub session: u64,
    /// Superblock writes, to tell the newer copy.
    pub sequence: u64,
    /// Where replay of the log begins.
    pub log_tail: Lsn,
    /// Records from here on must be of this generation.
    pub log_session_start: Lsn,
    /// Everything before this was known durable when the superblock was written.
    pub log_durable: Lsn,
    /// What clients' flushes promise, as set for the volume.
    pub flush_mode: FlushMode,
    /// Class cache: when writes are at home, as set for the volume.
    pub cache_mode: CacheMode,
    /// Class cache: this generation is of the slow drive alone; the fast one is out of the volume.
    pub alone: bool,
    /// Settings of placement. Older versions know none and write none.
    pub tuning: Tuning,
    /// What is wished for ranges of the volume. Older versions know nothing of it.
    pub wishes: Wishes,
    /// Class span: map entries may name two places. Set before the first one does, and for good.
    pub two_places: bool,
    /// Class cache: map entries may say that some blocks of an extent are on the fast drive. Set before the
    /// first one does, and for good.
    pub in_parts: bool,
    /// Features that an older version cannot write.
    pub read_only_compatible: u64,
}

/// Why a copy of a superblock cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SuperblockProblem {
    /// No bimetal magic: blank or something else.
    Absent,
    /// Ours, but torn, rotten or misplaced.
    Damaged,
    /// Ours, of a version or with features this program does not know.
    TooNew(String),
}

/// Where the landing log of a new volume begins. One, so that an LSN of 0 never names a record.
pub(crate) const FIRST_LSN: Lsn = Lsn(1);

impl Superblock {
    /// A short number that marks records and pages of this volume.
    pub fn volume_tag(&self) -> u64 {
        u64_at(&self.volume_id.0, 0)
    }

    /// The landing log holds every change ever made to the volume: its tail has never moved.
    pub fn log_is_whole(&self) -> bool {
        self.log_tail == FIRST_LSN
    }

    /// Encodes the copy that goes to `COPY_POSITIONS[copy]`.
    pub fn encode(&self, out: &mut [u8], copy: usize) {
        assert_eq!(out.len(), SUPERBLOCK_BYTES);
        out.fill(0);
        out[AT_MAGIC..AT_VERSION].copy_from_slice(MAGIC);
        put_u32(out, AT_VERSION, VERSION);
        put_u32(out, AT_ROLE, self.role.index() as u32);
        put_u64(out, AT_POSITION, COPY_POSITIONS[copy]);
        out[AT_VOLUME_ID..AT_DRIVE_IDS].copy_from_slice(&self.volume_id.0);
        out[AT_DRIVE_IDS..AT_DRIVE_IDS + 16].copy_from_slice(&self.drive_ids[0].0);
        out[AT_DRIVE_IDS + 16..AT_NAME].copy_from_slice(&self.drive_ids[1].0);
        out[AT_NAME..AT_NAME + self.name.len()].copy_from_slice(self.name.as_bytes());
        let class = self.geometry.class;
        put_u32(out, AT_CLASS, if class == Class::Span { 1 } else { 2 });
        put_u32(
            out,
            AT_STATE,
            match self.state {
                State::Creating => 0,
                State::Opening => 1,
                State::Open => 2,
                State::Clean => 3,
            },
        );
        put_u64(out, AT_FEATURES + 8, self.read_only_compatible);
        let incompatible = match class {
            Class::Cache => CACHE_CLASS | (IN_PARTS * u64::from(self.in_parts)),
            Class::Span => TWO_PLACES * u64::from(self.two_places),
        };
        put_u64(out, AT_FEATURES + 16, incompatible);
        put_u64(out, AT_EXTENT_BYTES, self.geometry.extent_bytes);
        put_u64(out, AT_VOLUME_BYTES, self.geometry.volume_bytes);
        for (index, layout) in self.geometry.layouts.iter().enumerate() {
            let fields = [
                layout.drive_bytes,
                layout.map_at,
                layout.map_bytes,
                layout.log_at,
                layout.log_bytes,
                layout.slots_at,
                layout.slots,
            ];
            for (field, value) in fields.into_iter().enumerate() {
                put_u64(out, AT_LAYOUTS + index * LAYOUT_BYTES + field * 8, value);
            }
        }
        put_u64(out, AT_GENERATION, self.generation);
        put_u64(out, AT_SESSION, self.session);
        put_u64(out, AT_SEQUENCE, self.sequence);
        put_u64(out, AT_LOG_TAIL, self.log_tail.0);
        put_u64(out, AT_LOG_SESSION_START, self.log_session_start.0);
        put_u64(out, AT_LOG_DURABLE, self.log_durable.0);
        if let FlushMode::Deferred(bound) = self.flush_mode {
            put_u64(out, AT_FLUSH_BYTES, bound.bytes);
            put_u32(out, AT_FLUSH_AGE_MS, bound.age_ms);
        }
        if class == Class::Cache {
            put_u32(out, AT_CACHE_MODE, self.cache_mode.number());
            put_u32(out, AT_ALONE, u32::from(self.alone));
        }
        put_u64(out, AT_WEAR, self.tuning.wear_bytes_per_day.unwrap_or(0));
        // One more than is meant, so that zero is nothing said.
        put_u64(out, AT_STAGE, self.tuning.stage_bytes.map_or(0, |bytes| bytes + 1));
        put_u32(out, AT_QUIET, u32::from(self.tuning.quiet));
        put_u64(out, AT_BEHIND, self.tuning.behind_bytes.unwrap_or(0));
        put_u32(out, AT_INCLUSION, u32::from(self.tuning.inclusion));
        let ranges = self.wishes.ranges();
        put_u32(out, AT_WISHES, ranges.len() as u32);
        for (n, range) in ranges.iter().enumerate() {
            let at = AT_WISHES + 4 + n * WISH_BYTES;
            put_u64(out, at, range.first);
            put_u64(out, at + 8, range.count);
            put_u32(out, at + 16, range.wish.number());
        }
        let crc = crc32c_around(out, AT_CRC);
        put_u32(out, AT_CRC, crc);
    }

    /// Decodes the copy read from `COPY_POSITIONS[copy]`.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn decode(bytes: &[u8], copy: usize) -> Result<Superblock, SuperblockProblem> {
        if bytes.len() != SUPERBLOCK_BYTES || &bytes[AT_MAGIC..AT_VERSION] != MAGIC {
            return Err(SuperblockProblem::Absent);
        }
        // A CRC that fits proves that the version field was meant; one that does not may belong
        // to a layout we do not know, but then nothing else can be said either.
        if u32_at(bytes, AT_CRC) != crc32c_around(bytes, AT_CRC)
            || u64_at(bytes, AT_POSITION) != COPY_POSITIONS[copy]
        {
            return Err(SuperblockProblem::Damaged);
        }
        let version = u32_at(bytes, AT_VERSION);
        if version != VERSION {
            let text = format!("format version {version}; this program knows {VERSION}");
            return Err(SuperblockProblem::TooNew(text));
        }
        let incompatible = u64_at(bytes, AT_FEATURES + 16) & !INCOMPATIBLE_KNOWN;
        if incompatible != 0 {
            let text = format!("it uses features this program does not know ({incompatible:#x})");
            return Err(SuperblockProblem::TooNew(text));
        }
        Self::decode_fields(bytes).ok_or(SuperblockProblem::Damaged)
    }

    fn decode_fields(bytes: &[u8]) -> Option<Superblock> {
        let id = |at: usize| Uuid(bytes[at..at + 16].try_into().expect("sixteen bytes"));
        let name_bytes = &bytes[AT_NAME..AT_CLASS];
        let name_end = name_bytes.iter().position(|byte| *byte == 0)?;
        let name = std::str::from_utf8(&name_bytes[..name_end]).ok()?.to_owned();
        if name_problem(&name).is_some() {
            return None;
        }
        let class = match u32_at(bytes, AT_CLASS) {
            1 => Class::Span,
            2 => Class::Cache,
            _ => return None,
        };
        let is_cache = class == Class::Cache;
        let layout = |index: usize| {
            let field = |n: usize| u64_at(bytes, AT_LAYOUTS + index * LAYOUT_BYTES + n * 8);
            Layout {
                drive_bytes: field(0),
                map_at: field(1),
                map_bytes: field(2),
                log_at: field(3),
                log_bytes: field(4),
                slots_at: field(5),
                slots: field(6),
            }
        };
        let geometry = Geometry {
            class,
            extent_bytes: u64_at(bytes, AT_EXTENT_BYTES),
            volume_bytes: u64_at(bytes, AT_VOLUME_BYTES),
            layouts: [layout(0), layout(1)],
        };
        if geometry.problem().is_some() {
            return None;
        }
        let two_places = !is_cache && u64_at(bytes, AT_FEATURES + 16) & TWO_PLACES != 0;
        if two_places && !geometry.fits_two_places() {
            return None;
        }
        let in_parts = is_cache && u64_at(bytes, AT_FEATURES + 16) & IN_PARTS != 0;
        if in_parts && !geometry.fits_parts() {
            return None;
        }
        let ranges = u32_at(bytes, AT_WISHES) as usize;
        let wish = |n: usize| {
            let at = AT_WISHES + 4 + n * WISH_BYTES;
            let wish = Wish::numbered(u32_at(bytes, at + 16))?;
            Some(WishRange { first: u64_at(bytes, at), count: u64_at(bytes, at + 8), wish })
        };
        let ranges: Option<Vec<WishRange>> = match ranges {
            0..=RANGES_MAX => (0..ranges).map(wish).collect(),
            _ => None,
        };
        let wishes = Wishes::from_ranges(ranges?, &geometry)?;
        let bound =
            Bound { age_ms: u32_at(bytes, AT_FLUSH_AGE_MS), bytes: u64_at(bytes, AT_FLUSH_BYTES) };
        let superblock = Superblock {
            role: *Tier::BOTH.get(u32_at(bytes, AT_ROLE) as usize)?,
            volume_id: id(AT_VOLUME_ID),
            drive_ids: [id(AT_DRIVE_IDS), id(AT_DRIVE_IDS + 16)],
            name,
            state: match u32_at(bytes, AT_STATE) {
                0 => State::Creating,
                1 => State::Opening,
                2 => State::Open,
                3 => State::Clean,
                _ => return None,
            },
            geometry,
            generation: u64_at(bytes, AT_GENERATION),
            session: u64_at(bytes, AT_SESSION),
            sequence: u64_at(bytes, AT_SEQUENCE),
            log_tail: Lsn(u64_at(bytes, AT_LOG_TAIL)),
            log_session_start: Lsn(u64_at(bytes, AT_LOG_SESSION_START)),
            log_durable: Lsn(u64_at(bytes, AT_LOG_DURABLE)),
            flush_mode: match bound {
                Bound { age_ms: 0, bytes: 0 } => FlushMode::Strict,
                bound if bound.is_sound() => FlushMode::Deferred(bound),
                _ => return None,
            },
            cache_mode: match u32_at(bytes, AT_CACHE_MODE) {
                _ if !is_cache => CacheMode::default(),
                number => CacheMode::numbered(number)?,
            },
            alone: is_cache && u32_at(bytes, AT_ALONE) != 0,
            tuning: Tuning {
                wear_bytes_per_day: Some(u64_at(bytes, AT_WEAR)).filter(|bytes| *bytes > 0),
                stage_bytes: u64_at(bytes, AT_STAGE).checked_sub(1),
                quiet: u32_at(bytes, AT_QUIET) != 0,
                behind_bytes: Some(u64_at(bytes, AT_BEHIND)).filter(|bytes| *bytes > 0),
                inclusion: two_places && u32_at(bytes, AT_INCLUSION) != 0,
            },
            wishes,
            two_places,
            in_parts,
            read_only_compatible: u64_at(bytes, AT_FEATURES + 8),
        };
        // Counts near the end of u64 would overflow; an LSN per block takes 10^13 years to get there.
        let sane = superblock.log_durable.0 < 1 << 62
            && superblock.log_session_start.0 < 1 << 62
            && superblock.log_tail <= superblock.log_durable
            && superblock.generation < 1 << 62
            && superblock.sequence < 1 << 62;
        sane.then_some(superblock)
    }

    /// Class cache: whether all that was flushed is on the slow drive.
    pub fn brings_home(&self) -> bool {
        self.geometry.class == Class::Cache && self.cache_mode.brings_home()
    }

    /// What the entries of the map may say.
    pub fn entry_form(&self) -> EntryForm {
        match self.geometry.class {
            Class::Cache if self.in_parts => EntryForm::OwnSlotInParts,
            Class::Cache => EntryForm::OwnSlot,
            Class::Span if self.two_places => EntryForm::TwoPlaces,
            Class::Span => EntryForm::OnePlace,
        }
    }

    /// Whether the slow drive keeps a doubt page.
    pub fn has_doubt_page(&self) -> bool {
        self.read_only_compatible & DOUBT_PAGE != 0
    }

    /// Whether a version that knows no more than this one may write the volume.
    pub fn may_write(&self) -> bool {
        self.read_only_compatible & !READ_ONLY_COMPATIBLE_KNOWN == 0
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::geometry::{CreateOptions, plan};
    use io::DeviceInfo;
    use io::units::{GIB, MIB};

    pub(crate) fn example() -> Superblock {
        let drive = |size_bytes| DeviceInfo {
            path: "x".into(),
            size_bytes,
            sector_bytes: 512,
            atomic_write_bytes: 4096,
            rotational: None,
            read_only: false,
        };
        Superblock {
            role: Tier::Slow,
            volume_id: Uuid::from_random(1, 2),
            drive_ids: [Uuid::from_random(3, 4), Uuid::from_random(5, 6)],
            name: "example".into(),
            state: State::Open,
            geometry: plan(&drive(64 * MIB), &drive(GIB), &CreateOptions::new("example")).unwrap(),
            generation: 7,
            session: 99,
            sequence: 12,
            log_tail: Lsn(100),
            log_session_start: Lsn(150),
            log_durable: Lsn(140),
            flush_mode: FlushMode::Deferred(Bound { age_ms: 250, bytes: 64 * MIB }),
            cache_mode: CacheMode::WriteThrough,
            alone: false,
            tuning: Tuning {
                wear_bytes_per_day: Some(40_000_000_000),
                quiet: true,
                stage_bytes: Some(0),
                behind_bytes: Some(16 * MIB),
                inclusion: true,
            },
            wishes: Wishes::default().with(7, 9, Some(Wish::Pinned)).unwrap(),
            two_places: true,
            in_parts: false,
            read_only_compatible: 0,
        }
    }

    #[test]
    fn a_superblock_comes_back_as_it_was_written() {
        let superblock = example();
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        for copy in 0..2 {
            superblock.encode(&mut bytes, copy);
            assert_eq!(Superblock::decode(&bytes, copy), Ok(superblock.clone()));
            let misplaced = Superblock::decode(&bytes, 1 - copy);
            assert_eq!(misplaced, Err(SuperblockProblem::Damaged));
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        example().encode(&mut bytes, 0);
        for at in 0..SUPERBLOCK_BYTES {
            bytes[at] ^= 1 << (at % 8);
            let found = Superblock::decode(&bytes, 0).unwrap_err();
            let expected =
                if at < 16 { SuperblockProblem::Absent } else { SuperblockProblem::Damaged };
            assert_eq!(found, expected, "byte {at}");
            bytes[at] ^= 1 << (at % 8);
        }
    }

    #[test]
    fn hostile_fields_under_a_valid_crc_do_not_panic() {
        let mut pristine = vec![0; SUPERBLOCK_BYTES];
        example().encode(&mut pristine, 0);
        for at in (16..AT_END).filter(|at| !(AT_POSITION..AT_VOLUME_ID).contains(at)) {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut bytes = pristine.clone();
                bytes[at] = value;
                let crc = crc32c_around(&bytes, AT_CRC);
                put_u32(&mut bytes, AT_CRC, crc);
                if let Ok(superblock) = Superblock::decode(&bytes, 0) {
                    assert_eq!(superblock.geometry.problem(), None);
                }
            }
        }
    }

    #[test]
    fn an_unknown_feature_is_named_not_guessed() {
        let mut bytes = vec![0; SUPERBLOCK_BYTES];
        example().encode(&mut bytes, 0);
        put_u64(&mut bytes, AT_FEATURES + 16, 8);
        let crc = crc32c_around(&bytes, AT_CRC);
        put_u32(&mut bytes, AT_CRC, crc);
        let problem = Superblock::decode(&bytes, 0).unwrap_err();
        assert!(matches!(problem, SuperblockProblem::TooNew(text) if text.contains("0x8")));
    }

    #[test]
    fn an_identity_is_read_and_written_in_the_usual_form() {
        let id = Uuid::from_random(0x1234_5678_9abc_def0, 0x0fed_cba9_8765_4321);
        let text = id.to_string();
        assert_eq!(text, "12345678-9abc-4ef0-8fed-cba987654321");
        assert_eq!(Uuid::parse(&text), Some(id));
        for bad in ["", "12345678", "12345678-9abc-4ef0-8fed-cba98765432g"] {
            assert_eq!(Uuid::parse(bad), None);
        }
    }
}
