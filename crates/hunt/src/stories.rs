//! The stories that the engine must survive: each of its deeds, with power failing at every
//! operation of it. Each act verifies by the engine's own counters that the deed took place, so
//! that a story cannot become empty unnoticed.

mod behind;
mod bereaved;
mod bounding;
mod caching;
mod carrying;
mod cleaning;
mod cramming;
mod damaging;
mod deferring;
mod doubting;
mod failing;
mod foreseeing;
mod keeping;
mod leaving;
mod moving;
mod opening;
mod paging;
mod parting;
mod racing;
mod refusing;
mod slots;
mod through;
mod writing;

use std::cell::RefCell;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;

use engine::CacheMode::{self, WriteAround, WriteThrough};
use engine::{Engine, Status, Wish};
use io::Durability::Volatile;
use io::units::{KIB, MIB, MILLISECOND_NS, SECOND_NS};
use io::{ErrorKind, IoError};
use twin::{CacheLoss, DriveSpec, Random, mix};

use crate::scenario::{Scenario, Stage};
use crate::watched::{Trouble, Watched};
use crate::workload::Workload;

/// Bytes of an extent.
const EXTENT: u64 = 128 * KIB;

/// The fast drive: superblocks, map and the smallest landing log take 6 MiB; 32 slots.
const FAST_BYTES: u64 = 10 * MIB;

/// The slow drive: the volume just exceeds the smallest one.
const SLOW_BYTES: u64 = 68 * MIB;

/// Extents that surely fill the fast drive.
const FAST_EXTENTS: u64 = 40;

/// Long enough for all that the engine does when idle.
const IDLE_NS: u64 = 20 * SECOND_NS;

type Story = Scenario<Engine>;
type Prey = Watched<Engine>;

/// All stories. `atomic_write_bytes` is what a power cut does not tear on either drive: 512 has
/// the engine avoid writing in place, 4096 lets it.
pub fn stories(seed: u64, atomic_write_bytes: u32) -> Vec<Story> {
    let drives = Drives { seed, atomic_write_bytes };
    let mut all = vec![
        writing::creation(&drives),
        writing::clean_close(&drives),
        writing::small_writes(&drives),
        writing::unaligned_writes(&drives),
        writing::forced_writes(&drives),
        writing::concurrent_flushes(&drives),
        writing::allocation_on_fast(&drives),
        writing::allocation_on_slow(&drives),
        writing::rewriting_whole_extents(&drives),
        writing::overwriting_at_home(&drives),
        writing::trims(&drives),
        writing::zeroes(&drives),
        moving::destage(&drives),
        moving::destage_under_fire(&drives),
        moving::promotion(&drives),
        moving::demotion(&drives),
        moving::checkpoint(&drives),
        moving::checkpoint_under_fire(&drives),
        moving::log_wrap(&drives),
        moving::full_log(&drives),
        moving::full_volume(&drives),
        failing::recovery(&drives, CacheLoss::KeepAll),
        failing::recovery(&drives, CacheLoss::Subset(seed)),
        failing::failing_drives(&drives),
        deferring::small_writes(&drives),
        deferring::large_writes(&drives),
        deferring::both_drives(&drives),
        deferring::destage(&drives),
        deferring::switches(&drives),
        deferring::strict_again_below(&drives),
        racing::parts(&drives),
        racing::more_than_the_bound(&drives),
        racing::switches_below(&drives),
        racing::whole_extents_beside_a_switch(&drives),
        racing::durable_beside_a_switch(&drives),
        racing::flushes_side_by_side(&drives),
        racing::slow_drive_refuses(&drives),
        racing::in_step(&drives),
        racing::zeros_fill_the_index(&drives),
        doubting::changes(&drives),
        doubting::close(&drives),
        doubting::checkpoints(&drives),
        doubting::vast(&drives),
        behind::writes(&drives),
        behind::close(&drives),
        behind::pressed(&drives),
        behind::into_deferred(&drives),
        behind::strict_again(&drives),
        behind::refused(&drives),
        doubting::beside_one_another(&drives),
        slots::from_the_first(&drives),
        slots::again_and_again(&drives),
        slots::beside_a_superblock(&drives),
        slots::beside_flushes(&drives),
        slots::lasting_reads(&drives),
        paging::checkpoints_in_a_row(&drives),
        paging::records_on_their_way(&drives),
        opening::after_a_torn_superblock(&drives),
        opening::after_a_death(&drives),
        opening::after_a_death_below(&drives),
        opening::with_a_page_to_mend(&drives),
        opening::over_a_lost_session(&drives),
        opening::laps_in_step(&drives),
        refusing::a_record(&drives, false),
        refusing::a_record(&drives, true),
        refusing::whole_extents(&drives),
        refusing::a_flush_below(&drives),
        refusing::a_read_of_what_moves(&drives),
        leaving::written_as_they_leave(&drives),
        leaving::closed_as_they_leave(&drives),
        leaving::read_as_they_are_destaged(&drives),
        leaving::destaged_as_they_are_written(&drives),
        cramming::a_log_of_what_lives(&drives),
        cramming::fresh_extents_over_a_full_log(&drives),
        cramming::writers_that_never_flush(&drives),
        carrying::round_the_ring(&drives),
        carrying::written_as_they_are_carried(&drives),
        carrying::rotten_before(&drives),
        carrying::refused(&drives),
        damaging::a_block_of_the_log(&drives),
        damaging::drives_of_other_moments(&drives),
        racing::flushes_that_overlap(&drives),
        bounding::whole_extents(&drives),
        bounding::changes_beside_homes(&drives),
        bounding::a_write_during_a_flush(&drives),
        bounding::a_stream_of_small_writes(&drives),
        bounding::no_more_than_the_bound(&drives),
        bounding::changes_that_grow_old(&drives),
        bounding::a_drive_that_flushes_slowly(&drives),
        racing::homes_beside_a_flush(&drives),
        refusing::what_is_destaged(&drives),
        refusing::some_of_what_is_destaged(&drives),
        refusing::a_page_of_the_map(&drives),
        leaving::read_again_as_they_change(&drives),
        doubting::as_marks_go(&drives),
        foreseeing::writes_ahead_of_a_stream(&drives),
    ];
    all.push(mixture(seed, atomic_write_bytes));
    all
}

/// Stories of class cache, each with the mode that the volume is made in.
pub fn cache_stories(seed: u64, atomic_write_bytes: u32) -> Vec<(CacheMode, Story)> {
    let drives = Drives { seed, atomic_write_bytes };
    vec![
        caching::through(&drives, WriteThrough),
        caching::through(&drives, WriteAround),
        caching::into_and_out_of_around(&drives),
        caching::copies_of_the_volatile(&drives),
        caching::back(&drives),
        caching::changing(&drives),
        caching::changing_at_destage(&drives),
        through::beside_one_another(&drives),
        through::far_apart(&drives),
        through::seeming_neighbours(&drives),
        through::copied_at_once(&drives),
        through::changed_while_written(&drives),
        through::changed_over_dirty_copies(&drives),
        through::changed_while_flushed(&drives),
        through::dirty_copies(&drives),
        cleaning::given_up_for_their_homes(&drives),
        cleaning::written_as_they_go_home(&drives),
        parting::grown_and_replaced(&drives),
        parting::written_as_they_go_home(&drives),
        parting::filled_as_they_are_hot(&drives),
        parting::into_write_through(&drives),
    ]
}

/// Stories of volumes that keep below what goes up ([`crate::Keeping`]).
pub fn keeping_stories(seed: u64, atomic_write_bytes: u32) -> Vec<Story> {
    let drives = Drives { seed, atomic_write_bytes };
    vec![
        keeping::up_and_down(&drives),
        keeping::changes(&drives),
        keeping::full_volume(&drives),
        keeping::switched_off(&drives),
        keeping::written_as_given_back(&drives),
        keeping::unreadable_copies(&drives),
        moving::promotion(&drives),
        moving::demotion(&drives),
        doubting::vast(&drives),
    ]
}

/// Stories of a slow drive that serves alone ([`crate::Widowed`]), on drives that tear 4 KiB those in which
/// no data is under way when power fails.
pub fn alone_stories(seed: u64, atomic_write_bytes: u32) -> Vec<Story> {
    let drives = Drives { seed, atomic_write_bytes };
    let mut all = vec![bereaved::holes(&drives)];
    if atomic_write_bytes >= 4096 {
        all.extend([
            bereaved::data_and_holes(&drives),
            writing::small_writes(&drives),
            writing::unaligned_writes(&drives),
            writing::trims(&drives),
        ]);
    }
    all
}

/// Stories of a cache that is given a new fast drive at each opening ([`crate::Remarried`]).
pub fn attach_stories(seed: u64) -> Vec<Story> {
    let drives = Drives { seed, atomic_write_bytes: 4096 };
    vec![bereaved::with_copies(&drives), writing::small_writes(&drives)]
}

/// A longer life on drives of many kinds, which begins with a recovery: for hunting. Its
/// operations are many, so cut it at some of them only.
pub fn endurance(seed: u64, atomic_write_bytes: u32) -> Story {
    let drives = Drives { seed, atomic_write_bytes };
    let work = move |salt: u64| {
        let seed = mix(seed ^ salt);
        let span = match seed % 3 {
            0 => 0..8 * EXTENT,
            1 => 0..60 * EXTENT,
            _ => 0..64 * MIB,
        };
        let (clients, steps) = (1 + seed % 7, 60);
        Workload { seed, clients, steps, span, length_bytes_max: MIB, patient: false }
    };
    let mut random = Random::new(mix(seed));
    let mut story = drives
        .story("endurance")
        .after_cut(CacheLoss::Torn(seed))
        .prepare(move |stage| async move { work(1).run(&stage.volume).await })
        .act(move |stage| async move {
            work(2).run(&stage.volume).await?;
            if seed.is_multiple_of(2) {
                idle(&stage.volume).await;
            }
            work(3).run(&stage.volume).await
        });
    for drive in [&mut story.fast, &mut story.slow] {
        // Some without a volatile cache, with a small one, or with large sectors.
        match random.below(6) {
            0 => drive.cache_bytes = 0,
            1 => drive.cache_bytes = 256 * KIB,
            2 => drive.sector_bytes = 4096,
            _ => {}
        }
        if random.chance(25) {
            drive.atomic_write_bytes = 4608 - atomic_write_bytes;
        }
        if random.chance(50) {
            drive.latencies.stall_permille = 20;
        }
        drive.latencies.channels = 1 + random.below(16) as usize;
    }
    story
}

/// As [`mixture`], in deferred mode.
pub fn deferred_mixture(seed: u64, atomic_write_bytes: u32) -> Story {
    deferring::mixture(&Drives { seed, atomic_write_bytes })
}

/// Several clients that do everything at once; another mixture for each seed.
pub fn mixture(seed: u64, atomic_write_bytes: u32) -> Story {
    let drives = Drives { seed, atomic_write_bytes };
    let work = move |salt: u64, steps| {
        let seed = mix(seed ^ salt);
        let span = match seed % 3 {
            0 => 0..4 * EXTENT,
            1 => 0..40 * EXTENT,
            _ => 8 * EXTENT - 64 * KIB..20 * EXTENT,
        };
        Workload {
            seed,
            clients: 1 + seed % 5,
            steps,
            span,
            length_bytes_max: 512 * KIB,
            patient: false,
        }
    };
    drives
        .story("mixture")
        .prepare(move |stage| async move { work(1, 20).run(&stage.volume).await })
        .act(move |stage| async move { work(2, 8).run(&stage.volume).await })
}

struct Drives {
    seed: u64,
    atomic_write_bytes: u32,
}

impl Drives {
    fn story(&self, name: &'static str) -> Story {
        let atomic_write_bytes = self.atomic_write_bytes;
        let fast = DriveSpec { atomic_write_bytes, ..DriveSpec::fast("fast", FAST_BYTES) };
        let slow = DriveSpec { atomic_write_bytes, ..DriveSpec::slow("slow", SLOW_BYTES) };
        Scenario::new(name, self.seed, fast, slow)
    }
}

/// All operations take the same time: those that begin together end together.
fn put_in_step(story: &mut Story) {
    for drive in [&mut story.fast, &mut story.slow] {
        let of = &mut drive.latencies;
        for time in [&mut of.read_ns, &mut of.write_ns, &mut of.flush_ns, &mut of.trim_ns] {
            *time = MILLISECOND_NS / 10;
        }
        (of.kib_ns, of.jitter_percent, of.channels) = (0, 0, 64);
    }
}

/// What a story says that is not about what it says it is.
pub(crate) const MISSED: &str = "the story missed its deed";

/// The story is not about what it says it is.
fn missed(what: &str, status: &Status) -> Trouble {
    let text = format!("{MISSED}, {what}: {status:?}");
    Trouble::Refused(IoError::new(ErrorKind::Unsupported, text))
}

fn insist(stage: &Stage<Engine>, what: &str, deed: fn(&Status) -> bool) -> Result<(), Trouble> {
    let status = stage.volume.volume().status();
    // A write-through cache does other deeds, and has tests of its own for them.
    let through = status.cache_mode.is_some_and(CacheMode::brings_home);
    if through || deed(&status) { Ok(()) } else { Err(missed(what, &status)) }
}

/// Being refused is no trouble; only a lie is.
fn unless_refused(outcome: Result<(), Trouble>) -> Result<(), Trouble> {
    outcome.or_else(|trouble| match trouble {
        Trouble::Refused(_) => Ok(()),
        lie => Err(lie),
    })
}

/// Wishes something for some extents, which are moved when clients rest.
async fn wish(stage: &Stage<Engine>, extents: Range<u64>, wish: Wish) -> Result<(), Trouble> {
    let length = (extents.end - extents.start) * EXTENT;
    let range = (extents.start * EXTENT, length);
    let wished = stage.volume.volume().wish(&[range], Some(wish)).await;
    wished.map_err(|error| Trouble::Refused(IoError::from(error)))
}

fn boxed<F>(future: F) -> Pin<Box<dyn Future<Output = Result<(), Trouble>>>>
where
    F: Future<Output = Result<(), Trouble>> + 'static,
{
    Box::pin(future)
}

async fn idle(volume: &Prey) {
    volume.io().sleep(IDLE_NS).await;
}

/// Waits until the engine reads from a drive by itself: it has begun to destage or move. For a
/// second at most; the story then misses its deed.
async fn until_background(stage: &Stage<Engine>) {
    let reads = || -> u64 {
        let drives = stage.machine.drives().into_iter();
        drives.map(|drive| stage.machine.counters(drive).reads).sum()
    };
    let before = reads();
    for _ in 0..1000 {
        if reads() != before {
            return;
        }
        stage.volume.io().sleep(MILLISECOND_NS).await;
    }
}

/// Writes extents as a whole and makes them durable.
async fn lay(volume: &Prey, extents: Range<u64>) -> Result<(), Trouble> {
    for extent in extents {
        volume.write(extent * EXTENT, EXTENT, Volatile).await?;
    }
    volume.flush().await
}

/// As [`lay`], and the engine has done what it does when clients rest.
async fn lay_and_rest(volume: &Prey, extents: Range<u64>) -> Result<(), Trouble> {
    lay(volume, extents).await?;
    idle(volume).await;
    Ok(())
}

/// Small writes spread over the first `extents`.
async fn scatter(volume: &Prey, seed: u64, count: u64, extents: u64) -> Result<(), Trouble> {
    let mut random = Random::new(seed);
    for _ in 0..count {
        let at = random.below(extents * EXTENT / 4096) * 4096;
        volume.write(at, 4096, Volatile).await?;
    }
    Ok(())
}

/// Runs the futures as tasks of their own until all have ended.
async fn together<F>(volume: &Prey, all: impl Iterator<Item = F>) -> Result<(), Trouble>
where
    F: Future<Output = Result<(), Trouble>> + 'static,
{
    let ended = Rc::new(RefCell::new(Vec::new()));
    let list = Rc::new(io::WaitList::new());
    let mut count = 0;
    for one in all {
        count += 1;
        let (ended, list) = (ended.clone(), list.clone());
        volume.io().spawn(async move {
            let outcome = one.await;
            ended.borrow_mut().push(outcome);
            list.wake_all();
        });
    }
    list.until(|| (ended.borrow().len() == count).then_some(())).await;
    let outcomes = std::mem::take(&mut *ended.borrow_mut());
    outcomes.into_iter().collect()
}
