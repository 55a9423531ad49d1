//! The memory of a running volume, and the small decisions that read or change several parts of
//! it at once. Nothing here waits.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use io::Pool;

use crate::accesses::{Accesses, Epoch};
use crate::address::{BLOCK_BYTES, BlockId, ExtentId, Home, Lsn, Tier};
use crate::alone::Alone;
use crate::behind::Behind;
use crate::canary::canary;
use crate::cleaning::Cleaning;
use crate::courtesy::Courtesy;
use crate::doubts::Doubts;
use crate::error::Poison;
use crate::exposure::Exposure;
use crate::fast_view::FastView;
use crate::fixed_map::FixedMap;
use crate::format::map_page::{ENTRIES_PER_PAGE, EntryForm, Residence};
use crate::format::record::Entry;
use crate::geometry::{Class, Geometry};
use crate::guards::Guards;
use crate::homing::Homecoming;
use crate::inclusion::Inclusion;
use crate::kept::{self, Kept};
use crate::lasting_heat::LastingHeat;
use crate::line::Line;
use crate::log::Log;
use crate::loss::{self, Loss, LossCause};
use crate::lull::Lull;
use crate::map::Map;
use crate::marks::{self, Mark};
use crate::pace::Pace;
use crate::placer::Placer;
use crate::quiet::Quiet;
use crate::rescue::Rescue;
use crate::slots::{Quarantine, Slots};
use crate::stage::Stage;
use crate::status::{Moves, Recovery, RequestUse, Served};
use crate::wish_hand::WishHand;
use crate::wishes::{Wish, Wishes};

/// Flush coalescing: who comes while one runs shares the next.
#[derive(Debug, Default)]
pub(crate) struct FlushTurns {
    pub running: bool,
    /// The turn that callers join now.
    pub next: u64,
    /// Turns that have ended.
    pub done: u64,
    /// Callers since the last turn began, and before.
    pub callers: u64,
    pub last_callers: u64,
    /// How long the last turn took.
    pub last_ns: u64,
}

/// Log blocks that the record of one run of fresh writes may take: its entries fit one header
/// block, and it may have to seal another.
pub(crate) const FRESH_RECORD_BLOCKS: u64 = 2;

/// How the janitor sleeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// It works.
    Awake,
    /// It has work for when the drives are idle, and looks again by itself.
    UntilIdle,
    /// It has no work.
    UntilWoken,
}

/// Counts for `status`.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Counters {
    pub reads: RequestUse,
    pub writes: RequestUse,
    pub trims: RequestUse,
    pub flushes_asked: u64,
    pub served: Served,
    pub served_reads: Served,
    pub moves: Moves,
    pub full_waits: u64,
    pub checkpoints: u64,
    pub checkpoint_ns: u64,
    pub map_pages_written: u64,
}

/// Changes of a map page that the slow drive's copies do not have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unmirrored {
    first: Lsn,
    last: Lsn,
}

impl Unmirrored {
    /// Whether there are any from before `end`.
    pub fn begin_before(self, end: Lsn) -> bool {
        self.first < end
    }
}

pub(crate) struct State {
    pub geometry: Geometry,
    pub map: Map,
    /// What the slow drive alone could not vouch for.
    pub doubts: Doubts,
    /// What cannot be read because a drive is gone, or because of damage; `None` while all is well.
    pub loss: Option<Loss>,
    /// What is proven, while a damaged volume is brought up to be rescued.
    pub rescue: Option<Box<Rescue>>,
    pub slots: [Slots; 2],
    pub quarantine: Quarantine,
    pub log: Log,
    /// Accesses under way that may use a home they looked up.
    pub home_accesses: Accesses,
    /// Accesses under way that may use a place in the log they looked up.
    pub log_accesses: Accesses,
    pub guards: Guards,
    pub placer: Placer,
    /// Extents of the slow drive in RAM.
    pub stage: Stage,
    /// What is wished for ranges of the volume.
    pub wishes: Wishes,
    /// Has them granted.
    pub wish_hand: WishHand,
    /// Brings dirty copies home when clients rest.
    pub cleaning: Cleaning,
    /// Class span: keeps below what goes up.
    pub inclusion: Inclusion,
    pub lasting_heat: LastingHeat,
    /// Whether the slow drive may sleep.
    pub quiet: Quiet,
    /// How often the background may be in the way.
    pub courtesy: Courtesy,
    /// Whether nobody writes, so that emptying the log can take its time.
    pub lull: Lull,
    /// The oldest live block when blocks were last carried.
    pub carried_from: Option<Lsn>,
    /// Extents written to a fresh slot by a record that recovery would still verify by its data:
    /// their homes must not be changed in place. Extent → LSN of the record.
    pub young: FixedMap<u64, Lsn>,
    young_order: VecDeque<(Lsn, ExtentId)>,
    /// Extents that were not destaged the last time because their homes were being written.
    pub destage_waits: BTreeSet<ExtentId>,
    /// Homes on this drive were written since it was last flushed.
    pub home_dirty: [bool; 2],
    /// Drives that write a block wholly or not at all: homes there may be written in place.
    pub in_place: [bool; 2],
    pub flush: FlushTurns,
    /// What a power cut could take, in deferred mode.
    pub exposure: Exposure,
    /// What was acknowledged before it is written.
    pub behind: Behind,
    pub counters: Counters,
    pub recovery: Recovery,
    /// Why the volume takes no more writes.
    pub poisoned: Option<Poison>,
    /// The volume is being closed: no new requests, no more background work.
    pub closing: bool,
    /// The volume is closed: the log writer ends.
    pub closed: bool,
    /// When the last client request began, on the world's clock.
    pub last_request_ns: u64,
    /// Client requests under way.
    pub requests_under_way: u64,
    /// Whether and how the janitor sleeps.
    pub janitor: Rest,
    /// When it looks again by itself, if it does.
    pub alarm_ns: Option<u64>,
    /// Requests that wait for log space.
    pub room_line: Line,
    /// Slows writers down when the log fills faster than it empties.
    pub pace: Pace,
    /// Log blocks that fresh writes under way will need when their data has arrived.
    pub promised_blocks: u64,
    /// Extents whose home could not be read as a whole: they are rewritten in place only.
    pub unreadable: BTreeSet<ExtentId>,
    /// Class cache: what is written is on its way home at once, nothing becomes dirty, and what only
    /// the log has is kept in memory.
    pub homeward: bool,
    /// Everything is being brought home.
    pub homecoming: Option<Homecoming>,
    /// Class cache: write-through is in force. What was flushed is at home, so that the fast drive
    /// may die.
    pub through: bool,
    /// Class cache, write-around: what is written takes its copy away.
    pub around: bool,
    /// On the way there: flushes bring home what they cover already.
    pub flushes_home: bool,
    /// Class cache: extents that a flush is bringing home. They change only when that is done.
    pub going_home: BTreeSet<ExtentId>,
    /// Class cache: the fast drive has died, and the volume goes on.
    pub alone: Option<Alone>,
    pub kept: Kept,
    /// Write-through: map pages of which the slow drive does not know that an extent has become a
    /// hole or data.
    pub unmirrored: BTreeMap<u64, Unmirrored>,
    /// Clean copies that could not be read: they are to be given up.
    pub bad_copies: BTreeSet<ExtentId>,
    /// Map pages of which recovery found a damaged copy on the fast drive.
    pub damaged_pages: Vec<u64>,
    /// Headers of the log that recovery found damaged, and in their successors: place and content.
    pub damaged_headers: Vec<(Lsn, Vec<u8>)>,
}

impl State {
    /// Nothing that clients asked for is under way, what was acknowledged before it is written included.
    pub fn requests_ended(&self) -> bool {
        self.requests_under_way == 0 && self.behind.is_empty()
    }

    pub fn new(geometry: &Geometry, form: EntryForm, log: Log, in_place: [bool; 2]) -> State {
        let extents = geometry.extents();
        let slots = [0, 1].map(|tier| Slots::new(geometry.layouts[tier].slots));
        State {
            geometry: geometry.clone(),
            map: Map::new(extents, form),
            doubts: Doubts::new(geometry),
            loss: None,
            rescue: None,
            slots,
            quarantine: Quarantine::default(),
            log,
            home_accesses: Accesses::default(),
            log_accesses: Accesses::default(),
            guards: Guards::default(),
            placer: Placer::new(geometry),
            stage: Stage::default(),
            wishes: Wishes::default(),
            wish_hand: WishHand::default(),
            cleaning: Cleaning::default(),
            inclusion: Inclusion::default(),
            lasting_heat: LastingHeat::default(),
            quiet: Quiet::new(false, 0),
            courtesy: Courtesy::default(),
            lull: Lull::default(),
            carried_from: None,
            young: FixedMap::default(),
            young_order: VecDeque::new(),
            destage_waits: BTreeSet::new(),
            home_dirty: [false; 2],
            in_place,
            flush: FlushTurns::default(),
            exposure: Exposure::default(),
            behind: Behind::default(),
            counters: Counters::default(),
            recovery: Recovery::default(),
            poisoned: None,
            closing: false,
            closed: false,
            last_request_ns: 0,
            requests_under_way: 0,
            janitor: Rest::Awake,
            alarm_ns: None,
            room_line: Line::default(),
            pace: Pace::default(),
            promised_blocks: 0,
            unreadable: BTreeSet::new(),
            homeward: false,
            homecoming: None,
            through: false,
            around: false,
            flushes_home: false,
            going_home: BTreeSet::new(),
            alone: None,
            kept: Kept::default(),
            unmirrored: BTreeMap::new(),
            bad_copies: BTreeSet::new(),
            damaged_pages: Vec::new(),
            damaged_headers: Vec::new(),
        }
    }

    pub fn extent_of(&self, at: u64) -> ExtentId {
        ExtentId(at / self.geometry.extent_bytes)
    }

    /// Blocks of an extent.
    pub fn blocks_of(&self, extent: ExtentId) -> impl Iterator<Item = BlockId> + use<> {
        let blocks = self.geometry.extent_blocks();
        (extent.0 * blocks..(extent.0 + 1) * blocks).map(BlockId)
    }

    /// Fast slots that new data leaves free, so that there is room to move and to write fresh
    /// copies: 1/64 of them, at least 4; as a Fusion Drive does 1/32, which of its 121 GB are 4. A volume
    /// that is full to the last extent has no more free slots than the slow drive's spare ones, and who insists
    /// on more never moves anything again: half of what is free has to do.
    pub fn fast_reserve(&self) -> u64 {
        let share = if self.placer.overwrites_below() { 32 } else { 64 };
        let wanted = self.slots[0].slots() / share;
        let most = match self.geometry.class {
            // What is kept below is given back to those who need it.
            Class::Span => (self.slots[0].free() + self.slots[1].free() + self.map.clean()) / 2,
            // Who leaves has its own slot below.
            Class::Cache => wanted,
        };
        wanted.min(most).max(4)
    }

    /// Fast slots that moves leave free. They may take half of the reserve: those that leave for what
    /// moves up follow.
    pub fn slots_kept(&self) -> u64 {
        self.fast_reserve() / 2
    }

    /// A slot for an extent without a home, or for its fresh copy.
    pub fn take_slot_for_new(&mut self, extent: ExtentId) -> Option<Home> {
        self.reclaim();
        if self.homeward {
            self.placer.heat.decisions.new_slow_wished += 1;
            return self.take_slot(Tier::Slow, extent);
        }
        let free = [self.slots[0].free(), self.slow_slots_for(extent)];
        let below = matches!(self.wishes.of(extent), Some(Wish::Cold | Wish::Stream));
        if below && free[1] > 0 {
            self.placer.heat.decisions.new_slow_wished += 1;
            return self.take_slot(Tier::Slow, extent);
        }
        let Some(tier) = self.placer.admit(free[0], free[1], self.fast_reserve()) else {
            marks::hit(Mark::VolumeFull);
            return None;
        };
        let decisions = &mut self.placer.heat.decisions;
        match tier {
            Tier::Fast => decisions.new_fast += 1,
            Tier::Slow => {
                marks::hit(Mark::ReserveReached);
                decisions.new_slow_full += 1;
            }
        }
        self.take_slot(tier, extent)
    }

    /// What the policy is shown of the fast drive, and the policy.
    pub fn placer_and_view(&mut self) -> (&mut Placer, FastView<'_>) {
        let taken = self.fast_reserve() + self.stage.entering();
        let State { placer, map, guards, slots, geometry, wishes, .. } = self;
        (placer, FastView { map, guards, slots, geometry, wishes, taken, for_free: false })
    }

    /// A slot for the extent on the given drive.
    pub fn take_slot(&mut self, tier: Tier, extent: ExtentId) -> Option<Home> {
        let own = self.geometry.own_slot(extent).filter(|own| own.tier == tier);
        let slots = &mut self.slots[tier.index()];
        match own {
            Some(own) => slots.claim(own.slot).then_some(own),
            None => slots.take().map(|slot| Home { tier, slot }),
        }
    }

    /// Slots of the slow drive that the extent may take.
    pub fn slow_slots_for(&self, extent: ExtentId) -> u64 {
        let slots = &self.slots[Tier::Slow.index()];
        match self.geometry.own_slot(extent) {
            Some(own) => u64::from(!slots.is_used(own.slot)),
            None => slots.free(),
        }
    }

    /// Whether new data finds no slot anywhere, except those that wait to be free.
    pub fn slots_low(&self) -> bool {
        // In class cache a slow slot helps its own extent only.
        let slow = self.geometry.class == Class::Span && self.slots[1].free() > 0;
        self.slots[0].free() == 0 && !slow
    }

    /// Gives up a home; the slot is free again when that is safe.
    pub fn retire(&mut self, home: Home, lsn: Lsn) {
        if canary!(SlotFreedAtOnce) {
            return self.slots[home.tier.index()].give_back(home.slot);
        }
        let epoch = self.home_accesses.close_epoch();
        self.quarantine.push(home, lsn, epoch);
    }

    /// Frees what may be reused by now.
    pub fn reclaim(&mut self) {
        let mut ended = self.home_accesses.ended();
        let mut recorded = self.log.recorded();
        if canary!(SlotFreedUnderReaders) {
            ended = Epoch::MAX;
        }
        if canary!(SlotFreedWhenDurable) {
            recorded = self.log.durable();
        }
        while let Some(freed) = self.quarantine.pop(recorded, ended) {
            marks::hit(Mark::SlotReleased);
            self.slots[freed.tier().index()].release(freed);
        }
    }

    /// Whether slots wait for nothing but a record that says what is durable.
    pub fn quarantine_waits_for_record(&self) -> bool {
        self.quarantine.waits_for_record(self.log.recorded(), self.home_accesses.ended())
    }

    /// Whether nothing but a record that says what is durable is missing: for slots to come back,
    /// or for clients' last changes, whose damage would otherwise pass for a torn end of the log.
    pub fn waits_for_record(&self) -> bool {
        self.quarantine_waits_for_record() || self.log.recorded() < self.log.client_end()
    }

    /// Whether recovery would still verify the extent's home by its data.
    pub fn is_young(&self, extent: ExtentId) -> bool {
        !self.young.is_empty() && self.young.contains_key(&extent.0)
    }

    fn note_young(&mut self, extent: ExtentId, lsn: Lsn) {
        self.young.insert(extent.0, lsn);
        self.young_order.push_back((lsn, extent));
    }

    /// What was made durable up to now is no longer young.
    pub fn settle_young(&mut self) {
        let recorded = self.log.recorded();
        while let Some((lsn, extent)) = self.young_order.front().copied()
            && lsn < recorded
        {
            self.young_order.pop_front();
            if self.young.get(&extent.0) == Some(&lsn) {
                self.young.remove(&extent.0);
            }
        }
    }

    /// The extent was written to a fresh home: records it, and gives up what it replaces.
    pub fn settle_allocated(&mut self, pool: &Pool, extent: ExtentId, home: Home, crc: u32) {
        let residence = Residence::at(home);
        let entry = Entry::Allocate { extent, entry: self.map.form().encode(residence), crc };
        let lsn = self.log.append_entry(pool, &entry);
        self.replace_home(extent, residence, lsn);
        if !canary!(FreshForgetsLog) {
            self.forget_logged(extent);
        }
        self.note_young(extent, lsn);
    }

    /// The slow drive's page does not know yet that the extent has become a hole or data.
    pub fn note_unmirrored(&mut self, extent: ExtentId, lsn: Lsn) {
        let page = extent.0 / ENTRIES_PER_PAGE as u64;
        self.unmirrored
            .entry(page)
            .and_modify(|changes| changes.last = lsn)
            .or_insert(Unmirrored { first: lsn, last: lsn });
    }

    /// The slow drive's page has all changes before `lsn`.
    pub fn settle_mirrored(&mut self, page: u64, lsn: Lsn) {
        let Some(changes) = self.unmirrored.get_mut(&page) else { return };
        if changes.last < lsn || canary!(MirroredTooEarly) {
            self.unmirrored.remove(&page);
        } else {
            changes.first = changes.first.max(lsn);
        }
    }

    /// Sets where the extent is by the record at `lsn`, and retires what is no longer the extent's.
    pub fn replace_home(&mut self, extent: ExtentId, residence: Residence, lsn: Lsn) {
        let Residence { home, original, .. } = residence;
        let mapping = self.map.get(extent);
        if mapping.in_log() && !canary!(DoubtForgottenAtMove) {
            // Without doubt as long as the slow drive knew it elsewhere; that ends now.
            self.doubts.touch(extent);
        }
        self.doubt(extent);
        let old = mapping.home();
        if mapping.moving() && old != home {
            marks::hit(Mark::MovingExtentReplaced);
        }
        if self.homeward && old.is_some() != home.is_some() {
            self.note_unmirrored(extent, lsn);
        }
        self.stage.drop_image(extent);
        // Written anew below: not a copy that was given up, for it may have been bad.
        let below = home.is_some_and(|home| home.tier == Tier::Slow) && home != mapping.original();
        if below && !self.homeward && self.wishes.of(extent) == Some(Wish::Pinned) {
            self.wish_hand.look_again(extent.0);
        }
        let owned = self.owned_by(extent);
        self.map.set(extent, residence, lsn);
        let owns = self.owned_by(extent);
        let given_up = mapping.is_clean() && home == old && original.is_none();
        if given_up && !canary!(GivenBackNotYoung) {
            // Until it is durable that the slow drive's is old, what is read may come from there:
            // the copy must not be changed in place.
            self.note_young(extent, lsn);
        }
        for given_up in owned.into_iter().flatten().filter(|old| !owns.contains(&Some(*old))) {
            self.retire(given_up, lsn);
        }
    }

    /// Whether the drive may have homes in a volatile cache that requests which have ended wrote. In
    /// class cache, whose flushes also bring data home, always.
    pub fn may_be_unflushed(&self, tier: Tier) -> bool {
        self.geometry.class == Class::Cache || self.home_dirty[tier.index()] || self.flush.running
    }

    /// Whether a request for these extents must wait: somebody is alone on one, or brings it home.
    pub fn is_taken(&self, first: ExtentId, count: u64, alone: bool) -> bool {
        let end = ExtentId(first.0 + count);
        !alone && self.guards.any_alone(first, count)
            || self.going_home.range(first..end).next().is_some()
    }

    /// The block's newest version is not in the log any more.
    pub fn forget_block(&mut self, block: BlockId) {
        self.log.forget(block);
        self.kept.remove(block);
    }

    /// What was just appended to the log stays in memory until it is at home.
    pub fn keep(&mut self, at: u64, data: &[u8]) {
        if self.homeward && !canary!(NothingKept) {
            self.kept.insert(BlockId(at / BLOCK_BYTES), data);
        }
    }

    /// Has every page written anew.
    pub fn dirty_all_pages(&mut self) {
        let lsn = self.log.end();
        for page in 0..self.geometry.map_pages() {
            self.map.mark_dirty(page, lsn);
        }
    }

    /// Blocks that the log may hold as newest versions.
    fn live_blocks_max(&self) -> u64 {
        let ring = self.log.ring_blocks();
        if self.homeward { kept::blocks_max(ring) } else { ring }
    }

    /// Every block of the extent in the log is superseded.
    pub fn forget_logged(&mut self, extent: ExtentId) {
        if self.map.get(extent).in_log() {
            for block in self.blocks_of(extent) {
                self.forget_block(block);
            }
            self.map.mark_in_log(extent, false);
        }
    }

    /// Marks the extents of a range of blocks as having blocks in the log.
    pub fn mark_logged(&mut self, at: u64, length: u64) {
        let first = self.extent_of(at).0;
        let last = self.extent_of(at + length - 1).0;
        for extent in first..=if canary!(OnlyFirstMarked) { first } else { last } {
            self.mark_in_log(ExtentId(extent));
        }
    }

    /// Marks an extent as having blocks in the log.
    pub fn mark_in_log(&mut self, extent: ExtentId) {
        self.doubt(extent);
        self.map.mark_in_log(extent, true);
    }

    /// The extent is about to change: the slow drive cannot vouch for it any more, unless it knows
    /// that the extent lives on the fast drive alone.
    pub fn doubt(&mut self, extent: ExtentId) {
        let mapping = self.map.get(extent);
        let on_fast = mapping.is_on_fast_alone() || mapping.is_clean() && canary!(KeptNotMarked);
        if !on_fast || !self.map.is_settled(extent) {
            self.doubts.touch(extent);
        }
    }

    /// A record that is replayed proves something.
    pub fn prove(&mut self, proof: impl FnOnce(&mut Rescue)) {
        if let Some(rescue) = &mut self.rescue {
            proof(rescue);
        }
    }

    /// Why the extent's home cannot be read, if it cannot.
    pub fn loss_at_home(&self, extent: ExtentId) -> Option<LossCause> {
        self.loss.as_ref()?.judge(extent, self.map.get(extent))
    }

    /// What is the extent's: where it lives, and what its copy was made of.
    pub fn owned_by(&self, extent: ExtentId) -> [Option<Home>; 2] {
        let Residence { home, original, .. } = self.map.get(extent).residence();
        [home, original]
    }

    /// Where the extent's home is read: its copy, or what the copy was made of when that is gone.
    /// Also when the volume is damaged: it is the slow drive that answers for a clean copy then.
    pub fn readable_home(&self, extent: ExtentId) -> Option<Home> {
        let mapping = self.map.get(extent);
        let damaged = self.loss.as_ref().is_some_and(|loss| !loss.damage.is_empty());
        let original = mapping.original().filter(|_| damaged || self.is_gone(Tier::Fast));
        original.or(mapping.home())
    }

    /// A drive is gone from now on.
    pub fn lose_drive(&mut self, tier: Tier, why: String) {
        self.loss.get_or_insert_default().add(tier, why);
        self.count_loss();
    }

    /// Counts what is lost.
    pub fn count_loss(&mut self) {
        let summary = loss::summarize(self);
        if let Some(loss) = &mut self.loss {
            loss.summary = summary;
        }
    }

    /// Whether the drive is gone.
    pub fn is_gone(&self, tier: Tier) -> bool {
        self.loss.as_ref().is_some_and(|loss| loss.is_gone(tier))
    }

    /// Log space that clients leave to the volume's own records (moves, destage, allocations of
    /// requests under way): an eighth of the ring, which even the smallest log makes 128 blocks.
    pub fn log_reserve_blocks(&self) -> u64 {
        self.log.ring_blocks() / 8
    }

    /// Whether a client's request of so many blocks may be appended now.
    pub fn has_room_for(&self, data_blocks: u64) -> bool {
        let needed = Log::worst_case_blocks(data_blocks) + self.log_reserve_blocks();
        // Zero marks take no room in the ring, but memory in the index, which is announced as one
        // entry per ring block.
        let spared = if canary!(ReserveTaken) { self.log_reserve_blocks() } else { 0 };
        self.log.room_blocks() + spared >= needed + self.promised_blocks
            && self.log.live_blocks() + data_blocks <= self.live_blocks_max()
    }

    /// Whether a client may begin to write extents to fresh slots, whose records come later. They
    /// may take half of the reserve; the other half is always there for the janitor, who makes
    /// room for everybody else.
    pub fn has_room_for_fresh(&self) -> bool {
        let needed = self.log_reserve_blocks() / 2 + FRESH_RECORD_BLOCKS;
        self.log.room_blocks() >= needed + self.promised_blocks
    }

    /// Whether so many blocks may be carried now: they, too, may take half of the reserve, since room comes of it.
    pub fn has_room_to_carry(&self, data_blocks: u64) -> bool {
        let needed = self.log_reserve_blocks() / 2 + Log::worst_case_blocks(data_blocks);
        self.log.room_blocks() >= needed + self.promised_blocks
    }

    /// How full the log is, 0 to 1, of what clients may use.
    pub fn log_fill(&self) -> f64 {
        let usable = self.log.ring_blocks() - self.log_reserve_blocks();
        let used = self.log.used_blocks().max(self.log.live_blocks()) as f64 / usable as f64;
        let live = self.log.live_blocks() as f64 / self.live_blocks_max() as f64;
        if self.homeward { used.max(live) } else { used }
    }

    pub fn dirty_bytes(&self) -> u64 {
        self.log.live_blocks() * BLOCK_BYTES
    }

    pub fn memory_bytes(&self) -> u64 {
        self.map.memory_bytes()
            + self.placer.memory_bytes()
            + self.doubts.memory_bytes()
            + self.slots.iter().map(Slots::memory_bytes).sum::<u64>()
            + self.log.memory_bytes()
            + self.kept.memory_bytes()
            + self.stage.memory_bytes()
            + self.young.capacity() as u64 * 17
            + self.quarantine.len() as u64 * 32
    }
}
